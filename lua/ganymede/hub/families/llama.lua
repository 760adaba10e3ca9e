--- Llama, Mistral, Qwen2, Qwen3 and SmolLM as Hugging Face's transformers stores them.
-- @module ganymede.hub.families.llama
local failure = require "ganymede.base.failure"
local families = require "ganymede.hub.families"
local nn = require "ganymede.nn"

local llama = { model = "Llama", types = { llama = true, mistral = true, qwen2 = true, qwen3 = true },
                task = "CAUSAL_LM" }

-- Some store a head that is tied all the same.
function llama.ignored(opt) return { "rotary_emb%.inv_freq$", opt.tied and "^lm_head%.weight$" or nil } end

function llama.tied(opt) return opt.tied and { ["model.embed_tokens.weight"] = "lm_head.weight" } or nil end

function llama.takes(opt) return not (opt.moe or opt.norm_offset) and opt.input_norms ~= false end

local activations = { silu = "swiglu", gelu = "geglu", gelu_pytorch_tanh = "geglu_tanh", relu = "reglu" }

-- The ways in which positions are stretched: name there -> { name here, key there = key here, ... }.
local scalings = {
  linear = { factor = "factor" },
  llama3 = { factor = "factor", low_freq_factor = "low", high_freq_factor = "high",
             original_max_position_embeddings = "length" },
  yarn = { factor = "factor", original_max_position_embeddings = "length", beta_fast = "fast", beta_slow = "slow",
           attention_factor = "magnitude" },
  longrope = { short_factor = "short", long_factor = "long", factor = "factor", attention_factor = "magnitude",
               original_max_position_embeddings = "length" },
}

-- The length before stretching: the key of config.json itself goes first, as in transformers; Phi-3 always has one.
local function original_length(config, kind, given)
  local own = config:get("original_max_position_embeddings", kind == "phi3" and 4096 or nil)
  return own or given or config:need "max_position_embeddings"
end

-- What llama3 has where a model says nothing (ganymede.nn.rotary); transformers needs to be told.
local unsaid = { low_freq_factor = 1, high_freq_factor = 4 }

local function complete_longrope(config, out, kind)
  out.length = original_length(config, kind, out.length)
  if type(out.length) ~= "number" then
    config:refuse("original_max_position_embeddings of longrope must be a number; got %s", type(out.length))
  end
  out.factor = out.factor or math.max(1, config:need "max_position_embeddings" / out.length)
  return out
end

local function scaling_of(config, given)
  local kind, model = given.rope_type or given.type or "default", config:need "model_type"
  if kind == "default" then return nil end
  if model == "phi3" and (kind == "su" or kind == "yarn") then kind = "longrope" end -- what older files call it
  local keys = scalings[kind] or config:refuse("rope_type '%s' is not one of linear, llama3, yarn, longrope",
    tostring(kind))
  local out = { type = kind }
  for key, value in pairs(given) do
    local ours = keys[key]
    if ours then out[ours] = value
    elseif not (key == "rope_type" or key == "type" or key == "rope_theta" or key == "partial_rotary_factor") then
      config:refuse("'%s' of rope_type '%s' is not understood", key, kind)
    end
  end
  if kind == "longrope" then return complete_longrope(config, out, model) end
  if keys.original_max_position_embeddings and not out.length then
    out.length = config:need "max_position_embeddings"
  end
  return out
end

-- What rope_parameters says goes before keys of config.json itself, as in transformers.
local function rotary_of(config, theta)
  local given = config:get "rope_parameters" or config:get "rope_scaling" or {}
  local scaling = scaling_of(config, given)
  local base, fraction = config:get("rope_theta", theta or 10000), config:get("partial_rotary_factor", 1)
  return { base = given.rope_theta or base, scaling = scaling, fraction = given.partial_rotary_factor or fraction }
end

-- Which projections have biases: the options bias and qkv_bias.
local function biases_of(config, kind)
  if kind == "mixtral" or kind == "phi3" then return false, nil end
  if kind == "qwen2_moe" then return false, config:get("qkv_bias", true) end
  local attention, mlp = config:get("attention_bias", false), config:get("mlp_bias", false)
  if kind == "qwen2" then return false, true end
  if attention ~= mlp then config:refuse "attention_bias and mlp_bias differ, which this program does not have" end
  return mlp, nil
end

-- What transformers says where a config.json does not.
local defaults = {
  qwen3 = { head_dim = 128 }, phi3 = { eps = 1e-5 }, olmo2 = { eps = 1e-5 }, mixtral = { eps = 1e-5, theta = 1e6 },
  gemma = { head_dim = 256, tied = true }, gemma2 = { head_dim = 256, tied = true },
}

