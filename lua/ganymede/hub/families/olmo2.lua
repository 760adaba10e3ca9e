--- OLMo 2 as transformers stores it: Llama whose norms stand behind attention and MLP and not before them, and whose
-- queries are normalised over all heads together, as its keys are.
-- @module ganymede.hub.families.olmo2
local families = require "ganymede.hub.families"
local llama = require "ganymede.hub.families.llama"

local olmo2 = { model = "Llama", types = { olmo2 = true }, ignored = llama.ignored, task = "CAUSAL_LM",
                tied = llama.tied }

function olmo2.takes(opt) return opt.input_norms == false and not (opt.moe or opt.norm_offset) end

function olmo2.options(config)
  local opt = llama.options(config)
  opt.input_norms, opt.branch_norms, opt.qk_norm, opt.qk_norm_joint = false, true, opt.eps, true
  return opt
end

function olmo2.config(opt)
  for _, name in ipairs { "attention_scale", "attention_softcap", "logit_softcap", "embedding_scale" } do
    if opt[name] then families.refuse("olmo2", name, opt[name]) end
  end
  llama.refuse_biases("olmo2", opt)
  if not opt.qk_norm_joint then families.refuse("olmo2", "qk_norm_joint", false) end
  local config = llama.config(opt, "olmo2", "Olmo2ForCausalLM", true)
  config.mlp_bias = nil
  return config
end

local function norm_entries(add, _, _, ours, theirs)
  add(families.whole(ours .. "attention_norm.weight", theirs .. "post_attention_layernorm.weight"))
  add(families.whole(ours .. "mlp_norm.weight", theirs .. "post_feedforward_layernorm.weight"))
end

function olmo2.entries(opt, has) return llama.entries(opt, has, { norms = norm_entries }) end

return olmo2
