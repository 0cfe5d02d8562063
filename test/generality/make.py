#!/usr/bin/env python3
"""Draws the 24 programs of test/generality, on which nothing was tuned before the list was fixed: make.py [SEED] [FOLDER].

Four classes of six: skinny (few rows through linear layers, with prologues and epilogues), attention (masks, biases, norms, caps, shared
heads), rows (no matrix product) and gemm (enough rows that
arithmetic counts). Sizes are drawn from ones that occur in models and ones that no tile divides; a third is bfloat16. The draw depends on
the seed alone (an LCG of its own: Python's random differs
between versions), so anybody can draw another list: the compiler must not know the difference."""

import json
import os
import sys

SEED = 20251121


class Draw:
    """Knuth's MMIX generator, upper bits."""

    def __init__(self, seed):
        self.state = seed
        for _ in range(8):
            self.below(2)

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def one_of(self, things):
        return things[self.below(len(things))]

    def maybe(self, percent):
        return self.below(100) < percent


class Spec:
    """A program under construction. Values are names; `say` collects what it is, for the description."""

    def __init__(self, draw, name):
        self.draw, self.name, self.words = draw, name, []
        self.dtype = draw.one_of(["float16", "float16", "bfloat16"])
        self.inputs, self.nodes, self.count = {}, [], 0

    def input(self, name, *shape, strides=None):
        self.inputs[name] = {"shape": list(shape), "dtype": self.dtype}
        if strides:
            self.inputs[name]["strides"] = list(strides)
        return name

    def node(self, op, *inputs, **attrs):
        self.count += 1
        out = "t%d" % self.count
        node = {"op": op, "inputs": list(inputs), "output": out}
        if attrs:
            node["attrs"] = attrs
        self.nodes.append(node)
        return out

    def say(self, word):
        self.words.append(word)

    def text(self, shape):
        self.nodes[-1]["output"] = "y"
        dims = " x ".join("[%s]" % ", ".join(str(d) for d in t["shape"]) for t in self.inputs.values())
        lines = [
            '  "version": "1.0",',
            '  "name": "%s",' % self.name,
            '  "description": %s,'
            % json.dumps("%s; %s of %s. Drawn by test/generality/make.py, seed %d." % (", ".join(self.words), dims, self.dtype, SEED)),
            '  "inputs": {\n%s\n  },' % ",\n".join('    "%s": %s' % (n, json.dumps(t)) for n, t in self.inputs.items()),
            '  "outputs": {"y": %s},' % json.dumps({"shape": list(shape), "dtype": self.dtype}),
            '  "nodes": [\n%s\n  ]' % ",\n".join("    " + json.dumps(n) for n in self.nodes),
        ]
        return "{\n" + "\n".join(lines) + "\n}\n"


def prologue(s, x, k):
    kind = s.draw.one_of(["none", "rms_norm", "rms_norm gain", "layer_norm", "scale", "relu square", "residual"])
    s.say("prologue " + kind)
    if kind == "rms_norm":
        return s.node("rms_norm", x, axis=-1, eps=1e-6)
    if kind == "rms_norm gain":
        return s.node("rms_norm", x, s.input("gain", k), axis=-1, eps=1e-5)
    if kind == "layer_norm":
        return s.node("layer_norm", x, s.input("gain", k), s.input("shift", k), axis=-1, eps=1e-5)
    if kind == "scale":
        return s.node("mul", x, s.input("scale", k))
    if kind == "relu square":
        return s.node("square", s.node("relu", x))
    if kind == "residual":
        return s.node("add", x, s.input("r", *s.inputs[x]["shape"]))
    return x


def activation(s, x):
    kind = s.draw.one_of(["silu", "gelu", "gelu tanh", "relu", "sigmoid", "tanh"])
    s.say(kind)
    if kind.startswith("gelu"):
        return s.node("gelu", x, approximate="tanh" if kind == "gelu tanh" else "none")
    return s.node(kind, x)


