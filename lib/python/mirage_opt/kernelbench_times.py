"""KernelBench's check and times on this machine's GPU, of the libraries that `python -m mirage_opt kernelbench --build` left: every
ModelNew beside eager PyTorch and torch.compile in its default mode.

Processes compile beside each other with torch.compile, one lot after another; then one problem at a time runs, alone on the GPU. The
check is KernelBench's (eval.py): equal shapes, and allclose with its tolerance for the precision. So are the times (timing.py,
cuda_event): one call between two events, L2 overwritten ahead of it. Differences: inputs and weights are drawn on the GPU, integers stay
integers, the three take turns, and medians stand in place of means.
"""

from __future__ import annotations

import importlib.util
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch

from .kernelbench import Problem, load

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}  # KernelBench's, absolute and relative
SEED, TRIALS = 42, 2
ROUNDS, TIMED_SECONDS = (5, 30), 0.5  # least and most; what the rounds of one problem may take
PROBLEM_SECONDS = 90.0  # after which a problem is given up, with its process
GRACE_SECONDS = 40.0  # for what is being compiled when the time for that is over
_DEVICE, _START = "cuda", "spawn"
CONVOLUTIONS = ("conv", "conv_transpose")


class Plan(NamedTuple):
    """What is measured: libraries in folder/NAME, others of the same problems in also/NAME, times in `precision`."""

    folder: Path
    precision: torch.dtype
    also: Optional[Path] = None
    compile: bool = True


class Lock:
    """Among processes; its holder may take it again."""

    def __init__(self, path: str) -> None:
        self.file, self.depth = open(path, "a", encoding="utf-8"), 0

    def __enter__(self) -> Lock:
        import fcntl

        if self.depth == 0:
            fcntl.flock(self.file, fcntl.LOCK_EX)
        self.depth += 1
        return self

    def __exit__(self, *_: Any) -> None:
        import fcntl

        self.depth -= 1
        if self.depth == 0:
            fcntl.flock(self.file, fcntl.LOCK_UN)


