"""recurrent.py - golden values of LSTM and GRU. See golden.py for the format and the command. Beside what a case has
there, state.<n> is a first state (then input.1 is x alone), grad.state.<n> its gradient, last.<n> the last state, and
seed.last.<n> what dL/d last.<n> is."""
import torch
import torch.nn as nn

from golden import Golden, rand

gen = torch.Generator().manual_seed(60)
golden = Golden("recurrent")


def judge(name, layer, length, given, **options):
    module = getattr(nn, layer)(3, 4, batch_first=True, **options)
    params = dict(module.named_parameters())
    for p in params.values():
        p.data = torch.randn(p.shape, generator=gen) / 2
    x = rand(gen, 5, length, 3)
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    first = [rand(gen, rows, 5, 4) for _ in range(2 if layer == "LSTM" else 1)] if given else None
    y, last = module(x, (tuple(first) if layer == "LSTM" else first[0]) if given else None)
    last = list(last) if layer == "LSTM" else [last]
    seeds = [torch.randn(t.shape, generator=gen) for t in last]
    loss = sum((t * s).sum() for t, s in zip(last, seeds))
    loss.backward(retain_graph=True)
    ours = dict(inputs=3, hidden=4, layers=options.get("num_layers", 1),
                bidirectional=options.get("bidirectional", False), bias=options.get("bias", True))
    golden.case(name, layer, ours, [x], params, y, torch.randn(y.shape, generator=gen))
    for i, t in enumerate(last, 1):
        golden.put(f"{name}/last.{i}", t)
        golden.put(f"{name}/seed.last.{i}", seeds[i - 1])
    for i, t in enumerate(first or [], 1):
        golden.put(f"{name}/state.{i}", t)
        golden.put(f"{name}/grad.state.{i}", t.grad)


for kind in ("LSTM", "GRU"):
    judge(f"{kind}.plain", kind, 4, False)
    judge(f"{kind}.one", kind, 1, True, bias=False)
    judge(f"{kind}.state", kind, 9, True, bias=False)
    judge(f"{kind}.layers", kind, 3, True, num_layers=3)
    judge(f"{kind}.both", kind, 5, False, num_layers=2, bidirectional=True)
    judge(f"{kind}.both.state", kind, 66, True, bidirectional=True)
golden.write()
