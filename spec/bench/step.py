"""step.py - one training step of ours against PyTorch on the CPU, alternating in one run.

    python3 spec/bench/step.py [case ...]          cases: gpt64 gpt1024 llama vit vitsmall (step.lua says what they are)

Needs a Python with torch and numpy, for llama also with transformers, and a built tree. f32, 2 threads each (THREADS=n
for another number). DTYPE=bf16: our parameters, gradients and activations have 16 bits, moments and masters are f32;
PyTorch has parameters in f32 and runs under autocast, or with PEER=parameters has all in bf16, moments too, without
masters (its update then moves less than half of the bytes). GRAPH=true records our steps (docs/graphs.md). Prints for
each case the median seconds of both, the median of the paired ratios PyTorch / ours (above 1 ours is faster), and the
floor: the operations of the products of a step at the rate of our product of 1024^3 in f32 (or bf16) in the same run,
with its share of our time. The machine is usually shared: believe the ratios, not the seconds. Memory is how far the
resident bytes of each process went above those before the model was made (VmHWM of Linux); each case has processes of
its own. Cases of images are in step_images.py."""
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
GRAPH = os.environ.get("GRAPH", "false")
DTYPE = os.environ.get("DTYPE", "f32")
AUTOCAST = DTYPE == "bf16" and os.environ.get("PEER") != "parameters"
ROUNDS = {"gpt64": 7, "gpt1024": 5, "llama": 5, "vit": 9, "vitsmall": 15}
QUICK = {"vit": 3, "vitsmall": 50}  # steps of a round; of the other cases it is one


class Block(nn.Module):
    def __init__(self, width, heads, causal, approximate):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.causal, self.gelu = heads, causal, nn.GELU(approximate=approximate)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
        return x + self.down(self.gelu(self.up(self.n2(x))))


class GPT(nn.Module):
    def __init__(self, width=768, depth=12, heads=12, vocabulary=50257, length=1024):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads, True, "tanh") for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, t):
        x = self.tokens(t) + self.positions.weight[: t.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


class ViT(nn.Module):
    def __init__(self, width=192, depth=12, heads=3, patch=4, side=28, classes=10, token=True):
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width)) if token else None
        self.positions = nn.Parameter(torch.zeros(1, (side // patch) ** 2 + int(token), width))
        self.blocks = nn.Sequential(*[Block(width, heads, False, "none") for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        if self.token is None:
            return self.head(self.norm(self.blocks(x + self.positions)).mean(1))
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x)[:, 0]))


class Llama(nn.Module):
    """The shape of SmolLM2-135M, by transformers."""

    def __init__(self):
        from transformers import LlamaConfig, LlamaForCausalLM
        super().__init__()
        self.model = LlamaForCausalLM(LlamaConfig(
            vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, tie_word_embeddings=True, attn_implementation="sdpa"))

    def forward(self, t):
        return self.model(input_ids=t, use_cache=False).logits


def peer(case):
    """-> the model, what it is called with, the loss of its result."""
    if case == "vit":
        model, x, y = ViT(), torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,))
    elif case == "vitsmall":
        model, x, y = ViT(64, 4, 4, 7, token=False), torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    elif case == "llama":
        model, x, y = Llama(), torch.randint(0, 49152, (4, 256)), torch.randint(0, 49152, (4, 256))
    else:
        shape = (4, 64) if case == "gpt64" else (1, 1024)
        model, x, y = GPT(), torch.randint(0, 50257, shape), torch.randint(0, 50257, shape)
    if DTYPE == "bf16" and not AUTOCAST:
        model, x = model.bfloat16(), x.bfloat16() if x.is_floating_point() else x
    return model, [x], lambda out: F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


def stepper(model, inputs, loss):
    try:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    except (TypeError, RuntimeError):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=AUTOCAST):
            value = loss(model(*inputs))
        value.backward()
        optimizer.step()

    return step


class Resident:
    """How far the resident bytes of a process go above those when this was made."""

    def __init__(self, pid):
        self.pid = pid
        with open(f"/proc/{pid}/clear_refs", "w") as f:
            f.write("5")
        self.before = self.bytes("VmRSS")

    def bytes(self, key):
        with open(f"/proc/{self.pid}/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key + ":"))

    def peak(self):
        return (self.bytes("VmHWM") - self.before) / 2 ** 20


def timed(step, steps):
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return min(times)


def compare(case, peer, rounds):
    """Prints the line of a case; ours runs in a process of its own."""
    ours = subprocess.Popen([BINARY, "run", "--threads", str(THREADS), os.path.join(ROOT, "spec", "bench", "step.lua")],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(line):
        ours.stdin.write(line + "\n")
        ours.stdin.flush()
        return [float(v) for v in ours.stdout.readline().split()]

    ask(f"graph {GRAPH}")
    ask(f"dtype {DTYPE}")
    memory = Resident(ours.pid), Resident(os.getpid())
    torch.manual_seed(0)
    step, steps = stepper(*peer(case)), QUICK.get(case, 1)
    ask(f"{case} 5"), timed(step, 2)  # a step is recorded after three
    peaks = [m.peak() for m in memory]
    operations, a, b, rate = ask(f"flops {case}")[0], [], [], 0
    for _ in range(rounds):
        rate = max(rate, ask("products")[0])
        a.append(min(ask(f"{case} {steps}")))
        b.append(timed(step, steps))
    ratios = [p / o for o, p in zip(a, b)]
    print(f"{case:9s} ours {statistics.median(a):7.4f} s   torch {statistics.median(b):7.4f} s   "
          f"ratio {statistics.median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})   "
          f"floor of the products {operations / rate:.4f} s: {operations / rate / statistics.median(a):.2f}   "
          f"memory {peaks[0]:.0f} MiB, torch {peaks[1]:.0f} MiB", flush=True)
    ours.stdin.close()
    ours.wait()


def main(peer=peer, rounds=ROUNDS):
    """rounds: case -> how many rounds it has."""
    torch.set_num_threads(THREADS)
    cases = sys.argv[1:] or list(rounds)
    if len(cases) == 1:
        return compare(cases[0], peer, rounds[cases[0]])
    print(f"torch {torch.__version__}, {THREADS} threads, {DTYPE}{' (autocast)' if AUTOCAST else ''}", flush=True)
    for case in cases:
        subprocess.run([sys.executable, sys.argv[0], case], check=True)


if __name__ == "__main__":
    main()
