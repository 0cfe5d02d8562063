#!/usr/bin/env python3
"""Attention on scores that are hard for a running maximum, against PyTorch in float64: hard_scores.py OUT NAME...

OUT is what 'cmd/bench.sh pack' made (OUT/specs/NAME.json, OUT/fused/NAME/libNAME.so); NAME: programs whose first three inputs are queries,
keys and values. Scores of many sizes, that ascend or descend along the keys, lie
far below zero, are all equal, have one large at the end, or grow by a little per chunk. A line each; wrong is an error over 1e-3 that is
also over 1.25 times that of the program operator by operator. Exit code 8 if one is.
"""

import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import torch_check  # noqa: E402
import torch_program  # noqa: E402

out = sys.argv[1]
bad = 0
for name in sys.argv[2:]:
    p = torch_program.read_program(os.path.join(out, "specs", name + ".json"))
    base = p.draw()
    lib = torch_check.Library(os.path.join(out, "fused", name), p)

    def run(label, t):
        global bad
        outs = [x.empty() for x in p.outputs]
        for o in outs:
            o.fill_(math.nan)
        lib(t, outs)
        torch.cuda.synchronize()
        want = p.written(*[x.double() if x.is_floating_point() else x for x in t])
        want = want if isinstance(want, (tuple, list)) else (want,)
        eager = p.written(*t)
        eager = eager if isinstance(eager, (tuple, list)) else (eager,)
        e, g = torch_check.relative(outs, want), torch_check.relative(eager, want)
        ok = e < 1e-3 or e <= 1.25 * g
        bad += not ok
        print("%-24s %-28s err %.2e eager %.2e %s" % (name, label, e, g, "ok" if ok else "WRONG"))

    def like(x, y):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda").copy_(y)
    q, k, v = base[0], base[1], base[2]
    kaxis = [i for i, n in enumerate(k.shape) if n == max(k.shape)][0]
    n = k.shape[kaxis]
    shape = [1] * k.dim(); shape[kaxis] = n
    ramp = torch.linspace(0, 1, n, device="cuda").view(shape)
    rest = base[3:]
    run("as drawn", base)
    for s in (4, 16, 64):
        run("q and k x %d" % s, [like(q, q * s), like(k, k * (s if s < 64 else 8)), v] + rest)
    for s in (2.0, 20.0, 100.0):
        run("scores ascend to %g" % s, [like(q, q.abs()), like(k, k.abs() * ramp * s), v] + rest)
        run("scores descend from %g" % s, [like(q, q.abs()), like(k, k.abs() * (1 - ramp) * s), v] + rest)
        run("scores all below -%g" % s, [like(q, q.abs()), like(k, -k.abs() * (0.5 + ramp) * s), v] + rest)
    run("zeros", [like(q, q * 0), like(k, k * 0), v] + rest)
    one = torch.zeros_like(ramp)
    one.view(-1)[n - 3] = 1
    run("one large at the end", [like(q, q.abs()), like(k, k * 0.01 + k.abs() * one * 50), v] + rest)
    step = (torch.arange(n, device="cuda") // 64).float().view(shape)
    run("grows by a little per chunk", [like(q, q.abs() * 0 + 1), like(k, k * 0.01 + step * 0.04), v] + rest)
    run("values near the smallest", [q, k, like(v, v * 1e-5)] + rest)
print("wrong:", bad)
sys.exit(8 if bad else 0)
