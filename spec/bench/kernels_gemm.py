"""kernels_gemm.py - our matrix products against OpenBLAS (numpy's) and PyTorch, alternating in one run.

    python3 spec/bench/kernels_gemm.py           THREADS=n for another number than 2; DTYPE=bf16, without OpenBLAS

Needs a Python with torch and numpy, and a built tree (GANYMEDE_BIN names the program). f32 or bf16; the shapes of a
training step of GPT-2 124M (4 x 64 and 1 x 1024 tokens) and of a ViT (width 192, 32 x 50 tokens). Prints GFLOP/s of
ours and the medians of the paired ratios of time: above 1 ours is faster. On a shared machine believe the ratios
only."""
import os
import statistics
import subprocess
import time

THREADS = int(os.environ.get("THREADS", "2"))
DTYPE = os.environ.get("DTYPE", "f32")
os.environ["OPENBLAS_NUM_THREADS"] = str(THREADS)
import numpy as np  # noqa: E402 (reads the variable when loaded)
import torch  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("GANYMEDE_BIN", os.path.join(ROOT, "build", "ganymede"))
ROUNDS = 7
WORK = {"f32": 1e9, "bf16": 2e10}[DTYPE]  # operations of a turn: behind PyTorch's, its threads still spin for a while
TORCH_DTYPE = {"f32": torch.float32, "bf16": torch.bfloat16}[DTYPE]
SHAPES = [  # M N K, op
    (256, 2304, 768, "NT"), (256, 768, 2304, "NN"), (2304, 768, 256, "TN"), (256, 768, 768, "NT"),
    (256, 3072, 768, "NT"), (256, 768, 3072, "NT"), (256, 3072, 768, "NN"), (3072, 768, 256, "TN"),
    (256, 50304, 768, "NT"), (256, 768, 50304, "NN"), (50304, 768, 256, "TN"),
    (1024, 3072, 768, "NT"), (1024, 768, 3072, "NT"), (1024, 768, 2304, "NN"), (3072, 768, 1024, "TN"),
    (1600, 576, 192, "NT"), (1600, 768, 192, "NT"), (1600, 192, 768, "NT"), (768, 192, 1600, "TN"),
    (1024, 1024, 1024, "NN"), (64, 64, 64, "NT"), (16, 3072, 768, "NT"), (1, 3072, 768, "NT"),
]


class Ours:
    """The host, waiting for lines (kernels_on_demand.lua)."""

    def __init__(self):
        script = os.path.join(ROOT, "spec", "bench", "kernels_on_demand.lua")
        self.process = subprocess.Popen([BINARY, "run", "--threads", str(THREADS), "--set", "dtype=" + DTYPE, script],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(times, run):
    begin = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - begin) / times


def compare(ours, m, n, k, op):
    a = (torch.randn(k, m).t() if op[0] == "T" else torch.randn(m, k)).to(TORCH_DTYPE)
    b = (torch.randn(n, k).t() if op[1] == "T" else torch.randn(k, n)).to(TORCH_DTYPE)
    c = torch.empty(m, n, dtype=TORCH_DTYPE)
    an, bn, cn = (t.float().numpy() for t in (a, b, c))
    times = max(1, int(WORK / (2 * m * n * k)))
    rounds = []
    for i in range(ROUNDS + 1):
        blas = timed(times, lambda: np.matmul(an, bn, out=cn)) if DTYPE == "f32" else float("nan")
        seconds = (ours(f"gemm {m} {n} {k} {op} {times}"), blas, timed(times, lambda: torch.mm(a, b, out=c)))
        if i > 0:  # the first warms up
            rounds.append(seconds)
    mine = statistics.median(r[0] for r in rounds)
    blas = statistics.median(r[1] / r[0] for r in rounds)
    peer = statistics.median(r[2] / r[0] for r in rounds)
    print(f"{m:6d} x {n:5d} x {k:5d} {op}   {2e-9 * m * n * k / mine:7.1f} GFLOP/s   OpenBLAS / ours {blas:5.2f}   "
          f"PyTorch / ours {peer:5.2f}", flush=True)
    return blas, peer


def main():
    torch.set_num_threads(THREADS)
    print(f"torch {torch.__version__}, numpy {np.__version__}, {THREADS} threads")
    ours = Ours()
    ratios = [compare(ours, *shape) for shape in SHAPES]
    ours.close()
    print("geometric means: OpenBLAS / ours %.2f, PyTorch / ours %.2f"
          % tuple(statistics.geometric_mean(r[i] for r in ratios) for i in (0, 1)))


if __name__ == "__main__":
    main()
