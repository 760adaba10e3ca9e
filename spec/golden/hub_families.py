"""hub_families.py - as hub.py, for BERT, RoBERTa, ViT, Mixtral, Qwen-MoE, Gemma, Phi-3 and OLMo 2; with loss and
gradients in f64.

    hub/<name>/config.json, model.safetensors      written by save_pretrained
    hub/<name>/expected.json                       what goes in (tokens, segments and mask, or pixels; targets),
                                                   outputs in f32, the loss in f64, and of each array's gradient in
                                                   f64 its norm and its product with cos(1), cos(2), ... (row by row);
                                                   of some, texts as `generate` continues each of them alone

transformers works out angles, norms and routers in f32 whatever the model's type is. For the numbers in f64,
torch.float means torch.double while the model is made and runs.
Needs torch and transformers (5.24), no network: python3 spec/golden/hub_families.py [names]. Seeded."""
import json
import os
import sys

import torch
import torch.nn.functional as F
from transformers import (BertConfig, BertForPreTraining, Gemma2Config, Gemma2ForCausalLM, GemmaConfig,
                          GemmaForCausalLM, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM,
                          Olmo2Config, Olmo2ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2MoeConfig,
                          Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM,
                          RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification, ViTConfig,
                          ViTForImageClassification, XLMRobertaConfig, XLMRobertaForMaskedLM,
                          XLMRobertaForSequenceClassification)

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hub")


def rounded(t):
    return [rounded(x) for x in t] if t.dim() else round(t.item(), 7)


def gradients(model, loss):
    """names as in the file -> [norm, product with cosines]"""
    loss.backward()
    grads = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in model.named_parameters()}
    for n, p in model.named_parameters():
        p.data = grads[n]
    folder = os.path.join(root, "gradients")
    model.save_pretrained(folder)
    from safetensors.torch import load_file
    out = {}
    for n, g in load_file(os.path.join(folder, "model.safetensors")).items():
        probe = torch.cos(torch.arange(1, g.numel() + 1, dtype=torch.float64))
        out[n] = [g.double().norm().item(), (g.double().flatten() * probe).sum().item()]
    for f in os.listdir(folder):
        os.remove(os.path.join(folder, f))
    os.rmdir(folder)
    return out


def in_double(make):
    """make() with torch.float meaning torch.double"""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        return make()
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept
        torch.set_default_dtype(torch.float32)


def continued(fresh, gen, lengths, count, keeps=True):
    """greedy continuations of random prompts, one at a time; keeps: whether keys are kept from token to token; fresh
    makes the model, which with a dynamic base remembers how long texts were"""
    out = []
    for n in lengths:
        model = fresh()
        prompt = torch.randint(0, model.config.vocab_size, (1, n), generator=gen)
        with torch.no_grad():
            text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False,
                                  eos_token_id=None, pad_token_id=0, use_cache=keeps)
        out.append({"prompt": prompt[0].tolist(), "tokens": text[0].tolist()})
    return out


def write(name, seed, cls, config, inputs, run, generate=None, **saving):
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        return
    gen = torch.Generator().manual_seed(seed)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = cls(config).eval()
    for n, p in model.named_parameters():
        p.data = torch.randn(p.shape, generator=gen) * 0.2 + (1 if "norm" in n.lower() and "weight" in n else 0)
    folder = os.path.join(root, name)
    model.save_pretrained(folder, **saving)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    given = inputs(gen)
    with torch.no_grad():
        outputs, _ = run(model, given)

    def double():
        twin = cls(config).double().eval()
        twin.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
        _, loss = run(twin, {k: v.double() if v.is_floating_point() else v for k, v in given.items()})
        return loss.item(), gradients(twin, loss)

    loss, grads = in_double(double)
    expected = {k: rounded(v) if v.is_floating_point() else v.tolist() for k, v in given.items()}
    expected.update(outputs=[rounded(o) for o in outputs], loss=loss, gradients=grads)
    def fresh():
        twin = cls(config).eval()
        twin.load_state_dict(model.state_dict())
        return twin

    if generate:
        expected.update(generated=continued(fresh, gen, *generate))
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(expected, f)


def text(vocabulary, length=7):
    def make(gen):
        return {"tokens": torch.randint(0, vocabulary, (2, length), generator=gen),
                "targets": torch.randint(0, vocabulary, (2, length), generator=gen)}
    return make


def language(model, given):
    logits = model(given["tokens"]).logits
    return [logits], F.cross_entropy(logits.flatten(0, 1), given["targets"].flatten())


