#!/usr/bin/env python3
"""What torch.compile(backend="mirage_opt") gains on this machine's GPU beside eager and Inductor's max-autotune, on blocks of published
models in bfloat16, three batch sizes from one library: microseconds of one call in a CUDA graph of 20 (weights as the last call left
them in L2; the graphs of all take turns), and on the host. Errors are to float64, relative to the result's norm; "graph" says whether a
replay gives what a call gives.

PYTHONPATH=lib/python MIRAGE_OPT=build/mirage-opt test/python/backend_bench.py [--cache DIR] [--seconds N] [NAME...]

Inductor's autotuning takes most of the time. --build ours and --build inductor leave both in their caches, so that processes for several
models can do it beside each other (--lock FILE: their benchmarks take turns); a run without --build then finds them there.
"""

import argparse
import logging
import sys
import time
import traceback

import torch

import mirage_opt  # registers the backend
from bench_models import MODELS
from mirage_opt import backend as state
from mirage_opt import kernelbench_times

CALLS, ROUNDS = 20, 15
HEAD = """| module, batch | error | eager's | graph | mirage_opt us | inductor us | eager us | host us | inductor's host us | over inductor |
|---|---|---|---|---|---|---|---|---|---|"""


def flat(y):
    return y if isinstance(y, tuple) else (y,)


def error(got, want):
    return max(((g.double() - w.double()).norm() / w.double().norm()).item() for g, w in zip(flat(got), flat(want)))


def captured(call):
    """A graph of some calls, and the results of its last one."""
    for _ in range(3):
        call()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            result = call()
    return graph, result


def times(graphs):
    """Median microseconds of a call of each, replays in turn."""
    took = {k: [] for k in graphs}
    for _ in range(ROUNDS):
        for k, (graph, _) in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            took[k].append(begin.elapsed_time(end) * 1000 / CALLS)
    return {k: sorted(v)[ROUNDS // 2] for k, v in took.items()}


def host(call, n=200):
    """Microseconds that a call keeps the host."""
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(n):
        call()
    spent = time.perf_counter() - begin
    torch.cuda.synchronize()
    return spent / n * 1e6


def tuned(module):
    return torch.compile(module, mode="max-autotune-no-cudagraphs", dynamic=False)


def with_inductor(inputs):
    rows = inputs[0].shape[0]
    return not OPTIONS.no_inductor and (not OPTIONS.inductor or rows in OPTIONS.inductor)


def measured(module, ours, inputs):
    """The row of one batch size."""
    want = module.double()(*(x.double() for x in inputs))
    module.bfloat16()
    eager = module(*inputs)
    begin = time.perf_counter()
    got = ours(*inputs)
    first = time.perf_counter() - begin
    graphs = {"ours": captured(lambda: ours(*inputs)), "eager": captured(lambda: module(*inputs))}
    us, other = times(graphs), None  # told before Inductor, which takes the longest
    print(f"  error {error(got, want):.1e}, mirage_opt {us['ours']:.1f} us, eager {us['eager']:.1f} us, {first:.0f} s", flush=True)
    if with_inductor(inputs):
        other = tuned(module)
        other(*inputs)
        graphs["inductor"] = captured(lambda: other(*inputs))
        print(f"  inductor compiled, {time.perf_counter() - begin:.0f} s", flush=True)
    us = times(graphs)
    again = graphs["ours"][1]
    same = all(torch.equal(a, b) for a, b in zip(flat(got), flat(again))) or f"{error(again, got):.0e}"
    hosts = [host(lambda: ours(*inputs)), host(lambda: other(*inputs)) if other is not None else 0]
    return [error(got, want), error(eager, want), same, us["ours"], us.get("inductor", 0), us["eager"], *hosts, first]


def bench(name, make, arguments, batches, dynamic):
    torch.manual_seed(0)
    torch._dynamo.reset()
    state._families.clear()
    with torch.device("cuda"):
        module = make().bfloat16().eval()
    rows = mirage_opt.Values("B", sorted(batches))
    options = {"cache": OPTIONS.cache, "target": OPTIONS.target, "dynamic_shapes": {k: {0: rows} for k in dynamic}}
    ours = torch.compile(module, backend="mirage_opt", options=options)
    for b in batches:
        with torch.device("cuda"):
            inputs = tuple(x.bfloat16() for x in arguments(b))
        for x in inputs:
            if dynamic and b == batches[0] and x.shape[0] == b:
                torch._dynamo.mark_dynamic(x, 0)
        if OPTIONS.build:
            begin = time.perf_counter()
            if OPTIONS.build == "ours":
                ours(*inputs)
            elif with_inductor(inputs):
                tuned(module)(*inputs)
            print(f"{name}, {b}: {OPTIONS.build}, {time.perf_counter() - begin:.0f} s", flush=True)
            if OPTIONS.build == "ours":
                print(f"{name}, {b}: {state.last_partition.report()}", flush=True)
            continue
        error_, eager, same, *us, first = measured(module, ours, inputs)
        found = state.last_partition
        libraries = len({id(v) for v in state._families.values()})
        gain = f"{us[1] / us[0]:.3f}" if us[1] else ""
        print(
            f"| {name}, {b} | {error_:.1e} | {eager:.1e} | {same} | "
            + " | ".join(f"{x:.1f}" for x in us)
            + f" | {gain} |\n  {first:.0f} s, {found.covered} of {found.total} operators, {libraries} libraries of several sizes",
            flush=True,
        )


def chosen(name):
    """Whether it was asked for: by its whole name, or by a part where no model is called so."""
    return not OPTIONS.names or any(n == name or (n not in MODELS and n.lower() in name.lower()) for n in OPTIONS.names)


def main():
    begin = time.perf_counter()
    if not OPTIONS.build:
        print(HEAD, flush=True)
    for name, how in MODELS.items():
        if not chosen(name):
            continue
        if time.perf_counter() - begin > OPTIONS.seconds:
            print(f"out of time before {name}", flush=True)
            break
        try:
            bench(name, *how)
        except Exception:
            print(f"{name}: FAILED", flush=True)
            traceback.print_exc(limit=5, file=sys.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="names, or parts of them")
    parser.add_argument("--cache", help="the backend's option")
    parser.add_argument("--target", default="native", help="likewise")
    parser.add_argument("--build", choices=("ours", "inductor"), help="only fills the caches")
    parser.add_argument("--lock", help="Inductor's benchmarks hold this file")
    parser.add_argument("--inductor", type=int, action="append", metavar="BATCH", help="only these batches by Inductor; may be repeated")
    parser.add_argument("--seconds", type=float, default=1e9, help="begins no model after this time")
    parser.add_argument("--no-inductor", action="store_true")
    OPTIONS = parser.parse_args()
    torch.set_grad_enabled(False)
    logging.getLogger("mirage_opt").setLevel(logging.INFO)
    if OPTIONS.lock:
        kernelbench_times.guard_benchmarks(kernelbench_times.Lock(OPTIONS.lock))
    main()
