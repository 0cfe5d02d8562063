"""One row per ATen operator: how it is said in a spec. The table of docs/aten.md is written from it (python -m mirage_opt operators).

A row's function takes the builder, the FX node and the node's arguments; it returns an operand, or a list of operands for an operator
with several results. It raises Refused with the reason.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple, Optional

import torch
from torch.fx import Node

from .lowering import DTYPES, FLOATS, INTEGERS, LOST, Builder, Convert, Dims, Operand, Refused, number


class Row(NamedTuple):
    convert: Optional[Convert]
    how: str  # for the table: what becomes of it, or why it is refused


ROWS: dict[str, Row] = {}


def row(*names: str, how: str) -> Any:
    def add(function: Convert) -> Convert:
        for name in names:
            ROWS[name] = Row(function, how)
        return function

    return add


def convert(b: Builder, node: Node) -> Any:
    """Raises Refused for an operator without a row."""
    target = node.target
    if target is operator.getitem:
        if node.args[0] not in b.values:
            raise Refused(LOST)
        parts = b.values[node.args[0]]
        if parts[node.args[1]] is None:
            raise Refused("a result of its operator that is not computed here")
        return parts[node.args[1]]
    name = aten_name(target)
    if name not in ROWS:
        raise Refused("no row for it in the table of operators")
    entry = ROWS[name]
    if entry.convert is None:
        raise Refused(entry.how)
    return entry.convert(b, node, *node.args, **node.kwargs)


def aten_name(target: Any) -> str:
    packet = getattr(target, "overloadpacket", None)
    return str(packet).split(".", 1)[-1] if packet is not None else str(target)


def axis_of(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


# ---- elementwise ----

for _name in (
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "neg",
    "sigmoid",
    "silu",
    "relu",
    "tanh",
    "erf",
    "sin",
    "cos",
    "floor",
    "ceil",
    "round",
    "sign",
    "log1p",
    "expm1",
    "reciprocal",
    "square",
    "mish",
    "hardswish",
):

    def _unary(b: Builder, node: Node, x: Any, op: str = _name, **rest: Any) -> Operand:
        if rest.get("decimals"):
            raise Refused("round to decimal places")
        if op in ("floor", "ceil", "round") and b.dtype(x) in INTEGERS:
            return b.operand(x)
        return b.emit(op, b.tensor(x))

    ROWS[_name] = Row(_unary, f"`{_name}`")


def _scaled(b: Builder, y: Any, alpha: Any) -> Operand:
    y = b.operand(y)
    if alpha == 1:
        return y
    return y * alpha if isinstance(y, (int, float)) else b.emit("mul", y, number(alpha))


def _binary(b: Builder, op: str, node: Node, x: Any, y: Any) -> Operand:
    """Numbers stay numbers where the other operand has the result's shape."""
    shape = b.shape(node)
    left, right = b.operand(x), b.operand(y)
    if not any(isinstance(o, str) and o not in ("+inf", "-inf") and b.shape(a) == shape for o, a in ((left, x), (right, y))):
        left = b.constant(left, b.shape(x)) if not isinstance(left, str) else left
        right = b.constant(right, b.shape(y)) if not isinstance(right, str) else right
        if not isinstance(left, str) and not isinstance(right, str):
            left = b.constant(left, shape) if shape else b.emit("add", left, 0)
    return b.emit(op, left, right)


@row("add", how="`add`, alpha by `mul`")
def _add(b: Builder, node: Node, x: Any, y: Any, alpha: Any = 1) -> Operand:
    return _binary(b, "add", node, x, y) if alpha == 1 else b.emit("add", b.operand(x), _scaled(b, y, alpha))


@row("sub", how="`sub`, alpha by `mul`")
def _sub(b: Builder, node: Node, x: Any, y: Any, alpha: Any = 1) -> Operand:
    return _binary(b, "sub", node, x, y) if alpha == 1 else b.emit("sub", b.operand(x), _scaled(b, y, alpha))


@row("rsub", how="`sub`")
def _rsub(b: Builder, node: Node, x: Any, y: Any, alpha: Any = 1) -> Operand:
    return b.emit("sub", b.operand(y), _scaled(b, x, alpha))


