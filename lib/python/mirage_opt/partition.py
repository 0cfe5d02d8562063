"""Which parts of an FX graph of ATen operators become kernels: the largest convertible regions that hold a product or a reduction."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple, Optional

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from .aten import ROWS, aten_name
from .lowering import DTYPES, LOST, Builder, Finding, Refused, convert_node, findings_of, identifier, tensor_entry

# What makes a region worth a kernel of its own: the rest of a program is pointwise work that any compiler fuses.
HEAVY = {
    "mm",
    "bmm",
    "matmul",
    "addmm",
    "baddbmm",
    "linear",
    "einsum",
    "convolution",
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "sum",
    "mean",
    "amax",
    "amin",
    "max",
    "min",
    "prod",
    "var",
    "std",
    "var_mean",
    "argmax",
    "argmin",
    "logsumexp",
    "cumsum",
    "_softmax",
    "softmax",
    "_log_softmax",
    "log_softmax",
    "layer_norm",
    "native_layer_norm",
    "rms_norm",
    "_fused_rms_norm",
    "group_norm",
    "native_group_norm",
    "_native_batch_norm_legit",
    "any",
    "all",
    "avg_pool2d",
    "max_pool2d_with_indices",
    "_adaptive_avg_pool2d",
}


MOST_ARGUMENTS = 64  # of an operator in PyTorch, its results among them


class Region(NamedTuple):
    """A part of a graph as a spec. `inputs`: the nodes of the graph that its inputs stand for, in the spec's order; `outputs` likewise.
    `points`: of a spec with axes the program at each of their sizes.
    """

    spec: dict[str, Any]
    nodes: list[Node]
    inputs: list[Node]
    outputs: list[Node]
    points: Sequence[dict[str, Any]] = ()


class Partition(NamedTuple):
    regions: list[Region]
    left: list[Finding]  # what no region holds, by operator and reason
    total: int  # operators of the graph

    @property
    def covered(self) -> int:
        return sum(is_operator(n) for r in self.regions for n in r.nodes)

    def report(self) -> str:
        """The coverage, as text: a line per region, then what is left and why."""
        share = 100 * self.covered // max(1, self.total)
        lines = [f"{self.covered} of {self.total} operators ({share} %) in {len(self.regions)} regions"]
        for r in self.regions:
            names = sorted({aten_name(n.target) for n in r.nodes if aten_name(n.target) in HEAVY})
            shapes = ", ".join("x".join(map(str, t["shape"])) or "scalar" for t in r.spec["outputs"].values())
            lines.append(f"  {r.spec['name']}: {sum(map(is_operator, r.nodes))} operators ({', '.join(names)}) -> {shapes}")
        return "\n".join(lines + [f"  left: {f}" for f in self.left])


class _Support(OperatorSupportBase):
    """Which nodes can be said. Each is tried by itself, with tensors for what it reads."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.reasons: dict[Node, str] = {}
        self.convertible: set[Node] = set()
        b = Builder()
        for node in graph.nodes:
            if node.op != "call_function":
                if isinstance(node.meta.get("val"), torch.Tensor):
                    b.values[node] = b.new_name("t")
                continue
            try:
                _check_dtypes(node)
                convert_node(b, node)
                self.convertible.add(node)
            except Refused as error:
                if str(error) != LOST:
                    self.reasons[node] = str(error)
                val = node.meta.get("val")
                b.values[node] = [b.new_name("t") for _ in val] if isinstance(val, (list, tuple)) else b.new_name("t")

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        return node in self.convertible


def _check_dtypes(node: Node) -> None:
    for x in [node, *node.all_input_nodes]:
        vals = x.meta.get("val")
        if isinstance(vals, (list, tuple)):  # of several results those that somebody reads
            vals = [vals[user.args[1]] for user in x.users if "getitem" in getattr(user.target, "__name__", "")]
        for val in vals if isinstance(vals, list) else [vals]:
            if isinstance(val, torch.Tensor) and val.dtype not in DTYPES:
                raise Refused(f"dtype {str(val.dtype)[6:]}")


def is_heavy(nodes: list[Node]) -> bool:
    return any(aten_name(n.target) in HEAVY for n in nodes)


def divide(gm: GraphModule, name: str = "region", min_ops: int = 2, device: Optional[str] = None) -> Partition:
    """The regions of `gm`, in the graph's order; it stays as it is. `device`: only of tensors there ("cuda"); None: of any."""
    support = _Support(gm.graph)
    if device is not None:
        for node in list(support.convertible):
            if any(v.device.type != device for v in _tensors(node)):
                support.convertible.discard(node)
                support.reasons[node] = f"not on {device}"
    groups = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True).propose_partitions()
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    refused = list(support.reasons.items())
    regions: list[Region] = []
    proposed = sorted((sorted(g.nodes, key=lambda n: order[n]) for g in groups), key=lambda nodes: order[nodes[0]])
    for nodes in (piece for whole in proposed for piece in _pieces(_trimmed(whole))):
        real = [n for n in nodes if is_operator(n)]
        if not is_heavy(real) or len(real) < min_ops:
            refused.extend(
                (n, "a region without a product or reduction" if not is_heavy(real) else f"a region of fewer than {min_ops} operators")
                for n in real
            )
            continue
        try:
            regions.append(region_of(nodes, f"{name}_{len(regions)}"))
        except Refused as error:
            refused.extend((n, f"its region: {error}") for n in real)
    total = sum(1 for n in gm.graph.nodes if is_operator(n))
    return Partition(regions, findings_of([r for r in refused if is_operator(r[0])]), total)


