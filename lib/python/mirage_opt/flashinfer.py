"""FlashInfer-Bench definitions as specs: their `reference` is exported. `python -m mirage_opt import DIR -o specs/`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import torch

from .exporting import Export, export
from .family import points_of, unify
from .lowering import Refused, identifier

_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "bool": torch.bool,
    "int32": torch.int32,
    "int64": torch.int64,
}


class _Reference(torch.nn.Module):
    def __init__(self, function: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.function, self.names = function, names

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def definitions(folder: str) -> list[Path]:
    """JSON files below a folder, or the file itself, that have a `reference`."""
    root = Path(folder)
    files = [root] if root.is_file() else sorted(root.rglob("*.json"))
    found = []
    for path in files:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):  # no JSON, or deeper than any definition
            continue
        if isinstance(data, dict) and isinstance(data.get("reference"), str) and "axes" in data:
            found.append(path)
    return found


def import_definition(path: Path, values: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The spec of a definition. `values`: extents of its var axes. Raises Refused, Unsupported, or ValueError for a var axis without
    values.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    for k, a in data["axes"].items() if isinstance(data["axes"], dict) else [("axes", None)]:
        if not isinstance(a, dict) or a.get("type") not in ("const", "var") or (a["type"] == "const" and "value" not in a):
            raise ValueError(f'{k}: an axis of a definition is {{"type": "const", "value": N}} or {{"type": "var"}}')
    constant = {k: a["value"] for k, a in data["axes"].items() if a["type"] == "const"}
    var = {k: list(a.get("values") or values.get(k) or []) for k, a in data["axes"].items() if a["type"] == "var"}
    missing = [k for k, v in var.items() if not v]
    if missing:
        raise ValueError(f"the axis {missing[0]} varies: say its values with --values {missing[0]}=1,8,64")
    scope: dict[str, Any] = {}
    exec(compile(data["reference"], f"{path}:reference", "exec"), scope)
    points = points_of(var)
    specs = [_at(data, scope["run"], {**constant, **p}).spec for p in points]
    spec = unify(points, specs, {})
    spec["description"] = data.get("description", "")
    return spec


def _at(data: dict[str, Any], run: Any, axes: Mapping[str, int]) -> Export:
    args: list[Any] = []
    by_value = [f"args_{i}" for i, t in enumerate(data["inputs"].values()) if t.get("shape") is None]
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        for name, t in data["inputs"].items():
            if t["dtype"] not in _DTYPES:
                raise Refused(f"dtype {t['dtype']} of {name}")
            args.append(torch.empty([_extent(d, axes) for d in t.get("shape") or ()], dtype=_DTYPES[t["dtype"]]))
        made = export(_Reference(run, list(data["inputs"])), args, name=identifier(data["name"]), by_value=by_value)
    renamed = _renamed(made, list(data["inputs"]), list(data["outputs"]))
    for want, (name, got) in zip(data["outputs"].values(), renamed["outputs"].items()):
        if want["dtype"] != got["dtype"]:
            raise Refused(f"its reference returns {name} as {got['dtype']}, not {want['dtype']}")
    return made._replace(spec=renamed)


def _extent(d: Any, axes: Mapping[str, int]) -> int:
    return d if isinstance(d, int) else axes[d]


def _renamed(made: Export, inputs: list[str], outputs: list[str]) -> dict[str, Any]:
    """With the definition's names. Raises Refused where the reference does not return what the definition says."""
    new: dict[str, str] = {}
    for source in made.sources:
        if source.index < 0:
            raise Refused(f"a tensor of its own: {source.name}")
        new[source.input] = inputs[source.index]
    if len(made.outputs) != len(outputs) or len(set(made.outputs)) != len(outputs):
        raise Refused(f"its reference returns {len(made.outputs)} tensors, not {len(outputs)}")
    new.update(zip(made.outputs, outputs))
    taken = set(new.values())

    def name_of(x: Any) -> Any:
        if not isinstance(x, str) or x in ("+inf", "-inf"):
            return x
        if x not in new:
            new[x] = identifier(x, taken)
            taken.add(new[x])
        return new[x]

    spec = dict(made.spec)
    by_name = {name_of(k): v for k, v in spec["inputs"].items()}
    spec["inputs"] = {k: by_name[k] for k in inputs if k in by_name}
    results = {name_of(k): v for k, v in spec["outputs"].items()}
    spec["outputs"] = {k: results[k] for k in outputs}
    spec["nodes"] = [
        {
            **n,
            "inputs": [name_of(i) for i in n["inputs"]],
            **({"output": name_of(n["output"])} if "output" in n else {"outputs": [name_of(o) for o in n["outputs"]]}),
        }
        for n in spec["nodes"]
    ]
    return spec


def values_of(texts: Optional[Sequence[str]]) -> dict[str, list[int]]:
    """["M=1,8", "N=4"] as a dictionary. Raises ValueError for another form."""
    out: dict[str, list[int]] = {}
    for text in texts or ():
        axis, _, numbers = text.partition("=")
        if not axis.isidentifier() or not numbers or not all(n.strip().isdigit() and int(n) > 0 for n in numbers.split(",")):
            raise ValueError(f"--values takes AXIS=1,8,64, not {text!r}")
        out[axis] = [int(n) for n in numbers.split(",")]
    return out
