"""torch.export to a spec: parameters and buffers become inputs in their stored layout."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, Node

from .lowering import LOST, Builder, Finding, Refused, Unsupported, convert_node, findings_of, identifier, tensor_entry

# Operators that PyTorch would take apart and that a spec has whole.
_KEPT = (
    "linear",
    "matmul",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "silu",
    "gelu",
    "softplus",
    "mish",
    "hardswish",
    "hardsigmoid",
    "softmax.int",
    "log_softmax.int",
    "scaled_dot_product_attention",
    "leaky_relu",
    "elu",
    "logsumexp",
    "std.correction",
    "tril",
    "triu",
    "roll",
    "floor_divide",
    "rsub.Scalar",
    "rsub.Tensor",
    "avg_pool1d",
    "max_pool1d",
    "all.dim",
    "all",
    "stack",
    "masked_fill.Scalar",
    "baddbmm",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "upsample_nearest2d.vec",
    "upsample_bilinear2d.vec",
    "adaptive_avg_pool1d",
    "clamp_min",
    "clamp_max",
    "exp2",
    "xlogy.Tensor",
    "unfold",
)


class Values(NamedTuple):
    """An axis with several extents, for `dynamic_shapes`: one library serves each of them."""

    name: str
    values: Sequence[int]
    hint: Optional[int] = None


class Source(NamedTuple):
    """Where an input of the spec comes from: `kind` is "user", "parameter", "buffer" or "constant"; `name` the argument's or the module's
    name for it; `index` a user's place among the tensors given, else -1.
    """

    input: str
    kind: str
    name: str
    index: int


class Export(NamedTuple):
    """A spec and how the module's tensors map to it. `outputs`: per result of forward, a name of an output of the spec, or an input."""

    spec: dict[str, Any]
    sources: list[Source]
    outputs: list[str]
    notes: list[str]

    def write(self, path: str) -> None:
        Path(path).write_text(json.dumps(self.spec, indent=1) + "\n", encoding="utf-8")


def decompositions(graph: Optional[Graph] = None) -> dict[Any, Any]:
    """Core ATen's decompositions without those of operators that a spec has. einsum stays whole where a spec can say all of those in the
    graph.
    """
    table = torch.export.default_decompositions()
    kept = list(_KEPT)
    if graph is not None and not any(_is_wide_einsum(n) for n in graph.nodes):
        kept.append("einsum")
    for name in kept:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if op is not None:
            table.pop(op, None)
    return table


def _is_wide_einsum(node: Node) -> bool:
    if node.op != "call_function" or node.target is not torch.ops.aten.einsum.default:
        return False
    equation, operands = node.args[0], node.args[1]
    terms = str(equation).replace(" ", "").split("->")[0].split(",")
    return "." in str(equation) or len(operands) > 2 or any(len(set(t)) != len(t) for t in terms)  # type: ignore[arg-type]


def capture(module: torch.nn.Module, args: Sequence[Any], kwargs: Optional[Mapping[str, Any]] = None, dynamic_shapes: Any = None) -> Any:
    """The module as an ExportedProgram of core ATen and the operators kept whole."""
    with torch.no_grad():
        program = torch.export.export(module, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False)
        _refuse_recurrent(program.graph)
        program = program.run_decompositions(decompositions(program.graph))
        without_assertions(program.graph_module)
        return program


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _refuse_recurrent(graph: Graph) -> None:
    """A layer that loops over time would be written out step by step. Raises Unsupported."""
    loops = [
        n for n in graph.nodes if n.op == "call_function" and str(getattr(n.target, "overloadpacket", "")).split(".")[-1] in _RECURRENT
    ]
    if loops:
        raise Unsupported(findings_of([(n, "a recurrent layer: a loop over time steps") for n in loops]))


def export(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    name: Optional[str] = None,
    dynamic_shapes: Any = None,
    drop_mutations: bool = False,
    by_value: Sequence[str] = (),
) -> Export:
    """The program of `module` called with `args` as a spec.

    Inputs of the spec are the arguments, then the parameters and buffers that are used, each in its stored layout. `dynamic_shapes`:
    {argument: {dimension: Values("M", [1, 8, 64])}} for axes with several values. `drop_mutations`:
    writes to buffers (the running statistics of a batch
    norm in training) are left out instead of refused. `by_value`: arguments of forward, numbers or tensors of one element, that callers of
    the library pass by value; other numbers are constants of the program, as torch.export has them. Raises Unsupported where an operator,
    dtype or shape cannot be said; nothing is
    written.
    """
    families = _axes_of(module, dynamic_shapes) if dynamic_shapes is not None else []
    if by_value and not hasattr(module, "graph_signature"):
        args, kwargs = _with_scalars(module, list(args), dict(kwargs or {}), by_value)
    if families:
        return _export_family(module, list(args), kwargs, families, identifier(name or type(module).__name__), drop_mutations, by_value)
    program = module if hasattr(module, "graph_signature") else capture(module, args, kwargs, dynamic_shapes)
    name = identifier(name or type(module).__name__)
    return spec_of(program, name, drop_mutations, by_value)


