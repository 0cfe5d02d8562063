"""What a PyTorch user writes for a spec: every operator its counterpart, and attention where the operators are that also as one call of
scaled_dot_product_attention, each backend by itself.

Program(spec) reads the JSON; ways() are functions of the inputs, by name, the first one written as the spec is. Nothing here knows a
program by its name.
"""

import json
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import torch_operators

DTYPES = {
    "float16": torch.float16,
    "f16": torch.float16,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float32": torch.float32,
    "f32": torch.float32,
    "bool": torch.bool,
    "int32": torch.int32,
    "int64": torch.int64,
}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}


def axes_of(attrs, rank, default=None):
    axis = attrs.get("axis", default)
    if axis is None:
        return list(range(rank))
    return [a % rank for a in (axis if isinstance(axis, list) else [axis])]


def norm(kind, x, rest, attrs):
    eps = attrs.get("eps", {"rms_norm": 1e-6, "layer_norm": 1e-5, "l2_norm": 1e-12}[kind])
    axes = axes_of(attrs, x.dim(), -1)
    last = axes == list(range(x.dim() - len(axes), x.dim()))
    if kind == "l2_norm":
        return F.normalize(x, dim=axes[0], eps=eps) if len(axes) == 1 else x / x.square().sum(axes, keepdim=True).sqrt().clamp(min=eps)
    if last and kind == "layer_norm":
        gain, bias = (list(rest) + [None, None])[:2]
        return F.layer_norm(x, [x.shape[a] for a in axes], gain, bias, eps)
    if last and len(rest) < 2:
        return F.rms_norm(x, [x.shape[a] for a in axes], rest[0] if rest else None, eps)
    shaped = [r.reshape([x.shape[a] if a in axes else 1 for a in range(x.dim())]) if r.dim() == len(axes) else r for r in rest]
    if kind == "layer_norm":
        x = x - x.mean(axes, keepdim=True)
    y = x * torch.rsqrt(x.square().mean(axes, keepdim=True) + eps)
    y = y * shaped[0] if shaped else y
    return y + shaped[1] if len(shaped) > 1 else y


def sliced(x, attrs):
    axis = attrs["axis"]
    index = [slice(None)] * x.dim()
    index[axis] = slice(attrs.get("start"), attrs.get("stop"), attrs.get("step", 1))
    return x[tuple(index)]


def causal(x, attrs):
    mask = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1 + attrs.get("offset", 0))
    return x.masked_fill(mask, -math.inf)


def group_norm(x, rest, attrs):
    gain, bias = (list(rest) + [None, None])[:2]
    return F.group_norm(x, attrs["groups"], gain, bias, attrs.get("eps", 1e-5))


def batch_norm(x, rest, attrs):
    gain, bias = (list(rest) + [None, None])[2:4]
    return F.batch_norm(x, rest[0], rest[1], gain, bias, eps=attrs.get("eps", 1e-5))


def matmul(a, b, attrs):
    a = a.transpose(-1, -2) if attrs.get("transpose_a") else a
    return torch.matmul(a, b.transpose(-1, -2) if attrs.get("transpose_b") else b)


def softmax(x, axes):
    if len(axes) == 1:
        return torch.softmax(x, axes[0])
    e = torch.exp(x - x.amax(axes, keepdim=True))
    return e / e.sum(axes, keepdim=True)


def clamp(x, rest, t):
    if not rest:
        return torch.clamp(x, t.get("min"), t.get("max"))
    bounds = [b if torch.is_tensor(b) else torch.full((), float(b), dtype=x.dtype, device=x.device) for b in rest]
    return torch.minimum(torch.maximum(x, bounds[0]), bounds[1]) if len(bounds) > 1 else torch.maximum(x, bounds[0])


def reduced(fn):
    def reduce(x, rest, t):
        axes = axes_of(t, x.dim())
        return fn(x, axes, keepdim=t.get("keepdim", False))
    return reduce


def unary(fn):
    return lambda x, rest, t: fn(x)


