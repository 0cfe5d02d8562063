"""Writes the models of this folder: PyTorch modules through torch.onnx at operator sets 17, 20 and 23, weights taken out (they are inputs
of the spec), and the spec of the torch.export path beside them. Needs torch, onnx, onnxscript: python make_models.py
"""

import math
import sys
from pathlib import Path

import numpy
import onnx
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "lib" / "python"))


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d)), eps

    def forward(self, x):
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class RMSNormLinear(nn.Module):
    def __init__(self, d=64, n=96):
        super().__init__()
        self.norm, self.w = RMSNorm(d), nn.Linear(d, n, bias=False)

    def forward(self, x):
        return self.w(self.norm(x))


class GatedMLP(nn.Module):
    def __init__(self, d=64, n=96):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(d, n, bias=False), nn.Linear(d, n, bias=False), nn.Linear(n, d, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class LoRA(nn.Module):
    def __init__(self, d=64, n=96, r=4):
        super().__init__()
        self.w, self.a, self.b = nn.Linear(d, n), nn.Linear(d, r, bias=False), nn.Linear(r, n, bias=False)

    def forward(self, x):
        return self.w(x) + 0.5 * self.b(self.a(x))


class NormLinear(nn.Module):
    def __init__(self, d=64, n=96):
        super().__init__()
        self.norm, self.w = nn.LayerNorm(d), nn.Linear(d, n)

    def forward(self, x):
        return F.gelu(self.w(self.norm(x)))


class Attention(nn.Module):
    """Grouped heads, a mask to add, norms of queries and keys, rotary positions, residual."""

    def __init__(self, d=64, heads=4, kv=2):
        super().__init__()
        self.heads, self.kv, self.dim = heads, kv, d // heads
        self.norm, self.qn, self.kn = RMSNorm(d), RMSNorm(self.dim), RMSNorm(self.dim)
        self.q, self.k, self.v = (nn.Linear(d, n * self.dim, bias=False) for n in (heads, kv, kv))
        self.o = nn.Linear(d, d, bias=False)

    def forward(self, x, cos, sin, mask=None):
        b, t, d = x.shape
        h = self.norm(x)
        q, k, v = (m(h).view(b, t, n, self.dim).transpose(1, 2) for m, n in ((self.q, self.heads), (self.k, self.kv), (self.v, self.kv)))
        q, k = self.qn(q), self.kn(k)
        q, k = (z * cos + torch.cat((-z[..., self.dim // 2 :], z[..., : self.dim // 2]), -1) * sin for z in (q, k))
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
        return x + self.o(a.transpose(1, 2).reshape(b, t, d))


class Softmax(nn.Module):
    """Scaled scores, a mask to add, a residual."""

    def forward(self, q, k, v, mask):
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        return s.softmax(-1) @ v + q


def modules():
    r = torch.randn
    x = r(16, 64)
    heads = (r(2, 4, 16, 16),) * 3
    return {
        "rms_norm_linear": (RMSNormLinear(), (x,)),
        "gated_mlp": (GatedMLP(), (x,)),
        "lora": (LoRA(), (x,)),
        "layer_norm_linear": (NormLinear(), (x,)),
        "attention_block": (Attention(), (r(2, 16, 64), r(1, 1, 16, 16), r(1, 1, 16, 16), r(16, 16))),
        "causal_block": (Attention(), (r(2, 16, 64), r(1, 1, 16, 16), r(1, 1, 16, 16))),
        "softmax_attention": (Softmax(), (*heads, r(16, 16))),
    }


def as_version_17(model):
    """Version 18 gave reductions their axes as an operand; nothing else that these models use changed."""
    known = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for n in model.graph.node:
        if n.op_type == "Constant":
            value = onnx.helper.get_attribute_value(n.attribute[0])
            known[n.output[0]] = onnx.numpy_helper.to_array(value) if hasattr(value, "data_type") else numpy.array(value)
        if n.op_type == "Reshape" and n.input[0] in known:
            known[n.output[0]] = known[n.input[0]].reshape(-1)
        if n.op_type == "ReduceMean" and len(n.input) == 2:
            n.attribute.append(onnx.helper.make_attribute("axes", known[n.input.pop()].tolist()))
            del n.attribute[[a.name for a in n.attribute].index("noop_with_empty_axes")]
    del model.opset_import[:]
    model.opset_import.add(domain="", version=17)


def without_weights(model):
    """Initializers of several elements become external data: their values are nobody's concern."""
    for t in model.graph.initializer:
        if math.prod(t.dims) > 64:
            t.ClearField("raw_data")
            del t.external_data[:]
            t.data_location = onnx.TensorProto.EXTERNAL
            t.external_data.add(key="location", value="weights.bin")
    for n in model.graph.node:
        del n.metadata_props[:]
        n.doc_string = ""
    del model.metadata_props[:], model.graph.metadata_props[:], model.graph.value_info[:]
    for v in [*model.graph.input, *model.graph.output, *model.graph.initializer]:
        del v.metadata_props[:]
    return model


def norm_rope():
    """Operators that version 23 has and the exporter does not write."""

    def value(name, shape):
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, shape)

    nodes = [
        onnx.helper.make_node("RMSNormalization", ["x", "gain"], ["n"], axis=-1, epsilon=1e-6, name="norm"),
        onnx.helper.make_node("RotaryEmbedding", ["n", "cos", "sin"], ["y"], num_heads=4, name="turn"),
    ]
    inputs = [value("x", [2, 8, 64]), value("gain", [64]), value("cos", [2, 8, 8]), value("sin", [2, 8, 8])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, [value("y", [2, 8, 64])])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)


def main():
    import mirage_opt

    torch.manual_seed(0)
    here = Path(__file__).resolve().parent if len(sys.argv) < 2 else Path(sys.argv[1])
    only = sys.argv[3].split(",") if len(sys.argv) > 3 else []
    (here / "norm_rope_23.onnx").write_bytes(norm_rope().SerializeToString(deterministic=True))
    for name, (module, args) in modules().items():
        if only and name not in only:
            continue
        module = module.eval().half()
        args = tuple(a.half() for a in args)
        spec = mirage_opt.export(module, args, name=name)
        spec.write(str(here / f"{name}.json"))
        for opset in [int(v) for v in (sys.argv[2].split(",") if len(sys.argv) > 2 else (17, 20, 23))]:
            if name == "causal_block" and opset < 23:  # a causal mask is written with the lowest float16 there, which is no -inf
                continue
            program = torch.onnx.export(module, args, dynamo=True, opset_version=max(opset, 18), verbose=False, optimize=False)
            model = program.model_proto
            if opset < 18:
                as_version_17(model)
            (here / f"{name}_{opset}.onnx").write_bytes(without_weights(model).SerializeToString(deterministic=True))



main()
