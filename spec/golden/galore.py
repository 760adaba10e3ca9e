"""galore.py - fifty steps of GaLore by the program of its paper's authors (galore_torch 1.0). See golden.py for the
command; families.py says what the tensors are. Two things of the program are replaced: it decomposes in f32, here it is
f64; and a singular vector has the sign that brings it nearer to the one before."""
import torch
from galore_torch import GaLoreAdamW
from galore_torch.galore_projector import GaLoreProjector

from golden import Golden, rand

STEPS = 50
SHOWN = [1, 2, 10, 50]
CASES = [
    ("galore.once", dict(lr=1e-2, rank=3)),
    ("galore.often", dict(lr=0.03, rank=2, update_proj_gap=7, scale=0.5, betas=(0.8, 0.9), eps=1e-3)),
]


def basis(self, g, rank, type):
    u, _, vh = torch.linalg.svd(g, full_matrices=False)
    new = vh[:rank] if type == "right" else u[:, :rank]
    if self.ortho_matrix is not None:
        along = (new * self.ortho_matrix).sum(dim=1 if type == "right" else 0, keepdim=True)
        new = torch.where(along < 0, -new, new)
    return new


GaLoreProjector.get_orthogonal_matrix = basis
gen = torch.Generator().manual_seed(31)
golden = Golden("galore")
params = [rand(gen, 5, 9), rand(gen, 3), rand(gen, 8, 4), rand(gen, 6, 6), rand(gen, 2, 9)]
grads = [[torch.randn(p.shape, generator=gen) for p in params] for _ in range(STEPS)]
for n, p in enumerate(params, 1):
    golden.put(f"param.{n}", p.detach().clone())
for k in range(1, STEPS + 1):
    for n, g in enumerate(grads[k - 1], 1):
        golden.put(f"grad.{k}.{n}", g)
for name, options in CASES:
    own = [p.detach().clone().requires_grad_(True) for p in params]
    of_ranks = {key: options.get(key, default) for key, default in
                [("rank", None), ("update_proj_gap", 200), ("scale", 0.25), ("proj_type", "std")]}
    matrices = [p for p in own if p.dim() == 2 and min(p.shape) > options["rank"]]
    others = [p for p in own if not any(p is m for m in matrices)]
    rest = {key: value for key, value in options.items() if key not in of_ranks}
    groups = [dict(params=matrices, **of_ranks), dict(params=others)]
    optimizer = GaLoreAdamW(groups, no_deprecation_warning=True, **rest)
    for k in range(1, STEPS + 1):
        for p, g in zip(own, grads[k - 1]):
            p.grad = g.clone()
        optimizer.step()
        for n, p in enumerate(own, 1):
            if k in SHOWN:
                golden.put(f"{name}/after.{k}.{n}", p.detach().clone())
    golden.cases.append(dict(name=name, optimizer="GaLore", options=options, steps=STEPS, params=len(own)))
golden.write()