def is_operator(node: Node) -> bool:
    return node.op == "call_function" and "getitem" not in getattr(node.target, "__name__", "")


def _tensors(node: Node) -> list[torch.Tensor]:
    vals = node.meta.get("val")
    return [v for v in (vals if isinstance(vals, (list, tuple)) else [vals]) if isinstance(v, torch.Tensor)]


def _trimmed(nodes: list[Node]) -> list[Node]:
    """Without nodes whose results are several tensors that leave the region: an operator and the choice among its results belong
    together.
    """
    inside = set(nodes)
    changed = True
    while changed:
        changed = False
        for node in list(inside):
            several = isinstance(node.meta.get("val"), (list, tuple))
            if several and any(u not in inside for u in node.users):
                inside -= {node, *node.users}
                changed = True
            elif any(isinstance(a.meta.get("val"), (list, tuple)) and a not in inside for a in node.all_input_nodes):
                inside.discard(node)
                changed = True
    return [n for n in nodes if n in inside]


def _pieces(nodes: list[Node]) -> list[list[Node]]:
    """The nodes in parts that an operator has enough arguments for; each as long as it can be, or down to half of that if it hands on fewer
    results there, best in front of a product or reduction.
    """
    pieces: list[list[Node]] = []
    while True:
        inside, inputs, waiting = set[Node](), set[Node](), dict[Node, int]()
        ends: list[tuple[int, int]] = []  # with the number of results that later nodes read
        for end, node in enumerate(nodes, 1):
            inside.add(node)
            for x in node.all_input_nodes:
                if x not in inside:
                    inputs.add(x)
                elif waiting[x] == 1:
                    del waiting[x]
                else:
                    waiting[x] -= 1
            if node.users:
                waiting[node] = len(node.users)
            several = any(isinstance(n.meta.get("val"), (list, tuple)) for n in waiting)
            if len(inputs) + len(waiting) <= MOST_ARGUMENTS and (end == len(nodes) or not several):
                ends.append((end, len(waiting)))
        if not ends or ends[-1][0] == len(nodes):
            return [*pieces, nodes] if nodes else pieces
        least = ends[-1][0] / 2
        end = min((e for e in ends if e[0] >= least), key=lambda e: (e[1], not is_heavy([nodes[e[0]]]), -e[0]))[0]
        pieces.append(nodes[:end])
        nodes = nodes[end:]


def region_of(nodes: list[Node], name: str, strided: Set[Node] = frozenset()) -> Region:
    """The nodes, in order, as a spec. `strided`: inputs and outputs whose strides are written where they are row-major too. Raises
    Refused where that cannot be.
    """
    inside = set(nodes)
    b = Builder()
    inputs: list[Node] = []
    entries: dict[str, Any] = {}
    for node in nodes:
        for x in node.all_input_nodes:
            if x in inside or x in b.values:
                continue
            val = x.meta.get("val")
            if not isinstance(val, torch.Tensor):
                raise Refused("an input that is no tensor")
            own = b.new_name(identifier(x.name))
            entries[own] = tensor_entry(val, x in strided)
            b.values[x] = own
            inputs.append(x)
    for node in nodes:
        convert_node(b, node)
    outputs: list[Node] = []
    results: dict[str, Any] = {}
    made = {o for n in b.nodes for o in ([n["output"]] if "output" in n else n["outputs"])}
    for node in nodes:
        if isinstance(node.meta.get("val"), torch.Tensor) and any(u not in inside for u in node.users):
            value = b.values[node]
            if value not in made or value in results:
                value = b.emit("reshape", b.tensor(node), shape=list(node.meta["val"].shape))
            results[value] = tensor_entry(node.meta["val"], node in strided)
            outputs.append(node)
    if not outputs:
        raise Refused("nobody uses what it computes")
    from .exporting import used_inputs

    kept = used_inputs(b, entries, results)
    pairs = [(n, x) for n, x in zip(entries, inputs) if n in kept]
    if not pairs:
        raise Refused("no inputs")
    if len(pairs) + len(outputs) > MOST_ARGUMENTS:
        raise Refused(f"over {MOST_ARGUMENTS} tensors in and out")
    spec = {"version": "1.0", "name": identifier(name), "inputs": {n: entries[n] for n, _ in pairs}, "outputs": results, "nodes": b.nodes}
    return Region(spec, nodes, [x for _, x in pairs], outputs)


__all__ = ["HEAVY", "ROWS", "Partition", "Region", "divide", "is_heavy", "is_operator", "region_of"]
