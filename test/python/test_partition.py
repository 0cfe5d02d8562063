"""The torch.compile backend as far as it goes without a GPU: which regions it finds in 20 modules, and that a module computes the same
with a region's spec in each one's place.
"""

import contextlib
import io
import unittest
import warnings

from helpers import Case

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    from mirage_opt import backend, exporting, partition

    from modules import modules
    from normal_form import evaluate

# Operators that no region may hold, and why they are there.
LEFT = {"router": {"aten::topk", "aten::sum", "aten::mul"}, "words": {"aten::embedding"}}


def as_function(region):
    """What a library of the region computes."""

    def call(*tensors):
        given = dict(zip(region.spec["inputs"], tensors))
        for (name, want), x in zip(region.spec["inputs"].items(), tensors):
            assert list(x.shape) == want["shape"] and str(x.dtype) == "torch." + want["dtype"], name
            assert "strides" not in want or all(n == 1 or s == w for n, s, w in zip(x.shape, x.stride(), want["strides"])), name
        out = [v.to(o.meta["val"].dtype) for v, o in zip(evaluate(region.spec, given), region.outputs)]
        return out[0] if len(out) == 1 else tuple(out)

    return call


@unittest.skipIf(torch is None, "SKIPPED: no PyTorch")
class PartitionOfModules(Case):
    def test_twenty_modules(self):
        table = modules()
        self.assertGreaterEqual(len(table), 20)
        for name, (module, args) in table.items():
            with self.subTest(name), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want = module(*args)
                program = exporting.capture(module, args)
                graph = program.graph_module
                found = partition.divide(graph, name)
                self.assertGreater(len(found.regions), 0, found.report())
                left = {f.operator for f in found.left}
                self.assertLessEqual(
                    {x for x in left if "no operator" not in str(found.left)}, LEFT.get(name, set()) | {"aten::embedding"}, found.report()
                )
                for region in found.regions:
                    backend.replace(graph, region, as_function(region))
                graph.graph.lint()
                graph.recompile()
                got = program.module()(*args)
                self.assertTrue(
                    torch.allclose(got, want, rtol=1e-3, atol=1e-4), "%s: %g\n%s" % (name, (got - want).abs().max(), found.report())
                )

    def test_dry_run(self):
        module, args = modules()["router"]
        said = io.StringIO()
        with contextlib.redirect_stderr(said), torch.no_grad():
            compiled = torch.compile(module, backend=backend.mirage_opt, options={"dryrun": True})
            self.assertTrue(torch.allclose(compiled(*args), module(*args)))
        self.assertIn("operators (", said.getvalue())
        self.assertIn("left: aten::topk x1: sorting", said.getvalue())

    def test_read_between(self):
        """A result of a region that something outside reads before the region's last node."""

        class Module(torch.nn.Module):
            def forward(self, x, w):
                y = x @ w
                best = torch.topk(y, 2)[0]
                return best, (y.relu() @ w).softmax(-1)

        args = torch.randn(4, 8), torch.randn(8, 8)
        program = exporting.capture(Module(), args)
        graph = program.graph_module
        for region in partition.divide(graph).regions:
            backend.replace(graph, region, as_function(region))
        backend.sort(graph)
        for got, want in zip(program.module()(*args), Module()(*args)):
            self.assertTrue(torch.allclose(got, want, rtol=1e-3, atol=1e-4))

    def test_many_weights(self):
        """An operator of PyTorch has 64 arguments at most: more layers than that are several regions, cut in front of products."""

        class Module(torch.nn.Module):
            def forward(self, x, *weights):
                for w in weights:
                    x = (x @ w).relu()
                return x

        args = torch.randn(4, 8), *(torch.randn(8, 8) for _ in range(150))
        program = exporting.capture(Module(), args)
        graph = program.graph_module
        regions = partition.divide(graph).regions
        self.assertEqual([len(r.inputs) + len(r.outputs) for r in regions], [64, 64, 28])
        self.assertEqual([r.spec["nodes"][0]["op"] for r in regions], ["matmul"] * 3)
        for region in regions:
            backend.replace(graph, region, as_function(region))
        graph.graph.lint()
        graph.recompile()
        self.assertTrue(torch.allclose(program.module()(*args), Module()(*args), rtol=1e-3, atol=1e-4))

    def test_options(self):
        with self.assertRaisesRegex(ValueError, "no option 'min_op'; did you mean 'min_ops'"):
            backend.checked_options({"min_op": 3})

    def test_without_a_device(self):
        """Falls back with one warning that says why."""
        module, args = modules()["mlp"]
        graph = torch.fx.symbolic_trace(module)
        self.assertIn("backward", backend._cannot(graph, args))
        with torch.no_grad():
            self.assertIn("no tensor is on a CUDA device", backend._cannot(graph, args))


if __name__ == "__main__":
    unittest.main()
