"""diffusion.py - golden values of layers and models of diffusion: small ones, put together here of torch.nn's layers.
See golden.py for the format and the command. Modules have our names, except that lists count from 0."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from golden import Golden, per_head, rand

gen = torch.Generator().manual_seed(71)
golden = Golden("diffusion")


def attend(q, k, v, heads, mask=None):
    """(b, s, heads d) each; mask (b, t), 0 hides a key."""
    def split(x):
        return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)
    q, k, v = split(q), split(k), split(v)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None, :] == 0, -math.inf)
    y = torch.softmax(scores, -1) @ v
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)


class Attention(nn.Module):
    def __init__(self, width, heads, qkv_bias=True):
        super().__init__()
        self.heads = heads
        self.qkv, self.output = nn.Linear(width, 3 * width, bias=qkv_bias), nn.Linear(width, width)

    def forward(self, x):
        return self.output(attend(*self.qkv(x).chunk(3, 2), self.heads))


class CrossAttention(nn.Module):
    def __init__(self, width, heads, context, input_bias=True):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=input_bias)
        self.key_value = nn.Linear(context, 2 * width, bias=input_bias)
        self.output = nn.Linear(width, width)

    def forward(self, x, context, mask=None):
        return self.output(attend(self.query(x), *self.key_value(context).chunk(2, 2), self.heads, mask))


class TimeEmbedding(nn.Module):
    def __init__(self, channels, width, shift=0, sine_first=False):
        super().__init__()
        self.first, self.second = nn.Linear(channels, width), nn.Linear(width, width)
        half = channels // 2
        self.frequencies = torch.exp(-math.log(10000) * torch.arange(half) / (half - shift))
        self.sine_first = sine_first

    def forward(self, t):
        angle = t[:, None].double() * self.frequencies
        waves = [angle.sin(), angle.cos()] if self.sine_first else [angle.cos(), angle.sin()]
        return self.second(F.silu(self.first(torch.cat(waves, 1))))


class AdaptiveGroupNorm(nn.Module):
    def __init__(self, groups, channels, condition):
        super().__init__()
        self.norm, self.modulation = nn.GroupNorm(groups, channels), nn.Linear(condition, 2 * channels)

    def forward(self, x, c):
        scale, shift = self.modulation(F.silu(c))[:, :, None, None].chunk(2, 1)
        return self.norm(x) * (1 + scale) + shift


class AdaptiveLayerNorm(nn.Module):
    def __init__(self, width, parts):
        super().__init__()
        self.parts, self.modulation = parts, nn.Linear(width, parts * width)

    def forward(self, x, c):
        shift, scale, *gate = self.modulation(F.silu(c))[:, None].chunk(self.parts, 2)
        return (F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift, *gate)


class Block(nn.Module):
    """TimeResidualBlock."""

    def __init__(self, inputs, outputs, condition=None, groups=2, scale_shift=False, eps=1e-5):
        super().__init__()
        self.norm1, self.first = nn.GroupNorm(groups, inputs, eps), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.scale_shift = scale_shift
        if scale_shift:
            self.norm2 = AdaptiveGroupNorm(groups, outputs, condition)
        else:
            if condition:
                self.time = nn.Linear(condition, outputs)
            self.norm2 = nn.GroupNorm(groups, outputs, eps)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        if inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, time=None):
        y = self.first(F.silu(self.norm1(x)))
        if hasattr(self, "time"):
            y = y + self.time(F.silu(time))[:, :, None, None]
        y = self.norm2(y, time) if self.scale_shift else self.norm2(y)
        y = self.second(F.silu(y))
        return y + (self.shortcut(x) if hasattr(self, "shortcut") else x)


class SpatialAttention(nn.Module):
    def __init__(self, channels, heads, groups=2):
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(groups, channels, 1e-6), Attention(channels, heads)

    def forward(self, x):
        y = self.attention(self.norm(x).flatten(2).transpose(1, 2))
        return x + y.transpose(1, 2).reshape(x.shape)


class MLP(nn.Module):
    def __init__(self, width, hidden, gated):
        super().__init__()
        self.gated = gated
        if gated:
            self.gate = nn.Linear(width, hidden)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        y = F.gelu(self.gate(x)) * self.up(x) if self.gated else F.gelu(self.up(x), approximate="tanh")
        return self.down(y)


class TransformerBlock(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, qkv_bias=False)
        self.cross = CrossAttention(width, heads, context, input_bias=False)
        self.mlp = MLP(width, 4 * width, True)

    def forward(self, x, context):
        x = x + self.attention(self.norm1(x))
        x = x + self.cross(self.norm2(x), context)
        return x + self.mlp(self.norm3(x))


class SpatialTransformer(nn.Module):
    def __init__(self, channels, heads, context, groups=2):
        super().__init__()
        self.norm, self.enter = nn.GroupNorm(groups, channels, 1e-6), nn.Conv2d(channels, channels, 1)
        self.blocks = nn.ModuleList([TransformerBlock(channels, heads, context)])
        self.leave = nn.Conv2d(channels, channels, 1)

    def forward(self, x, context):
        y = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        for block in self.blocks:
            y = block(y, context)
        return x + self.leave(y.transpose(1, 2).reshape(x.shape))


class DiTBlock(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.norm1, self.attention = AdaptiveLayerNorm(width, 3), Attention(width, heads)
        self.norm2, self.mlp = AdaptiveLayerNorm(width, 3), MLP(width, hidden, False)

    def forward(self, x, c):
        y, gate = self.norm1(x, c)
        x = x + gate * self.attention(y)
        y, gate = self.norm2(x, c)
        return x + gate * self.mlp(y)


class Resampling(nn.Module):
    def __init__(self, channels, how):
        super().__init__()
        self.how = how
        self.convolution = nn.Conv2d(channels, channels, 3, 1 if how == "up" else 2, 0 if how == "behind" else 1)

    def forward(self, x):
        if self.how == "up":
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        return self.convolution(F.pad(x, (0, 1, 0, 1)) if self.how == "behind" else x)


class Step(nn.Module):
    def __init__(self, inputs, outputs, attends, width, heads, context, scale_shift):
        super().__init__()
        self.block = Block(inputs, outputs, 4 * width, scale_shift=scale_shift)
        if attends:
            self.attention = (SpatialTransformer(outputs, heads, context) if context
                              else SpatialAttention(outputs, heads))
        self.context = context

    def forward(self, x, time, context):
        x = self.block(x, time)
        if not hasattr(self, "attention"):
            return x
        return self.attention(x, context) if self.context else self.attention(x)


class UNet(nn.Module):
    """Two levels, the first with attention, one block each."""

    def __init__(self, channels, width, heads, context=None, classes=None, scale_shift=False, attention=(1,)):
        super().__init__()
        self.time = TimeEmbedding(width, 4 * width)
        if classes:
            self.classes = nn.Embedding(classes, 4 * width)
        self.enter = nn.Conv2d(channels, width, 3, padding=1)

        def step(inputs, outputs, attends):
            return Step(inputs, outputs, attends, width, heads, context, scale_shift)
        first, second, w = 1 in attention, 2 in attention, width
        self.down = nn.ModuleList([step(w, w, first), Resampling(w, "down"), step(w, 2 * w, second)])
        self.middle = nn.ModuleList([step(2 * w, 2 * w, True), step(2 * w, 2 * w, False)])
        self.up = nn.ModuleList([step(4 * w, 2 * w, second), step(3 * w, 2 * w, second), Resampling(2 * w, "up"),
                                 step(3 * w, w, first), step(2 * w, w, first)])
        self.norm, self.leave = nn.GroupNorm(2, w), nn.Conv2d(w, channels, 3, padding=1)

    def forward(self, x, t, condition=None):
        time = self.time(t)
        if hasattr(self, "classes"):
            time = time + self.classes(condition)
        x = self.enter(x)
        kept = [x]
        for step in self.down:
            x = step(x, time, condition) if isinstance(step, Step) else step(x)
            kept.append(x)
        for step in self.middle:
            x = step(x, time, condition)
        for step in self.up:
            x = step(torch.cat([x, kept.pop()], 1), time, condition) if isinstance(step, Step) else step(x)
        assert not kept
        return self.leave(F.silu(self.norm(x)))


class DiT(nn.Module):
    def __init__(self, rows, columns, patch, channels, width, depth, heads, classes, frequencies):
        super().__init__()
        self.grid, self.patch, self.channels = (rows, columns), patch, channels
        self.time = TimeEmbedding(frequencies, width)
        self.classes = nn.Embedding(classes, width)
        self.patches = nn.Linear(channels * patch * patch, width)
        self.blocks = nn.ModuleList(DiTBlock(width, heads, 2 * width) for _ in range(depth))
        self.norm, self.leave = AdaptiveLayerNorm(width, 2), nn.Linear(width, channels * patch * patch)
        row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        omega = 10000.0 ** (-torch.arange(width // 4) / (width / 4))
        parts = [f(place.reshape(-1, 1) * omega) for place in (column, row) for f in (torch.sin, torch.cos)]
        self.positions = torch.cat(parts, 1)[None]

    def forward(self, x, t, label):
        (rows, columns), p, b = self.grid, self.patch, x.shape[0]
        c = self.time(t) + self.classes(label)
        x = x.reshape(b, self.channels, rows, p, columns, p).permute(0, 2, 4, 1, 3, 5).reshape(b, rows * columns, -1)
        x = self.patches(x) + self.positions
        for block in self.blocks:
            x = block(x, c)
        x = self.leave(self.norm(x, c)[0]).reshape(b, rows, columns, p, p, self.channels)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(b, self.channels, rows * p, columns * p)


class Autoencoder(nn.Module):
    """AutoencoderKL of two levels, one block each, in evaluation: the outputs in one row."""

    def __init__(self, channels, latent, width):
        super().__init__()
        w = width

        def block(inputs, outputs):
            return Block(inputs, outputs, groups=1, eps=1e-6)

        def middle():
            return [block(2 * w, 2 * w), SpatialAttention(2 * w, 1, 1), block(2 * w, 2 * w)]

        def conv(inputs, outputs, kernel=3):
            return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
        self.encoder = nn.ModuleList([conv(channels, w), block(w, w), Resampling(w, "behind"), block(w, 2 * w),
                                      *middle(), nn.GroupNorm(1, 2 * w, 1e-6), nn.SiLU(), conv(2 * w, 2 * latent)])
        self.moments, self.from_latent = conv(2 * latent, 2 * latent, 1), conv(latent, latent, 1)
        self.decoder = nn.ModuleList([conv(latent, 2 * w), *middle(), block(2 * w, 2 * w), block(2 * w, 2 * w),
                                      Resampling(2 * w, "up"), block(2 * w, w), block(w, w),
                                      nn.GroupNorm(1, w, 1e-6), nn.SiLU(), conv(w, channels)])

    def forward(self, x):
        for layer in self.encoder:
            x = layer(x)
        mean, log_variance = self.moments(x).chunk(2, 1)
        x = self.from_latent(mean)
        for layer in self.decoder:
            x = layer(x)
        return torch.cat([x.reshape(-1), mean.reshape(-1), log_variance.clamp(-30, 20).reshape(-1)])


def ours(name):
    """blocks.0.norm1.weight -> blocks.1.norm1.weight: lists count from 1."""
    return ".".join(str(int(part) + 1) if part.isdigit() else part for part in name.split("."))


def pairs_of_heads(rows, heads):
    """(2 width, ...) ordered (2, heads, d) -> the same rows ordered (heads, 2, d)."""
    rest, d = rows.shape[1:], rows.shape[0] // (2 * heads)
    return rows.reshape(2, heads, d, *rest).transpose(0, 1).reshape(rows.shape).contiguous()


def judge(name, layer, model, options, inputs, heads, registry="layers", **more):
    params = {}
    for key, p in model.named_parameters():
        scale = 0.5 / math.sqrt(max(1, p[0].numel())) if p.dim() > 1 else 0.2
        p.data = torch.randn(p.shape, generator=gen) * scale + (p.dim() == 1 and key.endswith("weight"))
        order = None
        if ".qkv." in "." + key:
            order = lambda rows: per_head(rows, heads)
        if "key_value." in key:
            order = lambda rows: pairs_of_heads(rows, heads)
        params[ours(key)] = (p, order)
    y = model(*inputs)
    golden.case(name, layer, options, inputs, params, y, torch.randn(y.shape, generator=gen), registry=registry,
                **more)


def whole(*numbers):
    return torch.tensor(numbers)


mask = torch.tensor([[1, 1, 0], [1, 0, 1]], dtype=torch.uint8)
judge("diffusion.cross", "CrossAttention", CrossAttention(6, 3, 4), dict(width=6, heads=3, context=4),
      [rand(gen, 2, 5, 6), rand(gen, 2, 3, 4), mask], 3)
judge("diffusion.time", "TimeEmbedding", TimeEmbedding(6, 4), dict(channels=6, width=4), [whole(0, 3, 999)], 1)
judge("diffusion.time.ddpm", "TimeEmbedding", TimeEmbedding(6, 4, 1, True),
      dict(channels=6, width=4, shift=1, sine_first=True), [whole(0, 3, 999)], 1)
judge("diffusion.block", "TimeResidualBlock", Block(4, 6, 3), dict(inputs=4, outputs=6, condition=3, groups=2),
      [rand(gen, 2, 4, 3, 5), rand(gen, 2, 3)], 1)
judge("diffusion.block.adaptive", "TimeResidualBlock", Block(4, 4, 3, scale_shift=True),
      dict(inputs=4, outputs=4, condition=3, groups=2, scale_shift=True), [rand(gen, 2, 4, 3, 2), rand(gen, 2, 3)], 1)
judge("diffusion.down", "Downsample", Resampling(2, "down"), dict(channels=2), [rand(gen, 2, 2, 5, 4)], 1)
judge("diffusion.down.behind", "Downsample", Resampling(2, "behind"), dict(channels=2, behind=True),
      [rand(gen, 2, 2, 5, 4)], 1)
judge("diffusion.up", "Upsample", Resampling(2, "up"), dict(channels=2), [rand(gen, 2, 2, 3, 2)], 1)
judge("diffusion.dit.block", "DiTBlock", DiTBlock(8, 2, 16), dict(width=8, heads=2, mlp_ratio=2),
      [rand(gen, 2, 5, 8), rand(gen, 2, 8)], 2)
small = dict(channels=2, width=4, multipliers=[1, 2], blocks=1, groups=2, heads=2)
judge("diffusion.unet.context", "UNet", UNet(2, 4, 2, context=3), dict(small, context=3),
      [rand(gen, 2, 2, 4, 6), whole(7, 400), rand(gen, 2, 3, 3)], 2, "models")
judge("diffusion.unet.classes", "UNet", UNet(2, 4, 2, classes=3, scale_shift=True, attention=(2,)),
      dict(small, classes=3, scale_shift=True, attention=[2]), [rand(gen, 2, 2, 4, 4), whole(7, 400), whole(2, 0)], 2,
      "models")
judge("diffusion.dit", "DiT", DiT(3, 2, 2, 2, 8, 2, 2, 3, 6),
      dict(image_size=[6, 4], patch_size=2, channels=2, width=8, depth=2, heads=2, mlp_ratio=2, classes=3,
           frequencies=6), [rand(gen, 2, 2, 6, 4), whole(7, 400), whole(2, 0)], 2, "models")
judge("diffusion.autoencoder", "AutoencoderKL", Autoencoder(2, 2, 4),
      dict(channels=2, latent=2, width=4, multipliers=[1, 2], blocks=1, groups=1), [rand(gen, 2, 2, 6, 4)], 1, "models",
      eval=True)
golden.write()
