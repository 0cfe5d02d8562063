"""Operators of docs/spec.md that torch_program.py has not, as a PyTorch user writes them: convolutions, pools, reads by index, attention,
rotations, running sums, and what moves elements. OPS: name -> function of the first operand, the others, and the attributes."""

import math

import torch
import torch.nn.functional as F


def numbers(value, count):
    """One number for all axes, or a list of them."""
    return list(value) if isinstance(value, list) else [value] * count


def axes_of(axis, rank):
    if axis is None:
        return list(range(rank))
    return [a % rank for a in (axis if isinstance(axis, list) else [axis])]


def gated(activation):
    def gate(x, rest, t):
        first, second = (x, rest[0]) if rest else x.chunk(2, -1)
        g, v = (first, second) if t.get("gate", "first") == "first" else (second, first)
        return activation(g, t) * v
    return gate


def conv(x, rest, t):
    n = x.dim() - 2
    w, bias = (list(rest) + [None])[:2]
    stride, padding, dilation = (numbers(t.get(k, d), n) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    if t.get("transposed"):
        fn = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][n - 1]
        return fn(x, w, bias, stride, padding, numbers(t.get("output_padding", 0), n), t.get("groups", 1), dilation)
    return [F.conv1d, F.conv2d, F.conv3d][n - 1](x, w, bias, stride, padding, dilation, t.get("groups", 1))


def pool_of(t, n):
    kernel = numbers(t["kernel"], n)
    return kernel, numbers(t.get("stride", kernel), n), numbers(t.get("padding", 0), n)


def max_pool(x, rest, t):
    n = x.dim() - 2
    kernel, stride, padding = pool_of(t, n)
    fn = [F.max_pool1d, F.max_pool2d, F.max_pool3d][n - 1]
    return fn(x, kernel, stride, padding, numbers(t.get("dilation", 1), n), t.get("ceil_mode", False))


def avg_pool(x, rest, t):
    n = x.dim() - 2
    kernel, stride, padding = pool_of(t, n)
    return [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][n - 1](
        x, kernel, stride, padding, t.get("ceil_mode", False), t.get("count_include_pad", True)
    )


def product(x, rest, t):
    for axis in sorted(axes_of(t.get("axis"), x.dim()), reverse=True):
        x = torch.prod(x, axis, keepdim=t.get("keepdim", False))
    return x


def spread(fn):
    return lambda x, rest, t: fn(
        x, dim=axes_of(t.get("axis"), x.dim()), correction=t.get("correction", 1), keepdim=t.get("keepdim", False)
    )


def cumsum(x, rest, t):
    axis = t.get("axis", -1)
    x = x.flip(axis) if t.get("reverse") else x
    y = torch.cumsum(x, axis)
    y = y - x if t.get("exclusive") else y
    return y.flip(axis) if t.get("reverse") else y


def read(x, index, axis):
    """x along axis at the places of index, whose axes stand in its place."""
    axis %= x.dim()
    y = torch.index_select(x, axis, index.reshape(-1).long())
    return y.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1:]])


def attention(q, rest, t):
    """As the operator is defined, over (..., heads, rows, depth); torch_program.py has it as one call where it can be one."""
    k, v, *more = rest
    sink = more.pop() if t.get("sink") else None
    if q.dim() > 2 and q.shape[-3] != k.shape[-3]:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    s = torch.matmul(q, k.transpose(-1, -2)) * t.get("scale", 1 / math.sqrt(q.shape[-1]))
    if t.get("softcap"):
        s = torch.tanh(s / t["softcap"]) * t["softcap"]
    if more:
        s = s.masked_fill(~more[0], -math.inf) if more[0].dtype == torch.bool else s + more[0]
    row = torch.arange(s.shape[-2], device=s.device)[:, None] + t.get("offset", 0)
    column = torch.arange(s.shape[-1], device=s.device)
    if t.get("causal"):
        s = s.masked_fill(column > row, -math.inf)
    if "window" in t:
        s = s.masked_fill(column < row - t["window"] + 1, -math.inf)
    if sink is None:
        return torch.matmul(torch.softmax(s, -1), v)
    one = sink.reshape([-1, 1, 1]).expand([*s.shape[:-1], 1]) if s.dim() > 2 else sink.reshape(1, 1).expand(s.shape[0], 1)
    return torch.matmul(torch.softmax(torch.cat([s, one.to(s.dtype)], -1), -1)[..., :-1], v)


