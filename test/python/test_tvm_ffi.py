"""A library with __tvm_ffi_NAME: it loads alone, and apache-tvm-ffi, where it is there, finds the function and gets Python's exceptions.
Launches need a GPU (test/gpu).
"""

import ctypes
import os
import shutil
import subprocess
import sys
import unittest

from helpers import Case, compile_spec

try:
    import numpy  # noqa: F401
    import tvm_ffi
except ImportError:
    tvm_ffi = None

SPEC = {
    "name": "ffi_demo",
    "inputs": {"x": {"shape": [4, 8], "dtype": "float32"}},
    "outputs": {"y": {"shape": [4, 1], "dtype": "float32"}},
    "nodes": [{"op": "sum", "inputs": ["x"], "output": "y", "attrs": {"axis": 1, "keepdim": True}}],
}

# Several sizes, and numbers by value.
SIZED = {
    "name": "ffi_sized",
    "axes": {"M": {"type": "var", "values": [2, 4]}},
    "inputs": {
        "s": {"shape": None, "dtype": "bfloat16"},
        "x": {"shape": ["M", 8], "dtype": "float32"},
        "n": {"shape": None, "dtype": "int32"},
        "b": {"shape": None, "dtype": "bool"},
    },
    "outputs": {"y": {"shape": ["M", 8], "dtype": "float32"}},
    "nodes": [
        {"op": "mul", "inputs": ["x", "s"], "output": "p"},
        {"op": "add", "inputs": ["p", "n"], "output": "q"},
        {"op": "where", "inputs": ["b", "q", 0], "output": "y"},
    ],
}

SIZED_CALLS = """
import sys, numpy, tvm_ffi
f = tvm_ffi.load_module(sys.argv[1]).ffi_sized
x, y = numpy.zeros((4, 8), numpy.float32), numpy.zeros((4, 8), numpy.float32)
for arguments in (
    (x,), (x, x, 1, True, y), (1.5, x, 2.5, True, y), (1.5, x, 2**31, True, y), (1.5, x[:3], 1, True, y[:3]), (1.5, x, 1, True, y[:2]),
    (1.5, x.astype(numpy.float16), 1, True, y), (1.5, x, 1, True, y), (1, x[:2], -1, 0, y[:2])
):
    try:
        f(*[tvm_ffi.from_dlpack(a) if hasattr(a, "shape") else a for a in arguments])
    except Exception as error:
        print(type(error).__name__, error)
"""

CALLS = """
import ctypes, sys, numpy, tvm_ffi
if sys.argv[2] == "loaded before": ctypes.CDLL(sys.argv[1])
f = tvm_ffi.load_module(sys.argv[1]).ffi_demo
x, y = numpy.zeros((4, 8), numpy.float32), numpy.zeros((4, 1), numpy.float32)
for arguments in ((x,), (x, 1), (x.astype(numpy.float16), y), (x, x), (numpy.zeros((8, 4), numpy.float32).T, y), (x, y)):
    try:
        f(*[tvm_ffi.from_dlpack(a) if hasattr(a, "shape") else a for a in arguments])
    except Exception as error:
        print(type(error).__name__, error)
"""


@unittest.skipUnless(shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc"), "SKIPPED: no nvcc")
class TvmFfi(Case):
    def test_loads_and_raises(self):
        compile_spec(self.folder, SPEC, "--emit", "so")
        path = os.path.join(self.folder, "libffi_demo.so")
        alone = ctypes.CDLL(path, mode=os.RTLD_NOW)
        self.assertTrue(hasattr(alone, "__tvm_ffi_ffi_demo"))
        if tvm_ffi is None:
            self.skipTest("SKIPPED: no apache-tvm-ffi")
        for order in ("loaded before", "loaded by it"):
            said = subprocess.run(
                [sys.executable, "-c", CALLS, path, order], capture_output=True, text=True, timeout=120, check=True
            ).stdout.splitlines()
            self.assertEqual(
                said,
                [
                    "TypeError ffi_demo: takes 2 tensors: x, y",
                    "TypeError ffi_demo: y is not a tensor, expected f32[4,1]",
                    "TypeError ffi_demo: x has another dtype, expected f32[4,8]",
                    "ValueError ffi_demo: y has another shape, expected f32[4,1]",
                    "ValueError ffi_demo: x has other strides than expected of f32[4,8]",
                    "ValueError ffi_demo: x is not on a CUDA device",
                ],
            )

    def test_sizes_and_numbers(self):
        compile_spec(self.folder, SIZED, "--emit", "so")
        path = os.path.join(self.folder, "libffi_sized.so")
        ctypes.CDLL(path, mode=os.RTLD_NOW)
        if tvm_ffi is None:
            self.skipTest("SKIPPED: no apache-tvm-ffi")
        run = subprocess.run([sys.executable, "-c", SIZED_CALLS, path], capture_output=True, text=True, timeout=120, check=True)
        sizes = "ValueError ffi_sized: no size of this library has tensors of these shapes and strides: it has M = 2 or 4"
        self.assertEqual(
            run.stdout.splitlines(),
            [
                "TypeError ffi_sized: takes 5 arguments: s, x, n, b, y",
                "TypeError ffi_sized: s is not a number that fits, expected bfloat16 by value",
                "TypeError ffi_sized: n is not a number that fits, expected int32 by value",
                "TypeError ffi_sized: n is not a number that fits, expected int32 by value",
                sizes,
                sizes,
                "TypeError ffi_sized: x has another dtype, expected float32[M, 8]",
                "ValueError ffi_sized: x is not on a CUDA device",
                "ValueError ffi_sized: x is not on a CUDA device",
            ],
        )


if __name__ == "__main__":
    unittest.main()
