#!/usr/bin/env python3
"""Programs that grow, and what mirage-opt needs for them.

Writes programs of several kinds with 10 to 4000 nodes, runs mirage-opt on each with limits, and prints seconds of CPU and MB by kind and
number of nodes, with the exponent that fits (CPU ~ nodes^e).
With --signals it sends SIGTERM at random moments, and SIGKILL, and looks at what is left. Exit code 1: something took longer than its
limit, ended with another exit code than documented, or left something behind.

  test/growth/growth.py --binary build/mirage-opt                 500 programs, default gate
  test/growth/growth.py --gate none --programs 40                 a slice
  test/growth/growth.py --rows FILE                               what has ended is kept in FILE and not run again by the next call with it
  test/growth/growth.py --signals                                 40 programs x 5 SIGTERM, 100 SIGKILL
"""

import argparse
import collections
import concurrent.futures
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

CPU_LIMIT_S, MEMORY_LIMIT_MB, MEAN_LIMIT_S = 120, 2000, 10
WALL_LIMIT_S = 3600
DOCUMENTED = {0, 3, 4, 124}             # done; refused with a reason; nothing found where that was asked; budget
SIGNALLED = {143, -signal.SIGTERM}      # ended by a signal, with and without a result


class Spec:
    """A spec under construction; every method returns the name of a tensor."""

    def __init__(self, name):
        self.name, self.inputs, self.nodes = name, {}, []

    def input(self, shape, dtype="float16"):
        name = f"i{len(self.inputs)}"
        self.inputs[name] = {"shape": shape, "dtype": dtype}
        return name

    def op(self, op, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append({"op": op, "inputs": list(inputs), "output": name, **({"attrs": attributes} if attributes else {})})
        return name

    def text(self, outputs, dtype="float16"):
        return json.dumps(
            {"name": self.name, "inputs": self.inputs, "outputs": {o: {"dtype": dtype} for o in outputs}, "nodes": self.nodes}
        )


def grow(spec, nodes, h, step):
    while len(spec.nodes) < nodes:
        h = step(h)
    return spec.text([h])


MAPS = ["tanh", "silu", "sigmoid", "gelu", "relu", "abs", "square"]


def residual(s, n, rng):
    return grow(s, n, s.input([64, 256]), lambda h: s.op("add", h, s.op(rng.choice(MAPS[:5]), h)))


def square(s, n, rng):
    return grow(s, n, s.input([64, 256]), lambda h: s.op("mul", h, h))


def product(s, n, rng):
    z = s.input([64, 256])
    return grow(s, n, s.input([64, 256]), lambda h: s.op("mul", h, s.op("add", h, z)))


def polynomial(s, n, rng):
    z = s.input([64, 256], "float32")

    def step(h):
        a = s.op("add", h, z)
        return s.op("mul", a, a)
    return grow(s, n, s.input([64, 256], "float32"), step)


def sum_of_products(s, n, rng):
    pool = [s.input([64, 256]) for _ in range(8)]
    return grow(s, n, s.op("mul", pool[0], pool[1]), lambda h: s.op("add", h, s.op("mul", rng.choice(pool), rng.choice(pool))))


def product_of_sums(s, n, rng):
    pool = [s.input([64, 256]) for _ in range(8)]
    return grow(s, n, s.op("add", pool[0], pool[1]), lambda h: s.op("mul", h, s.op("add", rng.choice(pool), rng.choice(pool))))


def chain(s, n, rng):
    return grow(s, n, s.input([64, 256]), lambda h: s.op(rng.choice(MAPS[:5]), h))


def fibonacci(s, n, rng):
    before = [s.input([64, 256])]

    def step(h):
        out = s.op(rng.choice(["add", "mul", "sub", "maximum"]), h, before[0])
        before[0] = h
        return out
    return grow(s, n, s.op("tanh", before[0]), step)


def dag(s, n, rng):
    pool = [s.input([64, 256]) for _ in range(4)]
    while len(s.nodes) < n - 1:
        if rng.random() < 0.5:
            pool.append(s.op(rng.choice(MAPS), rng.choice(pool[-12:])))
        else:
            pool.append(s.op(rng.choice(["add", "mul", "sub", "maximum"]), rng.choice(pool[-12:]), rng.choice(pool[-12:])))
    return s.text([pool[-1]])


def concatenation(s, n, rng):   # of many inputs, a few nodes at a time
    parts = [s.input([64, 8 * rng.randint(1, 4)]) for _ in range(n)]
    return s.text([s.op("tanh", s.op("concat", *parts, axis=1))])


def nested_concat(s, n, rng):
    return grow(
        s,
        n,
        s.input([16, 64]),
        lambda h: s.op("concat", s.op("slice", h, axis=1, start=0, stop=32), s.op("tanh", s.input([16, 32])), axis=1),
    )


def outputs(s, n, rng):
    return s.text([s.op(rng.choice(MAPS), s.input([64, 64])) for _ in range(n)])


def shared_outputs(s, n, rng):
    x = s.input([64, 256])
    return s.text([s.op("mul", x, s.input([1, 256])) for _ in range(n)])


def reductions(s, n, rng):
    def step(h):
        return s.op("sub", h, s.op(rng.choice(["mean", "max"]), h, axis=1, keepdim=True))
    return grow(s, n, s.input([64, 256]), step)


def norm_layers(s, n, rng):
    def step(h):
        x = s.op("rms_norm", h, s.input([256]))
        return s.op("add", h, s.op("matmul", x, s.input([256, 256])))
    return grow(s, n, s.input([64, 256]), step)


def mlp_layers(s, n, rng):
    def step(h):
        u = s.op("relu", s.op("matmul", h, s.input([256, 512])))
        return s.op("add", h, s.op("matmul", u, s.input([512, 256])))
    return grow(s, n, s.input([16, 256]), step)


def matmul_chain(s, n, rng):
    return grow(s, n, s.input([64, 128]), lambda h: s.op("matmul", h, s.input([128, 128])))


def mixed_residual(s, n, rng):
    w, g = s.input([256, 256]), s.input([256])

    def step(h):
        way = rng.randrange(4)
        f = (
            s.op("matmul", h, w)
            if way == 0
            else (
                s.op("rms_norm", h, g)
                if way == 1
                else s.op("sum", h, axis=1, keepdim=True) if way == 2 else s.op("mul", h, s.op("sigmoid", h))
            )
        )
        return s.op("add", h, f)
    return grow(s, n, s.input([64, 256]), step)


def sums_of_matmuls(s, n, rng):
    x = s.input([64, 128])
    return grow(s, n, s.op("matmul", x, s.input([128, 128])), lambda h: s.op("add", h, s.op("matmul", x, s.input([128, 128]))))


def softmax_chain(s, n, rng):
    return grow(s, n, s.input([64, 256]), lambda h: s.op("softmax", h, axis=1))


def views(s, n, rng):
    def step(h):
        return s.op("tanh", s.op("reshape", s.op("transpose", s.op("reshape", h, shape=[16, 32, 32]), perm=[0, 2, 1]), shape=[64, 256]))
    return grow(s, n, s.input([64, 256]), step)


def attention_layers(s, n, rng):
    def step(h):
        p = s.op("softmax", s.op("matmul", h, s.input([64, 128])), axis=1)
        return s.op("add", h, s.op("matmul", p, s.input([128, 64])))
    return grow(s, n, s.input([64, 64]), step)


# Kind -> primitives per node: the reader takes at most 4096.
KINDS = {
    residual: 2.6,
    square: 1,
    product: 1,
    polynomial: 1,
    sum_of_products: 1,
    product_of_sums: 1,
    chain: 4,
    fibonacci: 1,
    dag: 3,
    concatenation: 1,
    nested_concat: 1,
    outputs: 4,
    shared_outputs: 2,
    reductions: 1.5,
    norm_layers: 4,
    mlp_layers: 1.2,
    matmul_chain: 1,
    mixed_residual: 3,
    sums_of_matmuls: 1,
    softmax_chain: 6,
    views: 1.5,
    attention_layers: 3,
}


def programs(count, seed, most_nodes=4000):
    """(kind, nodes, text), every kind over all sizes; the same for the same seed."""
    kinds = list(KINDS)
    for i in range(count):
        kind, rng = kinds[i % len(kinds)], random.Random(seed * 1000003 + i)
        step, steps = i // len(kinds), max(1, (count - 1) // len(kinds))
        most = min(most_nodes, int(4000 / KINDS[kind]))
        nodes = round(10 * (most / 10) ** (step / steps)) if count > len(kinds) else 10
        name = f"{kind.__name__}_{nodes}_{i}"
        yield kind.__name__, nodes, name, kind(Spec(name), nodes, rng)


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S + 60, CPU_LIMIT_S + 60))


