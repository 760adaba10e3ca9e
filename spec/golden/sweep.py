"""sweep.py - golden values of many random settings of layers and ops on images. Not kept in the tree: they are large.

    python3 spec/golden/sweep.py DIR [N]       N settings (100) of each kind, into DIR
    GANYMEDE_SPEC_SWEEP=DIR ./ganymede spec spec/golden/layers_spec.lua spec/golden/composed_spec.lua

Kinds: convolutions and transposed ones of 1, 2 and 3 dimensions (groups, depthwise, strides beyond the kernel,
dilation, no padding, activations), pooling, batch, group and instance norm, interpolation, pad, roll, cumsum, sort,
var, std. Sizes are odd ones, too, and 1. See golden.py for the format."""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from golden import Golden, rand

FOLDER, N = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
gen = torch.Generator().manual_seed(97)
ACTIVATIONS = {None: lambda y: y, "relu": F.relu, "gelu": F.gelu, "silu": F.silu}
MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def integer(low, high):
    return int(torch.randint(low, high + 1, (1,), generator=gen))


def pick(*values):
    return values[integer(0, len(values) - 1)]


def list_of(dims, low, high):
    return [integer(low, high) for _ in range(dims)]


def r(*shape):
    return rand(gen, *shape)


def book(name):
    g = Golden(name)
    g.path = os.path.join(FOLDER, name + ".safetensors")
    return g


# ---- layers ----

layers, left_out = book("sweep_layers"), []


def judge(name, layer, options, module, x, activation=None):
    params = dict(module.named_parameters())
    for p in params.values():
        p.data = torch.randn(p.shape, generator=gen)
    y = ACTIVATIONS[activation](module(x))
    options = dict(options, activation=activation) if activation else options
    seed = torch.randn(y.shape, generator=gen)
    # Windows in the padding alone prove nothing: their maximum is -inf (PyTorch 2.15 may crash in its backward, so it
    # is not called), and no sum of them has a gradient.
    proves = y.isfinite().all()
    if proves:
        slopes = torch.autograd.grad(y, [x, *params.values()], seed, retain_graph=True)
        proves = min(g.abs().max() for g in slopes) >= 1e-3
    if not proves:
        left_out.append(name)
        return
    layers.case(name, layer, options, [x], params, y, seed)
    for key, value in module.named_buffers():
        layers.put(f"{name}/state.{key}", value.reshape(-1).to(torch.float64))


