"""The command mirage-opt: where it is, what it knows, how it is run."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class CommandError(RuntimeError):
    """mirage-opt is missing, or ended with an error: `exit_code` (None: not started) and what it said."""

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Ran(NamedTuple):
    exit_code: int
    out: str
    err: str


def prefix() -> Path:
    """The folder that was installed with the package: bin, share, and lib/cmake for CMAKE_PREFIX_PATH. It need not be there."""
    return Path(__file__).resolve().parent / "tool"


def find() -> str:
    """The path of the command. Raises CommandError where there is none."""
    named = os.environ.get("MIRAGE_OPT")
    beside = Path(__file__).resolve().parents[3] / "build" / "mirage-opt"  # a checkout that was built
    for path in (named, str(prefix() / "bin" / "mirage-opt"), shutil.which("mirage-opt"), str(beside)):
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
        if path and path == named:
            raise CommandError(f"MIRAGE_OPT={named} is not an executable file")
    raise CommandError("there is no mirage-opt: put it in PATH, or its path in the environment variable MIRAGE_OPT")


def run(*arguments: str, text: str | None = None, timeout: float | None = None) -> Ran:
    """Runs mirage-opt, `text` on its standard input. Raises CommandError where it cannot be started or takes longer than `timeout`
    seconds.
    """
    try:
        done = subprocess.run([find(), *arguments], input=text, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"mirage-opt took longer than {timeout:g} s") from error
    except OSError as error:
        raise CommandError(f"cannot start mirage-opt: {error}") from error
    return Ran(done.returncode, done.stdout, done.stderr)


@functools.lru_cache(maxsize=1)
def _operators(path: str, changed: int) -> frozenset[str]:
    names = set()
    for line in run("--list-ops").out.splitlines():
        if line[:1].isalpha():
            names.add(line.split()[0].split("(")[0])
    return frozenset(names)


def operators() -> frozenset[str]:
    """Names of the operators that this mirage-opt reads."""
    path = find()
    return _operators(path, os.stat(path).st_mtime_ns)


def main() -> None:
    """The script mirage-opt of an installed package: becomes the command."""
    path = prefix() / "bin" / "mirage-opt"
    try:
        os.execv(path, ["mirage-opt", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"mirage-opt: {path} cannot be started: {error}")
