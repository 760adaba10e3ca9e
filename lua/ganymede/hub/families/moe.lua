--- Mixtral, Qwen2-MoE and Qwen3-MoE as transformers stores them: Llama with experts, an array for each of them.
--
-- Their routers take the k largest of softmax(x W'). Mixtral divides the k weights by their sum, the others if
-- norm_topk_prob says so. Qwen2-MoE also sends every token through one MLP, whose result a sigmoid scales. The loss
-- that balances the experts is left out, as transformers does unless output_router_logits asks for it.
-- @module ganymede.hub.families.moe
local families = require "ganymede.hub.families"
local json = require "ganymede.base.json"
local llama = require "ganymede.hub.families.llama"
local nn = require "ganymede.nn"
local options = require "ganymede.base.options"

local moe = { model = "Llama", types = { mixtral = true, qwen2_moe = true, qwen3_moe = true },
              task = "CAUSAL_LM", tied = llama.tied }

moe.ignored = llama.ignored

function moe.takes(opt) return opt.moe ~= nil and not opt.norm_offset end

-- ---------------------------------------------------------------- config.json

-- Which blocks have experts: the options moe.every and moe.dense. mlp_only_layers counts from 0, and says nothing of
-- layers that there are not.
local function pattern_of(config, kind, depth)
  if kind == "mixtral" then return 1, nil end
  local only, dense = {}, {}
  for k, n in ipairs(config:get("mlp_only_layers", {})) do
    if type(n) ~= "number" then
      config:refuse("mlp_only_layers[%d] is %s; it must be the number of a layer", k - 1, options.brief(n))
    end
    only[n] = true
  end
  for i = 1, depth do dense[#dense + 1] = only[i - 1] and i or nil end
  return config:get("decoder_sparse_step", 1), #dense > 0 and dense or nil
end

local function normalises(config, kind)
  if kind == "mixtral" then return true end
  return config:get("norm_topk_prob", false)
end

-- The experts of a token where config.json does not say how many, as in transformers.
local most_experts = { mixtral = 2, qwen2_moe = 4, qwen3_moe = 8 }

function moe.options(config)
  local kind, opt = config:need "model_type", llama.options(config)
  config:expect("output_router_logits", false)
  config:expect("router_jitter_noise", 0)
  config:get "router_aux_loss_coef"
  local every, dense = pattern_of(config, kind, opt.depth)
  local experts = config:get("num_local_experts", config:get "num_experts")
  opt.moe = {
    experts = experts or config:need "num_local_experts", bias = false,
    k = config:get("num_experts_per_tok", most_experts[kind]),
    hidden = kind ~= "mixtral" and config:need "moe_intermediate_size" or nil, every = every, dense = dense,
    router = { type = "TopKRouter", normalise = normalises(config, kind), balance = 0 },
    shared_hidden = kind == "qwen2_moe" and config:need "shared_expert_intermediate_size" or nil,
    shared_gate = kind == "qwen2_moe" or nil,
  }
  return opt
end

-- What the experts of a model are, with defaults.
local function about(opt)
  local given, router = opt.moe, type(opt.moe.router) == "table" and opt.moe.router or {}
  local normalise = router.normalise
  if normalise == nil then normalise = true end
  local hidden = given.hidden or opt.hidden
  return {
    experts = given.experts, k = router.k or given.k or 2, hidden = hidden, every = given.every or 1,
    dense = given.dense or {},
    shared = given.shared_hidden or (given.shared or 0) * hidden, gated = given.shared_gate or false,
    normalise = normalise, router = type(given.router) == "string" and given.router or router.type or "TopKRouter",
  }
end

local function refuse_options(kind, opt, own)
  local given = opt.moe
  if own.router ~= "TopKRouter" then families.refuse(kind, "moe.router", own.router) end
  for _, name in ipairs { "capacity", "capacity_eval" } do
    if given[name] then families.refuse(kind, "moe." .. name, given[name]) end
  end
  local bias = given.bias
  if bias == nil then bias = llama.mlp_bias(opt) end
  if bias then families.refuse(kind, "moe.bias", true) end
  if kind == "qwen3_moe" then llama.refuse_biases(kind, opt)
  elseif opt.bias or opt.mlp_bias then families.refuse(kind, opt.bias and "bias" or "mlp_bias", true) end
  if given.activation and given.activation ~= opt.activation then
    families.refuse(kind, "moe.activation", given.activation)
  end
  if own.shared > 0 and not own.gated then families.refuse(kind, "moe.shared_gate", false) end
end

local function kind_of(opt, own)
  if own.gated then
    if opt.qk_norm then families.refuse("qwen2_moe", "qk_norm", opt.qk_norm) end
    return "qwen2_moe", "Qwen2MoeForCausalLM"
  end
  if opt.qk_norm then return "qwen3_moe", "Qwen3MoeForCausalLM" end
  if opt.qkv_bias then families.refuse("mixtral", "qkv_bias", true) end
  if not own.normalise then families.refuse("mixtral", "moe.router.normalise", false) end
  if own.every > 1 then families.refuse("mixtral", "moe.every", own.every) end
  if #own.dense > 0 then families.refuse("mixtral", "moe.dense", own.dense) end
  return "mixtral", "MixtralForCausalLM"
end

function moe.config(opt)
  local own = about(opt)
  local kind, class = kind_of(opt, own)
  refuse_options(kind, opt, own)
  local config = llama.config(opt, kind, class)
  config.mlp_bias, config.num_experts_per_tok, config.output_router_logits = nil, own.k, false
  if kind == "mixtral" then
    config.attention_bias, config.intermediate_size, config.num_local_experts = nil, own.hidden, own.experts
    return config
  end
  config.num_experts, config.moe_intermediate_size, config.norm_topk_prob = own.experts, own.hidden, own.normalise
  config.decoder_sparse_step, config.mlp_only_layers = own.every, json.array {}
  for k, i in ipairs(own.dense) do config.mlp_only_layers[k] = i - 1 end
  if kind == "qwen2_moe" then
    config.attention_bias, config.shared_expert_intermediate_size = nil, own.shared
    config.qkv_bias = opt.qkv_bias or false
  end
  return config
end

-- ---------------------------------------------------------------- arrays

--- An array for each expert, of this shape; together they are the parameter. name: with %d for the expert, from 0.
function moe.of_experts(parameter, experts, shape, name)
  local entry = { parameter = parameter, pieces = {}, shapes = {} }
  for e = 1, experts do
    local array = name:format(e - 1)
    entry.shapes[array] = { shape[1], shape[2] }
    entry.pieces[e] = { name = array, at = { e, 1, 1 }, size = { 1, shape[1], shape[2] }, offset = { 1, 1, 1 },
                        shape = { 1, shape[1], shape[2] } }
  end
  return entry
end

-- Names of Mixtral, and of the others.
local mixtral = { router = "block_sparse_moe.gate.weight", gate = "block_sparse_moe.experts.%d.w1.weight",
                  up = "block_sparse_moe.experts.%d.w3.weight", down = "block_sparse_moe.experts.%d.w2.weight" }
local qwen = { router = "mlp.gate.weight", gate = "mlp.experts.%d.gate_proj.weight",
               up = "mlp.experts.%d.up_proj.weight", down = "mlp.experts.%d.down_proj.weight" }

local function mlp_entries(add, opt, i, ours, theirs)
  local own = about(opt)
  if not nn.TransformerBlock.moe_of(opt.moe, i, opt.depth) then return llama.mlp_entries(add, opt, i, ours, theirs) end
  local names = not (own.gated or opt.qk_norm) and mixtral or qwen
  local stem, f, h = ours .. "mlp.", own.hidden, opt.width
  add(families.whole(stem .. "router.weight", theirs .. names.router))
  add(moe.of_experts(stem .. "up", own.experts, { f, h }, theirs .. names.up))
  add(moe.of_experts(stem .. "gate", own.experts, { f, h }, theirs .. names.gate))
  add(moe.of_experts(stem .. "down", own.experts, { h, f }, theirs .. names.down))
  if not own.gated then return end
  for _, name in ipairs { "gate", "up", "down" } do
    add(families.whole(("%sshared.%s.weight"):format(stem, name),
      ("%smlp.shared_expert.%s_proj.weight"):format(theirs, name)))
  end
  add(families.whole(stem .. "shared_gate", theirs .. "mlp.shared_expert_gate.weight"))
end

function moe.entries(opt, has) return llama.entries(opt, has, { mlp = mlp_entries }) end

return moe
