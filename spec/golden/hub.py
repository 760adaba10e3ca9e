"""hub.py - folders as transformers writes them, of tiny random models, and the logits that they give.

    hub/<name>/config.json, model.safetensors      written by save_pretrained
    hub/<name>/expected.json                       tokens (2, 7) and logits (2, 7, vocabulary) in f32

Needs torch and transformers (5.23), no network: python3 spec/golden/hub.py. Seeded: the same bytes with the same
versions."""
import json
import os

import torch
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hub")
gen = torch.Generator().manual_seed(77)


def write(name, model, **saving):
    for n, p in model.named_parameters():
        p.data = torch.randn(p.shape, generator=gen) * 0.2 + (1 if "norm" in n or "ln_" in n else 0)
    model.eval()
    tokens = torch.randint(0, model.config.vocab_size, (2, 7), generator=gen)
    with torch.no_grad():
        logits = model(tokens).logits
    folder = os.path.join(root, name)
    model.save_pretrained(folder, **saving)
    os.path.exists(os.path.join(folder, "generation_config.json")) and os.remove(
        os.path.join(folder, "generation_config.json"))
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump({"tokens": tokens.tolist(), "logits": [[[round(v, 7) for v in row] for row in batch]
                                                         for batch in logits.tolist()]}, f)


small = dict(vocab_size=29, hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64)
write("llama", LlamaForCausalLM(LlamaConfig(**small, rms_norm_eps=1e-5, rope_parameters=dict(
    rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=16))))
write("llama_tied_biased", LlamaForCausalLM(LlamaConfig(**small, tie_word_embeddings=True, attention_bias=True,
                                                        mlp_bias=True)), max_shard_size="4KB")
write("mistral", MistralForCausalLM(MistralConfig(**small, head_dim=4, sliding_window=None)))
write("qwen2", Qwen2ForCausalLM(Qwen2Config(**small, tie_word_embeddings=True)))
write("qwen3", Qwen3ForCausalLM(Qwen3Config(**small, head_dim=4)))
write("gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=31, n_positions=16, n_embd=12, n_layer=2, n_head=3, n_inner=20)))
write("mistral_window", MistralForCausalLM(MistralConfig(**small, head_dim=4, sliding_window=3)))
write("qwen2_windows", Qwen2ForCausalLM(Qwen2Config(**dict(small, num_hidden_layers=3), use_sliding_window=True,
                                                    sliding_window=2, max_window_layers=1)))
