"""optimizers.py - six steps of each optimizer with given gradients. See golden.py for the command.

    <case>/param.<n>     parameter before the first step (n from 1)
    <case>/grad.<k>.<n>  its gradient at step k
    <case>/after.<k>.<n> its value after step k

`options` are those of torch.optim's class of the same name, in its own spelling."""
import torch

from golden import Golden, rand

STEPS = 6
CASES = [
    ("sgd.plain", "SGD", dict(lr=0.1)),
    ("sgd.weight_decay", "SGD", dict(lr=0.1, weight_decay=0.05)),
    ("sgd.momentum", "SGD", dict(lr=0.1, momentum=0.9)),
    ("sgd.dampening", "SGD", dict(lr=0.1, momentum=0.8, dampening=0.3, weight_decay=0.01)),
    ("sgd.nesterov", "SGD", dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("adam.plain", "Adam", dict(lr=0.01)),
    ("adam.weight_decay", "Adam", dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)),
    ("adamw.plain", "AdamW", dict(lr=0.01, weight_decay=0.1)),
    ("adamw.eps", "AdamW", dict(lr=0.02, betas=(0.7, 0.9), eps=1e-2, weight_decay=0.3)),
]
gen = torch.Generator().manual_seed(22)
golden = Golden("optimizers")
for name, kind, options in CASES:
    params = [rand(gen, 5, 7), rand(gen, 3)]
    for n, p in enumerate(params, 1):
        golden.put(f"{name}/param.{n}", p.detach().clone())
    optimizer = getattr(torch.optim, kind)(params, **options)
    for k in range(1, STEPS + 1):
        for n, p in enumerate(params, 1):
            p.grad = torch.randn(p.shape, generator=gen)
            golden.put(f"{name}/grad.{k}.{n}", p.grad)
        optimizer.step()
        for n, p in enumerate(params, 1):
            golden.put(f"{name}/after.{k}.{n}", p.detach().clone())
    golden.cases.append(dict(name=name, optimizer=kind, options=options, steps=STEPS, params=len(params)))
golden.write()
