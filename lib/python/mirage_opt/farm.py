"""A corpus over many machines: `python -m mirage_opt farm specs/ -o out/`. Ray (https://docs.ray.io) hands out CPUs and GPUs, and does
again what a machine that died was doing; a task is one run of mirage-opt in a folder of its own, whose files come back as bytes. So the
machines need no common disk, and the result is that of one machine (without --measure: byte for byte).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Optional

from .command import CommandError, find, run


class Spec(NamedTuple):
    """A spec of the corpus; under: the folder below the output folder in which its own one stands."""

    path: str
    text: bytes
    under: str


class Result(NamedTuple):
    exit_code: int
    name: str
    files: dict[str, bytes]
    report: bytes
    messages: str
    machine: str


def find_specs(sources: list[str], output: str) -> list[Spec]:
    """Files as they are, folders with what is below them, as mirage-opt has it: no hidden folders, no results, not the output folder."""
    out = []
    for source in sources:
        root = Path(source)
        if not root.is_dir():
            out.append(Spec(source, root.read_bytes(), ""))
            continue
        for folder, folders, files in os.walk(root):
            here = Path(folder)
            folders[:] = sorted(
                f
                for f in folders
                if not f.startswith(".")
                and (here / f).resolve() != Path(output).resolve()
                and not ((here / f / "certificate.json").is_file() and (here / f / "report.json").is_file())
            )
            under = here.relative_to(root).as_posix()
            for file in sorted(files):
                if file.endswith((".json", ".mg")):
                    out.append(Spec(str(here / file), (here / file).read_bytes(), "" if under == "." else under))
    return sorted(out, key=lambda s: s.path)


def compile_here(spec: Spec, flags: list[str], machine: str) -> Result:
    """One run of mirage-opt on this machine; what it wrote."""
    with tempfile.TemporaryDirectory(prefix="mirage-farm.") as place:
        source = Path(place, Path(spec.path).name)
        source.write_bytes(spec.text)
        output, report = Path(place, "out"), Path(place, "run.json")
        command = [find(), str(source), "-o", str(output), "--report", str(report), "--quiet", *flags]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        files = {p.relative_to(output).as_posix(): p.read_bytes() for p in sorted(output.rglob("*")) if p.is_file()}
        text = report.read_bytes() if report.is_file() else b"{}"
        messages = done.stderr.decode("utf-8", "replace").replace(str(source), spec.path)
        return Result(done.returncode, str(json.loads(text).get("name", "")), files, text, messages, machine)


def write_result(result: Result, folder: Path) -> None:
    """Each file beside and renamed, certificate.json last: where it is new, the rest is."""
    for name in sorted(result.files, key=lambda n: (n == "certificate.json", n)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.tmp{os.getpid()}")
        beside.write_bytes(result.files[name])
        if name.endswith(".so"):
            beside.chmod(0o755)
        beside.replace(path)


class Progress:
    """A line per machine: rewritten on a terminal, else one for each spec that ends."""

    def __init__(self, total: int) -> None:
        self.done: dict[str, int] = {}
        self.total, self.lines, self.live = total, 0, sys.stderr.isatty()

    def add(self, machine: str, spec: str, exit_code: int) -> None:
        self.done[machine] = self.done.get(machine, 0) + 1
        said = f"{machine}: {self.done[machine]} done, last {spec}" + (f" (exit {exit_code})" if exit_code else "")
        if not self.live:
            print(f"{said}; {sum(self.done.values())} of {self.total} in all", file=sys.stderr, flush=True)
            return
        if self.lines:
            print(f"\033[{self.lines}A", end="", file=sys.stderr)
        for name in sorted(self.done):
            text = said if name == machine else f"{name}: {self.done[name]} done"
            print(f"\033[K{text[:120]}", file=sys.stderr)
        self.lines = len(self.done)


def _asked(flags: list[str]) -> tuple[bool, str]:
    """Whether the flags measure, and for which target, as mirage-opt reads them (--machine implies one). CommandError: it refuses them."""
    config = run("--print-config", *flags)
    if config.exit_code:
        raise CommandError(config.err.strip(), config.exit_code)
    values = dict(line.split("  #")[0].split(" = ", 1) for line in config.out.splitlines() if " = " in line)
    return values.get("measure") == "true", values.get("target", "")


def _result_of(ray: Any, reference: Any) -> Result:
    """A task's result; where Ray gives up on it, or it fails outside of mirage-opt, one that says so."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        said = str(error).strip().splitlines()
        return Result(1, "", {}, b"{}", f"farm: the task failed: {said[-1] if said else type(error).__name__}\n", "no machine")


