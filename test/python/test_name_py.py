"""NAME.py with a library that launches nothing: what it passes on, what it refuses, and what torch.compile and torch.export make of it."""

import os
import re
import unittest

import stub
from helpers import Case, compile_spec

try:
    import torch
except ImportError:
    torch = None


def spec(name, rows=4, two=False):
    out = {
        "name": name,
        "inputs": {"x": {"shape": [rows, 8], "dtype": "float16"}, "w": {"shape": [8, 16], "dtype": "float16"}},
        "outputs": {"y": {"shape": [rows, 16], "dtype": "float16"}},
        "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "y"}],
    }
    if two:
        out["outputs"]["s"] = {"shape": [rows, 1], "dtype": "float32"}
        out["nodes"].append({"op": "sum", "inputs": ["x"], "output": "s", "attrs": {"axis": 1, "keepdim": True}})
    return out


@unittest.skipIf(torch is None, "SKIPPED: no PyTorch")
class NamePy(Case):
    def load(self, name, workspace=0, folder=None, **kinds):
        return self.load_spec(spec(name, **kinds), 4 if kinds.get("two") else 3, workspace, folder)

    def load_spec(self, of, arguments, workspace=0, folder=None, **how):
        folder, name = folder or self.folder, of["name"]
        compile_spec(folder, of, "--emit", "python")
        with open(os.path.join(folder, name + ".py"), encoding="utf-8") as f:
            spec_id = re.search(r"spec id (\w+)", f.read()).group(1)
        stub.build(folder, name, arguments, workspace, spec_id, **how)
        module = stub.import_on_cpu(folder, name)
        module._library.stub_seen.restype = module._ctypes.c_void_p
        module._library.stub_value.restype = module._ctypes.c_double
        module._library.stub_dim.restype = module._ctypes.c_longlong
        return module

    def tensors(self, rows=4):
        return torch.zeros(rows, 8, dtype=torch.float16), torch.zeros(8, 16, dtype=torch.float16)

    def test_passes_pointers_in_order(self):
        for workspace in (0, 512):
            m = self.load("passes%d" % workspace, workspace)
            x, w = self.tensors()
            y = getattr(m, "passes%d" % workspace)(x, w)
            self.assertEqual((y.shape, y.dtype), ((4, 16), torch.float16))
            self.assertEqual([m._library.stub_seen(i) for i in range(3)], [x.data_ptr(), w.data_ptr(), y.data_ptr()])
            self.assertEqual(m._library.stub_seen(3) is not None, workspace > 0)
            out = torch.zeros(4, 16, dtype=torch.float16)
            self.assertIs(getattr(m, "passes%d" % workspace)(x, w, out=out), out)
            self.assertEqual(m._library.stub_seen(2), out.data_ptr())

    def test_two_outputs(self):
        m = self.load("pair", two=True)
        y, s = m.pair(*self.tensors())
        self.assertEqual((y.shape, s.shape, s.dtype), ((4, 16), (4, 1), torch.float32))
        out = (torch.empty_like(y), torch.empty_like(s))
        self.assertIs(m.pair(*self.tensors(), out=out), out)
        self.assertEqual(m._library.stub_seen(3), out[1].data_ptr())

    def test_many_inputs(self):
        """More than an operator of PyTorch has arguments: a plain function."""
        names = [f"x{i}" for i in range(70)]
        sums = [{"op": "add", "inputs": [f"s{i - 1}" if i > 1 else "x0", f"x{i}"], "output": f"s{i}"} for i in range(1, 70)]
        half = {"shape": [4, 8], "dtype": "float16"}
        m = self.load_spec({"name": "many", "inputs": dict.fromkeys(names, half), "outputs": {"s69": half}, "nodes": sums}, 71)
        args = [torch.zeros(4, 8, dtype=torch.float16) for _ in names]
        y = m.many(*args)
        self.assertEqual([m._library.stub_seen(i) for i in range(71)], [x.data_ptr() for x in (*args, y)])
        self.assertIs(m.many(*args, out=y), y)
        with self.assertRaisesRegex(ValueError, "x69 has shape"):
            m.many(*args[:-1], args[0][:2])

    def test_refuses(self):
        m = self.load("refuses")
        x, w = self.tensors()
        for wrong, kind, text in (
            ((x.float(), w), TypeError, "x has dtype torch.float32, expected torch.float16"),
            ((x[:2], w), ValueError, r"x has shape \(2, 8\), expected \(4, 8\)"),
            ((x, w.t().contiguous().t()), ValueError, r"w has strides \(1, 8\), expected \(16, 1\)"),
            ((torch.zeros(40, dtype=torch.float16)[1:33].view(4, 8), w), ValueError, "x does not begin at a multiple of 16 bytes"),
        ):
            m._library.stub_status(-3 if "begin" in text else 0)  # what a library says of such a pointer
            with self.assertRaisesRegex(kind, text):
                m._run(*wrong)
        m._library.stub_status(-7)
        with self.assertRaisesRegex(RuntimeError, r"launch: a status \(status -7\)"):
            m.refuses(x, w)
        m._library.stub_status(0)
        m._DEVICE_TYPE = "cuda"
        self.assertIn("x is on cpu, expected a CUDA device", str(m._mismatch(m._INPUTS, (x, w))))
        m._DEVICE_TYPE = "cpu"
        with self.assertRaisesRegex(ValueError, "y has shape"):
            m.refuses(x, w, out=torch.zeros(4, 8, dtype=torch.float16))
        strange = torch.zeros(4, 16, dtype=torch.float16)[:, :8]
        self.assertEqual(self.load("one_row", rows=1).one_row(strange[:1], w).shape, (1, 16))  # strides of an extent of 1 mean nothing

    def test_values(self):
        of = spec("valued")
        of["inputs"] = {"s": {"shape": None, "dtype": "float16"}, **of["inputs"], "n": {"shape": None, "dtype": "int32"}}
        of["nodes"] = [
            {"op": "matmul", "inputs": ["x", "w"], "output": "p"},
            {"op": "mul", "inputs": ["p", "s"], "output": "q"},
            {"op": "add", "inputs": ["q", "n"], "output": "y"},
        ]
        m = self.load_spec(of, 5, 64, numbers={0: "float", 3: "int"})
        x, w = self.tensors()
        y = m.valued(0.5, x, w, 7)
        self.assertEqual((y.shape, [m._library.stub_value(i) for i in (0, 3)]), ((4, 16), [0.5, 7.0]))
        self.assertEqual([m._library.stub_seen(i) for i in (1, 2, 4)], [x.data_ptr(), w.data_ptr(), y.data_ptr()])
        out = torch.zeros_like(y)
        self.assertIs(m.valued(2, x, w, n=-3, out=out), out)
        self.assertEqual([m._library.stub_value(i) for i in (0, 3)], [2.0, -3.0])
        for wrong, kind, text in (
            ((x[0, 0], x, w, 7), TypeError, "s is passed by value: it must be a number, not Tensor"),
            ((0.5, x, w, 2.5), TypeError, "n is passed by value: it must be an int, not float"),
            ((0.5, x, w, 2**31), ValueError, "n is 2147483648, which an int of 32 bits does not hold"),
            ((1e300, x, w, 1), ValueError, "s is 1e[+]300, which float32 does not hold"),
            ((0.5, w, w, 7), ValueError, "x has shape"),
        ):
            with self.assertRaisesRegex(kind, text):
                m._run(*wrong)

        class Module(torch.nn.Module):
            def forward(self, x, w):
                return m.valued(0.25, x * 2, w, 3) + 1

        self.assertEqual(torch.export.export(Module(), (x, w)).module()(x, w).shape, (4, 16))
        self.assertEqual(torch.compile(Module(), backend="aot_eager", fullgraph=True)(x, w).shape, (4, 16))
        torch.library.opcheck(m._op, (0.5, x, w, 7), test_utils=("test_schema", "test_faketensor"))

    def test_several_sizes(self):
        of = spec("sized", rows="M")
        of["axes"] = {"M": {"type": "var", "values": [2, 4, 8]}}
        m = self.load_spec(of, 3, 512, axes=1)
        for rows in (2, 4, 8):
            x, w = self.tensors(rows)
            self.assertEqual(m.sized(x, w).shape, (rows, 16))
            self.assertEqual((m._library.stub_dim(0), m._library.stub_seen(0)), (rows, x.data_ptr()))
            out = torch.zeros(rows, 16, dtype=torch.float16)
            self.assertIs(m.sized(x, w, out=out), out)
            self.assertEqual(m._library.stub_seen(2), out.data_ptr())
        for rows, text in (
            (3, "M is 3, and this library has M = 2 or 4 or 8 [(]pad=True pads to the next[)]"),
            (9, "M is 9, and this library has"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                m.sized(*self.tensors(rows))
        self.assertEqual(m.sized(*self.tensors(3), pad=True).shape, (3, 16))
        self.assertEqual(m._library.stub_dim(0), 4)
        out = torch.zeros(5, 16, dtype=torch.float16)
        self.assertIs(m.sized(*self.tensors(5), out=out, pad=True), out)
        self.assertEqual(m._library.stub_dim(0), 8)
        for rows in (0, 9):
            with self.assertRaisesRegex(ValueError, "M is %d, and this library has M = 2 or 4 or 8" % rows):
                m.sized(*self.tensors(rows), pad=True)
        x, w = self.tensors(4)
        with self.assertRaisesRegex(TypeError, "x must be a torch.Tensor, not list"):
            m._run([1], w)
        with self.assertRaisesRegex(ValueError, "no size of this library .M = 2 or 4 or 8. has inputs of shapes"):
            m.sized(x, w[:, :3])
        with self.assertRaisesRegex(TypeError, "x has dtype"):
            m.sized(x.float(), w)
        self.assertEqual(str(m._op), "mirage_opt.sized.default")

        class Module(torch.nn.Module):
            def forward(self, x, w):
                return m.sized(x, w, pad=True) + 1

        for rows in (4, 3):
            x, w = self.tensors(rows)
            compiled = torch.compile(Module(), backend="aot_eager", fullgraph=True, dynamic=False)
            self.assertEqual(compiled(x, w).shape, (rows, 16))
            self.assertEqual(torch.export.export(Module(), (x, w)).module()(x, w).shape, (rows, 16))

    def test_symbolic_sizes(self):
        """Of several sizes, traced without one of them: the results' shapes are expressions of the inputs'."""
        of = spec("symbolic", rows="2*M+1", two=True)
        z, v = {"shape": [16, "N", "M"], "dtype": "float16"}, {"shape": ["M*N", 1], "dtype": "float16"}
        of["outputs"] = {"z": z, **of["outputs"], "v": v}
        of["inputs"]["u"] = {"shape": ["M", "N", 16], "dtype": "float16"}
        of["axes"] = {"M": {"type": "var", "values": [1, 2, 4]}, "N": {"type": "var", "values": [3, 5]}}
        of["nodes"].append({"op": "transpose", "inputs": ["u"], "output": "z", "attrs": {"perm": [2, 1, 0]}})
        of["nodes"].append({"op": "reshape", "inputs": ["u"], "output": "flat", "attrs": {"shape": ["M*N", 16]}})
        of["nodes"].append({"op": "max", "inputs": ["flat"], "output": "v", "attrs": {"axis": 1, "keepdim": True}})
        m = self.load_spec(of, 7, axes=2)

        class Module(torch.nn.Module):
            def forward(self, x, w, u):
                z, y, s, v = m.symbolic(x, w, u)
                return z.transpose(0, 2), y + 1, s, v.view(-1)

        half = {"dtype": torch.float16}
        w = torch.zeros(8, 16, **half)
        at = {p: (torch.zeros(2 * p[0] + 1, 8, **half), w, torch.zeros(*p, 16, **half)) for p in ((2, 3), (4, 5), (3, 3))}
        rows, cols = torch.export.Dim("M"), torch.export.Dim("N")
        program = torch.export.export(Module(), at[2, 3], dynamic_shapes=({0: 2 * rows + 1}, None, {0: rows, 1: cols}))
        traced = []

        def look(graph, inputs):
            traced.append(graph)
            return graph.forward

        tracing = torch._dynamo.backends.common.aot_autograd(fw_compiler=look)
        compiled = torch.compile(Module(), backend=tracing, fullgraph=True, dynamic=True)
        with torch.inference_mode():
            for (a, b), args in at.items():
                if a == 3:
                    for call in (program.module(), compiled):
                        with self.assertRaisesRegex(ValueError, "M is 3, and this library has"):
                            call(*args)
                else:
                    for call in (program.module(), compiled):
                        self.assertEqual([tuple(y.shape) for y in call(*args)], [(a, b, 16), (2 * a + 1, 16), (2 * a + 1, 1), (a * b,)])
        self.assertEqual(len(traced), 1)

    def test_no_gradient(self):
        m = self.load("no_gradient")
        x, w = self.tensors()
        w.requires_grad_()
        for y in (m.no_gradient(x, w), m._op(x, w)):
            with self.assertRaisesRegex(RuntimeError, "no_gradient has no backward pass"):
                y.sum().backward()
        with torch.no_grad():
            self.assertFalse(m.no_gradient(x, w).requires_grad)

    def test_names(self):
        first, second = self.load("same_name"), None
        folder = os.path.join(self.folder, "second")
        os.mkdir(folder)
        second = self.load("same_name", folder=folder, rows=2)
        self.assertEqual(str(first._op), "mirage_opt.same_name.default")
        self.assertEqual(str(second._op), "mirage_opt.same_name__2.default")
        self.assertEqual(first.same_name(*self.tensors()).shape, (4, 16))
        self.assertEqual(second.same_name(*self.tensors(2)).shape, (2, 16))

    def test_traced(self):
        m = self.load("traced")
        x, w = self.tensors()

        class Module(torch.nn.Module):
            def forward(self, x, w):
                return m.traced(x * 2, w) + 1

        program = torch.export.export(Module(), (x, w))
        self.assertIn("torch.ops.mirage_opt.traced.default", str(program.graph_module.code))
        path = os.path.join(self.folder, "saved.pt2")
        torch.export.save(program, path)
        self.assertEqual(torch.export.load(path).module()(x, w).shape, (4, 16))
        compiled = torch.compile(Module(), backend="aot_eager", fullgraph=True)
        self.assertEqual(compiled(x, w).shape, (4, 16))
        with self.assertRaisesRegex(Exception, "x has shape"):
            torch.export.export(Module(), (torch.zeros(2, 8, dtype=torch.float16), w))
        torch.library.opcheck(m._op, (x, w), test_utils=("test_schema", "test_faketensor"))


if __name__ == "__main__":
    unittest.main()
