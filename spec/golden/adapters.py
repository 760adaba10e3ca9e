"""adapters.py - adapters as PEFT writes them, of the tiny models of hub.py and hub_families.py, and what they give.

    adapters/<name>/adapter_config.json, adapter_model.safetensors     written by save_pretrained
    adapters/<name>/expected.json              base (the folder in hub/), tokens (2, 7), logits (2, 7, vocabulary); of
                                               BERT, RoBERTa and ViT outputs, a list, of what goes in with the base

Needs torch, transformers and peft (0.21), no network: python3 spec/golden/adapters.py. Seeded: the same bytes with the
same versions.

    python3 spec/golden/adapters.py check BASE ADAPTER LOGITS.json     compares PEFT's logits with those in a file:
                                                                       { tokens, logits } as of gm.save_adapter's
                                                                       user, or with outputs and what went in"""
import json
import os
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (AutoConfig, AutoModelForCausalLM, BertForPreTraining, RobertaForMaskedLM,
                          RobertaForSequenceClassification, ViTForImageClassification)

here = os.path.dirname(os.path.abspath(__file__))
gen = torch.Generator().manual_seed(78)


def base_of(name):
    config = AutoConfig.from_pretrained(name)
    known = [BertForPreTraining, RobertaForMaskedLM, RobertaForSequenceClassification, ViTForImageClassification]
    cls = {c.__name__: c for c in known}.get(config.architectures[0], AutoModelForCausalLM)
    return cls.from_pretrained(name, dtype=torch.float32)


def outputs(model, given):
    """what a BERT, a RoBERTa or a ViT gives for inputs as hub_families.py writes them"""
    if "pixels" in given:
        return [model(torch.tensor(given["pixels"])).logits]
    out = model(torch.tensor(given["tokens"]), token_type_ids=torch.tensor(given["segments"]),
                attention_mask=torch.tensor(given["mask"]))
    return [out.prediction_logits, out.seq_relationship_logits] if "prediction_logits" in out else [out.logits]


def rounded(t):
    return [rounded(x) for x in t] if t.dim() else round(t.item(), 7)


def write(name, base, task="CAUSAL_LM", **config):
    model = get_peft_model(base_of(os.path.join(here, "hub", base)), LoraConfig(task_type=task, **config))
    for n, p in model.named_parameters():
        if "lora_magnitude" in n:
            p.data = p.data * (1 + torch.rand(p.shape, generator=gen))
        elif "lora_" in n:
            p.data = torch.randn(p.shape, generator=gen) * 0.3
        elif "modules_to_save" in n:
            p.data = p.data + torch.randn(p.shape, generator=gen) * 0.3
    model.eval()
    if task == "CAUSAL_LM":
        tokens = torch.randint(0, model.config.vocab_size, (2, 7), generator=gen)
        with torch.no_grad():
            expected = {"tokens": tokens.tolist(), "logits": rounded(model(tokens).logits)}
    else:
        with open(os.path.join(here, "hub", base, "expected.json")) as f, torch.no_grad():
            expected = {"outputs": [rounded(o) for o in outputs(model, json.load(f))]}
    folder = os.path.join(here, "adapters", name)
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump({"base": base, **expected}, f)


def of_both(model, given):
    """outputs of a model, or those given"""
    if not model:
        return [torch.tensor(o) for o in given.get("outputs") or [given["logits"]]]
    with torch.no_grad():
        return outputs(model, given) if "outputs" in given else [model(torch.tensor(given["tokens"])).logits]


def check(base, adapter, path):
    with open(path) as f:
        given = json.load(f)
    model = PeftModel.from_pretrained(base_of(base), adapter).eval()
    for theirs, ours, plain in zip(*(of_both(m, given) for m in (model, None, base_of(base).eval()))):
        print("largest difference %.3g of logits up to %.3g; the adapter changes them by up to %.3g" % (
            (theirs - ours).abs().max(), theirs.abs().max(), (theirs - plain).abs().max()))


if sys.argv[1:2] == ["check"]:
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
    write("bert", "bert", task=None, r=2, lora_alpha=3, target_modules=["query", "value", "dense"],
          rank_pattern={"intermediate.dense": 3}, modules_to_save=["seq_relationship"])
    write("bert_dora", "bert_odd", task=None, r=2, lora_alpha=5, target_modules=["key", "dense"],
          use_dora=True)
    write("vit", "vit", task=None, r=3, lora_alpha=4, target_modules=["q_proj", "k_proj", "v_proj", "fc1", "fc2"],
          modules_to_save=["classifier", "layernorm_before"])
    write("vit_odd", "vit_odd", task=None, r=2, lora_alpha=5, target_modules=["v_proj", "o_proj"],
          rank_pattern={"v_proj": 1}, use_rslora=True)
    write("roberta", "roberta", task=None, r=2, lora_alpha=3, target_modules=["query", "value", "dense"],
          modules_to_save=["layer_norm"])
    write("roberta_classes", "roberta_classes", task="SEQ_CLS", r=2, lora_alpha=5, target_modules=["query", "value"])