def _tasks(ray: Any, measure: bool, target: str) -> Any:
    """The remote function: a CPU for each compilation; with --measure a whole GPU of the target, one at a time. A cluster that has several
    kinds of GPU says which one a machine has by a resource of the target's name (ray start --resources='{"sm_90a": 8}').
    """
    from . import command

    for module in (command, sys.modules[__name__]):  # travels with the task: other machines need mirage-opt only
        ray.cloudpickle.register_pickle_by_value(module)
    needs: dict[str, Any] = {"num_cpus": 1, "max_retries": 8}
    if measure:
        there = ray.cluster_resources()
        if there.get("GPU", 0) < 1:  # tasks would wait for one for ever
            raise CommandError("--measure: no machine of the cluster has a GPU (ray start --num-gpus=N says how many one has)", 7)
        needs["num_gpus"] = 1
        if target in there:
            needs["resources"] = {target: 1}

    @ray.remote(**needs)
    def compile_there(spec: Spec, flags: list[str]) -> Result:
        node = ray.get_runtime_context().get_node_id()[:8]
        return compile_here(spec, flags, f"{socket.gethostname()}/{node}")

    return compile_there


def _merge(results: list[tuple[Spec, Result]], output: Path, report: Optional[str], junit: Optional[str]) -> int:
    """One report and index.html, by mirage-opt itself. The worst exit code."""
    with tempfile.TemporaryDirectory(prefix="mirage-farm.") as place:
        parts = []
        for i, (spec, result) in enumerate(results):
            one = json.loads(result.report)
            one.setdefault("tool", "mirage-opt")
            one.setdefault("exit_code", result.exit_code)
            one["folder"] = os.path.join(spec.under, result.name or Path(spec.path).stem)
            parts.append(Path(place, f"{i}.json"))
            parts[-1].write_text(json.dumps(one, ensure_ascii=False), encoding="utf-8")
        whole = Path(report) if report else Path(place, "report.json")
        listed = Path(place, "parts")
        listed.write_text("\n".join(f"'{p}'" for p in parts) + "\n", encoding="utf-8")
        more = ["--junit", junit] if junit else []
        done = run("--merge-reports", str(whole), "-o", str(output), *more, f"@{listed}")
        if done.exit_code:
            raise CommandError(done.err.strip() or "the reports cannot be put together", done.exit_code)
        return int(json.loads(whole.read_text(encoding="utf-8"))["exit_code"])


def farm(
    sources: list[str],
    output: str,
    flags: list[str],
    *,
    address: Optional[str] = None,
    report: Optional[str] = None,
    junit: Optional[str] = None,
) -> int:
    """Compiles every spec once, wherever there is room. The exit code of a run of mirage-opt over all of them."""
    try:
        import ray
    except ImportError as error:
        raise CommandError("Ray is needed: pip install 'mirage-opt[farm]'") from error
    specs = find_specs(sources, output)
    if not specs:
        raise CommandError("there is no spec (*.json, *.mg) in " + ", ".join(sources), 11)
    measure, target = _asked(flags)
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    task = _tasks(ray, measure, target)
    # Threads of one run are the CPUs that its task was given.
    waiting = {task.remote(spec, [*flags, "-j", "1"]): spec for spec in specs}
    results: list[tuple[Spec, Result]] = []
    taken: dict[str, str] = {}
    progress = Progress(len(specs))
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1)
        for reference in ready:
            spec = waiting.pop(reference)
            result = _result_of(ray, reference)
            progress.add(result.machine, spec.path, result.exit_code)
            if result.messages and result.exit_code:
                print(result.messages, end="", file=sys.stderr)
            folder = os.path.join(spec.under, result.name or Path(spec.path).stem)
            if folder in taken:
                raise CommandError(f"{spec.path}: the name '{folder}' is taken by {taken[folder]}", 2)
            taken[folder] = spec.path
            write_result(result, Path(output, folder))
            results.append((spec, Result(result.exit_code, result.name, {}, result.report, result.messages, result.machine)))
    results.sort(key=lambda r: r[0].path)
    return _merge(results, Path(output), report, junit)
