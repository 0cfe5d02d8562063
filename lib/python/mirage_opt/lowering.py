"""From an FX graph of ATen operators to a spec. `lower` walks a graph; aten.py has a row per operator."""

from __future__ import annotations

import os
import re
from typing import Any, Callable, NamedTuple, Optional, Union

import torch
from torch.fx import Node

from . import command

Operand = Union[str, int, float]  # the name of a tensor, or a number
Dims = list[int]

DTYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.bool: "bool",
    torch.int32: "int32",
    torch.int64: "int64",
}
_TORCH = os.path.dirname(torch.__file__) + os.sep
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
FLOATS = (torch.float16, torch.bfloat16, torch.float32)

LOST = "an operand that could not be written"  # its own refusal is reported, not this one


class Refused(Exception):
    """One node cannot be said; str() is the reason."""


class Finding(NamedTuple):
    operator: str
    count: int
    reason: str
    where: str  # "FILE:LINE" of the first one, or ""

    def __str__(self) -> str:
        return f"{self.operator} x{self.count}: {self.reason}" + (f" (first at {self.where})" if self.where else "")


class Unsupported(Exception):
    """A program that cannot be said in a spec: `findings`, one per operator and reason."""

    def __init__(self, findings: list[Finding], name: str = "the program") -> None:
        self.findings = findings
        super().__init__(f"{name} cannot be written as a spec:\n" + "\n".join("  " + str(f) for f in findings))


def source_line(node: Node) -> str:
    """FILE:LINE of the user's code that a node comes from; "" where it is not known."""
    places = re.findall(r'File "([^"]+)", line (\d+)', node.stack_trace or "")
    own = [p for p in places if not p[0].startswith(_TORCH)] or places  # a module of PyTorch's stands where the user called it
    return f"{own[-1][0]}:{own[-1][1]}" if own else ""


def identifier(text: str, taken: Any = ()) -> str:
    """`text` as a name of a spec, different from those in `taken`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)[:100].strip("_") or "t"
    if not name[0].isalpha():
        name = "t" + name
    unique, k = name, 1
    while unique in taken:
        k += 1
        unique = f"{name}_{k}"
    return unique


def number(x: Any) -> Operand:
    """A Python number as a spec writes it."""
    if isinstance(x, bool):
        return int(x)
    if isinstance(x, float):
        if x != x:
            raise Refused("NaN as a constant")
        if x in (float("inf"), float("-inf")):
            return "+inf" if x > 0 else "-inf"
        return int(x) if x == int(x) and abs(x) < 2**53 else x
    return int(x)


def static_shape(value: Any) -> Dims:
    """Extents of a fake tensor. Raises Refused for one with a size that is only known at run time."""
    try:
        return [int(n) if isinstance(n, int) else _constant(n) for n in value.shape]
    except TypeError as error:
        raise Refused("a shape that is only known at run time") from error


def _constant(n: Any) -> int:
    expression = getattr(getattr(n, "node", None), "expr", None)
    if expression is not None and expression.is_Integer:
        return int(expression)
    raise Refused("a size that is only known at run time: give dynamic_shapes values, or export with constants")


class Builder:
    """The nodes of a spec in the making."""

    def __init__(self, operators: Optional[frozenset[str]] = None) -> None:
        self.operators = command.operators() if operators is None else operators
        self.nodes: list[dict[str, Any]] = []
        self.names: set[str] = set()
        self.values: dict[Node, Any] = {}  # operands, or a list of them for an operator with several results
        self.drops_mutation = False

    def new_name(self, base: str) -> str:
        name = identifier(base, self.names)
        self.names.add(name)
        return name

    def emit(self, op: str, *inputs: Any, **attrs: Any) -> str:
        """Adds a node; its output's name. Attributes that are None are left out; inputs that are None too."""
        self.require(op)
        out = self.new_name(f"t{len(self.nodes)}")
        node: dict[str, Any] = {"op": op, "inputs": [i for i in inputs if i is not None], "output": out}
        attrs = {k: v for k, v in attrs.items() if v is not None}
        if attrs:
            node["attrs"] = attrs
        self.nodes.append(node)
        return out

    def emit_many(self, op: str, count: int, *inputs: Operand, **attrs: Any) -> list[Operand]:
        self.require(op)
        outs = [self.new_name(f"t{len(self.nodes)}_{i}") for i in range(count)]
        self.nodes.append({"op": op, "inputs": list(inputs), "outputs": outs, "attrs": attrs})
        return list(outs)

    def require(self, op: str) -> None:
        if op not in self.operators:
            raise Refused(f"this mirage-opt has no operator '{op}'")

    def operand(self, x: Any) -> Operand:
        """The operand that an argument stands for."""
        if isinstance(x, Node):
            if x not in self.values:
                raise Refused(LOST)
            value = self.values[x]
            if isinstance(value, list):
                raise Refused("several tensors where one is expected")
            return value
        if isinstance(x, (bool, int, float)):
            return number(x)
        if isinstance(x, (torch.SymInt, torch.SymFloat)):
            return _constant(x)
        raise Refused(f"an argument of type {type(x).__name__}")

    def tensor(self, x: Any) -> Operand:
        """The same, as a tensor with the argument's shape: constants are written out."""
        value = self.operand(x)
        if isinstance(value, str) and value not in ("+inf", "-inf"):
            return value
        shape = static_shape(x.meta["val"]) if isinstance(x, Node) else []
        return self.constant(value, shape)

    def constant(self, value: Operand, shape: Dims) -> Operand:
        """A tensor of one number. Of one element: the number itself, unless it must have axes."""
        if not shape:
            return value
        zero = self.emit("mul", self.emit("iota", axis=0, shape=shape), 0)
        return (
            self.emit("add", zero, value) if value not in ("+inf", "-inf") else self.emit("where", self.emit("equal", zero, 0), value, zero)
        )

    @staticmethod
    def value(x: Any) -> Any:
        """The fake tensor of a node's result; Raises Refused where it is none."""
        val = x.meta.get("val") if isinstance(x, Node) else None
        if not isinstance(val, torch.Tensor):
            raise Refused("a value that is no tensor")
        return val

    def shape(self, x: Any) -> Dims:
        return static_shape(self.value(x)) if isinstance(x, Node) else []

    def dtype(self, x: Any) -> Any:
        if isinstance(x, Node):
            return self.value(x).dtype
        return torch.bool if isinstance(x, bool) else torch.int64 if isinstance(x, int) else torch.float32


