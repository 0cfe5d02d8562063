"""Small blocks of the kinds that models are made of, as their users write them."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(d) + 0.5), eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


def rotate(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Decoder(nn.Module):
    """Llama's, with grouped heads; softcap and sandwich norms make it Gemma-2's, qk_norm Qwen3's."""

    def __init__(self, d=32, heads=4, kv=2, ff=48, softcap=0.0, qk_norm=False, act=F.silu):
        super().__init__()
        self.heads, self.kv, self.dim, self.softcap, self.act = heads, kv, d // heads, softcap, act
        self.q, self.k, self.v = (
            nn.Linear(d, d, bias=False),
            nn.Linear(d, kv * self.dim, bias=False),
            nn.Linear(d, kv * self.dim, bias=False),
        )
        self.o, self.gate, self.up, self.down = (
            nn.Linear(d, d, bias=False),
            nn.Linear(d, ff, bias=False),
            nn.Linear(d, ff, bias=False),
            nn.Linear(ff, d, bias=False),
        )
        self.n1, self.n2 = RMSNorm(d), RMSNorm(d)
        self.qn, self.kn = (RMSNorm(self.dim), RMSNorm(self.dim)) if qk_norm else (nn.Identity(), nn.Identity())

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        h = self.n1(x)
        q, k, v = (m(h).view(b, t, n, self.dim).transpose(1, 2) for m, n in ((self.q, self.heads), (self.k, self.kv), (self.v, self.kv)))
        q, k = self.qn(q), self.kn(k)
        q, k = q * cos + rotate(q) * sin, k * cos + rotate(k) * sin
        if self.softcap:
            k, v = (z.repeat_interleave(self.heads // self.kv, 1) for z in (k, v))
            s = q @ k.transpose(-1, -2) / math.sqrt(self.dim)
            s = self.softcap * torch.tanh(s / self.softcap)
            mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
            a = s.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        else:
            k, v = (
                z[:, :, None].expand(b, self.kv, self.heads // self.kv, t, self.dim).reshape(b, self.heads, t, self.dim) for z in (k, v)
            )
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        h = self.n2(x)
        return x + self.down(self.act(self.gate(h)) * self.up(h))


class DiT(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.mod, self.norm = nn.Linear(d, 6 * d), nn.LayerNorm(d, elementwise_affine=False)
        self.qkv, self.proj, self.mlp = (
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
            nn.Sequential(nn.Linear(d, 64), nn.GELU("tanh"), nn.Linear(64, d)),
        )

    def forward(self, x, c):
        s1, g1, a1, s2, g2, a2 = self.mod(F.silu(c)).chunk(6, dim=1)
        h = self.norm(x) * (1 + g1.unsqueeze(1)) + s1.unsqueeze(1)
        b, t, d = h.shape
        q, k, v = self.qkv(h).reshape(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + a1.unsqueeze(1) * self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + a2.unsqueeze(1) * self.mlp(self.norm(x) * (1 + g2.unsqueeze(1)) + s2.unsqueeze(1))


class Residual(nn.Module):
    def __init__(self, body, after=F.relu):
        super().__init__()
        self.body, self.after = body, after

    def forward(self, x):
        return self.after(x + self.body(x))


class Squeeze(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.a, self.b = nn.Linear(c, 4), nn.Linear(4, c)

    def forward(self, x):
        return x * torch.sigmoid(self.b(F.relu(self.a(x.mean((2, 3))))))[:, :, None, None]


class Router(nn.Module):
    """The choice of experts is no function of sums: it stays outside of the regions."""

    def __init__(self, d=16, experts=4):
        super().__init__()
        self.gate, self.w = nn.Linear(d, experts), nn.Linear(d, d)

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        best, _ = torch.topk(p, 2, dim=-1)
        return self.w(x) * best.sum(-1, keepdim=True)


class Relative(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.q, self.k, self.v, self.bias = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Parameter(torch.randn(2, 6, 6))

    def forward(self, x):
        q, k, v = (m(x).view(x.shape[0], -1, 2, 8).transpose(1, 2) for m in (self.q, self.k, self.v))
        return torch.einsum("bhij,bhjd->bihd", (torch.einsum("bhid,bhjd->bhij", q, k) + self.bias).softmax(-1), v).flatten(2)


class LoRA(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.a, self.b = nn.Linear(16, 24), nn.Parameter(torch.randn(4, 16)), nn.Parameter(torch.randn(24, 4))

    def forward(self, x):
        return self.w(x) + 0.5 * (x @ self.a.t()) @ self.b.t()


class Cell(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(12, 16)

    def forward(self, x, h, c):
        out = self.cell(x, (h, c)) if isinstance(self.cell, nn.LSTMCell) else self.cell(x, h)
        return out[0] * 2 if isinstance(out, tuple) else out * 2


def modules():
    """Name -> (module, arguments); float32, in evaluation mode."""
    torch.manual_seed(0)
    r = torch.randn
    conv = nn.Conv2d
    image, tokens, rope = r(2, 8, 8, 8), r(2, 6, 16), (r(2, 5, 32), r(1, 1, 5, 8), r(1, 1, 5, 8))
    table = {
        "mlp": (nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), (r(4, 16),)),
        "llama": (Decoder(), rope),
        "qwen3": (Decoder(qk_norm=True), rope),
        "gemma2": (Decoder(softcap=5.0, act=lambda x: F.gelu(x, approximate="tanh")), rope),
        "gpt2": (nn.TransformerDecoderLayer(16, 2, 32, batch_first=True, norm_first=True), (tokens, r(2, 3, 16))),
        "bert": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu"), (tokens,)),
        "vit_patches": (nn.Sequential(conv(8, 16, 4, 4), nn.Flatten(2), nn.LayerNorm(4)), (image,)),
        "dit": (DiT(), (r(2, 5, 32), r(2, 32))),
        "resnet": (
            Residual(
                nn.Sequential(
                    conv(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), conv(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
                )
            ),
            (image,),
        ),
        "convnext": (
            nn.Sequential(conv(8, 8, 7, padding=3, groups=8), nn.GroupNorm(1, 8), conv(8, 16, 1), nn.GELU(), conv(16, 8, 1)),
            (image,),
        ),
        "mobilenet": (
            Residual(
                nn.Sequential(
                    conv(8, 16, 1), nn.BatchNorm2d(16), nn.ReLU6(), conv(16, 16, 3, 1, 1, groups=16), nn.Hardswish(), conv(16, 8, 1)
                ),
                nn.Identity(),
            ),
            (image,),
        ),
        "squeeze": (Squeeze(), (image,)),
        "head": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10), nn.LogSoftmax(1)), (image,)),
        "unet": (
            nn.Sequential(
                conv(8, 8, 3, padding=1),
                nn.SiLU(),
                nn.MaxPool2d(2),
                nn.Upsample(scale_factor=2, mode="nearest"),
                nn.ConvTranspose2d(8, 4, 2, 2),
            ),
            (image,),
        ),
        "router": (Router(), (r(4, 16),)),
        "relative": (Relative(), (tokens,)),
        "lora": (LoRA(), (r(4, 16),)),
        "lstm": (Cell(nn.LSTMCell), (r(3, 12), r(3, 16), r(3, 16))),
        "gru": (Cell(nn.GRUCell), (r(3, 12), r(3, 16), r(3, 16))),
        "bilinear": (nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.LayerNorm(16), nn.Softmax(1)), (r(4, 16),)),
        "words": (nn.Sequential(nn.Embedding(11, 16), nn.Linear(16, 8), nn.Softplus()), (torch.tensor([[1, 4, 10], [0, 2, 2]]),)),
    }
    return {k: (m.eval(), a) for k, (m, a) in table.items()}