-- Kinds whose layers may have windows. slides: has layer i (from 1) one, where layer_types does not say so? full:
-- max_window_layers. size: the window, where config.json has none (null is none, too). optional: use_sliding_window
-- says whether there are any. types: the kind reads layer_types.
local function always() return true end
local function odd(i) return i % 2 == 1 end
local windows = {
  mistral = { slides = always, size = 4096 }, mixtral = { slides = always }, phi3 = { slides = always },
  gemma2 = { slides = odd, size = 4096, types = true },
  qwen3_moe = { slides = always, size = 4096, optional = true },
  qwen2 = { slides = function(i, full) return i > full end, size = 4096, optional = true, types = true },
  qwen2_moe = { slides = function(i, full) return odd(i) and i <= full end, size = 4096, optional = true,
                types = true },
}
windows.qwen3 = windows.qwen2

-- Which positions a position of each layer attends to: the option window.
local function window_of(config, kind)
  local depth, about = config:need "num_hidden_layers", windows[kind]
  local without = about and config.values.sliding_window == nil and about.size or nil
  local size, types, full = config:get("sliding_window", without), config:get "layer_types",
    config:get("max_window_layers", 28)
  if not about or about.optional and not config:get("use_sliding_window", false) then size = nil end
  if types and #types ~= depth then config:refuse("layer_types has %d entries, for %d layers", #types, depth) end
  local list, different = {}, false
  for i = 1, depth do
    local slides = about and about.slides(i, full)
    if types then
      slides = types[i] == "sliding_attention"
      if not slides and types[i] ~= "full_attention" then
        config:refuse("layer_types[%d] is '%s', which is not supported", i - 1, tostring(types[i]))
      end
    end
    if slides and types and not size then
      config:refuse("layer_types[%d] is 'sliding_attention', but no sliding_window is in use", i - 1)
    end
    list[i] = slides and size or 0
    different = different or list[i] ~= list[1]
  end
  return different and list or list[1] ~= 0 and list[1] or nil
end

--- The options of what all models of this kind have; those of MLPs aside. act: the name of the activation there.
function llama.options(config, act)
  local kind, heads, width = config:need "model_type", config:need "num_attention_heads", config:need "hidden_size"
  act = act or config:get("hidden_act", "silu")
  local bias, qkv_bias = biases_of(config, kind)
  local own = defaults[kind] or {}
  local eps = config:get("rms_norm_eps", own.eps or 1e-6)
  local size = config:get("head_dim", own.head_dim or width / heads)
  return {
    vocabulary = config:need "vocab_size", width = width, heads = heads, hidden = config:need "intermediate_size",
    kv_heads = config:get("num_key_value_heads", heads), depth = config:need "num_hidden_layers",
    head_size = size ~= width / heads and size or nil,
    sequence_length = config:need "max_position_embeddings", eps = eps, bias = bias, qkv_bias = qkv_bias,
    activation = activations[act] or config:refuse("hidden_act is '%s'", tostring(act)),
    rotary = rotary_of(config, own.theta),
    qk_norm = kind:find "^qwen3" and eps or nil, tied = config:get("tie_word_embeddings", own.tied or false),
    attention_dropout = config:get("attention_dropout", 0), window = window_of(config, kind),
  }
end

local function hidden_act(kind, activation)
  for _, theirs in ipairs { "silu", "gelu", "gelu_pytorch_tanh", "relu" } do
    if activations[theirs] == activation then return theirs end
  end
  families.refuse(kind, "activation", activation)
end

local function kind_of(opt)
  if opt.qk_norm and (opt.bias or opt.qkv_bias) then families.refuse("qwen3", "bias", true) end
  if opt.bias and opt.qkv_bias == false then families.refuse("llama", "qkv_bias", false) end
  if opt.qk_norm then return "qwen3", "Qwen3ForCausalLM" end
  if opt.qkv_bias and not opt.bias then return "qwen2", "Qwen2ForCausalLM" end
  if opt.window and not opt.bias then return "mistral", "MistralForCausalLM" end
  return "llama", "LlamaForCausalLM"
end

-- The keys of config.json that say what window the layers have.
local function window_keys(opt, kind)
  local about = windows[kind]
  if not opt.window and kind ~= "gemma2" then return {} end -- whose layers have windows unless layer_types says more
  local types, size, same = {}, nil, true
  for i = 1, opt.depth do
    local own = nn.TransformerBlock.window_of(opt.window, i)
    types[i] = own and "sliding_attention" or "full_attention"
    if own and size and own ~= size then
      failure(2, "windows of %d and %d positions in one model: config.json has one sliding_window", size, own)
    end
    size, same = size or own, same and types[i] == types[1]
  end
  if not about or not (about.types or same) then families.refuse(kind, "window", opt.window) end
  return { sliding_window = size, use_sliding_window = about.optional, layer_types = about.types and types or nil,
    max_window_layers = about.optional and 0 or nil }
end

-- Options that only some kinds have words for.
local special = { "attention_scale", "attention_softcap", "logit_softcap", "norm_offset", "branch_norms",
  "embedding_scale", "qk_norm_joint" }

local function refuse_special(opt, kind)
  for _, name in ipairs(special) do
    if opt[name] then families.refuse(kind, name, opt[name]) end
  end
  if opt.input_norms == false then families.refuse(kind, "input_norms", false) end
