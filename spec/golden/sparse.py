"""sparse.py - tables with sparse gradients under torch.optim.SparseAdam, Adagrad and SGD, in f64.

    <case>/weight, <case>/final      the table before, and after the steps
    <case>/index (steps, b, n) i64   -1: no index; <case>/seed (steps, b, [n,] width): L = sum(output * seed)
    <case>/exp_avg, <case>/exp_avg_sq of SparseAdam, <case>/sum of Adagrad, after the last step

See golden.py for the command. The truth: torch.nn.Embedding and torch.nn.EmbeddingBag with sparse=True."""
import torch

from golden import Golden

ROWS, WIDTH, STEPS = 11, 3, 5
gen = torch.Generator().manual_seed(77)
golden = Golden("sparse")


def step_of(bag, kind, index):
    """The output of one step; index (b, n), without -1 for an embedding."""
    if kind == "embedding":
        return bag(index)
    lists = [[i for i in row if i >= 0] for row in index.tolist()]
    offsets = torch.tensor([sum(len(row) for row in lists[:b]) for b in range(len(lists))])
    return bag(torch.tensor([i for row in lists for i in row]), offsets)


def case(name, kind, make, **about):
    if kind == "embedding":
        layer = torch.nn.Embedding(ROWS, WIDTH, sparse=True, padding_idx=about.get("padding"))
    else:
        layer = torch.nn.EmbeddingBag(ROWS, WIDTH, mode=about["mode"], sparse=True)
    layer.weight.data = torch.randn(ROWS, WIDTH, generator=gen)
    golden.put(f"{name}/weight", layer.weight.detach().clone())
    optimizer = make(layer.parameters())
    low = 0 if kind == "embedding" else -1
    indices = torch.randint(low, ROWS - 2, (STEPS, 4, 3), generator=gen)  # the last two rows are never touched
    seeds = torch.randn((STEPS, 4, 3, WIDTH) if kind == "embedding" else (STEPS, 4, WIDTH), generator=gen)
    for step in range(STEPS):
        optimizer.zero_grad()
        (step_of(layer, kind, indices[step]) * seeds[step]).sum().backward()
        assert layer.weight.grad.is_sparse
        optimizer.step()
    golden.put(f"{name}/index", indices)
    golden.put(f"{name}/seed", seeds)
    golden.put(f"{name}/final", layer.weight)
    state = optimizer.state[layer.weight]
    for key in ("exp_avg", "exp_avg_sq", "sum"):
        if key in state:
            golden.put(f"{name}/{key}", state[key])
    golden.cases.append(dict(name=name, kind=kind, **about))


def sparse_adam(p):
    return torch.optim.SparseAdam(list(p), lr=0.1, betas=(0.8, 0.95), eps=1e-3)


def adagrad(p):
    return torch.optim.Adagrad(p, lr=0.1, lr_decay=0.05, eps=1e-6)


def sgd(p):
    return torch.optim.SGD(p, lr=0.1)


case("adam.embedding", "embedding", sparse_adam, padding=2, optimizer="SparseAdam")
case("adam.sum", "bag", sparse_adam, mode="sum", optimizer="SparseAdam")
case("adagrad.mean", "bag", adagrad, mode="mean", optimizer="Adagrad")
case("sgd.embedding", "embedding", sgd, optimizer="SGD")
golden.write()
