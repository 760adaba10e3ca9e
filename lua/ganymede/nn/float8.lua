--- Dense layers whose products are of floats of 8 bits: gm.float8, and the setting `float8` of a recipe.
--
--     float8 = true                                            -- in a recipe: all dense layers that can
--     float8 = { scaling = "delayed", history = 16 }           -- with scales of the last 16 steps
--     float8 = { scaling = "blocks" }                          -- with a scale for each 128 or 128 x 128 numbers
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
local float8_history = require "ganymede.nn.float8_history"
local patterns = require "ganymede.nn.patterns"
local signature = require "ganymede.base.signature"

local float8 = {}

local UNIT = 16 -- numbers of a row that tensor cores read together

float8.options = {
  skip = { type = { "string", "list" }, optional = true,
    doc = "a Lua pattern, or a list of them, over the paths of layers that stay as they are" },
  least = { type = "integer", min = 1, default = 16, max = 2 ^ 31,
    doc = "layers with fewer inputs or outputs than this stay as they are" },
  scaling = { type = "string", one_of = { "current", "delayed", "blocks" }, default = "current",
    doc = "where the scale of a tensor comes from: the tensor itself, or what the last steps needed; blocks: each 128 "
      .. "numbers along a product's sum have one, and each 128 x 128 of a weight" },
  history = { type = "integer", min = 1, max = 1024, optional = true,
    doc = "delayed: the number of steps whose largest magnitudes count; default: 16" },
  margin = { type = "integer", min = 0, max = 7, optional = true,
    doc = "delayed: scales are 2^margin times as large as the last steps needed; default: 0" },
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

local function check_scaling(model, opt)
  for _, name in ipairs { "history", "margin" } do
    if opt[name] and opt.scaling ~= "delayed" then
      error(("float8: %s goes with scaling = \"delayed\"; scales of %q have no past"):format(name, opt.scaling), 0)
    end
  end
  if opt.scaling == "delayed" and float8_history.of(model) then
    error("float8: layers of the model keep scales already: one call of gm.float8 marks them all", 0)
  end
end

-- Gives layers what they keep, instead of `true`.
local function keep_scales(layers, paths, opt)
  local state = float8_history.new(paths, opt)
  for i, m in ipairs(layers) do m.float8 = state.layers[i] end
end

--- Has the dense layers of a model multiply floats of 8 bits, e4m3 for values and e5m2 for gradients, each tensor with
-- a scale of its own (Micikevicius et al. 2022, arXiv:2209.05433). Before the first step. A scale is found at that
-- moment, or with scaling = "delayed" from the last steps; a loop without an engine then calls gm.float8_update. With
-- scaling = "blocks" each 128 or 128 x 128 numbers have a scale, and all codes are e4m3 (arXiv:2412.19437).
-- @param model a module
-- @param options skip, least, scaling, history, margin
-- @return the paths of these layers, a list
-- @error a pattern matches no dense layer; no layer is left; tensor parallelism in another mode than 1d; history or
-- margin without scaling = "delayed"
-- @see ops.linear_float8, gm.float8_update, gm.quantize
-- @example
--   model = gm.nn.Sequential { gm.nn.Linear(64, 64), gm.nn.Linear(64, 4) }
--   #gm.float8(model) --> 1
float8.float8 = signature.declare("gm.float8", "model module, options options?", float8.options, function(model, opt)
  local skip, used, paths, layers, dense = patterns.list("float8: skip", opt.skip), {}, {}, {}, false
  check_scaling(model, opt)
  for _, m in ipairs(model:modules()) do
    if is_dense(m) then
      dense = true
      local path = m:path()
      if not skipped(path, skip, used) and fits(m, opt.least) then
        refuse_mode(m)
        m.float8 = opt.scaling == "blocks" and "blocks" or true
        paths[#paths + 1], layers[#layers + 1] = path, m
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
  if opt.scaling == "delayed" then keep_scales(layers, paths, opt) end
  return paths
end)

--- Ends a step of layers that gm.float8 gave scaling = "delayed": what they needed in it goes into their histories, and
-- the next step has the scales that follow. The engine does it by itself. A loop of your own calls it after the update
-- of the parameters, on all ranks, when the backward passes of the step are over.
-- @param model a module
-- @return nothing
-- @error no layer of the model keeps scales
-- @see gm.float8
-- @example
--   model = gm.nn.Sequential { gm.nn.Linear(64, 64) }
--   gm.float8(model, { scaling = "delayed" })
--   gm.float8_update(model)
float8.float8_update = signature.declare("gm.float8_update", "model module", nil, function(model)
  local state = float8_history.of(model)
  if not state then
    error("float8_update: no layer of the model keeps scales; gm.float8(model, { scaling = \"delayed\" }) lets them", 0)
  end
  state:update()
end)

return float8
