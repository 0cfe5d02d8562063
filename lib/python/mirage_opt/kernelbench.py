"""KernelBench problems as specs: `python -m mirage_opt kernelbench DIR`. A problem is a Python file with Model, get_inputs and get_init_inputs."""
from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch

from .exporting import Export, export
from .lowering import Refused, Unsupported


class Problem(NamedTuple):
    level: int
    number: int
    path: Path

    @property
    def name(self) -> str:
        return f"level{self.level}_{self.number}"


class Outcome(NamedTuple):
    problem: Problem
    result: Optional[Export]
    reason: str


def problems(folder: str, levels: list[int], numbers: Optional[list[int]] = None) -> list[Problem]:
    """Those in folder/level<N>/<number>_*.py (or folder/KernelBench/...), in order. Raises FileNotFoundError where a level is not there."""
    out = []
    for level in levels:
        places = [Path(folder) / f"level{level}", Path(folder) / "KernelBench" / f"level{level}"]
        place = next((p for p in places if p.is_dir()), None)
        if place is None:
            raise FileNotFoundError(f"there is no {places[0]} and no {places[1]}")
        for path in place.glob("*.py"):
            match = re.match(r"(\d+)_", path.name)
            if match and (not numbers or int(match.group(1)) in numbers):
                out.append(Problem(level, int(match.group(1)), path))
    return sorted(out)


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("kernelbench_" + re.sub(r"\W", "_", path.stem), path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def import_problem(problem: Problem, precision: Optional[torch.dtype] = None) -> Outcome:
    """The problem's forward in the mode that its check runs it in: as constructed, that is in training. No tensor is computed."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        source = load(problem.path)
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            model = source.Model(*source.get_init_inputs())
            args = source.get_inputs()
            if precision is not None:
                model = model.to(precision)
                args = [a.to(precision) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
            return Outcome(problem, export(model, args, name=problem.name, drop_mutations=True), "")
    except Unsupported as error:
        return Outcome(problem, None, "; ".join(str(f) for f in error.findings))
    except (Refused, Exception) as error:  # a problem's own code may raise anything
        first = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
        return Outcome(problem, None, f"torch.export: {type(error).__name__}: {first}")


def import_all(folder: str, levels: list[int], precision: Optional[torch.dtype] = None, numbers: Optional[list[int]] = None) -> Iterator[Outcome]:
    for problem in problems(folder, levels, numbers):
        yield import_problem(problem, precision)
