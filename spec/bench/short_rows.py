"""short_rows.py - elementwise ops, copies and sums of tensors whose last dimension is short, beside PyTorch.

    python3 spec/bench/short_rows.py             THREADS=n for another number than 1; DTYPE=bf16

Needs a Python with torch, and a built tree. beside.py says what is printed."""
import os

import torch

from beside import compare

DTYPE = os.environ.get("DTYPE", "f32")
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


def main():
    cases = {}
    for n in (2, 3, 8, 16, 31, 64, 128, 768):
        cases.update(rows(n))
    for factor in (2, 3, 4):
        cases.update(images(factor))
    compare("short_rows.lua", cases, "--set", "dtype=" + DTYPE)


main()
