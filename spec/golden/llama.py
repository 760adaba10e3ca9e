"""llama.py - small models of the Llama family by transformers, and the frequencies of stretched rotary positions.

    <case>/...            as golden.py says: parameters, tokens, logits, gradients, in f64
    frequency.<n>         frequencies of scaling n in f32, as transformers works them out
    "scalings" in the metadata: for each n our options, the size of a head, and the factor of queries and keys

Needs torch and transformers (5.23), no network. The trap: transformers works out angles and norms in f32 whatever the
dtype is; here they are replaced by the same formulas in f64."""
import torch
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from golden import Golden

gen = torch.Generator().manual_seed(31)
golden = Golden("llama")


class Angles(torch.nn.Module):
    def __init__(self, base, size):
        super().__init__()
        self.frequency = base ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)

    def forward(self, x, position_ids):
        angle = position_ids[..., None].double() * self.frequency
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos(), angle.sin()


def norm(self, x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon) * self.weight


def joined(q, k, v, heads, kv_heads):
    """Rows of q, k and v ordered by key head: its queries, its key, its value."""
    rest = q.shape[1:]
    parts = [t.reshape(kv_heads, -1, *rest) for t in (q, k, v)]
    return torch.cat(parts, 1).reshape(-1, *rest)


def case(name, config_class, model_class, options, **more):
    config = config_class(
        vocab_size=options["vocabulary"], hidden_size=options["width"], intermediate_size=options["hidden"],
        num_hidden_layers=options["depth"], num_attention_heads=options["heads"],
        num_key_value_heads=options["kv_heads"], rms_norm_eps=options["eps"],
        tie_word_embeddings=options["tied"], attn_implementation="sdpa", **more)
    model = model_class(config).double()
    size = options.get("head_size", options["width"] // options["heads"])
    model.model.rotary_emb = Angles(options["rotary"]["base"], size)
    for m in model.modules():
        if type(m).__name__.endswith("RMSNorm"):
            m.forward = norm.__get__(m)
    for n, p in model.named_parameters():
        p.data = torch.randn(p.shape, generator=gen) * (0.1 if "norm" in n else 0.3) + (1 if "norm" in n else 0)
    tokens = torch.randint(0, options["vocabulary"], (2, 7), generator=gen)
    logits = model(tokens).logits
    logits.backward(seed := torch.randn(logits.shape, generator=gen))
    params, grads = {}, {}

    def put(path, *tensors, order=None):
        for into, of in ((params, lambda t: t.detach()), (grads, lambda t: t.grad)):
            values = [of(t) for t in tensors]
            into[path] = order(*values) if order else values[0]

    put("tokens.weight", model.model.embed_tokens.weight)
    put("norm.weight", model.model.norm.weight)
    if not options["tied"]:
        put("head.weight", model.lm_head.weight)
    split = lambda q, k, v: joined(q, k, v, options["heads"], options["kv_heads"])
    for i, layer in enumerate(model.model.layers, 1):
        at, a, m = f"blocks.{i}.", layer.self_attn, layer.mlp
        put(at + "norm1.weight", layer.input_layernorm.weight)
        put(at + "norm2.weight", layer.post_attention_layernorm.weight)
        put(at + "attention.qkv.weight", a.q_proj.weight, a.k_proj.weight, a.v_proj.weight, order=split)
        if a.q_proj.bias is not None:
            put(at + "attention.qkv.bias", a.q_proj.bias, a.k_proj.bias, a.v_proj.bias, order=split)
        put(at + "attention.output.weight", a.o_proj.weight)
        if hasattr(a, "q_norm"):
            put(at + "attention.query_norm", a.q_norm.weight)
            put(at + "attention.key_norm", a.k_norm.weight)
        for ours, theirs in (("gate", m.gate_proj), ("up", m.up_proj), ("down", m.down_proj)):
            put(f"{at}mlp.{ours}.weight", theirs.weight)
    for path, value in params.items():
        golden.put(f"{name}/param.{path}", value)
        golden.put(f"{name}/grad.param.{path}", grads[path])
    golden.put(f"{name}/input.1", tokens)
    golden.put(f"{name}/output", logits)
    golden.put(f"{name}/seed", seed)
    golden.cases.append(dict(name=name, layer="Llama", registry="models", options=options))


base = dict(vocabulary=23, width=16, depth=2, heads=4, kv_heads=2, hidden=20, eps=1e-6, tied=False,
            rotary=dict(base=100.0))
case("llama", LlamaConfig, LlamaForCausalLM, base)
case("smollm", LlamaConfig, LlamaForCausalLM, dict(base, width=12, heads=3, kv_heads=1, tied=True,
                                                    rotary=dict(base=1e5)))
case("mistral", MistralConfig, MistralForCausalLM, dict(base, head_size=6, kv_heads=4), head_dim=6,
     sliding_window=None)
case("qwen2", Qwen2Config, Qwen2ForCausalLM, dict(base, qkv_bias=True, tied=True))
case("qwen3", Qwen3Config, Qwen3ForCausalLM, dict(base, head_size=8, qk_norm=1e-6), head_dim=8)

scalings = []


def scaling(ours, theirs, base, size, length=None):
    config = LlamaConfig(hidden_size=4 * size, num_attention_heads=4, head_dim=size,
                         max_position_embeddings=int((length or 64) * theirs.get("factor", 1)),
                         rope_parameters=dict(theirs, rope_theta=base))
    frequency, factor = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, "cpu")
    scalings.append(dict(scaling=ours, base=base, size=size, factor=float(factor)))
    golden.put(f"frequency.{len(scalings)}", frequency.double())


scaling(dict(type="linear", factor=4.0), dict(rope_type="linear", factor=4.0), 1e4, 64)
scaling(dict(type="llama3", factor=8.0, low=1.0, high=4.0, length=8192),
        dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
             original_max_position_embeddings=8192), 5e5, 128, 8192)
scaling(dict(type="llama3", factor=32.0, low=1.5, high=6.0, length=100),
        dict(rope_type="llama3", factor=32.0, low_freq_factor=1.5, high_freq_factor=6.0,
             original_max_position_embeddings=100), 1e4, 64, 100)
scaling(dict(type="yarn", factor=4.0, length=32768),
        dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768), 1e6, 128, 32768)
scaling(dict(type="yarn", factor=16.0, length=512, fast=20.0, slow=2.0, magnitude=1.25),
        dict(rope_type="yarn", factor=16.0, original_max_position_embeddings=512, beta_fast=20.0, beta_slow=2.0,
             attention_factor=1.25), 1e4, 64, 512)
golden.write(scalings=scalings)