Convert = Callable[..., Any]  # (builder, node, *args, **kwargs) -> operand, or a list of operands


def convert_node(b: Builder, node: Node) -> None:
    """Writes one call into the builder, or raises Refused and leaves the builder as it was."""
    from . import aten, aten_moves, aten_norms  # noqa: F401  (all fill the table)

    before, names = len(b.nodes), set(b.names)
    try:
        b.values[node] = aten.convert(b, node)
        for val in torch.utils._pytree.tree_leaves(node.meta.get("val")):
            if isinstance(val, torch.Tensor):
                static_shape(val)
                if val.is_complex() or val.dtype == torch.float64:
                    raise Refused(f"dtype {str(val.dtype)[6:]}")
    except Refused:
        del b.nodes[before:]
        b.names = names
        b.values.pop(node, None)
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        del b.nodes[before:]
        b.names = names
        b.values.pop(node, None)
        raise Refused(f"a form that is not known here ({type(error).__name__}: {error})") from error


def tensor_entry(val: Any, strided: bool = False) -> dict[str, Any]:
    """Shape, dtype and, where they are not row-major or `strided` asks for them, strides of an input or output of a spec. Raises Refused
    for what a spec cannot have.
    """
    if val.dtype not in DTYPES:
        raise Refused(f"dtype {str(val.dtype)[6:]} of an input or output; there are {', '.join(str(d)[6:] for d in DTYPES)}")
    shape = static_shape(val)
    entry: dict[str, Any] = {"shape": shape, "dtype": DTYPES[val.dtype]}
    if 0 in shape:
        raise Refused("a tensor without elements")
    if strided or not val.is_contiguous():
        entry["strides"] = [_constant(s) if not isinstance(s, int) else s for s in val.stride()]
        reach = 1
        for extent, stride in sorted(((n, s) for n, s in zip(shape, entry["strides"]) if n != 1), key=lambda p: p[1]):
            if stride < reach:
                raise Refused("elements of an input that share an address (an expanded tensor)")
            reach = stride * extent
        entry["strides"] = [s if n != 1 else max(1, s) for n, s in zip(shape, entry["strides"])]
    return entry


def findings_of(refused: list[tuple[Node, str]]) -> list[Finding]:
    """Refusals by operator and reason, the most frequent first."""
    groups: dict[tuple[str, str], list[Node]] = {}
    for node, reason in refused:
        groups.setdefault((operator_name(node), reason), []).append(node)
    found = []
    for (operator, reason), nodes in groups.items():
        where = next((w for w in map(source_line, nodes) if w), "")
        found.append(Finding(operator, len(nodes), reason, where))
    return sorted(found, key=lambda f: (-f.count, f.operator, f.reason))


def operator_name(node: Node) -> str:
    target = node.target
    packet = getattr(target, "overloadpacket", None)
    return str(packet).replace("aten.", "aten::") if packet is not None else getattr(target, "__name__", str(target))