def command(o, spec, out):
    return [o.binary, spec, "-o", out, "-q", "-j1", "--no-cache", "--gate", o.gate, "--emit", o.emit] + o.flag


def run_one(o, folder, kind, nodes, name, text):
    spec, out = os.path.join(folder, name + ".json"), os.path.join(folder, name)
    with open(spec, "w") as f:
        f.write(text)
    errors = tempfile.TemporaryFile()
    begin = time.time()
    p = subprocess.Popen(command(o, spec, out), stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit)
    while True:
        pid, status, usage = os.wait4(p.pid, os.WNOHANG)
        if pid:
            break
        if time.time() - begin > WALL_LIMIT_S:   # the limit of CPU ends what computes; this one what waits
            p.kill()
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(status)
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip().splitlines()
    shutil.rmtree(out, ignore_errors=True)
    return kind, nodes, name, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, code, said[-1][:160] if said and code else ""


def exponent(points):
    """Of CPU ~ nodes^e over the larger half of a kind's programs, where the constant part is small; by least squares."""
    points = [(math.log(n), math.log(t)) for n, t in points if t > 0.3]
    if len(points) < 4:
        return None
    mx, my = sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)
    d = sum((x - mx) ** 2 for x, _ in points)
    return sum((x - mx) * (y - my) for x, y in points) / d if d > 0.5 else None