def rope(x, rest, t):
    cosine, sine = rest
    turned = t.get("dims", x.shape[-1])
    half = turned // 2
    head, tail = x[..., :turned], x[..., turned:]
    if t.get("interleaved"):
        parts = lambda v: (v[..., 0::2], v[..., 1::2])   # noqa: E731
    else:
        parts = lambda v: (v[..., :half], v[..., half:])   # noqa: E731
    (c0, c1), (s0, s1) = (parts(v) if v.shape[-1] == turned else (v, v) for v in (cosine, sine))
    x0, x1 = parts(head)
    y0, y1 = x0 * c0 - x1 * s0, x1 * c1 + x0 * s1
    y = torch.stack([y0, y1], -1).flatten(-2) if t.get("interleaved") else torch.cat([y0, y1], -1)
    return torch.cat([y, tail], -1) if tail.shape[-1] else y


def unsqueeze(x, rest, t):
    rank = x.dim() + len(axes_of(t["axis"], 64))
    for axis in sorted(axes_of(t["axis"], rank)):
        x = x.unsqueeze(axis)
    return x


def squeeze(x, rest, t):
    return x.squeeze() if t.get("axis") is None else torch.squeeze(x, tuple(axes_of(t["axis"], x.dim())))


def split(x, rest, t):
    """One of the parts."""
    axis = t.get("axis", -1)
    return (torch.split(x, t["sizes"], axis) if t.get("sizes") else torch.chunk(x, t["parts"], axis))[t["part"]]


def pad(x, rest, t):
    before, after = t.get("before", [0] * x.dim()), t.get("after", [0] * x.dim())
    if t.get("mode", "constant") == "constant":
        return F.pad(x, [n for pair in zip(before[::-1], after[::-1]) for n in pair], value=t.get("value", 0))
    for axis in range(x.dim()):   # PyTorch pads some axes of some ranks with elements of their own
        n = x.shape[axis]
        place = torch.arange(-before[axis], n + after[axis], device=x.device)
        if t["mode"] == "circular":
            place = place % n
        elif t["mode"] == "replicate":
            place = place.clamp(0, n - 1)
        else:
            place = (n - 1) - ((place % (2 * n - 2)) - (n - 1)).abs() if n > 1 else place * 0
        x = x.index_select(axis, place)
    return x


OPS = {
    "swiglu": gated(lambda g, t: F.silu(g)),
    "geglu": gated(lambda g, t: F.gelu(g, approximate=t.get("approximate", "none"))),
    "hardtanh": lambda x, r, t: F.hardtanh(x, t.get("min", -1.0), t.get("max", 1.0)),
    "conv": conv,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "prod": product,
    "var": spread(torch.var),
    "std": spread(torch.std),
    "logsumexp": lambda x, r, t: torch.logsumexp(x, axes_of(t.get("axis"), x.dim()), t.get("keepdim", False)),
    "cumsum": cumsum,
    "embedding": lambda x, r, t: read(r[0], x, 0),
    "index_select": lambda x, r, t: read(x, r[0], t.get("axis", 0)),
    "gather": lambda x, r, t: torch.gather(x, t["axis"], r[0].long()),
    "attention": attention,
    "rope": rope,
    "unsqueeze": unsqueeze,
    "squeeze": squeeze,
    "expand": lambda x, r, t: x.expand(t["shape"]),
    "stack": lambda x, r, t: torch.stack([x, *r], t.get("axis", 0)),
    "split": split,
    "pad": pad,
    "flip": lambda x, r, t: torch.flip(x, axes_of(t.get("axis"), x.dim())),
}
# What takes bools and whole numbers as they are.
MOVES = {"unsqueeze", "squeeze", "expand", "stack", "split", "pad", "flip", "embedding", "index_select", "gather", "attention"}
