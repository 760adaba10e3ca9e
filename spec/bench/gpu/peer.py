"""peer.py - PyTorch's side of spec/bench/gpu: answers each line of standard input with one line of JSON.

    about                                versions and device
    gpt MODE BATCH STEPS                 seconds of STEPS training steps of GPT-2 124M; the first time it compiles and
                                         warms up. MODE: "autocast" (parameters f32, bf16 autocast), or "weights"
                                         (parameters, gradients and moments bf16, no masters: less exact than ours)
    resnet BATCH SIDE STEPS              seconds of STEPS training steps of ResNet-18: channels last, autocast, fused
                                         AdamW
    attention KIND B S H D               seconds of scaled_dot_product_attention: forward, backward
    product N                            seconds of an N x N x N product in bf16
    copy BYTES                           seconds of a copy on the device
    drop                                 forgets models and gives memory back

GPT-2 as step.py has it, with 50,304 tokens as llm.c pads them, torch.compile, fused AdamW, SDPA, one batch that stays
on the device. GM_BENCH_TOY: tiny sizes in f32 without torch.compile, and the CPU will do. Errors are {"error": ...}.
"""
import json
import os
import statistics
import sys
import time

TOY = bool(os.environ.get("GM_BENCH_TOY"))
SHAPE = dict(width=32, depth=2, heads=2, vocabulary=64, length=16) if TOY else dict(
    width=768, depth=12, heads=12, vocabulary=50304, length=1024)
models = {}


def load():
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not TOY:
        raise RuntimeError("this PyTorch sees no GPU")
    torch.set_float32_matmul_precision("high")

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.heads, self.gelu = heads, nn.GELU(approximate="tanh")

        def forward(self, x):
            b, s, w = x.shape
            q, k, v = self.qkv(self.n1(x)).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
            return x + self.down(self.gelu(self.up(self.n2(x))))

    class GPT(nn.Module):
        def __init__(self, width, depth, heads, vocabulary, length):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
            self.norm = nn.LayerNorm(width)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, t, targets):
            x = self.tokens(t) + self.positions.weight[: t.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return torch, F, GPT, device


torch, F, GPT, DEVICE, HALF = None, None, None, None, None


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def about():
    cudnn = torch.backends.cudnn.version() if DEVICE == "cuda" else None
    name = torch.cuda.get_device_name(0) if DEVICE == "cuda" else "cpu"
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": cudnn, "device": name}


def trainer(loss_of, optimizer, autocast):
    """-> a training step, which has been run a few times: it compiles and warms up."""
    def step():
        with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast and not TOY):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(2 if TOY else 6):
        step()
    return step


def make_gpt(mode, batch):
    torch.manual_seed(0)
    dtype = HALF if mode == "weights" else torch.float32
    model = GPT(**SHAPE).to(DEVICE, dtype)
    compiled = model if TOY else torch.compile(model)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    shape = (batch, SHAPE["length"])
    x = torch.randint(0, SHAPE["vocabulary"], shape, device=DEVICE)
    y = torch.randint(0, SHAPE["vocabulary"], shape, device=DEVICE)
    step = trainer(lambda: compiled(x, y), optimizer, mode == "autocast")
    synchronize()
    return step


def gpt(mode, batch, steps):
    key, batch = (mode, batch), int(batch)
    began = time.perf_counter()
    fresh = key not in models
    if fresh:
        models[key] = make_gpt(mode, batch)
    warm = time.perf_counter() - began
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    synchronize()
    began = time.perf_counter()
    for _ in range(int(steps)):
        loss = models[key]()
    synchronize()
    seconds = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() if DEVICE == "cuda" else 0
    return {"seconds": seconds, "loss": float(loss.detach()), "peak_bytes": peak, "warm_up_seconds": warm}


def make_resnet(batch, side):
    nn, at = torch.nn, 64

    def convolution(inputs, outputs, size, stride):
        return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)

    class Block(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            self.c1, self.c2 = convolution(inputs, width, 3, stride), convolution(width, width, 3, 1)
            self.n1, self.n2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
            self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
                convolution(inputs, width, 1, stride), nn.BatchNorm2d(width))

        def forward(self, x):
            y = F.relu(self.n1(self.c1(x)), inplace=True)
            return F.relu(self.n2(self.c2(y)) + self.shortcut(x), inplace=True)

    layers = [convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    for stage in range(4):
        for i in range(2):
            layers.append(Block(at, 64 << stage, 2 if i == 0 and stage else 1))
            at = 64 << stage
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(at, 1000))
    model = model.to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    torch.backends.cudnn.benchmark = True
    x = torch.randn((batch, 3, side, side), device=DEVICE).to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (batch,), device=DEVICE)
    return trainer(lambda: F.cross_entropy(model(x), y), optimizer, True)


def resnet(batch, side, steps):
    key = ("resnet", batch, side)
    if key not in models:
        models[key] = make_resnet(int(batch), int(side))
    synchronize()
    began = time.perf_counter()
    for _ in range(int(steps)):
        models[key]()
    synchronize()
    return {"seconds": time.perf_counter() - began}


def timed(fn, rounds):
    """Median seconds of fn, by events on a GPU."""
    times = []
    for _ in range(3):
        fn()
    for _ in range(rounds):
        if DEVICE == "cuda":
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            fn()
            b.record()
            b.synchronize()
            times.append(a.elapsed_time(b) * 1e-3)
        else:
            began = time.perf_counter()
            fn()
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def attention(kind, b, s, h, d):
    shape = (int(b), int(h), int(s), int(d))
    q, k, v, g = (torch.randn(shape, device=DEVICE, dtype=HALF) for _ in range(4))
    for t in (q, k, v):
        t.requires_grad_(True)
    causal, drop, mask = kind in ("causal", "dropout"), 0.1 if kind == "dropout" else 0.0, None
    if kind == "masked":  # the lengths of attention.lua
        lengths = torch.tensor([shape[2] - i * shape[2] // (2 * shape[0]) for i in range(shape[0])], device=DEVICE)
        mask = (torch.arange(shape[2], device=DEVICE) < lengths[:, None])[:, None, None, :]

    def run():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, dropout_p=drop)

    rounds = 2 if TOY else 10
    with torch.no_grad():
        forward = timed(run, rounds)
    o = run()

    def back():
        o.backward(g, retain_graph=True, inputs=[q, k, v])
        q.grad = k.grad = v.grad = None

    return {"forward": forward, "backward": timed(back, rounds)}


def product(n):
    a, b = (torch.randn((int(n), int(n)), device=DEVICE, dtype=HALF) for _ in range(2))
    return {"seconds": timed(lambda: a @ b, 2 if TOY else 20)}


def copy(size):
    a = torch.randint(0, 255, (int(size),), device=DEVICE, dtype=torch.uint8)
    b = torch.empty_like(a)
    return {"seconds": timed(lambda: b.copy_(a), 2 if TOY else 20)}


def drop():
    models.clear()
    if DEVICE == "cuda":
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    return {}


COMMANDS = {"about": about, "gpt": gpt, "resnet": resnet, "attention": attention, "product": product, "copy": copy,
            "drop": drop}


def main():
    global torch, F, GPT, DEVICE, HALF
    for line in sys.stdin:
        words = line.split()
        try:
            if torch is None:
                torch, F, GPT, DEVICE = load()
                HALF = torch.float32 if TOY else torch.bfloat16
            answer = COMMANDS[words[0]](*words[1:])
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), flush=True)


main()