end

--- config.json of a model; kind and class: model_type and architecture, where they are not those of an MLP's. said: the
-- family says what special options mean.
function llama.config(opt, kind, class, said)
  if not kind then kind, class = kind_of(opt) end
  local given = opt.rotary == true and {} or opt.rotary or families.refuse(kind, "rotary", opt.rotary)
  if given.interleaved then families.refuse(kind, "rotary.interleaved", true) end
  if not said then refuse_special(opt, kind) end
  if opt.qk_norm and (opt.qk_norm == true and 1e-6 or opt.qk_norm) ~= opt.eps then -- there is one eps for all norms
    families.refuse(kind, "qk_norm", opt.qk_norm)
  end
  local rope = { rope_type = "default", rope_theta = given.base or 10000 }
  if given.fraction and given.fraction ~= 1 then rope.partial_rotary_factor = given.fraction end
  for key, ours in pairs(given.scaling and scalings[given.scaling.type] or {}) do
    rope.rope_type, rope[key] = given.scaling.type, given.scaling[ours] or unsaid[key]
  end
  local config = {
    model_type = kind, architectures = { class }, vocab_size = opt.vocabulary, hidden_size = opt.width,
    intermediate_size = opt.hidden, num_hidden_layers = opt.depth, num_attention_heads = opt.heads,
    num_key_value_heads = opt.kv_heads, head_dim = opt.head_size or opt.width / opt.heads,
    hidden_act = hidden_act(kind, opt.activation), max_position_embeddings = opt.sequence_length,
    rms_norm_eps = opt.eps,
    tie_word_embeddings = opt.tied, rope_parameters = rope, rope_theta = rope.rope_theta,
    attention_bias = opt.bias, mlp_bias = opt.bias, attention_dropout = opt.attention_dropout,
  }
  for key, value in pairs(window_keys(opt, kind)) do config[key] = value end
  return config
end

local function attention_entries(add, opt, _, ours, theirs)
  local kv, size = opt.kv_heads, opt.head_size or opt.width / opt.heads
  local group, names = opt.heads / kv, { "q_proj", "k_proj", "v_proj" }
  local function rows(what)
    return function(part, head)
      return theirs .. "self_attn." .. names[part] .. what, head * (part == 1 and group or 1) * size + 1
    end
  end
  add { parameter = ours .. "attention.qkv.weight", pieces = families.qkv(kv, group, size, opt.width, rows ".weight") }
  local has_bias = opt.qkv_bias
  if has_bias == nil then has_bias = opt.bias end
  if has_bias then
    add { parameter = ours .. "attention.qkv.bias", pieces = families.qkv(kv, group, size, nil, rows ".bias") }
  end
  if opt.qk_norm then
    add(families.whole(ours .. "attention.query_norm", theirs .. "self_attn.q_norm.weight"))
    add(families.whole(ours .. "attention.key_norm", theirs .. "self_attn.k_norm.weight"))
  end
  add(families.whole(ours .. "attention.output.weight", theirs .. "self_attn.o_proj.weight"))
  if opt.bias then add(families.whole(ours .. "attention.output.bias", theirs .. "self_attn.o_proj.bias")) end
end

-- Gate, up and down of an MLP.
local function mlp_entries(add, opt, _, ours, theirs)
  for _, name in ipairs { "gate", "up", "down" } do
    for _, what in ipairs(opt.bias and { "weight", "bias" } or { "weight" }) do
      add(families.whole(("%smlp.%s.%s"):format(ours, name, what), ("%smlp.%s_proj.%s"):format(theirs, name, what)))
    end
  end
end

-- What stands before attention and MLP.
local function norm_entries(add, _, _, ours, theirs)
  add(families.whole(ours .. "norm1.weight", theirs .. "input_layernorm.weight"))
  add(families.whole(ours .. "norm2.weight", theirs .. "post_attention_layernorm.weight"))
end

--- The entries of a model. own: { norms, attention, mlp }, where a family has other arrays for them: each is a function
-- (add, options, block, ours, theirs) that adds entries.
function llama.entries(opt, _, own)
  local list, parts = {}, own or {}
  local function add(entry) list[#list + 1] = entry end
  local function add_part(part, otherwise, ...)
    local entries = parts[part] or otherwise
    entries(add, opt, ...)
  end
  add(families.whole("tokens.weight", "model.embed_tokens.weight"))
  for i = 1, opt.depth do
    local ours, theirs = ("blocks.%d."):format(i), ("model.layers.%d."):format(i - 1)
    add_part("norms", norm_entries, i, ours, theirs)
    add_part("attention", attention_entries, i, ours, theirs)
    add_part("mlp", mlp_entries, i, ours, theirs)
  end
  add(families.whole("norm.weight", "model.norm.weight"))
  if not opt.tied then add(families.whole("head.weight", "lm_head.weight")) end
  return list
end

llama.mlp_entries = mlp_entries

return llama
