"""Layers of which blocks.py draws its random blocks: what models are made of, in many layouts.

A layer is a function of a Block and the name of the hidden state, [T, D] or [B, T, D], and returns the name of the next one with as many
axes. It draws from block.rng alone.
"""

import math


class Block:
    """A spec under construction, with shapes. Every operator method returns the name of a tensor."""

    def __init__(self, rng, dtypes):
        self.rng, self.dtypes = rng, dtypes            # dtypes: of activations, of weights, of gains
        self.inputs, self.nodes, self.shapes, self.results = {}, [], {}, []
        self.elements = 0                              # of all weights so far
        self.floats = dtypes[0] == "float16"

    # -- tensors
    def input(self, shape, kind=0, dtype=None, low=None, high=None):
        name = f"i{len(self.inputs)}"
        self.inputs[name] = {"shape": list(shape), "dtype": dtype or self.dtypes[kind]}
        if low is not None:
            self.inputs[name]["range"] = [low, high]
        self.shapes[name] = list(shape)
        self.elements += math.prod(shape)
        return name

    def weight(self, *shape):
        return self.input(shape, 1)

    def gain(self, *shape):
        return self.input(shape, 2)

    def shape(self, x):
        return [] if isinstance(x, (int, float)) or x == "-inf" else self.shapes[x]

    def raw(self, op, extents, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append({"op": op, "inputs": list(inputs), "output": name, **({"attrs": attributes} if attributes else {})})
        self.shapes[name] = list(extents)
        return name

    def map(self, op, *inputs, **attributes):
        rank = max(len(self.shape(i)) for i in inputs)
        padded = [[1] * (rank - len(self.shape(i))) + self.shape(i) for i in inputs]
        return self.raw(op, [max(column) for column in zip(*padded)] if rank else [], *inputs, **attributes)

    def add(self, x, y):
        return self.map("add", x, y)

    def mul(self, x, y):
        return self.map("mul", x, y)

    def matmul(self, x, y, **flags):
        a, b = self.shape(x), self.shape(y)
        n = b[-2] if flags.get("transpose_b") else b[-1]
        m = a[-1] if flags.get("transpose_a") else a[-2]
        batch = a[:-2] if len(a) >= len(b) else b[:-2]
        if len(a) == len(b):
            batch = [max(p, q) for p, q in zip(a[:-2], b[:-2])]
        return self.raw("matmul", batch + [m, n], x, y, **flags)

    def einsum(self, equation, x, y):
        ins, out = equation.split("->")
        sizes = {}
        for letters, t in zip(ins.split(","), (x, y)):
            sizes.update(zip(letters, self.shape(t)))
        return self.raw("einsum", [sizes[letter] for letter in out], x, y, equation=equation)

    def reduce(self, op, x, axis, keep=True):
        s = list(self.shape(x))
        axes = sorted(a % len(s) for a in (axis if isinstance(axis, list) else [axis]))
        out = [1 if i in axes else e for i, e in enumerate(s)] if keep else [e for i, e in enumerate(s) if i not in axes]
        return self.raw(op, out, x, axis=axis, keepdim=keep)

    def norm(self, op, x, *more, **attributes):
        return self.raw(op, self.shape(x), x, *more, **attributes)

    def softmax(self, x, axis=-1):
        return self.raw("softmax", self.shape(x), x, axis=axis)

    def transpose(self, x, perm):
        s = self.shape(x)
        return self.raw("transpose", [s[p] for p in perm], x, perm=list(perm))

    def reshape(self, x, *shape):
        assert math.prod(shape) == math.prod(self.shape(x)), (shape, self.shape(x))
        return self.raw("reshape", shape, x, shape=list(shape))

    def slice(self, x, axis, start, stop, step=1):
        s = list(self.shape(x))
        axis %= len(s)
        s[axis] = -(-(stop - start) // step)
        return self.raw("slice", s, x, axis=axis, start=start, stop=stop, **({"step": step} if step > 1 else {}))

    def concat(self, axis, *xs):
        s = list(self.shape(xs[0]))
        axis %= len(s)
        s[axis] = sum(self.shape(x)[axis] for x in xs)
        return self.raw("concat", s, *xs, axis=axis)

    def repeat(self, x, axis, count):
        s = list(self.shape(x))
        s[axis] *= count
        return self.raw("repeat", s, x, axis=axis % len(s), count=count)

    def iota(self, shape, axis):
        return self.raw("iota", shape, axis=axis % len(shape), shape=list(shape))

    def cast(self, x, dtype):
        return self.raw("cast", self.shape(x), x, dtype=dtype)

    # -- choices
    def pick(self, *choices):
        return self.rng.choice(choices)

    def chance(self, p):
        return self.rng.random() < p

    def activation(self, x):
        kind = self.rng.randrange(10)
        if kind == 0:
            return self.map("gelu", x, approximate=self.pick("none", "tanh"))
        if kind < 5:
            return self.map(("silu", "relu", "tanh", "sigmoid")[kind - 1], x)
        if kind == 5:                                                       # squared relu
            return self.map("square", self.map("relu", x))
        if kind == 6:                                                       # leaky relu
            return self.map("maximum", x, self.mul(x, 0.1))
        if kind == 7:                                                       # hard swish
            return self.mul(x, self.mul(self.map("clamp", self.add(x, 3.0), min=0.0, max=6.0), 1 / 6))
        if kind == 8:                                                       # mish
            return self.mul(x, self.map("tanh", self.map("log", self.add(self.map("exp", self.map("minimum", x, 20.0)), 1.0))))
        e = self.map("exp", self.map("minimum", x, 0.0))                    # elu
        return self.map("where", self.map("greater", x, 0.0), x, self.map("sub", e, 1.0))

    def linear(self, x, n, bias=None):
        """x times a weight of n columns, in one of its layouts; perhaps with a low-rank side, a scale per column or a bias."""
        k = self.shape(x)[-1]
        kind = self.rng.randrange(8)
        if kind < 4:
            y = self.matmul(x, self.weight(k, n))
        elif kind < 6:
            y = self.matmul(x, self.weight(n, k), transpose_b=True)
        elif kind == 6:
            y = self.matmul(x, self.transpose(self.weight(n, k), (1, 0)))
        else:
            y = self.matmul(x, self.mul(self.weight(k, n), self.gain(n)))   # weights scaled per column
        if self.chance(0.12):
            r = self.pick(4, 8, 16)
            side = self.matmul(self.matmul(x, self.weight(k, r)), self.weight(r, n))
            y = self.add(y, self.mul(side, 0.5) if self.chance(0.5) else side)
        if bias if bias is not None else self.chance(0.4):
            y = self.add(y, self.gain(n))
        return y


def heads_of(x, b, h, d, block, layout):
    """[B, T, H d] as heads: [B, H, T, d], or [B, T, H, d] where the layout keeps tokens in front."""
    t = block.shape(x)[-2]
    y = block.reshape(x, b, t, h, d)
    return y if layout == "bthd" else block.transpose(y, (0, 2, 1, 3))


def rotate(s, x, axis_t):
    """Rotary embedding of the last axis with tables given as inputs; halves, or pairs through slices with steps."""
    shape = s.shape(x)
    d, t = shape[-1], shape[axis_t]
    table = [t, d] if axis_t == -2 or axis_t == len(shape) - 2 else [t, 1, d]
    if s.chance(0.7):
        cos, sin = s.input(table, 0), s.input(table, 0)
        turned = s.concat(-1, s.map("neg", s.slice(x, -1, d // 2, d)), s.slice(x, -1, 0, d // 2))
        return s.add(s.mul(x, cos), s.mul(turned, sin))
    table[-1] = d // 2
    cos, sin = s.input(table, 0), s.input(table, 0)
    even, odd = s.slice(x, -1, 0, d, 2), s.slice(x, -1, 1, d, 2)
    return s.concat(-1, s.map("sub", s.mul(even, cos), s.mul(odd, sin)), s.add(s.mul(even, sin), s.mul(odd, cos)))


def masked(s, scores, layout_t):
    """Scores [.., T, S] with one of the masks and biases that models have."""
    shape = s.shape(scores)
    t, n = shape[-2], shape[-1]
    kind = s.rng.randrange(8)
    if kind < 2:
        return s.norm("causal_mask", scores, **({"offset": n - t} if n > t else {}))
    if kind == 2:
        return s.add(scores, s.input([t, n], 0))
    if kind == 3:
        return s.map("where", s.input([t, n], dtype="bool"), scores, -1e4)
    if kind == 4:                                                           # sliding window from positions
        far = s.map("sub", s.add(s.iota([t, n], 0), n - t), s.iota([t, n], 1))
        return s.map("where", s.map("less", far, float(max(2, n // 3))), scores, "-inf" if s.chance(0.5) else -1e4)
    if kind == 5 and len(shape) >= 3:                                       # a slope per head
        far = s.map("sub", s.iota([t, n], 1), s.iota([t, n], 0))
        return s.add(scores, s.mul(far, s.input([shape[-3], 1, 1], 0, low=-0.5, high=0.0)))
    if kind == 6:
        cap = s.pick(30.0, 50.0)
        return s.mul(s.map("tanh", s.mul(scores, 1 / cap)), cap)
    return scores


def any_norm(s, x):
    d = s.shape(x)[-1]
    kind = s.rng.randrange(9)
    if kind == 0:
        return s.norm("rms_norm", x, s.gain(d), axis=-1, eps=1e-6)
    if kind == 1:
        return s.norm("rms_norm", x, s.add(s.gain(d), 1.0), axis=-1)
    if kind == 2:
        return s.norm("layer_norm", x, s.gain(d), s.gain(d), axis=-1)
    if kind == 3:
        return s.norm("layer_norm", x, axis=-1)
    if kind == 4:
        return s.mul(s.norm("l2_norm", x, axis=-1), s.add(s.gain(d), math.sqrt(d)))
    if kind == 5:                                                           # written out, statistics in float32
        y = s.cast(x, "float32") if s.chance(0.5) else x
        y = s.mul(y, s.map("rsqrt", s.add(s.reduce("mean", s.map("square", y), -1), 1e-5)))
        return s.mul(s.cast(y, s.dtypes[0]), s.gain(d))
    if kind == 6:
        mean = s.reduce("mean", x, -1)
        centred = s.map("sub", x, mean)
        var = s.reduce("mean", s.mul(centred, centred), -1)
        return s.add(s.mul(s.map("div", centred, s.map("sqrt", s.add(var, 1e-5))), s.gain(d)), s.gain(d))
    if kind == 7 and d % 4 == 0:                                            # groups of channels
        g = s.pick(2, 4)
        shape = s.shape(x)
        y = s.reshape(x, *shape[:-1], g, d // g)
        return s.mul(s.reshape(s.norm("rms_norm", y, axis=-1), *shape), s.gain(d))
    return s.norm("rms_norm", x, axis=-1)


def three(s, x):
    """As [B, T, D], B perhaps 1."""
    return x if len(s.shape(x)) == 3 else s.reshape(x, 1, *s.shape(x))


def back(s, x, like):
    return x if len(s.shape(x)) == len(s.shape(like)) else s.reshape(x, *s.shape(like)[:-1], s.shape(x)[-1])


def residual(s, x, y):
    kind = s.rng.randrange(6)
    if kind == 0:
        y = s.mul(y, s.gain(s.shape(x)[-1]))
    elif kind == 1:
        y = s.mul(y, 0.5)
    elif kind == 2:
        return any_norm(s, s.add(x, y))
    return s.add(x, y)


def attention(s, x):
    x0, n = x, any_norm(s, x) if s.chance(0.8) else x
    n = three(s, n)
    b, t, dim = s.shape(n)
    d = s.pick(8, 16, 20, 32, 40, 48, 64, 64, 80, 96, 128)
    kv = s.pick(1, 2, 3, 4, 6, 8)
    group = s.pick(1, 1, 2, 3, 4, 7) if kv > 1 else s.pick(2, 4, 8, 9)
    while kv * group * d > max(2 * dim, 128) or b * kv * group * t * t > 2 ** 25:
        if group > 1:
            group = 1
        elif kv > 1:
            kv //= 2
        else:
            break
    h = kv * group
    cross = s.chance(0.15)
    source = s.input([b, s.pick(7, 16, 77, 100, 257, 333), s.pick(64, 100, 256, 768)]) if cross else n
    ts = s.shape(source)[1]
    packed = not cross and s.chance(0.4)
    if packed and group == 1 and s.chance(0.5):                             # [B, T, 3, H, d], taken apart by index
        qkv = s.reshape(s.linear(n, 3 * h * d), b, t, 3, h, d)
        q, k, v = (s.transpose(s.reshape(s.slice(qkv, 2, i, i + 1), b, t, h, d), (0, 2, 1, 3)) for i in range(3))
    else:
        if packed:
            qkv = s.linear(n, (h + 2 * kv) * d)
            q, k, v = s.slice(qkv, -1, 0, h * d), s.slice(qkv, -1, h * d, (h + kv) * d), s.slice(qkv, -1, (h + kv) * d, (h + 2 * kv) * d)
        else:
            q, k, v = s.linear(n, h * d), s.linear(source, kv * d), s.linear(source, kv * d)
        q, k, v = (heads_of(z, b, c, d, s, "bhtd") for z, c in ((q, h), (k, kv), (v, kv)))
    if s.chance(0.25):
        q, k = (s.norm("rms_norm", z, s.gain(d), axis=-1) for z in (q, k))
    if s.chance(0.35) and not cross:
        q, k = rotate(s, q, -2), rotate(s, k, -2)
    if s.chance(0.25) and not cross:                                        # a cache
        past = s.pick(1, 63, 128, 501, 1000) if t <= 64 else s.pick(16, 60)
        k, v = (s.concat(2, s.input([b, kv, past, d]), z) for z in (k, v))
        if s.chance(0.3):
            s.results += [k, v]
        ts += past
    q = s.mul(q, d ** -0.5) if s.chance(0.5) else q
    scaled = s.nodes[-1]["output"] == q and s.nodes[-1]["op"] == "mul"
    if group > 1 and s.chance(0.5):                                         # groups by a fifth axis
        q5 = s.reshape(q, b, kv, group * t, d) if s.chance(0.5) else s.reshape(q, b, kv, group, t, d)
        if len(s.shape(q5)) == 4:
            scores = s.reshape(s.matmul(q5, k, transpose_b=True), b, h, t, ts)
        else:
            scores = s.reshape(s.matmul(q5, s.reshape(k, b, kv, 1, ts, d), transpose_b=True), b, h, t, ts)
    else:
        if group > 1:                                                       # keys repeated, as written by hand
            k, v = (s.reshape(s.repeat(s.reshape(z, b, kv, 1, ts, d), 2, group), b, h, ts, d) for z in (k, v))
        scores = s.matmul(q, s.transpose(k, (0, 1, 3, 2))) if s.chance(0.5) else s.einsum("bhtd,bhsd->bhts", q, k)
    if s.shape(v)[1] != h:
        v = s.reshape(s.repeat(s.reshape(v, b, kv, 1, ts, d), 2, group), b, h, ts, d)
    if not scaled:
        scores = s.map("div", scores, math.sqrt(d))
    scores = masked(s, scores, t)
    kind = s.rng.randrange(8)
    if kind < 5:
        p = s.softmax(scores)
    elif kind == 5:                                                         # written out, with a sink
        top = s.map("maximum", s.reduce("max", scores, -1), s.input([h, 1, 1]))
        e = s.map("exp", s.map("sub", scores, top))
        p = s.map("div", e, s.add(s.reduce("sum", e, -1), 1.0))
    elif kind == 6:
        p = s.softmax(s.cast(scores, "float32"))
    else:
        p = s.mul(s.map("sigmoid", scores), 1.0 / ts)
    o = s.reshape(s.transpose(s.matmul(p, v), (0, 2, 1, 3)), b, t, h * d)
    if s.chance(0.2):
        o = s.mul(o, s.map("sigmoid", s.linear(n, h * d)))
    return residual(s, x0, back(s, s.linear(o, dim), x0))


def linear_attention(s, x):
    """Attention without a softmax: a feature map, the sum of keys times values first; or one step of a state."""
    n = three(s, any_norm(s, x))
    b, t, dim = s.shape(n)
    h, d = s.pick(1, 2, 4, 8), s.pick(16, 32, 48, 64)
    q, k, v = (s.reshape(s.linear(n, h * d, False), b, t, h, d) for _ in range(3))
    if s.chance(0.5):
        q, k = (s.add(s.map("relu", z), 1e-3) for z in (q, k))
        state = s.einsum("bthd,bthe->bhde", k, v)
        total = s.reduce("sum", k, 1, False)
        o = s.einsum("bthd,bhde->bthe", q, state)
        o = s.map("div", o, s.add(s.reduce("sum", s.mul(q, s.reshape(total, b, 1, h, d)), -1), 1e-3))
    else:                                                                   # a retention: decays given
        old, decay = s.input([b, h, d, d]), s.input([h, 1, 1], low=0.0, high=1.0)
        fresh = s.add(s.mul(old, decay), s.mul(s.einsum("bthd,bthe->bhde", k, v), 1.0 / t))
        s.results.append(fresh)
        o = s.einsum("bthd,bhde->bthe", q, fresh)
    o = s.norm("rms_norm", o, axis=-1)
    return residual(s, x, back(s, s.linear(s.reshape(o, b, t, h * d), dim), x))


def mlp(s, x):
    n = any_norm(s, x) if s.chance(0.8) else x
    dim = s.shape(x)[-1]
    wide = s.pick(dim, 2 * dim, 3 * dim, 4 * dim, int(dim * 8 / 3) | 1, max(8, dim // 2), 37)
    kind = s.rng.randrange(4)
    if kind == 0:
        y = s.activation(s.linear(n, wide))
    elif kind == 1:
        y = s.mul(s.activation(s.linear(n, wide)), s.linear(n, wide))
    elif kind == 2:
        both = s.linear(n, 2 * wide)
        y = s.mul(s.activation(s.slice(both, -1, 0, wide)), s.slice(both, -1, wide, 2 * wide))
        if s.chance(0.3):
            y = any_norm(s, y)
    else:                                                                   # interleaved columns
        both = s.linear(n, 2 * wide)
        gate = s.map("minimum", s.slice(both, -1, 0, 2 * wide, 2), 7.0)
        up = s.map("clamp", s.slice(both, -1, 1, 2 * wide, 2), min=-7.0, max=7.0)
        y = s.mul(s.mul(gate, s.map("sigmoid", s.mul(gate, 1.702))), s.add(up, 1.0))
    return residual(s, x, s.linear(y, dim))


def experts(s, x):
    """A router over a few experts, all of which are computed; weights renormalised over the chosen."""
    n = any_norm(s, x)
    shape = s.shape(n)
    flat = n if len(shape) == 2 else s.reshape(n, shape[0] * shape[1], shape[2])
    t, dim = s.shape(flat)
    e, f = s.pick(2, 4, 8), s.pick(16, 64, 128, max(8, dim // 2))
    if t * e * f > 2 ** 24 or e * f * dim > 2 ** 25:
        return mlp(s, x)
    logits = s.matmul(flat, s.weight(dim, e))
    p = s.softmax(s.cast(logits, "float32")) if s.chance(0.5) else s.map("sigmoid", logits)
    p = s.map("where", s.input([t, e], dtype="bool"), p, 0.0)
    p = s.map("div", p, s.add(s.reduce("sum", p, -1), 1e-6))
    up = s.activation(s.einsum("td,edf->etf", flat, s.weight(e, dim, f)))
    if s.chance(0.5):
        up = s.mul(up, s.einsum("td,edf->etf", flat, s.weight(e, dim, f)))
    down = s.matmul(up, s.weight(e, f, dim))
    y = s.reduce("sum", s.mul(down, s.reshape(s.transpose(p, (1, 0)), e, t, 1)), 0, False)
    return residual(s, x, back(s, y, x) if len(shape) == 2 else s.reshape(y, *shape))


def convolution(s, x):
    """A convolution over tokens: depthwise by shifted slices, or of all channels by a product of shifted rows."""
    n = three(s, any_norm(s, x) if s.chance(0.5) else x)
    b, t, dim = s.shape(n)
    taps = s.pick(2, 3, 4)
    padded = s.concat(1, s.input([b, taps - 1, dim]), n)
    if s.chance(0.3):
        s.results.append(s.slice(padded, 1, t, t + taps - 1))
    if s.chance(0.6):
        y = None
        for i in range(taps):
            part = s.mul(s.slice(padded, 1, i, i + t), s.gain(dim))
            y = part if y is None else s.add(y, part)
        y = s.map("silu", s.add(y, s.gain(dim)))
    else:
        rows = s.concat(-1, *[s.slice(padded, 1, i, i + t) for i in range(taps)])
        y = s.activation(s.linear(rows, dim))
    return residual(s, x, back(s, s.linear(y, dim), x))


def image(s, x):
    """Channels first: a 1 x 1 convolution of a transposed state, group or batch norm, squeeze and excite."""
    n = three(s, x)
    b, t, dim = s.shape(n)
    c = s.transpose(n, (0, 2, 1))
    out = s.pick(dim, 2 * dim, max(4, dim // 2))
    y = s.matmul(s.weight(out, dim), c) if s.chance(0.5) else s.einsum("oc,bct->bot", s.weight(out, dim), c)
    kind = s.rng.randrange(3)
    if kind == 0 and out % 4 == 0:
        y = s.norm("group_norm", y, s.gain(out), s.gain(out), groups=4)
    elif kind == 1:
        y = s.norm("batch_norm", y, s.input([out]), s.input([out], low=0.5, high=2.0), s.gain(out), s.gain(out))
    y = s.activation(y)
    if s.chance(0.6):
        pooled = s.reduce("mean", y, 2, False)
        r = max(1, out // 8)
        gate = s.map("sigmoid", s.linear(s.map("relu", s.linear(pooled, r)), out))
        y = s.mul(y, s.reshape(gate, b, out, 1))
    y = s.matmul(s.weight(dim, out), y)
    return residual(s, x, back(s, s.transpose(y, (0, 2, 1)), x))


def mixer(s, x):
    """Products over tokens instead of channels (MLP-Mixer, gMLP)."""
    n = three(s, any_norm(s, x))
    b, t, dim = s.shape(n)
    if t < 2:
        return mlp(s, x)
    if s.chance(0.5):
        y = s.matmul(s.activation(s.matmul(s.transpose(n, (0, 2, 1)), s.weight(t, 2 * t))), s.weight(2 * t, t))
        return residual(s, x, back(s, s.transpose(y, (0, 2, 1)), x))
    half = max(1, dim // 2)
    both = s.activation(s.linear(n, 2 * half))
    u, v = s.slice(both, -1, 0, half), s.slice(both, -1, half, 2 * half)
    v = s.norm("layer_norm", v, axis=-1)
    v = s.add(s.einsum("ut,btd->bud", s.weight(t, t), v), s.gain(t, 1))
    return residual(s, x, back(s, s.linear(s.mul(u, v), dim), x))


def cell(s, x):
    """A recurrent cell over the rows: LSTM, GRU, a minimal gated unit, or a state of outer products."""
    shape = s.shape(x)
    dim = shape[-1]
    h = s.pick(dim, dim, max(8, dim // 2))
    old = s.input(shape[:-1] + [h])
    kind = s.rng.randrange(3)
    if kind == 0:
        gates = s.add(s.linear(x, 4 * h), s.linear(old, 4 * h))
        i, f, g, o = (s.slice(gates, -1, j * h, (j + 1) * h) for j in range(4))
        memory = s.input(shape[:-1] + [h], 2)
        c = s.add(s.mul(s.map("sigmoid", f), memory), s.mul(s.map("sigmoid", i), s.map("tanh", g)))
        s.results.append(c)
        new = s.mul(s.map("sigmoid", o), s.map("tanh", c))
    elif kind == 1:
        gx, gh = s.linear(x, 3 * h, True), s.linear(old, 3 * h, True)
        r = s.map("sigmoid", s.add(s.slice(gx, -1, 0, h), s.slice(gh, -1, 0, h)))
        z = s.map("sigmoid", s.add(s.slice(gx, -1, h, 2 * h), s.slice(gh, -1, h, 2 * h)))
        n = s.map("tanh", s.add(s.slice(gx, -1, 2 * h, 3 * h), s.mul(r, s.slice(gh, -1, 2 * h, 3 * h))))
        new = s.add(s.mul(s.map("sub", 1.0, z), n), s.mul(z, old))
    else:
        f = s.map("sigmoid", s.linear(s.concat(-1, x, old), h))
        new = s.add(s.mul(f, old), s.mul(s.map("sub", 1.0, f), s.map("tanh", s.linear(x, h))))
    if s.chance(0.3):
        s.results.append(new)
    return residual(s, x, new if h == dim else s.linear(new, dim))


def pooling(s, x):
    """Neighbours merged or the sequence pooled, and brought back to its length by repetition."""
    n = three(s, x)
    b, t, dim = s.shape(n)
    kind = s.rng.randrange(4)
    if kind == 0 and t % 2 == 0:                                            # patch merging
        both = s.concat(-1, s.slice(n, 1, 0, t, 2), s.slice(n, 1, 1, t, 2))
        y = s.linear(s.norm("layer_norm", both, s.gain(2 * dim), axis=-1), dim, False)
        y = s.reshape(s.repeat(s.reshape(y, b, t // 2, 1, dim), 2, 2), b, t, dim)
    elif kind == 1 and t % 4 == 0:
        y = s.reduce(s.pick("max", "mean"), s.reshape(n, b, t // 4, 4, dim), 2)
        y = s.reshape(s.repeat(y, 2, 4), b, t, dim)
    elif kind == 2:                                                         # the whole sequence, weighted
        w = s.softmax(s.matmul(s.map("tanh", s.linear(n, max(4, dim // 4))), s.weight(max(4, dim // 4), 1)), 1)
        y = s.linear(s.reduce("sum", s.mul(n, w), 1), dim)
    else:
        y = s.linear(s.concat(-1, s.reduce("max", n, 1), s.reduce("mean", n, 1)), dim)
    return s.add(x, back(s, y, x)) if s.shape(y) == s.shape(n) else back(s, s.add(n, y), x)


def modulation(s, x):
    """adaLN or FiLM: scale, shift and gate from a condition per sequence, around a small sublayer."""
    n3 = three(s, x)
    b, t, dim = s.shape(n3)
    c = s.pick(32, 100, 256)
    m = s.linear(s.map("silu", s.input([b, c])), 3 * dim, True)
    if s.chance(0.5):
        m = s.reshape(m, b, 3, dim)
        shift, scale, gate = (s.slice(m, 1, i, i + 1) for i in range(3))
    else:
        shift, scale, gate = (s.reshape(s.slice(m, -1, i * dim, (i + 1) * dim), b, 1, dim) for i in range(3))
    n = s.add(s.mul(s.norm("layer_norm", n3, axis=-1), s.add(scale, 1.0)), shift)
    y = s.linear(s.activation(s.linear(n, s.pick(dim, 2 * dim))), dim) if s.chance(0.7) else s.activation(n)
    return back(s, s.add(n3, s.mul(y, gate)), x)


def chain(s, x):
    """Elementwise operators and reductions without products."""
    shape = s.shape(x)
    d = shape[-1]
    y = x
    for _ in range(s.rng.randrange(3, 9)):
        kind = s.rng.randrange(9)
        if kind < 3:
            y = s.activation(y)
        elif kind == 3:
            y = s.mul(y, s.gain(d))
        elif kind == 4:
            y = s.add(y, s.input(shape))
        elif kind == 5:
            y = s.map("div", y, s.add(s.reduce("max", s.map("abs", y), -1), 1e-3))
        elif kind == 6:
            y = s.map("sub", y, s.reduce("mean", y, -1))
        elif kind == 7:
            y = s.map("where", s.input(shape[:-1] + [1], dtype="bool"), y, s.pick(0.0, 1.0))
        else:
            y = s.mul(y, s.softmax(s.mul(x, 0.5)))
    return s.add(x, s.map("tanh", y))


def bilinear(s, x):
    """Interactions: features of a row times each other (factorisation machines), or a triangle product over tokens."""
    n = three(s, any_norm(s, x))
    b, t, dim = s.shape(n)
    if s.chance(0.5) and t <= 300:
        c = s.pick(8, 16, 32)
        a = s.mul(s.linear(n, c), s.map("sigmoid", s.linear(n, c)))
        pairs = s.einsum("btc,buc->btu", a, s.linear(n, c, False))
        y = s.matmul(s.mul(s.activation(pairs), 1.0 / t), n)
        return residual(s, x, back(s, y, x))
    f = s.pick(4, 6, 8)
    e = s.reshape(s.linear(n, f * 16), b, t, f, 16)
    dots = s.reshape(s.matmul(e, e, transpose_b=True), b, t, f * f)
    return residual(s, x, back(s, s.linear(dots, dim), x))


def parallel(s, x):
    """Sublayers beside each other that read one norm (GPT-J, PaLM), or a highway gate."""
    n = any_norm(s, x)
    dim = s.shape(x)[-1]
    if s.chance(0.5):
        a = s.linear(s.activation(s.linear(n, 2 * dim)), dim)
        c = s.linear(s.mul(s.map("silu", s.linear(n, dim)), s.linear(n, dim)), dim)
        return s.add(s.add(x, a), c)
    t = s.map("sigmoid", s.linear(n, dim, True))
    return s.add(s.mul(t, s.activation(s.linear(n, dim))), s.mul(s.map("sub", 1.0, t), x))


def windows(s, x):
    """The sequence in windows, mixed inside and put back; or rolled by a concatenation of two slices."""
    n = three(s, x)
    b, t, dim = s.shape(n)
    for w in (7, 8, 5, 4, 3, 2):
        if t % w == 0 and t > w:
            y = s.reshape(any_norm(s, n), b, t // w, w, dim)
            p = s.softmax(s.mul(s.matmul(y, y, transpose_b=True), dim ** -0.5))
            return residual(s, x, back(s, s.reshape(s.matmul(p, s.linear(y, dim, False)), b, t, dim), x))
    if t < 2:
        return chain(s, x)
    k = max(1, t // 3)
    rolled = s.concat(1, s.slice(n, 1, k, t), s.slice(n, 1, 0, k))
    return residual(s, x, back(s, s.linear(rolled, dim), x))


def branch_of_channels(s, x):
    """Channels divided: one part through a product, one through maps, joined again; odd shares."""
    dim = s.shape(x)[-1]
    k = max(1, int(dim * s.pick(0.25, 0.3, 0.5)))
    a, c = s.slice(x, -1, 0, k), s.slice(x, -1, k, dim)
    a = s.linear(any_norm(s, a), k)
    c = s.activation(c) if s.chance(0.5) else s.linear(c, dim - k)
    joined = s.concat(-1, c, a) if s.chance(0.3) else s.concat(-1, a, c)
    return residual(s, x, joined)


LAYERS = [
    attention,
    attention,
    attention,
    mlp,
    mlp,
    mlp,
    linear_attention,
    experts,
    convolution,
    image,
    mixer,
    cell,
    pooling,
    modulation,
    chain,
    chain,
    bilinear,
    parallel,
    windows,
    branch_of_channels,
]


# -- ends
def end(s, x):
    """What a block may end in besides its state: logits, a loss, similarities, pooled features."""
    kind = s.rng.randrange(6)
    shape = s.shape(x)
    dim = shape[-1]
    if kind == 0:
        n = s.pick(10, 97, 1000, 4099)
        logits = s.linear(any_norm(s, x), n, False)
        s.results.append(logits if s.chance(0.5) else s.softmax(logits))
    elif kind == 1:                                                         # cross entropy of given targets, per row
        n = s.pick(10, 97, 1000)
        logits = s.linear(any_norm(s, x), n, False)
        top = s.reduce("max", logits, -1)
        total = s.add(s.map("log", s.reduce("sum", s.map("exp", s.map("sub", logits, top)), -1)), top)
        s.results.append(s.map("sub", total, s.reduce("sum", s.mul(logits, s.input(shape[:-1] + [n])), -1)))
    elif kind == 2:                                                         # a mean squared error
        s.results.append(s.reduce("mean", s.map("square", s.map("sub", x, s.input(shape))), list(range(len(shape))), False))
    elif kind == 3 and len(shape) == 3:
        s.results.append(s.linear(s.norm("l2_norm", s.reduce("mean", x, 1, False), axis=-1), s.pick(16, 100)))
    elif kind == 4 and len(shape) == 2:
        a = s.norm("l2_norm", x, axis=-1)
        c = s.norm("l2_norm", s.input([s.pick(16, 101, 512), dim]), axis=-1)
        s.results.append(s.mul(s.matmul(a, c, transpose_b=True), 20.0))
    s.results.append(x)
