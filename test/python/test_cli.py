"""python -m mirage_opt: what it writes, and what each mistake is answered with."""

import contextlib
import io
import json
import os
import unittest

from helpers import Case, opt

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    import mirage_opt
    from mirage_opt import __main__ as cli
    from mirage_opt import family, flashinfer, kernelbench
    from mirage_opt.lowering import Refused

MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.n = nn.Linear(8, 16), nn.BatchNorm1d(16)
    def forward(self, x):
        return self.n(self.w(x)).relu()

class Sorted(nn.Module):
    def forward(self, x):
        y = x.softmax(-1)
        return torch.sort(y)[0] + torch.sort(-y)[0]

class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
    def forward(self, x):
        self.calls.add_(1)
        return x * 2

class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        raise ValueError("no such size")

class Depends(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x

def get_inputs():
    return [torch.zeros(4, 8)]
"""

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gemm = nn.Linear(8, features)
    def forward(self, x):
        return %s

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return [16]
"""

DEFINITION = {
    "name": "gemm_n16_k8",
    "op_type": "gemm",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 16}, "K": {"type": "const", "value": 8}},
    "inputs": {"A": {"shape": ["M", "K"], "dtype": "float16"}, "B": {"shape": ["N", "K"], "dtype": "float16"}},
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": (
        "import torch\n\ndef run(A, B):\n    return torch.relu(torch.matmul(A, B.T)).reshape(-1, 2).sum(1).reshape(A.shape[0],"
        " 8).repeat(1, 2)"
    ),
}