def window(dims, dilated=True):
    while True:
        size, kernel, stride = list_of(dims, 1, 9), list_of(dims, 1, 5), list_of(dims, 1, 7)
        padding = [integer(0, k // 2) for k in kernel]
        dilation = list_of(dims, 1, 3) if dilated else [1] * dims
        fits = all(n + 2 * p >= d * (k - 1) + 1 for n, k, p, d in zip(size, kernel, padding, dilation))
        if fits and (dilated or dims < 3 or all(n >= k for n, k in zip(size, kernel))):  # torch forgets padding there
            return size, kernel, stride, padding, dilation


def channels():
    groups = pick(1, 1, 2, 3, 5)
    return groups, groups * integer(1, 3), groups * integer(1, 4)


def convolution(i, dims):
    size, kernel, stride, padding, dilation = window(dims)
    groups, inputs, outputs = channels()
    options = dict(in_channels=inputs, out_channels=outputs, kernel_size=kernel, stride=stride, padding=padding,
                   dilation=dilation, groups=groups, bias=pick(True, False))
    judge(f"conv{dims}d.{i}", f"Conv{dims}d", options, getattr(nn, f"Conv{dims}d")(**options),
          r(integer(1, 3), inputs, *size), pick(*ACTIVATIONS))


def transposed(i, dims):
    size, kernel, stride, padding, dilation = window(dims)
    groups, inputs, outputs = channels()
    more = [integer(0, s - 1) for s in stride]
    result = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + o
              for n, k, s, p, d, o in zip(size, kernel, stride, padding, dilation, more)]
    if min(result) < 1:
        return transposed(i, dims)
    options = dict(in_channels=inputs, out_channels=outputs, kernel_size=kernel, stride=stride, padding=padding,
                   output_padding=more, dilation=dilation, groups=groups, bias=pick(True, False))
    judge(f"transposed{dims}d.{i}", f"ConvTranspose{dims}d", options, getattr(nn, f"ConvTranspose{dims}d")(**options),
          r(integer(1, 3), inputs, *size), pick(*ACTIVATIONS))


def pooling(i, dims):
    size, kernel, stride, padding, dilation = window(dims)
    options = dict(kernel=kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=pick(True, False))
    judge(f"max_pool{dims}d.{i}", f"MaxPool{dims}d", options,
          getattr(nn, f"MaxPool{dims}d")(kernel, stride, padding, dilation, ceil_mode=options["ceil_mode"]),
          r(2, 2, *size))
    size, kernel, stride, padding, _ = window(dims, False)
    options = dict(kernel=kernel, stride=stride, padding=padding, ceil_mode=pick(True, False),
                   count_include_pad=pick(True, False))
    judge(f"avg_pool{dims}d.{i}", f"AvgPool{dims}d", options,
          getattr(nn, f"AvgPool{dims}d")(kernel, stride, padding, ceil_mode=options["ceil_mode"],
                                         count_include_pad=options["count_include_pad"]), r(2, 2, *size))
    for kind in ("Avg", "Max"):
        out = list_of(dims, 1, 6)
        judge(f"adaptive_{kind}{dims}d.{i}", f"Adaptive{kind}Pool{dims}d", dict(output_size=out),
              getattr(nn, f"Adaptive{kind}Pool{dims}d")(out), r(2, 2, *list_of(dims, 1, 9)))


def norms(i, dims):
    groups, size = integer(1, 4), list_of(dims, 3, 5)
    n, b = groups * integer(1, 3), integer(2, 6)
    affine, eps = pick(True, False), pick(1e-5, 1e-2)
    judge(f"batch_norm{dims}d.{i}", f"BatchNorm{dims}d", dict(num_features=n, affine=affine, eps=eps),
          getattr(nn, f"BatchNorm{dims}d")(n, affine=affine, eps=eps), r(b, n, *size))
    judge(f"instance_norm{dims}d.{i}", f"InstanceNorm{dims}d", dict(num_features=n, affine=affine, eps=eps),
          getattr(nn, f"InstanceNorm{dims}d")(n, affine=affine, eps=eps), r(b, n, *size))
    judge(f"group_norm{dims}d.{i}", "GroupNorm", dict(num_groups=groups, num_channels=n, eps=eps),
          nn.GroupNorm(groups, n, eps=eps), r(b, n, *size))


# ---- ops ----

ops = book("sweep_ops")


def op(name, fn, x, arguments, y, index=None):
    seed = torch.randn(y.shape, generator=gen)
    y.backward(seed)
    if x.grad.abs().max() == 0:  # padded by less than nothing, until only the value is left
        left_out.append(name)
        return
    ops.put(f"{name}/input.1", x)
    ops.put(f"{name}/output", y)
    ops.put(f"{name}/seed", seed)
    ops.put(f"{name}/grad.input.1", x.grad)
    if index is not None:
        ops.put(f"{name}/index", index)
    ops.cases.append(dict(name=name, op=fn, arguments=arguments))


def interpolation(i, dims):
    size, out = list_of(dims, 1, 7), list_of(dims, 1, 11)
    x = r(2, 2, *size)
    op(f"nearest{dims}d.{i}", "interpolate", x, [dict(size=out)], F.interpolate(x, out))
    x, align = r(2, 2, *size), pick(True, False)
    op(f"linear{dims}d.{i}", "interpolate", x, [dict(size=out, mode="linear", align_corners=align)],
       F.interpolate(x, out, mode=MODES[dims], align_corners=align))


def padding(i, dims):
    mode, size = pick("constant", "reflect", "replicate"), list_of(dims, 2, 6)
    sizes = [integer(-1 if mode == "constant" else 0, min(size) - 1) for _ in range(2 * dims)]
    x = r(2, 2, *size)
    if mode == "constant":
        op(f"pad{dims}d.{i}", "pad", x, [sizes, dict(value=0.5)], F.pad(x, sizes, value=0.5))
    else:
        op(f"pad{dims}d.{i}", "pad", x, [sizes, dict(mode=mode)], F.pad(x, sizes, mode=mode))


def along(i):
    dims = integer(1, 4)
    shape, dim = list_of(dims, 2, 7), integer(1, dims)
    x, shift = r(*shape), integer(-9, 9)
    op(f"roll.{i}", "roll", x, [shift, dim], torch.roll(x, shift, dim - 1))
    x = r(*shape)
    op(f"cumsum.{i}", "cumsum", x, [dim], torch.cumsum(x, dim - 1))
    x, down = r(*shape), pick(True, False)
    y = torch.sort(x, dim=dim - 1, descending=down)
    op(f"sort.{i}", "sort", x, [dim, down], y.values, y.indices)
    for name in ("var", "std"):
        x, c, keep = r(*shape), pick(0, 1), pick(True, False)
        if dims > 1:
            op(f"{name}.{i}", name, x, [dim, dict(correction=c, keepdim=keep)],
               getattr(torch, name)(x, dim - 1, correction=c, keepdim=keep))


for count in range(N):
    along(count)
    for d in (1, 2, 3):
        for kind in (convolution, transposed, pooling, norms, interpolation, padding):
            kind(count, d)
print("left out, for want of a gradient:", *left_out)
layers.write()
ops.write()
