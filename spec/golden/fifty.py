"""fifty.py - fifty steps of optimizers with given gradients, for families.py, came.py and galore.py.

    param.<n>            parameter before the first step (n from 1), the same in every case
    grad.<k>.<n>         its gradient at step k, the same in every case
    <case>/after.<k>.<n> its value after step k, for some k"""
import torch

from golden import Golden, rand

STEPS = 50
SHOWN = [1, 2, 10, 50]


def write(name, seed, shapes, cases):
    """Writes <name>.safetensors. cases: (name, Ganymede's name of the optimizer, its options, a function that makes
    PyTorch's of a list of parameters)."""
    gen = torch.Generator().manual_seed(seed)
    golden = Golden(name)
    params = [rand(gen, *shape) for shape in shapes]
    grads = [[torch.randn(p.shape, generator=gen) for p in params] for _ in range(STEPS)]
    for n, p in enumerate(params, 1):
        golden.put(f"param.{n}", p.detach().clone())
    for k in range(1, STEPS + 1):
        for n, g in enumerate(grads[k - 1], 1):
            golden.put(f"grad.{k}.{n}", g)
    for case, kind, options, make in cases:
        own = [p.detach().clone().requires_grad_(True) for p in params]
        optimizer = make(own)
        for k in range(1, STEPS + 1):
            for p, g in zip(own, grads[k - 1]):
                p.grad = g.clone()
            optimizer.step()
            for n, p in enumerate(own, 1):
                if k in SHOWN:
                    golden.put(f"{case}/after.{k}.{n}", p.detach().clone())
        golden.cases.append(dict(name=case, optimizer=kind, options=options, steps=STEPS, params=len(own)))
    golden.write()
