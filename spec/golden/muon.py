"""muon.py - fifty steps of torch.optim.Muon with given gradients, in f64. See golden.py for the command.

    <case>/param.<n>         matrix before the first step (n from 1)
    <case>/grad.<k>.<n>      its gradient at step k, from 1 to GIVEN; step k takes that of (k - 1) mod GIVEN + 1
    <case>/after.<k>.<n>     its value after step k, for some k

`options` are those of torch.optim.Muon (PyTorch 2.9 or later), in its own spelling. It casts to bfloat16 before it
iterates; here that cast does nothing, so that all of its numbers are f64."""
import torch

from golden import Golden, rand

STEPS, GIVEN, KEPT = 50, 10, (1, 2, 10, 50)
CASES = [
    ("muon.plain", dict(lr=0.02)),
    ("muon.match_rms_adamw", dict(lr=0.01, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")),
    ("muon.no_nesterov", dict(lr=0.02, momentum=0.8, nesterov=False, weight_decay=0.0, ns_steps=3)),
    ("muon.coefficients", dict(lr=0.02, ns_coefficients=(2.0, -1.5, 0.5), eps=0.5)),
]
torch.bfloat16 = torch.float64  # PyTorch from 2.10 on casts to it,
torch.Tensor.bfloat16 = lambda self: self.clone()  # 2.9 calls this
gen = torch.Generator().manual_seed(23)
golden = Golden("muon")
for name, options in CASES:
    params = [rand(gen, 5, 7), rand(gen, 8, 3), rand(gen, 4, 4)]
    grads = [[0.3 * torch.randn(p.shape, generator=gen) for p in params] for _ in range(GIVEN)]
    for n, p in enumerate(params, 1):
        golden.put(f"{name}/param.{n}", p.detach().clone())
        for k in range(1, GIVEN + 1):
            golden.put(f"{name}/grad.{k}.{n}", grads[k - 1][n - 1])
    optimizer = torch.optim.Muon(params, **options)
    for k in range(1, STEPS + 1):
        for p, g in zip(params, grads[(k - 1) % GIVEN]):
            p.grad = g.clone()
        optimizer.step()
        for n, p in enumerate(params, 1):
            if k in KEPT:
                golden.put(f"{name}/after.{k}.{n}", p.detach().clone())
    golden.cases.append(dict(name=name, options=options, steps=STEPS, given=GIVEN, kept=list(KEPT), params=len(params)))
golden.write()