def pairs(vocabulary):
    def make(gen):
        given = text(vocabulary)(gen)
        given["segments"] = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0]])
        given["mask"] = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
        given["pair"] = torch.tensor([0, 1])
        return given
    return make


def bert(model, given):
    out = model(given["tokens"], token_type_ids=given["segments"], attention_mask=given["mask"])
    words, pair = out.prediction_logits, out.seq_relationship_logits
    return [words, pair], F.cross_entropy(words.flatten(0, 1), given["targets"].flatten()) + F.cross_entropy(
        pair, given["pair"])


def padded(vocabulary, padding, segments=1, classes=None):
    """texts with padding behind, before, and within what is seen; targets: of tokens, or a class for each text"""
    def make(gen):
        tokens = torch.randint(padding + 1, vocabulary, (3, 7), generator=gen)
        tokens[1, 5:] = tokens[2, :2] = tokens[0, 3] = padding
        return {"tokens": tokens, "segments": torch.randint(0, segments, (3, 7), generator=gen),
                "mask": torch.tensor([[1] * 7, [1] * 5 + [0] * 2, [0] * 2 + [1] * 5]),
                "targets": torch.randint(0, classes or vocabulary, (3,) if classes else (3, 7), generator=gen)}
    return make


def roberta(model, given):
    logits = model(given["tokens"], token_type_ids=given["segments"], attention_mask=given["mask"]).logits
    return [logits], F.cross_entropy(logits.flatten(0, -2), given["targets"].flatten())


def pictures(channels, height, width, classes):
    def make(gen):  # of multiples of 1/16, so that JSON keeps them
        return {"pixels": torch.randint(-16, 17, (2, channels, height, width), generator=gen) / 16,
                "targets": torch.randint(0, classes, (2,), generator=gen)}
    return make


def vit(model, given):
    logits = model(given["pixels"]).logits
    return [logits], F.cross_entropy(logits, given["targets"])


small = dict(vocab_size=29, hidden_size=12, num_hidden_layers=2, num_attention_heads=6)
decoder = dict(small, num_key_value_heads=2, max_position_embeddings=64)
write("bert", 1, BertForPreTraining, BertConfig(**small, intermediate_size=20, max_position_embeddings=16), pairs(29),
      bert)
write("bert_odd", 2, BertForPreTraining, BertConfig(
    vocab_size=31, hidden_size=9, num_hidden_layers=1, num_attention_heads=3, intermediate_size=7,
    max_position_embeddings=11, hidden_act="gelu_new", layer_norm_eps=1e-3), pairs(31), bert)
write("vit", 3, ViTForImageClassification, ViTConfig(
    hidden_size=12, num_hidden_layers=2, num_attention_heads=6, intermediate_size=20, image_size=8, patch_size=4,
    num_labels=3), pictures(3, 8, 8, 3), vit)
write("vit_odd", 4, ViTForImageClassification, ViTConfig(
    hidden_size=10, num_hidden_layers=1, num_attention_heads=5, intermediate_size=7, image_size=(12, 8), patch_size=4,
    num_channels=2, num_labels=5, qkv_bias=False, hidden_act="relu", layer_norm_eps=1e-5), pictures(2, 12, 8, 5), vit)
write("mixtral", 5, MixtralForCausalLM, MixtralConfig(**decoder, intermediate_size=20, num_local_experts=4),
      text(29), language)
write("mixtral_odd", 6, MixtralForCausalLM, MixtralConfig(
    vocab_size=31, hidden_size=10, num_hidden_layers=1, num_attention_heads=5, num_key_value_heads=1, head_dim=4,
    intermediate_size=7, num_local_experts=3, num_experts_per_tok=1, max_position_embeddings=32,
    tie_word_embeddings=True), text(31), language)
write("qwen2_moe", 7, Qwen2MoeForCausalLM, Qwen2MoeConfig(
    **decoder, intermediate_size=20, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=7,
    shared_expert_intermediate_size=9), text(29), language)
write("qwen2_moe_sparse", 8, Qwen2MoeForCausalLM, Qwen2MoeConfig(
    **decoder, intermediate_size=14, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=6,
    shared_expert_intermediate_size=6, decoder_sparse_step=2, norm_topk_prob=True), text(29), language)
write("qwen3_moe", 9, Qwen3MoeForCausalLM, Qwen3MoeConfig(
    **decoder, head_dim=4, intermediate_size=20, num_experts=4, num_experts_per_tok=3, moe_intermediate_size=7,
    norm_topk_prob=True), text(29), language)
