"""families.py - fifty steps of the options that optimizers.py leaves out, and of further optimizers. See golden.py for
the command.

    param.<n>            parameter before the first step (n from 1), the same in every case
    grad.<k>.<n>         its gradient at step k, the same in every case
    <case>/after.<k>.<n> its value after step k, for some k

`options` are those of torch.optim's class of the same name, in its own spelling."""
import torch

from golden import Golden, rand

STEPS = 50
SHOWN = [1, 2, 10, 50]
CASES = [
    ("sgd.maximize", "SGD", dict(lr=0.1, momentum=0.9, weight_decay=0.02, maximize=True)),
    ("adam.amsgrad", "Adam", dict(lr=0.01, amsgrad=True, betas=(0.8, 0.9))),
    ("adam.maximize", "Adam", dict(lr=0.01, amsgrad=True, weight_decay=0.1, maximize=True)),
    ("adamw.amsgrad", "AdamW", dict(lr=0.01, amsgrad=True, betas=(0.8, 0.9), weight_decay=0.1)),
    ("adamw.maximize", "AdamW", dict(lr=0.01, maximize=True)),
    ("rmsprop.plain", "RMSprop", dict()),
    ("rmsprop.momentum", "RMSprop", dict(lr=0.02, alpha=0.9, eps=1e-3, momentum=0.8, weight_decay=0.05)),
    ("rmsprop.centered", "RMSprop", dict(lr=0.01, alpha=0.95, centered=True)),
    ("rmsprop.all", "RMSprop", dict(lr=0.01, centered=True, momentum=0.5, weight_decay=0.1, maximize=True)),
    ("adagrad.plain", "Adagrad", dict()),
    ("adagrad.all", "Adagrad", dict(lr=0.1, lr_decay=0.05, weight_decay=0.05, initial_accumulator_value=0.3, eps=1e-4)),
    ("adafactor.plain", "Adafactor", dict()),
    ("adafactor.all", "Adafactor", dict(lr=0.3, beta2_decay=-0.5, d=1.5, weight_decay=0.1, maximize=True)),
    ("adagrad.maximize", "Adagrad", dict(lr=0.1, maximize=True)),
]
gen = torch.Generator().manual_seed(23)
golden = Golden("families")
params = [rand(gen, 5, 7), rand(gen, 3)]
grads = [[torch.randn(p.shape, generator=gen) for p in params] for _ in range(STEPS)]
for n, p in enumerate(params, 1):
    golden.put(f"param.{n}", p.detach().clone())
for k in range(1, STEPS + 1):
    for n, g in enumerate(grads[k - 1], 1):
        golden.put(f"grad.{k}.{n}", g)
for name, kind, options in CASES:
    own = [p.detach().clone().requires_grad_(True) for p in params]
    optimizer = getattr(torch.optim, kind)(own, **options)
    for k in range(1, STEPS + 1):
        for p, g in zip(own, grads[k - 1]):
            p.grad = g.clone()
        optimizer.step()
        for n, p in enumerate(own, 1):
            if k in SHOWN:
                golden.put(f"{name}/after.{k}.{n}", p.detach().clone())
    golden.cases.append(dict(name=name, optimizer=kind, options=options, steps=STEPS, params=len(own)))
golden.write()
