"""python -m mirage_opt: export, farm, kernelbench, import, prefix, operators. Exit codes are those of mirage-opt: 2 usage, 3 a file that is
no such
program, 4 cannot be said in a spec, 11 files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

USAGE, INVALID, UNSUPPORTED, FILES = 2, 3, 4, 11


def say(text: str) -> None:
    print(text, file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mirage_opt", description="PyTorch programs as specs of mirage-opt.")
    modes = parser.add_subparsers(dest="mode", required=True)
    p = modes.add_parser(
        "export",
        help="a module as a spec",
        description="FILE.py:CLASS; its arguments come from get_init_inputs() and get_inputs() of FILE.py, or from --input.",
    )
    p.add_argument("source", metavar="FILE.py:CLASS")
    p.add_argument("-o", "--output", default=".", metavar="DIR")
    p.add_argument(
        "--input", action="append", metavar="SHAPE[:DTYPE]", help="an argument of forward, such as 16x4096:float16; once per argument"
    )
    p.add_argument(
        "--by-value", action="append", default=[], metavar="NAME", help="an argument of forward that callers pass by value: a number"
    )
    p.add_argument("--dtype", help="converts parameters and floating-point arguments: float16, bfloat16, float32")
    p.add_argument("--train", action="store_true", help="in training mode (batch norms use the batch; dropout is refused)")
    p.add_argument("--parts", action="store_true", help="write the largest regions that can be said, and a report of the coverage")
    p = modes.add_parser("kernelbench", help="KernelBench problems as specs, with a table")
    p.add_argument("folder", metavar="DIR")
    p.add_argument("--level", default="1,2,3", metavar="LIST")
    p.add_argument("--problems", metavar="LIST", help="only these numbers")
    p.add_argument("--precision", metavar="DTYPE", help="float32 (as the problems are), bfloat16 or float16")
    p.add_argument("-o", "--output", default="kernelbench_specs", metavar="DIR")
    p.add_argument("--build", action="store_true", help="also run mirage-opt on each: library and ModelNew")
    p.add_argument(
        "--flag", action="append", default=[], metavar="FLAG", help="passed on to mirage-opt with --build, such as --flag=--states=0"
    )
    p.add_argument("--measure", action="store_true", help="KernelBench's check and times on a GPU; without --build, of what one left")
    p.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="with --measure: begins no problem after this time")
    p.add_argument("--workers", type=int, default=14, metavar="N", help="with --measure: processes that torch.compile at a time")
    p.add_argument("--also", metavar="DIR", help="with --measure: libraries made with other flags, timed in the same turns")
    p.add_argument("--only", choices=("convolutions", "others"), help="with --measure")
    p.add_argument("--rows", metavar="FILE", help="with --measure: a line of JSON per problem (default: DIR/rows.jsonl)")
    p = modes.add_parser("import", help="FlashInfer-Bench definitions as specs")
    p.add_argument("folder", metavar="DIR")
    p.add_argument("-o", "--output", default="specs", metavar="DIR")
    p.add_argument("--values", action="append", metavar="AXIS=1,8,64", help="extents of a var axis")
    modes.add_parser("prefix", help="the folder that was installed with the package, for CMAKE_PREFIX_PATH: bin, share, lib/cmake")
    p = modes.add_parser(
        "farm",
        help="a corpus of specs over many machines, by Ray",
        description=(
            "Each spec is compiled once, on a CPU anywhere in the cluster; with --flag=--measure on a GPU of the target, one spec at "
            "a time on each. What a machine that dies was doing is done by another."
        ),
    )
    p.add_argument("sources", nargs="+", metavar="SPEC", help="specs, or folders of specs")
    p.add_argument("-o", "--output", required=True, metavar="DIR")
    p.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster; default: RAY_ADDRESS, else one on this machine")
    p.add_argument("--report", metavar="FILE")
    p.add_argument("--junit", metavar="FILE")
    p.add_argument("--flag", action="append", default=[], metavar="FLAG", help="passed on to mirage-opt, such as --flag=--states=0")
    modes.add_parser("operators", help="the table of ATen operators, as Markdown")
    return parser


def _dtype(name: Optional[str]) -> Any:
    import torch

    names = {
        "float16": torch.float16,
        "f16": torch.float16,
        "fp16": torch.float16,
        "bfloat16": torch.bfloat16,
        "bf16": torch.bfloat16,
        "float32": torch.float32,
        "f32": torch.float32,
        "fp32": torch.float32,
        "int64": torch.int64,
        "int32": torch.int32,
        "bool": torch.bool,
    }
    if name is None:
        return None
    if name not in names:
        raise SystemExit(_usage(f"there is no dtype {name!r}; dtypes: {', '.join(names)}"))
    return names[name]


def _usage(text: str) -> int:
    say("error: " + text)
    return USAGE


def _given(text: str) -> Any:
    import torch

    shape, _, dtype = text.partition(":")
    sizes = [s for s in shape.replace(",", "x").split("x") if s]
    if not all(s.isdigit() for s in sizes):
        raise SystemExit(_usage(f"--input takes SHAPE[:DTYPE], such as 16x4096:float16, not {text!r}"))
    kind = _dtype(dtype or "float32")
    size = [int(s) for s in sizes]
    return torch.zeros(size, dtype=kind)


def _made(source: Any, file: str, name: str, options: argparse.Namespace) -> Optional[tuple[Any, list[Any]]]:
    """The module that FILE.py:CLASS names, and the arguments of forward; None, and what is wrong is said, where there is none."""
    import torch

    kind = getattr(source, name, None)
    if kind is None:
        import difflib

        near = difflib.get_close_matches(name, dir(source), 1)
        classes = [(k, v) for k, v in vars(source).items() if isinstance(v, type) and v.__module__ == source.__name__]
        own = [k for k, v in classes if issubclass(v, torch.nn.Module)]
        has = f"; it has {', '.join(own)}" if own else "; it has no torch.nn.Module"
        say(f"{file}: error: there is no {name} in it" + (f"; did you mean {near[0]}?" if near else has))
        return None
    try:
        module = kind(*(source.get_init_inputs() if hasattr(source, "get_init_inputs") else ())) if isinstance(kind, type) else kind
    except Exception as error:
        say(f"{file}: error: {name} cannot be made: {type(error).__name__}: {error}")
        say(f"  note: get_init_inputs() in the file gives its arguments; an object of it there, layer = {name}(...), can be named instead")
        return None
    if not isinstance(module, torch.nn.Module):
        say(f"{file}: error: {name} is of type {type(module).__name__}, and a torch.nn.Module, or its class, is expected")
        return None
    try:
        args = [_given(i) for i in options.input] if options.input else list(source.get_inputs())
    except Exception as error:
        say(f"{file}: error: the arguments of forward cannot be made: {type(error).__name__}: {error}")
        return None
    return module, args


def _export(options: argparse.Namespace) -> int:
    import torch

    from .command import CommandError
    from .exporting import export
    from .kernelbench import load
    from .lowering import Unsupported

    file, colon, name = options.source.rpartition(":")
    if not colon:
        return _usage(f"FILE.py:CLASS is expected, not {options.source!r}")
    if not Path(file).is_file():
        say(f"{file}: error: there is no such file")
        return FILES
    try:
        source = load(Path(file))
    except Exception as error:
        say(f"{file}: error: it cannot be imported: {type(error).__name__}: {error}")
        return INVALID
    if not options.input and hasattr(source, name) and not hasattr(source, "get_inputs"):
        return _usage(f"{file} has no get_inputs(): say the arguments of forward with --input SHAPE:DTYPE")
    found = _made(source, file, name, options)
    if found is None:
        return INVALID
    module, args = found
    module.train(options.train)
    dtype = _dtype(options.dtype)
    if dtype is not None:
        module = module.to(dtype)
        args = [a.to(dtype) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    try:
        if options.parts:
            return _parts(module, args, name, options.output)
        with contextlib.redirect_stderr(io.StringIO()):  # PyTorch prints its graph before it raises
            made = export(module, args, name=name, by_value=options.by_value)
    except CommandError:
        raise
    except Unsupported as error:
        say(f"{file}: error: {error}\n  note: --parts writes what can be said")
        return UNSUPPORTED
    except ValueError as error:
        if str(error).startswith("by_value: "):
            return _usage("--by-value: " + str(error)[len("by_value: ") :])
        say(f"{_place(error, file)}: error: torch.export: {_first_line(error)}")
        return INVALID
    except Exception as error:
        if "DataDependent" in type(error).__name__:
            say(
                f"{_place(error, file)}: error: {name} decides by the values of a tensor, or has a shape that depends on them: a spec is"
                f" one program ({_first_line(error)})\n  note: torch.where chooses element by element; or decide outside of the module"
            )
        else:
            say(f"{_place(error, file)}: error: torch.export: {_first_line(error)}")
        return INVALID
    path = Path(options.output) / f"{made.spec['name']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    made.write(str(path))
    for note in made.notes:
        say("note: " + note)
    say(f"{path}: {len(made.spec['inputs'])} inputs, {len(made.spec['nodes'])} nodes, {len(made.spec['outputs'])} outputs")
    return _checked(path)


def _checked(path: Path) -> int:
    from . import command

    ran = command.run("--check", str(path), "--quiet")
    if ran.exit_code:
        say(ran.err.strip())
    return ran.exit_code


def _first_line(error: Exception) -> str:
    """What an exception says; its kind in front where it is not one of ours."""
    text = str(error).strip().splitlines()
    return ("" if isinstance(error, ValueError) else type(error).__name__ + ": ") + (text[0] if text else "")


def _place(error: Optional[BaseException], file: str) -> str:
    """The file with the innermost of its lines that an exception, or a cause of it, came from."""
    line = 0
    while error is not None and not line:
        for frame in traceback.extract_tb(error.__traceback__):
            line = frame.lineno or 0 if Path(frame.filename) == Path(file).absolute() or frame.filename == file else line
        error = error.__cause__ or error.__context__
    return f"{file}:{line}" if line else file


def _parts(module: Any, args: list[Any], name: str, output: str) -> int:
    from .exporting import capture
    from .partition import divide

    found = divide(capture(module, args).graph_module, name, 1)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for region in found.regions:
        (folder / f"{region.spec['name']}.json").write_text(json.dumps(region.spec, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.coverage.txt").write_text(found.report() + "\n", encoding="utf-8")
    say(found.report())
    return 0 if found.regions else UNSUPPORTED


def _numbers(text: Optional[str], flag: str) -> list[int]:
    parts = [p.strip() for p in (text or "").split(",") if p.strip()]
    if not all(p.isdigit() for p in parts):
        raise SystemExit(_usage(f"{flag} takes numbers and commas, not {text!r}"))
    return [int(p) for p in parts]


def _kernelbench(options: argparse.Namespace) -> int:
    from . import kernelbench

    levels = _numbers(options.level, "--level")
    try:
        wanted = kernelbench.problems(options.folder, levels, _numbers(options.problems, "--problems"))
    except FileNotFoundError as error:
        say(f"error: {error}")
        return FILES
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    if options.build or not options.measure:
        _kernelbench_import(options, levels, wanted, folder)
    return _kernelbench_measure(options, wanted, folder) if options.measure else 0


def _kernelbench_measure(options: argparse.Namespace, wanted: list[Any], folder: Path) -> int:
    import torch

    from . import kernelbench_times as times

    if not torch.cuda.is_available():
        say("error: --measure needs a GPU, and PyTorch sees none")
        return 7
    plan = times.Plan(folder, _dtype(options.precision) or torch.float32, Path(options.also) if options.also else None)
    there = [p for p in wanted if (folder / p.name / f"lib{p.name}.so").is_file()]
    if options.only:
        there = [p for p in there if times.is_convolution(folder / f"{p.name}.json") == (options.only == "convolutions")]
    if not there:
        say(f"error: there is no library in {folder}: --build makes them")
        return FILES
    rows = times.measure_all(plan, there, Path(options.rows or folder / "rows.jsonl"), options.workers, options.seconds)
    for kind in ("ours", "also", "best") if options.also else ("ours",):
        print(f"\n{kind}\n{times.summary(rows, kind)}")
    return 0 if all(r.get("ours_right") for r in rows) else 8


def _kernelbench_import(options: argparse.Namespace, levels: list[int], wanted: list[Any], folder: Path) -> None:
    from . import command, kernelbench
    from .lowering import Refused

    rows, counts = [], {level: [0, 0] for level in levels}
    for problem in wanted:
        outcome = kernelbench.import_problem(problem, _dtype(options.precision))
        reason = outcome.reason
        if outcome.result is not None:
            path = folder / f"{problem.name}.json"
            outcome.result.write(str(path))
            ran = command.run("--check", str(path), "--quiet")
            reason = ran.err.strip().splitlines()[0] if ran.exit_code else ""
            if not reason and options.build:
                ran = command.run(str(path), "-o", str(folder / problem.name), "--quiet", *options.flag)
                reason = ran.err.strip().splitlines()[0] if ran.exit_code else ""
            if not reason:
                beside = folder / problem.name / "model_new.py"
                beside.parent.mkdir(exist_ok=True)
                try:
                    beside.write_text(kernelbench.model_new(problem, outcome.result, beside.parent), encoding="utf-8")
                except Refused as error:
                    reason = str(error)
        counts[problem.level][0] += not reason
        counts[problem.level][1] += 1
        rows.append((problem, reason))
        say(f"{problem.name}: {reason or 'written'}")
    table = [
        "| level | written | of |\n|---|---|---|\n" + "".join(f"| {k} | {a} | {n} |\n" for k, (a, n) in counts.items()),
        "| problem | file | missing because |\n|---|---|---|",
    ]
    table += [f"| {p.level}/{p.number} | {p.path.name} | {r.replace('|', '/')} |" for p, r in rows if r]
    (folder / "table.md").write_text("\n".join(table) + "\n", encoding="utf-8")
    print("\n".join(table))


def _import(options: argparse.Namespace) -> int:
    from . import flashinfer
    from .lowering import Refused, Unsupported

    try:
        values = flashinfer.values_of(options.values)
    except ValueError as error:
        return _usage(str(error))
    files = flashinfer.definitions(options.folder)
    if not files:
        say(f"error: there is no definition (a JSON file with axes and reference) in {options.folder}")
        return FILES
    folder, worst = Path(options.output), 0
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        try:
            spec = flashinfer.import_definition(file, values)
        except (Refused, Unsupported) as error:
            say(f"{file}: error: {error}")
            worst = max(worst, UNSUPPORTED)
            continue
        except Exception as error:
            say(f"{file}: error: {_first_line(error)}")
            worst = max(worst, INVALID)
            continue
        path = folder / f"{spec['name']}.json"
        path.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
        say(f"{path}: {len(spec['nodes'])} nodes")
        worst = max(worst, _checked(path))
    return worst


def operators_table() -> str:
    from . import aten_norms  # noqa: F401  (fills the table)
    from .aten import ROWS
    from .aten_moves import core_operators

    core = core_operators()
    said = [n for n in core if n in ROWS and ROWS[n].convert]
    head = f"{len(said)} of the {len(core)} core ATen operators of this PyTorch can be said in a spec, some in part.\n\n"
    head += "| ATen operator | core | in a spec |\n|---|---|---|"
    lines = [
        f"| {n} | {'yes' if n in core else ''} | {ROWS[n].how if ROWS[n].convert else 'refused: ' + ROWS[n].how} |"
        for n in sorted(set(ROWS) | set(core))
    ]
    return "\n".join([head, *lines])


def _farm(options: argparse.Namespace) -> int:
    from .command import CommandError
    from .farm import farm

    try:
        return farm(options.sources, options.output, options.flag, address=options.address, report=options.report, junit=options.junit)
    except CommandError as error:
        say(f"error: {error}")
        return error.exit_code or 7
    except OSError as error:
        say(f"error: {error}")
        return FILES


def main(arguments: Optional[Sequence[str]] = None) -> int:
    options = _parser().parse_args(arguments)
    if options.mode == "prefix":
        from .command import prefix

        print(prefix())
        return 0
    if options.mode == "farm":  # needs no PyTorch
        return _farm(options)
    try:
        import torch  # noqa: F401
    except ImportError:
        say("error: PyTorch is needed: pip install torch")
        return 7
    from .command import CommandError

    if not os.environ.get("TORCH_LOGS"):
        logging.getLogger("torch").setLevel(logging.CRITICAL)  # its errors are told here, in a line
        warnings.simplefilter("ignore")
    try:
        if options.mode == "operators":
            print(operators_table())
            return 0
        return {"export": _export, "kernelbench": _kernelbench, "import": _import}[options.mode](options)
    except CommandError as error:
        say(f"error: {error}")
        return 7
    except OSError as error:
        say(f"error: {error}")
        return FILES


if __name__ == "__main__":
    sys.exit(main())