write("qwen2_moe_window", 10, Qwen2MoeForCausalLM, Qwen2MoeConfig(
    **dict(decoder, num_hidden_layers=3), intermediate_size=14, num_experts=3, num_experts_per_tok=2,
    moe_intermediate_size=6, shared_expert_intermediate_size=6, use_sliding_window=True, sliding_window=3,
    max_window_layers=2), text(29), language)
write("qwen3_moe_window", 11, Qwen3MoeForCausalLM, Qwen3MoeConfig(
    **decoder, head_dim=4, intermediate_size=14, num_experts=3, num_experts_per_tok=1, moe_intermediate_size=6,
    use_sliding_window=True, sliding_window=2), text(29), language)
write("gemma", 12, GemmaForCausalLM, GemmaConfig(**decoder, head_dim=4, intermediate_size=20, pad_token_id=None),
      text(29), language)
write("gemma_odd", 13, GemmaForCausalLM, GemmaConfig(
    vocab_size=31, hidden_size=10, num_hidden_layers=1, num_attention_heads=5, num_key_value_heads=1, head_dim=6,
    intermediate_size=7, max_position_embeddings=32, rms_norm_eps=1e-3, pad_token_id=None, tie_word_embeddings=False),
      text(31), language)
write("gemma2", 14, Gemma2ForCausalLM, Gemma2Config(
    **dict(decoder, num_hidden_layers=3), head_dim=4, intermediate_size=20, query_pre_attn_scalar=4, sliding_window=3,
    attn_logit_softcapping=2.0, final_logit_softcapping=3.0, pad_token_id=None), text(29), language)
write("gemma2_odd", 15, Gemma2ForCausalLM, Gemma2Config(
    vocab_size=31, hidden_size=10, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1, head_dim=6,
    intermediate_size=7, query_pre_attn_scalar=6, sliding_window=4, attn_logit_softcapping=None,
    layer_types=["full_attention", "sliding_attention"], final_logit_softcapping=None, pad_token_id=None), text(31),
      language)
write("gemma2_scale", 18, Gemma2ForCausalLM, Gemma2Config(  # as in Gemma 2 27B, whose scalar is no width of a head
    **decoder, head_dim=4, intermediate_size=20, query_pre_attn_scalar=7, sliding_window=3, attn_logit_softcapping=2.0,
    final_logit_softcapping=3.0, pad_token_id=None), text(29), language)
write("phi3", 16, Phi3ForCausalLM, Phi3Config(**decoder, intermediate_size=20, pad_token_id=None, bos_token_id=1,
                                               eos_token_id=2), text(29), language)
write("phi3_odd", 17, Phi3ForCausalLM, Phi3Config(
    vocab_size=31, hidden_size=20, num_hidden_layers=1, num_attention_heads=5, num_key_value_heads=1,
    intermediate_size=7, max_position_embeddings=32, sliding_window=3, rope_parameters=dict(
        rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5), pad_token_id=None, bos_token_id=1,
    eos_token_id=2), text(31), language)
write("olmo2", 19, Olmo2ForCausalLM, Olmo2Config(**decoder, intermediate_size=20, eos_token_id=2), text(29),
      language)
write("olmo2_odd", 20, Olmo2ForCausalLM, Olmo2Config(
    vocab_size=31, hidden_size=10, num_hidden_layers=3, num_attention_heads=5, intermediate_size=7,
    max_position_embeddings=32, rms_norm_eps=1e-3, tie_word_embeddings=True, eos_token_id=2,
    rope_parameters=dict(rope_type="default", rope_theta=500.0)), text(31), language)

longrope = dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.3], long_factor=[2.0, 5.0])
stretched = dict(vocab_size=29, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                 intermediate_size=20)
write("phi3_long", 21, Phi3ForCausalLM, Phi3Config(  # seven tokens are short; the texts grow over the border
    **stretched, max_position_embeddings=64, original_max_position_embeddings=9, rope_parameters=longrope,
    pad_token_id=None, bos_token_id=1, eos_token_id=2), text(29), language, generate=([4, 9, 10, 1], 12))
write("phi3_longer", 22, Phi3ForCausalLM, Phi3Config(  # seven tokens are long, and "su" is an older name
    **stretched, max_position_embeddings=40, original_max_position_embeddings=6, rope_parameters=dict(
        longrope, rope_type="su", factor=3.0), pad_token_id=None, bos_token_id=1, eos_token_id=2), text(29), language)
