"""Rows of the ATen table that move, window or index data, and the operators that are refused, with the reason."""

from __future__ import annotations

import math
import operator
from typing import Any, Optional

import torch
from torch.fx import Node

from .aten import ROWS, Row, aten_name, axis_of, row
from .lowering import INTEGERS, Builder, Dims, Operand, Refused, number, static_shape


def _reshape(b: Builder, value: Operand, shape: Dims) -> Operand:
    return b.emit("reshape", value, shape=list(shape)) if isinstance(value, str) else b.constant(value, list(shape))


@row("view", "reshape", "_unsafe_view", "flatten", "unflatten", "as_strided_", how="`reshape`")
def _view(b: Builder, node: Node, x: Any, *rest: Any, **kwargs: Any) -> Operand:
    if b.dtype(x) != b.dtype(node):
        raise Refused("a view of the same bytes in another dtype")
    return b.operand(x) if b.shape(x) == b.shape(node) else _reshape(b, b.tensor(x), b.shape(node))


@row("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "copy", how="nothing, or the copied value")
def _same(b: Builder, node: Node, x: Any, *rest: Any, **kwargs: Any) -> Operand:
    if aten_name(node.target) == "copy":
        value = b.tensor(rest[0])
        return value if b.shape(rest[0]) == b.shape(node) else _expand_to(b, value, b.shape(rest[0]), b.shape(node))
    return b.operand(x)


def _expand_to(b: Builder, value: Operand, before: Dims, after: Dims) -> Operand:
    if not isinstance(value, str):
        return b.constant(value, after)
    return value if before == after else b.emit("expand", value, shape=after)


@row("expand", "expand_as", "broadcast_to", how="`expand`")
def _expand(b: Builder, node: Node, x: Any, *rest: Any, **kwargs: Any) -> Operand:
    return _expand_to(b, b.operand(x), b.shape(x), b.shape(node))


@row("permute", how="`transpose`")
def _permute(b: Builder, node: Node, x: Any, dims: Dims) -> Operand:
    rank = len(dims)
    return b.emit("transpose", b.tensor(x), perm=[axis_of(d, rank) for d in dims]) if rank else b.operand(x)


@row("transpose", "t", how="`transpose`")
def _transpose(b: Builder, node: Node, x: Any, *dims: int) -> Operand:
    perm = list(range(len(b.shape(x))))
    i, k = (axis_of(d, len(perm)) for d in dims) if dims else (0, len(perm) - 1)
    if len(perm) < 2:
        return b.operand(x)
    perm[i], perm[k] = perm[k], perm[i]
    return b.emit("transpose", b.tensor(x), perm=perm)


@row("unsqueeze", "squeeze", how="`reshape`")
def _squeeze(b: Builder, node: Node, x: Any, *rest: Any) -> Operand:
    return _reshape(b, b.tensor(x), b.shape(node))


@row("repeat", how="`repeat` per axis")
def _repeat(b: Builder, node: Node, x: Any, counts: Dims) -> Operand:
    shape = b.shape(x)
    out, lead = b.tensor(x), len(counts) - len(shape)
    if lead:
        out = _reshape(b, out, [1] * lead + shape)
    for axis, count in enumerate(counts):
        if count != 1:
            out = b.emit("repeat", out, axis=axis, count=count)
    return out


@row("cat", how="`concat`")
def _cat(b: Builder, node: Node, tensors: Any, dim: int = 0) -> Operand:
    return b.emit("concat", *[b.tensor(t) for t in tensors if b.shape(t) != [0]], axis=dim)


@row("stack", how="`stack`")
def _stack(b: Builder, node: Node, tensors: Any, dim: int = 0) -> Operand:
    return b.emit("stack", *[b.tensor(t) for t in tensors], axis=dim)


def _cut(b: Builder, value: Operand, axis: int, start: int, stop: int, extent: int, step: int = 1) -> Operand:
    if start == 0 and stop >= extent and step == 1:
        return value
    return b.emit("slice", value, axis=axis, start=start, stop=min(stop, extent), step=step if step != 1 else None)


def _bounds(start: Any, stop: Any, extent: int) -> tuple[int, int]:
    start, stop, _ = slice(start, None if stop is None or stop > extent else stop).indices(extent)
    return start, stop


@row("slice", how="`slice`")
def _slice(b: Builder, node: Node, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Operand:
    extent = b.shape(x)[dim]
    start, end = _bounds(start, end, extent)
    if end <= start:
        raise Refused("a slice without elements")
    return _cut(b, b.tensor(x), axis_of(dim, len(b.shape(x))), start, end, extent, step)


@row("select", how="`slice`, `reshape`")
def _select(b: Builder, node: Node, x: Any, dim: int, index: int) -> Operand:
    if isinstance(index, Node):
        raise Refused("a place that is only known at run time")
    shape = b.shape(x)
    index = axis_of(index, shape[dim])
    return _reshape(b, _cut(b, b.tensor(x), axis_of(dim, len(shape)), index, index + 1, shape[dim]), b.shape(node))


@row("split_with_sizes", "split", "chunk", "unbind", how="`slice` per part")
def _split(b: Builder, node: Node, x: Any, sizes: Any, dim: int = 0) -> Any:
    parts = node.meta["val"]
    axis, at, out = axis_of(dim, len(b.shape(x))), 0, []
    for i, part in enumerate(parts):
        extent = static_shape(part)[axis]
        used = any(user.args[1] == i for user in node.users)
        out.append(_cut(b, b.tensor(x), axis, at, at + extent, b.shape(x)[axis]) if used else None)
        at += extent
    return out


@row("slice_scatter", how="`slice`, `concat`")
def _slice_scatter(b: Builder, node: Node, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Operand:
    if step != 1:
        raise Refused("slice_scatter with a step")
    extent = b.shape(x)[dim]
    start, end = _bounds(start, end, extent)
    return _put(b, x, b.tensor(source), axis_of(dim, len(b.shape(x))), start, end)


@row("select_scatter", how="`slice`, `concat`")
def _select_scatter(b: Builder, node: Node, x: Any, source: Any, dim: int, index: int) -> Operand:
    shape = b.shape(x)
    axis, index = axis_of(dim, len(shape)), axis_of(index, shape[dim])
    return _put(b, x, _reshape(b, b.tensor(source), shape[:axis] + [1] + shape[axis + 1 :]), axis, index, index + 1)


def _put(b: Builder, x: Any, middle: Operand, axis: int, start: int, end: int) -> Operand:
    value, extent = b.tensor(x), b.shape(x)[axis]
    parts = [_cut(b, value, axis, 0, start, extent)] if start > 0 else []
    parts.append(middle)
    if end < extent:
        parts.append(_cut(b, value, axis, end, extent, extent))
    return b.emit("concat", *parts, axis=axis) if len(parts) > 1 else middle


@row("flip", how="`flip`")
def _flip(b: Builder, node: Node, x: Any, dims: Dims) -> Operand:
    return b.emit("flip", b.tensor(x), axis=[axis_of(d, len(b.shape(x))) for d in dims])


@row("roll", how="`slice`, `concat`")
def _roll(b: Builder, node: Node, x: Any, shifts: Any, dims: Any = ()) -> Operand:
    shape, out = b.shape(x), b.tensor(x)
    shifts, dims = ([v] if isinstance(v, int) else list(v) for v in (shifts, dims))
    if not dims:
        raise Refused("a roll over all elements")
    for shift, dim in zip(shifts, dims):
        extent = shape[dim]
        at = (extent - shift) % extent
        if at:
            out = b.emit(
                "concat",
                _cut(b, out, axis_of(dim, len(shape)), at, extent, extent),
                _cut(b, out, axis_of(dim, len(shape)), 0, at, extent),
                axis=dim,
            )
    return out


@row("diagonal", how="`slice` with a step of the flattened axes")
def _diagonal(b: Builder, node: Node, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Operand:
    shape = b.shape(x)
    i, k = axis_of(dim1, len(shape)), axis_of(dim2, len(shape))
    rest = [a for a in range(len(shape)) if a not in (i, k)]
    rows, columns = shape[i], shape[k]
    count = b.shape(node)[-1]
    first = offset if offset >= 0 else -offset * columns
    flat = _reshape(b, b.emit("transpose", b.tensor(x), perm=rest + [i, k]), [shape[a] for a in rest] + [rows * columns])
    return b.emit("slice", flat, axis=len(rest), start=first, stop=first + (count - 1) * (columns + 1) + 1, step=columns + 1)


@row("as_strided", how="`reshape`, where it is one; else refused")
def _as_strided(b: Builder, node: Node, x: Any, size: Dims, stride: Dims, offset: Any = 0) -> Operand:
    val, whole = b.value(node), b.value(x)
    if offset or not whole.is_contiguous() or not val.is_contiguous() or val.numel() != whole.numel():
        raise Refused("strides that are no reshape")
    return _reshape(b, b.tensor(x), static_shape(val))


@row("tril", "triu", how="`where` of `iota`")
def _tri(b: Builder, node: Node, x: Any, diagonal: int = 0) -> Operand:
    shape = b.shape(x)[-2:]
    seen = b.emit("add", b.emit("iota", axis=0, shape=[shape[0], 1]), number(diagonal))
    column = b.emit("iota", axis=1, shape=[1, shape[1]])
    outside = b.emit("greater", column, seen) if aten_name(node.target) == "tril" else b.emit("less", column, seen)
    if b.dtype(x) == torch.bool:
        return b.emit("and", b.emit("not", outside), b.tensor(x))
    return b.emit("where", outside, 0, b.tensor(x))


@row("constant_pad_nd", how="`pad`")
def _pad(b: Builder, node: Node, x: Any, pad: Dims, value: Any = 0) -> Operand:
    rank = len(b.shape(x))
    before, after = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return b.emit("pad", b.tensor(x), before=before, after=after, value=number(value))


@row("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", how="`slice`, `flip`, `concat`")
def _reflect(b: Builder, node: Node, x: Any, pad: Dims) -> Operand:
    out, shape = b.tensor(x), b.shape(x)
    for i in range(len(pad) // 2):
        axis = len(shape) - 1 - i
        extent, before, after = shape[axis], pad[2 * i], pad[2 * i + 1]
        parts = [b.emit("flip", _cut(b, out, axis, 1, before + 1, extent), axis=[axis])] if before > 0 else []
        parts.append(out)
        if after > 0:
            parts.append(b.emit("flip", _cut(b, out, axis, extent - 1 - after, extent - 1, extent), axis=[axis]))
        if before < 0 or after < 0:
            raise Refused("a negative padding")
        out = b.emit("concat", *parts, axis=axis)
    return out


@row("replication_pad1d", "replication_pad2d", "replication_pad3d", how="`slice`, `repeat`, `concat`")
def _replicate(b: Builder, node: Node, x: Any, pad: Dims) -> Operand:
    out, shape = b.tensor(x), b.shape(x)
    for i in range(len(pad) // 2):
        axis = len(shape) - 1 - i
        extent, before, after = shape[axis], pad[2 * i], pad[2 * i + 1]
        if before < 0 or after < 0:
            raise Refused("a negative padding")
        parts = [b.emit("repeat", _cut(b, out, axis, 0, 1, extent), axis=axis, count=before)] if before else []
        parts.append(out)
        if after:
            parts.append(b.emit("repeat", _cut(b, out, axis, extent - 1, extent, extent), axis=axis, count=after))
        out = b.emit("concat", *parts, axis=axis)
    return out


@row("unfold", how="`stack` of slices")
def _unfold(b: Builder, node: Node, x: Any, dim: int, size: int, step: int) -> Operand:
    shape = b.shape(x)
    axis = axis_of(dim, len(shape))
    if size > 64:
        raise Refused("windows of more than 64 elements")
    count = (shape[axis] - size) // step + 1
    parts = [b.emit("slice", b.tensor(x), axis=axis, start=i, stop=i + (count - 1) * step + 1, step=step) for i in range(size)]
    return b.emit("stack", *parts, axis=len(shape))


# ---- windows ----


def _per_axis(value: Any, spatial: int, default: Any = None) -> Any:
    value = list(value) if isinstance(value, (list, tuple)) else value
    if value is None or value == []:
        return default
    return value * spatial if isinstance(value, list) and len(value) == 1 else value


def _batched(b: Builder, node: Node, x: Any, spatial: int, pool: Any) -> Operand:
    shape = b.shape(x)
    if len(shape) == spatial + 2:
        return pool(b.tensor(x))
    return _reshape(
        b,
        pool(_reshape(b, b.tensor(x), [1] + shape)),
        static_shape(node.meta["val"][0] if isinstance(node.meta["val"], (list, tuple)) else node.meta["val"]),
    )


@row(
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    how="`max_pool`; the indices are not computed",
)
def _max_pool(
    b: Builder, node: Node, x: Any, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    name = aten_name(node.target)
    spatial = int(name[8])
    attrs = {
        "kernel": _per_axis(kernel, spatial),
        "stride": _per_axis(stride, spatial),
        "padding": _per_axis(padding, spatial),
        "dilation": _per_axis(dilation, spatial),
    }
    out = _batched(b, node, x, spatial, lambda v: b.emit("max_pool", v, ceil_mode=ceil_mode or None, **attrs))
    return [out, None] if name.endswith("indices") else out


@row("avg_pool1d", "avg_pool2d", "avg_pool3d", how="`avg_pool`")
def _avg_pool(
    b: Builder,
    node: Node,
    x: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Operand:
    spatial = int(aten_name(node.target)[8])
    attrs = {"kernel": _per_axis(kernel, spatial), "stride": _per_axis(stride, spatial), "padding": _per_axis(padding, spatial)}
    if divisor_override is not None:
        if ceil_mode:
            raise Refused("a divisor of its own with ceil_mode")
        count = math.prod(attrs["kernel"])
        out = _batched(b, node, x, spatial, lambda v: b.emit("avg_pool", v, count_include_pad=True, **attrs))
        return b.emit("mul", out, count / divisor_override)
    return _batched(
        b, node, x, spatial, lambda v: b.emit("avg_pool", v, ceil_mode=ceil_mode or None, count_include_pad=count_include_pad, **attrs)
    )


@row(
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    how="`mean` of equal windows, else a product with each window's weights",
)
def _adaptive(b: Builder, node: Node, x: Any, size: Any) -> Operand:
    shape, after = b.shape(x), b.shape(node)
    out, rank = b.tensor(x), len(shape)
    for axis in range(rank - len(size), rank):
        n, m = shape[axis], after[axis]
        if n == m:
            continue
        if n % m == 0:
            split = shape[:axis] + [m, n // m] + shape[axis + 1 :]
            out = b.emit("mean", _reshape(b, out, split), axis=axis + 1)
        else:
            out = _resample(b, out, rank, axis, _window_weights(b, n, m))
        shape = shape[:axis] + [m] + shape[axis + 1 :]
    return out


def _window_weights(b: Builder, n: int, m: int) -> Operand:
    """[m, n]: row i averages elements floor(i n / m) to ceil((i + 1) n / m)."""
    i, k = b.emit("iota", axis=0, shape=[m, 1]), b.emit("iota", axis=1, shape=[1, n])
    first = b.emit("floor", b.emit("div", b.emit("mul", i, n), m))
    end = b.emit("ceil", b.emit("div", b.emit("mul", b.emit("add", i, 1), n), m))
    inside = b.emit("and", b.emit("greater_equal", k, first), b.emit("less", k, end))
    return b.emit("div", b.emit("where", inside, 1, 0), b.emit("sub", end, first))


def _resample(b: Builder, value: Operand, rank: int, axis: int, weights: Operand) -> Operand:
    """Each line along `axis` times the weights' rows."""
    perm = [a for a in range(rank) if a != axis] + [axis]
    last = b.emit("transpose", value, perm=perm) if axis != rank - 1 else value
    product = b.emit("matmul", last, weights, transpose_b=True)
    back = [perm.index(a) for a in range(rank)]
    return b.emit("transpose", product, perm=back) if axis != rank - 1 else product


@row("upsample_nearest2d", "upsample_nearest1d", "upsample_nearest3d", how="`expand`: whole factors only")
def _nearest(b: Builder, node: Node, x: Any, *rest: Any) -> Operand:
    shape, after, out = b.shape(x), b.shape(node), b.tensor(x)
    for axis in range(2, len(shape)):
        n, m = shape[axis], after[axis]
        if m % n:
            raise Refused("a factor that is no whole number")
        if m != n:
            before = shape[:axis] + [n, 1] + shape[axis + 1 :]
            out = b.emit("expand", _reshape(b, out, before), shape=before[: axis + 1] + [m // n] + before[axis + 2 :])
            shape = shape[:axis] + [m] + shape[axis + 1 :]
            out = _reshape(b, out, shape)
    return out


@row("upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d", how="products with the weights of linear interpolation")
def _linear_resize(b: Builder, node: Node, x: Any, size: Any, align_corners: bool, factors: Any = None) -> Operand:
    shape, after, out = b.shape(x), b.shape(node), b.tensor(x)
    for i, axis in enumerate(range(2, len(shape))):
        n, m = shape[axis], after[axis]
        if n == m and (factors is None or factors[i] == 1):
            continue
        place = b.emit("iota", axis=0, shape=[m, 1])
        if align_corners:
            at = b.emit("mul", place, (n - 1) / (m - 1) if m > 1 else 0)
        else:
            scale = 1 / factors[i] if factors is not None else n / m
            at = b.emit("maximum", b.emit("sub", b.emit("mul", b.emit("add", place, 0.5), scale), 0.5), 0)
        at = b.emit("minimum", at, n - 1)
        distance = b.emit("abs", b.emit("sub", at, b.emit("iota", axis=1, shape=[1, n])))
        out = _resample(b, out, len(shape), axis, b.emit("relu", b.emit("sub", 1, distance)))
    return out


# ---- indices ----


def _index_tensor(b: Builder, index: Any) -> Operand:
    if b.dtype(index) not in INTEGERS:
        raise Refused("an index that is no integer tensor")
    return b.tensor(index)


@row("embedding", how="`embedding`")
def _embedding(b: Builder, node: Node, table: Any, index: Any, *rest: Any, **kwargs: Any) -> Operand:
    return b.emit("embedding", b.tensor(index), b.tensor(table))


@row("index_select", how="`embedding` of the axis in front")
def _index_select(b: Builder, node: Node, x: Any, dim: int, index: Any) -> Operand:
    shape = b.shape(x)
    axis = axis_of(dim, len(shape))
    return _take(b, x, axis, _index_tensor(b, index), b.shape(index))


def _take(b: Builder, x: Any, axis: int, index: Operand, index_shape: Dims) -> Operand:
    """Elements `index` along an axis; the index's axes stand in its place."""
    shape = b.shape(x)
    perm = [axis] + [a for a in range(len(shape)) if a != axis]
    table = b.emit("transpose", b.tensor(x), perm=perm) if axis else b.tensor(x)
    rest = [shape[a] for a in perm[1:]]
    flat = _reshape(b, table, [shape[axis], math.prod(rest)])
    taken = _reshape(b, b.emit("embedding", index, flat), list(index_shape) + rest)
    k = len(index_shape)
    order = list(range(k, k + axis)) + list(range(k)) + list(range(k + axis, k + len(rest)))
    return b.emit("transpose", taken, perm=order) if order != list(range(len(order))) else taken


@row("index", how="`embedding`: one index tensor")
def _index(b: Builder, node: Node, x: Any, indices: Any) -> Operand:
    used = [(i, t) for i, t in enumerate(indices) if t is not None]
    if len(used) != 1 or b.dtype(used[0][1]) == torch.bool:
        raise Refused("more than one index tensor, or a bool one")
    axis, index = used[0]
    places = _index_tensor(b, index)
    places = b.emit("where", b.emit("less", places, 0), b.emit("add", places, b.shape(x)[axis]), places)  # negative ones count from the end
    return _take(b, x, axis, places, b.shape(index))


@row("gather", how="`gather`")
def _gather(b: Builder, node: Node, x: Any, dim: int, index: Any, *rest: Any, **kwargs: Any) -> Operand:
    return b.emit("gather", b.tensor(x), _index_tensor(b, index), axis=dim)


# ---- out, with the reason ----


@row("dropout", "native_dropout", how="of inference: nothing; of training: random numbers, refused")
def _dropout(b: Builder, node: Node, x: Any, p: float, train: Optional[bool]) -> Any:
    if train and p != 0:
        raise Refused("random numbers (dropout in training mode: call .eval() first)")
    if aten_name(node.target) == "dropout":
        return b.operand(x)
    if any(user.target is operator.getitem and user.args[1] == 1 for user in node.users):
        raise Refused("the mask of a dropout")
    return [b.operand(x), None]


_OUT = {
    "random numbers": ["rand", "randn", "randperm", "bernoulli", "rand_like", "randn_like", "multinomial", "randint"],
    "sorting": ["sort", "topk"],
    "a shape that depends on values": ["nonzero", "_local_scalar_dense", "masked_select"],
    "writes to places that depend on values": ["scatter", "scatter_add", "scatter_reduce", "masked_scatter", "index_put", "col2im"],
    "complex numbers": ["_fft_c2r", "_fft_r2c"],
    "inverse trigonometric functions": ["acos", "asin", "atan", "atan2"],
    "a gradient": [
        "_adaptive_avg_pool2d_backward",
        "avg_pool2d_backward",
        "convolution_backward",
        "embedding_dense_backward",
        "max_pool2d_with_indices_backward",
        "native_group_norm_backward",
        "native_layer_norm_backward",
    ],
    "reads from places that depend on values": ["grid_sampler_2d"],
    "sums over bags of indices": ["_embedding_bag"],
    "distances of all pairs of rows": ["_pdist_forward"],
    "sizes at run time; torch.export makes constants of them": ["sym_numel", "sym_size", "sym_storage_offset", "sym_stride"],
}
for _reason, _names in _OUT.items():
    for _name in _names:
        ROWS[_name] = Row(None, _reason)


def core_operators() -> list[str]:
    """Names of the core ATen operators of this PyTorch."""
    found = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if hasattr(packet, "overloads") and any(torch.Tag.core in getattr(packet, o).tags for o in packet.overloads()):
            found.add(name)
    return sorted(found)