def epilogue(s, y, m, n):
    kind = s.draw.one_of(["none", "bias", "bias activation", "residual", "scale clamp", "gate"])
    s.say("epilogue " + kind)
    if kind.startswith("bias"):
        y = s.node("add", y, s.input("bias", n))
    if kind == "bias activation":
        y = activation(s, y)
    if kind == "residual":
        y = s.node("add", s.input("res", m, n), y)
    if kind == "scale clamp":
        y = s.node("clamp", s.node("mul", y, 0.5), min=-1.0, max=1.0)
    if kind == "gate":
        y = s.node("mul", y, s.node("sigmoid", s.input("g", m, n)))
    return y


def linear_body(s, x, m, k, n, body):
    """x [m, k] through linear layers to [m, n]."""
    s.say(body)
    if body == "linear":
        return s.node("matmul", x, s.input("w", k, n))
    if body == "gated":
        a, b = s.node("matmul", x, s.input("w1", k, n)), s.node("matmul", x, s.input("w2", k, n))
        return s.node("mul", activation(s, a), b)
    if body == "low rank":
        r = s.draw.one_of([8, 16, 24, 64])
        s.say("rank %d" % r)
        base = s.node("matmul", x, s.input("w", k, n))
        up = s.node("matmul", s.node("matmul", x, s.input("a", k, r)), s.input("b", r, n))
        return s.node("add", base, s.node("mul", up, 2.0))
    if body == "two inputs":
        k2 = s.draw.one_of([1024, 1536, 2040])
        return s.node("add", s.node("matmul", x, s.input("w1", k, n)), s.node("matmul", s.input("z", m, k2), s.input("w2", k2, n)))
    if body == "two layers":
        h = s.draw.one_of([2048, 2816, 4096])
        return s.node("matmul", activation(s, s.node("matmul", x, s.input("w1", k, h))), s.input("w2", h, n))
    raise ValueError(body)


def skinny(draw, name, i):
    s = Spec(draw, name)
    m, k, n = (
        draw.one_of([1, 3, 5, 8, 11, 16]),
        draw.one_of([1024, 2048, 2560, 3000, 4096, 5120]),
        draw.one_of([1000, 2056, 3072, 4096, 5000, 6144]),
    )
    x = prologue(s, s.input("x", m, k), k)
    y = epilogue(s, linear_body(s, x, m, k, n, ["linear", "gated", "low rank", "two inputs", "two layers", "linear"][i]), m, n)
    del y
    return s.text([m, n])


def gemm(draw, name, i):
    s = Spec(draw, name)
    m, k, n = (
        draw.one_of([48, 96, 128, 200, 256, 384]),
        draw.one_of([512, 768, 1024, 2000, 2048, 4096]),
        draw.one_of([1000, 1536, 2048, 3072, 4096]),
    )
    body = ["linear", "gated", "linear", "two layers", "softmax", "batched"][i]
    if body == "batched":
        b, k, n = draw.one_of([3, 4, 8]), draw.one_of([256, 512, 1000]), draw.one_of([512, 768, 1024])
        s.say("batched product of activated rows")
        h = s.node("matmul", s.input("x", b, m, k), s.input("w", b, k, n))
        s.node("add", activation(s, h), s.input("bias", n))
        return s.text([b, m, n])
    x = prologue(s, s.input("x", m, k), k)
    if body == "softmax":
        n = draw.one_of([128, 160, 256])
        s.say("router: linear, then softmax over the columns")
        s.node("softmax", s.node("matmul", x, s.input("w", k, n)), axis=-1)
        return s.text([m, n])
    epilogue(s, linear_body(s, x, m, k, n, body), m, n)
    return s.text([m, n])


