#!/usr/bin/env python3
"""Writes results.md and results.json from what 'cmd/bench.sh run' measured: bench_table.py OUT RESULTS."""
import glob
import json
import os
import sys

METHOD = """## Method

* **fused**: the library that mirage-opt writes for the spec. **unfused**: our own straightforward kernels for the same program (`--states 0`), each operator group a kernel. **predicted**: the cost model's time for the
  fused library; the winner is chosen by it, not by measurement. Where nothing better was found the library is the unfused one, and the column *kernels* says so.
* Times are microseconds per call, **cold**: a CUDA graph of 20 or more calls that rotate over as many sets of inputs as exceed 200 MB, so that no call finds its inputs in the L2 cache; 15 replays, the median. Graphs
  leave out the launch overhead of the host for everybody.
* *fused* and *unfused* are timed by `NAME_check` in turn, three runs each (seeds 1 to 3), the median of the three. *fused (torch)*, *eager* and *compile* are timed by `test/gpu/torch_check.py` in one process, replays
  of the three in turn; *fused (torch)* calls the library as a PyTorch operator and includes whatever that adds to a graph. Compare PyTorch with that column.
* *eager* is what a PyTorch user writes (cuBLAS, `F.rms_norm`, `F.scaled_dot_product_attention`), *compile* is `torch.compile(mode="max-autotune-no-cudagraphs")` of it; attention is also written out as matmul, softmax, matmul,
  and the faster way counts.
* **relative error**: Frobenius norm of the difference from a naive fp64 reference, which is rounded to the output's dtype as the meaning of a spec says, over the reference's norm; the worst of the runs (limit 5e-3 with
  16-bit tensors, 1e-5 without). **largest element**: the largest error of an element relative to max(|reference|, root mean square). **to float64**: the relative error against PyTorch in float64, not rounded, on other
  inputs: what rounding the output costs is in it, and the two columns compare.
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


def worst(rows, key):
    values = [r.get(key) for r in rows]
    return None if not values or None in values else max(values)


def main():
    out, results = sys.argv[1:3]
    about = dict(line.split("\t", 1) for line in read_lines(os.path.join(out, "about.tsv")))
    checks = read_checks(out)
    torch_rows = {row["name"]: row for row in map(json.loads, read_lines(os.path.join(out, "torch.jsonl")))}
    programs, lines = [], []
    for folder in sorted(glob.glob(os.path.join(out, "fused", "*", ""))):
        name = os.path.basename(os.path.dirname(folder))
        try:
            with open(os.path.join(folder, "report.json")) as f:
                report = json.load(f)["result"]
        except (OSError, ValueError, KeyError) as error:
            print("bench_table.py: %s has no report: %r" % (name, error), file=sys.stderr)
            report = {"kind": "searched", "kernels": [], "predicted_us": None, "straightforward_us": None}
        fused, plain, torch = checks.get(name, {}).get("fused", []), checks.get(name, {}).get("plain", []), torch_rows.get(name, {})
        ok = bool(fused) and all(r.get("ok") for r in fused + plain) and torch.get("ok", True)
        row = {
            "name": name, "ok": ok, "kernels": len(report["kernels"]), "searched": report["kind"] == "searched", "predicted_us": report["predicted_us"], "predicted_unfused_us": report["straightforward_us"],
            "fused_us": median(r.get("cold_us") for r in fused), "unfused_us": median(r.get("cold_us") for r in plain), "fused_warm_us": median(r.get("warm_us") for r in fused),
            "rel_err": worst(fused, "rel_err"), "max_err": worst(fused, "max_err"), "torch": torch, "fused_runs": fused, "unfused_runs": plain,
        }
        programs.append(row)
        cells = [name, str(row["kernels"]) if row["searched"] else "%d, unfused" % row["kernels"], number(row["predicted_us"]), number(row["fused_us"]), number(row["unfused_us"]), number(torch.get("ours_us")), number(torch.get("eager_us")), number(torch.get("compile_us")),
                 number(row["rel_err"], "%.1e"), number(row["max_err"], "%.1e"), number(torch.get("err"), "%.1e"), number(torch.get("eager_err"), "%.1e"), "yes" if ok else "**no**"]
        lines.append("| " + " | ".join(cells) + " |")
    versions = sorted({"%s, PyTorch %s" % (r["device"], r["torch"]) for r in torch_rows.values()}) or ["PyTorch was not there"]
    with open(os.path.join(results, "results.md"), "w") as f:
        f.write("# Measured results\n\nWritten by `cmd/bench.sh`; every sample is in [results.json](results.json).\n\n")
        f.write("| | |\n|---|---|\n| date | %s |\n| command | `%s` |\n| sources | %s |\n| CUDA | %s |\n| device | %s |\n" % (
            about.get("date", ""), about.get("command", ""), about.get("revision", ""), about.get("cuda", ""), "; ".join(versions)))
        f.write("| nvidia-smi before (name, driver, SM clock, its maximum, memory clock, power, temperature) | %s |\n| after | %s |\n\n" % (about.get("before", ""), about.get("after", "")))
        f.write("| program | kernels | predicted us | fused us | unfused us | fused (torch) us | eager us | compile us | relative error | largest element | to float64 | eager's to float64 | right |\n")
        f.write("|" + 13 * "---|" + "\n" + "\n".join(lines) + "\n\n" + METHOD)
    with open(os.path.join(results, "results.json"), "w") as f:
        json.dump({"about": about, "programs": programs}, f, indent=1)
        f.write("\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
