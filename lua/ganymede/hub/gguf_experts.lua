--- Experts of models in GGUF files: Mixtral (which is a llama there), Qwen2-MoE and Qwen3-MoE.
--
-- All layers have experts. Those of a layer are one array with three dimensions; files of 2023 have an array for each
-- expert. How wide experts are is the shape of these arrays, which keys must not contradict. Whether the weights of the
-- chosen experts are divided by their sum is no key of these architectures, but code of llama.cpp: those of llama and
-- qwen3moe are, and those of qwen2moe are not.
-- @module ganymede.hub.gguf_experts
local failure = require "ganymede.base.failure"
local families = require "ganymede.hub.families"
local moe = require "ganymede.hub.families.moe"

local experts = {}

local STACKED, APART = "blk.%d.ffn_%s_exps.weight", "blk.%d.ffn_%s.%d.weight"
local SHARED = "blk.%d.ffn_%s_shexp.weight"

-- The shape of an array, of so many dimensions.
local function shape_of(file, name, dims)
  local info = file:info(name) or failure(2, "%s: has no array '%s'", file.path, name)
  if #info.shape ~= dims then
    failure(2, "%s: '%s' is (%s), and must have %d dimensions", file.path, name, table.concat(info.shape, ", "), dims)
  end
  return info.shape
end

-- The width that an array has, which a key may say as well.
local function width_of(keys, key, said, array)
  if keys:get(key, said) ~= said then
    failure(2, "%s: says %s for %s.%s, and '%s' has %d rows", keys.path, tostring(keys:get(key)), keys.architecture,
      key, array, said)
  end
  return said
end

-- Refuses experts that are counted wrongly, before a list is made of them.
local function check_counts(keys, file, count, used)
  local stacked = STACKED:format(0, "up")
  local there = file:has(stacked) and shape_of(file, stacked, 3)[1] or #file:names()
  if count % 1 ~= 0 or count > there or file:has(stacked) and count ~= there then
    failure(2, "%s: says that there are %s experts; its arrays have %d", keys.path, tostring(count), there)
  end
  if used % 1 ~= 0 or used < 1 or used > count then
    failure(2, "%s: says that a token has %s experts, of %d", keys.path, tostring(used), count)
  end
end

--- The option moe of the class; nil: the model has no experts. about: what is known of the architecture.
function experts.options(keys, file, about)
  local count = keys:get("expert_count", 0)
  if count <= 0 then
    keys:get "expert_used_count"
    return nil
  end
  local used = keys:need "expert_used_count"
  check_counts(keys, file, count, used)
  if keys:get("expert_gating_func", 1) ~= 1 then
    failure(2, "%s: its routers are no softmax (%s.expert_gating_func); this program has only that", keys.path,
      keys.architecture)
  end
  local stacked = file:has(STACKED:format(0, "up"))
  local array = stacked and STACKED:format(0, "up") or APART:format(0, "up", 0)
  local hidden = shape_of(file, array, stacked and 3 or 2)[stacked and 2 or 1]
  local shared = SHARED:format(0, "up")
  return {
    experts = count, k = used, bias = false, every = 1,
    hidden = width_of(keys, "expert_feed_forward_length", hidden, array),
    router = { type = "TopKRouter", normalise = not about.shared, balance = 0 },
    shared_hidden = about.shared
      and width_of(keys, "expert_shared_feed_forward_length", shape_of(file, shared, 2)[1], shared) or nil,
    shared_gate = about.shared or nil,
  }
end

--- Adds what a layer has in place of an MLP. ours: what stands before its parameters; i: from 0.
function experts.entries(list, opt, file, ours, i)
  local own, f, h = opt.moe, opt.moe.hidden, opt.width
  list:add(ours .. "router.weight", ("blk.%d.ffn_gate_inp.weight"):format(i))
  for _, name in ipairs { "gate", "up", "down" } do
    local stacked, shape = STACKED:format(i, name), name == "down" and { h, f } or { f, h }
    if file:has(stacked) then list:add(ours .. name, stacked) else
      list[#list + 1] = moe.of_experts(ours .. name, own.experts, shape, ("blk.%d.ffn_%s.%%d.weight"):format(i, name))
    end
  end
  if not own.shared_gate then return end
  for _, name in ipairs { "gate", "up", "down" } do
    list:add(("%sshared.%s.weight"):format(ours, name), SHARED:format(i, name))
  end
  local gate = families.whole(ours .. "shared_gate", ("blk.%d.ffn_gate_inp_shexp.weight"):format(i))
  gate.pieces[1].shape = { 1, h } -- it has one dimension in some files
  list[#list + 1] = gate
end

return experts