def attention(draw, name, i):
    s = Spec(draw, name)
    h, d, keys = draw.one_of([4, 8, 16, 24]), draw.one_of([64, 64, 80, 128, 96]), draw.one_of([1000, 2048, 3000, 4096])
    q = draw.one_of([1, 8, 16, 48, 100, 256])
    kind = ["plain", "causal", "bias", "norms", "shared heads", "cap"][i]
    s.say("attention, " + kind)
    if kind == "causal":
        keys = q = draw.one_of([384, 500, 1024])
    if kind == "shared heads":
        q = draw.one_of([4, 6]) * draw.one_of([1, 2, 5])   # the query heads of one group beside each other
    transposed = draw.maybe(30)
    qv = s.input("q", h, q, d)
    kv = s.input("k", h, d, keys, strides=[keys * d, 1, d]) if transposed else s.input("k", h, keys, d)
    vv = s.input("v", h, keys, d)
    if transposed:
        s.say("keys transposed")
    if kind == "norms":
        qv = s.node("rms_norm", qv, s.input("gq", d), axis=-1, eps=1e-6)
        if not transposed:
            kv = s.node("rms_norm", kv, s.input("gk", d), axis=-1, eps=1e-6)
    t = s.node("matmul", qv, kv) if transposed else s.node("matmul", qv, kv, transpose_b=True)
    t = s.node("mul", t, round(d**-0.5, 8))
    if kind == "bias":
        if draw.maybe(50):
            s.say("a bias per query and key")
            t = s.node("add", t, s.input("m", q, keys))
        else:
            s.say("a bias per key")
            t = s.node("add", t, s.input("m", keys))
    if kind == "cap":
        s.say("scores capped at 30 by tanh")
        t = s.node("mul", s.node("tanh", s.node("mul", t, round(1 / 30, 8))), 30.0)
    if kind == "causal":
        t = s.node("causal_mask", t)
    p = s.node("softmax", t, axis=-1)
    s.node("matmul", p, vv)
    return s.text([h, q, d])


def rows(draw, name, i):
    s = Spec(draw, name)
    m, n = draw.one_of([8, 37, 128, 512, 2048]), draw.one_of([768, 1000, 2048, 4096, 8192])
    kind = ["residual norm", "softmax", "gated norm", "two norms", "rotate", "log-softmax"][i]
    s.say(kind)
    x = s.input("x", m, n)
    if kind == "residual norm":
        a = s.node("add", x, s.input("r", m, n))
        if draw.maybe(50):
            s.node("layer_norm", a, s.input("gain", n), s.input("shift", n), axis=-1, eps=1e-5)
        else:
            s.node("rms_norm", a, s.input("gain", n), axis=-1, eps=1e-6)
    if kind == "softmax":
        s.node("softmax", s.node("add", s.node("mul", x, 0.125), s.input("m", n)), axis=-1)
    if kind == "gated norm":
        s.node("mul", s.node("rms_norm", x, s.input("gain", n), axis=-1, eps=1e-6), s.node("silu", s.input("z", m, n)))
    if kind == "two norms":
        h = s.node("l2_norm", s.input("h", m, n), axis=-1)
        s.node("l2_norm", s.node("add", x, s.node("mul", s.input("alpha", n), s.node("sub", h, x))), axis=-1)
    if kind == "rotate":   # rotary embedding of rows: halves swap and change sign
        half = n // 2
        lo, hi = s.node("slice", x, axis=1, start=0, stop=half), s.node("slice", x, axis=1, start=half, stop=n)
        r = s.node("concat", s.node("neg", hi), lo, axis=1)
        s.node("add", s.node("mul", x, s.input("c", m, n)), s.node("mul", r, s.input("s", m, n)))
    if kind == "log-softmax":
        c = s.node("sub", x, s.node("max", x, axis=-1, keepdim=True))
        s.node("sub", c, s.node("log", s.node("sum", s.node("exp", c), axis=-1, keepdim=True)))
    return s.text([m, n])


def main():
    global SEED
    SEED = int(sys.argv[1]) if len(sys.argv) > 1 else SEED
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(__file__))
    draw = Draw(SEED)
    os.makedirs(folder, exist_ok=True)
    for maker in (skinny, attention, rows, gemm):
        for i in range(6):
            name = "%s_%d" % (maker.__name__, i + 1)
            with open(os.path.join(folder, name + ".json"), "w") as f:
                f.write(maker(draw, name, i))


if __name__ == "__main__":
    main()
