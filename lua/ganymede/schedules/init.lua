--- Schedules decide the order of a step's forward and backward passes. A recipe names a registered schedule:
--
--     schedule = { type = "NonPipelineSchedule" }
--     num_microbatches = 8, schedule = { type = "PipelineSchedule", order = "zb-h1" }
--
-- A schedule is a table with forward_backward_step(self, engine, iter, opt), which returns output, label and loss.
-- engine:execute_schedule calls it and describes iter and opt. It calls engine(x), engine:criterion and
-- engine:backward, never engine:step. A schedule for pipelines also has parts, order_for and more
-- (ganymede.schedules.pipeline_schedule). The orders in which stages work are data (ganymede.schedules.pipeline).
-- @module ganymede.schedules
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local projection = require "ganymede.nn.projection"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local pipelined = require "ganymede.schedules.pipeline_schedule"
local schedules = { pipeline = require "ganymede.schedules.pipeline", PipelineSchedule = pipelined.PipelineSchedule,
  InterleavedPipelineSchedule = pipelined.InterleavedPipelineSchedule }

local NonPipelineSchedule = { name = "NonPipelineSchedule" }
NonPipelineSchedule.__index = NonPipelineSchedule
schedules.NonPipelineSchedule = NonPipelineSchedule

NonPipelineSchedule.options = {
  data_process_func = { type = "function", optional = true,
    doc = "a function(x, y) of a batch of the loader that returns input and label" },
}

setmetatable(NonPipelineSchedule, {
  __call = signature.constructor("options table?", function(class, given)
    return setmetatable({ opt = options.check("NonPipelineSchedule", class.options, given, 2) }, class)
  end),
})

--- Returns the next batch of iter as input and label; nil at the end.
function NonPipelineSchedule:load_batch(iter, inputs_only)
  local x, y = iter()
  if x == nil or inputs_only or not self.opt.data_process_func then return x, y end
  return self.opt.data_process_func(x, y)
end

--- Runs one batch: forward, loss, backward.
function NonPipelineSchedule:forward_backward_step(engine, iter, opt)
  opt = options.check("forward_backward_step", engine.run_options, opt, 2)
  local input, label = self:load_batch(iter, opt.inputs_only)
  if input == nil then return nil end
  local output, loss = engine(input), nil
  if opt.return_output_label then projection.keep_places(output) end
  if opt.return_loss or not opt.forward_only then loss = engine:criterion(output, label) end
  if not opt.forward_only then
    engine:backward(loss)
    loss = loss:detach()
  end
  if not opt.return_loss then loss = nil end
  if not opt.return_output_label then return nil, nil, loss end
  return output, label, loss
end

registry.schedules:register("NonPipelineSchedule", NonPipelineSchedule)

-- ---------------------------------------------------------------- choosing

local said = {} -- messages about what was chosen for the user, each of which is printed once

local function say(fmt, ...)
  local text = fmt:format(...)
  if not said[text] then log.info("%s", text) end
  said[text] = true
end

local function micro_batches_missing(who, plan)
  failure(2, "%s needs num_microbatches, the number of pieces in which a batch goes through the stages: try "
    .. "num_microbatches = %d (with more of them stages wait less)", who, 2 * plan.pipeline)
end

-- Returns the schedule for a config that names none.
local function default(config, plan)
  local chunks, m = plan.chunks or 1, config.num_microbatches
  if plan.pipeline == 1 and chunks == 1 and (m or 1) == 1 then return { type = "NonPipelineSchedule" } end
  if not m then micro_batches_missing(("parallel.pipeline = %d"):format(plan.pipeline), plan) end
  local order = chunks > 1 and "interleaved" or "1f1b"
  if plan.pipeline > 1 then say("no schedule was given: pipeline stages work in the order %s", order) end
  return { type = "PipelineSchedule", order = order }
end

local function options_of(given)
  local class = type(given.type) == "string" and registry.schedules:get(given.type) or given.type
  return type(class) == "table" and class.options or {}
end

-- Returns { type = ... }, completed by what other keys of the config say.
local function completed(given, config, plan)
  local out, known = {}, options_of(given)
  for key, value in pairs(given) do out[key] = value end
  if not known.num_microbatches then return out end
  out.num_microbatches = out.num_microbatches or out.num_micro_batches or config.num_microbatches
  out.num_micro_batches = nil
  if not out.num_microbatches then micro_batches_missing(tostring(given.type), plan) end
  if known.chunks and plan.chunks then out.chunks = out.chunks or plan.chunks end
  if known.num_model_chunks and plan.chunks then out.num_model_chunks = out.num_model_chunks or plan.chunks end
  return out
end

local function check(schedule, config, plan)
  local name = schedule.name or "the schedule"
  if plan.pipeline > 1 and not schedule.parts then
    failure(2, "%s cannot run a pipeline, and parallel.pipeline is %d: use schedule = { type = \"PipelineSchedule\" }, "
      .. "or leave schedule out", name, plan.pipeline)
  end
  if not schedule.parts and (config.num_microbatches or 1) > 1 then
    failure(2, "%s has no micro-batches, and num_microbatches is %d: use schedule = { type = "
      .. "\"PipelineSchedule\" }, or leave one of them out", name, config.num_microbatches)
  end
  if not schedule.parts then return schedule end
  if plan.chunks and plan.chunks ~= schedule.chunks then
    failure(2, "parallel.pipeline.chunks is %d, and the schedule has %d chunks on each stage: the numbers must be "
      .. "equal", plan.chunks, schedule.chunks)
  end
  local ok, why = failure.try(schedule.parts, schedule, plan.pipeline)
  if not ok then failure(2, "schedule: %s", failure.text(why)) end
  return schedule
end

--- Returns the schedule object that a config means on a mesh. config: schedule (nil, { type = ... }, a name, a class or
-- an object), num_microbatches; plan: that of parallel.resolve. It chooses what the config leaves open and prints it
-- once. What cannot run is a failure of status 2.
function schedules.choose(config, plan)
  local given = config.schedule or default(config, plan)
  if type(given) == "string" then given = { type = given } end
  if type(given) == "table" and not getmetatable(given) and given.type then given = completed(given, config, plan) end
  return check(registry.schedules:build(given), config, plan)
end

return missing.guard("schedules", schedules)
