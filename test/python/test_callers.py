"""One library called from C99, C++17, ctypes, PyTorch and TVM-FFI: each loads it and gets the same answers. What needs a GPU to be told
apart is not asked; launches are in test/gpu.
"""

import ctypes
import glob
import os
import re
import shutil
import subprocess
import sys
import unittest

from helpers import ROOT, Case, compile_spec, opt

try:
    import torch
except ImportError:
    torch = None
try:
    import tvm_ffi
except ImportError:
    tvm_ffi = None

SPEC = {
    "name": "called",
    "inputs": {"x": {"shape": [4, 8], "dtype": "float32"}, "s": {"shape": None, "dtype": "float16"}},
    "outputs": {"y": {"shape": [4, 1], "dtype": "float32"}},
    "nodes": [
        {"op": "mul", "inputs": ["x", "s"], "output": "p"},
        {"op": "sum", "inputs": ["p"], "output": "y", "attrs": {"axis": 1, "keepdim": True}},
    ],
}

# C99 and C++17 both: wrong dims, no tensor, a misaligned tensor, overlapping tensors, no list of tensors.
CALLER = """
#include <stdio.h>
#include <string.h>
#include "called.h"
static float memory[256];
int main(void) {
  called_dims wrong;
  size_t bytes = 9;
  const size_t over = (size_t)memory % 16 / sizeof(float);
  float* const x = memory + (over ? 4 - over : 0);
  int status[5];
  int i;
  memset(&wrong, 0, sizeof wrong);
  status[0] = called_launch(&wrong, x, 2.0f, x + 64, NULL, 0, NULL);
  status[1] = called_launch(NULL, NULL, 2.0f, x + 64, NULL, 0, NULL);
  status[2] = called_launch(NULL, x + 1, 2.0f, x + 64, NULL, 0, NULL);
  status[3] = called_launch(NULL, x, 2.0f, x + 4, NULL, 0, NULL);
  status[4] = called_launch_dlpack(NULL, 1, NULL, 0, NULL);
  printf("%u %d", called_abi_version(), called_workspace_size(NULL, &bytes));
  printf(" %d", (int)bytes);
  for (i = 0; i < 5; i++) printf(" %d", status[i]);
  printf(" %s\\n", called_status_string(status[0]));
  return 0;
}
"""
WANTED = "1 0 0 -1 -2 -3 -7 -2"


def by_ctypes(path):
    library = ctypes.CDLL(path, mode=os.RTLD_NOW)
    library.called_status_string.restype = ctypes.c_char_p
    bytes_, wrong = ctypes.c_size_t(9), (ctypes.c_uint32 * 2)(0, 0)
    memory = (ctypes.c_float * 256)()
    base = (ctypes.addressof(memory) + 15) // 16 * 16

    def launch(dims, x, y):
        return library.called_launch(dims, ctypes.c_void_p(x), ctypes.c_float(2), ctypes.c_void_p(y), None, ctypes.c_size_t(0), None)

    out = [library.called_abi_version(), library.called_workspace_size(None, ctypes.byref(bytes_)), bytes_.value]
    out += [
        launch(wrong, base, base + 256),
        launch(None, None, base + 256),
        launch(None, base + 4, base + 256),
        launch(None, base, base + 16),
    ]
    out.append(library.called_launch_dlpack(None, 1, None, ctypes.c_size_t(0), None))
    return " ".join(map(str, out)) + " " + library.called_status_string(-1).decode()


@unittest.skipUnless(shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc"), "SKIPPED: no nvcc")
class Callers(Case):
    def setUp(self):
        super().setUp()
        compile_spec(self.folder, SPEC, "--emit", "so,h,python")
        self.library = os.path.join(self.folder, "libcalled.so")

    def run_compiled(self, compiler, standard, suffix):
        source, program = os.path.join(self.folder, "caller" + suffix), os.path.join(self.folder, "caller_" + standard[-2:])
        with open(source, "w", encoding="utf-8") as f:
            f.write(CALLER)
        flags = ["-std=" + standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-I" + self.folder]
        link = ["-L" + self.folder, "-lcalled", "-Wl,-rpath," + self.folder]
        subprocess.run([compiler, *flags, source, "-o", program, *link], check=True, timeout=120)
        return subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    def test_all(self):
        exported = subprocess.run(["nm", "-D", "--defined-only", self.library], capture_output=True, text=True, check=True).stdout
        names = sorted(line.split()[-1] for line in exported.splitlines())
        self.assertEqual([n for n in names if not re.fullmatch(r"called_\w+", n)], ["__tvm_ffi_called"])
        self.assertEqual(len(names), 9)
        answers = {
            "ctypes": by_ctypes(self.library),
            "C99": self.run_compiled("cc", "c99", ".c"),
            "C++17": self.run_compiled("c++", "c++17", ".cc"),
        }
        self.assertEqual({a[: len(WANTED)] for a in answers.values()}, {WANTED}, answers)
        self.assertEqual(len(set(answers.values())), 1, answers)
        if tvm_ffi is not None:
            function = tvm_ffi.load_module(self.library).called
            with self.assertRaisesRegex(TypeError, "called: takes 3 arguments: x, s, y"):
                function(1)
        if torch is not None:
            sys.path.insert(0, self.folder)
            try:
                import called
            finally:
                sys.path.remove(self.folder)
            with self.assertRaisesRegex((ValueError, RuntimeError), "called: x .*"):
                called.called(torch.zeros(4, 8), 2.0)


class Examples(unittest.TestCase):
    def test_specs_are_read(self):
        specs = glob.glob(os.path.join(ROOT, "docs", "examples", "*", "*.json"))
        self.assertGreater(len(specs), 1)
        for spec in specs:
            opt("--check", spec)


if __name__ == "__main__":
    unittest.main()
