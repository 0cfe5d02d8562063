"""The cases of ONNX's own node tests against what mirage-opt makes of their models. Needs the packages onnx and torch; MIRAGE_ONNX_ALL=1
runs every case, otherwise every eighth.
"""

import json
import os
import subprocess
import unittest

from helpers import COMMAND, Case

try:
    import numpy
    import onnx
    import torch
    from normal_form import run_normal_form
    from onnx import numpy_helper
    from onnx.backend.test.loader import load_model_tests
except ImportError:
    onnx = None

_STEP = 1 if os.environ.get("MIRAGE_ONNX_ALL") else 8


def _with_constants(model, values):
    """Operands of whole numbers, which models compute from shapes, as initializers; and inputs that are left."""
    kept = [i for i in model.graph.input if not values[i.name].dtype.kind in "iub" or model.graph.node[0].op_type in _INDEX_READERS]
    for i in list(model.graph.input):
        if i not in kept:
            model.graph.initializer.append(numpy_helper.from_array(values[i.name], i.name))
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


_INDEX_READERS = {"Gather", "GatherElements", "And", "Or", "Not", "Xor", "Where", "Cast"}


def _is_left_out():
    """The command was built with CMake's MIRAGE_ONNX=OFF."""
    model = os.path.join(os.path.dirname(__file__), "..", "data", "onnx", "gated_mlp_20.onnx")
    said = subprocess.run([COMMAND, "--check", model], capture_output=True, text=True, timeout=60, check=False).stderr
    return "built without ONNX" in said


@unittest.skipIf(onnx is None, "SKIPPED: no onnx or no torch")
@unittest.skipIf(_is_left_out(), "SKIPPED: built without ONNX")
class NodeTests(Case):
    def spec(self, model):
        path = os.path.join(self.folder, "m.onnx")
        onnx.save(model, path)
        return subprocess.run([COMMAND, "--canonicalize", "--quiet", path], capture_output=True, text=True, timeout=60, check=False)

    def cases(self):
        """Models of one node whose operator is older than version 24, and their values."""
        for case in load_model_tests(kind="node"):
            model = case.model
            if model is None or len(model.graph.node) != 1 or model.graph.node[0].domain:
                continue
            if onnx.defs.get_schema(model.graph.node[0].op_type).since_version > 23:
                continue
            model = onnx.ModelProto.FromString(model.SerializeToString())
            for o in model.opset_import:
                o.version = min(o.version, 23)
            given, wanted = case.data_sets[0]
            yield case.name, model, given, wanted

    def test_results(self):
        right, refused, wrong = [], {}, []
        for at, (name, model, given, wanted) in enumerate(self.cases()):
            tensors = [*given, *wanted]
            if (
                at % _STEP
                or any(isinstance(t, list) for t in tensors)
                or not all(hasattr(t, "dtype") and 0 not in t.shape and t.dtype.kind in "fiub" for t in tensors)
            ):
                continue
            given, wanted = [numpy.asarray(t) for t in given], [numpy.asarray(t) for t in wanted]
            names = [i.name for i in model.graph.input]
            values = dict(zip(names, given, strict=True))
            run = self.spec(model)
            if run.returncode == 4:
                run = self.spec(_with_constants(model, values))
            if run.returncode in (4, 3):
                refused[name] = run.stderr.strip().splitlines()[0]
                continue
            if run.returncode:
                wrong.append(f"{name}: exit {run.returncode}: {run.stderr[:200]}")
                continue
            normal = json.loads(run.stdout)
            inputs = {n: torch.from_numpy(values[m].copy()) for n, m in self.pairs(normal, names)}
            for n, y in enumerate(run_normal_form(normal, inputs)):
                w = wanted[n]
                tolerance = 2e-3 if w.dtype == numpy.float16 else 2e-5
                if tuple(y.shape) != w.shape or not numpy.allclose(
                    y.double().numpy(), w.astype(numpy.float64), tolerance, tolerance, equal_nan=True
                ):
                    if "negative_indices" not in name:  # docs/onnx.md
                        wrong.append(f"{name}: output {n}")
                    break
            else:
                right.append(name)
        print(f"\n{len(right)} right, {len(refused)} refused, {len(wrong)} wrong")
        if os.environ.get("MIRAGE_ONNX_ALL"):
            print("\n".join(f"{k}: {v}" for k, v in refused.items()))
        self.assertEqual(wrong, [])
        self.assertGreater(len(right), 20)

    @staticmethod
    def pairs(normal, names):
        """Inputs of the spec and of the model: the same names but for letters that C lacks."""
        plain = {"".join(c if c.isalnum() else "_" for c in m).lstrip("_"): m for m in names}
        return [(n, plain[n]) for n in normal["inputs"]]


if __name__ == "__main__":
    unittest.main()
