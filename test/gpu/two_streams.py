#!/usr/bin/env python3
"""Launches results beside each other: any two libraries on two streams at once, for a time, must give the bits that each gives alone.

    two_streams.py [--seconds S] DIR...        DIR holds one result with its library built (DIR/NAME.py, DIR/libNAME.so)

Every pair (a library with itself included) is taken in turn, in an order drawn with a fixed seed, until the time is over; each turn queues
8 launches of either on its own stream without waiting between them. A pair whose
kernels wait for blocks that the other keeps from running would hang: the caller's timeout shows that. Exit code 8 if bits differ.
"""

import argparse
import importlib.util
import itertools
import os
import random
import sys
import time

import torch


def draw(module):
    """Inputs in the layout that the library's operator asks for, from a fixed seed."""
    generator, tensors = torch.Generator("cuda").manual_seed(1), []
    for t in module._INPUTS:
        span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.strides))
        flat = torch.empty(span, dtype=t.dtype, device="cuda")
        tensors.append(
            (flat.normal_(0, 0.5, generator=generator) if flat.is_floating_point() else flat.random_(0, 2, generator=generator)).as_strided(
                t.shape, t.strides
            )
        )
    return tensors


def load(folder):
    folder = os.path.abspath(folder)
    names = [f[:-3] for f in os.listdir(folder) if f.endswith(".py") and os.path.exists(os.path.join(folder, "lib" + f[:-3] + ".so"))]
    if len(names) != 1:
        return None
    spec = importlib.util.spec_from_file_location("%s_%x" % (names[0], abs(hash(folder))), os.path.join(folder, names[0] + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    op = getattr(module, names[0])
    tensors = draw(module)
    outs = op(*tensors)
    torch.cuda.synchronize()
    return folder, op, tensors, [o.clone() for o in (outs if isinstance(outs, (tuple, list)) else (outs,))]


def same(outs, want):
    outs = outs if isinstance(outs, (tuple, list)) else (outs,)
    return all(
        torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8)) for a, b in zip(outs, want)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("folders", nargs="+")
    args = parser.parse_args()
    loaded = [x for x in map(load, args.folders) if x]
    pairs = list(itertools.combinations_with_replacement(range(len(loaded)), 2))
    random.Random(1).shuffle(pairs)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    end, turns, launches, wrong = time.time() + args.seconds, 0, 0, 0
    while time.time() < end:
        i, j = pairs[turns % len(pairs)]
        outs = ([], [])
        for _ in range(8):
            for side, k in enumerate((i, j)):
                with torch.cuda.stream(streams[side]):
                    outs[side].append(loaded[k][1](*loaded[k][2]))
        torch.cuda.synchronize()
        for side, k in enumerate((i, j)):
            for o in outs[side]:
                launches += 1
                if not same(o, loaded[k][3]):
                    wrong += 1
                    if wrong < 20:
                        print("WRONG: %s beside %s" % (loaded[k][0], loaded[j if side == 0 else i][0]))
        turns += 1
    print(
        "two streams: %d libraries, %d of %d pairs in %d turns, %d launches, %d wrong"
        % (len(loaded), min(turns, len(pairs)), len(pairs), turns, launches, wrong)
    )
    sys.exit(8 if wrong else 0)


if __name__ == "__main__":
    main()
