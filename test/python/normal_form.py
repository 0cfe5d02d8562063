"""Evaluates what `mirage-opt --canonicalize` prints, in float64: its primitives only, so that what an operator means is decided by
mirage-opt, not here.
"""

import json
import math

import torch

from helpers import opt

_INFINITIES = {"-inf": -math.inf, "+inf": math.inf}
_BOOLS = {"where", "transpose", "reshape", "repeat", "concat", "slice", "equal"}  # take bools as they are; elsewhere they count 0 and 1


def _wide(x):
    return x.double() if isinstance(x, torch.Tensor) else torch.tensor(float(x), dtype=torch.float64)


def _slice(x, t):
    index = [slice(None)] * x.dim()
    index[t["axis"]] = slice(t.get("start", 0), t.get("stop"), t.get("step", 1))
    return x[tuple(index)]


def _iota(t):
    shape, axis = t["shape"], t["axis"]
    return torch.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))]).expand(shape).double()


def _matmul(x, y, t):
    x = x.transpose(-1, -2) if t.get("transpose_a") else x
    return x @ (y.transpose(-1, -2) if t.get("transpose_b") else y)


def _cast(x, t):
    return x != 0 if t["dtype"] == "bool" else x.to(getattr(torch, t["dtype"])).double()


_F = torch.nn.functional
_PRIMITIVES = {
    "add": lambda t, x, y: x + y,
    "sub": lambda t, x, y: x - y,
    "mul": lambda t, x, y: x * y,
    "div": lambda t, x, y: x / y,
    "pow": lambda t, x, y=None: torch.pow(x, t["exponent"] if y is None else y),
    "neg": lambda t, x: -x,
    "square": lambda t, x: x * x,
    "relu": lambda t, x: x.relu(),
    "gelu": lambda t, x: _F.gelu(x, approximate=t.get("approximate", "none")),
    "silu": lambda t, x: _F.silu(x),
    "maximum": lambda t, x, y: torch.maximum(x, y),
    "minimum": lambda t, x, y: torch.minimum(x, y),
    "clamp": lambda t, x, y=None, z=None: torch.clamp(x, t.get("min", y), t.get("max", z)),
    "equal": lambda t, x, y: x == y,
    "less": lambda t, x, y: x < y,
    "greater": lambda t, x, y: x > y,
    "where": lambda t, c, x, y: torch.where(c, x, y),
    "sum": lambda t, x: x.sum(t["axis"], keepdim=t.get("keepdim", False)),
    "max": lambda t, x: x.amax(t["axis"], keepdim=t.get("keepdim", False)),
    "matmul": lambda t, x, y: _matmul(x, y, t),
    "transpose": lambda t, x: x.permute(t["perm"]),
    "reshape": lambda t, x: x.reshape(t["shape"]),
    "repeat": lambda t, x: torch.cat([x] * t["count"], t["axis"]),
    "concat": lambda t, *x: torch.cat(x, t["axis"]),
    "slice": lambda t, x: _slice(x, t),
    "cast": lambda t, x: _cast(x, t),
}


def evaluate(spec, inputs):
    """The outputs, in the spec's order, of inputs by name. Raises KeyError for a primitive that is not known here."""
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "spec.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(spec, f)
        normal = json.loads(opt("--canonicalize", path, "--quiet"))
    return run_normal_form(normal, inputs)


def run_normal_form(normal, inputs):
    """The same of a normal form that was read already."""
    values = {k: v if v.dtype == torch.bool else v.double() for k, v in inputs.items()}
    for n in normal["nodes"]:
        t, op = n.get("attrs", {}), n["op"]
        if op == "iota":
            out = _iota(t)
        elif op == "extent":
            out = torch.tensor(float(math.prod(list(inputs.values())[i].shape[a] for i, a in t["of"])))
        else:
            operands = [values[i] if i in values else _wide(_INFINITIES[i]) if i in _INFINITIES else _wide(i) for i in n["inputs"]]
            if op not in _BOOLS:
                operands = [_wide(v) for v in operands]
            if op == "where":
                operands[1:] = [
                    v if v.dtype == torch.bool and all(o.dtype == torch.bool for o in operands[1:]) else v.double() for v in operands[1:]
                ]
            out = _PRIMITIVES[op](t, *operands) if op in _PRIMITIVES else getattr(torch, op)(*operands)
        for name in n.get("outputs") or [n["output"]]:
            values[name] = out
    return [values[o] for o in normal["outputs"]]
