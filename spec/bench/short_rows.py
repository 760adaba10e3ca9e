"""short_rows.py - elementwise ops, copies and sums of tensors whose last dimension is short, beside PyTorch.

    python3 spec/bench/short_rows.py             THREADS=n for another number than 1; DTYPE=bf16

Needs a Python with torch, and a built tree (GANYMEDE_BIN names the program). Prints the least ms of ours and of
PyTorch, which take turns, and the median of PyTorch's time over ours: above 1 ours is faster."""
import os
import statistics
import subprocess
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("GANYMEDE_BIN", os.path.join(ROOT, "build", "ganymede"))
THREADS = int(os.environ.get("THREADS", "1"))
DTYPE = os.environ.get("DTYPE", "f32")
ROUNDS, REPEATS = 9, 5
torch.set_num_threads(THREADS)
dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[DTYPE]


def rows(n):
    """Cases of some 300,000 elements in rows of n: a row, a column, a window, and sums."""
    count = 300000 // n
    x, z = torch.randn(count, n, dtype=dtype), torch.randn(count, 2 * n, dtype=dtype)
    row, column = torch.randn(n, dtype=dtype), torch.randn(count, 1, dtype=dtype)
    return {
        f"row {n}": lambda: x + row,
        f"column {n}": lambda: x * column,
        f"window {n}": lambda: z[:, :n].contiguous(),
        f"exp {n}": lambda: z[:, :n].exp(),
        f"repeat {n}": lambda: column.expand(count, n).contiguous(),
        f"sum {n}": lambda: x.sum(1),
        f"columns {n}": lambda: x.sum(0),
    }


def images(factor):
    """8 images of 128 channels and 16 x 16 pixels, made larger, and the gradient of that."""
    x = torch.randn(8, 128, 16, 1, 16, 1, dtype=dtype)
    y = torch.randn(8, 128, 16, factor, 16, factor, dtype=dtype)
    return {
        f"larger {factor}": lambda: x.expand(8, 128, 16, factor, 16, factor).contiguous(),
        f"smaller {factor}": lambda: y.sum((3, 5)),
    }


class Ours:
    """The host, waiting for lines (short_rows.lua)."""

    def __init__(self):
        script = os.path.join(ROOT, "spec", "bench", "short_rows.lua")
        self.process = subprocess.Popen([BINARY, "run", "--threads", str(THREADS), "--set", "dtype=" + DTYPE, script],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def least(call):
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def main():
    ours, ratios = Ours(), []
    print(f"torch {torch.__version__}, {THREADS} thread(s), {DTYPE}")
    cases = {}
    for n in (2, 3, 8, 16, 31, 64, 128, 768):
        cases.update(rows(n))
    for factor in (2, 3, 4):
        cases.update(images(factor))
    for name, call in cases.items():
        pairs = [(ours.seconds(f"{name} {REPEATS}"), least(call)) for _ in range(ROUNDS)]
        ratio = statistics.median(theirs / mine for mine, theirs in pairs)
        ratios.append(ratio)
        mine, theirs = (min(times) * 1e3 for times in zip(*pairs))
        print(f"{name:12}  ours {mine:7.3f} ms  torch {theirs:7.3f} ms  ratio {ratio:5.2f}", flush=True)
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}")


main()
