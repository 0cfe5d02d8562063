"""From PyTorch programs to mirage-opt kernels and back. `export` writes specs; torch.compile(backend="mirage_opt") uses them; `python -m
mirage_opt --help` lists the importers.

The package drives the command mirage-opt: MIRAGE_OPT in the environment, else the one in PATH. Nothing here imports PyTorch before it is
needed.
"""

from __future__ import annotations

from typing import Any

__all__ = ["CommandError", "Export", "Unsupported", "Values", "backend", "export"]
__version__ = "0.1.0"

_HOMES = {"CommandError": "command", "Export": "exporting", "Unsupported": "lowering", "Values": "exporting", "export": "exporting"}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "backend":
        return importlib.import_module(".backend", __name__).mirage_opt
    if name in _HOMES:
        return getattr(importlib.import_module("." + _HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _register() -> None:
    """torch.compile finds the backend by the package's entry point; on a path without an installation it is registered here, if PyTorch is
    loaded already."""
    import sys

    if "torch" not in sys.modules:
        return
    try:
        from torch._dynamo.backends.registry import list_backends, register_backend

        if "mirage_opt" not in list_backends(()):
            register_backend(name="mirage_opt", compiler_fn=lambda gm, inputs, **rest: __getattr__("backend")(gm, inputs, **rest))
    except ImportError:
        pass   # another PyTorch: the backend itself can still be given to torch.compile


_register()
