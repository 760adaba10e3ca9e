"""convolution.py - our convolutions against PyTorch's and against our own matrix products, alternating in one run.

    python3 spec/bench/convolution.py           THREADS=n for another number than 2; SHAPES=32 or 224 for one half;
                                                DTYPE=bf16

Needs what kernels_gemm.py needs. f32 or bf16; the convolutions of ResNet-18 on
images of 32 x 32 (batch 32) and 224 x 224 (batch 4), and a depthwise one: forward with a bias, gradient of the input,
gradient of the weights and the bias. The floor of a convolution is the time of our product of the same m, n, k (out,
results, channels by places of the kernel), or the bytes of x, w and y at the rate of memory. Printed: GFLOP/s, the
share of that product's rate, and the median of the paired ratios of time to PyTorch: above 1 ours is faster. On a
shared machine believe the ratios only."""
import os
import statistics

import torch

from kernels_gemm import ROUNDS, THREADS, TORCH_DTYPE, WORK, Ours, timed

SHAPES = [  # images, channels, side, out, kernel, stride, padding, groups
    (32, 3, 32, 64, 3, 1, 1, 1), (32, 64, 32, 64, 3, 1, 1, 1), (32, 64, 32, 128, 3, 2, 1, 1),
    (32, 64, 32, 128, 1, 2, 0, 1), (32, 128, 16, 128, 3, 1, 1, 1), (32, 256, 8, 256, 3, 1, 1, 1),
    (32, 512, 4, 512, 3, 1, 1, 1),
    (4, 3, 224, 64, 7, 2, 3, 1), (4, 64, 56, 64, 3, 1, 1, 1), (4, 128, 28, 128, 3, 1, 1, 1),
    (4, 256, 14, 256, 3, 1, 1, 1), (4, 256, 14, 512, 3, 2, 1, 1), (4, 512, 7, 512, 3, 1, 1, 1),
    (8, 96, 56, 96, 3, 1, 1, 96),
]


def compare(ours, what, n, c, side, out, kernel, stride, padding, groups):
    x, w, b = (torch.randn(*shape).to(TORCH_DTYPE)
               for shape in ((n, c, side, side), (out, c // groups, kernel, kernel), (out,)))
    y = torch.conv2d(x, w, b, stride, padding, 1, groups)
    places, deep = y.shape[2] * y.shape[3] * n, c // groups * kernel * kernel
    flops = 2 * out * places * deep

    def backward(*mask):
        return torch.ops.aten.convolution_backward(y, x, w, [out], [stride] * 2, [padding] * 2, [1, 1], False, [0, 0],
                                                   groups, mask)

    peer = {"forward": lambda: torch.conv2d(x, w, b, stride, padding, 1, groups),
            "input": lambda: backward(True, False, False), "weight": lambda: backward(False, True, True)}[what]
    m, columns, k = {"forward": (out, places, deep), "weight": (out, deep, places),
                     "input": (c, n * side * side, out * kernel * kernel // stride ** 2 or 1)}[what]
    times, rounds = max(1, int(WORK / 5 / flops)), []
    for i in range(ROUNDS + 1):
        mine = ours(f"conv {what} {n} {c} {side} {side} {out} {kernel} {stride} {padding} {groups} {times}")
        product = ours(f"gemm {m} {columns} {k} NN {times}") * flops / (2 * m * columns * k) if groups == 1 else mine
        theirs = timed(times, peer)
        if i > 0:  # the first warms up
            rounds.append((mine, product / mine, theirs / mine))
    seconds, share, ratio = (statistics.median(r[i] for r in rounds) for i in range(3))
    bytes_moved = x.element_size() * (x.numel() + w.numel() + y.numel())
    print(f"{what:8s} {n:3d} x {c:3d} x {side:3d}^2 -> {out:3d}, {kernel}^2 / {stride}   {1e-9 * flops / seconds:7.1f} "
          f"GFLOP/s {1e-9 * bytes_moved / seconds:6.1f} GB/s   of our product {share:5.2f}   "
          f"PyTorch / ours {ratio:5.2f}", flush=True)
    return share, ratio


def main():
    torch.set_num_threads(THREADS)
    print(f"torch {torch.__version__}, {THREADS} threads")
    ours, only = Ours(), os.environ.get("SHAPES")
    for what in ("forward", "input", "weight"):
        ratios = [compare(ours, what, *s) for s in SHAPES if not only or (s[0] == 32) == (only == "32")]
        print("%s: geometric means: of our product %.2f, PyTorch / ours %.2f"
              % (what, *(statistics.geometric_mean(r[i] for r in ratios) for i in (0, 1))))
    ours.close()


if __name__ == "__main__":
    main()
