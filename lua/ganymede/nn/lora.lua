--- LoRA (Hu et al. 2021, arXiv:2106.09685): fine-tuning of narrow adapters beside frozen weights.
--
--     gm.lora(model, { rank = 8, alpha = 16, match = { "qkv$", "mlp%.up$" } })
--     ... train as usual: everything but the adapters is frozen ...
--     gm.merge_lora(model)                 -- W = W + scale B A; the adapters are gone
--
-- An adapter of a Linear y = x W' + b adds scale (x A') B' to y, before the activation. ganymede.nn.adapter has its
-- layers, which are children of the layer under the name `lora`. So they are cut, divided, saved and initialised as all
-- layers are: in every tensor mode, pipeline and ZeRO stage. B begins with zeros, so the model computes at first what
-- it computed before. Frozen parameters have no gradient, no optimizer state and no bucket.
-- The adapters of a model are also a list of plain tables (lora.describe), from which others are made (lora.attach): so
-- they come from files (ganymede.hub.adapters).
-- The trap: gm.lora comes before the model is split into stages, and before the optimizer is made.
-- @module ganymede.nn.lora
local adapters = require "ganymede.nn.adapter"
local core = require "ganymede.core"
local few_bits = require "ganymede.nn.few_bits"
local gathered = require "ganymede.nn.gathered"
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local patterns = require "ganymede.nn.patterns"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local lora = {}

-- ---------------------------------------------------------------- which layers

lora.options = {
  rank = { type = "integer", min = 1, default = 8, doc = "the width r of the adapters" },
  alpha = { type = "number", above = 0, optional = true,
    doc = "the factor of what adapters add is alpha / rank; default: 2 rank" },
  scaling = { type = "string", one_of = { "rank", "root" }, default = "rank",
    doc = "what alpha is divided by; rank: the rank; root: its square root (Kalajdzievski 2023)" },
  match = { type = { "string", "list" }, optional = true,
    doc = "a Lua pattern, or a list of them, over the paths of the layers (nn.Linear) that get one; default: all" },
  dora = { type = "boolean", default = false,
    doc = "whether each row of W + scale B A has a magnitude that is trained apart from its direction (DoRA, Liu et "
      .. "al. 2024)" },
  split_qkv = { type = { "boolean", "list" }, default = false,
    doc = "whether queries, keys and values, which are one layer here, have an adapter each, as PEFT's q_proj, k_proj "
      .. "and v_proj have; a list of \"query\", \"key\", \"value\": only these" },
  dropout = { type = "number", min = 0, below = 1, default = 0,
    doc = "the probability with which an element of an adapter's input is dropped in training" },
  train = { type = { "string", "list" }, optional = true,
    doc = "a Lua pattern, or a list of them, over the names of other parameters that are trained beside the adapters, "
      .. "such as those of a new head" },
}

local function is_linear(m) return m.adapter_partitions ~= nil end

