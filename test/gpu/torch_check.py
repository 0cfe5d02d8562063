#!/usr/bin/env python3
"""Uses results as a PyTorch program would, and compares them with PyTorch: values, streams, graph capture, and time.

    torch_check.py [--json FILE] [--seconds S] [--no-compile] DIR...

Each DIR holds one result with its library built (DIR/NAME.py, DIR/libNAME.so). Per result, one line of JSON on standard output:
    name, err        ||ours - exact|| / ||exact||, exact: the eager function of the same inputs in float64
    eager_err        the same for PyTorch's own kernels in the spec's dtype
    bits_stream, bits_graph   whether a side stream, and a replayed graph on fresh inputs, give the bits of a plain call
    eager_us, compile_us, ours_us   medians, microseconds per call, cold: see cold_times; the faster of two where there is a second way to write the program (*_fastest says which)
    samples          all of them
Exit code: 0; 8 if a result disagrees. Needs a GPU and PyTorch. --seconds: start no further torch.compile after that time, so that a lease of a machine ends with numbers.
"""
import argparse
import importlib
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F

RMS, LN = 1e-6, 1e-5


def rms(x, eps=RMS):
    return F.rms_norm(x, (x.shape[-1],), eps=eps)


def attention(q, k, v, scale, is_causal=False):
    """PyTorch's library kernel."""
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=is_causal, scale=scale)[0]


def written_out(q, k, v, scale, is_causal=False):
    s = torch.matmul(q, k.transpose(-1, -2)) * scale
    if is_causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -math.inf)
    return torch.matmul(torch.softmax(s, dim=-1), v)


def n_trans_l2(x, h, alpha):
    return F.normalize(x + alpha * (F.normalize(h, dim=-1) - x), dim=-1)


# What a PyTorch user writes for each spec, inputs in the spec's order.
EAGER = {
    "rms_norm_linear": lambda x, w: rms(x) @ w,
    "rms_norm_linear_gain": lambda x, g, w: F.rms_norm(x, (x.shape[-1],), g, RMS) @ w,
    "gated_mlp": lambda x, w1, w2: F.silu(x @ w1) * (x @ w2),
    "lora": lambda x, w, a, b: x @ w + (x @ a) @ b,
    "lora_4k": lambda x, w, a, b: x @ w + (x @ a) @ b,
    "n_trans": lambda x, h, alpha: rms(x + alpha * (rms(h, 0.0) + x), 0.0),
    "n_trans_l2": n_trans_l2,
    "softmax_attention": lambda q, k, v: attention(q, k, v, 0.125),
    "gqa": lambda q, k, v: attention(q, k.transpose(-1, -2), v, 1.0),
    "causal_attention": lambda q, k, v: attention(q, k, v, 0.125, True),
    "layer_norm_linear": lambda x, gain, bias, w, b: F.layer_norm(x, (x.shape[-1],), gain, bias, LN) @ w + b,
    "mlp_gelu": lambda x, w1, b1, w2, b2: F.gelu(x @ w1 + b1, approximate="tanh") @ w2 + b2,
    "odd": lambda x, w, b: F.relu(x @ w + b),
}
# A second way to write it, where it is not plain which one is faster: the better of the two counts, eager and compiled.
SECOND = {
    "softmax_attention": lambda q, k, v: written_out(q, k, v, 0.125),
    "gqa": lambda q, k, v: written_out(q, k.transpose(-1, -2), v, 1.0),
    "causal_attention": lambda q, k, v: written_out(q, k, v, 0.125, True),
}


def draw(module, name):
    """Inputs by the metadata of the module: its shapes, strides and dtypes; matrices behind the first input scaled by their fan-in, so that products keep their size."""
    tensors = []
    for i, t in enumerate(module._INPUTS):
        is_weight = i > 0 and len(t.shape) == 2 and name not in SECOND and name not in ("n_trans", "n_trans_l2")
        scale = 1.0 / math.sqrt(t.shape[0]) if is_weight else 0.5
        x = torch.empty_strided(t.shape, t.strides, dtype=t.dtype, device="cuda")
        x.copy_(torch.randn(t.shape, device="cuda") * scale)
        tensors.append(x)
    return tensors


def relative(got, want):
    got, want = got.double(), want.double()
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return float((got - want).norm() / want.norm())


def on_stream(op, tensors):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = op(*tensors)
    stream.synchronize()
    return out


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
        outs.append(out.clone())
    return outs


