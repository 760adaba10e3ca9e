"""models.py - golden values of transformer blocks and whole models. See golden.py for the format.

The truth is torch.nn.TransformerEncoderLayer, Conv2d and Embedding, put together here."""
import torch
import torch.nn.functional as F

from golden import Golden, per_head, rand

gen = torch.Generator().manual_seed(21)
golden = Golden("models")


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def randomize(module, scale=0.3):
    for name, p in module.named_parameters():
        p.data = torch.randn(p.shape, generator=gen) * scale
        if "norm" in name and name.endswith("weight"):
            p.data += 1
    return module


def encoder_layer(width, heads, hidden, activation, norm_first=True):
    return randomize(torch.nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0, activation=activation,
                                                      batch_first=True, norm_first=norm_first))


def block_parameters(layer, heads, prefix=""):
    order = lambda t: per_head(t, heads)
    a = layer.self_attn
    named = {"attention.qkv.weight": (a.in_proj_weight, order), "attention.qkv.bias": (a.in_proj_bias, order),
             "attention.output.weight": a.out_proj.weight, "attention.output.bias": a.out_proj.bias,
             "norm1.weight": layer.norm1.weight, "norm1.bias": layer.norm1.bias,
             "norm2.weight": layer.norm2.weight, "norm2.bias": layer.norm2.bias,
             "mlp.up.weight": layer.linear1.weight, "mlp.up.bias": layer.linear1.bias,
             "mlp.down.weight": layer.linear2.weight, "mlp.down.bias": layer.linear2.bias}
    return {prefix + k: v for k, v in named.items()}


def causal_mask(n):
    return torch.ones(n, n).triu(1).bool()


def blocks():
    b, s, width, heads, hidden = 2, 6, 8, 2, 16
    for name, activation, causal, norm_first in (("vit", "gelu", False, True), ("gpt", gelu_tanh, True, True),
                                                 ("bert", "gelu", False, False)):
        layer = encoder_layer(width, heads, hidden, activation, norm_first)
        x = rand(gen, b, s, width)
        y = layer(x, src_mask=causal_mask(s) if causal else None)
        options = dict(width=width, heads=heads, mlp_ratio=2, causal=causal,
                       activation="gelu_tanh" if activation is gelu_tanh else "gelu")
        if not norm_first:
            options["post_norm"] = True
        golden.case(f"block.{name}", "TransformerBlock", options, [x], block_parameters(layer, heads), y,
                    torch.randn(y.shape, generator=gen))


def vision_transformer(pool):
    b, image, patch, channels, width, heads, depth, classes = 3, 8, 4, 2, 8, 2, 2, 5
    conv = randomize(torch.nn.Conv2d(channels, width, patch, stride=patch))
    count = (image // patch) ** 2 + (pool == "cls")
    token, positions = rand(gen, 1, 1, width), rand(gen, 1, count, width)
    layers = [encoder_layer(width, heads, 4 * width, "gelu") for _ in range(depth)]
    norm, head = torch.nn.LayerNorm(width), randomize(torch.nn.Linear(width, classes))
    norm.weight.data += torch.randn(width, generator=gen) * 0.1
    x = rand(gen, b, channels, image, image)
    y = conv(x).flatten(2).transpose(1, 2)
    if pool == "cls":
        y = torch.cat([token.expand(b, 1, width), y], dim=1)
    y = y + positions
    for layer in layers:
        y = layer(y)
    y = norm(y)
    y = head(y[:, 0] if pool == "cls" else y.mean(dim=1))
    params = {"patches.weight": (conv.weight, lambda t: t.reshape(width, -1)), "patches.bias": conv.bias,
              "patches.positions": positions, "norm.weight": norm.weight, "norm.bias": norm.bias,
              "head.weight": head.weight, "head.bias": head.bias}
    if pool == "cls":
        params["patches.class_token"] = token
    for i, layer in enumerate(layers, 1):
        params.update(block_parameters(layer, heads, f"blocks.{i}."))
    golden.case(f"model.vit_{pool}", "VisionTransformer",
                dict(image_size=image, patch_size=patch, channels=channels, classes=classes, width=width, depth=depth,
                     heads=heads, pool=pool), [x], params, y, torch.randn(y.shape, generator=gen), registry="models")


def mlp():
    x, y = rand(gen, 4, 6), None
    layers = [randomize(torch.nn.Linear(i, o)) for i, o in ((6, 9), (9, 7), (7, 3))]
    y = layers[2](F.relu(layers[1](F.relu(layers[0](x)))))
    params = {}
    for i, layer in enumerate(layers[:2], 1):
        params[f"layers.{i}.weight"], params[f"layers.{i}.bias"] = layer.weight, layer.bias
    params["head.weight"], params["head.bias"] = layers[2].weight, layers[2].bias
    golden.case("model.mlp", "MLP", dict(inputs=6, hidden=[9, 7], classes=3), [x], params, y,
                torch.randn(y.shape, generator=gen), registry="models")


def gpt():
    b, s, vocabulary, width, heads, depth = 2, 6, 13, 8, 2, 2
    tokens = torch.randint(0, vocabulary, (b, s), generator=gen)
    for name, tied in (("tied", True), ("untied", False)):
        table, positions = rand(gen, vocabulary, width), rand(gen, 2 + s, width)
        head = table if tied else rand(gen, vocabulary, width)
        layers = [encoder_layer(width, heads, 4 * width, gelu_tanh) for _ in range(depth)]
        norm = torch.nn.LayerNorm(width)
        y = F.embedding(tokens, table) + positions[:s]
        for layer in layers:
            y = layer(y, src_mask=causal_mask(s))
        y = F.linear(norm(y), head)
        params = {"tokens.weight": table, "positions.weight": positions, "norm.weight": norm.weight,
                  "norm.bias": norm.bias}
        if not tied:
            params["head.weight"] = head
        for i, layer in enumerate(layers, 1):
            params.update(block_parameters(layer, heads, f"blocks.{i}."))
        golden.case(f"model.gpt_{name}", "GPT",
                    dict(vocabulary=vocabulary, sequence_length=2 + s, width=width, depth=depth, heads=heads,
                         tied=tied, dropout=0), [tokens], params, y, torch.randn(y.shape, generator=gen),
                    registry="models")


if __name__ == "__main__":
    blocks()
    vision_transformer("cls")
    vision_transformer("mean")
    mlp()
    gpt()
    golden.write()
