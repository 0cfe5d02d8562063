#!/usr/bin/env python3
"""Compares libraries with PyTorch: values, streams, graph capture, and time, everything interleaved in one run.

    torch_check.py [--json FILE] [--only NAME,NAME] [--seconds S] [--autotune N] [--workers N] [--floors LIB] OUT

OUT is what 'cmd/bench.sh pack' made: OUT/specs/NAME.json, and OUT/VARIANT/NAME/libNAME.so with VARIANT fused, plain or any other (pdl,
say). Per program, one line of JSON:
    err, eager_err, compile_err      ||x - exact|| / ||exact|| of ours, eager and compiled; exact: the eager function of the same inputs in
                                     float64
    bits_stream, bits_graph          whether a side stream, and a replayed graph on fresh inputs, give the bits of a plain call of NAME.py
    cold, warm                       medians by what was timed, microseconds per call: VARIANT names, eager, compile (the fastest way of
                                     each; *_fastest says which), floor_bytes, empty
    floor_flops                      the program's matrix products at the rate of an 8192-cubed product in the same run (tensor cores, the
                                     program's dtype)
    samples                          all of them
Ways to write a program in PyTorch: test/gpu/torch_program.py. torch.compile(mode="max-autotune-no-cudagraphs") runs --autotune times per
way, each autotuning anew; the best run counts.
First all workers compile beside each other (a lock lets one at a time benchmark), then one after another times its programs, alone on the
GPU.
Exit code: 0; 8 if a result disagrees. Needs a GPU and PyTorch. --seconds: start no further torch.compile after that time, so that a lease
of a machine ends with numbers.
"""

import argparse
import ctypes
import fcntl
import importlib.util
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import torch_program  # noqa: E402

KINDS = ("eager", "compile")


class Lock:
    """Among processes; one holder may take it again."""

    def __init__(self, path):
        self.file, self.depth = open(path, "a"), 0

    def __enter__(self):
        if self.depth == 0:
            fcntl.flock(self.file, fcntl.LOCK_EX)
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
        if self.depth == 0:
            fcntl.flock(self.file, fcntl.LOCK_UN)


def guard_benchmarks(lock):
    """Inductor's benchmarks take turns among processes."""
    try:
        from torch._inductor.runtime.benchmarking import benchmarker
    except ImportError:
        return
    for cls in type(benchmarker).__mro__[:-1]:
        for name in list(vars(cls)):
            if name.startswith("benchmark") and callable(getattr(cls, name)):
                def guarded(*arguments, inner=vars(cls)[name], **named):
                    with lock:
                        return inner(*arguments, **named)
                if not isinstance(vars(cls)[name], (property, staticmethod, classmethod)) and not hasattr(vars(cls)[name], "func"):
                    setattr(cls, name, guarded)


class Library:
    """A library of ours through its C interface: what a launch costs and no more."""

    def __init__(self, folder, program):
        name = program.name
        self.library, self.program, self.name = ctypes.CDLL(os.path.join(folder, "lib%s.so" % name)), program, name
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.launch = getattr(self.library, name + "_launch")
        self.launch.argtypes = [pointer] * (1 + len(program.inputs) + len(program.outputs) + 1) + [size, pointer]
        bytes_needed = size()
        self.check(getattr(self.library, name + "_workspace_size")(None, ctypes.byref(bytes_needed)))
        self.bytes = bytes_needed.value
        self.workspace = torch.empty(max(1, self.bytes), dtype=torch.uint8, device="cuda")
        init = getattr(self.library, name + "_workspace_init")
        init.argtypes = [pointer, size, pointer]
        self.check(init(self.workspace.data_ptr() if self.bytes else None, self.bytes, torch.cuda.current_stream().cuda_stream))
        torch.cuda.synchronize()

    def check(self, status):
        if status != 0:
            text = getattr(self.library, self.name + "_status_string")
            text.restype = ctypes.c_char_p
            raise RuntimeError("%s: %s" % (self.name, text(status).decode()))

    def __call__(self, tensors, outputs):
        self.check(
            self.launch(
                None,
                *[t.data_ptr() for t in tensors],
                *[t.data_ptr() for t in outputs],
                self.workspace.data_ptr() if self.bytes else None,
                self.bytes,
                torch.cuda.current_stream().cuda_stream,
            )
        )


def relative(got, want):
    """The worst output's."""
    worst = 0.0
    for g, w in zip(got, want):
        g, w = g.double(), w.double()
        finite = torch.isfinite(w)   # masks leave infinities, which are to be the same
        if (
            not bool((torch.isfinite(g) == finite).all())
            or not bool(torch.equal(g.isnan(), w.isnan()))
            or not bool((g[torch.isinf(w)] == w[torch.isinf(w)]).all())
        ):
            return math.inf
        g, w = g[finite], w[finite]
        norm = float(w.norm())
        worst = max(worst, float((g - w).norm()) / norm if norm else float(g.norm()))
    return worst


