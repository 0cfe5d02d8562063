"""Graphs of torch.compile whose sizes are symbols: the values that the option dynamic_shapes gives them are one library, other sizes are
Inductor's. Dynamo chooses between the two, by a guard on the symbols.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

from .exporting import Values
from .family import Point, points_of, unify
from .lowering import Refused, findings_of
from .partition import Partition, Region, divide, is_operator, region_of

MOST_POINTS = 64  # of one library

Shapes = Mapping[str, Mapping[int, Values]]


class Axes(NamedTuple):
    """The axes of a graph by name, and the axis that each symbol is."""

    values: dict[str, Values]
    symbols: dict[Any, str]

    def sizes(self, point: Point) -> dict[Any, int]:
        return {symbol: point[name] for symbol, name in self.symbols.items()}


def checked_shapes(shapes: Any) -> dict[str, dict[int, Values]]:
    """The option dynamic_shapes. Raises ValueError, with what is wrong, for what is no {argument: {dimension: Values}}."""
    out: dict[str, dict[int, Values]] = {}
    named: dict[str, Values] = {}
    form = 'dynamic_shapes: {"x": {0: mirage_opt.Values("B", [1, 8, 64])}} is expected'
    if not isinstance(shapes or {}, Mapping):
        raise ValueError(f"{form}, not {type(shapes).__name__}")
    for argument, dims in (shapes or {}).items():
        if not isinstance(argument, str) or not isinstance(dims, Mapping):
            raise ValueError(f"{form}, not {argument!r}: {dims!r}")
        for d, v in dims.items():
            if not isinstance(d, int) or not isinstance(v, Values) or not re.fullmatch(r"[A-Za-z]\w*", str(v.name)):
                raise ValueError(f"{form}, not {d!r}: {v!r} of {argument!r}")
            values = list(v.values)
            if not values or len(set(values)) < len(values) or not all(type(n) is int and n > 0 for n in values):
                raise ValueError(f"dynamic_shapes: the values of {v.name} must be positive, whole and different, not {values}")
            if v.hint is not None and v.hint not in values:
                raise ValueError(f"dynamic_shapes: the hint {v.hint} of {v.name} is none of its values {values}")
            if named.setdefault(v.name, v) != v:
                raise ValueError(f"dynamic_shapes: {v.name} has two lists of values, {list(named[v.name].values)} and {values}")
            out.setdefault(argument, {})[d] = v
    if math.prod(len(v.values) for v in named.values()) > MOST_POINTS:
        raise ValueError(f"dynamic_shapes: at most {MOST_POINTS} combinations of values are one library")
    return out


def axes_of(gm: GraphModule, shapes: Shapes) -> tuple[Axes, str]:
    """Which symbols of a graph of Dynamo are axes, and why it is none of these sizes' ("" where it is). Leaves a guard behind: Dynamo asks
    again for sizes on the other side.
    """
    axes, wrong = Axes({}, {}), list[str]()
    if not shapes:
        return axes, ""
    arguments = {_argument(n): n for n in gm.graph.nodes if n.op == "placeholder"}
    for argument, dims in shapes.items():
        if argument not in arguments:
            continue  # of another graph of this module
        value = arguments[argument].meta.get("example_value")
        for d, v in dims.items():
            if not isinstance(value, torch.Tensor) or not -value.dim() <= d < value.dim():
                raise ValueError(f"dynamic_shapes: {argument} has no dimension {d}")
            n = value.shape[d]
            size = n.node.expr if isinstance(n, torch.SymInt) else sympy.Integer(n)
            what = f"dimension {d} of {argument}"
            if size.is_Integer:
                if int(size) not in v.values:
                    wrong.append(_other(v))
            elif not size.is_Symbol:
                wrong.append(f"{what} is {size}, which is no axis of its own")
            elif _has_range(value.fake_mode.shape_env, arguments[argument], d):
                wrong.append(f"{what} is marked with min or max: mark_dynamic without them leaves the sizes to dynamic_shapes")
            else:
                axes.values[v.name] = v
                axes.symbols[size] = v.name
                wrong += _guard(value.fake_mode.shape_env, axes, size, v)
    return axes, "; ".join(dict.fromkeys(wrong))


def _other(v: Values) -> str:
    return f"there are kernels for {v.name} = {', '.join(map(str, v.values))}, and not for other sizes"


def _guard(shape_env: Any, axes: Axes, symbol: Any, v: Values) -> list[str]:
    first = next(s for s, name in axes.symbols.items() if name == v.name)
    if first is not symbol and not shape_env.evaluate_expr(sympy.Eq(first, symbol)):
        return [f"{v.name} is two sizes"]
    return [] if shape_env.evaluate_expr(sympy.Or(*[sympy.Eq(symbol, n) for n in v.values])) else [_other(v)]


def _argument(node: Node) -> str:
    """The name that a placeholder of Dynamo has in forward: x, or caches[0]."""
    source = getattr(node, "_dynamo_source", None) or getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", node.name)
    return re.sub(r"^L\['(\w+)'\]", r"\1", str(name() if callable(name) else name))


def _has_range(shape_env: Any, node: Node, d: int) -> bool:
    """Whether the user gave the least or the most that a dimension may be: a guard between them is an error to Dynamo."""
    for tracked in getattr(shape_env, "tracked_fakes", None) or ():
        if tracked.fake is node.meta.get("example_value"):
            sizes = getattr(tracked.symbolic_context, "constraint_sizes", None) or ()
            return len(sizes) > d and type(sizes[d]).__name__ == "StrictMinMaxConstraint"
    return False


def at_sizes(gm: GraphModule, sizes: Mapping[Any, int]) -> tuple[GraphModule, dict[Node, Node]]:
    """A copy in which symbols are numbers, and the copy of each node. Nodes that are such numbers are gone."""
    graph, image = Graph(), {}
    with FakeTensorMode(allow_non_fake_inputs=True):
        for node in gm.graph.nodes:
            val = node.meta.get("val")
            if isinstance(val, torch.SymInt) and isinstance(_number(val, sizes), int):
                image[node] = _number(val, sizes)
                continue
            image[node] = graph.node_copy(node, lambda n: image[n])
            image[node].meta["val"] = torch.utils._pytree.tree_map(lambda v: _at(v, sizes), val)
    return GraphModule(gm, graph), {a: b for a, b in image.items() if isinstance(b, Node)}


def _number(n: Any, sizes: Mapping[Any, int]) -> Any:
    """A size at these sizes; itself where another symbol is in it."""
    if not isinstance(n, torch.SymInt):
        return n
    expression = n.node.expr.xreplace({s: sympy.Integer(v) for s, v in sizes.items()})
    return int(expression) if expression.is_Integer else n


def _at(val: Any, sizes: Mapping[Any, int]) -> Any:
    if not isinstance(val, torch.Tensor):
        return _number(val, sizes)
    numbers = [[_number(n, sizes) for n in given] for given in (val.shape, val.stride(), [val.storage_offset()])]
    if not all(isinstance(n, int) for given in numbers for n in given):
        return val
    (shape, strides, (offset,)) = numbers
    reach = 1 + offset + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else 0
    return torch.empty(reach, dtype=val.dtype, device=val.device).as_strided(shape, strides, offset)


def divide_at(gm: GraphModule, axes: Axes, name: str = "region", min_ops: int = 2, device: Optional[str] = None) -> Partition:
    """The regions of a graph with symbols. Each is found at the last values, and must be the same program at the others."""
    points = points_of({k: list(v.values) for k, v in axes.values.items()})
    copies = [at_sizes(gm, axes.sizes(p)) for p in points]
    found = divide(copies[-1][0], name, min_ops, device)
    node_of = {copy: node for node, copy in copies[-1][1].items()}
    regions: list[Region] = []
    left: list[tuple[Node, str]] = []
    for region in found.regions:
        nodes = [node_of[n] for n in region.nodes]
        try:
            regions.append(_joined(nodes, region.spec["name"], axes, points, [image for _, image in copies]))
        except Refused as error:
            left.extend((n, f"its region: {error}") for n in nodes if is_operator(n))
    return Partition(regions, [*found.left, *findings_of(left)], found.total)


def _joined(nodes: list[Node], name: str, axes: Axes, points: list[dict[str, int]], images: list[dict[Node, Node]]) -> Region:
    made, strided = [], frozenset[Node]()
    while True:  # a tensor that is row-major at some of the sizes has strides at all of them
        made = [region_of([image[n] for n in nodes], name, {image[n] for n in strided}) for image in images]
        backs = [{copy: node for node, copy in image.items()} for image in images]
        places = [([b[x] for x in r.inputs], [b[x] for x in r.outputs]) for r, b in zip(made, backs)]
        if any(p != places[0] for p in places):
            raise Refused("it is another program at other sizes (what it reads)")
        entries = [[*r.spec["inputs"].values(), *r.spec["outputs"].values()] for r in made]
        more = {x for e in entries for x, t in zip([*places[0][0], *places[0][1]], e) if "strides" in t} - strided
        if not more:
            break
        strided |= more
    specs = [r.spec for r in made]
    return Region(_family(specs, axes, points), nodes, *places[0], specs)


def _family(specs: list[dict[str, Any]], axes: Axes, points: list[dict[str, int]]) -> dict[str, Any]:
    """One spec, with the axes that it depends on."""
    for name in axes.values:
        rest = [{k: n for k, n in p.items() if k != name} for p in points]
        first = [rest.index(r) for r in rest]
        if all(specs[i] == spec for i, spec in zip(first, specs)):
            kept = sorted(set(first))
            points, specs = [rest[i] for i in kept], [specs[i] for i in kept]
    return unify(points, specs, {k: v.hint for k, v in axes.values.items() if v.hint is not None})


def canonical(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with names by place, and strides only where they say something: the same program of another module is the same text."""
    names: dict[str, str] = {}
    for letter, given in (("x", spec["inputs"]), ("y", spec["outputs"])):
        names.update((name, f"{letter}{i}") for i, name in enumerate(given))
    nodes = []
    for node in spec["nodes"]:
        node = dict(node)
        for name in [node["output"]] if "output" in node else node["outputs"]:
            names.setdefault(name, f"t{len(names)}")
        node["inputs"] = [names.get(x, x) if isinstance(x, str) else x for x in node["inputs"]]
        node.update({"output": names[node["output"]]} if "output" in node else {"outputs": [names[x] for x in node["outputs"]]})
        nodes.append(node)
    tensors = {k: {names[n]: _without_strides(t) for n, t in spec[k].items()} for k in ("inputs", "outputs")}
    return {**{k: v for k, v in spec.items() if k != "name"}, **tensors, "nodes": nodes}


