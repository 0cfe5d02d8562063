#!/usr/bin/env python3
"""What each kernel of emitted libraries takes, beside what was predicted of it.

OUT has specs/NAME.json and, per variant, VARIANT/NAME/libNAME.so with NAME's report.json beside it (mirage-opt SPEC -o OUT/VARIANT/NAME
--emit cu,h,harness,python,makefile,report; make). A graph of launches over inputs beyond the L2 cache is replayed under the profiler of
PyTorch (CUPTI). Of a kernel two times are said: how long it ran, and what it added: from the end of the one before it to its own end, less
where it starts early. The second ones of all kernels add up to a launch.

  kernel_times.py OUT                       all kernels, those that took most over their prediction first
  kernel_times.py OUT --json FILE --top 40
"""
import argparse
import collections
import glob
import json
import os
import statistics
import sys

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_check
import torch_program

BEYOND_L2 = 120_000_000   # bytes of inputs among which launches take turns
SETS, CALLS = 64, 24      # of inputs, at most; launches of a graph, at least


def sets_of(program):
    """Inputs and results for launches that take turns."""
    first = program.draw()
    count = min(SETS, max(2, BEYOND_L2 // max(1, sum(t.bytes() for t in program.inputs)) + 1))
    sets = []
    for i in range(count):
        inputs = first if i == 0 else [
            torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda").copy_(x) for x in first]
        sets.append((inputs, [t.empty() for t in program.outputs]))
    return sets


def times_of(out, variant, name):
    """[(kernel, microseconds that it ran, microseconds that it added)], medians over launches, in the order of a launch."""
    program = torch_program.read_program(os.path.join(out, "specs", name + ".json"))
    library = torch_check.Library(os.path.join(out, variant, name), program)
    sets = sets_of(program)
    calls = -(-CALLS // len(sets)) * len(sets)
    graph = torch_check.capture(lambda s: library(s[0], s[1]), sets, calls)
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        graph.replay()
        torch.cuda.synchronize()
    events = [e for e in p.profiler.kineto_results.events()
              if e.device_type() == torch.autograd.DeviceType.CUDA and name + "_k" in e.name()]
    events.sort(key=lambda e: e.start_ns())
    ran, added, last = collections.defaultdict(list), collections.defaultdict(list), None
    for e in events:
        end = e.start_ns() + e.duration_ns()
        ran[e.name()].append(e.duration_ns() / 1000)
        if last is not None:
            added[e.name()].append((end - last) / 1000)
        last = end if last is None else max(end, last)
    return [(k, round(statistics.median(ran[k]), 3), round(statistics.median(added[k] or ran[k]), 3)) for k in ran]


def rows_of(out, variant, name):
    with open(os.path.join(out, variant, name, "report.json")) as file:
        planned = {k["name"]: k for k in json.load(file)["result"]["kernels"]}
    rows = []
    for text, ran, added in times_of(out, variant, name):
        kernel = next((k for k in planned if k + "(" in text or text.endswith(k)), None)
        if kernel:
            rows.append({"variant": variant, "program": name, "kernel": kernel, "strategy": planned[kernel].get("strategy"),
                         "predicted_us": planned[kernel]["predicted_us"], "ran_us": ran, "added_us": added})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to this file")
    parser.add_argument("--top", type=int, default=60, help="rows to print")
    arguments = parser.parse_args()
    rows, failed = [], 0
    for path in sorted(glob.glob(os.path.join(arguments.out, "*", "*", "report.json"))):
        folder = os.path.dirname(path)
        name, variant = os.path.basename(folder), os.path.basename(os.path.dirname(folder))
        if not os.path.exists(os.path.join(folder, "lib%s.so" % name)):
            continue
        try:
            rows += rows_of(arguments.out, variant, name)
        except Exception as error:   # the others' times stand
            failed += 1
            print("kernel_times.py: %s/%s: %r" % (variant, name, error), file=sys.stderr)
        torch.cuda.empty_cache()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file)
    rows.sort(key=lambda r: r["predicted_us"] - r["added_us"])
    print("| program, kernel | strategy | predicted us | added us | ran us |\n|---|---|---|---|---|")
    for r in rows[:arguments.top]:
        times = " | ".join("%.2f" % r[k] for k in ("predicted_us", "added_us", "ran_us"))
        print("| %s %s | %s | %s |" % (r["variant"], r["kernel"], r["strategy"], times))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
