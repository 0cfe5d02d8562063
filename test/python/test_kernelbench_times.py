"""KernelBench's check and times (mirage_opt.kernelbench_times), the CPU standing for the GPU and libraries that launch nothing."""

import contextlib
import io
import json
import pathlib
import re
import unittest
import unittest.mock

import helpers
import stub

try:
    import torch

    from mirage_opt import __main__ as command_line
    from mirage_opt import kernelbench, kernelbench_times
except ImportError:
    torch = None

PROBLEM = """import os
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, 64, bias=False)

    def forward(self, x):
        BODY

def get_inputs():
    return [torch.randn(16, 128)]

def get_init_inputs():
    return [128]
"""


def problems(folder, bodies):
    place = folder / "level1"
    place.mkdir()
    for i, body in enumerate(bodies, 1):
        (place / f"{i}_some.py").write_text(PROBLEM.replace("BODY", body), encoding="utf-8")
    return kernelbench.problems(str(folder), [1])


def stubbed(folder, name):
    """What mirage-opt wrote into a folder, as a library that writes nothing."""
    path = folder / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    stub.build(str(folder), name, text.count("    _Tensor("), 64, re.search(r"spec id (\w+)", text).group(1))
    for made in ("_torch.empty_strided(t.shape, t.strides, dtype=t.dtype, device=device)", "_empty_strided(t.shape, t.strides, t.dtype)"):
        assert made in text
        text = text.replace(made, "_torch.zeros(t.shape, dtype=t.dtype)")  # its results are zeros
    path.write_text(stub.on_cpu(text), encoding="utf-8")


def ran(call, args):
    call(*args)
    return True


@unittest.skipIf(torch is None, "needs PyTorch")
class Times(helpers.Case):
    def on_cpu(self, patches):
        """The CPU stands for the GPU, in processes that are forked."""
        instead = {"_DEVICE": "cpu", "_START": "fork", "guard_benchmarks": lambda lock: None}
        instead["times"] = lambda calls, args: {k: 10.0 * (i + 1) for i, k in enumerate(calls) if ran(calls[k], args)}
        for name, value in instead.items():
            patches.enter_context(unittest.mock.patch.object(kernelbench_times, name, value))
        for name in ("synchronize", "empty_cache"):
            patches.enter_context(unittest.mock.patch.object(torch.cuda, name, lambda: None))
        patches.enter_context(unittest.mock.patch.object(torch, "compile", lambda model: model))

    def test_measures_what_was_built(self):
        folder, said = pathlib.Path(self.folder), io.StringIO()
        wanted = problems(folder, ["return torch.relu(self.linear(x))", "return self.linear(x) * 0", "return self.linear(x) + 1"])
        out = folder / "out"
        flags = ["--flag=--emit=cu,h,python,report", "--flag=--states=0", "--flag=--gate=none"]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            self.assertEqual(command_line.main(["kernelbench", self.folder, "--level", "1", "-o", str(out), "--build", *flags]), 0)
        for p in wanted:
            stubbed(out / p.name, p.name)
        # What it was built from is another program now, one that ends its process.
        wanted[2].path.write_text(PROBLEM.replace("BODY", "os._exit(3)"), encoding="utf-8")
        with contextlib.ExitStack() as patches, contextlib.redirect_stdout(said):
            self.on_cpu(patches)
            plan = kernelbench_times.Plan(out, torch.float32)
            rows = kernelbench_times.measure_all(plan, wanted, out / "rows.jsonl", workers=2)
        first, second, third = rows
        self.assertTrue(first["ours_wrong"].startswith("off by") and not first["ours_right"])
        self.assertTrue(second["ours_right"] and second["ours"]["kind"], second)
        self.assertEqual(second["us"], {"ours": 10.0, "eager": 20.0, "compile": 30.0})
        self.assertIn("died", third["failed"])
        self.assertEqual([json.loads(line) for line in (out / "rows.jsonl").read_text(encoding="utf-8").splitlines()], rows)
        table = kernelbench_times.summary(rows)
        self.assertIn("| without convolutions | 3 | 1 | eager | 0.333 | 0.333 | 0.333 | 0.000 | 2.000 | 1 of 1 |", table)
        self.assertIn("level1_3 3_some.py: FAILED its process died or hung", said.getvalue())

    def test_check(self):
        x = torch.ones(4)
        agrees, relative = kernelbench_times.agrees, kernelbench_times.relative
        self.assertEqual(agrees(x, x + 0.5e-4, 1e-4), "")
        self.assertTrue(agrees(x, x + 1e-3, 1e-4).startswith("off by 0.001"))
        self.assertEqual(agrees(x, torch.ones(1, 4), 1e-4), "shape (4,), not (1, 4)")
        self.assertEqual(agrees((x, x), x, 1e-4), "2 results, not 1")
        self.assertTrue(agrees(x * float("nan"), x, 1e-4))
        self.assertEqual(relative(torch.tensor([1.0, float("inf")]), torch.tensor([1.0, float("inf")])), 0)
        self.assertEqual(relative(torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("inf")])), float("inf"))

    def test_without_a_gpu(self):
        problems(pathlib.Path(self.folder), ["return x"])
        said = io.StringIO()
        with unittest.mock.patch.object(torch.cuda, "is_available", lambda: False), contextlib.redirect_stderr(said):
            arguments = ["kernelbench", self.folder, "--level", "1", "-o", self.folder + "/out", "--measure"]
            self.assertEqual(command_line.main(arguments), 7)
        self.assertIn("error: --measure needs a GPU, and PyTorch sees none", said.getvalue())


if __name__ == "__main__":
    unittest.main()
