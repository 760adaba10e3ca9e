--- Weights of 8 or 4 bits: gm.quantize, and how layers compute with them (kernels/few_bits.h has the format).
--
--     gm.quantize(model, { bits = 4, group = 32 })                   -- -> how far the numbers have moved
--     gm.pretrained("SmolLM2-135M", { quantize = "int4" })           -- rounded as they are read
--
-- The parameter of such a layer is a tensor of bytes, u8, that is frozen: the gradient reaches x and adapters (gm.lora)
-- but not the weight. A weight is rounded as soon as it is made, so that no more than one of them exists in full.
-- Layers ask `few_bits.linear`; a class that does so says it in its field `reads_few_bits`.
-- The trap: what has been rounded does not come back. Export and merge_lora refuse such models.
-- @module ganymede.nn.few_bits
local core = require "ganymede.core"
local float8_history = require "ganymede.nn.float8_history"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local patterns = require "ganymede.nn.patterns"
local presence = require "ganymede.nn.presence"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local few = {}

few.options = {
  bits = { type = "integer", one_of = { 4, 8 }, default = 8, doc = "the bits of a number" },
  group = { type = "integer", min = 32, default = 32,
    doc = "how many numbers of a row share a scale of 16 bits: a multiple of 32; more are less exact and smaller" },
  match = { type = { "string", "list" }, optional = true,
    doc = "a Lua pattern, or a list of them, over the paths of the layers whose weight is rounded; default: all linear "
      .. "layers and heads, with the table of tokens where a head shares it" },
}

-- ---------------------------------------------------------------- what layers ask

--- { bits, group, ... } of the weight of a module, or nil if its numbers are floats.
function few.of(m)
  local p = m._module.parameters.weight
  local _, entry = presence.owner_of(m, p)
  return entry.few
end

