"""images.py - golden values of layers on images: batch, group and instance norm, and pooling. See golden.py for the
format and the command. Norms keep what their running numbers are after the call as state.<name>."""
import torch
import torch.nn as nn

from golden import Golden, rand

gen = torch.Generator().manual_seed(50)
golden = Golden("images")


def r(*shape, scale=1.0):
    return rand(gen, *shape, scale=scale)


def judge(name, layer, options, module, x):
    params = dict(module.named_parameters())
    for p in params.values():
        p.data = torch.randn(p.shape, generator=gen)
    y = module(x)
    golden.case(name, layer, options, [x], params, y, torch.randn(y.shape, generator=gen))
    for key, value in module.named_buffers():
        golden.put(f"{name}/state.{key}", value.reshape(-1).to(torch.float64))


SHAPES = {"1d": (5, 3, 4), "2d": (3, 3, 2, 5), "3d": (2, 3, 2, 3, 2)}


def norms():
    judge("batch_norm.rows", "BatchNorm1d", dict(channels=7), nn.BatchNorm1d(7), r(6, 7))
    for dims, shape in SHAPES.items():
        make = getattr(nn, "BatchNorm" + dims)
        judge(f"batch_norm.{dims}", "BatchNorm" + dims, dict(num_features=3), make(3), r(*shape))
        judge(f"batch_norm.plain.{dims}", "BatchNorm" + dims,
              dict(num_features=3, affine=False, momentum=0.3, eps=1e-2),
              make(3, affine=False, momentum=0.3, eps=1e-2), r(*shape))
        judge(f"batch_norm.mean.{dims}", "BatchNorm" + dims, dict(num_features=3, momentum=False),
              make(3, momentum=None), r(*shape))
        judge(f"batch_norm.untracked.{dims}", "BatchNorm" + dims, dict(num_features=3, track_running_stats=False),
              make(3, track_running_stats=False), r(*shape))
        judge(f"instance_norm.{dims}", "InstanceNorm" + dims, dict(num_features=3, affine=True),
              getattr(nn, "InstanceNorm" + dims)(3, affine=True), r(*shape))
    for groups in (1, 2, 6):
        judge(f"group_norm.{groups}", "GroupNorm", dict(num_groups=groups, num_channels=6), nn.GroupNorm(groups, 6),
              r(2, 6, 3, 5))
    judge("group_norm.rows", "GroupNorm", dict(num_groups=2, num_channels=6), nn.GroupNorm(2, 6), r(4, 6))


def integer(low, high):
    return int(torch.randint(low, high + 1, (1,), generator=gen))


def windows(dims, dilated):
    """Random settings of a window that fits: sizes of images, kernel, stride, padding, dilation, a list each."""
    while True:
        size = [integer(1, 9) for _ in range(dims)]
        kernel = [integer(1, 4) for _ in range(dims)]
        stride = [integer(1, 6) for _ in range(dims)]
        padding = [integer(0, k // 2) for k in kernel]
        dilation = [integer(1, 3) if dilated else 1 for _ in range(dims)]
        fits = all(n + 2 * p >= d * (k - 1) + 1 for n, k, p, d in zip(size, kernel, padding, dilation))
        if fits and (dilated or dims < 3 or all(n >= k for n, k in zip(size, kernel))):  # torch forgets padding there
            return size, kernel, stride, padding, dilation


def pooling():
    for dims in (1, 2, 3):
        for i in range(12):
            size, kernel, stride, padding, dilation = windows(dims, True)
            ceil = i % 2 == 1
            x = r(2, 2, *size)
            module = getattr(nn, f"MaxPool{dims}d")(kernel, stride, padding, dilation, ceil_mode=ceil)
            options = dict(kernel=kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil)
            judge(f"max_pool.{dims}d.{i}", f"MaxPool{dims}d", options, module, x)
        for i in range(12):
            size, kernel, stride, padding, _ = windows(dims, False)
            ceil, count = i % 2 == 1, i % 3 != 0
            x = r(2, 2, *size)
            more = dict(divisor_override=5) if dims > 1 and i % 4 == 3 else {}
            module = getattr(nn, f"AvgPool{dims}d")(kernel, stride, padding, ceil_mode=ceil, count_include_pad=count,
                                                    **more)
            options = dict(kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil, count_include_pad=count,
                           **more)
            judge(f"avg_pool.{dims}d.{i}", f"AvgPool{dims}d", options, module, x)
        for i in range(6):
            x = r(2, 2, *[integer(1, 9) for _ in range(dims)])
            size = [integer(1, 6) for _ in range(dims)]
            for kind in ("Avg", "Max"):
                layer = f"Adaptive{kind}Pool{dims}d"
                x = x.detach().requires_grad_(True)
                judge(f"adaptive_{kind.lower()}_pool.{dims}d.{i}", layer, dict(output_size=size),
                      getattr(nn, layer)(size), x)


norms()
pooling()
golden.write()
