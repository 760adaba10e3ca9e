--- Schedules: in which order a step's forward and backward passes run. Registered ones are named in a recipe:
--
--     schedule = { type = "NonPipelineSchedule" }
--
-- A schedule is a table with forward_backward_step(self, engine, iter, opt) -> output, label, loss; the engine calls it
-- through engine:execute_schedule, which says what iter and opt are. It calls engine(x), engine:criterion and
-- engine:backward, never engine:step.
-- The orders in which a pipeline's stages work are data of their own: ganymede.schedules.pipeline.
-- @module ganymede.schedules
local options = require "ganymede.options"
local registry = require "ganymede.registry"

local schedules = { pipeline = require "ganymede.schedules.pipeline" }

local NonPipelineSchedule = { name = "NonPipelineSchedule" }
NonPipelineSchedule.__index = NonPipelineSchedule
schedules.NonPipelineSchedule = NonPipelineSchedule

NonPipelineSchedule.options = {
  data_process_func = { type = "function", optional = true, doc = "(x, y) of the loader -> input and label" },
}

setmetatable(NonPipelineSchedule, {
  __call = function(class, given)
    return setmetatable({ opt = options.check("NonPipelineSchedule", class.options, given, 2) }, class)
  end,
})

--- The next batch of iter as input and label; nil at the end.
function NonPipelineSchedule:load_batch(iter)
  local x, y = iter()
  if x == nil or not self.opt.data_process_func then return x, y end
  return self.opt.data_process_func(x, y)
end

--- One batch: forward, loss, backward.
function NonPipelineSchedule:forward_backward_step(engine, iter, opt)
  if not opt.return_loss and not opt.forward_only then
    error("execute_schedule: return_loss = false is for forward_only = true; backward needs the loss", 0)
  end
  local input, label = self:load_batch(iter)
  if input == nil then return nil end
  local output, loss = engine(input), nil
  if opt.return_loss then loss = engine:criterion(output, label) end
  if not opt.forward_only then
    engine:backward(loss)
    loss = loss:detach()
  end
  if not opt.return_output_label then return nil, nil, loss end
  return output, label, loss
end

registry.schedules:register("NonPipelineSchedule", NonPipelineSchedule)

return schedules