@unittest.skipIf(torch is None, "SKIPPED: no PyTorch")
class CommandLine(Case):
    def run_cli(self, *arguments):
        """Exit code and what was said; an exception is no answer."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = cli.main(arguments)
            except SystemExit as stop:
                code = stop.code
        return code, out.getvalue() + err.getvalue()

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text if isinstance(text, str) else json.dumps(text))
        return path

    def test_export(self):
        model, out = self.write("model.py", MODEL), os.path.join(self.folder, "out")
        code, said = self.run_cli("export", model + ":Block", "-o", out, "--dtype", "bf16")
        self.assertEqual(code, 0, said)
        with open(os.path.join(out, "Block.json"), encoding="utf-8") as f:
            spec = json.load(f)
        self.assertEqual(spec["inputs"]["w_weight"], {"shape": [16, 8], "dtype": "bfloat16"})
        self.assertEqual(list(spec["inputs"])[0], "x")

    def test_mistakes(self):
        model, out = self.write("model.py", MODEL), os.path.join(self.folder, "out")
        broken = self.write("broken.py", "import no_such_module")
        plain = self.write("plain.py", MODEL.split("def get_inputs")[0])
        decides = MODEL.split("x.sum()")[0].count("\n") + 1
        axes = self.write("axes.json", '{"name": "a", "axes": {"M": 4}, "reference": "def run(): pass"}')
        self.write("deep/deep.json", '{"reference": ' + "[" * 100000)
        for arguments, exit_code, text in (
            (("export", model), 2, "FILE.py:CLASS is expected"),
            (("export", "no.py:A"), 11, "there is no such file"),
            (("export", broken + ":A"), 3, "cannot be imported: ModuleNotFoundError"),
            (("export", model + ":Blok"), 3, "did you mean Block?"),
            (("export", model + ":Broken"), 3, "cannot be made: ValueError: no such size"),
            (("export", model + ":Unlike"), 3, "there is no Unlike in it; it has Block"),
            (("export", model + ":get_inputs"), 3, "get_inputs is of type function, and a torch.nn.Module, or its class, is expected"),
            (("export", plain + ":Block"), 2, "say the arguments of forward with --input"),
            (("export", model + ":Block", "--input", "4xa"), 2, "--input takes SHAPE[:DTYPE]"),
            (("export", model + ":Block", "--input", "4x8:float17"), 2, "there is no dtype 'float17'"),
            (("export", model + ":Block", "--input", "4x9"), 3, "torch.export"),
            (("export", model + ":Block", "--by-value", "y"), 2, "--by-value: forward is given no argument 'y'; it is given x"),
            (("export", model + ":Block", "--by-value", "x"), 2, "only numbers, and tensors of one element, are passed by value"),
            (("export", model + ":Sorted"), 4, "aten::sort x2: sorting (first at %s:15)" % model),
            (("export", model + ":Depends"), 3, "model.py:%d: error: Depends decides by the values of a tensor" % decides),
            (("export", model + ":Depends"), 3, "note: torch.where chooses element by element"),
            (("export", model + ":Counts"), 4, "the module changes calls when it runs"),
            (("kernelbench", self.folder), 11, "there is no"),
            (("kernelbench", self.folder, "--level", "one"), 2, "--level takes numbers"),
            (("import", os.path.join(self.folder, "deep")), 11, "there is no definition"),
            (("import", axes), 3, "axes.json: error: M: an axis of a definition is"),
            (("import", self.folder, "--values", "M"), 2, "--values takes AXIS=1,8,64"),
            (("imports",), 2, "invalid choice"),
        ):
            with self.subTest(arguments):
                code, said = self.run_cli(*arguments, *(("-o", out) if len(arguments) > 1 else ()))
                self.assertEqual(code, exit_code, said)
                self.assertIn(text, said)
                self.assertNotIn("Traceback", said)
                self.assertNotIn("torch.ops", said)  # nor what PyTorch prints of its graph
                self.assertFalse(os.path.exists(os.path.join(out, "Sorted.json")))

    def test_parts(self):
        model, out = self.write("model.py", MODEL), os.path.join(self.folder, "out")
        code, said = self.run_cli("export", model + ":Sorted", "--parts", "-o", out)
        self.assertEqual(code, 0, said)
        self.assertEqual(sorted(os.listdir(out)), ["Sorted.coverage.txt", "Sorted_0.json"])
        self.assertIn("left: aten::sort x2: sorting", said)

    def test_kernelbench(self):
        self.write("level1/1_Linear.py", PROBLEM % "self.gemm(x).relu()")
        self.write("level1/2_Sort.py", PROBLEM % "torch.sort(self.gemm(x))[0]")
        self.write("level1/3_Wrong.py", PROBLEM % "self.no(x)")
        code, said = self.run_cli("kernelbench", self.folder, "--level", "1", "--precision", "bf16", "-o", os.path.join(self.folder, "out"))
        self.assertEqual(code, 0, said)
        self.assertIn("| 1 | 1 | 3 |", said)
        self.assertIn("| 1/2 | 2_Sort.py | aten::sort x1: sorting", said)
        self.assertIn("| 1/3 | 3_Wrong.py | torch.export: AttributeError", said)

    def test_model_new(self):
        """A ModelNew with the problem's parameters; Python in the place of the library."""
        path = self.write("level1/1_Linear.py", PROBLEM % "(self.gemm(x).relu(), x)")
        outcome = kernelbench.import_problem(kernelbench.problems(self.folder, [1])[0])
        self.assertEqual(outcome.reason, "")
        self.assertEqual([s.index for s in outcome.result.sources], [0, -1, -1])
        self.write(
            "lib/level1_1.py",
            "import torch\ndef level1_1(x, w, b):\n    return torch.nn.functional.linear(x, w, b).relu(), x + 0\n",
        )
        text = kernelbench.model_new(outcome.problem, outcome.result, kernelbench.Path(self.folder) / "lib")
        scope = {}
        exec(compile(text, path, "exec"), scope)
        torch.manual_seed(3)
        old = scope["Model"](16)
        torch.manual_seed(3)
        new = scope["ModelNew"](16)
        x = torch.rand(4, 8)
        for a, b in zip(old(x), new(x)):
            self.assertTrue(torch.equal(a, b))

    def test_definition(self):
        path = self.write("gemm.json", DEFINITION)
        code, said = self.run_cli("import", path, "-o", os.path.join(self.folder, "specs"))
        self.assertEqual(code, 3, said)
        self.assertIn("the axis M varies: say its values with --values M=1,8,64", said)
        spec = flashinfer.import_definition(flashinfer.Path(path), {"M": [1, 3, 8]})
        self.assertEqual(spec["axes"], {"M": {"type": "var", "values": [1, 3, 8]}})
        self.assertEqual(spec["outputs"], {"C": {"shape": ["M", 16], "dtype": "float16"}})
        self.assertIn(["8*M", 2], [n["attrs"]["shape"] for n in spec["nodes"] if n["op"] == "reshape"])

    def test_scalars(self):
        class Scaled(torch.nn.Module):
            def forward(self, x, factor, gain=2.0, keep=True):
                return torch.softmax(x * factor, -1) * gain if keep else x

        x = torch.zeros(4, 8, dtype=torch.float16)
        made = mirage_opt.export(Scaled(), (x, 0.5), {"gain": torch.ones(1)}, by_value=("factor", "gain"), name="f")
        self.assertEqual([t["shape"] for t in made.spec["inputs"].values()], [[4, 8], None, None])
        self.assertEqual({t["dtype"] for t in made.spec["outputs"].values()}, {"float16"})  # a number has no say in it
        path = os.path.join(self.folder, "f.json")
        made.write(path)
        opt("--check", path)
        self.assertEqual(list(mirage_opt.export(Scaled(), (x, 0.5)).spec["inputs"]), ["x"])
        for name, text in (
            ("fator", "forward is given no argument 'fator'; it is given x, factor"),
            ("x", "x is a tensor of shape .4, 8."),
        ):
            with self.assertRaisesRegex(ValueError, text):
                mirage_opt.export(Scaled(), (x, 0.5), by_value=(name,))
        shapes = {"x": {0: mirage_opt.Values("M", [1, 4])}}
        sized = mirage_opt.export(Scaled(), (x, 0.5), by_value=("factor",), dynamic_shapes=shapes)
        self.assertEqual([t["shape"] for t in sized.spec["inputs"].values()], [["M", 8], None])

    def test_definition_with_a_scalar(self):
        of = {
            "name": "scaled",
            "axes": {"M": {"type": "var"}, "K": {"type": "const", "value": 8}},
            "inputs": {"x": {"shape": ["M", "K"], "dtype": "bfloat16"}, "sm_scale": {"shape": None, "dtype": "float32"}},
            "outputs": {"y": {"shape": ["M", "K"], "dtype": "bfloat16"}},
            "reference": (
                "import torch\ndef run(x, sm_scale):\n    s = x.to(torch.float32) * sm_scale\n    return torch.softmax(s,"
                " -1).to(torch.bfloat16)"
            ),
        }
        spec = flashinfer.import_definition(flashinfer.Path(self.write("scaled.json", of)), {"M": [1, 4]})
        self.assertEqual(spec["inputs"]["sm_scale"], {"shape": None, "dtype": "float32"})
        self.assertEqual(list(spec["inputs"]), ["x", "sm_scale"])

    def test_dynamic_shapes(self):
        module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16))
        shapes = {"input": {0: mirage_opt.Values("M", [1, 4], hint=4)}}
        made = mirage_opt.export(module, (torch.zeros(2, 8),), dynamic_shapes=shapes, name="f")
        self.assertEqual(made.spec["axes"], {"M": {"type": "var", "values": [1, 4], "hint": 4}})
        self.assertEqual([t["shape"] for t in made.spec["outputs"].values()], [["M", 16]])
        with self.assertRaisesRegex(ValueError, "forward has no argument 'x'; it has input"):
            mirage_opt.export(module, (torch.zeros(2, 8),), dynamic_shapes={"x": {0: mirage_opt.Values("M", [1])}})

    def test_axes_by_sizes(self):
        points = family.points_of({"M": [1, 2, 8], "K": [4, 6]})
        specs = [
            {"version": "1.0", "name": "f", "inputs": {"x": {"shape": [p["M"], p["K"], 3 * p["M"] * p["K"], p["K"] // 2, 5 - p["M"], 7]}}}
            for p in points
        ]
        made = family.unify(points, specs, {"M": 2})
        self.assertEqual(made["inputs"]["x"]["shape"], ["M", "K", "3*M*K", "K/2", "5-M", 7])
        self.assertEqual(made["axes"]["M"], {"type": "var", "values": [1, 2, 8], "hint": 2})
        specs[2]["inputs"]["x"]["shape"][5] = 8
        with self.assertRaisesRegex(Refused, "no expression of the axes"):
            family.unify(points, specs, {})


if __name__ == "__main__":
    unittest.main()
