"""recommendation.py - steps of DLRM with tables of a million rows: ours with dense and with sparse gradients, and
PyTorch's nn.EmbeddingBag(sparse=True), alternating in one run.

    python3 spec/bench/recommendation.py [rounds]

Needs a Python with torch, and a built tree. f32, 2 threads each (THREADS=n for another number), batches of 2,048, four
tables of 1,000,000 x 16. Prints median seconds of a step and the paired ratios PyTorch / ours: above 1 ours is faster.
The machine is usually shared: believe the ratios, not the seconds."""
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("GANYMEDE_BIN", os.path.join(ROOT, "build", "ganymede"))
THREADS = int(os.environ.get("THREADS", "2"))
TABLES, ROWS, WIDTH, DENSE, BATCH = 4, int(os.environ.get("ROWS", "1000000")), 16, 13, 2048
STEPS, BATCHES = 20, 8


def mlp(widths):
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        n = TABLES + 1
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse) for _ in range(TABLES))
        self.bottom, self.top = mlp([DENSE, 64, 32, WIDTH]), mlp([WIDTH + n * (n - 1) // 2, 64, 32])
        self.head = nn.Linear(32, 1)
        self.pairs = torch.tril_indices(n, n, offset=-1)

    def forward(self, x):
        y = self.bottom(torch.log1p(x[:, :DENSE].clamp(min=0).float()))
        rows = [table(x[:, DENSE + t : DENSE + t + 1]) for t, table in enumerate(self.tables)]
        z = torch.stack([y] + rows, 1)
        products = torch.bmm(z, z.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.head(self.top(torch.cat([y, products], 1)))[:, 0]


class Peer:
    """PyTorch's model and optimizers; a sparse optimizer for the tables, a dense one for the rest."""

    def __init__(self, kind):
        torch.manual_seed(0)
        self.model = DLRM(True)
        tables = list(self.model.tables.parameters())
        rest = [p for name, p in self.model.named_parameters() if not name.startswith("tables")]
        if kind == "SparseAdam":
            self.optimizers = [torch.optim.SparseAdam(tables, lr=0.01), torch.optim.Adam(rest, lr=0.01)]
        else:
            self.optimizers = [torch.optim.Adagrad(tables + rest, lr=0.01)]
        n = torch.arange(BATCHES * BATCH)
        dense = torch.stack([n * d % 31 for d in range(1, DENSE + 1)], 1)
        index = torch.stack([(n * 7919 + t * 104729) * 31 % ROWS for t in range(1, TABLES + 1)], 1)
        self.x, self.y = torch.cat([dense, index], 1).split(BATCH), (n % 2).float().split(BATCH)

    def step(self, i):
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = F.binary_cross_entropy_with_logits(self.model(self.x[i % BATCHES]), self.y[i % BATCHES])
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()

    def seconds(self):
        times = []
        for i in range(STEPS + 3):
            begin = time.perf_counter()
            self.step(i)
            times.append(time.perf_counter() - begin)
        return statistics.median(times[3:])


def ours(optimizer, sparse):
    env = dict(os.environ, OPTIMIZER=optimizer, SPARSE="1" if sparse else "0", STEPS=str(STEPS), ROWS=str(ROWS))
    script = os.path.join(ROOT, "spec/bench/recommendation.lua")
    out = subprocess.run([BINARY, "run", "--threads", str(THREADS), script], env=env, cwd=ROOT, check=True,
                         capture_output=True, text=True).stdout
    words = [line for line in out.splitlines() if line.startswith("step ")][-1].split()
    return float(words[1]), float(words[3])


def main(rounds):
    torch.set_num_threads(THREADS)
    for kind in ("SparseAdam", "Adagrad"):
        peer, rows = Peer(kind), []
        for _ in range(rounds):
            theirs, sparse = peer.seconds(), ours(kind, True)
            rows.append((theirs, sparse[0], sparse[1], ours("Adam" if kind == "SparseAdam" else kind, False)[0]))
        theirs, sparse, update, dense = (statistics.median(column) for column in zip(*rows))
        ratio = statistics.median(row[0] / row[1] for row in rows)
        before = statistics.median(row[3] / row[1] for row in rows)
        print(f"{kind:10s} PyTorch {theirs * 1e3:8.2f} ms, ours {sparse * 1e3:8.2f} ms (update {update * 1e3:.2f}), "
              f"dense {dense * 1e3:8.2f} ms; PyTorch / ours {ratio:.2f}, dense / sparse {before:.1f}", flush=True)
        del peer


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