for _name, _op in (
    ("mul", "mul"),
    ("maximum", "maximum"),
    ("minimum", "minimum"),
    ("eq", "equal"),
    ("lt", "less"),
    ("gt", "greater"),
    ("ne", "not_equal"),
    ("le", "less_equal"),
    ("ge", "greater_equal"),
):

    def _pair(b: Builder, node: Node, x: Any, y: Any, op: str = _op) -> Operand:
        if op == "mul" and b.dtype(x) == torch.bool and b.dtype(y) == torch.bool:
            return b.emit("and", b.operand(x), b.operand(y))
        return _binary(b, op, node, x, y)

    ROWS[_name] = Row(_pair, f"`{_op}`")


def _toward_zero(b: Builder, x: Operand) -> Operand:
    return b.emit("mul", b.emit("sign", x), b.emit("floor", b.emit("abs", x)))


@row("trunc", how="`sign` x `floor` of `abs`")
def _trunc(b: Builder, node: Node, x: Any) -> Operand:
    return b.operand(x) if b.dtype(x) in INTEGERS else _toward_zero(b, b.tensor(x))


@row("div", how="`div`; rounding_mode by `floor` and `sign`")
def _div(b: Builder, node: Node, x: Any, y: Any, rounding_mode: Optional[str] = None) -> Operand:
    out = _binary(b, "div", node, x, y)
    return out if rounding_mode is None else b.emit("floor", out) if rounding_mode == "floor" else _toward_zero(b, out)


@row("floor_divide", how="`div`, `floor`")
def _floor_divide(b: Builder, node: Node, x: Any, y: Any) -> Operand:
    return b.emit("floor", _binary(b, "div", node, x, y))


@row("remainder", how="x - y `floor`(x / y)")
def _remainder(b: Builder, node: Node, x: Any, y: Any) -> Operand:
    return b.emit("sub", b.operand(x), b.emit("mul", b.emit("floor", b.emit("div", b.operand(x), b.operand(y))), b.operand(y)))


@row("fmod", how="x - y trunc(x / y)")
def _fmod(b: Builder, node: Node, x: Any, y: Any) -> Operand:
    return b.emit("sub", b.operand(x), b.emit("mul", _toward_zero(b, b.emit("div", b.operand(x), b.operand(y))), b.operand(y)))


@row("pow", how="`pow`")
def _pow(b: Builder, node: Node, x: Any, y: Any) -> Operand:
    if isinstance(x, Node) and not isinstance(y, Node):
        return b.emit("pow", b.tensor(x), exponent=number(y))
    if not isinstance(x, Node):
        if x <= 0:
            raise Refused("a power of a base that is not positive")
        return b.emit("exp", b.emit("mul", b.tensor(y), math.log(x)))
    return b.emit("pow", b.operand(x), b.operand(y))


@row("log2", "log10", how="`log` x constant")
def _log_base(b: Builder, node: Node, x: Any) -> Operand:
    return b.emit("mul", b.emit("log", b.tensor(x)), 1 / math.log(2 if aten_name(node.target) == "log2" else 10))


@row("exp2", how="`exp` of x log 2")
def _exp2(b: Builder, node: Node, x: Any) -> Operand:
    return b.emit("exp", b.emit("mul", b.tensor(x), math.log(2)))


@row("isnan", how="x != x: no real number is NaN")
def _isnan(b: Builder, node: Node, x: Any) -> Operand:
    return b.emit("not_equal", b.tensor(x), b.tensor(x))


@row("isinf", how="|x| == inf")
def _isinf(b: Builder, node: Node, x: Any) -> Operand:
    return b.emit("equal", b.emit("abs", b.tensor(x)), "+inf")


@row("xlogy", how="x `log` y, 0 where x is")
def _xlogy(b: Builder, node: Node, x: Any, y: Any) -> Operand:
    return b.emit("where", b.emit("equal", b.tensor(x), 0), 0, b.emit("mul", b.operand(x), b.emit("log", b.tensor(y))))