write("llama_long", 23, LlamaForCausalLM, LlamaConfig(
    **stretched, max_position_embeddings=48, rope_parameters=dict(
        longrope, original_max_position_embeddings=6, attention_factor=1.1)), text(29), language)


wide = dict(decoder, hidden_size=12, num_attention_heads=4, head_dim=16, intermediate_size=20)
yarn = dict(rope_type="yarn", rope_theta=50.0, factor=4.0, original_max_position_embeddings=64, beta_fast=4.0)
write("llama_yarn", 24, LlamaForCausalLM, LlamaConfig(  # biases of attention, and of no MLP
    **dict(wide, max_position_embeddings=256), attention_bias=True, rope_parameters=dict(
        yarn, truncate=False, mscale=0.7, mscale_all_dim=0.4)), text(29), language)
write("qwen3_yarn", 25, Qwen3ForCausalLM, Qwen3Config(
    **dict(wide, max_position_embeddings=256), attention_bias=True, rope_parameters=dict(
        yarn, mscale=0.7, mscale_all_dim=0.4, attention_factor=1.3)), text(29), language)
write("llama_dynamic", 26, LlamaForCausalLM, LlamaConfig(  # biases of MLPs alone; seven tokens are long
    **dict(stretched, max_position_embeddings=5), mlp_bias=True, rope_parameters=dict(
        rope_type="dynamic", rope_theta=100.0, factor=8.0)), text(29), language, generate=([2, 5, 6, 1], 24, False))
write("qwen3_moe_layers", 27, Qwen3MoeForCausalLM, Qwen3MoeConfig(
    **dict(decoder, num_hidden_layers=4), head_dim=4, intermediate_size=14, num_experts=3, num_experts_per_tok=2,
    moe_intermediate_size=6, attention_bias=True, mlp_only_layers=[0, 2]), text(29), language)
write("qwen2_moe_layers", 28, Qwen2MoeForCausalLM, Qwen2MoeConfig(
    **dict(decoder, num_hidden_layers=4), intermediate_size=14, num_experts=3, num_experts_per_tok=2,
    moe_intermediate_size=6, shared_expert_intermediate_size=6, qkv_bias=False, decoder_sparse_step=2,
    mlp_only_layers=[1, 2]), text(29), language)
write("olmo2_biased", 29, Olmo2ForCausalLM, Olmo2Config(**decoder, intermediate_size=20, eos_token_id=2,
                                                        attention_bias=True), text(29), language)
write("gemma2_biased", 30, Gemma2ForCausalLM, Gemma2Config(
    **decoder, head_dim=4, intermediate_size=20, query_pre_attn_scalar=4, sliding_window=3, attention_bias=True,
    pad_token_id=None), text(29), language)

small_roberta = dict(small, intermediate_size=20, max_position_embeddings=18, type_vocab_size=1, layer_norm_eps=1e-5)
write("roberta", 31, RobertaForMaskedLM, RobertaConfig(**small_roberta, hidden_act="relu"), padded(29, 1), roberta)
write("roberta_classes", 32, RobertaForSequenceClassification, RobertaConfig(
    **small_roberta, num_labels=3, classifier_dropout=0.2), padded(29, 1, classes=3), roberta)
write("xlm_roberta", 33, XLMRobertaForMaskedLM, XLMRobertaConfig(
    vocab_size=31, hidden_size=9, num_hidden_layers=1, num_attention_heads=3, intermediate_size=7,
    max_position_embeddings=11, pad_token_id=3), padded(31, 3, segments=2), roberta)
write("xlm_roberta_classes", 34, XLMRobertaForSequenceClassification, XLMRobertaConfig(
    vocab_size=31, hidden_size=9, num_hidden_layers=1, num_attention_heads=3, intermediate_size=7,
    max_position_embeddings=8, pad_token_id=0), padded(31, 0, segments=2, classes=2), roberta)

plain = dict(yarn, original_max_position_embeddings=32, beta_fast=2.0, beta_slow=0.25)
write("llama_yarn_plain", 35, LlamaForCausalLM, LlamaConfig(
    **dict(wide, max_position_embeddings=128), rope_parameters=plain), text(29), language)
write("qwen3_moe_yarn", 36, Qwen3MoeForCausalLM, Qwen3MoeConfig(
    **dict(wide, max_position_embeddings=128), num_experts=4, num_experts_per_tok=2, moe_intermediate_size=7,
    norm_topk_prob=True, rope_parameters=dict(plain, attention_factor=1.3)), text(29), language)
