"""layers.py - golden values of single layers and losses. See golden.py for the format and the command."""
import math

import torch
import torch.nn.functional as F

from golden import Golden, per_head, rand

gen = torch.Generator().manual_seed(20)
golden = Golden("layers")
ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def r(*shape, scale=1.0):
    return rand(gen, *shape, scale=scale)


def seed_like(y):
    return torch.randn(y.shape, generator=gen)


def linear():
    for name, function in {"none": lambda x: x, **ACTIVATIONS}.items():
        x, w, b = r(4, 5, 7), r(6, 7), r(6)
        y = function(F.linear(x, w, b))
        options = dict(inputs=7, outputs=6)
        if name != "none":
            options["activation"] = name
        golden.case(f"linear.{name}", "Linear", options, [x], dict(weight=w, bias=b), y, seed_like(y))
    x, w = r(9, 3), r(5, 3)
    y = F.linear(x, w)
    golden.case("linear.no_bias", "Linear", dict(inputs=3, outputs=5, bias=False), [x], dict(weight=w), y, seed_like(y))
    x, w, b = r(3, 8), r(10, 8), r(10)
    y = F.linear(x, w, b)
    golden.case("classifier", "Classifier", dict(inputs=8, classes=10), [x], dict(weight=w, bias=b), y, seed_like(y))


def activations():
    layers = dict(ReLU=F.relu, GELU=F.gelu, SiLU=F.silu, Tanh=torch.tanh, Sigmoid=torch.sigmoid)
    for layer, function in layers.items():
        x = r(5, 9, scale=2.0)
        y = function(x)
        golden.case(f"activation.{layer}", layer, {}, [x], {}, y, seed_like(y))
    x = r(5, 9, scale=2.0)
    y = ACTIVATIONS["gelu_tanh"](x)
    golden.case("activation.GELU_tanh", "GELU", dict(approximate="tanh"), [x], {}, y, seed_like(y))
    for dim, python_dim in ((1, 0), (2, 1), (-1, -1)):
        x = r(4, 6, 5)
        y = F.softmax(x, dim=python_dim)
        golden.case(f"softmax.{dim}", "Softmax", dict(dim=dim), [x], {}, y, seed_like(y))


def norms():
    for name, width, eps in (("small", 6, 1e-5), ("odd", 37, 1e-5), ("eps", 8, 1e-2)):
        x, w, b = r(3, 4, width), r(width), r(width)
        y = F.layer_norm(x, (width,), w, b, eps)
        golden.case(f"layer_norm.{name}", "LayerNorm", dict(width=width, eps=eps), [x], dict(weight=w, bias=b), y,
                    seed_like(y))
        x, w = r(3, 4, width), r(width)
        y = F.rms_norm(x, (width,), w, eps)
        golden.case(f"rms_norm.{name}", "RMSNorm", dict(width=width, eps=eps), [x], dict(weight=w), y, seed_like(y))
    x, w = r(5, 9), r(9)
    y = F.layer_norm(x, (9,), w, None, 1e-5)
    golden.case("layer_norm.no_bias", "LayerNorm", dict(width=9, bias=False), [x], dict(weight=w), y, seed_like(y))


def embeddings():
    index = torch.randint(0, 11, (3, 8), generator=gen)
    index[0, :3] = 4  # repeated rows add up
    w = r(11, 5)
    y = F.embedding(index, w)
    golden.case("embedding.plain", "Embedding", dict(count=11, width=5), [index], dict(weight=w), y, seed_like(y))
    w = r(11, 5)
    y = F.embedding(index, w, padding_idx=4)
    golden.case("embedding.padding", "Embedding", dict(count=11, width=5, padding_index=4), [index], dict(weight=w), y,
                seed_like(y))


