"""composed.py - golden values of ops that are made of others (ganymede.tensor.composed). See golden.py for the command.

A case has input.<n>, output, seed and grad.input.<n> as golden.py says; its description names the op and the arguments
that follow the inputs; `list`: the inputs are one argument, a list."""
import torch
import torch.nn.functional as F

from golden import Golden, rand

gen = torch.Generator().manual_seed(60)
golden = Golden("composed")


def r(*shape, scale=1.0):
    return rand(gen, *shape, scale=scale)


def judge(name, op, inputs, arguments, y, **more):
    for i, t in enumerate(inputs, 1):
        golden.put(f"{name}/input.{i}", t)
    golden.put(f"{name}/output", y)
    if y.requires_grad:
        seed = torch.randn(y.shape, generator=gen)
        y.backward(seed)
        golden.put(f"{name}/seed", seed)
        for i, t in enumerate(inputs, 1):
            golden.put(f"{name}/grad.input.{i}", t.grad)
    golden.cases.append(dict(name=name, op=op, arguments=arguments, **more))


def shapes():
    x = r(2, 3, 4)
    judge("flatten", "flatten", [x], [2], torch.flatten(x, 1))
    x = [r(2, 3) for _ in range(3)]
    judge("stack", "stack", x, [2], torch.stack(x, 1), list=True)
    for shift, dim in ((1, 1), (-2, 2), (9, 3)):
        x = r(2, 3, 4)
        judge(f"roll.{dim}", "roll", [x], [shift, dim], torch.roll(x, shift, dim - 1))
    x = r(2, 3, 4)
    judge("roll.all", "roll", [x], [5], torch.roll(x, 5))
    x = r(2, 3, 4)
    judge("roll.two", "roll", [x], [[1, -1], [1, 3]], torch.roll(x, (1, -1), (0, 2)))
    for mode, sizes in (("constant", [1, 2, 0, 3]), ("constant", [-1, 2]), ("reflect", [2, 1]),
                        ("reflect", [1, 2, 2, 1]), ("replicate", [3, 4]), ("replicate", [1, 0, 2, 5])):
        x = r(2, 3, 5) if len(sizes) == 2 else r(2, 3, 4, 5)
        more = dict(value=1.5) if mode == "constant" else dict(mode=mode)
        y = F.pad(x, sizes, mode=mode, value=1.5 if mode == "constant" else None)
        judge(f"pad.{mode}.{'_'.join(map(str, sizes))}", "pad", [x], [sizes, more], y)


def numbers():
    x = torch.tensor([[-2.0, -1.0, 0.5], [1.0, 3.0, 0.0]], requires_grad=True)  # the bounds themselves too
    judge("clamp", "clamp", [x], [-1, 1], torch.clamp(x, -1, 1))
    x = r(3, 4)
    judge("clamp.low", "clamp", [x], [0.2], torch.clamp(x, 0.2))
    for dim, n in ((1, 1), (2, 7), (3, 8)):
        shape = [2, 3, 4]
        shape[dim - 1] = n
        x = r(*shape)
        judge(f"cumsum.{dim}", "cumsum", [x], [dim], torch.cumsum(x, dim - 1))
    for name in ("var", "std"):
        fn = getattr(torch, name)
        x = r(3, 4)
        judge(f"{name}.all", name, [x], [], fn(x))
        x = r(3, 4, 5)
        judge(f"{name}.dims", name, [x], [[1, 3], dict(correction=0, keepdim=True)],
              fn(x, (0, 2), correction=0, keepdim=True))
        x = r(3, 4, 5)
        judge(f"{name}.last", name, [x], [-1], fn(x, -1))
    for dim, descending in ((1, False), (2, True), (-1, False)):
        x = r(3, 5, 4)
        y = torch.sort(x, dim=dim - 1 if dim > 0 else dim, descending=descending)
        judge(f"sort.{dim}.{descending}", "sort", [x], [dim, descending], y.values)
        golden.put(f"sort.{dim}.{descending}/index", y.indices)
    index = torch.tensor([[0, 2, 1], [3, 3, 0]])
    judge("one_hot", "one_hot", [index], [5], F.one_hot(index, 5).to(torch.float64))


def images():
    torch_mode = {1: "linear", 2: "bilinear", 3: "trilinear"}
    for dims, size in ((1, [5]), (2, [3, 4]), (3, [2, 3, 4])):
        for i, out in enumerate(([9] * dims, [2] * dims, [3, 7, 5][:dims])):
            x = r(2, 3, *size)
            judge(f"nearest.{dims}.{i}", "interpolate", [x], [dict(size=out)], F.interpolate(x, out))
            for align in (False, True):
                x = r(2, 3, *size)
                judge(f"linear.{dims}.{i}.{align}", "interpolate", [x],
                      [dict(size=out, mode="linear", align_corners=align)],
                      F.interpolate(x, out, mode=torch_mode[dims], align_corners=align))
        for scale in (2, 0.7, 1.5):
            x = r(2, 3, *size)
            judge(f"scaled.nearest.{dims}.{scale}", "interpolate", [x], [dict(scale=scale)],
                  F.interpolate(x, scale_factor=scale))
            x = r(2, 3, *size)
            judge(f"scaled.linear.{dims}.{scale}", "interpolate", [x], [dict(scale=scale, mode="linear")],
                  F.interpolate(x, scale_factor=scale, mode=torch_mode[dims]))


shapes()
numbers()
images()
golden.write()