def on_stream(op, tensors):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = op(*tensors)
    stream.synchronize()
    return out


def tuple_of(x):
    return x if isinstance(x, tuple) else (x,)


def same_bits(a, b):
    return all(bool(torch.equal(x, y)) for x, y in zip(tuple_of(a), tuple_of(b)))


def in_graph(op, tensors, fresh):
    """Captures a call on `tensors`, replays it twice with the values of `fresh` in them."""
    static = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda").copy_(x) for x in tensors]
    on_stream(op, static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op(*static)
    for x, new in zip(static, fresh):
        x.copy_(new)
    outs = []
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        outs.append(tuple(o.clone() for o in tuple_of(out)))
    return outs


def capture(fn, sets, calls):
    """A graph of `calls` calls that go through the sets."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(3):
            fn(sets[i % len(sets)])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            fn(sets[i % len(sets)])
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return graph


def times(functions, sets, replays):
    """Microseconds per call. Replays alternate between the functions, so that clocks and temperature touch all of them alike; a short wait
    on the GPU before each lets the host finish its launch, so that no
    latency of the host is in the events' difference."""
    calls = -(-40 // len(sets)) * len(sets)
    graphs, samples = {}, {}
    for name, fn in functions.items():
        try:
            graphs[name] = capture(fn, sets, calls)
            samples[name] = []
        except Exception as error:  # what cannot be captured is not timed
            torch.cuda.synchronize()
            print("torch_check.py: %s: %r" % (name, error), file=sys.stderr)
    for _ in range(replays):
        for name, graph in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(150_000)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            samples[name].append(round(begin.elapsed_time(end) * 1000.0 / calls, 4))
    return samples


def median(values):
    return sorted(values)[len(values) // 2]


def own_code(fn, name):
    """fn behind a function of its own: what Dynamo compiled for one stays when another is compiled."""
    space = {"fn": fn}
    exec("def %s(*tensors):\n    return fn(*tensors)\n" % name, space)
    return space[name]


class Candidate:
    """One program on its way: compiled in the first phase, timed in the second."""

    def __init__(self, out, name):
        self.out, self.row = out, {"name": name, "ok": True}
        self.program = torch_program.read_program(os.path.join(out, "specs", name + ".json"))
        self.ways = self.program.ways()
        self.functions = {}

    def folder(self, variant):
        return os.path.join(self.out, variant, self.program.name)

    def compile(self, run, deadline, lock):
        with lock:
            tensors = self.program.draw()
            torch.cuda.synchronize()
        for way, (fn, compiles) in self.ways.items():
            if not compiles or (run > 0 and self.program.flops == 0):
                continue
            if time.time() > deadline:
                self.row["compile_left_out"] = True
                continue
            name = "compile%s%s" % (way, "" if run == 0 else "_run%d" % (run + 1))
            try:
                compiled = torch.compile(
                    own_code(fn, "%s_%s" % (self.program.name, name)), mode="max-autotune-no-cudagraphs", dynamic=False
                )
                begin = time.time()
                compiled(*tensors)
                torch.cuda.synchronize()
                self.row.setdefault("compile_seconds", {})[name] = round(time.time() - begin, 1)
                self.functions[name] = compiled
            except Exception as error:  # a missing host compiler, say: the other numbers stand
                self.row["compile_error" + way] = repr(error)[:300]

    def check(self):
        """Values, streams and graphs of the fused library as a PyTorch operator; which eager ways run."""
        row, program = self.row, self.program
        tensors, fresh = program.draw(), program.draw()
        want = program.written(*[x.double() if x.is_floating_point() else x for x in tensors])
        row["tolerance"] = 1e-5 if all(t.dtype == torch.float32 for t in program.inputs + program.outputs) else 5e-3
        path = os.path.join(self.folder("fused"), program.name + ".py")
        if os.path.exists(path):
            spec = importlib.util.spec_from_file_location(program.name, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            op = getattr(module, program.name)
            out = op(*tensors)
            row["err"] = relative(tuple_of(out), want)
            row["bits_stream"] = same_bits(on_stream(op, tensors), out)
            plain = op(*fresh)
            row["bits_graph"] = all(same_bits(o, plain) for o in in_graph(op, tensors, fresh))
            row["ok"] = row["err"] < row["tolerance"] and row["bits_stream"] and row["bits_graph"]
        for way, (fn, _) in self.ways.items():
            try:
                error = relative(fn(*tensors), want)
                self.functions["eager" + way] = fn
                row.setdefault("eager_errs", {})[way or "written"] = error
            except RuntimeError as error:  # a backend that does not take these shapes
                row.setdefault("refused", {})[way] = str(error).splitlines()[0][:120]
        errors = {name: relative(fn(*tensors), want) for name, fn in self.functions.items() if name.startswith("compile")}
        row["eager_err"] = row.get("eager_errs", {}).get("written")
        if errors:
            row["compile_err"] = min(errors.values())
        self.libraries = {}
        for variant in sorted(os.listdir(self.out)):
            if os.path.exists(os.path.join(self.folder(variant), "lib%s.so" % program.name)):
                library = Library(self.folder(variant), program)
                outputs = [t.empty() for t in program.outputs]
                for o in outputs:
                    o.fill_(math.nan if o.is_floating_point() else 0)
                library(tensors, outputs)
                torch.cuda.synchronize()
                error = relative(outputs, want)
                row.setdefault("errs", {})[variant] = error
                if error >= row["tolerance"]:
                    row["ok"] = False
                self.libraries[variant] = library
        return tensors

    def time(self, floors, rates, replays):
        row, program = self.row, self.program
        tensors = self.check()
        input_bytes = sum(t.bytes() for t in program.inputs)
        count = min(1024, max(2, 200_000_000 // max(1, input_bytes) + 1))
        sets = []
        for i in range(count):
            inputs = (
                tensors if i == 0 else [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda").copy_(x) for x in tensors]
            )
            sets.append((inputs, [t.empty() for t in program.outputs]))
        row["sets"], row["flops"], row["bytes"] = count, program.flops, program.bytes()
        functions = {variant: lambda s, library=library: library(s[0], s[1]) for variant, library in self.libraries.items()}
        # PyTorch's results live until their set comes again, as ours do: freed at once, all calls of a graph would write the same lines,
        # which stay in L2
        kept = {}

        def keeping(name, fn):
            def call(s):
                kept[name, id(s)] = fn(*s[0])
            return call
        functions.update({name: keeping(name, fn) for name, fn in self.functions.items()})
        functions.update(floor_functions(floors, program))
        row["samples"] = {
            "cold": times(functions, sets, replays),
            "warm": times({n: f for n, f in functions.items() if n not in ("empty",)}, sets[:1], replays),
        }
        for temperature, samples in row["samples"].items():
            medians = {name: median(s) for name, s in samples.items()}
            found = {name: us for name, us in medians.items() if name in self.libraries or name == "empty"}
            for kind in (*KINDS, "floor_bytes"):
                group = {name: us for name, us in medians.items() if name.startswith(kind)}
                if group:
                    found[kind] = min(group.values())
                    found[kind + "_fastest"] = min(group, key=group.get)
            row[temperature] = found
        dtype = next((t.dtype for t in program.inputs if t.dtype in rates), None)
        if program.flops and dtype:
            row["floor_flops"] = program.flops / rates[dtype] * 1e6


def floor_functions(floors, program):
    if floors is None:
        return {}
    floors.floor_read.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_ulonglong,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_void_p,
    ]
    floors.floor_empty.argtypes = [ctypes.c_void_p]
    sizes = (ctypes.c_ulonglong * len(program.inputs))(*[t.bytes() for t in program.inputs])

    def read(s, grid, threads, unroll):
        pointers = (ctypes.c_void_p * len(s[0]))(*[x.data_ptr() for x in s[0]])
        out = max(s[1], key=lambda o: o.numel())
        status = floors.floor_read(
            pointers,
            sizes,
            len(s[0]),
            out.data_ptr(),
            out.numel() * out.element_size(),
            grid,
            threads,
            unroll,
            torch.cuda.current_stream().cuda_stream,
        )
        if status:
            raise RuntimeError("floor_read: %d" % status)
    functions = {"empty": lambda s: floors.floor_empty(torch.cuda.current_stream().cuda_stream)}
    words = sum(t.bytes() for t in program.inputs) // 16
    for grid, threads, unroll in ((0, 128, 1), (0, 256, 1), (264, 512, 4), (264, 512, 8), (528, 512, 2), (1056, 512, 2)):
        grid = grid or max(1, min(2112, -(-words // threads)))   # one word per thread: the best for little
        functions["floor_bytes_%dx%dx%d" % (grid, threads, unroll)] = lambda s, grid=grid, threads=threads, unroll=unroll: read(
            s, grid, threads, unroll
        )
    return functions


def product_rates():
    """Operations per second of an 8192-cubed product, by dtype."""
    out = {}
    for dtype in (torch.float16, torch.bfloat16):
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
        samples = times({"product": lambda s: torch.matmul(s[0], s[1])}, [(a, b)], 3)["product"]
        out[dtype] = 2 * 8192**3 / median(samples) * 1e6
    return out


def worker(number, names, arguments, lock_path, barrier, queue, start):
    lock = Lock(lock_path)
    torch.manual_seed(number)
    guard_benchmarks(lock)
    try:
        import torch._inductor.config as inductor
        inductor.autotune_local_cache = False   # the second run autotunes anew; compiled Triton kernels are still found again
        inductor.fx_graph_cache = False
        inductor.compile_threads = max(2, (os.cpu_count() or 8) // arguments.workers)
    except (ImportError, AttributeError):
        pass
    candidates = []
    for name in names:
        try:
            candidates.append(Candidate(arguments.out, name))
        except Exception as error:
            queue.put({"name": name, "ok": False, "error": repr(error)[:500]})
    for run in range(arguments.autotune):
        for c in candidates:
            try:
                c.compile(run, start + arguments.seconds, lock)
            except Exception as error:
                c.row["compile_error"] = repr(error)[:300]
    try:
        barrier.wait(timeout=60 + (arguments.seconds if math.isfinite(arguments.seconds) else 3600))
    except threading.BrokenBarrierError:
        pass   # a worker is gone; the others' numbers stand
    with lock:
        floors = ctypes.CDLL(arguments.floors) if arguments.floors else None
        rates = product_rates()
        for c in candidates:
            try:
                c.time(floors, rates, arguments.replays)
            except Exception as error:
                c.row.update(ok=False, error=repr(error)[:500])
            c.row.update(torch=torch.__version__, device=torch.cuda.get_device_name(), rates={str(k): v for k, v in rates.items()})
            queue.put(c.row)
            c.functions.clear()
            c.libraries = {}
            torch.cuda.empty_cache()
    queue.put(None)


def build_floors(folder):
    here = os.path.dirname(os.path.abspath(__file__))
    library = os.path.join(folder, "libfloors.so")
    try:
        major, minor = torch.cuda.get_device_capability()
        subprocess.run(
            [
                "nvcc",
                "-O3",
                "-std=c++17",
                "-shared",
                "-Xcompiler",
                "-fPIC",
                "-arch=sm_%d%d" % (major, minor),
                "-o",
                library,
                os.path.join(here, "floors.cu"),
            ],
            check=True,
        )
        return library
    except (OSError, subprocess.CalledProcessError) as error:
        print("torch_check.py: no floors: %r" % error, file=sys.stderr)
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="also write the lines to this file")
    parser.add_argument("--only", help="these programs, by comma")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--autotune", type=int, default=2, help="runs of torch.compile's autotuning; 0: no torch.compile")
    parser.add_argument("--workers", type=int, default=min(6, os.cpu_count() or 1))
    parser.add_argument("--replays", type=int, default=15)
    parser.add_argument("--floors", help="libfloors.so; default: built from floors.cu")
    parser.add_argument("--list", action="store_true", help="only read the specs: names, work, bytes, ways")
    parser.add_argument("out", metavar="OUT")
    arguments = parser.parse_args()
    names = sorted(f[:-5] for f in os.listdir(os.path.join(arguments.out, "specs")) if f.endswith(".json"))
    if arguments.only:
        names = [n for n in arguments.only.split(",") if n in names]   # in the order given: the first are compiled first
    if arguments.list:
        for n in names:
            p = torch_program.read_program(os.path.join(arguments.out, "specs", n + ".json"))
            print("%-24s %8.2f GFLOP %8.2f MB  %s" % (n, p.flops / 1e9, p.bytes() / 1e6, " ".join(w or "written" for w in p.ways())))
        return 0
    if not torch.cuda.is_available():
        print("torch_check.py: PyTorch sees no GPU", file=sys.stderr)
        return 7
    start, status = time.time(), 0
    folder = tempfile.mkdtemp()
    arguments.floors = arguments.floors or build_floors(folder)
    arguments.workers = max(1, min(arguments.workers, len(names)))
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(arguments.workers), context.Queue()
    processes = [
        context.Process(
            target=worker, args=(i, names[i :: arguments.workers], arguments, os.path.join(folder, "lock"), barrier, queue, start)
        )
        for i in range(arguments.workers)
    ]
    for p in processes:
        p.start()
    log = open(arguments.json, "w") if arguments.json else None
    running = arguments.workers
    while running:
        try:
            row = queue.get(timeout=5)
        except Exception:
            if all(p.exitcode is not None for p in processes):
                print("torch_check.py: a worker ended early", file=sys.stderr)
                return 8
            continue
        if row is None:
            running -= 1
            continue
        status = status if row["ok"] else 8
        for out in (sys.stdout, log):
            if out:
                print(json.dumps(row if out is log else {k: v for k, v in row.items() if k != "samples"}), file=out, flush=True)
    print("torch_check.py: %.0f s" % (time.time() - start), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