def _with_scalars(
    module: torch.nn.Module, args: list[Any], kwargs: dict[str, Any], names: Sequence[str]
) -> tuple[list[Any], dict[str, Any]]:
    """Numbers among the arguments that are named as tensors of rank 0, which stay arguments where torch.export would write a number into
    the program. Raises ValueError for a name that is no argument, or one of a larger tensor.
    """
    parameters = inspect.signature(module.forward).parameters
    positional = [k for k, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((k for k, p in parameters.items() if p.kind == p.VAR_POSITIONAL), None)
    if rest is not None:
        positional += [f"{rest}_{i}" for i in range(len(args) - len(positional))]  # as torch.export names them
    kinds = {bool: torch.bool, int: torch.int64, float: torch.float32}
    for name in names:
        place: Any = positional.index(name) if name in positional[: len(args)] else name
        holder: Any = args if isinstance(place, int) else kwargs
        if holder is kwargs and name not in kwargs:
            known = positional[: len(args)] + list(kwargs)
            raise ValueError(f"by_value: forward is given no argument {name!r}; it is given {', '.join(known)}")
        x = holder[place]
        if type(x) in kinds:
            holder[place] = torch.tensor(x, dtype=kinds[type(x)])
        elif isinstance(x, torch.Tensor) and x.numel() == 1:
            holder[place] = x.reshape(())
        else:
            what = f"a tensor of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else f"of type {type(x).__name__}"
            raise ValueError(f"by_value: {name} is {what}; only numbers, and tensors of one element, are passed by value")
    return args, kwargs


_Axis = tuple[int, int, Values]  # the argument, its dimension, the axis


def _axes_of(module: torch.nn.Module, shapes: Any) -> list[_Axis]:
    """The Values in `dynamic_shapes`: {argument: {dimension: Values}}, or a list of the inner dictionaries. Raises ValueError for a name
    that is no argument.
    """
    if isinstance(shapes, Mapping):
        names = list(inspect.signature(module.forward).parameters)
        unknown = [k for k in shapes if k not in names]
        if unknown:
            raise ValueError(f"dynamic_shapes: forward has no argument {unknown[0]!r}; it has {', '.join(names)}")
        entries = [(names.index(k), v) for k, v in shapes.items()]
    else:
        entries = list(enumerate(shapes))
    found = [(i, d, v) for i, dims in entries for d, v in (dims.items() if isinstance(dims, Mapping) else enumerate(dims or ()))]
    return [(i, d, v) for i, d, v in found if isinstance(v, Values)]


def _export_family(
    module: torch.nn.Module, args: list[Any], kwargs: Any, axes: list[_Axis], name: str, drop_mutations: bool, by_value: Sequence[str]
) -> Export:
    """The module at each combination of the axes' values, as one spec."""
    from .family import points_of, unify

    values = {v.name: list(v.values) for _, _, v in axes}
    points, made = points_of(values), []
    for point in points:
        sized = list(args)
        for i, d, v in axes:
            shape = list(sized[i].shape)
            shape[d] = point[v.name]
            sized[i] = torch.zeros(shape, dtype=sized[i].dtype)
        made.append(spec_of(capture(module, sized, kwargs), name, drop_mutations, by_value))
    try:
        spec = unify(points, [m.spec for m in made], {v.name: v.hint for _, _, v in axes if v.hint is not None})
    except Refused as error:
        raise Unsupported([Finding("forward", len(points), str(error), "")], name) from error
    return made[0]._replace(spec=spec)


def spec_of(program: Any, name: str, drop_mutations: bool = False, by_value: Sequence[str] = ()) -> Export:
    """The same, of an ExportedProgram that has been decomposed."""
    b, refused = Builder(), []
    signature = program.graph_signature
    nodes = {n.name: n for n in program.graph.nodes}
    inputs, sources = _inputs(b, program, nodes, refused)
    for source in sources:
        if source.kind == "user" and source.name in by_value and inputs[source.input]["shape"] == []:
            inputs[source.input]["shape"] = None
    for node in program.graph.nodes:
        if node.op == "call_function":
            try:
                convert_node(b, node)
            except Refused as error:
                if str(error) != LOST:
                    refused.append((node, str(error)))
        elif node.op == "get_attr":
            refused.append((node, "a constant tensor inside the graph"))
    outputs: dict[str, Any] = {}
    results: list[str] = []
    notes: list[str] = []
    for out in signature.output_specs:
        kind, out_name = out.kind, getattr(out.arg, "name", None)
        if kind == OutputKind.USER_OUTPUT and out_name is not None:
            _output(b, nodes[out_name], outputs, results, refused)
        elif kind == OutputKind.USER_OUTPUT:
            notes.append("a result of forward that is a constant is left out")
        elif drop_mutations:
            notes.append(f"the new value of {out.target} is not computed")
        else:
            refused.append(
                (nodes[out_name], f"the module changes {out.target or 'an argument'} when it runs (drop_mutations leaves that out)")
            )
    if not outputs and not refused:
        raise Unsupported([Finding("forward", 1, "no result is a computed tensor", "")], name)
    if refused:
        raise Unsupported(findings_of(refused), name)
    kept = used_inputs(b, inputs, outputs)
    spec = {"version": "1.0", "name": name, "inputs": {k: v for k, v in inputs.items() if k in kept}, "outputs": outputs, "nodes": b.nodes}
    return Export(spec, [s for s in sources if s.input in kept], results, notes)


def without_assertions(graph_module: Any) -> None:
    """Takes checks of shapes and dtypes out, which are settled here, and what nobody reads."""
    for node in reversed(list(graph_module.graph.nodes)):
        name = getattr(node.target, "__name__", "")
        if node.op == "call_function" and not node.users and ("assert" in name or "sym_constrain" in name):
            graph_module.graph.erase_node(node)
    graph_module.graph.eliminate_dead_code()  # results of an operator that nobody reads have choices of their own in a traced graph
    graph_module.recompile()


_KINDS = {InputKind.USER_INPUT: "user", InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.CONSTANT_TENSOR: "constant"}


def _number_of(program: Any, spec: Any) -> Any:
    """A constant tensor of rank 0 as a number of the program, such as torch.tensor(0.5) in forward. None: it has a rank, is a truth value,
    or its value is not known.
    """
    held = program.constants.get(spec.target)
    held = getattr(held, "constant", None) if hasattr(held, "fake_mode") else held
    if not isinstance(held, torch.Tensor) or held.dim() or held.is_meta or held.dtype.is_complex or held.dtype == torch.bool:
        return None
    return held.item()


def _inputs(b: Builder, program: Any, nodes: dict[str, Node], refused: list[tuple[Node, str]]) -> tuple[dict[str, Any], list[Source]]:
    """Arguments first, then what the module holds."""
    inputs: dict[str, Any] = {}
    sources: list[Source] = []
    specs = program.graph_signature.input_specs
    index = -1
    for want_user in (True, False):
        for spec in specs:
            if (spec.kind == InputKind.USER_INPUT) != want_user or not hasattr(spec.arg, "name"):
                continue
            node = nodes[spec.arg.name]
            val = node.meta.get("val")
            if not isinstance(val, torch.Tensor):
                if isinstance(val, (int, float, bool)):
                    b.values[node] = val
                continue
            number = _number_of(program, spec) if spec.kind == InputKind.CONSTANT_TENSOR else None
            if number is not None:
                b.values[node] = number
                continue
            index += want_user
            try:
                given = spec.target if spec.target and not want_user else spec.arg.name
                own = b.new_name(given)
                inputs[own] = tensor_entry(val)
                b.values[node] = own
                sources.append(Source(own, _KINDS.get(spec.kind, "constant"), given, index if want_user else -1))
            except Refused as error:
                if node.users:
                    refused.append((node, str(error)))
    return inputs, sources


def _output(b: Builder, node: Node, outputs: dict[str, Any], results: list[str], refused: list[tuple[Node, str]]) -> None:
    if node not in b.values:
        return  # what it needs is among the refused already
    try:
        value = b.values[node]
        if value in outputs:
            results.append(value)
            return
        val = node.meta["val"]
        made = isinstance(value, str) and any(value == n.get("output") or value in n.get("outputs", ()) for n in b.nodes)
        if not made:
            value = (
                b.emit("reshape", b.tensor(node), shape=list(val.shape))
                if isinstance(value, str) and value not in ("+inf", "-inf")
                else b.constant(value, list(val.shape))
            )
            if not isinstance(value, str):
                raise Refused("a result that is a constant")
        outputs[value] = tensor_entry(torch.empty(val.shape, dtype=val.dtype, device="meta"))  # row-major, whatever view PyTorch returns
        results.append(value)
    except Refused as error:
        refused.append((node, str(error)))


def used_inputs(b: Builder, inputs: dict[str, Any], outputs: dict[str, Any]) -> set[str]:
    """Inputs that the outputs depend on; nodes that they do not are dropped."""
    needed = set(outputs)
    for node in reversed(b.nodes):
        made = [node["output"]] if "output" in node else node["outputs"]
        if any(m in needed for m in made):
            needed.update(i for i in node["inputs"] if isinstance(i, str))
        else:
            node["op"] = ""
    b.nodes = [n for n in b.nodes if n["op"]]
    return {i for i in inputs if i in needed}
