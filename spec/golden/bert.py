"""bert.py - a tiny BERT: both outputs, both losses, and every gradient of their sum, in f64.

    <case>/param.<name> <case>/grad.<name>   Ganymede's names (f64)
    <case>/input (b, 3, s) i64               tokens, segments, key mask
    <case>/target (b, s + 1) i64             of the tokens (-100: not asked for), then of the pair
    <case>/tokens (b, s, vocabulary), <case>/pair (b, 2), <case>/loss (2)

Cases: `padded` has sequences of three lengths, one of them without a hidden token; `short` has sequences shorter than
the table of positions, and pairs that are not asked for. See golden.py for the command. The truth:
torch.nn.TransformerEncoderLayer, torch.nn.Embedding and torch.nn.functional.cross_entropy."""
import torch
import torch.nn.functional as F

from golden import Golden, rand
from models import block_parameters, randomize

VOCABULARY, LENGTH, WIDTH, DEPTH, HEADS, EPS, IGNORED = 19, 9, 8, 2, 2, 1e-12, -100
gen = torch.Generator().manual_seed(24)
golden = Golden("bert")


class TinyBERT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.segments = torch.nn.Embedding(2, WIDTH)
        self.positions = torch.nn.Embedding(LENGTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH, eps=EPS)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True,
                                             norm_first=False, layer_norm_eps=EPS) for _ in range(DEPTH))
        self.transform = torch.nn.Linear(WIDTH, WIDTH)
        self.transform_norm = torch.nn.LayerNorm(WIDTH, eps=EPS)
        self.head_bias = torch.nn.Parameter(torch.empty(VOCABULARY))
        self.pooler = torch.nn.Linear(WIDTH, WIDTH)
        self.pair_head = torch.nn.Linear(WIDTH, 2)

    def forward(self, x):
        tokens, segments, mask = x.unbind(1)
        y = self.tokens(tokens) + self.segments(segments) + self.positions(torch.arange(tokens.shape[1]))
        y = self.norm(y)
        for block in self.blocks:
            y = block(y, src_key_padding_mask=mask == 0)
        scores = F.linear(self.transform_norm(F.gelu(self.transform(y))), self.tokens.weight, self.head_bias)
        return scores, self.pair_head(torch.tanh(self.pooler(y[:, 0])))

    def named(self):
        """Ganymede's names -> (parameter, order or None)."""
        table = {"tokens.weight": self.tokens.weight, "segments.weight": self.segments.weight,
                 "positions.weight": self.positions.weight, "head.bias": self.head_bias}
        for name in ("norm", "transform", "transform_norm", "pooler", "pair_head"):
            for kind in ("weight", "bias"):
                table[f"{name}.{kind}"] = getattr(getattr(self, name), kind)
        for i, block in enumerate(self.blocks, 1):
            table.update(block_parameters(block, HEADS, f"blocks.{i}."))
        return {k: v if isinstance(v, tuple) else (v, lambda t: t) for k, v in table.items()}


def case(name, lengths, s, hidden, labels):
    """lengths: of the sequences; hidden: positions asked for in each; labels: of the pairs."""
    b = len(lengths)
    x, target = torch.zeros(b, 3, s, dtype=torch.int64), torch.full((b, s + 1), IGNORED)
    for i, n in enumerate(lengths):
        x[i, 0, :n] = torch.randint(0, VOCABULARY, (n,), generator=gen)
        x[i, 1, n // 2:n] = 1
        x[i, 2, :n] = 1
        for k in hidden[i]:
            target[i, k] = torch.randint(0, VOCABULARY, (), generator=gen)
        target[i, s] = labels[i]
    model = randomize(TinyBERT())
    scores, pair = model(x)
    losses = torch.stack([F.cross_entropy(scores.reshape(-1, VOCABULARY), target[:, :s].reshape(-1)),
                          F.cross_entropy(pair, target[:, s])])
    losses.sum().backward()
    for path, (p, order) in model.named().items():
        golden.put(f"{name}/param.{path}", order(p.detach()))
        golden.put(f"{name}/grad.{path}", order(p.grad))
        assert p.grad.abs().max() >= 1e-3, path
    for what, tensor in dict(input=x, target=target, tokens=scores, pair=pair, loss=losses).items():
        golden.put(f"{name}/{what}", tensor)
    golden.cases.append(dict(name=name, count=[sum(map(len, hidden)), sum(label != IGNORED for label in labels)]))


case("padded", [LENGTH, 6, 2], LENGTH, [[1, 4, 7], [], [1]], [0, 1, 1])
case("short", [5, 5, 3, 5], 5, [[2], [1, 3], [0, 2], [4]], [1, IGNORED, 0, IGNORED])
golden.write(model=dict(vocabulary=VOCABULARY, sequence_length=LENGTH, width=WIDTH, depth=DEPTH, heads=HEADS, dropout=0,
                        attention_dropout=0))
