"""layers_beside.py - norms, losses, tables, order, shapes, comparisons and dtypes, beside PyTorch.

    python3 spec/bench/layers_beside.py [WORD...]   cases whose names contain a word; THREADS=n for other than 1

Needs a Python with torch, and a built tree. beside.py says what is printed. "grad" cases run forward and backward.
ops_beside.py has functions, cumulative sums, norms of groups, pooling and recurrent layers."""
import torch
import torch.nn.functional as fn

from beside import compare, grad


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def norms():
    cases = {}
    for n in (7, 65, 96, 768, 1000):
        rows = 300000 // n
        x, z, w, b = torch.randn(rows, n), leaf(rows, n), leaf(n), leaf(n)
        cases.update({
            f"softmax {n}": lambda x=x: x.softmax(1),
            f"log softmax {n}": lambda x=x: x.log_softmax(1),
            f"layer norm {n}": lambda x=x, w=w, b=b, n=n: fn.layer_norm(x, (n,), w, b),
            f"rms norm {n}": lambda x=x, w=w, n=n: fn.rms_norm(x, (n,), w, 1e-5),
            f"grad softmax {n}": grad(lambda z=z: z.softmax(1), z),
            f"grad layer norm {n}": grad(lambda z=z, w=w, b=b, n=n: fn.layer_norm(z, (n,), w, b), z, w, b),
            f"grad rms norm {n}": grad(lambda z=z, w=w, n=n: fn.rms_norm(z, (n,), w, 1e-5), z, w),
        })
    x, z = torch.randn(16, 64, 16, 16), leaf(16, 64, 16, 16)
    trained, used = torch.nn.BatchNorm2d(64), torch.nn.BatchNorm2d(64).eval()
    rows, wide = torch.randn(300, 64, 16), torch.nn.BatchNorm1d(64)
    flat, dense = torch.randn(4096, 64), torch.nn.BatchNorm1d(64)
    cases.update({
        "softmax columns": lambda x=torch.randn(32, 64, 150): x.softmax(1),
        "batch norm": lambda: trained(x),
        "batch norm used": lambda: used(x),
        "batch norm 1d": lambda: wide(rows),
        "batch norm flat": lambda: dense(flat),
        "grad batch norm": grad(lambda: trained(z), z, trained.weight, trained.bias),
    })
    return cases


