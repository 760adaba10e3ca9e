"""adapters.py - adapters as PEFT writes them, of the tiny models of hub.py, and the logits that they give.

    adapters/<name>/adapter_config.json, adapter_model.safetensors     written by save_pretrained
    adapters/<name>/expected.json              base (the folder in hub/), tokens (2, 7), logits (2, 7, vocabulary)

Needs torch, transformers and peft (0.21), no network: python3 spec/golden/adapters.py. Seeded: the same bytes with the
same versions.

    python3 spec/golden/adapters.py check BASE ADAPTER LOGITS.json     compares PEFT's logits with those in a file:
                                                                       { tokens, logits }, as gm.save_adapter's user"""
import json
import os
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
gen = torch.Generator().manual_seed(78)


def base_of(name):
    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)


def write(name, base, **config):
    model = get_peft_model(base_of(os.path.join(here, "hub", base)), LoraConfig(task_type="CAUSAL_LM", **config))
    for n, p in model.named_parameters():
        if "lora_magnitude" in n:
            p.data = p.data * (1 + torch.rand(p.shape, generator=gen))
        elif "lora_" in n:
            p.data = torch.randn(p.shape, generator=gen) * 0.3
        elif "modules_to_save" in n:
            p.data = p.data + torch.randn(p.shape, generator=gen) * 0.3
    model.eval()
    tokens = torch.randint(0, model.config.vocab_size, (2, 7), generator=gen)
    with torch.no_grad():
        logits = model(tokens).logits
    folder = os.path.join(here, "adapters", name)
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump({"base": base, "tokens": tokens.tolist(),
                   "logits": [[[round(v, 7) for v in row] for row in batch] for batch in logits.tolist()]}, f)


def check(base, adapter, path):
    with open(path) as f:
        given = json.load(f)
    model = PeftModel.from_pretrained(base_of(base), adapter).eval()
    with torch.no_grad():
        logits = model(torch.tensor(given["tokens"])).logits
    ours = torch.tensor(given["logits"])
    plain = base_of(base).eval()(torch.tensor(given["tokens"])).logits
    print("largest difference %.3g of logits up to %.3g; the adapter changes them by up to %.3g" % (
        (logits - ours).abs().max(), logits.abs().max(), (logits - plain).abs().max()))


if len(sys.argv) > 1:
    check(*sys.argv[2:])
else:
    write("llama", "llama", r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj"],
          rank_pattern={"v_proj": 2, "layers.1.self_attn.o_proj": 4}, alpha_pattern={"gate_proj": 7}, lora_dropout=0.1)
    write("qwen2", "qwen2", r=4, lora_alpha=6, target_modules="all-linear", use_rslora=True, use_dora=True)
    write("gpt2", "gpt2", r=3, lora_alpha=8, target_modules=["c_attn", "c_fc", "c_proj"], use_dora=True,
          fan_in_fan_out=True, layers_to_transform=[1])
    write("llama_head", "llama", r=2, lora_alpha=5, target_modules=["down_proj"],
          modules_to_save=["lm_head", "embed_tokens", "norm", "classifier"])
    write("llama_tied", "llama_tied_biased", r=2, lora_alpha=3, target_modules=["up_proj"],
          modules_to_save=["embed_tokens", "self_attn"], ensure_weight_tying=True)
