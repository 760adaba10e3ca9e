--- Makes models for pipelines, in recipes that train in code:
--
--     gm.launch { parallel = { pipeline = 2 } }
--     local model = gm.build_pipeline_model { nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10) }
--     local model = gm.build_pipeline_model_from_cfg({ type = "GPT", ... }, 2, "uniform")
--     local engine = gm.initialize { model = model, ..., schedule = gm.PipelineSchedule { num_microbatches = 4 } }
--
-- The result is the whole model, of which this rank holds its stage (ganymede.pipeline.stage).
-- @module ganymede.train.pipeline_model
local context = require "ganymede.job.context"
local geometry = require "ganymede.job.geometry"
local module = require "ganymede.nn.module"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local stage = require "ganymede.pipeline.stage"
local signature = require "ganymede.base.signature"
require "ganymede.schedules"

local M = {}

local given = {
  schedule = { type = { "string", "table", "function" }, optional = true,
               doc = "the schedule, or { type = ... }, which says what parts a stage holds; default: chunk after "
                 .. "chunk along the stages" },
  num_chunks = { type = "integer", min = 1, optional = true,
                 doc = "the number of parts on each stage; default: that of the schedule, or "
                   .. "parallel.pipeline.chunks" },
  split = { type = { "string", "table", "function" }, optional = true,
            doc = "how sections are divided into parts (ganymede.pipeline.stage.bounds); default: "
              .. "parallel.pipeline.split" },
}
M.options = given

-- Returns parts[rank + 1][chunk].
local function parts_of(opt, plan)
  local schedule = opt.schedule and registry.schedules:build(opt.schedule)
  local parts = schedule and schedule.parts and schedule:parts(plan.pipeline)
  if not parts then
    if schedule and plan.pipeline > 1 then
      error(("build_pipeline_model: %s has no parts for %d stages; use PipelineSchedule"):format(
        tostring(schedule.name), plan.pipeline), 3)
    end
    return geometry.looped(plan.pipeline, opt.num_chunks or plan.chunks or 1)
  end
  if opt.num_chunks and opt.num_chunks ~= #parts[1] then
    error(("build_pipeline_model: num_chunks = %d, and the schedule has %d"):format(opt.num_chunks, #parts[1]), 3)
  end
  return parts
end

-- Returns a module as it is, and the model that a list of layers or a config table stands for.
local function as_model(model)
  if module.is_module(model) then return model end
  if type(model) == "table" and model.type then return registry.models:build(model) end
  if type(model) == "table" and model[1] ~= nil then return require("ganymede.nn").Sequential { layers = model } end
  error(("build_pipeline_model takes a model or a list of layers; got %s"):format(options.literal(model)), 3)
end

--- Makes a model (or a list of layers) this rank's stage of it, by the live context, and returns the model. opt: see
-- M.options, or the number num_chunks, as in Colossal-AI.
function M.build_pipeline_model(model, opt)
  if type(opt) == "number" then opt = { num_chunks = opt } end
  opt = options.check("build_pipeline_model", given, opt, 2)
  model = as_model(model)
  local now = context.current()
  local parts, rank = parts_of(opt, now.plan), now.coordinate.pipeline or 0
  now:set_pipeline_parts(parts[rank + 1], #parts * #parts[1])
  if #parts * #parts[1] == 1 then
    stage.whole(model)
    return model
  end
  stage.split(model, { stages = now.plan.pipeline, rank = rank, parts = parts, split = opt.split or now.plan.split })
  return model
end

--- Does the same for a config: cfg = { type = "GPT", ... } or { type = "ModelFromConfig", layers_cfg = list }.
function M.build_pipeline_model_from_cfg(cfg, num_chunks, split)
  return M.build_pipeline_model(registry.models:build(cfg), { num_chunks = num_chunks, split = split })
end

return signature.export("gm", M, nil, nil, { build_pipeline_model = given })