def guard_benchmarks(lock: Lock) -> None:
    """Inductor's benchmarks take turns among processes."""
    from torch._inductor.runtime.benchmarking import benchmarker

    def guarded(inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with lock:
                return inner(*arguments, **named)

        return call

    for kind in type(benchmarker).__mro__[:-1]:
        for name, value in list(vars(kind).items()):
            fixed = isinstance(value, (property, staticmethod, classmethod, type)) or hasattr(value, "func")
            if name.startswith("benchmark") and callable(value) and not fixed:
                setattr(kind, name, guarded(value))


def tuple_of(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def cast(args: Iterable[Any], dtype: torch.dtype) -> list[Any]:
    return [a.to(_DEVICE, dtype if a.is_floating_point() else a.dtype) if isinstance(a, torch.Tensor) else a for a in args]


def relative(got: Any, want: Any) -> float:
    """||got - want|| / ||want||, the worst result's; infinite where the two are not finite in the same places."""
    worst = 0.0
    for g, w in zip(tuple_of(got), tuple_of(want)):
        g, w = g.float(), w.float()
        finite = torch.isfinite(w)
        if not torch.equal(torch.isfinite(g), finite):
            return math.inf
        norm = float(torch.where(finite, w, 0).norm())
        worst = max(worst, float(torch.where(finite, g - w, 0).norm()) / (norm or 1.0))
    return worst


def agrees(got: Any, want: Any, tolerance: float) -> str:
    """KernelBench's check: "" or what is wrong."""
    got, want = tuple_of(got), tuple_of(want)
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    for g, w in zip(got, want):
        if g.shape != w.shape:
            return f"shape {tuple(g.shape)}, not {tuple(w.shape)}"
        if not torch.allclose(w.to(g.dtype), g, atol=tolerance, rtol=tolerance):
            far = (g.float() - w.float()).abs()
            return f"off by {float(far.max()):.3g} at most, {float(far.mean()):.3g} in the mean"
    return ""


def model_new(source: str, folder: Path, model: Any, init: list[Any]) -> tuple[Any, Any]:
    """The ModelNew of a text, with the weights of `model`, and the module that calls its library."""
    os.environ["MIRAGE_OPT_FOLDER"] = str(folder)
    space: dict[str, Any] = {"__name__": f"model_new_{folder.parent.name}_{folder.name}"}
    exec(compile(source, str(folder / "model_new.py"), "exec"), space)
    with torch.device("meta"):
        made = space["ModelNew"](*init)
    made.model = model
    return made, space["_module"]


class Candidate:
    """A problem on its way: its model compiled first, checked and timed later."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.plan = problem, plan
        self.source = load(problem.path)
        torch.manual_seed(SEED)
        with torch.device(_DEVICE), torch.no_grad():
            self.init = list(self.source.get_init_inputs())
            self.model = self.source.Model(*self.init).to(_DEVICE, plan.precision)
        self.compiled: Any = None
        self.row: dict[str, Any] = {"problem": problem.name, "file": problem.path.name}

    def like_inputs(self) -> list[Any]:
        """Arguments of the right kind with any values: nothing is drawn where the problem's own code allows that."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        try:
            with FakeTensorMode():
                args = self.source.get_inputs()
        except Exception:  # it looks at values
            return self.inputs(SEED)
        out = []
        for a in args:
            if isinstance(a, torch.Tensor):
                dtype = self.plan.precision if a.is_floating_point() else a.dtype
                a = torch.empty_strided(a.shape, a.stride(), dtype=dtype, device=_DEVICE).zero_()
            out.append(a)
        return out

    def inputs(self, seed: int) -> list[Any]:
        torch.manual_seed(seed)
        with torch.device(_DEVICE):
            return cast(self.source.get_inputs(), self.plan.precision)

    def compile(self) -> None:
        """With torch.compile. Memory that other processes hold for a moment is waited for."""
        begin = time.perf_counter()
        for _ in range(20):
            try:
                self.compiled = torch.compile(self.model)
                with torch.no_grad():
                    self.compiled(*self.like_inputs())
                torch.cuda.synchronize()
                break
            except torch.OutOfMemoryError:
                self.compiled = None
                torch.cuda.empty_cache()
                time.sleep(1)
            except Exception as error:
                self.compiled = None
                self.row["compile_error"] = f"{type(error).__name__}: {str(error).strip()[:200]}"
                break
        torch.cuda.empty_cache()
        self.row["compile_seconds"] = round(time.perf_counter() - begin, 1)

    def folders(self) -> dict[str, Path]:
        """Those that have a library, by what their times are called."""
        name, found = self.problem.name, {"ours": self.plan.folder / self.problem.name}
        if self.plan.also is not None and (self.plan.also / name / f"lib{name}.so").exists():
            found["also"] = self.plan.also / name
        return found

    def measure(self) -> dict[str, Any]:
        """The row: right or what is wrong, errors, microseconds."""
        row, tolerance = self.row, TOLERANCE[self.plan.precision]
        ours: dict[str, Any] = {}
        modules = []
        text = (self.plan.folder / self.problem.name / "model_new.py").read_text(encoding="utf-8")
        for kind, folder in self.folders().items():
            row[kind] = describe(folder)
            ours[kind], module = model_new(text, folder, self.model, self.init)
            modules.append(module)
        with torch.no_grad():
            for trial in range(TRIALS):
                args = self.inputs(SEED + 1 + trial)
                want = self.model(*args)
                for kind, call in ours.items():
                    wrong = agrees(call(*args), want, tolerance)
                    if wrong and f"{kind}_wrong" not in row:
                        row[f"{kind}_wrong"] = wrong
            for kind in ours:
                row[f"{kind}_right"] = f"{kind}_wrong" not in row
            del want
            calls = {**ours, "eager": self.model, **({"compile": self.compiled} if self.compiled is not None else {})}
            row["us"] = times(calls, args)
            self.errors(ours, args)
        for module in modules:
            module._workspaces.clear()  # the libraries stay loaded
        return row

    def errors(self, ours: dict[str, Any], args: list[Any]) -> None:
        """To the same model in float32, on the same values; where memory does not suffice, none."""
        want = self.model(*args)
        if self.plan.precision == torch.float32:
            self.row["error"] = {kind: relative(call(*args), want) for kind, call in ours.items()}
            return
        try:
            self.model.float()
            exact = tuple_of(self.model(*cast(args, torch.float32)))
        except torch.OutOfMemoryError:
            return
        finally:
            self.model.to(self.plan.precision)  # exact: the values came from there
            torch.cuda.empty_cache()
        self.row["error"] = {kind: relative(call(*args), exact) for kind, call in ours.items()}
        self.row["error"]["eager"] = relative(want, exact)
        tolerance = TOLERANCE[self.plan.precision]
        self.row["eager_wrong"] = agrees(tuple(e.to(self.plan.precision) for e in exact), want, tolerance)


def describe(folder: Path) -> dict[str, Any]:
    """What the library's report says of its evidence and its predicted time."""
    path = folder / "report.json"
    if not path.is_file():
        return {}
    report = json.loads(path.read_text(encoding="utf-8"))
    result = report.get("result", {})
    kernels = [k.get("strategy", "") for k in result.get("kernels", [])]
    proof = report.get("proof", {})
    return {
        "kind": result.get("kind"),
        "predicted_us": result.get("predicted_us"),
        "kernels": kernels,
        "proved": proof.get("proved") if isinstance(proof, dict) else proof,
    }


def times(calls: dict[str, Any], args: Sequence[Any]) -> dict[str, float]:
    """Median microseconds of one call each, in turn, L2 overwritten ahead of each."""
    scratch = torch.empty(256 << 20, dtype=torch.uint8, device=_DEVICE)
    took: dict[str, list[float]] = {kind: [] for kind in calls}

    def once(call: Any) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        scratch.fill_(42)
        begin.record()
        call(*args)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1000

    for call in list(calls.values()) * 2:
        once(call)
    one = sum(once(call) for call in calls.values()) / 1e6 + 3e-4 * len(calls)
    for _ in range(min(max(int(TIMED_SECONDS / one), ROUNDS[0]), ROUNDS[1])):
        for kind, call in calls.items():
            took[kind].append(once(call))
    return {kind: round(sorted(v)[len(v) // 2], 2) for kind, v in took.items()}


def _worker(connection: Any, plan: Plan, lock_path: str) -> None:
    """Answers ("compile", "measure" or "both", Problem) with a row, until None."""
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    import torch._inductor.config as inductor

    inductor.compile_threads = 1
    lock = Lock(lock_path)
    guard_benchmarks(lock)
    known: dict[str, Candidate] = {}
    while (asked := connection.recv()) is not None:
        what, problem = asked
        row: dict[str, Any] = {"problem": problem.name, "file": problem.path.name}
        try:
            if problem.name not in known:
                known[problem.name] = Candidate(problem, plan)
            row = known[problem.name].row
            if what != "measure":
                known[problem.name].compile()
            if what != "compile":
                row = known.pop(problem.name).measure()
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {str(error).strip()[:300]}"
        torch.cuda.empty_cache()
        connection.send(row)


class Crew:
    """Processes that do as they are asked; one that dies or hangs is replaced."""

    def __init__(self, plan: Plan, size: int, lock_path: str) -> None:
        self.context = multiprocessing.get_context(_START)
        self.plan, self.lock_path = plan, lock_path
        self.members = [self.member() for _ in range(size)]

    def member(self) -> tuple[Any, Any]:
        here, there = self.context.Pipe()
        process = self.context.Process(target=_worker, args=(there, self.plan, self.lock_path), daemon=True)
        process.start()
        there.close()
        return process, here

    def replace(self, index: int) -> None:
        self.members[index][0].kill()
        self.members[index][0].join()
        self.members[index] = self.member()

    def ask(self, index: int, what: str, problem: Problem) -> None:
        self.members[index][1].send((what, problem))

    def answer(self, index: int, seconds: float) -> Optional[dict[str, Any]]:
        """None: it died or took too long, and is replaced."""
        connection = self.members[index][1]
        try:
            if connection.poll(seconds):
                row: dict[str, Any] = connection.recv()
                return row
        except (EOFError, OSError):
            pass
        self.replace(index)
        return None

    def close(self) -> None:
        for process, _ in self.members:
            process.kill()
        for process, _ in self.members:
            process.join()


class Owners:
    """Which process has what compiled. lost: what those that died had; Inductor's cache still knows it."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self.lost: set[str] = set()

    def dies(self, index: int) -> None:
        self.lost |= {name for name, i in self.of.items() if i == index}
        self.of = {name: i for name, i in self.of.items() if i != index}


def compile_all(crew: Crew, problems: Sequence[Problem], deadline: float) -> Owners:
    """Whoever is free takes the next, until the deadline."""
    waiting, owners, busy = list(problems)[::-1], Owners(), {}
    while True:
        for i in range(len(crew.members)):
            if i not in busy and waiting and time.monotonic() < deadline:
                busy[i] = waiting.pop()
                crew.ask(i, "compile", busy[i])
        if not busy:
            return owners
        ready = multiprocessing.connection.wait([crew.members[i][1] for i in busy], timeout=1)
        for i in [i for i in busy if crew.members[i][1] in ready]:
            if crew.answer(i, 0) is not None:
                owners.of[busy[i].name] = i
            else:
                owners.dies(i)
            del busy[i]
        if time.monotonic() > deadline + GRACE_SECONDS:
            for i in busy:
                crew.replace(i)
                owners.dies(i)
            return owners


def measure_all(
    plan: Plan, problems: Sequence[Problem], rows_path: Path, workers: int = 14, seconds: float = math.inf
) -> list[dict[str, Any]]:
    """A row per problem, each also appended to rows_path when it is there; those that `seconds` do not suffice for are left out."""
    import tempfile

    begin, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="mirage-times.") as place:
        crew = Crew(plan, max(1, min(workers, len(problems))), os.path.join(place, "lock"))
        try:
            owners = Owners()
            if plan.compile:
                owners = compile_all(crew, problems, begin + seconds * 0.45)
                print(f"torch.compile: {len(owners.of)} of {len(problems)}, {time.monotonic() - begin:.0f} s", flush=True)
            for problem in problems:
                if time.monotonic() - begin > seconds:
                    print(f"out of time ahead of {problem.name}", flush=True)
                    break
                i = owners.of.get(problem.name, 0)
                crew.ask(i, "both" if problem.name in owners.lost else "measure", problem)
                row = crew.answer(i, PROBLEM_SECONDS)
                if row is None or "CUDA error" in row.get("failed", ""):
                    if row is not None:
                        crew.replace(i)  # its context is of no more use
                    row = row or {"problem": problem.name, "file": problem.path.name, "failed": "its process died or hung"}
                    owners.dies(i)
                row["convolution"] = is_convolution(plan.folder / f"{problem.name}.json")
                rows.append(row)
                with rows_path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(said(row), flush=True)
        finally:
            crew.close()
    return rows


def is_convolution(spec: Path) -> bool:
    nodes = json.loads(spec.read_text(encoding="utf-8"))["nodes"]
    return any(n["op"] in CONVOLUTIONS for n in nodes)


def said(row: dict[str, Any]) -> str:
    """A line of progress."""
    name = f"{row['problem']} {row['file']}"
    if "failed" in row:
        return f"{name}: FAILED {row['failed']}"
    us = " ".join(f"{kind} {value:.1f}" for kind, value in row["us"].items())
    wrong = "".join(f"; {kind} WRONG: {row[f'{kind}_wrong']}" for kind in ("ours", "also") if row.get(f"{kind}_wrong"))
    errors = " ".join(f"{kind} {value:.1e}" for kind, value in row.get("error", {}).items())
    return f"{name}: {us} us; error {errors}{wrong}"


def geometric(ratios: Sequence[float]) -> float:
    return math.exp(sum(math.log(r) for r in ratios) / len(ratios)) if ratios else math.nan


def summary(rows: Sequence[dict[str, Any]], kind: str = "ours") -> str:
    """Right, KernelBench's fast_p over eager and over torch.compile, geometric means, and how many are not below 0.97 of the better."""
    lines = [
        "| | problems | right | over | fast_0 | fast_1 | fast_1.5 | fast_2 | geometric mean | not below 0.97 |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    ]
    for label, wanted in (("without convolutions", False), ("convolutions", True)):
        some = [r for r in rows if r.get("convolution", False) == wanted]
        right = [r for r in some if r.get(f"{kind}_right") and "us" in r]
        for base in ("eager", "compile", "better"):
            ratios = [x for r in right if (x := ratio(r, kind, base)) is not None]
            fast = [sum(x > p for x in ratios) / len(some) if some else math.nan for p in (1, 1.5, 2)]
            lines.append(
                f"| {label} | {len(some)} | {len(right)} | {base} | {len(right) / len(some) if some else math.nan:.3f} | "
                + " | ".join(f"{x:.3f}" for x in fast)
                + f" | {geometric(ratios):.3f} | {sum(x >= 0.97 for x in ratios)} of {len(ratios)} |"
            )
    return "\n".join(lines)


def ratio(row: dict[str, Any], kind: str, base: str) -> Optional[float]:
    """How many times as long the base takes; None where one of the two was not timed."""
    us = row["us"]
    bases = [us[b] for b in ("eager", "compile") if b in us and base in (b, "better")]
    if kind == "best":
        mine = [us[k] for k in ("ours", "also") if k in us and row.get(f"{k}_right")]
    else:
        mine = [us[kind]] if kind in us else []
    return min(bases) / min(mine) if bases and mine else None