def _without_strides(entry: dict[str, Any]) -> dict[str, Any]:
    """An input or output; without strides that are row-major."""
    if "strides" not in entry or not all(isinstance(n, int) for n in [*entry["shape"], *entry["strides"]]):
        return entry
    reach = 1
    for n, s in zip(reversed(entry["shape"]), reversed(entry["strides"])):
        if n != 1 and s != reach:
            return entry
        reach *= n
    return {k: v for k, v in entry.items() if k != "strides"}


def notes(gm: GraphModule, shapes: Shapes, axes: Axes) -> str:
    """What the user may not know: arguments that the option does not reach, or the first dimension that is a symbol and no axis."""
    arguments = [_argument(n) for n in gm.graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("example_value"), torch.Tensor)]
    if shapes and not set(shapes) & set(arguments):
        own = [a for a in arguments if "." not in a and "'" not in a]
        return f"dynamic_shapes names {', '.join(shapes)}, and a graph of this module has only {', '.join(own) or 'parameters'}"
    for node in gm.graph.nodes:
        value = node.meta.get("example_value") if node.op == "placeholder" else None
        for d, n in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(n, torch.SymInt) and not n.node.expr.free_symbols <= set(axes.symbols):
                what = f"dimension {d} of {_argument(node)}"
                return f"{what} varies and has no values (option dynamic_shapes); what depends on it is left to Inductor"
    return ""


__all__ = ["Axes", "at_sizes", "axes_of", "canonical", "checked_shapes", "divide_at", "notes"]
