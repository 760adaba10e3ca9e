--- Llama, Mistral, Qwen2, Qwen3 and SmolLM as Hugging Face's transformers stores them.
-- @module ganymede.hub.families.llama
local failure = require "ganymede.base.failure"
local families = require "ganymede.hub.families"
local json = require "ganymede.base.json"
local nn = require "ganymede.nn"
local options = require "ganymede.base.options"

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
  dynamic = { factor = "factor" },
  llama3 = { factor = "factor", low_freq_factor = "low", high_freq_factor = "high",
             original_max_position_embeddings = "length" },
  yarn = { factor = "factor", original_max_position_embeddings = "length", beta_fast = "fast", beta_slow = "slow",
           attention_factor = "magnitude", truncate = "truncate" },
  longrope = { short_factor = "short", long_factor = "long", factor = "factor", attention_factor = "magnitude",
               original_max_position_embeddings = "length" },
}

-- Keys of rope_parameters that are read elsewhere, or that change no number.
local aside = { rope_type = true, type = true, rope_theta = true, partial_rotary_factor = true, finetuned = true }

-- The length before stretching: the key of config.json itself goes first, as in transformers; Phi-3 always has one.
local function original_length(config, kind, given)
  local own = config:get("original_max_position_embeddings", kind == "phi3" and 4096 or nil)
  return own or given or config:need "max_position_embeddings"
end

-- What llama3 has where a model says nothing (ganymede.nn.rotary); transformers needs to be told.
local unsaid = { low_freq_factor = 1, high_freq_factor = 4 }

-- mscale and mscale_all_dim count together, and only where there is no attention_factor. Zero counts as absent, as in
-- transformers.
local function yarn_magnitude(config, given, out)
  local own, all = given.mscale, given.mscale_all_dim
  for key, value in pairs { mscale = own, mscale_all_dim = all } do
    if type(value) ~= "number" then
      config:refuse("'%s' of rope_type 'yarn' is %s; it must be a number", key, options.brief(value))
    end
  end
  if out.magnitude or not own or not all or own == 0 or all == 0 then return out.magnitude end
  local grown = 0.1 * math.log(math.max(1, type(out.factor) == "number" and out.factor or 1))
  return (own * grown + 1) / (all * grown + 1)
end

-- Adds to a scaling what its kind takes from elsewhere. given: rope_parameters, without nulls.
local function complete_scaling(config, given, out, model)
  if out.type == "dynamic" then
    out.length = config:need "max_position_embeddings" -- the only length that transformers looks at
  elseif scalings[out.type].original_max_position_embeddings then
    out.length = original_length(config, model, out.length)
    if type(out.length) ~= "number" then
      config:refuse("original_max_position_embeddings of %s must be a number; got %s", out.type, type(out.length))
    end
  end
  if out.type == "longrope" or out.type == "yarn" and given.factor == json.null then
    out.factor = out.factor or math.max(1, config:need "max_position_embeddings" / out.length)
  end
  if out.type == "yarn" then out.magnitude = yarn_magnitude(config, given, out) end
  return out
end

local function scaling_of(config, given)
  local kind, model = given.rope_type or given.type or "default", config:need "model_type"
  if kind == "default" then return nil end
  if model == "phi3" and (kind == "su" or kind == "yarn") then kind = "longrope" end -- what older files call it
  local keys = scalings[kind] or config:refuse("rope_type '%s' is not one of linear, dynamic, llama3, yarn, longrope",
    tostring(kind))
  local out, said = { type = kind }, {}
  for key, value in pairs(given) do
    said[key] = (value ~= json.null or key == "factor") and value or nil
    if keys[key] then
      if key == "truncate" then out.truncate = value ~= json.null and value -- null: false, as in transformers
      elseif value ~= json.null then out[keys[key]] = value end
    elseif not (aside[key] or value == json.null or kind == "yarn" and key:find "^mscale") then
      config:refuse("'%s' of rope_type '%s' is not understood", key, kind)
    end
  end
  return complete_scaling(config, said, out, model)
end

-- What `given` says goes before keys of config.json itself, as in transformers.
local function rotary_from(config, given, theta)
  local scaling = scaling_of(config, given)
  local base, fraction = config:get("rope_theta", theta or 10000), config:get("partial_rotary_factor", 1)
  return { base = given.rope_theta or base, scaling = scaling, fraction = given.partial_rotary_factor or fraction }
end

-- rope_scaling is the older name of rope_parameters, and transformers leaves the second out where both are there.
local function rotary_of(config, theta)
  local old, new = config:get("rope_scaling", {}), config:get("rope_parameters", {})
  config:get "original_max_position_embeddings" -- which nobody asks for where nothing is stretched
  if not next(old) then return rotary_from(config, new, theta) end
  local rotary = rotary_from(config, old, theta)
  local function text(t) return options.literal(json.plain(t)) end
  if next(new) and text(rotary) ~= text(rotary_from(config, new, theta)) then
    config:refuse("rope_scaling and rope_parameters say different things of the positions; transformers reads "
      .. "rope_scaling, so remove the one that is not meant")
  end
  return rotary
end