OPS = {
    "add": lambda x, r, t: x + r[0],
    "sub": lambda x, r, t: x - r[0],
    "mul": lambda x, r, t: x * r[0],
    "div": lambda x, r, t: x / r[0],
    "neg": lambda x, r, t: -x,
    "pow": lambda x, r, t: torch.pow(x, r[0] if r else t["exponent"]),
    "exp": lambda x, r, t: torch.exp(x),
    "log": lambda x, r, t: torch.log(x),
    "sqrt": lambda x, r, t: torch.sqrt(x),
    "rsqrt": lambda x, r, t: torch.rsqrt(x),
    "square": lambda x, r, t: torch.square(x),
    "abs": lambda x, r, t: torch.abs(x),
    "sigmoid": lambda x, r, t: torch.sigmoid(x),
    "silu": lambda x, r, t: F.silu(x),
    "relu": lambda x, r, t: F.relu(x),
    "tanh": lambda x, r, t: torch.tanh(x),
    "gelu": lambda x, r, t: F.gelu(x, approximate=t.get("approximate", "none")),
    "clamp": clamp,
    "softplus": lambda x, r, t: F.softplus(x, t.get("beta", 1.0), t.get("threshold", 20.0)),
    "hardswish": lambda x, r, t: F.hardswish(x),
    **{n: unary(getattr(torch, n)) for n in ("sin", "cos", "erf", "floor", "ceil", "round", "sign", "log1p", "expm1", "reciprocal")},
    "maximum": lambda x, r, t: torch.clamp(x, min=r[0]) if not torch.is_tensor(r[0]) else torch.maximum(x, r[0]),
    "minimum": lambda x, r, t: torch.clamp(x, max=r[0]) if not torch.is_tensor(r[0]) else torch.minimum(x, r[0]),
    "equal": lambda x, r, t: x == r[0],
    "less": lambda x, r, t: x < r[0],
    "greater": lambda x, r, t: x > r[0],
    "not_equal": lambda x, r, t: x != r[0],
    "less_equal": lambda x, r, t: x <= r[0],
    "greater_equal": lambda x, r, t: x >= r[0],
    "and": lambda x, r, t: torch.logical_and(x, r[0]),
    "or": lambda x, r, t: torch.logical_or(x, r[0]),
    "not": lambda x, r, t: torch.logical_not(x),
    "where": lambda x, r, t: torch.where(x, r[0], r[1]),
    "matmul": lambda x, r, t: matmul(x, r[0], t),
    "einsum": lambda x, r, t: torch.einsum(t["equation"], x, *r),
    "sum": reduced(torch.sum),
    "mean": reduced(torch.mean),
    "max": reduced(torch.amax),
    "min": reduced(torch.amin),
    "argmax": lambda x, r, t: torch.argmax(x, t.get("axis", -1), t.get("keepdim", False)),
    "argmin": lambda x, r, t: torch.argmin(x, t.get("axis", -1), t.get("keepdim", False)),
    "softmax": lambda x, r, t: softmax(x, axes_of(t, x.dim(), -1)),
    "rms_norm": lambda x, r, t: norm("rms_norm", x, r, t),
    "layer_norm": lambda x, r, t: norm("layer_norm", x, r, t),
    "l2_norm": lambda x, r, t: norm("l2_norm", x, r, t),
    "group_norm": group_norm,
    "batch_norm": batch_norm,
    "linear": lambda x, r, t: F.linear(x, r[0], r[1] if len(r) > 1 else None),
    "log_softmax": lambda x, r, t: F.log_softmax(x, t.get("axis", -1)),
    "leaky_relu": lambda x, r, t: F.leaky_relu(x, t.get("slope", 0.01)),
    "elu": lambda x, r, t: F.elu(x, t.get("alpha", 1.0)),
    "mish": lambda x, r, t: F.mish(x),
    "transpose": lambda x, r, t: x.permute(t.get("perm", list(range(x.dim()))[::-1])),
    "reshape": lambda x, r, t: x.reshape(t["shape"]),
    "repeat": lambda x, r, t: torch.cat([x] * t["count"], t.get("axis", -1)),
    "concat": lambda x, r, t: torch.cat([x, *r], t.get("axis", -1)),
    "slice": lambda x, r, t: sliced(x, t),
    "cast": lambda x, r, t: x if x.dtype == torch.float64 else x.to(DTYPES[t["dtype"]]),
    "causal_mask": lambda x, r, t: causal(x, t),
    **torch_operators.OPS,
}