def table(rows):
    edges = [10, 30, 100, 300, 1000, 4001]
    print("| kind | " + " | ".join(f"{a} to {b - 1 if b > 4000 else b}" for a, b in zip(edges, edges[1:])) + " | exponent |")
    print("|---" * (len(edges) + 1) + "|")
    by_kind = collections.defaultdict(list)
    for row in rows:
        by_kind[row[0]].append(row)
    for kind in sorted(by_kind):
        cells = []
        for a, b in zip(edges, edges[1:]):
            here = [r for r in by_kind[kind] if a <= r[1] < b]
            cells.append(f"{max(r[3] for r in here):.1f} s, {max(r[4] for r in here):.0f} MB" if here else "")
        e = exponent([(r[1], r[3]) for r in by_kind[kind]])
        print(f"| {kind} | " + " | ".join(cells) + f" | {'' if e is None else f'{e:.1f}'} |")


def kept_rows(path):
    """Rows of an earlier call by program; the last line may be cut."""
    kept = {}
    if path and os.path.exists(path):
        with open(path) as f:
            for line in f:
                if line.endswith("\n"):
                    row = json.loads(line)
                    kept[row[2]] = tuple(row)
    return kept


def measure(o):
    folder = tempfile.mkdtemp(prefix="growth.")
    all_programs = [p for p in programs(o.programs, o.seed, o.most_nodes) if (not o.kind or p[0] in o.kind) and re.search(o.match, p[2])]
    if o.largest_first:
        all_programs.reverse()
    begin, rows, bad = time.time(), [], []
    kept, lock = kept_rows(o.rows), threading.Lock()

    def one(p):
        if p[2] in kept:
            return kept[p[2]]
        row = run_one(o, folder, *p)
        if o.rows:
            with lock, open(o.rows, "a") as f:
                f.write(json.dumps(row) + "\n")
        return row
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for r in pool.map(one, all_programs):
            rows.append(r)
            why = [
                w
                for w, is_so in (
                    (f"exit code {r[5]}: {r[6]}", r[5] not in DOCUMENTED),
                    (f"{r[3]:.0f} s", r[3] > CPU_LIMIT_S),
                    (f"{r[4]:.0f} MB", r[4] > MEMORY_LIMIT_MB),
                )
                if is_so
            ]
            if why:
                bad.append(f"{r[2]}: {', '.join(why)}")
            if o.verbose and r[2] not in kept:
                print(f"{r[2]}: {r[3]:.1f} s, {r[4]:.0f} MB, exit {r[5]} {r[6]}", file=sys.stderr, flush=True)
    if not o.keep:
        shutil.rmtree(folder, ignore_errors=True)
    table(rows)
    mean = sum(r[3] for r in rows) / len(rows)
    print(
        f"\n{len(rows)} programs, gate {o.gate}: mean {mean:.1f} s of CPU, longest {max(r[3] for r in rows):.1f} s, most"
        f" {max(r[4] for r in rows):.0f} MB, {sum(r[5] == 3 for r in rows)} refused with a reason; {time.time() - begin:.0f} s in all"
    )
    if mean > MEAN_LIMIT_S:
        bad.append(f"the mean is {mean:.1f} s")
    for b in bad:
        print("over: " + b)
    return 1 if bad else 0