-- Which projections have biases: the options bias, qkv_bias and mlp_bias. Keys that the code of a kind does not read in
-- transformers are not read here; where they hold something they are refused, or the arrays say that they mean nothing.
local function biases_of(config, kind)
  if kind == "mixtral" or kind == "phi3" then return false end
  if kind == "qwen2_moe" then return false, config:get("qkv_bias", true) end
  local attention, mlp = config:get("attention_bias", false), config:get("mlp_bias", false)
  if kind == "qwen2" then return false, true end -- whose queries, keys and values always have them
  if kind == "mistral" then return false end
  if kind ~= "llama" then mlp = false end -- only Llama's MLPs may have biases
  if attention == mlp then return attention end
  return attention, nil, mlp
end

--- Whether the MLPs of a model have biases.
function llama.mlp_bias(opt)
  if opt.mlp_bias ~= nil then return opt.mlp_bias end
  return opt.bias
end

--- Refuses biases that a kind has no words for whose attention_bias says all that there is.
function llama.refuse_biases(kind, opt)
  if opt.qkv_bias ~= nil and opt.qkv_bias ~= opt.bias then families.refuse(kind, "qkv_bias", opt.qkv_bias) end
  if llama.mlp_bias(opt) then families.refuse(kind, opt.mlp_bias and "mlp_bias" or "bias", true) end
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

-- How long texts may become: a dynamic base is made for a factor more than config.json says.
local function length_of(config, rotary)
  local said, scaling = config:need "max_position_embeddings", rotary.scaling
  if not scaling or scaling.type ~= "dynamic" or type(scaling.factor) ~= "number" then return said end
  return math.floor(said * math.max(1, scaling.factor))
end

--- The options of what all models of this kind have; those of MLPs aside. act: the name of the activation there.
function llama.options(config, act)
  local kind, heads, width = config:need "model_type", config:need "num_attention_heads", config:need "hidden_size"
  act = act or config:get("hidden_act", "silu")
  local bias, qkv_bias, mlp_bias = biases_of(config, kind)
  local own = defaults[kind] or {}
  local eps, rotary = config:get("rms_norm_eps", own.eps or 1e-6), rotary_of(config, own.theta)
  local size = config:get("head_dim", own.head_dim or width / heads)
  return {
    vocabulary = config:need "vocab_size", width = width, heads = heads, hidden = config:need "intermediate_size",
    kv_heads = config:get("num_key_value_heads", heads), depth = config:need "num_hidden_layers",
    head_size = size ~= width / heads and size or nil,
    sequence_length = length_of(config, rotary), eps = eps, bias = bias, qkv_bias = qkv_bias,
    mlp_bias = mlp_bias,
    activation = activations[act] or config:refuse("hidden_act is '%s'", tostring(act)),
    rotary = rotary,
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
  if opt.qk_norm then
    llama.refuse_biases("qwen3", opt)
    return "qwen3", "Qwen3ForCausalLM"
  end
  local mlp_bias = llama.mlp_bias(opt)
  if opt.bias and opt.qkv_bias == false then families.refuse("llama", "qkv_bias", false) end
  if opt.qkv_bias and not opt.bias then
    if mlp_bias then families.refuse("qwen2", "mlp_bias", true) end
    return "qwen2", "Qwen2ForCausalLM"
  end
  if opt.window and not opt.bias and not mlp_bias then return "mistral", "MistralForCausalLM" end
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
    rope.rope_type, rope[key] = given.scaling.type, given.scaling[ours]
    if rope[key] == nil then rope[key] = unsaid[key] end
  end
  local longest = opt.sequence_length
  if rope.rope_type == "dynamic" then longest = given.scaling.length end -- which says where the base begins to grow
  local config = {
    model_type = kind, architectures = { class }, vocab_size = opt.vocabulary, hidden_size = opt.width,
    intermediate_size = opt.hidden, num_hidden_layers = opt.depth, num_attention_heads = opt.heads,
    num_key_value_heads = opt.kv_heads, head_dim = opt.head_size or opt.width / opt.heads,
    hidden_act = hidden_act(kind, opt.activation), max_position_embeddings = longest,
    rms_norm_eps = opt.eps,
    tie_word_embeddings = opt.tied, rope_parameters = rope, rope_theta = rope.rope_theta,
    attention_bias = opt.bias, mlp_bias = llama.mlp_bias(opt), attention_dropout = opt.attention_dropout,
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
    for _, what in ipairs(llama.mlp_bias(opt) and { "weight", "bias" } or { "weight" }) do
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
-- (add, options, block, ours, theirs) that adds entries. has: tells whether a file is of a model without its head, such
-- as LlamaModel, which writes its arrays without "model." before their names.
function llama.entries(opt, has, own)
  local list, parts, root = {}, own or {}, families.root(has, "embed_tokens.weight", "model.")
  local function add(entry) list[#list + 1] = entry end
  local function add_part(part, otherwise, ...)
    local entries = parts[part] or otherwise
    entries(add, opt, ...)
  end
  add(families.whole("tokens.weight", root .. "embed_tokens.weight"))
  for i = 1, opt.depth do
    local ours, theirs = ("blocks.%d."):format(i), ("%slayers.%d."):format(root, i - 1)
    add_part("norms", norm_entries, i, ours, theirs)
    add_part("attention", attention_entries, i, ours, theirs)
    add_part("mlp", mlp_entries, i, ours, theirs)
  end
  add(families.whole("norm.weight", root .. "norm.weight"))
  if not opt.tied then add(families.whole("head.weight", "lm_head.weight")) end
  return list
end

llama.mlp_entries = mlp_entries

return llama