def patches():
    for name, image, patch, channels, width in (("grey", 8, 4, 1, 6), ("colour", 6, 2, 3, 5)):
        x, w, b = r(3, channels, image, image), r(width, channels, patch, patch), r(width)
        y = F.conv2d(x, w, b, stride=patch).flatten(2).transpose(1, 2)
        flat = lambda t, width=width: t.reshape(width, -1)
        options = dict(image_size=image, patch_size=patch, channels=channels, width=width)
        golden.case(f"patch.{name}", "PatchEmbedding", dict(options, class_token=False, positions=False), [x],
                    {"weight": (w, flat), "bias": b}, y, seed_like(y))
        x, w, b = r(3, channels, image, image), r(width, channels, patch, patch), r(width)
        count = (image // patch) ** 2
        token, positions = r(1, 1, width), r(1, count + 1, width)
        y = F.conv2d(x, w, b, stride=patch).flatten(2).transpose(1, 2)
        y = torch.cat([token.expand(3, 1, width), y], dim=1) + positions
        golden.case(f"patch.{name}_token", "PatchEmbedding", options, [x],
                    {"weight": (w, flat), "bias": b, "class_token": token, "positions": positions}, y, seed_like(y))


def attention():
    heads, width, length, batch = 3, 12, 7, 2
    keep = torch.ones(batch, length, dtype=torch.uint8)
    keep[0, 5:] = 0
    keep[1, 3] = 0
    for name, causal, masked in (("plain", False, False), ("causal", True, False), ("key_mask", False, True),
                                 ("causal_key_mask", True, True)):
        layer = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        for p in layer.parameters():
            p.data = torch.randn(p.shape, generator=gen) * 0.5
        x = r(batch, length, width)
        y, _ = layer(x, x, x, need_weights=False, key_padding_mask=(keep == 0) if masked else None,
                     attn_mask=torch.ones(length, length).triu(1).bool() if causal else None)
        order = lambda t: per_head(t, heads)
        golden.case(f"attention.{name}", "MultiHeadAttention", dict(width=width, heads=heads, causal=causal),
                    [x, keep] if masked else [x],
                    {"qkv.weight": (layer.in_proj_weight, order), "qkv.bias": (layer.in_proj_bias, order),
                     "output.weight": layer.out_proj.weight, "output.bias": layer.out_proj.bias}, y, seed_like(y))


def grouped_attention():
    """4 query heads over 2 key heads; rows of qkv are (key head, 2 queries + key + value, head size)."""
    heads, kv, width, length, batch = 4, 2, 12, 5, 2
    d, group = width // heads, heads // kv
    wq, wk, wv = r(width, width, scale=0.5), r(kv * d, width, scale=0.5), r(kv * d, width, scale=0.5)
    wo = r(width, width)
    x = r(batch, length, width)
    split = lambda t, n: t.reshape(batch, length, n, d).transpose(1, 2)
    k, v = (split(F.linear(x, w), kv).repeat_interleave(group, dim=1) for w in (wk, wv))
    y = F.scaled_dot_product_attention(split(F.linear(x, wq), heads), k, v, is_causal=True)
    y = F.linear(y.transpose(1, 2).reshape(batch, length, width), wo)
    seed = seed_like(y)
    y.backward(seed)
    rows = lambda q, k, v: torch.cat([q.reshape(kv, group, d, width), k.reshape(kv, 1, d, width),
                                      v.reshape(kv, 1, d, width)], dim=1).reshape(-1, width)
    fused = torch.zeros((heads + 2 * kv) * d, width)
    fused.data, fused.grad = rows(wq.detach(), wk.detach(), wv.detach()), rows(wq.grad, wk.grad, wv.grad)
    golden.case("attention.grouped", "MultiHeadAttention",
                dict(width=width, heads=heads, kv_heads=kv, causal=True, bias=False), [x],
                {"qkv.weight": fused, "output.weight": wo}, y.detach(), seed)


def mlp():
    for name, function in ACTIVATIONS.items():
        x, w1, b1, w2, b2 = r(2, 3, 5), r(8, 5), r(8), r(5, 8), r(5)
        y = F.linear(function(F.linear(x, w1, b1)), w2, b2)
        golden.case(f"mlp.{name}", "MLP", dict(width=5, hidden=8, activation=name), [x],
                    {"up.weight": w1, "up.bias": b1, "down.weight": w2, "down.bias": b2}, y, seed_like(y))


def losses():
    for name, ignore, smoothing in (("plain", -100, 0.0), ("ignore", 3, 0.0), ("smoothing", -100, 0.1),
                                    ("both", 3, 0.2)):
        logits, target = r(4, 6, 9, scale=2.0), torch.randint(0, 9, (4, 6), generator=gen)
        target[0, 0] = target[2, 3] = ignore if ignore >= 0 else 0
        y = F.cross_entropy(logits.reshape(-1, 9), target.reshape(-1), ignore_index=ignore, label_smoothing=smoothing)
        options = dict(label_smoothing=smoothing)
        if ignore >= 0:
            options["ignore_index"] = ignore
        golden.case(f"cross_entropy.{name}", "CrossEntropyLoss", options, [logits, target], {}, y, torch.tensor(3.0),
                    count=int((target != ignore).sum()), registry="losses")
    a, b = r(4, 5), torch.randn(4, 5, generator=gen)
    y = F.mse_loss(a, b)
    golden.case("mse", "MSELoss", {}, [a, b], {}, y, torch.tensor(2.0), count=20, registry="losses")


for part in (linear, activations, norms, embeddings, patches, attention, grouped_attention, mlp, losses):
    part()
assert math.isfinite(sum(float(abs(t).sum()) for t in golden.tensors.values()))
golden.write()