-- The Linears of a tree -> list of modules, list of their paths.
local function linears(model)
  local list, paths = {}, {}
  for _, m in ipairs(model:modules()) do
    if is_linear(m) then
      if m._module.children.lora then
        error(("gm.lora: '%s' has an adapter already; gm.merge_lora(model) ends it"):format(m:path()), 0)
      end
      list[#list + 1], paths[#paths + 1] = m, m:path()
    end
  end
  return list, paths
end

local function refuse_other_forward(m)
  if m.forward == Linear.forward then return end
  error(("gm.lora: %s, '%s', has a forward of its own, which knows no adapters; leave it out of match"):format(
    m:describe(), m:path()), 0)
end

-- The Linears that get an adapter.
local function chosen(model, match)
  local list, paths = linears(model)
  if #list == 0 then error("gm.lora: the model has no nn.Linear", 0) end
  patterns.refuse_idle("gm.lora: match", match, paths)
  local out = {}
  for i, m in ipairs(list) do
    if #match == 0 or patterns.find(match, paths[i]) then
      refuse_other_forward(m)
      out[#out + 1] = m
    end
  end
  return out
end

-- ---------------------------------------------------------------- frozen

-- Freezes all parameters but those that `train` names.
local function freeze(model, train)
  local names, declared = {}, model:declared()
  for i, p in ipairs(declared) do names[i] = p.name end
  patterns.refuse_idle("gm.lora: train", train, names)
  for _, p in ipairs(declared) do module.freeze(p.entry, patterns.find(train, p.name) == nil) end
end

-- The number of elements of a model that are trained, and of all.
local function sizes(model)
  local trained, all = 0, 0
  for _, p in ipairs(model:declared()) do
    local count = p.tied and 0 or p.count
    all, trained = all + count, trained + (p.entry.frozen and 0 or count)
  end
  return trained, all
end

--- Freezes parameters by patterns over their names, and leaves the others as they are. The key `freeze` of a recipe
-- does the same. A frozen parameter has no gradient, no optimizer state and no share in what ranks send each other.
-- @param model a module
-- @param names a Lua pattern, or a list of them
-- @return the number of elements that are frozen now, and of all
-- @error a pattern matches no parameter
-- @see gm.lora
-- @example
--   model = gm.nn.Sequential { gm.nn.Linear(4, 4), gm.nn.Linear(4, 2) }
--   gm.freeze(model, "^1%.") --> 20, 30
lora.freeze = signature.declare("gm.freeze", "model module, names any", nil, function(model, given)
  local list, names, declared = patterns.list("gm.freeze: names", given), {}, model:declared()
  if #list == 0 then
    error("gm.freeze needs a pattern, or a list of them, over the names of parameters; \".\" means all", 0)
  end
  for i, p in ipairs(declared) do names[i] = p.name end
  patterns.refuse_idle("gm.freeze: names", list, names)
  for _, p in ipairs(declared) do
    if patterns.find(list, p.name) then module.freeze(p.entry, true) end
  end
  local trained, all = sizes(model)
  return all - trained, all
end)

-- ---------------------------------------------------------------- adding

-- The parts of a layer that get an adapter of their own, as places in part_names; nil: the layer has one adapter.
local function parts_of(layer, split_qkv)
  if not split_qkv or not rawget(layer, "row_parts") then return nil end
  local places = {}
  for place, name in ipairs(layer.part_names) do
    for _, wanted in ipairs(split_qkv == true and layer.part_names or split_qkv) do
      if wanted == name then places[#places + 1] = place end
    end
  end
  return places
end

local function check_split(split_qkv)
  if type(split_qkv) ~= "table" then return end
  local known = { query = true, key = true, value = true }
  for i, name in ipairs(split_qkv) do
    if not known[name] then
      error(("gm.lora: split_qkv[%d] must be \"query\", \"key\" or \"value\", each once; got %s"):format(i,
        options.brief(name)), 0)
    end
    known[name] = nil
  end
  if #split_qkv == 0 then error('gm.lora: split_qkv is an empty list; give some of "query", "key", "value"', 0) end
end

-- Adds one adapter to a layer: items: those of the layer, as lora.describe lists them.
local function add(layer, items)
  local parts, own = {}, nil
  for _, item in ipairs(items) do
    own = { layer = layer, rank = item.rank, alpha = item.alpha, scaling = item.scaling, dropout = item.dropout,
      dora = item.dora }
    for place, name in ipairs(item.part and layer.part_names or {}) do
      if name == item.part then own.part, parts[place] = place, own end
    end
  end
  layer.lora = own.part and adapters.PartedAdapter { layer = layer, parts = parts } or adapters.Adapter(own)
  if not layer.training then layer.lora:eval() end
  if layer._module.absent then layer.lora:set_present(false, layer._module.absent) end
end

--- Adds the adapters of a list, as `describe` returns it, and freezes all other parameters but those that `train`
-- names.
function lora.attach(model, items, train)
  local list, paths = linears(model)
  local layers, given = {}, {}
  for i, m in ipairs(list) do layers[paths[i]] = m end
  for _, item in ipairs(items) do
    local m = layers[item.layer] or error(("gm.lora: the model has no nn.Linear '%s'"):format(item.layer), 0)
    if not given[m] then refuse_other_forward(m) end
    given[m] = given[m] or {}
    table.insert(given[m], item)
  end
  freeze(model, patterns.list("gm.lora: train", train))
  for _, m in ipairs(list) do
    if given[m] then add(m, given[m]) end
  end
  local trained, all = sizes(model)
  return trained, all
end

-- One adapter as a plain table.
local function described(adapter, layer)
  local opt = adapter.opt
  return { layer = layer:path(), part = opt.part and layer.part_names[opt.part], rank = opt.rank, alpha = opt.alpha,
    scaling = opt.scaling, dropout = opt.dropout, dora = opt.dora }
end

--- The adapters of a model: a list of { layer = path, part = "query", "key", "value" or nil, rank, alpha, scaling,
-- dropout, dora }, and the modules (ganymede.nn.adapter) in the same order.
function lora.describe(model)
  local list, modules = {}, {}
  for _, m in ipairs(model:modules()) do
    local own = m._module.children.lora
    for _, each in ipairs(own and (own.opt.parts and own:children() or { own }) or {}) do
      list[#list + 1], modules[#modules + 1] = described(each, m), each
    end
  end
  return list, modules
end

--- Adds an adapter to linear layers of a model and freezes all other parameters. Call it before the model is split into
-- stages and before its optimizer is made. The key `lora` of a recipe does the same.
-- @param model a module
-- @param options which layers get an adapter, and of what kind
-- @return { layers = paths of the layers with an adapter, trained = number of elements that are trained, parameters =
-- number of all elements of the model }
-- @error a pattern matches nothing; a layer has an adapter already
-- @see gm.merge_lora, gm.load_adapter, gm.save_adapter, gm.freeze
-- @example
--   model = gm.nn.Sequential { gm.nn.Linear(16, 16), gm.nn.Linear(16, 4) }
--   gm.lora(model, { rank = 2, match = "^1$" }).trained --> 64
lora.lora = signature.declare("gm.lora", "model module, options options?", lora.options, function(model, opt)
  check_split(opt.split_qkv)
  local items, paths, split = {}, {}, false
  for i, m in ipairs(chosen(model, patterns.list("gm.lora: match", opt.match))) do
    paths[i] = m:path()
    local places = parts_of(m, opt.split_qkv)
    split = split or places ~= nil
    for k = 1, places and #places or 1 do
      items[#items + 1] = { layer = paths[i], part = places and m.part_names[places[k]], rank = opt.rank,
        alpha = opt.alpha or 2 * opt.rank, scaling = opt.scaling, dropout = opt.dropout, dora = opt.dora }
    end
  end
  if opt.split_qkv and not split then
    error("gm.lora: split_qkv is for layers of queries, keys and values, and none of the layers that get an adapter is "
      .. "one: " .. table.concat(paths, ", ", 1, math.min(#paths, 8)), 0)
  end
  local trained, all = lora.attach(model, items, opt.train)
  return { layers = paths, trained = trained, parameters = all }
end)

-- ---------------------------------------------------------------- merging

-- W = W + scale B A, in the layout of W; with a magnitude, each row times m / norm.
local function merge(m)
  if few_bits.of(m) then
    error(("gm.merge_lora: the weight of '%s' has few bits (gm.quantize), which would lose what the adapter has "
      .. "learnt; load the model without quantize, and the adapters into it"):format(m:path()), 0)
  end
  local adapter, w = m.lora, m.weight
  local cuts = core.layout(w).cuts
  gathered.gathered(w, function()
    local sum = w + adapter:product():redistribute { cuts = cuts }
    if adapter:has_magnitude() then
      local factor = adapter:factor():redistribute { cuts = { cuts[1] or false } }
      sum = sum * ops.reshape(factor, { factor:size(1), 1 })
    end
    w:copy_(sum)
  end)
end

--- Adds what adapters have learnt to the weights of their layers, and removes the adapters. The model then computes the
-- same, up to rounding, as fast as before. The weights stay frozen: use requires_grad(true) to train them. Collective.
-- @param model a module to which gm.lora added adapters
-- @return the number of layers whose adapters were merged
-- @error the model has no adapter
-- @see gm.lora
-- @example
--   model = gm.nn.Linear(4, 4)
--   gm.lora(model, { rank = 2 })
--   gm.merge_lora(model) --> 1
lora.merge_lora = signature.declare("gm.merge_lora", "model module", nil, function(model)
  local count = 0
  for _, m in ipairs(model:modules()) do
    if m._module.children.lora then
      count = count + 1
      if not m._module.absent then
        tensors.no_grad(tensors.scope, merge, m)
      end
      module.detach(m, "lora")
    end
  end
  if count == 0 then error("gm.merge_lora: the model has no adapter; gm.lora adds them", 0) end
  return count
end)

return signature.export("lora", lora)
