#!/usr/bin/env python3
"""Chains of dependent launches: OUT/fused/NAME and OUT/pdl/NAME (made with --pdl) of programs whose output is an input of the next call:
chain_check.py OUT [NAME...].

A chain of 60 calls, each reading what the one before wrote, on a plain stream and in a graph, must give the bits of the same chain of
ordinary launches; then both are timed. Exit code 8 if bits differ.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import torch_check  # noqa: E402
import torch_program  # noqa: E402

LENGTH = 60


def chain(library, program, tensors, buffers):
    """Output of each call into the first input of the next; three buffers in turn, so that a call that starts too early reads what is
    stale."""
    for b in buffers[1:]:
        b.zero_()
    buffers[0].copy_(tensors[0])
    return lambda: [library([buffers[i % 3], *tensors[1:]], [buffers[(i + 1) % 3]]) for i in range(LENGTH)]


def main():
    out, *names = sys.argv[1:]
    names = names or sorted(os.listdir(os.path.join(out, "pdl")))
    status = 0
    torch.manual_seed(1)
    for name in names:
        program = torch_program.read_program(os.path.join(out, "specs", name + ".json"))
        first, result = program.inputs[0], program.outputs[0]
        if len(program.outputs) != 1 or first.shape != result.shape or first.strides != result.strides or first.dtype != result.dtype:
            continue
        tensors = program.draw()
        got, us = {}, {}
        for variant in ("fused", "pdl"):
            library = torch_check.Library(os.path.join(out, variant, name), program)
            for way in ("stream", "graph"):
                buffers = [first.empty() for _ in range(3)]
                run = chain(library, program, tensors, buffers)
                torch.cuda.synchronize()
                if way == "stream":
                    run()
                else:
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        run()
                    samples = []
                    for _ in range(9):
                        buffers[0].copy_(tensors[0])
                        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                        torch.cuda._sleep(150_000)
                        begin.record()
                        graph.replay()
                        end.record()
                        torch.cuda.synchronize()
                        samples.append(begin.elapsed_time(end) * 1000 / LENGTH)
                    us[variant] = torch_check.median(samples)
                torch.cuda.synchronize()
                got[variant, way] = buffers[LENGTH % 3].clone()
        same = all(bool(torch.equal(got["fused", "stream"].view(torch.uint8), g.view(torch.uint8))) for g in got.values())
        status = status if same else 8
        print(
            "%-24s %s chain of %d: ordinary %.2f us per call, pdl %.2f"
            % (name, "ok " if same else "BITS DIFFER", LENGTH, us["fused"], us["pdl"])
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