def capture(fn, sets):
    """A graph of calls that rotate over the sets: no call finds its inputs in the L2 cache."""
    calls = -(-20 // len(sets)) * len(sets)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(3):
            fn(*sets[i % len(sets)])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            fn(*sets[i % len(sets)])
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return graph, calls


def cold_times(functions, sets, replays=15):
    """Microseconds per call of each function, in CUDA graphs over sets of more than 200 MB of inputs. Replays alternate between the functions, so that clocks and temperature touch all of them alike."""
    graphs = {name: capture(fn, sets) for name, fn in functions.items()}
    samples = {name: [] for name in functions}
    for _ in range(replays):
        for name, (graph, calls) in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            samples[name].append(begin.elapsed_time(end) * 1000.0 / calls)
    return samples


def median(values):
    return sorted(values)[len(values) // 2]


def check(folder, compile_too):
    folder = os.path.abspath(folder)
    names = [f[:-3] for f in os.listdir(folder) if f.endswith(".py") and os.path.exists(os.path.join(folder, "lib" + f[:-3] + ".so"))]
    if len(names) != 1:
        return {"name": os.path.basename(folder), "ok": False, "error": "no NAME.py with libNAME.so beside it in " + folder}
    name = names[0]
    if name not in EAGER:
        return {"name": name, "ok": True, "skipped": "no PyTorch counterpart in the table"}
    sys.path.insert(0, folder)
    module = importlib.import_module(name)
    sys.path.pop(0)
    op, eager = getattr(module, name), EAGER[name]

    tensors, fresh = draw(module, name), draw(module, name)
    out, want = op(*tensors), eager(*[x.double() for x in tensors])
    row = {"name": name, "err": relative(out, want), "eager_err": relative(eager(*tensors), want)}
    row["bits_stream"] = bool(torch.equal(on_stream(op, tensors), out))
    plain = op(*fresh)
    row["bits_graph"] = all(bool(torch.equal(o, plain)) for o in in_graph(op, tensors, fresh))
    row["tolerance"] = 1e-5 if all(t.dtype == torch.float32 for t in module._INPUTS + module._OUTPUTS) else 5e-3
    row["ok"] = row["err"] < row["tolerance"] and row["bits_stream"] and row["bits_graph"]

    input_bytes = sum(x.numel() * x.element_size() for x in tensors)
    count = min(1024, max(2, 200_000_000 // input_bytes + 1))
    sets = [tensors] + [draw(module, name) for _ in range(count - 1)]
    row["sets"] = count
    functions, ways = {"ours": op}, {"": eager}
    if name in SECOND:
        ways["_second"] = SECOND[name]
    torch._dynamo.reset()
    for way, fn in ways.items():
        functions["eager" + way] = fn
        if not compile_too:
            continue
        try:
            compiled = torch.compile(fn, mode="max-autotune-no-cudagraphs", dynamic=False)
            row["compile_err" + way] = relative(compiled(*tensors), want)
            functions["compile" + way] = compiled
        except Exception as error:  # a missing host compiler, say: the other numbers stand
            row["compile_error" + way] = repr(error)[:300]
    row["samples"] = cold_times(functions, sets)
    for what in ("ours", "eager", "compile"):
        medians = {way: median(samples) for way, samples in row["samples"].items() if way.startswith(what)}
        if medians:
            row[what + "_us"] = min(medians.values())
            row[what + "_fastest"] = min(medians, key=medians.get)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="also write the lines to this file")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("folders", nargs="+", metavar="DIR")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch_check.py: PyTorch sees no GPU", file=sys.stderr)
        return 7
    torch.manual_seed(0)
    start, status = time.time(), 0
    log = open(arguments.json, "w") if arguments.json else None
    for folder in arguments.folders:
        try:
            row = check(folder, not arguments.no_compile and time.time() - start < arguments.seconds)
        except Exception as error:
            row = {"name": os.path.basename(os.path.abspath(folder)), "ok": False, "error": repr(error)[:500]}
        row.update(torch=torch.__version__, device=torch.cuda.get_device_name())
        if not row["ok"]:
            status = 8
        for out in (sys.stdout, log):
            if out:
                shown = row if out is log else {k: v for k, v in row.items() if k != "samples"}
                print(json.dumps(shown), file=out, flush=True)
        torch.cuda.empty_cache()
    return status


if __name__ == "__main__":
    sys.exit(main())
