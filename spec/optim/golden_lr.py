"""golden_lr.py - learning rates of PyTorch's schedulers, a table a case, for lr_scheduler_spec.lua.

    python3 spec/optim/golden_lr.py > spec/optim/golden_lr.json        (needs PyTorch)

Each case: the Lua class, its options, the base rate, and the rates of steps 0 .. T as PyTorch's own
(recursive) schedulers give them in f64. Warm-ups are PyTorch's LinearLR followed by the plain schedule
in a SequentialLR; what PyTorch has no class for (LinearWarmupLR, end_lr of PolynomialLR) is a LambdaLR.
"""
import json
import math
import warnings

import torch
from torch.optim import lr_scheduler as S

warnings.filterwarnings("ignore")
T, W, LR = 50, 5, 0.3


def run(make, steps=T, kind="sgd"):
    p = [torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))]
    opt = torch.optim.SGD(p, lr=LR, momentum=0.9) if kind == "sgd" else torch.optim.AdamW(p, lr=LR)
    sched = make(opt)
    rates, momenta = [], []
    for _ in range(steps):
        group = opt.param_groups[0]
        rates.append(group["lr"])
        momenta.append(group["momentum"] if kind == "sgd" else group["betas"][0])
        opt.step()
        sched.step()
    return rates, momenta


def after_warmup(plain):
    def make(opt):
        warm = S.LinearLR(opt, start_factor=1 / W, end_factor=1.0, total_iters=W - 1)
        return S.SequentialLR(opt, [warm, plain(opt)], milestones=[W])
    return make


def flat_cosine(total, pct, eta_min):
    flat = int(total * pct)
    return lambda opt: S.SequentialLR(
        opt, [S.ConstantLR(opt, factor=1.0, total_iters=flat), S.CosineAnnealingLR(opt, total - flat, eta_min)], [flat])


def flat_lambda(total, pct, eta_min):  # SequentialLR cannot be nested in one with the same meaning
    flat = int(total * pct)
    share = eta_min / LR
    cosine = lambda x: share + (1 - share) * (1 + math.cos(math.pi * x)) / 2
    return lambda s: 1.0 if s < flat else cosine((s - flat) / (total - flat))


def case(name, options, make, **kw):
    steps = kw.pop("steps", T)
    rates, momenta = run(make, steps, **kw)
    out = {"type": name, "options": options, "base": LR, "lr": rates}
    if name == "OneCycleLR" and options.get("cycle_momentum", True):
        out["momentum"] = momenta
    return out


def decay(s):
    return 0.97 if s % 3 else 1.01


cases = [
    case("CosineAnnealingLR", {"total_steps": T}, lambda o: S.CosineAnnealingLR(o, T)),
    case("CosineAnnealingLR", {"total_steps": T, "eta_min": 0.01}, lambda o: S.CosineAnnealingLR(o, T, 0.01)),
    case("CosineAnnealingWarmupLR", {"total_steps": T, "warmup_steps": W, "eta_min": 0.01},
         after_warmup(lambda o: S.CosineAnnealingLR(o, T - W, 0.01))),
    case("CosineAnnealingWarmupLR", {"total_steps": T}, lambda o: S.CosineAnnealingLR(o, T)),
    case("FlatAnnealingLR", {"total_steps": T}, flat_cosine(T, 0.72, 0)),
    case("FlatAnnealingLR", {"total_steps": T, "pct_start": 0.31, "eta_min": 0.02}, flat_cosine(T, 0.31, 0.02)),
    case("FlatAnnealingWarmupLR", {"total_steps": T, "warmup_steps": W, "pct_start": 0.4, "eta_min": 0.02},
         after_warmup(lambda o: S.LambdaLR(o, flat_lambda(T - W, 0.4, 0.02)))),
    case("LinearWarmupLR", {"total_steps": T, "warmup_steps": W},
         lambda o: S.LambdaLR(o, lambda s: (s + 1) / (W + 1) if s < W else (T - s) / (T - W))),
    case("MultiStepLR", {"milestones": [10, 20, 35], "gamma": 0.5}, lambda o: S.MultiStepLR(o, [10, 20, 35], 0.5)),
    case("MultiStepWarmupLR", {"total_steps": T, "milestones": [3, 12, 30], "warmup_steps": W, "gamma": 0.3},
         after_warmup(lambda o: S.MultiStepLR(o, [7, 25], 0.3))),
    # a milestone just before the end of the warm-up, and one at its end
    case("MultiStepWarmupLR", {"total_steps": T, "milestones": [W - 1, 30], "warmup_steps": W, "gamma": 0.3},
         after_warmup(lambda o: S.MultiStepLR(o, [30 - W], 0.3))),
    case("MultiStepWarmupLR", {"total_steps": T, "milestones": [W, 30], "warmup_steps": W, "gamma": 0.3},
         after_warmup(lambda o: S.MultiStepLR(o, [0, 30 - W], 0.3))),
    case("OneCycleLR", {"total_steps": T}, lambda o: S.OneCycleLR(o, LR, T)),
    case("OneCycleLR", {"total_steps": 40, "anneal_strategy": "linear", "pct_start": 0.25, "div_factor": 10},
         lambda o: S.OneCycleLR(o, LR, 40, anneal_strategy="linear", pct_start=0.25, div_factor=10),
         steps=40, kind="adam"),
    case("OneCycleLR", {"total_steps": T, "cycle_momentum": False},
         lambda o: S.OneCycleLR(o, LR, T, cycle_momentum=False)),
    # no whole step rises, none at all, all of them
    case("OneCycleLR", {"total_steps": T, "pct_start": 0.01}, lambda o: S.OneCycleLR(o, LR, T, pct_start=0.01)),
    case("OneCycleLR", {"total_steps": T, "pct_start": 0}, lambda o: S.OneCycleLR(o, LR, T, pct_start=0.0)),
    case("OneCycleLR", {"total_steps": T, "pct_start": 1}, lambda o: S.OneCycleLR(o, LR, T, pct_start=1.0),
         steps=T - 1),
    case("PolynomialLR", {"total_steps": T, "end_lr": 0, "power": 2}, lambda o: S.PolynomialLR(o, T, 2)),
    case("PolynomialLR", {"total_steps": T, "end_lr": 0.003},
         lambda o: S.LinearLR(o, 1.0, 0.003 / LR, total_iters=T)),
    case("PolynomialWarmupLR", {"total_steps": T, "warmup_steps": W, "end_lr": 0, "power": 1.5},
         after_warmup(lambda o: S.PolynomialLR(o, T - W, 1.5))),
    case("LambdaLR", {"lr_lambda": "decay"}, lambda o: S.LambdaLR(o, decay)),
    case("MultiplicativeLR", {"lr_lambda": "decay"}, lambda o: S.MultiplicativeLR(o, decay)),
    case("StepLR", {"step_size": 7, "gamma": 0.6}, lambda o: S.StepLR(o, 7, 0.6)),
    case("ExponentialLR", {"gamma": 0.95}, lambda o: S.ExponentialLR(o, 0.95)),
]
print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
