"""kernels_attention.py - our attention, forward and backward, against PyTorch's fused one, alternating in one run.

    python3 spec/bench/kernels_attention.py      THREADS=n for another number than 2

Needs what kernels_gemm.py needs. f32, no dropout. Prints the milliseconds of ours and the median of the paired
ratios of time: above 1 ours is faster."""
import statistics

import torch
import torch.nn.functional as F

from kernels_gemm import ROUNDS, THREADS, Ours, timed

CASES = [  # batch, tokens, heads, size, causal
    (4, 64, 12, 64, True), (1, 1024, 12, 64, True), (1, 1024, 12, 64, False), (32, 50, 3, 64, False),
    (1, 2048, 4, 128, True), (1, 333, 1, 40, True),
]


def compare(ours, b, s, h, d, causal):
    q, k, v = (torch.randn(b, s, h, d).transpose(1, 2).requires_grad_() for _ in range(3))
    g = torch.randn(b, h, s, d)

    def peer():
        torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=causal), (q, k, v), g)

    times, rounds = max(1, int(1e9 / (14 * b * h * s * s * d))), []
    for i in range(ROUNDS + 1):
        seconds = ours(f"attention {b} {s} {h} {d} {int(causal)} {times}"), timed(times, peer)
        if i > 0:  # the first warms up
            rounds.append(seconds)
    mine = statistics.median(r[0] for r in rounds)
    kind = "causal" if causal else "full"
    print(f"batch {b:2d} tokens {s:4d} heads {h:2d} size {d:3d} {kind:6s} {mine * 1e3:8.3f} ms   "
          f"PyTorch / ours {statistics.median(r[1] / r[0] for r in rounds):5.2f}", flush=True)


def main():
    torch.set_num_threads(THREADS)
    print(f"torch {torch.__version__}, {THREADS} threads")
    ours = Ours()
    for case in CASES:
        compare(ours, *case)
    ours.close()


if __name__ == "__main__":
    main()
