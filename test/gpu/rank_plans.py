#!/usr/bin/env python3
"""Times the plans that 'mirage-opt --alternatives N' wrote: rank_plans.py [--json FILE] [--jobs N] OUT, OUT/specs/NAME.json and
OUT/fused/NAME/NAME.alternatives.json with its sources.

Builds every alternative with nvcc, checks it against PyTorch in float64, and times all of a program in turn in CUDA graphs, cold and warm.
One line of JSON per program:
    {"name", "rows": [{"what", "predicted_us", "cold_us", "warm_us", "err", "ok"}], "device"}
These lines are the data of test/laws/ranking.cc (test/data/ranking.jsonl)."""

import argparse
import concurrent.futures
import json
import math
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import torch_check  # noqa: E402
import torch_program  # noqa: E402


def build(job):
    folder, name, source, target = job
    os.makedirs(target, exist_ok=True)
    arch = "arch=compute_%sa,code=sm_%sa" % (("90",) * 2)
    command = [
        "nvcc",
        "-O3",
        "-std=c++17",
        "-shared",
        "-Xcompiler",
        "-fPIC,-fvisibility=hidden",
        "-gencode",
        arch,
        "-Xlinker",
        "--version-script=%s/%s.map" % (folder, name),
        "-I",
        folder,
        "-o",
        os.path.join(target, "lib%s.so" % name),
        os.path.join(folder, source),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr or "nvcc failed").splitlines()[-1][:200]


def rank(out, name, targets, failures, alternatives, replays):
    program = torch_program.read_program(os.path.join(out, "specs", name + ".json"))
    tensors = program.draw()
    want = program.written(*[x.double() if x.is_floating_point() else x for x in tensors])
    tolerance = 1e-5 if all(t.dtype == torch.float32 for t in program.inputs + program.outputs) else 5e-3
    input_bytes = sum(t.bytes() for t in program.inputs)
    count = min(1024, max(2, 200_000_000 // max(1, input_bytes) + 1))
    sets = [
        (
            tensors if i == 0 else [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda").copy_(x) for x in tensors],
            [t.empty() for t in program.outputs],
        )
        for i in range(count)
    ]
    rows, functions = [], {}
    for i, a in enumerate(alternatives):
        row = {"what": a["what"], "predicted_us": a["predicted_us"], "ok": False}
        rows.append(row)
        if failures[i]:
            row["reason"] = failures[i]
            continue
        library = torch_check.Library(targets[i], program)
        outputs = [t.empty() for t in program.outputs]
        for o in outputs:
            o.fill_(math.nan if o.is_floating_point() else 0)
        library(tensors, outputs)
        torch.cuda.synchronize()
        row["err"] = torch_check.relative(outputs, want)
        row["ok"] = row["err"] < tolerance
        functions[str(i)] = lambda s, library=library: library(s[0], s[1])
    for key, chosen in (("cold_us", sets), ("warm_us", sets[:1])):
        for i, samples in torch_check.times(functions, chosen, replays).items():
            rows[int(i)][key] = torch_check.median(samples)
    return {"name": name, "rows": rows, "device": torch.cuda.get_device_name()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--replays", type=int, default=9)
    parser.add_argument("out")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    scratch = tempfile.mkdtemp()
    lists, jobs = {}, []
    for name in sorted(os.listdir(os.path.join(arguments.out, "fused"))):
        folder = os.path.join(arguments.out, "fused", name)
        path = os.path.join(folder, name + ".alternatives.json")
        if os.path.exists(path):
            with open(path) as f:
                lists[name] = json.load(f)["alternatives"]
            jobs += [(folder, name, a["file"], os.path.join(scratch, name, str(i))) for i, a in enumerate(lists[name])]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        failures = dict(zip([j[3] for j in jobs], pool.map(build, jobs)))
    log = open(arguments.json, "w") if arguments.json else None
    for name, alternatives in lists.items():
        targets = [os.path.join(scratch, name, str(i)) for i in range(len(alternatives))]
        try:
            row = rank(arguments.out, name, targets, [failures[t] for t in targets], alternatives, arguments.replays)
        except Exception as error:
            row = {"name": name, "error": repr(error)[:300]}
        print(json.dumps(row), file=log or sys.stdout, flush=True)
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
