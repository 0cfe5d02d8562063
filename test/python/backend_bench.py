#!/usr/bin/env python3
"""What torch.compile(backend="mirage_opt") gains on this machine's GPU beside eager and Inductor's max-autotune: microseconds of one call
in a CUDA graph of 20 (weights as the last call left them in L2), and on the host.

PYTHONPATH=lib/python MIRAGE_OPT=build/mirage-opt test/python/backend_bench.py
"""

import time

import torch
import torch.nn.functional as F
from torch import nn

import mirage_opt  # noqa: F401  registers the backend

torch.set_grad_enabled(False)


class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.rand(d) + 0.5)

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.w, 1e-6)


class Mlp(nn.Module):
    def __init__(self, d, f):
        super().__init__()
        self.norm = Norm(d)
        self.gate, self.up, self.down = nn.Linear(d, f, bias=False), nn.Linear(d, f, bias=False), nn.Linear(f, d, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    """A decoder layer of Llama-3.2-1B's sizes over a cache of keys and values; the new ones are results."""

    def __init__(self, d=2048, heads=32, groups=8, e=64, f=8192):
        super().__init__()
        self.heads, self.e = heads, e
        self.norm, self.mlp = Norm(d), Mlp(d, f)
        self.q, self.k, self.v = (
            nn.Linear(d, heads * e, bias=False),
            nn.Linear(d, groups * e, bias=False),
            nn.Linear(d, groups * e, bias=False),
        )
        self.o = nn.Linear(heads * e, d, bias=False)

    def forward(self, x, keys, values):
        t = self.norm(x)
        q = self.q(t).view(-1, self.heads, self.e).transpose(0, 1).unsqueeze(0)
        a = F.scaled_dot_product_attention(q, keys.unsqueeze(0), values.unsqueeze(0), enable_gqa=True)
        y = x + self.o(a.squeeze(0).transpose(0, 1).reshape(-1, self.heads * self.e))
        return self.mlp(y), self.k(t), self.v(t)


def graph_us(call):
    for _ in range(3):
        call()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(20):
            call()
    times = []
    for _ in range(9):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / 20)
    return sorted(times)[4]


def host_us(call, n=300):
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(n):
        call()
    spent = time.perf_counter() - begin
    torch.cuda.synchronize()
    return spent / n * 1e6


def main():
    cache = (torch.randn(8, 1024, 64), torch.randn(8, 1024, 64))
    cases = {
        "mlp, 1 row": (Mlp(2048, 8192), (torch.randn(1, 2048),)),
        "mlp, 16 rows": (Mlp(2048, 8192), (torch.randn(16, 2048),)),
        "decoder layer": (Decoder(), (torch.randn(1, 2048), *cache)),
    }
    print(
        "| module | relative error | mirage_opt us | inductor us | eager us | host: mirage_opt us | inductor us"
        " |\n|---|---|---|---|---|---|---|"
    )
    for name, (module, arguments) in cases.items():
        module, arguments = module.to("cuda", torch.bfloat16).eval(), tuple(x.to("cuda", torch.bfloat16) for x in arguments)
        torch._dynamo.reset()
        with torch.inference_mode():
            want, ours = module(*arguments), torch.compile(module, backend="mirage_opt")
            got = ours(*arguments)
            pairs = zip(want, got) if isinstance(want, tuple) else [(want, got)]
            error = max(((x.float() - y.float()).norm() / x.float().norm()).item() for x, y in pairs)
            us, host = graph_us(lambda: ours(*arguments)), host_us(lambda: ours(*arguments))
            torch._dynamo.reset()
            other = torch.compile(module, mode="max-autotune-no-cudagraphs")
            other(*arguments)
            row = [us, graph_us(lambda: other(*arguments)), graph_us(lambda: module(*arguments)), host, host_us(lambda: other(*arguments))]
        print(f"| {name} | {error:.1e} | " + " | ".join(f"{x:.1f}" for x in row) + " |", flush=True)


if __name__ == "__main__":
    main()