def iota(program, t, device):
    shape, axis = t["shape"], t.get("axis", 0)
    axis %= len(shape)
    return (
        torch.arange(shape[axis], dtype=torch.float32, device=device)
        .reshape([-1 if a == axis else 1 for a in range(len(shape))])
        .expand(shape)
    )


INFINITIES = {"-inf": -math.inf, "+inf": math.inf}   # JSON has no other word for them
# What takes bools as they are; elsewhere they count 0 and 1.
TAKES_BOOLS = {"where", "equal", "not_equal", "and", "or", "not", "transpose", "reshape", "repeat", "concat", "slice", "cast"}
TAKES_BOOLS |= torch_operators.MOVES
# What no tensor is an operand of.
MADE = {
    "iota": iota,
    "extent": lambda p, t, device: torch.full((), float(math.prod(p.inputs[i].shape[a] for i, a in t["of"])), device=device),
}


def ordered(nodes, names):
    """The nodes in an order in which every operand is there before it is used: a spec may list them in any. names: the inputs'."""
    waiting, known, out = list(nodes), set(names), []
    while waiting:
        produced = {n["output"] for n in waiting}
        ready = [n for n in waiting if not any(i in produced for i in n["inputs"] if isinstance(i, str))]
        if not ready:
            raise ValueError("nodes depend on each other: " + ", ".join(sorted(produced)))
        for n in ready:
            for i in n["inputs"]:
                if isinstance(i, str) and i not in known and i not in INFINITIES:
                    raise ValueError("there is no tensor '%s'" % i)
        known |= {n["output"] for n in ready}
        out += ready
        waiting = [n for n in waiting if n["output"] not in known]
    return out


class Tensor:
    def __init__(self, name, shape, strides, dtype, limits):
        self.name, self.shape, self.dtype, self.limits = name, shape, dtype, limits
        self.strides = strides
        if strides is None:
            self.strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]

    def bytes(self):
        return math.prod(self.shape) * torch.empty(0, dtype=self.dtype).element_size()

    def empty(self):
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="cuda")


