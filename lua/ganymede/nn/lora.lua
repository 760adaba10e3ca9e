--- LoRA (Hu et al. 2021, arXiv:2106.09685): fine-tuning of narrow adapters beside frozen weights.
--
--     gm.lora(model, { rank = 8, alpha = 16, match = { "qkv$", "mlp%.up$" } })
--     ... train as usual: everything but the adapters is frozen ...
--     gm.merge_lora(model)                 -- W = W + scale B A; the adapters are gone
--
-- An adapter of a Linear y = x W' + b adds scale (x A') B' to y, before the activation. A is (rank, inputs) and B is
-- (outputs, rank). Both are Linears, children of the layer under the name `lora`, so they are cut, divided, saved and
-- initialised as all layers are: in every tensor mode, pipeline and ZeRO stage. B begins with zeros, so the model
-- computes at first what it computed before. Frozen parameters have no gradient, no optimizer state and no bucket.
-- The trap: gm.lora comes before the model is split into stages, and before the optimizer is made.
-- @module ganymede.nn.lora
local core = require "ganymede.core"
local Dropout = require("ganymede.nn.dropout").Dropout
local few_bits = require "ganymede.nn.few_bits"
local gathered = require "ganymede.nn.gathered"
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local lora = {}

-- ---------------------------------------------------------------- the adapter

local Adapter = module.class("LoRA", nil, false)

Adapter.options = {
  layer = { type = "module", hidden = true, doc = "the Linear that it adapts" },
  rank = { type = "integer", min = 1, doc = "the width between its two layers" },
  scale = { type = "number", doc = "the factor of its result" },
  dropout = { type = "number", min = 0, below = 1, default = 0, doc = "the dropout of its input" },
}

function Adapter:build(opt)
  local first, last = opt.layer:adapter_partitions()
  if opt.dropout > 0 then self.dropout = Dropout(opt.dropout) end
  self.a = Linear { inputs = opt.layer.opt.inputs, outputs = opt.rank, bias = false, partition = first }
  self.b = Linear { inputs = opt.rank, outputs = opt.layer.opt.outputs, bias = false, partition = last,
                    weight_initializer = "zeros" }
end

--- x (..., inputs) -> (..., outputs)
function Adapter:forward(x)
  local h = self.a(self.dropout and self.dropout(x) or x)
  return self.b(h * self.opt.scale)
end

-- ---------------------------------------------------------------- which layers

lora.options = {
  rank = { type = "integer", min = 1, default = 8, doc = "the width r of the adapters" },
  alpha = { type = "number", above = 0, optional = true,
    doc = "the factor of what adapters add is alpha / rank; default: 2 rank" },
  scaling = { type = "string", one_of = { "rank", "root" }, default = "rank",
    doc = "what alpha is divided by; rank: the rank; root: its square root (Kalajdzievski 2023)" },
  match = { type = { "string", "table" }, optional = true,
    doc = "a Lua pattern, or a list of them, over the paths of the layers (nn.Linear) that get one; default: all" },
  dropout = { type = "number", min = 0, below = 1, default = 0,
    doc = "the probability with which an element of an adapter's input is dropped in training" },
  train = { type = { "string", "table" }, optional = true,
    doc = "a Lua pattern, or a list of them, over the names of other parameters that are trained beside the adapters, "
      .. "such as those of a new head" },
}

local function list_of(what, given)
  local list = type(given) == "string" and { given } or given or {}
  for i, pattern in ipairs(list) do
    if type(pattern) ~= "string" or not pcall(string.find, "", pattern) then
      error(("gm.lora: %s[%d] is no Lua pattern; got %s"):format(what, i, options.brief(pattern)), 0)
    end
  end
  return list
end

local function find(list, name)
  for i, pattern in ipairs(list) do
    if name:find(pattern) then return i end
  end
end

-- Refuses a pattern that finds none of the names.
local function refuse_idle(what, patterns, names)
  for i, pattern in ipairs(patterns) do
    local used = false
    for _, name in ipairs(names) do used = used or name:find(pattern) ~= nil end
    if not used then
      error(("gm.lora: %s[%d] = %q matches nothing; there is %s%s"):format(what, i, pattern,
        table.concat(names, ", ", 1, math.min(#names, 8)), #names > 8 and ", ..." or ""), 0)
    end
  end
end

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
  refuse_idle("match", match, paths)
  local out = {}
  for i, m in ipairs(list) do
    if #match == 0 or find(match, paths[i]) then
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
  refuse_idle("train", train, names)
  for _, p in ipairs(declared) do module.freeze(p.entry, find(train, p.name) == nil) end
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

--- Adds an adapter to linear layers of a model and freezes all other parameters. Call it before the model is split into
-- stages and before its optimizer is made. The key `lora` of a recipe does the same.
-- @param model a module
-- @param options which layers get an adapter, and of what kind
-- @return { layers = paths of the layers with an adapter, trained = number of elements that are trained, parameters =
-- number of all elements of the model }
-- @error a pattern matches nothing; a layer has an adapter already
-- @see gm.merge_lora
-- @example
--   model = gm.nn.Sequential { gm.nn.Linear(16, 16), gm.nn.Linear(16, 4) }
--   gm.lora(model, { rank = 2, match = "^1$" }).trained --> 64
lora.lora = signature.declare("gm.lora", "model module, options options?", lora.options, function(model, opt)
  local list, paths = chosen(model, list_of("match", opt.match)), {}
  freeze(model, list_of("train", opt.train))
  local alpha = opt.alpha or 2 * opt.rank
  local scale = alpha / (opt.scaling == "root" and math.sqrt(opt.rank) or opt.rank)
  for i, m in ipairs(list) do
    paths[i] = m:path()
    m.lora = Adapter { layer = m, rank = opt.rank, scale = scale, dropout = opt.dropout }
    if m._module.absent then m.lora:set_present(false, m._module.absent) end
  end
  local trained, all = sizes(model)
  return { layers = paths, trained = trained, parameters = all }
end)

-- ---------------------------------------------------------------- merging

local function whole(t) return t:redistribute { cuts = {} } end

-- W = W + scale B A, in the layout of W.
local function merge(m)
  if few_bits.of(m) then
    error(("gm.merge_lora: the weight of '%s' has few bits (gm.quantize), which would lose what the adapter has "
      .. "learnt; load the model without quantize, and the adapters into it"):format(m:path()), 0)
  end
  local adapter, w = m.lora, m.weight
  local sum = ops.linear(whole(adapter.b.weight), whole(adapter.a.weight):transpose(1, 2)) * adapter.opt.scale
  gathered.gathered(w, function() w:copy_(w + sum:redistribute { cuts = core.layout(w).cuts }) end)
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

return lora
