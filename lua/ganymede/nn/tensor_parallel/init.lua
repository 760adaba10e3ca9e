--- Layers cut over the ranks of a tensor group: which class replaces a layer of nn in each mode, and their names.
--
-- `nn.Linear { ... }` builds the class that the mode of this job's mesh has for it (one_d, two_d, three_d, or a mode
-- that the user registered, see ganymede.job.tensor_modes). So a model has one source for all modes. Each class also
-- has a name of its own (nn.Linear2D, nn.LayerNorm3D, nn.VocabParallelEmbedding1D, ...). On a mesh of another mode that
-- name is an error; if the tensor group is one rank, it is the plain layer. Embedding and Classifier become their
-- vocabulary-parallel kinds above vocab_parallel_limit rows. A classifier that shares a table has the kind of the
-- table. Layers made of layers (MLP, MultiHeadAttention, TransformerBlock) and losses are one class for all modes.
-- @module ganymede.nn.tensor_parallel
local context = require "ganymede.job.context"
local module = require "ganymede.nn.module"
local registry = require "ganymede.base.registry"
local stream = require "ganymede.nn.stream"

local M = { layers = {} }

--- Returns the table and the name of the tensor mode of this job's mesh; nil if the tensor group is one rank.
function M.mode()
  local plan = context.current().plan
  if plan.tensor.size == 1 then return nil end
  return registry.tensor_modes:get(plan.tensor.mode), plan.tensor.mode
end

local suffixes = { ["1d"] = "1D", ["2d"] = "2D", ["2.5d"] = "2p5D", ["3d"] = "3D" }

--- Makes a subclass of the nn layer `base`, named like "Linear2D", which a built-in mode builds in its place.
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

--- Makes a class that is `base` under a name of one mode: "MLP2D".
function M.name(mode, base, name, where)
  local class = module.class(name .. suffixes[mode], base, where)
  class.tensor_mode = mode
  M.layers[class.name] = class
end

local function check_mode(class)
  local _, name = M.mode()
  if name and class.tensor_mode ~= name then
    error(("%s belongs to tensor mode %s, and this job's mode is %s; the generic name builds the class that fits")
      :format(class.name, class.tensor_mode, name), 4)
  end
end

-- Returns the number of rows of a table, or nil if the layer has no table.
local function vocabulary(class, given)
  return class.name == "Embedding" and given.count or class.name == "Classifier" and given.classes
end

local function is_vocabulary_parallel(class, given)
  if module.is_module(given.weight) then return given.weight.vocabulary_parallel == true end
  local rows, limit = vocabulary(class, given), given.vocab_parallel_limit or class.options.vocab_parallel_limit.default
  return type(rows) == "number" and type(limit) == "number" and rows > limit
end

-- A layer that shares a table must be of the same kind as the owner, which stores the table.
local function check_kind(class, given)
  local owner = given.weight
  if not module.is_module(owner) or not M.mode() then return end
  if (owner.vocabulary_parallel or false) == (class.vocabulary_parallel or false) then return end
  error(("%s cannot share the weight of %s: one of them is cut over its rows, and the other is not; the generic name "
    .. "builds the class that fits"):format(class.name, owner:describe()), 4)
end

--- Returns the class that is built in place of `class` with these options on this mesh.
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

--- Returns the numbers of ranks over which so many heads can be divided evenly: "1, 2, 4".
function M.divisors(n)
  local list = {}
  for i = 1, n do
    if n % i == 0 then list[#list + 1] = tostring(i) end
  end
  return table.concat(list, ", ")
end

--- Raises an error unless the ranks that share a width get equal numbers of whole heads. kv_heads must divide heads.
function M.check_heads(what, heads, kv_heads)
  local parts = stream.parts()
  if heads % parts == 0 and kv_heads % parts == 0 then return end
  local function counted(n, kind) return ("%d %s%s"):format(n, kind, n == 1 and "" or "s") end
  local of_keys = kv_heads ~= heads and " and " .. counted(kv_heads, "key head") or ""
  error(("%s: %s%s cannot be divided evenly over %d ranks; with %s the ranks may be %s, and on %d ranks the number of "
    .. "heads must be a multiple of %d"):format(what, counted(heads, "head"), of_keys, parts,
    heads == 1 and "this head" or "these heads", M.divisors(kv_heads), parts, parts), 5)
end

return M