--- f(x w' + b) with the weight of module m, whatever it is made of. b, f: as ops.linear takes them.
function few.linear(m, x, b, f)
  local kind = few.of(m)
  if kind then return ops.linear_quantized(x, m.weight, b, f, kind.call) end
  if m.float8 then -- gm.float8
    local y = ops.linear_float8(x, m:use "weight", b, float8_history.given(m, x))
    return f and ops[f](y) or y
  end
  return ops.linear(x, m:use "weight", b, f)
end

--- Rows of the weight of module m, whatever it is made of.
function few.rows(m, index, padding_index)
  local kind = few.of(m)
  if not kind then return ops.embedding(m:use "weight", index, padding_index) end
  local codes = m.weight -- made here, if not before: its dtype is known then
  local wanted = { bits = kind.bits, group = kind.group, dtype = kind.dtype, index = index }
  return ops.dequantize(codes, kind.columns, wanted)
end

-- ---------------------------------------------------------------- rounding

local function sum_of_squares(t) return ops.sum(t * t):gather():item() end

-- Rounds a weight that was just made, frees it, and keeps how far its numbers have moved.
local function make(kind, weight)
  return tensors.no_grad(function()
    local codes
    tensors.scope(function()
      kind.dtype = weight:dtype()
      codes = ops.quantize(weight, kind.call):keep()
      if core.device().name == "meta" then return end
      local back = ops.dequantize(codes, kind.columns, { bits = kind.bits, group = kind.group, dtype = kind.dtype })
      local all = sum_of_squares(weight)
      kind.error = all > 0 and math.sqrt(sum_of_squares(ops.sub(weight, back)) / all) or 0
    end)
    weight:release()
    return codes
  end)
end

-- ---------------------------------------------------------------- which layers

-- Why the weight of a layer cannot be rounded, or nil.
local function obstacle(m)
  if m.reads_few_bits == nil then return "shares the weight, and cannot read it" end
  if m.tensor_mode and m.tensor_mode ~= "1d" then
    return ("lies on ranks in mode %s, in which weights travel; 1d is possible"):format(m.tensor_mode)
  end
  if m.reads_few_bits ~= true and m.forward ~= m.reads_few_bits then return "has a forward of its own" end
  if m.opt.chunk and m.opt.chunk > 0 then return "computes its scores in pieces (head_chunk); set head_chunk = 0" end
end

-- Layers of a model whose weight is rounded: those that match, or all that can be by themselves.
local function chosen(model, match)
  local list, used = {}, {}
  for _, m in ipairs(model:modules()) do
    local path, wanted = m:path(), #match == 0 and not m.table_of_rows
    if m.reads_few_bits and not path:find "%f[%w]lora%f[%W]" then
      for i, pattern in ipairs(match) do
        if path:find(pattern) then wanted, used[i] = true, true end
      end
      if wanted then list[#list + 1] = m end
    end
  end
  for i, pattern in ipairs(match) do
    if not used[i] then
      error(("gm.quantize: match[%d] = %q matches no layer whose weight can have few bits"):format(i, pattern), 0)
    end
  end
  if #list == 0 then error("gm.quantize: the model has no linear layer", 0) end
  return list
end

local function refuse(m, why)
  error(("gm.quantize: %s, '%s', %s; leave it out of match"):format(m:describe(), m:path(), why), 0)
end

-- All layers that read the same weight must be able to.
local function check(m)
  local owner, entry = presence.owner_of(m, m._module.parameters.weight)
  local why = obstacle(m) or obstacle(owner)
  for _, tie in ipairs(entry.ties or {}) do why = why or obstacle(tie.module) end
  if why then refuse(m, why) end
  return entry
end

--- Marks the weights that options choose: they are rounded when they are made, or now if they have been.
function few.mark(model, opt)
  local match = patterns.list("gm.quantize: match", opt.match)
  for _, m in ipairs(chosen(model, match)) do
    local entry = check(m)
    if not entry.few then
      local call = { bits = opt.bits, group = opt.group }
      entry.few = { bits = opt.bits, group = opt.group, call = call, columns = entry.shape[2], path = m:path(),
        make = make }
      entry.frozen = true
      if entry.tensor then entry.tensor = entry.few:make(entry.tensor) end
    end
  end
end

--- What has been rounded: { layers = { { path, bits, error } ... }, worst = the one of the largest error, mean }.
-- Error: the root of the mean square of what was rounded away, divided by that of the numbers. nil: nothing has.
function few.report(model)
  local layers, worst, sum = {}, nil, 0
  for _, p in ipairs(model:declared()) do
    local kind = p.entry.few
    if kind and kind.error and not p.tied then
      local layer = { path = kind.path, bits = kind.bits, error = kind.error }
      layers[#layers + 1], sum = layer, sum + layer.error
      if not worst or layer.error > worst.error then worst = layer end
    end
  end
  return worst and { layers = layers, worst = worst, mean = sum / #layers } or nil
end

--- Rounds weights of a model to 8 or 4 bits, to nearest, with a scale for each group of numbers of a row. Products read
-- them as they are. They are frozen from then on. Works on whole models and 1D tensor parallelism, in which a group
-- must lie on one rank. Collective where weights are cut.
-- @param model a module
-- @param options bits, group, and which layers
-- @return { layers = list of { path, bits, error }, worst = the entry with the largest error, mean = of all errors };
-- an error is the root mean square of what was rounded away, divided by that of the numbers
-- @error a pattern matches nothing; a layer computes in a way that cannot read such weights
-- @see gm.pretrained, gm.lora, ops.quantize
-- @example
--   model = gm.nn.Sequential { gm.nn.Linear(64, 64), gm.nn.Linear(64, 4) }
--   gm.quantize(model, { bits = 8 }).mean < 0.01 --> true
few.quantize = signature.declare("gm.quantize", "model module, options options?", few.options, function(model, opt)
  if opt.group % 32 ~= 0 then error(("gm.quantize: group is %d, should be a multiple of 32"):format(opt.group), 0) end
  few.mark(model, opt)
  model:materialize()
  return few.report(model) or { layers = {}, mean = 0 }
end)

local kinds = { int8 = 8, int4 = 4 }

--- Options of gm.quantize from what a user writes: "int8", "int4" or a table of them; what: the name of the option.
function few.given(what, value)
  if type(value) == "table" then
    local opt = options.check(what, few.options, value, 0)
    if opt.group % 32 ~= 0 then error(("%s: group is %d, should be a multiple of 32"):format(what, opt.group), 0) end
    return opt
  end
  local bits = kinds[value]
  if not bits then error(("%s is int8, int4 or a table; got %s"):format(what, options.brief(value)), 0) end
  return options.check(what, few.options, { bits = bits }, 0)
end

return few