class Program:
    def __init__(self, spec):
        if spec.get("inputs") is None or not isinstance(spec["inputs"], dict):
            raise ValueError("inputs by name are needed")
        self.name = spec["name"]
        self.axes = {k: v["value"] if isinstance(v, dict) else v for k, v in spec.get("axes", {}).items()}
        self.nodes = [
            dict(
                n,
                attrs={
                    **{k: self.shape(v) if k in ("shape",) else v for k, v in n.get("attrs", {}).items() if v is not None},
                    **({"part": i, "parts": len(n["outputs"])} if n["op"] == "split" else {}),
                },
                output=output,
            )
            for n in spec["nodes"]
            for i, output in enumerate(n.get("outputs") or [n["output"]])   # a node of several (split) is one of each
        ]
        self.nodes = ordered(self.nodes, spec["inputs"])
        for n in self.nodes:
            for key in ("start", "stop", "count", "offset"):
                if key in n["attrs"]:
                    n["attrs"][key] = self.extent(n["attrs"][key])
        self.inputs = [self.tensor(k, v) for k, v in spec["inputs"].items()]
        self.results = list(spec["outputs"])
        self.flops = 0
        meta = self.trace([torch.empty_strided(t.shape, t.strides, dtype=t.dtype, device="meta") for t in self.inputs])
        self.outputs = [
            self.tensor(k, dict(spec["outputs"][k], shape=spec["outputs"][k].get("shape", list(v.shape))))
            for k, v in zip(self.results, meta)
        ]

    def extent(self, x):
        return x if isinstance(x, int) else int(eval(str(x).replace("/", "//"), {"__builtins__": {}}, self.axes))

    def shape(self, dims):
        return [self.extent(d) for d in dims]

    def tensor(self, name, t):
        return Tensor(
            name, self.shape(t["shape"]), self.shape(t["strides"]) if "strides" in t else None, DTYPES[t["dtype"]], t.get("range")
        )

    def bytes(self):
        return sum(t.bytes() for t in self.inputs + self.outputs)

    def run(self, nodes, tensors, visit=None):
        values = dict(zip([t.name for t in self.inputs], tensors))
        wide = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
        for n in nodes:
            if "call" in n:
                values[n["output"]] = n["call"](values)
                continue
            if n["op"] in MADE:
                values[n["output"]] = MADE[n["op"]](self, n["attrs"], tensors[0].device)
                continue
            x, *rest = [INFINITIES.get(i, values.get(i)) if isinstance(i, str) else i for i in n["inputs"]]
            if n["op"] not in TAKES_BOOLS:
                x, *rest = [v.to(wide) if torch.is_tensor(v) and v.dtype == torch.bool else v for v in (x, *rest)]
            if not torch.is_tensor(x):
                x = torch.full((), x, dtype=next(r for r in rest if torch.is_tensor(r)).dtype, device=tensors[0].device)
            values[n["output"]] = OPS[n["op"]](x, rest, n["attrs"])
            if visit:
                visit(n, x, values[n["output"]])
        return tuple(values[r] for r in self.results)

    def trace(self, tensors):
        """Shapes, and the work of matrix products."""
        self.shapes = {t.name: tuple(t.shape) for t in self.inputs}

        def visit(n, x, y):
            self.shapes[n["output"]] = tuple(y.shape)
            if n["op"] == "matmul":
                self.flops += 2 * y.numel() * x.shape[-2 if n["attrs"].get("transpose_a") and x.dim() > 1 else -1]
        return self.run(self.nodes, tensors, visit)

    def written(self, *tensors):
        return self.run(self.nodes, tensors)

    def attention(self):
        """[(first node, its part, the call)] of every matmul, scale, mask or bias, softmax, matmul that is one call of SDPA."""
        made = {n["output"]: n for n in self.nodes}
        users = {}
        for n in self.nodes:
            for i in n["inputs"]:
                users.setdefault(i, []).append(n)
        found = []
        for n in self.nodes:
            if n["op"] != "matmul" or n["attrs"].get("transpose_b") or made.get(n["inputs"][0], {}).get("op") != "softmax":
                continue
            part, scale, bias, offset = [n], 1.0, None, None
            at = made[n["inputs"][0]]
            part.append(at)
            at = made.get(at["inputs"][0])
            if at and at["op"] == "causal_mask":
                offset = at["attrs"].get("offset", 0)
                part.append(at)
                at = made.get(at["inputs"][0])
            if (
                at
                and offset is None
                and at["op"] == "add"
                and at["inputs"][0] in made
                and isinstance(at["inputs"][1], str)
                and at["inputs"][1] not in made
            ):
                bias = at["inputs"][1]
                part.append(at)
                at = made.get(at["inputs"][0])
            if at and at["op"] in ("mul", "div") and not isinstance(at["inputs"][1], str):
                scale = at["inputs"][1] if at["op"] == "mul" else 1.0 / at["inputs"][1]
                part.append(at)
                at = made.get(at["inputs"][0])
            if not at or at["op"] != "matmul" or at["attrs"].get("transpose_a"):
                continue
            part.append(at)
            if any(len(users.get(p["output"], [])) != 1 or p["output"] in self.results for p in part[1:]):
                continue
            found.append((part, self.sdpa(at["inputs"], n["inputs"][1], at["attrs"].get("transpose_b", False), scale, bias, offset)))
        return found

    def sdpa(self, qk, v, transposed, scale, bias, offset):
        queries, keys = self.shapes[qk[0]][-2], self.shapes[qk[1]][-2 if transposed else -1]
        is_causal, allowed = offset == 0 and queries == keys, None
        if offset is not None and not is_causal and torch.cuda.is_available():
            allowed = torch.ones(queries, keys, dtype=torch.bool, device="cuda").tril(offset)

        def call(values):
            q, k, w = values[qk[0]], values[qk[1]], values[v]
            k = k if transposed else k.transpose(-1, -2)
            rank = q.dim()
            q, k, w = (t.reshape((1,) * (4 - t.dim()) + tuple(t.shape)) if t.dim() < 4 else t for t in (q, k, w))
            mask = allowed if bias is None else values[bias].expand(*values[bias].shape[:-2], queries, keys)
            out = F.scaled_dot_product_attention(q, k, w, attn_mask=mask, is_causal=is_causal, scale=scale)
            return out.reshape(out.shape[4 - rank:]) if rank < 4 else out
        return call

    def with_sdpa(self):
        """The nodes with SDPA in the place of attention; None if there is none."""
        found = self.attention()
        if not found:
            return None
        gone = {id(p) for part, _ in found for p in part[1:]}
        calls = {id(part[0]): call for part, call in found}
        return [dict(n, call=calls[id(n)]) if id(n) in calls else n for n in self.nodes if id(n) not in gone]

    def with_addmm(self):
        """The nodes with addmm in the place of a product and a bias of its columns; None if there is none."""
        made, used = {n["output"]: n for n in self.nodes}, {}
        for n in self.nodes:
            for i in n["inputs"]:
                used[i] = used.get(i, 0) + 1
        gone, calls = set(), {}
        shape = {t.name: t.shape for t in self.inputs}
        for n in self.nodes:
            product = made.get(n["inputs"][0]) if n["op"] == "add" else None
            bias = n["inputs"][1] if n["op"] == "add" else None
            if (
                product
                and product["op"] == "matmul"
                and not product["attrs"]
                and used[product["output"]] == 1
                and product["output"] not in self.results
                and isinstance(bias, str)
                and len(shape.get(bias, [])) == 1
            ):
                gone.add(id(product))
                calls[id(n)] = lambda values, a=product["inputs"], b=bias: (
                    torch.addmm(values[b], values[a[0]], values[a[1]])
                    if values[a[0]].dim() == 2
                    else torch.matmul(values[a[0]], values[a[1]]) + values[b]
                )
        return [dict(n, call=calls[id(n)]) if id(n) in calls else n for n in self.nodes if id(n) not in gone] if calls else None

    def ways(self):
        """{name: (function, whether torch.compile of it is another candidate)}"""
        out = {"": (self.written, True)}
        if fused := self.with_sdpa():
            out["_sdpa"] = (lambda *t: self.run(fused, t), True)
            for name, backend in BACKENDS.items():
                def one(*t, backend=backend):
                    with sdpa_kernel(backend):
                        return self.run(fused, t)
                out["_sdpa_" + name] = (one, False)
        if linear := self.with_addmm():
            out["_addmm"] = (lambda *t: self.run(linear, t), False)
        return out

    def draw(self):
        """Inputs as NAME_check draws them: right operands of products scaled by their fan-in, what is below a root positive."""
        fan, positive, places = {}, set(), {}
        meta, made = {t.name: t for t in self.inputs}, {n["output"]: n for n in self.nodes}
        for n in self.nodes:
            if n["op"] == "matmul" and n["inputs"][1] in meta:
                shape = meta[n["inputs"][1]].shape
                fan[n["inputs"][1]] = shape[-1 if n["attrs"].get("transpose_b") or len(shape) == 1 else -2]
            if n["op"] in ("sqrt", "rsqrt", "log"):
                root = n["inputs"][0]
                while root in made and made[root]["op"] == "add" and not isinstance(made[root]["inputs"][1], str):   # an epsilon
                    root = made[root]["inputs"][0]
                positive.add(root)
            if n["op"] == "batch_norm":
                positive.add(n["inputs"][2])
            if n["op"] in ("embedding", "index_select", "gather"):
                table, index = n["inputs"][::-1] if n["op"] == "embedding" else n["inputs"]
                shape = meta[table].shape if table in meta else self.shapes[table]
                places[index] = shape[n["attrs"].get("axis", 0)]
        out = []
        for t in self.inputs:
            x = torch.randn(t.shape, device="cuda") * (1.0 / math.sqrt(fan[t.name]) if t.name in fan else 0.5)
            if t.name in positive:
                x = x.abs() + 0.5
            if t.limits:
                x = torch.rand(t.shape, device="cuda") * (t.limits[1] - t.limits[0]) + t.limits[0]
            elif t.name in places:
                x = torch.randint(places[t.name], t.shape, device="cuda")
            out.append(t.empty().copy_(x))
        return out


def read_program(path):
    with open(path) as f:
        return Program(json.load(f))
