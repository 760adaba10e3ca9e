"""beside.py - times cases of ours and of PyTorch in turns, for short_rows.py, ops_beside.py and layers_beside.py.

compare("short_rows.lua", {"row 2": function}, "--set", "dtype=bf16") runs that script, which answers by
timed_cases.lua, and prints for each case the least ms of ours and of PyTorch, and the median of PyTorch's time over
ours: above 1 ours is faster. Words after the name of the program choose the cases that contain one of them. THREADS=n
for another number than 1; GANYMEDE_BIN names the program, by default that in build/. Names that begin with "grad" run
with gradients."""
import os
import statistics
import subprocess
import sys
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("GANYMEDE_BIN", os.path.join(ROOT, "build", "ganymede"))
THREADS = int(os.environ.get("THREADS", "1"))
ROUNDS, REPEATS = 9, 5
PAUSE = 0.02 if THREADS > 1 else 0  # PyTorch's threads look for work for some ms, on cores that ours would take
torch.set_num_threads(THREADS)


class Ours:
    """The host, waiting for lines."""

    def __init__(self, script, *flags):
        path = os.path.join(ROOT, "spec", "bench", script)
        self.process = subprocess.Popen([BINARY, "run", "--threads", str(THREADS), *flags, path],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, case):
        time.sleep(PAUSE)
        self.process.stdin.write(f"{case}\n{REPEATS}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def theirs(name, call):
    best = float("inf")
    with torch.set_grad_enabled(name.startswith("grad")):
        for _ in range(REPEATS):
            begin = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - begin)
    return best


def grad(call, *inputs):
    """A call that also runs backward, from the sum of its result."""
    def both():
        for x in inputs:
            x.grad = None
        call().sum().backward()
    return both


def compare(script, cases, *flags):
    ours, ratios = Ours(script, *flags), []
    print(f"torch {torch.__version__}, {THREADS} thread(s) {' '.join(flags)}")
    for name, call in cases.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        pairs = [(ours.seconds(name), theirs(name, call)) for _ in range(ROUNDS)]
        ratio = statistics.median(other / mine for mine, other in pairs)
        ratios.append(ratio)
        mine, other = (min(times) * 1e3 for times in zip(*pairs))
        print(f"{name:16}  ours {mine:8.3f} ms  torch {other:8.3f} ms  ratio {ratio:5.2f}", flush=True)
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}")
