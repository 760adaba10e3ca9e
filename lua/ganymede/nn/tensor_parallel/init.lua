--- Layers cut over the ranks of a tensor group: which class stands for a layer of nn in which mode, and their names.
--
-- `nn.Linear { ... }` builds the class that the mode of this job's mesh has for it (one_d, two_d, three_d, or a mode
-- that the user registered, see ganymede.job.tensor_modes); a model so is one source for all modes. Each class is also
-- there by its own name (nn.Linear2D, nn.LayerNorm3D, nn.VocabParallelEmbedding1D, ...), which is an error on a mesh of
-- another mode; where the tensor group is one rank they are the plain layer. Embedding and Classifier become their
-- vocabulary-parallel kinds above vocab_parallel_limit rows; a classifier that shares a table is of the table's kind.
-- Layers made of layers (MLP, MultiHeadAttention, TransformerBlock) and losses are one class for all modes.
-- @module ganymede.nn.tensor_parallel
local context = require "ganymede.job.context"
local module = require "ganymede.nn.module"
local registry = require "ganymede.base.registry"
local stream = require "ganymede.nn.stream"

local M = { layers = {} }

--- The tensor mode of this job's mesh -> its table, its name; nil where the tensor group is one rank.
function M.mode()
  local plan = context.current().plan
  if plan.tensor.size == 1 then return nil end
  return registry.tensor_modes:get(plan.tensor.mode), plan.tensor.mode
end

local suffixes = { ["1d"] = "1D", ["2d"] = "2D", ["2.5d"] = "2p5D", ["3d"] = "3D" }

--- A subclass of the nn layer `base` for a built-in mode, named "Linear2D", that the mode builds in its place.
-- fields: placement, forward, ... kind: "VocabParallel" or "".
function M.subclass(mode, base, fields, kind)
  local generic = (kind or "") .. base.name
  local class = module.class(generic .. suffixes[mode], base)
  for key, value in pairs(fields or {}) do class[key] = value end
  class.tensor_mode = mode
  local entry = registry.tensor_modes:get(mode)
  entry.layers = entry.layers or {}
  entry.layers[generic] = class
  M.layers[class.name] = class
  return class
end

--- A class that is `base` under a name of one mode: "MLP2D".
function M.name(mode, base, name, where)
  local class = module.class(name .. suffixes[mode], base, where)
  class.tensor_mode = mode
  M.layers[class.name] = class
end

local function check_mode(class)
  local _, name = M.mode()
  if name and class.tensor_mode ~= name then
    error(("%s belongs to tensor mode %s, this job's mode is %s; the generic name builds what fits"):format(
      class.name, class.tensor_mode, name), 4)
  end
end

-- The rows of a table, or nil where the layer has none.
local function vocabulary(class, given)
  return class.name == "Embedding" and given.count or class.name == "Classifier" and given.classes
end

local function is_vocabulary_parallel(class, given)
  if module.is_module(given.weight) then return given.weight.vocabulary_parallel == true end
  local rows, limit = vocabulary(class, given), given.vocab_parallel_limit or class.options.vocab_parallel_limit.default
  return type(rows) == "number" and type(limit) == "number" and rows > limit
end

-- Who shares a table uses it as its owner stores it.
local function check_kind(class, given)
  local owner = given.weight
  if not module.is_module(owner) or not M.mode() then return end
  if (owner.vocabulary_parallel or false) == (class.vocabulary_parallel or false) then return end
  error(("%s cannot share the weight of %s: one of them is cut over its rows, the other is not; the generic name "
    .. "builds what fits"):format(class.name, owner:describe()), 4)
end

--- The class that is built in place of `class` with these options on this mesh.
function M.dispatch(class, given)
  if class.tensor_mode then
    check_mode(class)
    check_kind(class, given)
    return class
  end
  local mode = M.mode()
  local layers = mode and mode.layers
  if not layers then return class end
  local wide = layers["VocabParallel" .. class.name]
  if wide and is_vocabulary_parallel(class, given) then return wide end
  return layers[class.name] or class
end

module.dispatch = M.dispatch

--- The numbers of ranks that a number of heads can be shared out over: "1, 2, 4".
function M.divisors(n)
  local list = {}
  for i = 1, n do
    if n % i == 0 then list[#list + 1] = tostring(i) end
  end
  return table.concat(list, ", ")
end

--- Raises unless the ranks that share a width get whole heads, equally many. kv_heads divides heads.
function M.check_heads(what, heads, kv_heads)
  local parts = stream.parts()
  if heads % parts == 0 and kv_heads % parts == 0 then return end
  local of_keys = kv_heads ~= heads and (" and %d key heads"):format(kv_heads) or ""
  error(("%s: %d heads%s cannot be shared out over %d ranks; with these heads the ranks may be %s, and on %d ranks "
    .. "the heads must be a multiple of %d"):format(what, heads, of_keys, parts, M.divisors(kv_heads), parts,
    parts), 4)
end

return M
