"""torch.compile(backend="mirage_opt") with several sizes, as far as it goes without a GPU: which library each size gets, and what it
computes. A library is the Python side of the real one; its launch evaluates the spec.
"""

import contextlib
import json
import os
import re
import tempfile
import unittest
import warnings
from unittest import mock

import stub
from helpers import Case, compile_spec

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    import torch._inductor.compile_fx
    import mirage_opt
    from mirage_opt import backend
    from torch.nn import functional as F

    from modules import Decoder
    from normal_form import evaluate


class Stack(torch.nn.Module if torch else object):
    """Layers with something between them that no region holds."""

    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.sort(layer(x).softmax(-1), -1)[0]
        return x


def at(spec, values):
    """The spec with its axes bound."""
    return {**spec, "axes": {k: {"type": "const", "value": values[k]} for k in spec["axes"]}} if values else spec


class Libraries:
    """In the place of backend.build's compiler and loader: NAME.py over a stub, whose launch evaluates the spec."""

    def __init__(self, folder):
        self.folder, self.specs, self.launches = folder, {}, []
        self.gains = -1  # sizes that get a better result than the straightforward one; -1: all

    def compile(self, spec, folder, cache, options):
        folder.mkdir(parents=True)
        compile_spec(str(folder), spec, "--emit", "python,report")
        tensors = len(spec["inputs"]) + len(spec["outputs"])
        spec_id = re.search(r"spec id (\w+)", (folder / (spec["name"] + ".py")).read_text()).group(1)
        stub.build(str(folder), spec["name"], tensors, 0, spec_id, axes=len(spec.get("axes", {})))
        report = folder / "report.json"
        told = json.loads(report.read_text())
        points = told.get("points") or [told]
        for i, point in enumerate(points):
            point["result"]["kind"] = "stub" if self.gains < 0 or i < self.gains else "straightforward"
            point["result"].pop("without_passes", None)
        report.write_text(json.dumps(told))
        self.specs[spec["name"]] = spec
        return True

    def load(self, path, name):
        module, spec = stub.import_on_cpu(str(path.parent), name), self.specs[name]

        def call(point, tensors, index):
            values = dict(zip(spec.get("axes", {}), point.values)) if point.dims else {}
            count = len(spec["inputs"])
            self.launches.append((name, values))
            for y, got in zip(tensors[count:], evaluate(at(spec, values), dict(zip(spec["inputs"], tensors[:count])))):
                y.copy_(got)

        module._call = call
        return module


