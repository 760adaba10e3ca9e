--- Dense layers whose products are of floats of 8 bits: gm.float8, and the setting `float8` of a recipe.
--
--     float8 = true                                            -- in a recipe: all dense layers that can
--     gm.float8(model, { skip = "%.mlp%.", least = 1024 })     -- in a program, before the first step
--
-- Weights, activations between layers, gradients and sums keep their dtype; the operands of the three products of a
-- layer are rounded to 8 bits as they are read (ops.linear_float8). Parameters are the same, so checkpoints are, too.
-- Heads, tables of tokens and layers whose sizes are no multiples of 16 stay as they are: tensor cores want such rows,
-- and scores of many classes want more digits.
-- The trap: rounding costs time that a product must win back. GPUs begin to gain at widths of about 2,048; a CPU has no
-- such products and only computes the same numbers.
-- @module ganymede.nn.float8
local Linear = require "ganymede.nn.linear"
local few_bits = require "ganymede.nn.few_bits"
local patterns = require "ganymede.nn.patterns"
local signature = require "ganymede.base.signature"

local float8 = {}

local UNIT = 16 -- numbers of a row that tensor cores read together

float8.options = {
  skip = { type = { "string", "table" }, optional = true,
    doc = "a Lua pattern, or a list of them, over the paths of layers that stay as they are" },
  least = { type = "integer", min = 1, default = 16, max = 2 ^ 31,
    doc = "layers with fewer inputs or outputs than this stay as they are" },
}

local function skipped(path, list, used)
  local found = false
  for i, pattern in ipairs(list) do
    if path:find(pattern) then used[i], found = true, true end
  end
  return found
end

local function fits(m, least)
  local inputs, outputs = m.opt.inputs, m.opt.outputs
  return inputs % UNIT == 0 and outputs % UNIT == 0 and inputs >= least and outputs >= least
end

local function is_dense(m)
  return m.reads_few_bits == Linear.forward and m.forward == Linear.forward and not few_bits.of(m)
end

local function refuse_mode(m)
  if m.tensor_mode and m.tensor_mode ~= "1d" then
    error(("float8: %s, '%s', lies on ranks in mode %s, whose products travel in blocks; 1d is possible"):format(
      m:describe(), m:path(), m.tensor_mode), 0)
  end
end

--- Has the dense layers of a model multiply floats of 8 bits, e4m3 for values and e5m2 for gradients, each tensor with
-- a scale of its own that is found at that moment (Micikevicius et al. 2022, arXiv:2209.05433). Before the first step.
-- @param model a module
-- @param options skip, least
-- @return the paths of these layers, a list
-- @error a pattern matches no dense layer; no layer is left; tensor parallelism in another mode than 1d
-- @see ops.linear_float8, gm.quantize
-- @example
--   model = gm.nn.Sequential { gm.nn.Linear(64, 64), gm.nn.Linear(64, 4) }
--   #gm.float8(model) --> 1
float8.float8 = signature.declare("gm.float8", "model module, options options?", float8.options, function(model, opt)
  local skip, used, paths, dense = patterns.list("float8: skip", opt.skip), {}, {}, false
  for _, m in ipairs(model:modules()) do
    if is_dense(m) then
      dense = true
      local path = m:path()
      if not skipped(path, skip, used) and fits(m, opt.least) then
        refuse_mode(m)
        m.float8, paths[#paths + 1] = true, path
      end
    end
  end
  for i, pattern in ipairs(skip) do
    if not used[i] then error(("float8: skip[%d] = %q matches no dense layer"):format(i, pattern), 0) end
  end
  if #paths == 0 then
    error(dense and ("float8: no dense layer is left: sizes must be multiples of %d, and at least %d"):format(UNIT,
      opt.least) or "float8: the model has no dense layer", 0)
  end
  return paths
end)

return float8
