"""gpt.py - 20 AdamW steps of a tiny GPT: weights, tokens, the first gradients and every loss.

    param.<name> grad.<name> final.<name>   before, dL/d at the first step, after the last step (f64)
    tokens (20, 4, 17) i64                  inputs are [:, :, :16], targets [:, :, 1:]
    loss.f64 (20), loss.f32 (20)            mean cross entropy before each update, computed in that dtype

See golden.py for the command. The truth: torch.nn.TransformerEncoderLayer and torch.optim.AdamW."""
import torch
import torch.nn.functional as F

from golden import Golden, rand
from models import block_parameters, causal_mask, gelu_tanh

VOCABULARY, LENGTH, WIDTH, DEPTH, HEADS, BATCH, STEPS = 61, 16, 32, 2, 4, 4, 20
OPTIMIZER = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


class TinyGPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.positions = torch.nn.Embedding(LENGTH, WIDTH)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation=gelu_tanh,
                                             batch_first=True, norm_first=True) for _ in range(DEPTH))
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(torch.arange(n))
        for block in self.blocks:
            x = block(x, src_mask=causal_mask(n))
        return F.linear(self.norm(x), self.tokens.weight)

    def named(self):
        """Ganymede's names -> (parameter, order or None)."""
        table = {"tokens.weight": self.tokens.weight, "positions.weight": self.positions.weight,
                 "norm.weight": self.norm.weight, "norm.bias": self.norm.bias}
        for i, block in enumerate(self.blocks, 1):
            table.update(block_parameters(block, HEADS, f"blocks.{i}."))
        return {k: v if isinstance(v, tuple) else (v, lambda t: t) for k, v in table.items()}


def initial(gen):
    model = TinyGPT()
    for name, p in model.named_parameters():
        if "norm" in name:
            p.data = torch.ones_like(p) if name.endswith("weight") else torch.zeros_like(p)
        else:
            p.data = torch.randn(p.shape, generator=gen) * 0.1
    return model


def text(gen):
    """Tokens with structure to learn: mostly t -> 3 t + 1 (mod 61), one in five at random."""
    out = torch.zeros(STEPS, BATCH, LENGTH + 1, dtype=torch.int64)
    out[..., 0] = torch.randint(0, VOCABULARY, (STEPS, BATCH), generator=gen)
    for i in range(1, LENGTH + 1):
        noise = torch.rand(STEPS, BATCH, generator=gen) < 0.2
        random = torch.randint(0, VOCABULARY, (STEPS, BATCH), generator=gen)
        out[..., i] = torch.where(noise, random, (3 * out[..., i - 1] + 1) % VOCABULARY)
    return out


def train(model, tokens, dtype, golden=None):
    torch.set_default_dtype(dtype)
    model = model.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIMIZER)
    losses = []
    for batch in tokens:
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
        loss.backward()
        if golden and not losses:
            for name, (p, order) in model.named().items():
                golden.put("grad." + name, order(p.grad.clone()))
                assert p.grad.abs().max() >= 1e-3, name
        losses.append(float(loss.detach()))
        optimizer.step()
    torch.set_default_dtype(torch.float64)
    return losses


golden = Golden("gpt")
gen = torch.Generator().manual_seed(23)
model, tokens = initial(gen), text(gen)
start = {k: v.clone() for k, v in model.state_dict().items()}
for name, (p, order) in model.named().items():
    golden.put("param." + name, order(p.detach().clone()))
f64 = train(model, tokens, torch.float64, golden)
for name, (p, order) in model.named().items():
    golden.put("final." + name, order(p.detach().clone()))
model.load_state_dict(start)
f32 = train(model, tokens, torch.float32)
golden.put("tokens", tokens)
golden.put("loss.f64", torch.tensor(f64))
golden.put("loss.f32", torch.tensor(f32))
golden.write(model=dict(vocabulary=VOCABULARY, sequence_length=LENGTH, width=WIDTH, depth=DEPTH, heads=HEADS,
                        dropout=0),
             optimizer=OPTIMIZER)
print("losses", f64[0], f64[-1], "f32 differs by", max(abs(a - b) / a for a, b in zip(f64, f32)))
