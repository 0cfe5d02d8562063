"""torch.compile(module, backend="mirage_opt"): regions of products and reductions become mirage-opt libraries, the rest and what is not
predicted to gain goes to Inductor.

options: target ("native", "sm_90a", ...), cache (a folder; default ~/.cache/mirage_opt), lock (a file), measure (bool), min_ops (the
least number of operators of a region, 2), dryrun (bool: prints the coverage, builds nothing, runs eagerly), dynamic_shapes ({argument:
{dimension: Values}}: sizes that one library serves; other sizes are Inductor's).
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import importlib.util
import json
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import torch
from torch.fx import Graph, GraphModule

from . import command
from .dynamic import Axes, at_sizes, axes_of, canonical, checked_shapes, divide_at, notes
from .exporting import decompositions, without_assertions
from .partition import Partition, Region, divide

log = logging.getLogger("mirage_opt")
_DEFAULTS: dict[str, Any] = {
    "target": "native",
    "cache": None,
    "lock": None,
    "measure": False,
    "min_ops": 2,
    "dryrun": False,
    "dynamic_shapes": None,
}
_DEVICE = "cuda"  # where regions run
_PLACE = "mirage_opt_place"  # in a node's meta: the node that has its result now
_warned: set[str] = set()
last_partition: Optional[Partition] = None  # of the graph compiled last, for tests and notebooks


class Built(NamedTuple):
    function: Callable[..., Any]  # the operator
    folder: Path


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn("mirage_opt: " + text, stacklevel=3)


def checked_options(options: Optional[dict[str, Any]]) -> dict[str, Any]:
    """With defaults. Raises ValueError for an option that there is not, and for dynamic_shapes that are no values."""
    given = dict(options or {})
    for key in given:
        if key not in _DEFAULTS:
            import difflib

            near = difflib.get_close_matches(key, _DEFAULTS, 1)
            raise ValueError(
                f"backend mirage_opt has no option {key!r}"
                + (f"; did you mean {near[0]!r}?" if near else ";")
                + f" there are {', '.join(_DEFAULTS)}"
            )
    return {**_DEFAULTS, **given, "dynamic_shapes": checked_shapes(given.get("dynamic_shapes"))}


def mirage_opt(gm: GraphModule, inputs: Sequence[Any], *, options: Optional[dict[str, Any]] = None, **rest: Any) -> Callable[..., Any]:
    """The backend function that torch.compile calls."""
    from torch._inductor.compile_fx import compile_fx

    chosen = checked_options(options)
    reason, axes = "" if chosen["dryrun"] else _cannot(gm, inputs), Axes({}, {})
    if not reason:
        axes, reason = axes_of(gm, chosen["dynamic_shapes"])
    if reason:
        _warn_once(reason + ("; it runs eagerly" if chosen["dryrun"] else "; Inductor compiles the whole module"))
        return gm.forward if chosen["dryrun"] else compile_fx(gm, list(inputs))
    note = notes(gm, chosen["dynamic_shapes"], axes)
    if note:
        _warn_once(note)
    if chosen["dryrun"]:
        return _dry_run(gm, inputs, chosen, axes)

    def inner(graph: GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx_inner

        left = _kernels_or_not(graph, example_inputs, chosen, axes)
        with _layouts_as_for_sizes(left, axes):
            return compile_fx_inner(left, example_inputs, **kwargs)

    with _without_caches(axes):
        return compile_fx(gm, list(inputs), inner_compile=inner, decompositions=decompositions(None))


@contextlib.contextmanager
def _without_caches(axes: Axes) -> Iterator[None]:
    """PyTorch's cache of whole graphs would give another process a call of an operator that nothing defined there, and Inductor's asks the
    guard "one of these sizes" as "this size". Regions have their own cache.
    """
    from torch._functorch import config
    from torch._inductor import config as inductor_config

    whole = {k: False for k in ("enable_autograd_cache", "enable_remote_autograd_cache") if hasattr(config, k)}
    rest = {k: False for k in ("fx_graph_cache", "fx_graph_remote_cache") if axes.symbols}
    with config.patch(whole), inductor_config.patch(rest):
        yield


@contextlib.contextmanager
def _layouts_as_for_sizes(graph: GraphModule, axes: Axes) -> Iterator[None]:
    """Inductor lays convolutions out with channels last only where no size is a symbol. The symbols here stand for a few sizes, so it is
    asked what it would do at the largest, and told to do that.
    """
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    forced = False
    if axes.symbols:
        try:
            sizes = axes.sizes({name: max(v.values) for name, v in axes.values.items()})
            forced = bool(GraphLowering.decide_layout_opt(at_sizes(graph, sizes)[0], is_inference=True))
        except Exception:  # it is no public function: without it, the layouts are those of symbols
            log.debug("Inductor was not asked for layouts", exc_info=True)
    with config.patch({"force_layout_optimization": True} if forced else {}):
        yield


def _cannot(gm: GraphModule, inputs: Sequence[Any]) -> str:
    """Why no region can be built here; "" where it can."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)] + list(gm.parameters())
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return "its kernels have no backward pass, and gradients are asked for (torch.no_grad() or inference_mode() says that they are not)"
    if not any(x.device.type == "cuda" for x in tensors):
        return "no tensor is on a CUDA device"
    nvcc = [shutil.which("nvcc"), *(os.path.join(os.environ.get(v, "/usr/local/cuda"), "bin", "nvcc") for v in ("CUDA_HOME", "CUDA_PATH"))]
    if not any(p and os.access(p, os.X_OK) for p in nvcc):
        return "there is no nvcc (PATH, CUDA_HOME, /usr/local/cuda)"
    try:
        command.find()
    except command.CommandError as error:
        return str(error)
    return ""


