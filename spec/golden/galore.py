"""galore.py - fifty steps of GaLore by the program of its paper's authors (galore_torch 1.0). See golden.py for the
command; fifty.py says what the tensors are. Two things of the program are replaced: it decomposes in f32, here it is
f64; and a singular vector has the sign that brings it nearer to the one before."""
import torch
from galore_torch import GaLoreAdamW
from galore_torch.galore_projector import GaLoreProjector

import fifty

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


def maker(options):
    of_ranks = {key: options.get(key, default) for key, default in
                [("rank", None), ("update_proj_gap", 200), ("scale", 0.25), ("proj_type", "std")]}
    rest = {key: value for key, value in options.items() if key not in of_ranks}

    def make(params):
        matrices = [p for p in params if p.dim() == 2 and min(p.shape) > options["rank"]]
        others = [p for p in params if not any(p is m for m in matrices)]
        groups = [dict(params=matrices, **of_ranks), dict(params=others)]
        return GaLoreAdamW(groups, no_deprecation_warning=True, **rest)

    return make


fifty.write("galore", 31, [(5, 9), (3,), (8, 4), (6, 6), (2, 9)],
            [(name, "GaLore", options, maker(options)) for name, options in CASES])