def losses():
    cases = {}
    for n in (10, 1000, 50257):
        rows = max(300000 // n, 16)
        x, z, target = torch.randn(rows, n), leaf(rows, n), torch.randint(0, n, (rows,))
        cases[f"cross entropy {n}"] = lambda x=x, t=target: fn.cross_entropy(x, t)
        cases[f"grad cross entropy {n}"] = grad(lambda z=z, t=target: fn.cross_entropy(z, t), z)
    y, z, target = torch.randn(300000), leaf(300000), torch.rand(300000)
    cases.update({
        "grad mse": grad(lambda: fn.mse_loss(z, y), z),
        "grad l1": grad(lambda: fn.l1_loss(z, y), z),
        "grad bce": grad(lambda: fn.binary_cross_entropy_with_logits(z, target), z),
    })
    return cases


def tables():
    w, v = torch.randn(50000, 64), leaf(5000, 64)
    index, few = torch.randint(0, 50000, (4096,)), torch.randint(0, 5000, (4096,))
    narrow, places = torch.randn(5000, 4), torch.randint(0, 5000, (65536,))
    classes = torch.randint(0, 100, (1024,))
    return {
        "embedding": lambda: fn.embedding(index, w),
        "embedding 4": lambda: fn.embedding(places, narrow),
        "grad embedding": grad(lambda: fn.embedding(few, v), v),
        "one hot": lambda: fn.one_hot(classes, 100).float(),
    }


def order():
    x, columns, long = torch.randn(512, 600), torch.randn(600, 512), torch.randn(300000)
    z, few = leaf(512, 600), torch.randn(30000, 10)
    return {
        "sort": lambda: x.sort(1),
        "sort one": lambda: long.sort(0),
        "sort 10": lambda: few.sort(1),
        "top 5": lambda: x.topk(5, 1),
        "top 50": lambda: x.topk(50, 1),
        "top 2 of 10": lambda: few.topk(2, 1),
        "argmax": lambda: x.argmax(1),
        "argmax 10": lambda: few.argmax(1),
        "max": lambda: x.max(1),
        "max columns": lambda: columns.max(0),
        "max 10": lambda: few.max(1),
        "grad max": grad(lambda: z.max(1)[0], z),
        "sum all": lambda: long.sum(),
        "mean rows": lambda: x.mean(1),
        "var rows": lambda: x.var(1),
        "var columns": lambda: columns.var(0),
    }


def shapes():
    x, y = torch.randn(512, 600), torch.randn(512, 600)
    image, z = torch.randn(8, 32, 32, 32), leaf(8, 32, 32, 32)
    tokens = torch.randn(16, 16, 16, 64)
    return {
        "cat rows": lambda: torch.cat([x, y], 0),
        "cat columns": lambda: torch.cat([x, y], 1),
        "stack": lambda: torch.stack([x, y], 2),
        "transpose": lambda: x.t().contiguous(),
        "heads": lambda: tokens.permute(0, 2, 1, 3).contiguous(),
        "channels last": lambda: image.permute(0, 2, 3, 1).contiguous(),
        "channels first": lambda: tokens.permute(0, 3, 1, 2).contiguous(),
        "roll": lambda: x.roll(3, 1),
        "roll two": lambda: tokens.roll((3, 3), (1, 2)),
        "pad": lambda: fn.pad(image, (1, 1, 1, 1)),
        "pad reflect": lambda: fn.pad(image, (1, 1, 1, 1), mode="reflect"),
        "nearest": lambda: fn.interpolate(image, scale_factor=2, mode="nearest"),
        "bilinear": lambda: fn.interpolate(image, scale_factor=2, mode="bilinear"),
        "grad nearest": grad(lambda: fn.interpolate(z, scale_factor=2, mode="nearest"), z),
        "grad bilinear": grad(lambda: fn.interpolate(z, scale_factor=2, mode="bilinear"), z),
        "adaptive avg": lambda: fn.adaptive_avg_pool2d(image, 7),
        "mean of image": lambda: image.mean((2, 3)),
        "grad mean of image": grad(lambda: z.mean((2, 3)), z),
        "depthwise 3": lambda w=torch.randn(32, 1, 3, 3): fn.conv2d(image, w, padding=1, groups=32),
        "depthwise 7": lambda w=torch.randn(64, 1, 7, 7), i=torch.randn(8, 64, 14, 14):
            fn.conv2d(i, w, padding=3, groups=64),
    }


def elements():
    x, y, z = torch.randn(300000), torch.randn(300000), leaf(300000)
    half, brain, whole = x.half(), x.bfloat16(), torch.randint(-9, 9, (300000,))
    rows, mask = torch.randn(512, 600), torch.rand(512, 600) > 0.5
    return {
        "add": lambda: x + y,
        "add 1": lambda: x + 1,
        "div": lambda: x / y,
        "less": lambda: x < y,
        "where": lambda: torch.where(mask, rows, 0.0),
        "maximum": lambda: torch.maximum(x, y),
        "sqrt": lambda: x.sqrt(),
        "sigmoid": lambda: x.sigmoid(),
        "tanh": lambda: x.tanh(),
        "gelu": lambda: fn.gelu(x),
        "silu": lambda: fn.silu(x),
        "relu": lambda: x.relu(),
        "abs": lambda: x.abs(),
        "grad gelu": grad(lambda: fn.gelu(z), z),
        "grad mul": grad(lambda: z * y, z),
        "dropout": lambda: fn.dropout(x, 0.1, training=True),
        "normal": lambda: torch.randn(300000),
        "uniform": lambda: torch.rand(300000),
        "arange": lambda: torch.arange(300000, dtype=torch.float32),
        "zeros": lambda: torch.zeros(300000),
        "to bf16": lambda: x.bfloat16(),
        "to f16": lambda: x.half(),
        "to f64": lambda: x.double(),
        "to i64": lambda: x.long(),
        "to i32": lambda: x.int(),
        "to u8": lambda: x.abs().byte(),
        "from i64": lambda: whole.float(),
        "from u8": lambda w=whole.abs().byte(): w.float(),
        "from f16": lambda: half.float(),
        "from bf16": lambda: brain.float(),
        "add f16": lambda: half + half,
        "gelu f16": lambda: fn.gelu(half),
        "add bf16": lambda: brain + brain,
        "gelu bf16": lambda: fn.gelu(brain),
        "sum bf16": lambda: brain.sum(),
        "softmax bf16": lambda b=rows.bfloat16(): b.softmax(1),
        "layer norm bf16": lambda b=rows.bfloat16(): fn.layer_norm(b, (600,)),
        "layer norm f16": lambda b=rows.half(): fn.layer_norm(b, (600,)),
    }


compare("layers_beside.lua", {**norms(), **losses(), **tables(), **order(), **shapes(), **elements()})