@row("tan", how="`sin` / `cos`")
def _tan(b: Builder, node: Node, x: Any) -> Operand:
    return b.emit("div", b.emit("sin", b.tensor(x)), b.emit("cos", b.tensor(x)))


@row("sinh", how="(e - e / (e + 1) ...) of `expm1`")
def _sinh(b: Builder, node: Node, x: Any) -> Operand:
    e = b.emit("expm1", b.tensor(x))  # (e + e / (e + 1)) / 2, exact near 0
    return b.emit("mul", b.emit("add", e, b.emit("div", e, b.emit("add", e, 1))), 0.5)


@row("cosh", how="(e^x + e^-x) / 2")
def _cosh(b: Builder, node: Node, x: Any) -> Operand:
    return b.emit("mul", b.emit("add", b.emit("exp", b.tensor(x)), b.emit("exp", b.emit("neg", b.tensor(x)))), 0.5)


@row("asinh", how="sign(x) `log1p`(|x| + x^2 / (1 + sqrt(x^2 + 1)))")
def _asinh(b: Builder, node: Node, x: Any) -> Operand:
    a, s = b.emit("abs", b.tensor(x)), b.emit("square", b.tensor(x))
    root = b.emit("add", b.emit("sqrt", b.emit("add", s, 1)), 1)
    return b.emit("mul", b.emit("sign", b.tensor(x)), b.emit("log1p", b.emit("add", a, b.emit("div", s, root))))


@row("acosh", how="`log`(x + sqrt(x^2 - 1))")
def _acosh(b: Builder, node: Node, x: Any) -> Operand:
    return b.emit("log", b.emit("add", b.tensor(x), b.emit("sqrt", b.emit("sub", b.emit("square", b.tensor(x)), 1))))


@row("atanh", how="`log1p`(2 x / (1 - x)) / 2")
def _atanh(b: Builder, node: Node, x: Any) -> Operand:
    ratio = b.emit("div", b.emit("mul", b.tensor(x), 2), b.emit("sub", 1, b.tensor(x)))
    return b.emit("mul", b.emit("log1p", ratio), 0.5)


@row("clamp", how="`clamp`, `maximum`, `minimum`")
def _clamp(b: Builder, node: Node, x: Any, low: Any = None, high: Any = None) -> Operand:
    out = b.tensor(x)
    if low is not None:
        out = b.emit("maximum", out, b.operand(low))
    return out if high is None else b.emit("minimum", out, b.operand(high))


@row("clamp_min", how="`maximum`")
def _clamp_min(b: Builder, node: Node, x: Any, low: Any) -> Operand:
    return b.emit("maximum", b.tensor(x), b.operand(low))


@row("clamp_max", how="`minimum`")
def _clamp_max(b: Builder, node: Node, x: Any, high: Any) -> Operand:
    return b.emit("minimum", b.tensor(x), b.operand(high))


@row("gelu", how="`gelu`")
def _gelu(b: Builder, node: Node, x: Any, approximate: str = "none") -> Operand:
    return b.emit("gelu", b.tensor(x), approximate=approximate)


@row("leaky_relu", how="`leaky_relu`")
def _leaky_relu(b: Builder, node: Node, x: Any, slope: float = 0.01) -> Operand:
    return b.emit("leaky_relu", b.tensor(x), slope=number(slope))