def _divided(graph: GraphModule, options: dict[str, Any], axes: Axes, device: Optional[str] = None) -> Partition:
    global last_partition
    without_assertions(graph)
    how = ("region", options["min_ops"], device)
    last_partition = divide_at(graph, axes, *how) if axes.symbols else divide(graph, *how)
    return last_partition


def _dry_run(gm: GraphModule, inputs: Sequence[Any], options: dict[str, Any], axes: Axes) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd

    def look(graph: GraphModule, example_inputs: Sequence[Any]) -> Any:
        print("mirage_opt: " + _divided(graph, options, axes).report(), file=sys.stderr)
        from functorch.compile import make_boxed_func

        return make_boxed_func(graph.forward)

    with torch.no_grad():
        return aot_autograd(fw_compiler=look, bw_compiler=lambda graph, _: graph.forward, decompositions=decompositions(None))(
            gm, list(inputs)
        )


def _kernels_or_not(graph: GraphModule, example_inputs: Sequence[Any], options: dict[str, Any], axes: Axes) -> GraphModule:
    """A right program is never refused: where this backend itself fails, Inductor has the whole graph, and a warning says why."""
    mine = Graph()
    image: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.graph.nodes:
        image[node] = mine.node_copy(node, lambda n: image[n])
    try:
        return _for_inductor(_with_kernels(GraphModule(graph, mine), options, axes), example_inputs)
    except Exception as error:
        log.debug("a graph is left to Inductor", exc_info=True)
        first = (str(error).strip().splitlines() or [""])[0]
        _warn_once(f"{type(error).__name__}: {first}; Inductor compiles this graph (logger mirage_opt, level DEBUG, has the trace)")
        without_assertions(graph)
        return _for_inductor(graph, example_inputs)


def _with_kernels(graph: GraphModule, options: dict[str, Any], axes: Axes) -> GraphModule:
    """The graph with a call of a library for each region that one was built for."""
    found = _divided(graph, options, axes, _DEVICE)
    log.info("%s", found.report())
    for region in found.regions:
        built = build(region.spec, options, region.points)
        if built is not None:
            replace(graph, region, built.function)
    sort(graph)
    graph.graph.eliminate_dead_code()  # sizes that only regions asked for
    graph.graph.lint()
    graph.recompile()
    return graph


def sort(graph: GraphModule) -> None:
    """Every node behind what it reads, otherwise in the order that they have: what reads a region's first result may stand before its
    last node.
    """
    nodes = list(graph.graph.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    waits = {node: len(node.all_input_nodes) for node in nodes}
    ready = [i for i, node in enumerate(nodes) if not waits[node]]
    last: Optional[torch.fx.Node] = None
    while ready:
        node = nodes[heapq.heappop(ready)]
        if last is not None:
            last.append(node)
        last = node
        for user in node.users:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, place[user])


