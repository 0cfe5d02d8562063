"""Blocks of published models at their sizes, as their users write them, for backend_bench.py."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def linear(i, o):
    return nn.Linear(i, o, bias=False)


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(d) * 0.2 + 0.9), eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.float()).to(x.dtype)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Decoder(nn.Module):
    """One step of decoding: a row per sequence attends to its cache of keys and values; the new ones, for the cache, are results. qk_norm makes Llama's layer Qwen3's; gemma (norms behind, softcap, gelu) Gemma-2's.
    """

    def __init__(self, d, heads, groups, e, ff, qk_norm=False, gemma=False):
        super().__init__()
        self.heads, self.groups, self.e, self.gemma = heads, groups, e, gemma
        self.before, self.middle = RMSNorm(d), RMSNorm(d)
        self.behind, self.last = (RMSNorm(d), RMSNorm(d)) if gemma else (nn.Identity(), nn.Identity())
        self.q_norm, self.k_norm = (RMSNorm(e), RMSNorm(e)) if qk_norm else (nn.Identity(), nn.Identity())
        self.q, self.k, self.v = linear(d, heads * e), linear(d, groups * e), linear(d, groups * e)
        self.o, self.gate, self.up, self.down = linear(heads * e, d), linear(d, ff), linear(d, ff), linear(ff, d)

    def attention(self, q, k, v):
        rows = q.shape[0]
        if not self.gemma:
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).reshape(rows, -1)
        q = q.view(rows, self.groups, self.heads // self.groups, self.e)
        s = torch.tanh(q @ k.transpose(-1, -2) / math.sqrt(self.e) / 50.0) * 50.0
        return (s.float().softmax(-1).to(v.dtype) @ v).reshape(rows, -1)

    def forward(self, x, keys, values, cos, sin):
        rows, h = x.shape[0], self.before(x)
        q = self.q_norm(self.q(h).view(rows, self.heads, 1, self.e))
        k = self.k_norm(self.k(h).view(rows, self.groups, 1, self.e))
        v = self.v(h).view(rows, self.groups, 1, self.e)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        x = x + self.behind(self.o(self.attention(q, keys, values)))
        h = self.middle(x)
        gate = F.gelu(self.gate(h), approximate="tanh") if self.gemma else F.silu(self.gate(h))
        return x + self.last(self.down(gate * self.up(h))), k, v


class Mlp(nn.Module):
    def __init__(self, d, ff):
        super().__init__()
        self.norm, self.gate, self.up, self.down = RMSNorm(d), linear(d, ff), linear(d, ff), linear(ff, d)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class DiT(nn.Module):
    """A block of DiT-XL/2."""

    def __init__(self, d=1152, heads=16):
        super().__init__()
        self.heads, self.mod, self.norm = heads, nn.Linear(d, 6 * d), nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj, self.fc1, self.fc2 = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, c):
        s1, g1, a1, s2, g2, a2 = self.mod(F.silu(c)).unsqueeze(1).chunk(6, -1)
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x) * (1 + g1) + s1).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + a1 * self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + a2 * self.fc2(F.gelu(self.fc1(self.norm(x) * (1 + g2) + s2), approximate="tanh"))


class ViT(nn.Module):
    """A block of ViT-B/16."""

    def __init__(self, d=768, heads=12):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(d, eps=1e-6), nn.LayerNorm(d, eps=1e-6)
        self.qkv, self.proj, self.fc1, self.fc2 = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Basic(nn.Module):
    """A block of ResNet-18; with another number of channels than it is given, its first one of a stage."""

    def __init__(self, i, o, stride=1):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if i != o else nn.Identity()

    def forward(self, x):
        return F.relu(self.short(x) + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


def resnet18():
    stages = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *[Basic(*s) for s in stages], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def decoding(groups, e, keys=1024):
    """The arguments of a decoder's step, by rows."""
    return lambda b, d: (
        torch.randn(b, d),
        torch.randn(b, groups, keys, e),
        torch.randn(b, groups, keys, e),
        torch.rand(1, 1, 1, e),
        torch.rand(1, 1, 1, e),
    )


# Name: (module, its arguments by batch, the batches, the arguments whose dimension 0 the batch is).
MODELS = {
    "norm + gated MLP 2048 x 8192": (lambda: Mlp(2048, 8192), lambda b: (torch.randn(b, 2048),), (16, 4, 1), ("x",)),
    "Llama-3.2-1B, decoding": (
        lambda: Decoder(2048, 32, 8, 64, 8192), lambda b: decoding(8, 64)(b, 2048), (16, 4, 1), ("x", "keys", "values")
    ),
    "Qwen3-0.6B, decoding": (
        lambda: Decoder(1024, 16, 8, 128, 3072, qk_norm=True), lambda b: decoding(8, 128)(b, 1024), (16, 4, 1), ("x", "keys", "values")
    ),
    "Gemma-2-2B, decoding": (
        lambda: Decoder(2304, 8, 4, 256, 9216, gemma=True), lambda b: decoding(4, 256)(b, 2304), (16, 4, 1), ("x", "keys", "values")
    ),
    "DiT-XL/2 block, 256 tokens": (DiT, lambda b: (torch.randn(b, 256, 1152), torch.randn(b, 1152)), (2,), ()),
    "ViT-B/16 block, 197 tokens": (ViT, lambda b: (torch.randn(b, 197, 768),), (4,), ()),
    "ResNet-18 block, 128 x 28 x 28": (lambda: Basic(128, 128), lambda b: (torch.randn(b, 128, 28, 28),), (16, 4, 1), ("x",)),
    "ResNet-18": (resnet18, lambda b: (torch.randn(b, 3, 224, 224),), (16, 4, 1), ("args[0]",)),
}
