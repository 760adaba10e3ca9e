--- Phi-3 as transformers stores it: Llama whose queries, keys and values are one array, and whose gate and up are one.
--
-- Its options are those of Llama; so only a model that came from such files is written as one (families.of_model).
-- Positions may be stretched by LongRoPE and in no other way. Dropout is refused.
-- @module ganymede.hub.families.phi3
local families = require "ganymede.hub.families"
local llama = require "ganymede.hub.families.llama"

local phi3 = { model = "Llama", types = { phi3 = true }, ignored = llama.ignored, task = "CAUSAL_LM",
               tied = llama.tied }

function phi3.takes() return false end

function phi3.options(config)
  config:expect("resid_pdrop", 0)
  config:get "embd_pdrop" -- which transformers does not use
  return llama.options(config)
end

function phi3.config(opt)
  for _, name in ipairs { "bias", "qkv_bias", "mlp_bias", "qk_norm", "moe" } do
    if opt[name] then families.refuse("phi3", name, opt[name]) end
  end
  local scaling = type(opt.rotary) == "table" and opt.rotary.scaling
  if scaling and scaling.type ~= "longrope" then families.refuse("phi3", "rotary.scaling", scaling) end
  local config = llama.config(opt, "phi3", "Phi3ForCausalLM")
  config.mlp_bias, config.attention_bias = nil, nil
  config.original_max_position_embeddings = scaling and scaling.length or nil
  return config
end

local function attention_entries(add, opt, _, ours, theirs)
  local kv, size = opt.kv_heads, opt.head_size or opt.width / opt.heads
  local group, array = opt.heads / kv, theirs .. "self_attn.qkv_proj.weight"
  local first = { 0, opt.heads * size, (opt.heads + kv) * size } -- of queries, keys, values
  add { parameter = ours .. "attention.qkv.weight", pieces = families.qkv(kv, group, size, opt.width,
    function(part, head) return array, first[part] + head * (part == 1 and group or 1) * size + 1 end) }
  add(families.whole(ours .. "attention.output.weight", theirs .. "self_attn.o_proj.weight"))
end

local function mlp_entries(add, opt, _, ours, theirs)
  for i, name in ipairs { "gate", "up" } do
    add { parameter = ("%smlp.%s.weight"):format(ours, name),
          pieces = { { name = theirs .. "mlp.gate_up_proj.weight", at = { 1, 1 }, size = { opt.hidden, opt.width },
                       offset = { (i - 1) * opt.hidden + 1, 1 } } } }
  end
  add(families.whole(ours .. "mlp.down.weight", theirs .. "mlp.down_proj.weight"))
end

function phi3.entries(opt, has)
  return llama.entries(opt, has, { attention = attention_entries, mlp = mlp_entries })
end

return phi3