@unittest.skipIf(torch is None, "SKIPPED: no PyTorch")
class SeveralSizes(Case):
    def setUp(self):
        super().setUp()
        self.made = Libraries(self.folder)
        self.left = []  # a graph for each call of Inductor's whole compiler
        compile_fx = torch._inductor.compile_fx.compile_fx

        def whole(gm, inputs, **how):
            if how:
                return compile_fx(gm, inputs, **how)
            self.left.append(gm)
            return gm.forward

        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        for target, name, value in (
            (backend, "_DEVICE", "cpu"),
            (backend, "_cannot", lambda gm, inputs: ""),
            (backend, "_compile", self.made.compile),
            (backend, "_imported", self.made.load),
            (backend, "_families", {}),
            (backend, "_warned", set()),
            (torch._inductor.compile_fx, "compile_fx", whole),
            (torch._inductor.compile_fx, "compile_fx_inner", lambda gm, inputs, **_: boxed(gm)),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        stack.enter_context(torch.inference_mode())
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)

    def compiled(self, module, **shapes):
        return torch.compile(module, backend=backend.mirage_opt, options={"dynamic_shapes": shapes, "cache": self.folder})

    def same(self, module, compiled, args, dims=()):
        for x, d in dims:
            torch._dynamo.mark_dynamic(args[x], d)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            got = compiled(*args)
        want = module(*args)
        for g, w in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
            self.assertEqual(g.shape, w.shape)
            self.assertTrue(torch.allclose(g, w, rtol=1e-3, atol=1e-4), (g - w).abs().max())
        return [str(w.message) for w in said if "mirage_opt" in str(w.message)]

    def test_one_library(self):
        """Products of the size, sums with it, other orders of dimensions: expressions of one axis."""

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k = torch.nn.Linear(8, 16), torch.nn.Linear(8, 16)

            def forward(self, x, c):
                b = x.shape[0]
                q = self.q(x).view(b, 2, 8).transpose(0, 1)
                k = torch.cat((c, self.k(x).view(b, 2, 1, 8)), 2)
                p = (q.transpose(0, 1)[:, :, None] @ k.transpose(-1, -2)).softmax(-1)
                return F.silu(self.q(x)), q.reshape(-1, 8) @ self.k.weight.t(), (p @ k).flatten(1), x.expand(b, b, 8).sum(1)

        module = Module().eval()
        rows = mirage_opt.Values("B", [1, 4, 16])
        compiled = self.compiled(module, x={0: rows}, c={0: rows})
        notes = []
        for i, b in enumerate((4, 16, 5, 4, 7, 1)):
            args = torch.randn(b, 8), torch.randn(b, 2, 3, 8)
            notes += self.same(module, compiled, args, [] if i else [(0, 0), (1, 0)])
        self.assertEqual(len(notes), 1)
        self.assertIn("there are kernels for B = 1, 4, 16, and not for other sizes; Inductor compiles the whole module", notes[0])
        self.assertEqual(len(self.left), 1)
        (name, spec), = self.made.specs.items()  # 1, of which Dynamo makes a graph of its own, too
        self.assertEqual(spec["axes"], {"B": {"type": "var", "values": [1, 4, 16]}})
        self.assertEqual(self.made.launches, [(name, {"B": b}) for b in (4, 16, 4, 1)])

    def test_gains_at_some_sizes(self):
        module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).eval()
        rows = mirage_opt.Values("B", [1, 4, 16])
        for gains, launches in ((1, 3), (0, 0)):
            with self.subTest(gains), tempfile.TemporaryDirectory() as self.folder, mock.patch.object(backend, "_families", {}):
                torch._dynamo.reset()
                self.made.gains, self.made.launches = gains, []
                compiled = self.compiled(module, **{"args[0]": {0: rows}})
                for b in (4, 16, 1):
                    self.same(module, compiled, (torch.randn(b, 8),), [(0, 0)] if b == 4 else [])
                self.assertEqual(len(self.made.launches), launches)

    def test_a_straightforward_result_may_gain(self):
        """What passes join is faster than operators apart, whether or not a search found more."""
        apart = {"kernels": 4, "predicted_us": 10.0}
        for kind, us, gains in (("straightforward", 8.0, True), ("straightforward", 9.5, False), ("searched", 9.5, True)):
            self.assertEqual(backend._gains({"kind": kind, "predicted_us": us, "without_passes": apart}), gains)
        self.assertFalse(backend._gains({"kind": "straightforward", "predicted_us": 8.0}))

    def test_two_axes(self):
        """A decoder's prefill: rows and tokens; the tokens stand in a mask too."""
        module = Decoder().eval()
        b, t = mirage_opt.Values("B", [2, 4]), mirage_opt.Values("T", [3, 5], hint=5)
        compiled = self.compiled(module, x={0: b, 1: t}, cos={2: t}, sin={2: t})
        for i, (rows, tokens) in enumerate(((2, 5), (4, 3), (2, 4), (4, 5))):
            args = torch.randn(rows, tokens, 32), torch.randn(1, 1, tokens, 8), torch.randn(1, 1, tokens, 8)
            self.same(module, compiled, args, [] if i else [(0, 0), (0, 1), (1, 2), (2, 2)])
        self.assertEqual(len(self.left), 1)
        self.assertTrue(self.made.specs)
        for spec in self.made.specs.values():
            self.assertEqual(spec["axes"], {"B": {"type": "var", "values": [2, 4]}, "T": {"type": "var", "values": [3, 5], "hint": 5}})
        self.assertEqual({tuple(v.values()) for _, v in self.made.launches}, {(2, 5), (4, 3), (4, 5)})

    def test_layers_share(self):
        """Two layers of one form are one library, and what has no such size stays as it is."""
        module = Stack(2).eval()
        compiled = self.compiled(module, x={0: mirage_opt.Values("B", [2, 4])})
        for b in (2, 4):
            self.same(module, compiled, (torch.randn(b, 8),), [(0, 0)] if b == 2 else [])
        self.assertEqual((len(self.made.specs), len(self.made.launches)), (1, 4))

    def test_again(self):
        """Another process does not take a graph with calls of regions from PyTorch's caches: it would not have their operators, and one of
        several sizes would be the size (seen with PyTorch 2.11 on a GPU).
        """
        from torch._functorch import config

        module, seen = Stack(1).eval(), []

        def inner(gm, inputs, **_):
            seen.append((config.enable_autograd_cache, torch._inductor.config.fx_graph_cache))
            return boxed(gm)

        before = config.enable_autograd_cache, torch._inductor.config.fx_graph_cache
        with mock.patch.object(torch._inductor.compile_fx, "compile_fx_inner", inner):
            self.same(module, self.compiled(module, x={0: mirage_opt.Values("B", [2, 4])}), (torch.randn(4, 8),), [(0, 0)])
            torch._dynamo.reset()
            self.same(module, self.compiled(module), (torch.randn(4, 8),))
        self.assertEqual(seen, [(False, False), (False, before[1])])
        self.assertEqual((config.enable_autograd_cache, torch._inductor.config.fx_graph_cache), before)

    def test_convolutions_have_channels_last(self):
        """Inductor's layout for sizes that are symbols is the one that it has for their numbers, and only while it compiles."""
        from torch._inductor import config

        seen = []

        def inner(gm, inputs, **_):
            seen.append(config.force_layout_optimization)
            return boxed(gm)

        wide = torch.nn.Sequential(*[torch.nn.Conv2d(128, 128, 3, padding=1) for _ in range(3)]).eval()
        grouped = torch.nn.Sequential(*[torch.nn.Conv2d(128, 128, 3, padding=1, groups=2) for _ in range(3)]).eval()
        rows = mirage_opt.Values("B", [2, 4])
        with mock.patch.object(torch._inductor.compile_fx, "compile_fx_inner", inner), mock.patch.object(backend, "build", lambda *_: None):
            with mock.patch.object(torch.backends.mkldnn, "is_available", lambda: False):  # for it, all convolutions have channels last
                for module in (wide, grouped, Stack(1).eval()):
                    torch._dynamo.reset()
                    x = torch.randn((4, 8) if isinstance(module, Stack) else (4, 128, 6, 6))
                    argument = "x" if isinstance(module, Stack) else "args[0]"
                    self.same(module, self.compiled(module, **{argument: {0: rows}}), (x,), [(0, 0)])
        self.assertEqual(seen, [True, False, False])
        self.assertFalse(config.force_layout_optimization)

    def test_without_values(self):
        module = Stack(1).eval()
        x = torch.randn(4, 8)
        notes = self.same(module, self.compiled(module), (x,), [(0, 0)])
        self.assertIn("dimension 0 of x varies and has no values (option dynamic_shapes)", notes[0])
        self.assertEqual(self.made.specs, {})

    def test_other_names(self):
        module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Softmax(-1)).eval()
        notes = self.same(module, self.compiled(module, x={0: mirage_opt.Values("B", [2, 4])}), (torch.randn(4, 8),))
        self.assertEqual(notes, ["mirage_opt: dynamic_shapes names x, and a graph of this module has only args[0]"])

    def test_marked_with_a_range(self):
        """A guard between the user's least and most is an error to Dynamo: the module is left to Inductor instead."""
        module = Stack(1).eval()
        x = torch.randn(4, 8)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=16)
        notes = self.same(module, self.compiled(module, x={0: mirage_opt.Values("B", [2, 4])}), (x,))
        self.assertIn("mark_dynamic without them", notes[0])

    def test_own_failure(self):
        """A mistake of this backend's, or a library that does not load, is a warning, and the program runs."""
        module, x = Stack(1).eval(), torch.randn(4, 8)

        def fails(path, name):
            raise OSError("cannot load it")

        with mock.patch.object(backend, "_imported", fails):
            notes = self.same(module, self.compiled(module), (x,))
        self.assertIn("OSError: cannot load it; Inductor compiles this graph", notes[0])

    def test_mistakes(self):
        v = mirage_opt.Values
        for shapes, text in (
            ([1], "is expected, not list"),
            ({"x": [1, 2]}, r"Values\(.*is expected, not 'x': \[1, 2\]"),
            ({"x": {0: [1, 2]}}, r"is expected, not 0: \[1, 2\] of 'x'"),
            ({"x": {0: v("B", [])}}, "the values of B must be positive, whole and different"),
            ({"x": {0: v("B", [4, 0])}}, "the values of B must be positive"),
            ({"x": {0: v("B", [4, 4])}}, "the values of B must be positive"),
            ({"x": {0: v("B", [1, 4], 3)}}, "the hint 3 of B is none of its values"),
            ({"x": {0: v("B", [1, 4])}, "y": {0: v("B", [1, 8])}}, r"B has two lists of values, \[1, 4\] and \[1, 8\]"),
            ({"x": {0: v("B", range(1, 10)), 1: v("S", range(1, 10))}}, "at most 64 combinations"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                backend.checked_options({"dynamic_shapes": shapes})
        module = Stack(1).eval()
        with self.assertRaisesRegex(Exception, "x has no dimension 2"):
            self.compiled(module, x={2: v("B", [2, 4])})(torch.randn(4, 8))


def boxed(gm):
    def call(arguments):
        return gm.forward(*arguments)

    call._boxed_call = True
    return call


if __name__ == "__main__":
    unittest.main()