def replace(graph: GraphModule, region: Region, function: Callable[..., Any]) -> None:
    """Puts a call in the place of a region's nodes. Inputs that do not begin at a multiple of 16 bytes are copied; those that another
    region computes are what was put in their place.
    """
    place = region.nodes[-1]
    with graph.graph.inserting_after(place):
        call = graph.graph.call_function(function, ())
    arguments = []
    with graph.graph.inserting_before(call):
        for x in region.inputs:
            x = x.meta.get(_PLACE, x)
            val = x.meta["val"]
            offset = val.storage_offset() * val.element_size()
            if not isinstance(offset, int) or offset % 16:
                copy = graph.graph.call_function(torch.ops.aten.clone.default, (x,))
                copy.meta["val"] = val.clone()
                x = copy
            arguments.append(x)
    call.args = tuple(arguments)
    vals = [o.meta["val"] for o in region.outputs]
    call.meta["val"] = vals[0] if len(vals) == 1 else tuple(vals)
    results = [call]
    if len(vals) > 1:
        import operator

        with graph.graph.inserting_after(call):
            results = [graph.graph.call_function(operator.getitem, (call, i)) for i in range(len(vals))]
    inside = set(region.nodes)
    for old, new in zip(region.outputs, results):
        new.meta["val"] = old.meta["val"]
        old.meta[_PLACE] = new
        old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in inside and user is not call)
    for node in reversed(region.nodes):
        if not node.users:
            graph.graph.erase_node(node)


_families: dict[tuple[str, ...], Built] = {}  # by the text of a program that one of their sizes is


def build(spec: dict[str, Any], options: dict[str, Any], points: Sequence[dict[str, Any]] = ()) -> Optional[Built]:
    """A library for a spec, from the cache if it is there; None where mirage-opt has none that it predicts to gain (at any size), or
    refuses the spec (logged). `points`: the programs that a spec with axes stands for; each is served by this library from now on.
    """
    cache = Path(options["cache"] or os.environ.get("MIRAGE_OPT_CACHE") or Path.home() / ".cache" / "mirage_opt")
    how = (str(options["target"]), str(options["measure"]), str(cache), command.run("--version").out)
    spec = canonical(spec)
    text = json.dumps(spec, sort_keys=True)
    if (text, *how) in _families:
        return _families[(text, *how)]
    spec["name"] = name = "region_" + hashlib.sha256("\0".join([text, *how[:2], how[3]]).encode()).hexdigest()[:16]
    folder = cache / "regions" / name
    if not (folder / f"lib{name}.so").exists() and not _compile(spec, folder, cache, options):
        return None
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if not any(_gains(r["result"]) for r in report.get("points") or [report]):
        log.info("%s: not predicted to gain; left to Inductor", name)
        return None
    built = Built(_imported(folder / f"{name}.py", name)._op, folder)
    for point in points:
        _families.setdefault((json.dumps(canonical(point), sort_keys=True), *how), built)
    return built


def _gains(result: dict[str, Any]) -> bool:
    """Whether a result is predicted to gain over operators by themselves: by a search, or by what joins and rewrites them."""
    apart = result.get("without_passes", {}).get("predicted_us", 0.0)
    return bool(result["kind"] != "straightforward" or result.get("predicted_us", 0.0) < 0.9 * apart)


def _compile(spec: dict[str, Any], folder: Path, cache: Path, options: dict[str, Any]) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (spec["name"] + ".json")
    path.write_text(json.dumps(spec), encoding="utf-8")
    arguments = [
        str(path),
        "-o",
        str(folder),
        "--target",
        str(options["target"]),
        "--cache",
        str(cache / "decisions"),
        "--emit",
        "cu,h,so,python,report,certificate,makefile",
        "--quiet",
    ]
    arguments += ["--lock", str(options["lock"])] if options["lock"] else []
    arguments += ["--measure"] if options["measure"] else []
    ran = command.run(*arguments)
    if ran.exit_code:
        log.warning("mirage-opt left a region to Inductor (exit %d): %s", ran.exit_code, ran.err.strip())
    return ran.exit_code == 0


def _imported(path: Path, name: str) -> Any:
    known = sys.modules.get("mirage_opt_regions." + name)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location("mirage_opt_regions." + name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["mirage_opt_regions." + name] = module
    return module


def _for_inductor(graph: GraphModule, example_inputs: Sequence[Any]) -> GraphModule:
    """What is left, in the operators that Inductor lowers."""
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    fake = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
    mode = torch._guards.detect_fake_mode(fake) or torch._guards.detect_fake_mode(list(example_inputs))
    with mode or torch.no_grad(), torch.no_grad():
        traced = make_fx(graph, decomposition_table=select_decomp_table(), tracing_mode="real")(*fake)
    return traced
