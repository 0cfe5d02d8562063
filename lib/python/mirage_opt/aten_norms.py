"""Rows of the ATen table that normalise, distances, and the forms that attention takes per device."""

from __future__ import annotations

import math
import operator
from typing import Any, Optional

import torch
from torch.fx import Node

from .aten import aten_name, row
from .lowering import Builder, Dims, Operand, Refused, number

# ---- norms ----


@row("layer_norm", how="`layer_norm` over the last axes")
def _layer_norm(b: Builder, node: Node, x: Any, shape: Dims, gain: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any) -> Operand:
    axes = list(range(-len(shape), 0))
    value = b.emit(
        "layer_norm",
        b.tensor(x),
        *([b.tensor(gain)] if gain is not None else []),
        *([b.tensor(bias)] if gain is not None and bias is not None else []),
        axis=axes,
        eps=eps,
    )
    return b.emit("add", value, b.tensor(bias)) if gain is None and bias is not None else value


@row("native_layer_norm", how="`layer_norm`; mean and rstd by `mean`, `var`")
def _native_layer_norm(b: Builder, node: Node, x: Any, shape: Dims, gain: Any, bias: Any, eps: float) -> Any:
    return [_layer_norm(b, node, x, shape, gain, bias, eps), *_statistics(b, node, x, list(range(-len(shape), 0)), eps)]


def _statistics(b: Builder, node: Node, x: Any, axes: Dims, eps: float) -> list[Optional[Operand]]:
    """Mean and 1 / sqrt(var + eps), where somebody uses them."""
    used = {user.args[1] for user in node.users if user.target is operator.getitem}
    mean = b.emit("mean", b.tensor(x), axis=axes, keepdim=True) if 1 in used else None
    rstd = b.emit("rsqrt", b.emit("add", b.emit("var", b.tensor(x), axis=axes, keepdim=True, correction=0), eps)) if 2 in used else None
    return [mean, rstd]


@row("rms_norm", "_fused_rms_norm", how="`rms_norm` over the last axes")
def _rms_norm(b: Builder, node: Node, x: Any, shape: Dims, gain: Any = None, eps: Optional[float] = None) -> Any:
    if eps is None:
        eps = torch.finfo(b.dtype(x)).eps
    out = b.emit("rms_norm", b.tensor(x), None if gain is None else b.tensor(gain), axis=list(range(-len(shape), 0)), eps=eps)
    if aten_name(node.target) == "rms_norm":
        return out
    used = any(user.args[1] == 1 for user in node.users)
    axes = list(range(-len(shape), 0))
    return [
        out,
        b.emit("rsqrt", b.emit("add", b.emit("mean", b.emit("square", b.tensor(x)), axis=axes, keepdim=True), eps)) if used else None,
    ]


@row("group_norm", how="`group_norm`")
def _group_norm(b: Builder, node: Node, x: Any, groups: int, gain: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any) -> Operand:
    if gain is None and bias is not None:
        raise Refused("a group norm with a bias only")
    return b.emit("group_norm", b.tensor(x), *[b.tensor(t) for t in (gain, bias) if t is not None], groups=groups, eps=eps)


@row("native_group_norm", how="`group_norm`; its mean and rstd are not computed")
def _native_group_norm(b: Builder, node: Node, x: Any, gain: Any, bias: Any, n: int, c: int, hxw: int, groups: int, eps: float) -> Any:
    return [_group_norm(b, node, x, groups, gain, bias, eps), None, None]


def _per_channel(b: Builder, value: Operand, rank: int) -> Operand:
    return b.emit("reshape", value, shape=[-1] + [1] * (rank - 2)) if rank > 2 else value