# ---- signals

def children_of(session):
    """Processes of a session, zombies apart: every run here has a session of its own, and what it starts stays in it."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            if int(fields[3]) == session and fields[0] != "Z":
                out.append(int(pid))
        except (OSError, IndexError):
            pass
    return out


def tagged(tag):
    """Processes whose environment has the tag: those of a run, wherever they went."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if tag.encode() + b"\0" in f.read():   # whole: run 10 is not run 100
                    out.append(int(pid))
        except OSError:
            pass
    return out


def left_over(tag, places, patience_s):
    """What a run has left: processes, and files in its folders of temporary files."""
    end = time.time() + patience_s
    while True:
        processes = tagged(tag)
        files = [os.path.join(d, f) for d in places if os.path.isdir(d) for f in os.listdir(d) if not f.endswith(".so")]
        if (not processes and not files) or time.time() > end:
            return [f"process {p}" for p in processes] + files
        time.sleep(0.02)


def outputs_valid(out, name):
    """No files at all, or sources that are whole and a report that parses; nothing half-written."""
    if not os.path.isdir(out):
        return ""
    files = [f for f in os.listdir(out)]
    staging = [f for f in files if f.startswith(".mirage-opt.")]
    if staging:
        return "staging folder " + staging[0]
    if not files:
        return ""
    if name + ".cu" not in files:
        return "no source among " + " ".join(sorted(files))
    with open(os.path.join(out, name + ".cu")) as f:
        if not f.read().rstrip().endswith("#endif  // __CUDACC_RTC__"):
            return "a source that does not end"
    for f in files:
        if f.endswith(".json"):
            try:
                json.load(open(os.path.join(out, f)))
            except ValueError as e:
                return f"{f}: {e}"
    return ""


