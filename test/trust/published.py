#!/usr/bin/env python3
"""Published µGraphs through --verify: graphs of Mirage's benchmark/saved_mugraphs (JSON, github mirage-project/mirage, not part of this
repository) against the programs of its benchmark scripts.

  test/trust/published.py FOLDER [--match REGEX] [--binary build/mirage-opt] [--keep DIR] [--rows FILE]

Prints how often each file's graphs are equal (0), different (5), unknown (6). Every graph is read at its own size; what kernels hand to
each other is not rounded, as it is not in the field of that search either.
With --rows, what has ended is kept in FILE and not run again.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile


def dims(tensor):
    return tensor["dim"][:tensor["num_dims"]]


def shape(d):
    return "[" + ",".join(map(str, d)) + "]"


def partition(by_axis):
    return ",".join("-" if by_axis[a] < 0 else str(by_axis[a]) for a in "xyz")


class Block:
    """The body of one kernel as text."""

    def __init__(self, op, inputs):
        self.op, self.graph, self.inputs = op, op["bgraph"], inputs
        self.loop, self.values, self.lines = self.graph["forloop_range"], {}, []
        self.num_inputs = 0

    def new(self, text):
        name = f"%b{len(self.lines)}"
        self.lines.append(f"    {name} = {text}")
        return name

    def accumulated(self, value):
        return self.new(f"accum.sum {value}") if self.loop > 1 else value   # one iteration: nothing is added up

    def mean_of_squares(self, value, d):
        return self.new(f"reduce.sum {len(d) - 1} " + self.new(f"square {value}"))

    def load(self, o):
        t, loop = o["dtensor"], o["forloop_dim"]
        dtype = "f16" if t["guid"] in self.inputs else "real"
        self.num_inputs += 1
        return self.new(
            f"input {self.num_inputs - 1} grid({partition(o['input_map'])}) loop({'-' if loop < 0 else loop}) :"
            f" {dtype}{shape(dims(o['output_tensors'][0]))}"
        )

    def value(self, kind, a, o):
        d = dims(o["input_tensors"][0])
        if kind in ("exp", "silu", "matmul", "add", "mul", "div"):
            return self.new(kind + " " + " ".join(a))
        if kind == "accum_nored":
            return self.accumulated(a[0])
        if kind == "accum_red_ld_sum":
            return self.accumulated(self.new(f"reduce.sum {len(d) - 1} {a[0]}"))
        if kind == "accum_red_ld_rms":
            squares = self.accumulated(self.mean_of_squares(a[0], d))
            return self.new("sqrt " + self.new(f"div {squares} " + self.new(f"const {self.loop * d[-1]}")))
        if kind == "rms_norm":
            mean = self.new(f"div {self.mean_of_squares(a[0], d)} " + self.new(f"const {d[-1]}"))
            return self.new(f"div {a[0]} " + self.new(f"sqrt {mean}"))
        if kind == "accum_redtox_ld_sum":
            dimx = self.graph["reduction_dimx"]
            split = self.new(f"reshape {shape(d[:-1] + [d[-1] // dimx, dimx])} {a[0]}")
            return self.accumulated(self.new(f"reshape {shape(d[:-1] + [dimx])} " + self.new(f"reduce.sum {len(d) - 1} {split}")))
        raise ValueError(kind)

    def text(self, results):
        for o in self.graph["operators"]:
            kind, a = o["op_type"][3:-3], [self.values[t["guid"]] for t in o["input_tensors"]]
            if kind == "output":
                self.lines.append(f"    output {results.index(o['dtensor']['guid'])} {a[0]} grid({partition(o['output_map'])}) : real")
            else:
                self.values[o["output_tensors"][0]["guid"]] = self.load(o) if kind == "input" else self.value(kind, a, o)
        return self.lines


def graph(ops):
    names, lines, results = {}, [], 0
    inputs = [o["output_tensors"][0]["guid"] for o in ops if o["op_type"] == "kn_input_op"]

    def name(guid):
        return names.setdefault(guid, f"%k{len(names)}")
    for o in ops:
        kind, a = o["op_type"][3:-3], [names[t["guid"]] for t in o["input_tensors"]]
        made = [t["guid"] for t in o["output_tensors"]]
        if kind == "input":
            lines.append(f"  {name(made[0])} = input {len(names) - 1} : f16{shape(dims(o['output_tensors'][0]))}")
        elif kind == "output":
            lines.append(f"  output {results} {a[0]} : f16")
            results += 1
        elif kind == "customized":
            g = o["bgraph"]["grid_dim"]
            body = Block(o, inputs).text(made)
            lines += (
                [
                    f"  {', '.join(map(name, made))} = call grid({g['x']},{g['y']},{g['z']}) loop({o['bgraph']['forloop_range']})"
                    f" ({', '.join(a)}) {{"
                ]
                + body
                + ["  }"]
            )
        else:
            lines.append(f"  {name(made[0])} = {kind} {' '.join(a)}")
    return "kernel g {\n" + "\n".join(lines) + "\n}\n"


def normed(to, value, dim, extent):
    return f"  {to} = div {value} (sqrt (div (reduce.sum {dim} (square {value})) {extent}))\n"


ATTENTION = "  %e = exp (matmul %q %i1)\n  %r = matmul (div %e (reduce.sum 2 %e)) %v\n"
PROGRAMS = {   # by what the file's name has, the first that fits
    "qknorm": normed("%q", "%i0", 2, 64) + normed("%v", "%i2", 2, 64) + ATTENTION,
    "gqa|mqa|mha": ATTENTION.replace("%q", "%i0").replace("%v", "%i2"),
    "gated_mlp": "  %r = mul (silu (matmul %i0 %i1)) (matmul %i0 %i2)\n",
    "lora": "  %r = add (matmul %i0 %i1) (matmul (matmul %i0 %i2) %i3)\n",
    "rmsnorm": normed("%x", "%i0", 1, 4096) + "  %r = matmul %x %i1\n",
    "ntrans": normed("%h", "%i0", 1, 4096) + "  %c = add %i1 (mul %i2 (add %h %i1))\n" + normed("%r", "%c", 1, 4096),
}


def program(file, ops):
    inputs = [dims(o["output_tensors"][0]) for o in ops if o["op_type"] == "kn_input_op"]
    body = next(text for pattern, text in PROGRAMS.items() if re.search(pattern, file))
    return (
        "kernel g {\n" + "".join(f"  %i{j} = input {j} : f16{shape(d)}\n" for j, d in enumerate(inputs)) + body + "  output 0 %r : f16\n}\n"
    )


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("folder")
    a.add_argument("--match", default="", help="only files whose names this regular expression finds")
    a.add_argument("--binary", default="build/mirage-opt")
    a.add_argument("--keep", metavar="DIR", help="the graphs stay there")
    a.add_argument("--rows", metavar="FILE", help="one line of JSON for every graph that has ended; a later call goes on behind them")
    o = a.parse_args()
    kept = {}
    if o.rows and os.path.exists(o.rows):
        kept = {row[0]: row[1] for row in map(json.loads, open(o.rows))}
    folder = o.keep or tempfile.mkdtemp(prefix="published.")
    os.makedirs(folder, exist_ok=True)
    for file in sorted(os.listdir(o.folder)):
        if not file.endswith(".json") or not re.search(o.match, file):
            continue
        with open(os.path.join(o.folder, file)) as f:
            graphs = json.load(f)
        path = os.path.join(folder, file[:-5])
        with open(path + ".program.graph", "w") as f:
            f.write(program(file, graphs[0]))
        codes = collections.Counter()
        for i, ops in enumerate(graphs):
            one = f"{path}.{i}.graph"
            name = os.path.basename(one)
            with open(one, "w") as f:
                f.write(graph(ops))
            if name not in kept:
                kept[name] = subprocess.run([o.binary, "--verify", path + ".program.graph", one], capture_output=True).returncode
                if o.rows:
                    with open(o.rows, "a") as f:
                        f.write(json.dumps([name, kept[name]]) + "\n")
            codes[kept[name]] += 1
        print(f"{file}: {len(graphs)} graphs, " + ", ".join(f"{n} with exit code {c}" for c, n in sorted(codes.items())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
