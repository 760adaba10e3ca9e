--- Where the parameters of a run rest between their uses: in parts (zero = 3), on a disk (offload.parameters), or both.
--
--     resting.begin(model, config, stages)      -- before the parameters are made, so that no rank ever holds them all
--     resting.settle(model, zero, offload, stages)  -> tier or nil; for parameters that there are, too
-- @module ganymede.train.resting
local module = require "ganymede.nn.module"
local offload = require "ganymede.train.offload"
local zero = require "ganymede.optim.zero"

local resting = {}

-- What resting.begin has opened, and for which model: resting.settle takes it over. A run that fails in between leaves
-- it, and the next model must not get it.
local begun

local function open(model, divided, opt, stages)
  zero.rest(divided)
  local tier = offload.open(opt, model, divided, stages)
  module.made_parameter = function(t)
    zero.store(t, divided)
    offload.take(opt, tier, t)
  end
  return tier
end

--- From now on, parameters that modules make are divided as zero says. A program has not made its model yet.
function resting.launch(divided)
  begun = nil
  zero.rest(divided)
  module.made_parameter = function(t) zero.store(t, divided) end
end

--- The same for a run whose model is known. stages: those of the pipeline.
function resting.begin(model, config, stages)
  begun = { model = model, tier = open(model, zero.options(config.zero), offload.options(config.offload), stages) }
end

--- Settles where the parameters of a model rest, also those that have been made. divided: of zero.options; opt: of
-- offload.options, or nil. Returns the tier, if something but states of the optimizer rests in one.
function resting.settle(model, divided, opt, stages)
  local before = begun
  begun = nil
  local taken = before and before.model == model
  local tier = taken and before.tier or open(model, divided, opt, stages)
  for _, p in ipairs(model:parameters()) do module.made_parameter(p) end
  return tier
end

return resting
