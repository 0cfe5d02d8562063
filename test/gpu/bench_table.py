#!/usr/bin/env python3
"""Writes results.md and results.json from what 'cmd/bench.sh run' measured: bench_table.py OUT RESULTS."""
import glob
import json
import math
import os
import sys

METHOD = """## Method

* **fused**: the library that mirage-opt writes for the spec. **unfused**: our own straightforward kernels for the same program (`--states 0`). **pdl**: the library made with `--pdl`, its calls overlapping in a
  chain; a column of its own, as it may go below what one call can take. **predicted**: the cost model's time for the fused library; the winner is chosen by it, not by measurement, unless `--measure` was asked for.
  Where nothing better was found the library is the unfused one, and the column *kernels* says so.
* Times are microseconds per call in CUDA graphs of 40 or more calls, **cold**: the calls rotate over as many sets of inputs as exceed 200 MB, so that no call finds its inputs in the L2 cache; **warm**: one set.
  Medians over the replays. A short wait on the GPU before each replay lets the host finish its launch first, so host latency is in nobody's time.
* All of one program (ours, PyTorch's, floors) are captured in one process and replayed in turn: `test/gpu/torch_check.py`. Clocks and temperature touch all alike.
* *eager* is the spec operator by operator in PyTorch (`test/gpu/torch_program.py`: cuBLAS, `F.rms_norm`, ...), attention also as `F.scaled_dot_product_attention` with each backend by itself, a biased product also as
  `addmm`; the fastest counts, and the table says which. *compile* is `torch.compile(mode="max-autotune-no-cudagraphs")` of the same, autotuned anew in each run; the best run counts. Empty: not measured in that run.
* *floor*: a bare read of the same inputs and write of the outputs in the same run (the best of six launch shapes). *flop floor*: the matrix products at the rate of an 8192-cubed product in the same run.
* **relative error**: ||ours - exact|| / ||exact||, exact: PyTorch in float64, not rounded; beside it the same for eager. Limit 5e-3 with 16-bit tensors, 1e-5 without.
* Programs that a seeded generator drew, before any tuning on them: [generality.md](generality.md).
* *won*: the best of eager and compile over fused; empty where the time given did not suffice for torch.compile.
"""


