"""came.py - fifty steps of CAME by the program of its paper's authors (came_pytorch 0.1.3). See golden.py for the
command; families.py says what the tensors are."""
import torch
from came_pytorch import CAME

from golden import Golden, rand

STEPS = 50
SHOWN = [1, 2, 10, 50]
CASES = [
    ("came.plain", dict(lr=2e-4)),
    ("came.all", dict(lr=0.03, betas=(0.8, 0.9, 0.95), eps=(1e-8, 1e-4), clip_threshold=0.5, weight_decay=0.1)),
]
gen = torch.Generator().manual_seed(29)
golden = Golden("came")
params = [rand(gen, 5, 7), rand(gen, 3), rand(gen, 2, 4, 3)]
grads = [[torch.randn(p.shape, generator=gen) for p in params] for _ in range(STEPS)]
for n, p in enumerate(params, 1):
    golden.put(f"param.{n}", p.detach().clone())
for k in range(1, STEPS + 1):
    for n, g in enumerate(grads[k - 1], 1):
        golden.put(f"grad.{k}.{n}", g)
for name, options in CASES:
    own = [p.detach().clone().requires_grad_(True) for p in params]
    optimizer = CAME(own, **options)
    for k in range(1, STEPS + 1):
        for p, g in zip(own, grads[k - 1]):
            p.grad = g.clone()
        optimizer.step()
        for n, p in enumerate(own, 1):
            if k in SHOWN:
                golden.put(f"{name}/after.{k}.{n}", p.detach().clone())
    golden.cases.append(dict(name=name, optimizer="CAME", options=options, steps=STEPS, params=len(own)))
golden.write()