def one_signal(o, folder, number, program, which, most_s):
    kind, nodes, name, text = program
    rng = random.Random(o.seed * 7919 + number)
    base = os.path.join(folder, str(number))
    tmp, cache, out = (os.path.join(base, d) for d in ("tmp", "cache", "out"))
    for d in (base, tmp, cache):
        os.makedirs(d, mode=0o700)
    spec = os.path.join(base, name + ".json")
    with open(spec, "w") as f:
        f.write(text)
    tag = f"GROWTH_RUN={os.getpid()}.{number}"
    environment = dict(os.environ, TMPDIR=tmp, MIRAGE_CACHE=cache, GROWTH_RUN=tag.split("=")[1])
    p = subprocess.Popen(command(o, spec, out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, start_new_session=True)
    at = most_s * rng.random() ** 2
    try:
        p.wait(at)
        shutil.rmtree(base, ignore_errors=True)
        return None   # ended before its moment
    except subprocess.TimeoutExpired:
        pass
    begin = time.time()
    p.send_signal(which)
    try:
        said = p.communicate(timeout=10)[1].decode(errors="replace")
    except subprocess.TimeoutExpired:
        p.kill()
        said = ""
        p.communicate()
    took = time.time() - begin
    what = []
    if which == signal.SIGTERM:
        if took > 2:
            what.append(f"took {took:.1f} s")
        if p.returncode not in SIGNALLED and p.returncode not in DOCUMENTED:
            what.append(f"exit code {p.returncode}")
        if p.returncode == 143 and "interrupted" not in said:
            what.append("did not say what was written")
    left = left_over(tag, [tmp, cache], 1.0)
    if which == signal.SIGKILL:   # staging folders may wait for the next run
        if os.path.isdir(out):
            subprocess.run(
                [o.binary, spec, "-o", out, "-q", "--no-cache", "--states", "0", "--gate", "none", "--emit", "cu,report"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                timeout=300,
            )
    if left:
        what.append("left " + ", ".join(left[:3]))
    if (why := outputs_valid(out, name)):
        what.append(why)
    shutil.rmtree(base, ignore_errors=True)
    return took, f"{name} at {at:.2f} s, {which.name}: " + "; ".join(what) if what else ""


def signals(o):
    folder = tempfile.mkdtemp(prefix="growth.")
    chosen = [p for p in programs(o.programs, o.seed, o.most_nodes) if (not o.kind or p[0] in o.kind) and p[1] >= 30]
    random.Random(o.seed).shuffle(chosen)
    chosen = chosen[:o.signalled]
    jobs = [(p, signal.SIGTERM) for p in chosen for _ in range(5)] + [(chosen[i % len(chosen)], signal.SIGKILL) for i in range(o.kills)]
    results = []
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        def work(numbered):
            number, (program, which) = numbered
            for attempt in range(6):   # a run that ended before its moment gets an earlier one
                r = one_signal(o, folder, number * 10 + attempt, program, which, o.most_seconds / 4 ** attempt)
                if r:
                    return which, r
            return which, None
        results = list(pool.map(work, enumerate(jobs)))
    shutil.rmtree(folder, ignore_errors=True)
    hit = [(w, r) for w, r in results if r]
    bad = [r[1] for _, r in hit if r[1]]
    for which in (signal.SIGTERM, signal.SIGKILL):
        times = sorted(r[0] for w, r in hit if w == which)
        if times:
            print(
                f"{which.name}: {len(times)} runs hit, {len([1 for w, r in hit if w == which and r[1]])} with findings; ended after"
                f" {times[len(times) // 2]:.2f} s in the median, {times[-1]:.2f} s at most"
            )
    for b in bad:
        print("found: " + b)
    return 1 if bad else 0


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--binary", default="build/mirage-opt")
    a.add_argument("--programs", type=int, default=500)
    a.add_argument("--kind", action="append", help="only this kind")
    a.add_argument("--match", default="", help="only programs whose names this regular expression finds")
    a.add_argument("--largest-first", action="store_true")
    a.add_argument("--gate", default="auto", help="as mirage-opt's")
    a.add_argument("--emit", default="cu,report")
    a.add_argument("--flag", action="append", default=[], help="one more word for mirage-opt")
    a.add_argument("--jobs", type=int, default=2)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--most-nodes", type=int, default=4000)
    a.add_argument("--keep", action="store_true", help="the specs stay")
    a.add_argument("--rows", metavar="FILE", help="one line of JSON for every program that has ended; a later call goes on behind them")
    a.add_argument("--verbose", action="store_true")
    a.add_argument("--signals", action="store_true")
    a.add_argument("--signalled", type=int, default=40, help="programs that get SIGTERM five times")
    a.add_argument("--kills", type=int, default=100)
    a.add_argument("--most-seconds", type=float, default=8, help="the latest moment of a signal")
    a.add_argument("--write", metavar="DIR", help="writes the specs and does nothing else")
    o = a.parse_args()
    o.binary = os.path.abspath(o.binary)
    if o.write:
        os.makedirs(o.write, exist_ok=True)
        for _, _, name, text in programs(o.programs, o.seed, o.most_nodes):
            with open(os.path.join(o.write, name + ".json"), "w") as f:
                f.write(text)
        return 0
    return signals(o) if o.signals else measure(o)


if __name__ == "__main__":
    sys.exit(main())