def median(values):
    values = sorted(v for v in values if v is not None)
    return values[len(values) // 2] if values else None


def number(x, form="%.2f"):
    return "" if x is None else form % x


def read_lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [line.rstrip("\n") for line in f]


def read_checks(out):
    checks = {}
    for line in read_lines(os.path.join(out, "checks.tsv")):
        variant, name, text = line.split("\t", 2)
        try:
            row = json.loads(text)
        except ValueError:
            row = {"ok": False, "error": text}
        checks.setdefault(name, {}).setdefault(variant, []).append(row)
    return checks


def report_of(folder):
    try:
        with open(os.path.join(folder, "report.json")) as f:
            return json.load(f)["result"]
    except (OSError, ValueError, KeyError) as error:
        print("bench_table.py: %s has no report: %r" % (folder, error), file=sys.stderr)
        return {"kind": "searched", "kernels": [], "predicted_us": None, "straightforward_us": None}


def program_row(out, name, checks, torch):
    report = report_of(os.path.join(out, "fused", name))
    fused, plain = checks.get("fused", []), checks.get("plain", [])
    ok = all(r.get("ok") for r in fused + plain) and torch.get("ok", bool(fused))
    cold, warm = torch.get("cold", {}), torch.get("warm", {})
    row = {
        "name": name,
        "ok": ok,
        "kernels": len(report["kernels"]),
        "searched": report["kind"] != "straightforward",
        "predicted_us": report["predicted_us"],
        "predicted_unfused_us": report["straightforward_us"],
        "fused_us": cold.get("fused") or median(r.get("cold_us") for r in fused),
        "unfused_us": cold.get("plain") or median(r.get("cold_us") for r in plain),
        "pdl_us": cold.get("pdl"),
        "fused_warm_us": warm.get("fused") or median(r.get("warm_us") for r in fused),
        "eager_us": cold.get("eager"),
        "compile_us": cold.get("compile"),
        "floor_us": cold.get("floor_bytes"),
        "floor_flops_us": torch.get("floor_flops"),
        "torch": torch,
        "fused_runs": fused,
        "unfused_runs": plain,
    }
    base = [x for x in (row["eager_us"], row["compile_us"]) if x] if row["compile_us"] or not torch.get("compile_left_out") else []
    row["won"] = min(base) / row["fused_us"] if base and row["fused_us"] else None
    return row


def cells_of(row):
    torch = row["torch"]
    way = (torch.get("cold", {}).get("eager_fastest") or "").replace("eager", "").lstrip("_")
    return [
        row["name"],
        str(row["kernels"]) if row["searched"] else "%d, unfused" % row["kernels"],
        number(row["predicted_us"]),
        number(row["fused_us"]),
        number(row["fused_warm_us"]),
        number(row["pdl_us"]),
        number(row["unfused_us"]),
        number(row["eager_us"]) + (" (%s)" % way if way else ""),
        number(row["compile_us"]),
        number(row["floor_us"]),
        number(row["floor_flops_us"]),
        number(row["won"]),
        number(torch.get("errs", {}).get("fused"), "%.1e"),
        number(torch.get("eager_err"), "%.1e"),
        "yes" if row["ok"] else "**no**",
    ]


def main():
    out, results = sys.argv[1:3]
    about = dict(line.split("\t", 1) for line in read_lines(os.path.join(out, "about.tsv")))
    checks = read_checks(out)
    torch_rows = {row["name"]: row for row in map(json.loads, read_lines(os.path.join(out, "torch.jsonl")))}
    names = [os.path.basename(os.path.dirname(folder)) for folder in sorted(glob.glob(os.path.join(out, "fused", "*", "")))]
    programs = [program_row(out, name, checks.get(name, {}), torch_rows.get(name, {})) for name in names]
    lines = ["| " + " | ".join(cells_of(row)) + " |" for row in programs]
    versions = sorted({"%s, PyTorch %s" % (r["device"], r["torch"]) for r in torch_rows.values() if "device" in r}) or [
        "PyTorch was not there"
    ]
    won = [r["won"] for r in programs if r["won"]]
    with open(os.path.join(results, "results.md"), "w") as f:
        f.write(
            "# Measured results\n\nWritten by `cmd/bench.sh`; every sample is in [results.json](results.json). Beside it: [blocks of real"
            " models](results-real.md), [the same specs on an H100](results-h100.md).\n\n"
        )
        f.write("| | |\n|---|---|\n| date | %s |\n| command | `%s` |\n| sources | %s |\n| CUDA | %s |\n| device | %s |\n" % (
            about.get("date", ""), about.get("command", ""), about.get("revision", ""), about.get("cuda", ""), "; ".join(versions)))
        f.write(
            "| nvidia-smi before (name, driver, SM clock, its maximum, memory clock, power, temperature) | %s |\n| after | %s |\n"
            % (about.get("before", ""), about.get("after", ""))
        )
        if won:
            f.write(
                "| geometric mean of the best baseline over fused, %d programs | %.2f |\n"
                % (len(won), math.exp(sum(map(math.log, won)) / len(won)))
            )
        f.write(
            "\n| program | kernels | predicted us | fused us | warm us | pdl us | unfused us | eager us | compile us | floor us | flop"
            " floor us | won | relative error | eager's | right |\n"
        )
        f.write("|" + 15 * "---|" + "\n" + "\n".join(lines) + "\n\n" + METHOD)
    with open(os.path.join(results, "results.json"), "w") as f:
        json.dump({"about": about, "programs": programs}, f, indent=1)
        f.write("\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
