--- The adapters of ganymede.nn.lora: layers beside an nn.Linear, which call it `lora`.
--
-- Adapter (LoRA): scale (x A') B', which is added to x W'. A is (rank, inputs) and B is (outputs, rank).
-- With `dora` (Liu et al. 2024, arXiv:2402.09353) it also has a magnitude m (outputs), and the layer computes
--     y = m / norm(W + scale B A) (x W' + scale (x A') B') + b
-- where norm is that of each row and counts as a constant in backward (section 4.3 of the paper; PEFT does the same).
-- m begins as the norms of W, so the model computes at first what it computed before.
-- PartedAdapter: a layer that is several layers in one (queries, keys, values) has an adapter for each of them.
-- The norm is worked out without W + scale B A: it is |W|^2 + 2 scale (W A') B + scale^2 B (A A') B, row by row.
-- @module ganymede.nn.adapter
local core = require "ganymede.core"
local Dropout = require("ganymede.nn.dropout").Dropout
local few_bits = require "ganymede.nn.few_bits"
local init = require "ganymede.nn.initializers"
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local precision = require "ganymede.tensor.precision"
local tensors = require "ganymede.tensor"

local adapter = {}

-- ---------------------------------------------------------------- rows of parts

-- A layer with parts says so in the field `row_parts`: the rows of each part in a group of rows, and `part_names`.
-- Groups stand one after the other.

local function rows_of_group(layer)
  local sum = 0
  for _, n in ipairs(layer.row_parts) do sum = sum + n end
  return sum
end

-- t with dimension d, of rows of the layer, as groups and the rows of a group.
local function grouped(layer, t, d, rows)
  local shape = t:shape()
  shape[d] = layer.opt.outputs / rows_of_group(layer)
  table.insert(shape, d + 1, rows)
  return ops.reshape(t, shape)
end

local function ungrouped(t, d)
  local shape = t:shape()
  shape[d] = shape[d] * table.remove(shape, d + 1)
  return ops.reshape(t, shape)
end

-- The rows of part `place` of t, whose dimension 1 is the rows of the layer.
local function rows_of(layer, place, t)
  if not place then return t end
  local first = 1
  for i = 1, place - 1 do first = first + layer.row_parts[i] end
  return ungrouped(ops.narrow(grouped(layer, t, 1, rows_of_group(layer)), 2, first, layer.row_parts[place]), 1)
end

-- Numbers `value` for the rows of a part that has no adapter, beside those of another part.
local function constant(beside, d, rows, value)
  local one = tensors.no_grad(function() return ops.narrow(beside:detach(), d + 1, 1, 1) * 0 + value end)
  local shape = {}
  for i = 1, beside:dim() do shape[i] = i == d + 1 and rows or 1 end
  return ops.mul(one, tensors.ones(shape, { dtype = beside:dtype() }))
end

-- What the parts give, { [place] = tensor }, in the order of the layer's rows, which are dimension d.
local function joined(layer, given, d, value)
  local list, beside = {}, nil
  for place, t in pairs(given) do
    list[place] = grouped(layer, t, d, layer.row_parts[place])
    beside = beside or list[place]
  end
  for place, rows in ipairs(layer.row_parts) do list[place] = list[place] or constant(beside, d, rows, value) end
  return ungrouped(ops.cat(list, d + 1), d)
end

-- ---------------------------------------------------------------- whole tensors

--- The factor of what an adapter with these options (rank, alpha, scaling) adds.
function adapter.scale(opt) return opt.alpha / (opt.scaling == "root" and math.sqrt(opt.rank) or opt.rank) end

--- What an adapter adds to its weight: scale B A, of whole tensors a (rank, inputs) and b (outputs, rank).
function adapter.sum(a, b, scale) return ops.linear(b, a:transpose(1, 2)) * scale end

-- m / norm of the rows of w, which has what adapters add.
local function factor_of(layer, place, w, magnitude)
  local squared = rows_of(layer, place, ops.sum(ops.square(precision.wide(w)), 2))
  return ops.cast(ops.div(precision.wide(magnitude), ops.sqrt(ops.maximum(squared, 1e-30))), w:dtype())
end

--- The whole weight w of a layer with what its adapters give. list: one without a place, or one of each part that has
-- one: { place, a, b, scale, magnitude or nil }. Nothing is recorded where w is not.
function adapter.merged(layer, w, list)
  local parted, sums, factors = list[1].place ~= nil, {}, {}
  for _, one in ipairs(list) do sums[one.place or 1] = adapter.sum(one.a, one.b, one.scale) end
  w = w + (parted and joined(layer, sums, 1, 0) or sums[1])
  if not list[1].magnitude then return w end
  for _, one in ipairs(list) do factors[one.place or 1] = factor_of(layer, one.place, w, one.magnitude) end
  return w * ops.reshape(parted and joined(layer, factors, 1, 1) or factors[1], { w:size(1), 1 })
end

-- ---------------------------------------------------------------- one adapter

local Adapter = module.class("LoRA", nil, false)
adapter.Adapter = Adapter

Adapter.options = {
  layer = { type = "module", hidden = true, doc = "the Linear that it adapts" },
  part = { type = "integer", optional = true, doc = "the part of the layer that it adapts" },
  rank = { type = "integer", min = 1, doc = "the width between its two layers" },
  alpha = { type = "number", above = 0, doc = "the factor of its result, times the rank or the root of it" },
  scaling = { type = "string", one_of = { "rank", "root" }, doc = "what alpha is divided by" },
  dropout = { type = "number", min = 0, below = 1, default = 0, doc = "the dropout of its input" },
  dora = { type = "boolean", default = false, doc = "whether it has a magnitude" },
}

-- A magnitude lies as the bias of its layer does.
function Adapter:placement()
  local place = self.opt.layer.placement
  if type(place) == "function" then place = place(self.opt.layer) end
  return { magnitude = place and place.bias }
end

-- Begins as the norms of the rows of W + scale B A.
local function norms_when_made(self)
  local initializer = init.zeros()(1, 1)
  function initializer.finish(t)
    if core.device().backend == "meta" then return end
    tensors.scope(tensors.no_grad, function()
      local there = core.layout(t)
      t:detach():copy_(ops.cast(self:norms():redistribute { cuts = there and there.cuts or {} }, t:dtype()))
    end)
  end
  return initializer
end

function Adapter:build(opt)
  local first, last = opt.layer:adapter_partitions()
  local layer, outputs = opt.layer, opt.layer.opt.outputs
  if opt.part then outputs = outputs / rows_of_group(layer) * layer.row_parts[opt.part] end
  self.scale = adapter.scale(opt)
  if opt.dropout > 0 then self.dropout = Dropout(opt.dropout) end
  self.a = Linear { inputs = layer.opt.inputs, outputs = opt.rank, bias = false, partition = first }
  self.b = Linear { inputs = opt.rank, outputs = outputs, bias = false, partition = last, weight_initializer = "zeros" }
  if opt.dora then self:param("magnitude", { outputs }, norms_when_made(self)) end
end

--- x (..., inputs) -> (..., outputs)
function Adapter:forward(x)
  local h = self.a(self.dropout and self.dropout(x) or x)
  return self.b(h * self.scale)
end

local function axes_of(t)
  local layout = core.layout(t)
  return layout and layout.cuts or {}
end

-- The squares of the norms of the rows of W + scale B A, as W lies. A and B are brought to it: both are narrow.
local function squares(self)
  local layer, scale = self.opt.layer, self.scale
  if few_bits.of(layer) then
    error(("%s: an adapter with a magnitude (DoRA) needs the norms of the weight, which has few bits (gm.quantize); "
      .. "use dora = false"):format(layer:path()), 0)
  end
  local w = precision.wide(layer.weight)
  local cuts = axes_of(w)
  local a = precision.wide(self.a.weight)
  local b = precision.wide(self.b.weight):redistribute { cuts = { cuts[1] or false, false } }
  local across = rows_of(layer, self.opt.part, ops.linear(w, a:redistribute { cuts = { false, cuts[2] or false } }))
  a = a:redistribute { cuts = {} }
  local own = ops.sum(ops.linear(b, ops.linear(a, a)) * b, 2)
  local sum = rows_of(layer, self.opt.part, ops.sum(ops.square(w), 2)) + ops.sum(across * b, 2) * (2 * scale)
  return sum:redistribute { cuts = { cuts[1] or false } } + own * scale ^ 2
end

--- The norms of the rows of W + scale B A of its layer, in f32 or f64, as the bias of the layer is used. Nothing is
-- recorded. A row of zeros has the smallest norm that is no zero.
function Adapter:norms()
  return tensors.no_grad(tensors.scope, function()
    local place = self._module.parameters.magnitude
    local there = place.use or place.layout or { cuts = {} }
    return ops.sqrt(ops.maximum(squares(self), 1e-30)):redistribute { cuts = there.cuts }
  end)
end

--- m / norm(W + scale B A), by which the rows of W + scale B A are multiplied.
function Adapter:factor()
  return ops.cast(ops.div(precision.wide(self:use "magnitude"), self:norms()), self.opt.layer.weight:dtype())
end

local function whole(t) return t:redistribute { cuts = {} } end

--- scale B A, whole on every rank.
function Adapter:product()
  return adapter.sum(whole(self.a.weight), whole(self.b.weight), self.scale)
end

function Adapter:has_magnitude() return self.opt.dora end

-- ---------------------------------------------------------------- several of them

local PartedAdapter = module.class("LoRAParts", nil, false)
adapter.PartedAdapter = PartedAdapter

PartedAdapter.options = {
  layer = Adapter.options.layer,
  parts = { type = "table", hidden = true, doc = "the options of the adapters, by the number of the part" },
}

function PartedAdapter:build(opt)
  for place, name in ipairs(opt.layer.part_names) do
    if opt.parts[place] then self[name] = Adapter(opt.parts[place]) end
  end
end

-- The adapters by the number of their part.
local function parts_of(self)
  local out = {}
  for _, part in ipairs(self:children()) do out[part.opt.part] = part end
  return out
end

local function of_parts(self, d, value, fn)
  local given = parts_of(self)
  for place, part in pairs(given) do given[place] = fn(part) end
  return joined(self.opt.layer, given, d, value)
end

--- x (..., inputs) -> (..., outputs)
function PartedAdapter:forward(x) return of_parts(self, x:dim(), 0, function(part) return part(x) end) end

function PartedAdapter:factor() return of_parts(self, 1, 1, function(part) return part:factor() end) end

function PartedAdapter:product() return of_parts(self, 1, 0, function(part) return part:product() end) end

function PartedAdapter:has_magnitude() return (next(self.opt.parts)) and self:children()[1].opt.dora end

return adapter
