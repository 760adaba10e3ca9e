"""ops_beside.py - functions, clamp, cumulative sums, norms of groups, max pooling and recurrent layers, beside PyTorch.

    python3 spec/bench/ops_beside.py [WORD...]   cases whose names contain a word; THREADS=n for another number than 1

Needs a Python with torch, and a built tree. beside.py says what is printed. "grad" cases run forward and backward."""
import torch
import torch.nn.functional as fn

from beside import compare, grad


def functions():
    x, y = torch.randn(300000), torch.randn(300000)
    p = x.abs() + 0.1
    z = torch.randn(300000, requires_grad=True)
    return {
        "copy": lambda: x.clone(),
        "exp": lambda: x.exp(),
        "log": lambda: p.log(),
        "sin": lambda: x.sin(),
        "cos": lambda: x.cos(),
        "sin large": lambda: (x * 1e5).sin(),
        "pow": lambda: p.pow(y),
        "power 1.7": lambda: p.pow(1.7),
        "power 3": lambda: x.pow(3),
        "clamp": lambda: x.clamp(-1, 1),
        "grad sin": grad(lambda: z.sin(), z),
        "grad power 1.7": grad(lambda: (z * z + 0.1).pow(1.7), z),
        "grad clamp": grad(lambda: z.clamp(-1, 1), z),
    }


def sums():
    rows, columns, long = torch.randn(1024, 300), torch.randn(300, 1024), torch.randn(300000)
    return {
        "cumsum rows": lambda: rows.cumsum(1),
        "cumsum columns": lambda: columns.cumsum(0),
        "cumsum one": lambda: long.cumsum(0),
    }


def images():
    x = torch.randn(8, 64, 32, 32)
    z = torch.randn(8, 64, 32, 32, requires_grad=True)
    norm = torch.nn.GroupNorm(8, 64)
    instance = torch.nn.InstanceNorm2d(64)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(64))
        norm.bias.copy_(torch.randn(64))
    parameters = [z, norm.weight, norm.bias]
    return {
        "group norm": lambda: norm(x).detach(),
        "instance norm": lambda: instance(x),
        "grad group norm": grad(lambda: norm(z), *parameters),
        "max pool 2": lambda: fn.max_pool2d(x, 2),
        "max pool 3": lambda: fn.max_pool2d(x, 3, stride=2, padding=1),
        "max pool global": lambda: fn.adaptive_max_pool2d(x, 1),
        "avg pool 2": lambda: fn.avg_pool2d(x, 2),
        "avg pool 3": lambda: fn.avg_pool2d(x, 3, stride=2, padding=1),
        "grad max pool 2": grad(lambda: fn.max_pool2d(z, 2), z),
        "grad max pool 3": grad(lambda: fn.max_pool2d(z, 3, stride=2, padding=1), z),
        "grad avg pool 2": grad(lambda: fn.avg_pool2d(z, 2), z),
    }


def recurrent():
    x = torch.randn(32, 64, 64, requires_grad=True)
    lstm, gru = torch.nn.LSTM(64, 128, batch_first=True), torch.nn.GRU(64, 128, batch_first=True)
    cases = {}
    for name, net in (("lstm", lstm), ("gru", gru)):
        cases[name] = lambda net=net: net(x)[0].detach()
        cases["grad " + name] = grad(lambda net=net: net(x)[0], x, *net.parameters())
    return cases


compare("ops_beside.lua", {**functions(), **sums(), **images(), **recurrent()})