@row("_native_batch_norm_legit_no_training", how="`batch_norm`")
def _batch_norm_eval(b: Builder, node: Node, x: Any, gain: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    if gain is None and bias is not None:
        raise Refused("a batch norm with a bias only")
    return [
        b.emit("batch_norm", b.tensor(x), b.tensor(mean), b.tensor(var), *[b.tensor(t) for t in (gain, bias) if t is not None], eps=eps),
        None,
        None,
    ]


@row(
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    how="of training: `mean` and `var` of the batch, `batch_norm`; running statistics where they are used",
)
def _batch_norm_train(b: Builder, node: Node, x: Any, gain: Any, bias: Any, *rest: Any) -> Any:
    if isinstance(rest[0], Node) or rest[0] is None:
        running_mean, running_var, training, momentum, eps = rest
    else:
        running_mean = running_var = None
        training, momentum, eps = rest
    if not training:
        return _batch_norm_eval(b, node, x, gain, bias, running_mean, running_var, momentum, eps) + [None, None]
    shape = b.shape(x)
    axes = [i for i in range(len(shape)) if i != 1]
    mean = b.emit("mean", b.tensor(x), axis=axes)
    var = b.emit("var", b.tensor(x), axis=axes, correction=0)
    if gain is None and bias is not None:
        raise Refused("a batch norm with a bias only")
    out = b.emit("batch_norm", b.tensor(x), mean, var, *[b.tensor(t) for t in (gain, bias) if t is not None], eps=eps)
    used = {user.args[1] for user in node.users if user.target is operator.getitem}
    results: list[Optional[Operand]] = [out, mean if 1 in used else None, None, None, None]
    count = math.prod(shape) // shape[1]
    for place, old, new in ((3, running_mean, mean), (4, running_var, None)):
        if place in used and old is not None:
            new = new if new is not None else b.emit("mul", var, count / max(1, count - 1))
            results[place] = b.emit("add", b.emit("mul", b.tensor(old), 1 - momentum), b.emit("mul", new, momentum))
    return results


@row("_cdist_forward", how="sqrt of sums of squares of differences (p = 2), sums (1), largest (inf)")
def _cdist(b: Builder, node: Node, x: Any, y: Any, p: float, mode: Any = None) -> Operand:
    d = b.emit("abs", b.emit("sub", b.emit("unsqueeze", b.tensor(x), axis=-2), b.emit("unsqueeze", b.tensor(y), axis=-3)))
    if p == 2:
        return b.emit("sqrt", b.emit("sum", b.emit("square", d), axis=-1))
    if p == 1:
        return b.emit("sum", d, axis=-1)
    if p == math.inf:
        return b.emit("max", d, axis=-1)
    raise Refused("a distance of this p")


def _sdpa(b: Builder, q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, scale: Any) -> list[Optional[Operand]]:
    if dropout:
        raise Refused("dropout: random numbers")
    out = b.emit(
        "attention",
        b.tensor(q),
        b.tensor(k),
        b.tensor(v),
        None if mask is None else b.tensor(mask),
        causal=True if causal else None,
        scale=None if scale is None else number(scale),
    )
    return [out] + [None] * 8  # the rest serves a backward pass


_DEVICE_FORM = "`attention`; what serves a backward pass is not computed"


@row("_scaled_dot_product_flash_attention", how=_DEVICE_FORM)
def _flash(
    b: Builder, node: Node, q: Any, k: Any, v: Any, dropout: float = 0.0, causal: bool = False, debug: bool = False, scale: Any = None
) -> Any:
    return _sdpa(b, q, k, v, None, dropout, causal, scale)


@row("_scaled_dot_product_flash_attention_for_cpu", how=_DEVICE_FORM)
def _flash_cpu(
    b: Builder, node: Node, q: Any, k: Any, v: Any, dropout: float = 0.0, causal: bool = False, attn_mask: Any = None, scale: Any = None
) -> Any:
    return _sdpa(b, q, k, v, attn_mask, dropout, causal, scale)


@row("_scaled_dot_product_efficient_attention", how=_DEVICE_FORM)
def _efficient(
    b: Builder, node: Node, q: Any, k: Any, v: Any, bias: Any, log_sums: bool, dropout: float = 0.0, causal: bool = False, scale: Any = None
) -> Any:
    return _sdpa(b, q, k, v, bias, dropout, causal, scale)


@row("_scaled_dot_product_cudnn_attention", how=_DEVICE_FORM)
def _cudnn(
    b: Builder,
    node: Node,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    log_sums: bool,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    scale: Any = None,
) -> Any:
    return _sdpa(b, q, k, v, bias, dropout, causal, scale)
