"""dlrm.py - bags of rows, and a tiny DLRM: logits, gradients and three steps of Adagrad, in f64.

    <case>/weight, <case>/index (m), <case>/offsets (bags), <case>/weights (m)   of torch.nn.EmbeddingBag
    <case>/output, <case>/seed, <case>/grad.weight, <case>/grad.weights          L = sum(output * seed)
    param.<name> grad.<name> final.<name>   of the DLRM: before, dL/d at the first step, after the last (f64)
    input (3, b, dense + tables) i64, label (3, b) i64, logits (b) of the first step, loss (3)

See golden.py for the command. The truth: torch.nn.EmbeddingBag, torch.nn.Linear, torch.optim.Adagrad and
binary_cross_entropy_with_logits, put together as in Naumov et al. 2019."""
import torch
import torch.nn.functional as F

from golden import Golden

DENSE, COUNTS, WIDTH, BOTTOM, TOP, BATCH, STEPS = 3, [7, 5, 2], 4, [6], [8, 5], 6, 3
gen = torch.Generator().manual_seed(31)
golden = Golden("dlrm")


def bag_case(name, mode, weighted):
    bag = torch.nn.EmbeddingBag(9, 3, mode=mode)
    bag.weight.data = torch.randn(9, 3, generator=gen)
    index, offsets = torch.randint(0, 9, (11,), generator=gen), torch.tensor([0, 3, 3, 8, 9])
    weights = torch.randn(11, generator=gen).requires_grad_(True) if weighted else None
    output = bag(index, offsets, per_sample_weights=weights)
    seed = torch.randn(output.shape, generator=gen)
    output.backward(seed)
    parts = {"weight": bag.weight, "index": index, "offsets": offsets, "output": output, "seed": seed,
             "grad.weight": bag.weight.grad}
    if weighted:
        parts.update({"weights": weights, "grad.weights": weights.grad})
    for what, tensor in parts.items():
        golden.put(f"{name}/{what}", tensor)
    golden.cases.append(dict(name=name, mode=mode, weighted=weighted))


class TinyDLRM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        def mlp(widths):
            return torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        n = len(COUNTS) + 1
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, WIDTH, mode="sum") for rows in COUNTS)
        self.bottom = mlp([DENSE] + BOTTOM + [WIDTH])
        self.top = mlp([WIDTH + n * (n - 1) // 2] + TOP)
        self.head = torch.nn.Linear(TOP[-1], 1)

    def forward(self, x):
        y = torch.log1p(x[:, :DENSE].clamp(min=0).double())
        for layer in self.bottom:
            y = F.relu(layer(y))
        rows = [table(x[:, DENSE + t:DENSE + t + 1]) for t, table in enumerate(self.tables)]
        z = torch.stack([y] + rows, 1)
        products = z @ z.transpose(1, 2)
        i, j = torch.tril_indices(z.shape[1], z.shape[1], offset=-1)
        y = torch.cat([y, products[:, i, j]], 1)
        for layer in self.top:
            y = F.relu(layer(y))
        return self.head(y)[:, 0]

    def named(self, pick):
        """Ganymede's names -> pick(parameter). Its tables are one matrix."""
        table = {"tables.weight": torch.cat([pick(t.weight) for t in self.tables])}
        for part in ("bottom", "top"):
            for i, layer in enumerate(getattr(self, part), 1):
                table[f"{part}.{i}.weight"], table[f"{part}.{i}.bias"] = pick(layer.weight), pick(layer.bias)
        table["head.weight"], table["head.bias"] = pick(self.head.weight), pick(self.head.bias)
        return {name: tensor.detach().clone() for name, tensor in table.items()}


bag_case("sum", "sum", False)
bag_case("mean", "mean", False)
bag_case("weighted", "sum", True)
model = TinyDLRM()
for p in model.parameters():
    p.data = torch.randn(p.shape, generator=gen) * 0.5
x = torch.stack([torch.cat([torch.randint(-2, 50, (BATCH, DENSE), generator=gen)] +
                           [torch.randint(0, rows, (BATCH, 1), generator=gen) for rows in COUNTS], 1)
                 for _ in range(STEPS)])
label = torch.randint(0, 2, (STEPS, BATCH), generator=gen)
golden.put("input", x)
golden.put("label", label)
for name, tensor in model.named(lambda p: p).items():
    golden.put("param." + name, tensor)
optimizer, losses = torch.optim.Adagrad(model.parameters(), lr=0.1), []
for step in range(STEPS):
    optimizer.zero_grad()
    logits = model(x[step])
    loss = F.binary_cross_entropy_with_logits(logits, label[step].double())
    loss.backward()
    if step == 0:
        golden.put("logits", logits)
        for name, tensor in model.named(lambda p: p.grad).items():
            golden.put("grad." + name, tensor)
            assert tensor.abs().max() >= 1e-3, name
    losses.append(float(loss.detach()))
    optimizer.step()
golden.put("loss", torch.tensor(losses))
for name, tensor in model.named(lambda p: p).items():
    golden.put("final." + name, tensor)
golden.write(model=dict(dense=DENSE, counts=COUNTS, width=WIDTH, bottom=BOTTOM, top=TOP))
