"""vision.py - golden values of models of images: VGG (a small one, put together here), ConvNeXt and Swin of
torchvision, MLP-Mixer of timm, a Vision Transformer on volumes; and of attention with a bias. See golden.py for the
format and the command; needs torchvision and timm besides."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from timm.models.mlp_mixer import MlpMixer
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.swin_transformer import SwinTransformer

from golden import Golden, per_head, rand

gen = torch.Generator().manual_seed(70)
golden = Golden("vision")


def fill(model):
    """Numbers of a size that lets every layer count; near 1 where norms multiply."""
    for key, p in model.named_parameters():
        p.data = torch.randn(p.shape, generator=gen) * 0.4 + (p.dim() == 1 and key.endswith("weight"))


def judge(name, layer, options, model, names, x, **more):
    """names: a function from their name of a parameter to ours, or to (ours, the order of its rows)."""
    fill(model)
    y = model(x)
    params = {}
    for key, p in model.named_parameters():
        entry = names(key)
        ours, order = entry if isinstance(entry, tuple) else (entry, None)
        params[ours] = (p, order)
    golden.case(name, layer, options, [x], params, y, torch.randn(y.shape, generator=gen), registry="models", **more)
    for key, value in model.named_buffers():
        if "running" in key or "tracked" in key:
            golden.put(f"{name}/state.{names(key)}", value.reshape(-1).to(torch.float64))


# ---- attention with a bias: 2 images of 2 windows, each window with a bias of its own

q, k, v = rand(gen, 4, 5, 2, 3), rand(gen, 4, 6, 2, 3), rand(gen, 4, 6, 2, 3)
bias = rand(gen, 2, 2, 5, 6)
o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                   attn_mask=bias.repeat(2, 1, 1, 1)).transpose(1, 2)
g = torch.randn(o.shape, generator=gen)
o.backward(g)
for key, t in dict(q=q, k=k, v=v, bias=bias, o=o, g=g, dq=q.grad, dk=k.grad, dv=v.grad, dbias=bias.grad).items():
    golden.put(f"attention_bias/{key}", t)


# ---- VGG

class VGG(nn.Module):
    def __init__(self, blocks, norm):
        super().__init__()
        layers, at = [], 2
        for stage, count in enumerate(blocks):
            for _ in range(count):
                layers += [nn.Conv2d(at, 3 * 2 ** stage, 3, padding=1)]
                at = 3 * 2 ** stage
                layers += ([nn.BatchNorm2d(at)] if norm else []) + [nn.ReLU()]
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(at * 4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 5))

    def forward(self, x):
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 2).flatten(1))


def of_vgg(model):
    places = {}
    for i, layer in enumerate(model.features):
        if isinstance(layer, nn.Conv2d):
            places[i] = f"convolutions.{len(places) + 1}"
    norms = {i + 1: place.replace("convolutions", "norms") for i, place in places.items()}
    dense = {0: "hidden1", 2: "hidden2", 4: "head"}

    def ours(key):
        part, i, what = key.split(".")
        return f"{(places | norms)[int(i)] if part == 'features' else dense[int(i)]}.{what}"
    return ours


for blocks, norm in (([1, 2], False), ([1, 1], True)):
    model = VGG(blocks, norm)
    judge(f"vgg.{'norm' if norm else 'plain'}", "VGG",
          dict(blocks=blocks, batch_norm=norm, width=3, hidden=6, pool=2, dropout=0, channels=2, classes=5),
          model, of_vgg(model), rand(gen, 3, 2, 9, 8), floor=1.0)  # biases before a norm have no slope


# ---- ConvNeXt

def of_convnext(key):
    part, at, *rest = key.split(".")
    if part == "classifier":
        return f"{'norm' if at == '0' else 'head'}.{rest[-1]}"
    at = int(at)
    if at == 0:
        return f"{'stem' if rest[0] == '0' else 'stem_norm'}.{rest[-1]}"
    if at % 2 == 0:
        return f"{'norms' if rest[0] == '0' else 'reductions'}.{at // 2}.{rest[-1]}"
    block = sum(CONVNEXT[:(at - 1) // 2]) + int(rest[0]) + 1
    inner = "scale" if rest[-1] == "layer_scale" else {"0": "convolution", "2": "norm", "3": "mlp.up",
                                                       "5": "mlp.down"}[rest[2]] + "." + rest[-1]
    return f"blocks.{block}.{inner}"


CONVNEXT = [1, 2]
model = ConvNeXt([CNBlockConfig(4, 8, 1), CNBlockConfig(8, None, 2)], layer_scale=0.5, num_classes=5)
names = of_convnext


def scale_flat(key):
    ours = names(key)
    return (ours, lambda t: t.reshape(-1)) if ours.endswith(".scale") else ours


judge("convnext", "ConvNeXt", dict(blocks=CONVNEXT, width=4, layer_scale=0.5, channels=3, classes=5), model, scale_flat,
      rand(gen, 2, 3, 17, 20))


# ---- Swin: sides that windows do not tile, a dimension that fits into one window, shifts

def of_swin(blocks, heads):
    starts = [sum(blocks[:i]) for i in range(len(blocks))]

    def ours(key):
        part, *rest = key.split(".")
        if part != "features":
            return key
        at, what = int(rest[0]), rest[-1]
        if at == 0:
            return f"{'stem' if rest[1] == '0' else 'stem_norm'}.{what}"
        if at % 2 == 0:
            return f"merges.{at // 2}.{rest[1]}.{what}"
        stage = (at - 1) // 2
        place = f"blocks.{starts[stage] + int(rest[1]) + 1}"
        if rest[2] == "attn":
            if what == "relative_position_bias_table":
                return f"{place}.attention.table"
            if rest[3] == "qkv":
                return f"{place}.attention.qkv.{what}", lambda t: per_head(t, heads[stage])
            return f"{place}.attention.output.{what}"
        if rest[2] == "mlp":
            return f"{place}.mlp.{'up' if rest[3] == '0' else 'down'}.{what}"
        return f"{place}.{rest[2]}.{what}"
    return ours


for name, blocks, heads, window, side in (("swin.tiled", [2, 1], [1, 2], 2, (8, 12)),
                                          ("swin.padded", [2, 2], [2, 1], 3, (10, 7))):
    model = SwinTransformer([2, 2], 4, blocks, heads, [window, window], mlp_ratio=2.0, num_classes=3)
    judge(name, "Swin", dict(blocks=blocks, heads=heads, window=window, width=4, patch_size=2, mlp_ratio=2, channels=3,
                             classes=3), model.eval(), of_swin(blocks, heads), rand(gen, 2, 3, *side))


# ---- MLP-Mixer

MIXER = {"stem.proj": "patches", "norm1": "norm1", "mlp_tokens.fc1": "token_mlp.up", "mlp_tokens.fc2": "token_mlp.down",
         "norm2": "norm2", "mlp_channels.fc1": "mlp.up", "mlp_channels.fc2": "mlp.down"}


def of_mixer(key):
    place, what = key.rsplit(".", 1)
    if place == "stem.proj":
        return f"patches.{what}", (lambda t: t.reshape(t.shape[0], -1)) if what == "weight" else None
    if place.startswith("blocks."):
        _, i, inner = place.split(".", 2)
        return f"blocks.{int(i) + 1}.{MIXER[inner]}.{what}"
    return key


model = MlpMixer(num_classes=3, img_size=8, in_chans=2, patch_size=4, num_blocks=2, embed_dim=6, mlp_ratio=(0.5, 2.0))
judge("mixer", "MLPMixer", dict(image_size=8, patch_size=4, channels=2, classes=3, width=6, depth=2, hidden=12), model,
      of_mixer, rand(gen, 3, 2, 8, 8), floor=1.0)  # nor have those that are the same for all channels before a norm


# ---- a Vision Transformer on volumes: patches by a convolution of three dimensions

class Volumes(nn.Module):
    def __init__(self, width, heads, patch, tokens, channels, classes):
        super().__init__()
        self.patches = nn.Conv3d(channels, width, patch, patch)
        self.positions = nn.Parameter(torch.zeros(1, tokens, width))
        self.block = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.block(x)).mean(1))


def of_volumes(key):
    table = {"self_attn.in_proj_": "attention.qkv.", "self_attn.out_proj.": "attention.output.", "linear1.": "mlp.up.",
             "linear2.": "mlp.down.", "norm1.": "norm1.", "norm2.": "norm2."}
    if key == "positions":
        return "patches.positions"
    if key == "patches.weight":
        return key, lambda t: t.reshape(t.shape[0], -1)
    for theirs, ours in table.items():
        if key.startswith("block." + theirs):
            name = "blocks.1." + ours + key[len("block." + theirs):]
            return (name, lambda t: per_head(t, 2)) if ".qkv." in name else name
    return key


model = Volumes(4, 2, (2, 3, 2), 2 * 1 * 3, 2, 3)
judge("vit.volumes", "VisionTransformer",
      dict(image_size=[4, 3, 6], patch_size=[2, 3, 2], channels=2, classes=3, width=4, depth=1, heads=2, mlp_ratio=2,
           pool="mean"), model, of_volumes, rand(gen, 2, 2, 4, 3, 6))
golden.write()
