--- Gemma 1 and 2 as transformers stores them: Llama whose norms multiply by 1 + weight, whose embeddings are multiplied
-- by the square root of their width, and whose MLPs are gated by GELU. Gemma 2 also normalises what attention and MLP
-- give, caps scores and logits, and gives every second layer a window.
--
-- Scores are divided by the square root of query_pre_attn_scalar, which is not the head's width in Gemma 2 27B.
-- The trap: "gelu" in files of Gemma 1 means GELU by tanh, as transformers reads it.
-- @module ganymede.hub.families.gemma
local families = require "ganymede.hub.families"
local llama = require "ganymede.hub.families.llama"

local gemma = { model = "Llama", types = { gemma = true, gemma2 = true }, ignored = llama.ignored,
                task = "CAUSAL_LM", tied = llama.tied }

function gemma.takes(opt) return opt.norm_offset and not opt.moe end

-- hidden_activation counts where both names are there.
local function act_of(config, kind)
  local old, new = config:get("hidden_act", "gelu_pytorch_tanh"), config:get "hidden_activation"
  if kind == "gemma2" then return new or "gelu_pytorch_tanh" end
  local act = new or old
  return act == "gelu" and "gelu_pytorch_tanh" or act
end

function gemma.options(config)
  local kind = config:need "model_type"
  local opt = llama.options(config, act_of(config, kind))
  config:expect("use_bidirectional_attention", false)
  opt.norm_offset, opt.embedding_scale = true, math.sqrt(opt.width)
  if kind == "gemma" then return opt end
  local size, scalar = opt.head_size or opt.width / opt.heads, config:get("query_pre_attn_scalar", 256)
  if scalar <= 0 then config:refuse("query_pre_attn_scalar is %g; scores are divided by its root", scalar) end
  if scalar ~= size then opt.attention_scale = 1 / math.sqrt(scalar) end
  opt.branch_norms, opt.attention_softcap, opt.logit_softcap = true,
    config:capped("attn_logit_softcapping", 50), config:capped("final_logit_softcapping", 30)
  return opt
end

-- The number by whose root scores are divided, whole where it is one up to rounding; nil: the head's width.
local function scalar_of(opt)
  local scalar = opt.attention_scale and 1 / (opt.attention_scale * opt.attention_scale)
  local whole = scalar and math.floor(scalar + 0.5)
  return scalar and (math.abs(scalar - whole) < 1e-9 * whole and whole or scalar) or nil
end

function gemma.config(opt)
  local kind = opt.branch_norms and "gemma2" or "gemma"
  if opt.embedding_scale ~= math.sqrt(opt.width) then
    families.refuse(kind, "embedding_scale", opt.embedding_scale or 1)
  end
  llama.refuse_biases(kind, opt)
  if opt.qk_norm then families.refuse(kind, "qk_norm", opt.qk_norm) end
  if opt.input_norms == false then families.refuse(kind, "input_norms", false) end
  local config = llama.config(opt, kind, kind == "gemma" and "GemmaForCausalLM" or "Gemma2ForCausalLM", true)
  config.mlp_bias = nil
  if kind == "gemma" then
    for _, name in ipairs { "attention_softcap", "logit_softcap", "attention_scale" } do
      if opt[name] then families.refuse(kind, name, opt[name]) end
    end
    return config
  end
  config.hidden_activation, config.hidden_act = config.hidden_act, nil
  config.query_pre_attn_scalar = scalar_of(opt) or config.head_dim
  config.attn_logit_softcapping = opt.attention_softcap or families.null
  config.final_logit_softcapping = opt.logit_softcap or families.null
  return config
end

local norms = { { "norm1", "input" }, { "attention_norm", "post_attention" }, { "norm2", "pre_feedforward" },
  { "mlp_norm", "post_feedforward" } }

local function norm_entries(add, _, _, ours, theirs)
  for _, norm in ipairs(norms) do
    add(families.whole(("%s%s.weight"):format(ours, norm[1]), ("%s%s_layernorm.weight"):format(theirs, norm[2])))
  end
end

function gemma.entries(opt, has)
  return llama.entries(opt, has, { norms = opt.branch_norms and norm_entries or nil })
end

return gemma
