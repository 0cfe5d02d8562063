#!/usr/bin/env python3
"""Random blocks of 60 to 200 operators, and what mirage-opt makes of them.

Draws blocks from a grammar of layers (block_layers.py) with odd sizes, mixed dtypes and many layouts, deterministically from a seed; runs
mirage-opt on each with limits of processor time and memory, and writes a table:
exit code, seconds of CPU, MB, kernels, predicted and straightforward us, what was proved, gate, how it was made, reasons. Exit code 1:
something ended with another exit code than 0, wrong, or beyond its limits.

  test/growth/blocks.py --check-list                        the blocks are those of blocks.txt
  test/growth/blocks.py --write DIR                         only write the specs
  test/growth/blocks.py --binary build/mirage-opt --table blocks.md [--only 3,17] [--seed 7 --count 20]
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import block_layers  # noqa: E402

SEED, COUNT = 20261123, 100
LEAST, MOST = 60, 200                       # operators as written
LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "blocks.txt")
DTYPES = [
    ("float16", "float16", "float16"),
    ("bfloat16", "bfloat16", "bfloat16"),
    ("float32", "float32", "float32"),
    ("bfloat16", "bfloat16", "float32"),
    ("float16", "float16", "float32"),
    ("float32", "bfloat16", "float32"),
    ("bfloat16", "float16", "float32"),
]
TOKENS = [1, 1, 2, 5, 7, 8, 13, 16, 24, 31, 48, 64, 77, 100, 127, 128, 196, 256, 257, 512, 577, 1024]
WIDTHS = [32, 48, 60, 64, 72, 96, 97, 128, 192, 200, 250, 256, 320, 384, 509, 512, 640, 768, 896, 1000, 1024, 1280, 2048]


def draw(seed, number):
    rng = random.Random(f"{seed}/{number}")
    while True:
        tokens, width = rng.choice(TOKENS), rng.choice(WIDTHS)
        batch = rng.choice([0, 0, 1, 2, 3, 4, 8, 16])
        if tokens * max(1, batch) * width <= 2 ** 21:
            break
    s = block_layers.Block(rng, rng.choice(DTYPES[:2] * 4 + DTYPES[2:]))
    x = s.input(([batch] if batch else []) + [tokens, width])
    aim = rng.randrange(LEAST - 12, MOST - 35)
    kinds = rng.sample(block_layers.LAYERS, rng.randrange(2, 9))        # a block repeats a few kinds of layers, as models do
    while len(s.nodes) < aim and s.elements < 2 ** 27:
        x = rng.choice(kinds)(s, x)
    block_layers.end(s, x)
    while len(s.nodes) < LEAST:
        x = block_layers.chain(s, x)
        s.results.append(x)
    used = {i for node in s.nodes for i in node["inputs"]}
    results = [r for i, r in enumerate(s.results) if r not in s.results[:i]]
    outputs = {r: {"dtype": s.dtypes[0]} for r in results}
    return {"name": f"block_{number:03d}", "inputs": {k: v for k, v in s.inputs.items() if k in used}, "outputs": outputs, "nodes": s.nodes}


def text(spec):
    return json.dumps(spec, separators=(",", ":"))


def drawn(arguments):
    numbers = [int(n) for n in arguments.only.split(",")] if arguments.only else range(arguments.count)
    return [draw(arguments.seed, n) for n in numbers]


def lines_of_list(specs):
    return [f"{s['name']} {len(s['nodes'])} {hashlib.sha256(text(s).encode()).hexdigest()[:16]}" for s in specs]


def limited(arguments):
    def apply():
        resource.setrlimit(resource.RLIMIT_CPU, (arguments.cpu, arguments.cpu + 5))
        resource.setrlimit(resource.RLIMIT_AS, (arguments.memory << 20, arguments.memory << 20))
        os.nice(arguments.nice)
    return apply


def run(arguments, spec, folder):
    """One row: what mirage-opt made of the spec."""
    path, out = os.path.join(folder, spec["name"] + ".json"), os.path.join(folder, spec["name"])
    with open(path, "w", encoding="utf-8") as file:
        file.write(text(spec))
    emit = ["--emit", "cu,h,graph"]      # registers and spills, for which kernels are compiled, are asked for by who wants them
    command = [
        arguments.binary,
        "-q",
        "-j",
        "1",
        "--no-cache",
        "--target",
        "sm_90a",
        "--gate",
        arguments.gate,
        *emit,
        *(["--states", arguments.states] if arguments.states else []),
        "-o",
        out,
        "--report",
        path + ".report",
        path,
    ]
    errors, began = open(path + ".err", "wb"), time.monotonic()
    process = subprocess.Popen(command, stdout=errors, stderr=errors, preexec_fn=limited(arguments))
    _, status, usage = os.wait4(process.pid, 0)
    errors.close()
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    row = {
        "name": spec["name"],
        "ops": len(spec["nodes"]),
        "exit": code,
        "cpu": round(usage.ru_utime + usage.ru_stime, 1),
        "wall": round(time.monotonic() - began, 1),
        "mb": usage.ru_maxrss // 1024,
        "dtype": next(iter(spec["inputs"].values()))["dtype"],
        "model": model_kernels(spec),
    }
    try:
        with open(path + ".report", encoding="utf-8") as file:
            row.update(facts(json.load(file)))
    except (OSError, ValueError, KeyError) as error:
        row["note"] = f"no report: {error}"[:60]
    if not arguments.keep:
        shutil.rmtree(out, ignore_errors=True)
    return row


def facts(report):
    """What the table shows of a report."""
    result, cut = report["result"], report.get("partition", {})
    gates = [line for line in report["supported_by"] if line.startswith("kernels ")]
    pieces = cut.get("pieces", [])
    said = report.get("warnings", []) + report.get("not_done", []) + cut.get("notes", [])
    if not cut.get("used", False) and cut.get("reason"):
        said.append(cut["reason"])
    return {
        "kernels": len(result["kernels"]),
        "kind": result["kind"],
        "us": result["predicted_us"],
        "straight_us": result["straightforward_us"],
        "straight_kernels": next((a["kernels"] for a in report["alternatives"] if a["what"] == "straightforward"), 0),
        "proved": report["proof"]["proved"],
        "gate": gates[0] if gates else "",
        "pieces": len(pieces),
        "searched": sum(p["searched"] for p in pieces),
        "said": said,
        "block_us": sum(k["predicted_us"] for k in result["kernels"] if k["strategy"] == "block"),
        "seconds": report.get("seconds", {}),
    }


PRODUCTS = {"matmul", "einsum"}
REDUCTIONS = {"sum", "mean", "max", "softmax", "rms_norm", "layer_norm", "l2_norm", "group_norm"}
VIEWS = {"reshape", "transpose", "slice", "iota"}


def model_kernels(spec):
    """Kernels that a compiler makes which calls a library for products and fuses everything else greedily: an operator joins the latest
    kernel that makes one of its operands (or reads one, where it makes no product), unless that
    kernel reduces to other rows, or another operand comes later. Views cost nothing."""
    # of a value: its kernel; of a kernel: its rows where it reduces; of a value: the kernel after which it exists
    group, rows, at, count = {}, {}, {}, 0
    for node in spec["nodes"]:
        operands = [i for i in node["inputs"] if isinstance(i, str) and i in at]
        ready = max((at[i] for i in operands), default=0)
        out = node["output"]
        if node["op"] in VIEWS:
            at[out], group[out] = ready, max((group[i] for i in operands), default=0)
            continue
        if node["op"] not in PRODUCTS:
            mine = max((group[i] for i in operands), default=0)
            axis = json.dumps(node.get("attrs", {}).get("axis", -1)) if node["op"] in REDUCTIONS else None
            if mine and mine >= ready and (axis is None or rows.get(mine) in (None, axis)):
                at[out], group[out] = mine, mine
                if axis is not None:
                    rows[mine] = axis
                continue
        count += 1
        at[out] = count
        group[out] = 0 if node["op"] in PRODUCTS else count
        if node["op"] in REDUCTIONS:
            rows[count] = json.dumps(node.get("attrs", {}).get("axis", -1))
    return count


def good(row):
    return (
        row["exit"] == 0
        and row.get("kind") is not None
        and row.get("gate", "").startswith("kernels emulated")
        and not any("not searched" in said for said in row["said"])
    )


def table(rows):
    head = [
        "name",
        "dtype",
        "ops",
        "exit",
        "cpu",
        "mb",
        "model",
        "straight_kernels",
        "kernels",
        "straight_us",
        "us",
        "kind",
        "pieces",
        "proved",
    ]
    lines = ["| " + " | ".join(head) + " | gate | said |", "|" + "---|" * (len(head) + 2)]
    for row in rows:
        said = "; ".join(row.get("said", [row.get("note", "")]))
        lines.append("| " + " | ".join(str(row.get(h, "")) for h in head) + f" | {row.get('gate', '')[:40]} | {said[:160]} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/mirage-opt")
    parser.add_argument("--seed", default=SEED, type=int)
    parser.add_argument("--count", default=COUNT, type=int)
    parser.add_argument("--only", default="", help="numbers of blocks, with commas between")
    parser.add_argument("--write", metavar="DIR")
    parser.add_argument("--check-list", action="store_true")
    parser.add_argument("--gate", default="emulate")
    parser.add_argument("--states", help="what --states of mirage-opt is to be; 0: the straightforward kernels")
    parser.add_argument("--table", metavar="FILE")
    parser.add_argument("--keep", metavar="DIR", help="leave specs, results and reports there")
    parser.add_argument("--cpu", default=300, type=int, help="seconds")
    parser.add_argument("--memory", default=8192, type=int, help="MB of address space")
    parser.add_argument("--nice", default=10, type=int)
    parser.add_argument("-j", "--jobs", default=2, type=int)
    arguments = parser.parse_args()
    specs = drawn(arguments)
    if arguments.check_list:
        with open(LIST, encoding="utf-8") as file:
            return 0 if file.read().split("\n")[:-1] == lines_of_list(specs) else 1
    if arguments.write:
        os.makedirs(arguments.write, exist_ok=True)
        for spec in specs:
            with open(os.path.join(arguments.write, spec["name"] + ".json"), "w", encoding="utf-8") as file:
                file.write(text(spec))
        print("\n".join(lines_of_list(specs)))
        return 0
    folder = arguments.keep or tempfile.mkdtemp(prefix="blocks.")
    os.makedirs(folder, exist_ok=True)
    rows = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda spec: run(arguments, spec, folder), specs):
            rows.append(row)
            print(
                " ".join(
                    f"{k}={row[k]}"
                    for k in (
                        "name",
                        "dtype",
                        "ops",
                        "exit",
                        "cpu",
                        "mb",
                        "model",
                        "straight_kernels",
                        "kernels",
                        "straight_us",
                        "us",
                        "kind",
                        "proved",
                    )
                    if k in row
                ),
                "" if good(row) else "BAD " + row.get("gate", "")[:80] + "; ".join(row.get("said", [row.get("note", "")])),
                flush=True,
            )
            if arguments.table:
                with open(arguments.table, "w", encoding="utf-8") as file:
                    file.write(table(rows))
    if not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if all(good(row) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