@row("elu", how="`elu`, scales by `mul`")
def _elu(b: Builder, node: Node, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Operand:
    if input_scale != 1:
        raise Refused("elu with an input scale")
    out = b.emit("elu", b.tensor(x), alpha=number(alpha))
    return out if scale == 1 else b.emit("mul", out, number(scale))


@row("hardtanh", how="`hardtanh`")
def _hardtanh(b: Builder, node: Node, x: Any, low: float = -1.0, high: float = 1.0) -> Operand:
    return b.emit("hardtanh", b.tensor(x), min=number(low), max=number(high))


@row("softplus", how="`softplus` (its limit for large values is the same function to float32)")
def _softplus(b: Builder, node: Node, x: Any, beta: float = 1.0, threshold: float = 20.0) -> Operand:
    if beta * threshold < 0 or threshold < 15:
        raise Refused("softplus with a threshold below 15")
    return b.emit("softplus", b.tensor(x), beta=number(beta))


@row("hardsigmoid", how="`clamp` of (x + 3) / 6")
def _hardsigmoid(b: Builder, node: Node, x: Any) -> Operand:
    return b.emit("div", b.emit("clamp", b.emit("add", b.tensor(x), 3), min=0, max=6), 6)


@row("where", how="`where`")
def _where(b: Builder, node: Node, c: Any, x: Any, y: Any) -> Operand:
    condition = b.tensor(c)
    if b.dtype(c) != torch.bool:
        condition = b.emit("not_equal", condition, 0)
    left, right = b.operand(x), b.operand(y)
    if b.shape(c) != b.shape(node) and not any(isinstance(a, Node) and b.shape(a) == b.shape(node) for a in (x, y)):
        left = b.tensor(x)
        right = b.tensor(y)
    return b.emit("where", condition, left, right)


@row("masked_fill", how="`where`")
def _masked_fill(b: Builder, node: Node, x: Any, mask: Any, value: Any) -> Operand:
    return b.emit("where", b.tensor(mask), b.operand(value), b.tensor(x))


for _name, _op in (("and", "and"), ("or", "or"), ("xor", "not_equal")):

    def _logical(b: Builder, node: Node, x: Any, y: Any, op: str = _op) -> Operand:
        bitwise = aten_name(node.target).startswith("bitwise")
        kinds = [b.dtype(a) for a in (x, y)]
        if bitwise and any(k != torch.bool for k in kinds):
            raise Refused("bits of integers")
        left, right = (b.operand(a) if k == torch.bool else b.emit("not_equal", b.operand(a), 0) for a, k in zip((x, y), kinds))
        return b.emit(op, left, right)

    for _full in ("logical_" + _name, "bitwise_" + _name):
        ROWS[_full] = Row(_logical, f"`{_op}`" + (" of bools" if _full.startswith("bitwise") else ""))


@row("logical_not", "bitwise_not", how="`not`")
def _not(b: Builder, node: Node, x: Any) -> Operand:
    if b.dtype(x) != torch.bool and aten_name(node.target) == "bitwise_not":
        raise Refused("bits of integers")
    return b.emit("not", b.tensor(x))


@row("_to_copy", "to", how="`cast` between float16, bfloat16, float32 and bool; integers by rounding towards zero")
def _to_copy(b: Builder, node: Node, x: Any, dtype: Any = None, **rest: Any) -> Operand:
    before, after = b.dtype(x), b.dtype(node)
    return _cast(b, b.tensor(x), before, after)


@row("convert_element_type", how="as _to_copy")
def _convert_element_type(b: Builder, node: Node, x: Any, dtype: Any) -> Operand:
    return _cast(b, b.tensor(x), b.dtype(x), dtype)


def _cast(b: Builder, x: Operand, before: Any, after: Any) -> Operand:
    if before == after:
        return x
    if after == torch.bool:
        return b.emit("not_equal", x, 0)
    if after in INTEGERS:
        return _toward_zero(b, x) if before in FLOATS else b.emit("where", x, 1, 0) if before == torch.bool else x
    if after not in DTYPES:
        raise Refused(f"a cast to {str(after)[6:]}")
    return b.emit("cast", b.emit("where", x, 1, 0) if before == torch.bool else x, dtype=DTYPES[after])


# ---- constants ----


@row(
    "full",
    "full_like",
    "scalar_tensor",
    "fill",
    "empty",
    "empty_strided",
    "zeros",
    "ones",
    "zeros_like",
    "ones_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "empty_like",
    how="a constant; memory that is not set counts as 0",
)
def _full(b: Builder, node: Node, *args: Any, **kwargs: Any) -> Operand:
    name = aten_name(node.target)
    if name == "scalar_tensor":
        return number(args[0])
    value = 1 if "ones" in name else 0 if "zeros" in name or "empty" in name else kwargs.get("fill_value", args[-1] if args else 0)
    value = number(value) if not isinstance(value, Node) else b.operand(value)
    shape = b.shape(node)
    return value if math.prod(shape) == 1 and not shape else b.constant(value, shape)


@row("arange", how="`iota`")
def _arange(b: Builder, node: Node, *args: Any, **kwargs: Any) -> Operand:
    start = args[0] if len(args) > 1 else 0
    step = args[2] if len(args) > 2 else kwargs.get("step", 1)
    out: Operand = b.emit("iota", axis=0, shape=b.shape(node))
    if step != 1:
        out = b.emit("mul", out, number(step))
    return out if start == 0 else b.emit("add", out, number(start))


# ---- reductions ----


def _axes(axes: Any) -> Any:
    return (
        None if axes is None or (isinstance(axes, (list, tuple)) and not axes) else list(axes) if isinstance(axes, (list, tuple)) else axes
    )


def _as_number(b: Builder, x: Any) -> Operand:
    return b.emit("where", b.tensor(x), 1, 0) if b.dtype(x) == torch.bool else b.tensor(x)


for _name, _op in (("sum", "sum"), ("mean", "mean"), ("amax", "max"), ("amin", "min")):

    def _reduce(b: Builder, node: Node, x: Any, dim: Any = None, keepdim: bool = False, op: str = _op, **rest: Any) -> Operand:
        if not b.shape(x):
            return b.emit("add", _as_number(b, x), 0)
        return b.emit(op, _as_number(b, x), axis=_axes(dim), keepdim=keepdim)

    ROWS[_name] = Row(_reduce, f"`{_op}`")


@row("max", "min", how="`max`, `min`; with a dim also `argmax`, `argmin`")
def _max(b: Builder, node: Node, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    name = aten_name(node.target)
    if isinstance(dim, Node):
        return b.emit(name + "imum", b.tensor(x), b.tensor(dim))
    value = b.emit(name, b.tensor(x), axis=dim, keepdim=keepdim)
    if dim is None:
        return value
    uses = any(user.args[1] == 1 for user in node.users)
    return [value, b.emit("arg" + name, b.tensor(x), axis=dim, keepdim=keepdim) if uses else None]


@row("argmax", "argmin", how="`argmax`, `argmin`")
def _argmax(b: Builder, node: Node, x: Any, dim: Any = None, keepdim: bool = False) -> Operand:
    op, value = aten_name(node.target), b.tensor(x)
    if dim is None:
        out = b.emit(op, b.emit("reshape", value, shape=[-1]), axis=0, keepdim=False)
        return b.emit("reshape", out, shape=[1] * len(b.shape(x))) if keepdim else out
    return b.emit(op, value, axis=dim, keepdim=keepdim)


@row("prod", how="`prod`")
def _prod(b: Builder, node: Node, x: Any, dim: Any = None, keepdim: bool = False, **rest: Any) -> Operand:
    return b.emit("prod", _as_number(b, x), axis=dim, keepdim=keepdim)


@row("var", "std", how="`var`, `std`")
def _var(b: Builder, node: Node, x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, correction: Any = None) -> Operand:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = int(unbiased) if correction is None else int(correction)
    return b.emit(aten_name(node.target), b.tensor(x), axis=_axes(dim), keepdim=keepdim, correction=correction)


@row("var_mean", how="`var` and `mean`")
def _var_mean(b: Builder, node: Node, x: Any, dim: Any = None, **rest: Any) -> Any:
    keepdim = rest.get("keepdim", False)
    return [_var(b, _Named("var"), x, dim, **rest), b.emit("mean", b.tensor(x), axis=_axes(dim), keepdim=keepdim)]  # type: ignore[arg-type]


class _Named:
    """Stands for a node whose operator has this name."""

    def __init__(self, name: str) -> None:
        self.target = name


@row("logsumexp", how="`logsumexp`")
def _logsumexp(b: Builder, node: Node, x: Any, dim: Any, keepdim: bool = False) -> Operand:
    return b.emit("logsumexp", b.tensor(x), axis=_axes(dim), keepdim=keepdim)


@row("any", how="`max` of 0 and 1")
def _any(b: Builder, node: Node, x: Any, dim: Any = None, keepdim: bool = False) -> Operand:
    ones = b.emit("where", b.tensor(x) if b.dtype(x) == torch.bool else b.emit("not_equal", b.tensor(x), 0), 1, 0)
    return b.emit("greater", b.emit("max", ones, axis=_axes(dim), keepdim=keepdim), 0)


@row("all", how="`min` of 0 and 1")
def _all(b: Builder, node: Node, x: Any, dim: Any = None, keepdim: bool = False) -> Operand:
    ones = b.emit("where", b.tensor(x) if b.dtype(x) == torch.bool else b.emit("not_equal", b.tensor(x), 0), 1, 0)
    return b.emit("greater", b.emit("min", ones, axis=_axes(dim), keepdim=keepdim), 0)


@row("cumsum", how="`cumsum`")
def _cumsum(b: Builder, node: Node, x: Any, dim: int, **rest: Any) -> Operand:
    return b.emit("cumsum", _as_number(b, x), axis=dim) if b.shape(x) else b.emit("add", b.tensor(x), 0)


@row("_softmax", "softmax", how="`softmax`")
def _softmax(b: Builder, node: Node, x: Any, dim: int, *rest: Any, **kwargs: Any) -> Operand:
    return b.emit("softmax", b.tensor(x), axis=dim)


@row("_log_softmax", "log_softmax", how="`log_softmax`")
def _log_softmax(b: Builder, node: Node, x: Any, dim: int, *rest: Any, **kwargs: Any) -> Operand:
    return b.emit("log_softmax", b.tensor(x), axis=dim)


# ---- products ----


@row("mm", "bmm", "matmul", how="`matmul`")
def _matmul(b: Builder, node: Node, x: Any, y: Any) -> Operand:
    return b.emit("matmul", b.tensor(x), b.tensor(y))


@row("addmm", "baddbmm", how="`matmul`, `add`")
def _addmm(b: Builder, node: Node, c: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1) -> Operand:
    out: Operand = b.emit("matmul", b.tensor(x), b.tensor(y))
    if alpha != 1:
        out = b.emit("mul", out, number(alpha))
    return out if beta == 0 else b.emit("add", out, _scaled(b, c, beta))


@row("linear", how="`linear`: the weight as it is stored")
def _linear(b: Builder, node: Node, x: Any, w: Any, bias: Any = None) -> Operand:
    if len(b.shape(w)) != 2:
        raise Refused("a weight that is no matrix")
    return b.emit("linear", b.tensor(x), b.tensor(w), None if bias is None else b.tensor(bias))


@row("einsum", how="`einsum` of one or two operands")
def _einsum(b: Builder, node: Node, equation: str, tensors: Any, **rest: Any) -> Operand:
    if "..." in equation or len(tensors) > 2:
        raise Refused("einsum with an ellipsis or more than two operands")
    return b.emit("einsum", *[b.tensor(t) for t in tensors], equation=equation.replace(" ", ""))


@row("convolution", how="`conv`")
def _convolution(
    b: Builder,
    node: Node,
    x: Any,
    w: Any,
    bias: Any,
    stride: Dims,
    padding: Dims,
    dilation: Dims,
    transposed: bool,
    output_padding: Dims,
    groups: int,
) -> Operand:
    attrs: dict[str, Any] = {"stride": list(stride), "padding": list(padding), "dilation": list(dilation), "groups": groups}
    spatial = len(b.shape(w)) - 2
    if len(b.shape(x)) != spatial + 2:
        raise Refused("a convolution without a batch axis")
    attrs = {k: v * spatial if isinstance(v, list) and len(v) == 1 else v for k, v in attrs.items()}
    if transposed:
        attrs.update(transposed=True, output_padding=list(output_padding))
    return b.emit("conv", b.tensor(x), b.tensor(w), None if bias is None else b.tensor(bias), **attrs)


@row("scaled_dot_product_attention", how="`attention`")
def _attention(
    b: Builder,
    node: Node,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Operand:
    if dropout_p:
        raise Refused("dropout: random numbers")
    mask = None if attn_mask is None else b.tensor(attn_mask)
    return b.emit(
        "attention",
        b.tensor(q),
        b.tensor(k),
        b.tensor(v),
        mask,
        causal=True if is_causal else None,
        scale=None if scale is None else number(scale),
    )
