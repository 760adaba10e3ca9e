--- Ganymede: train neural networks from Lua.
--
-- `local gm = require "ganymede"` gives the tensor functions (gm.tensor, gm.zeros, gm.scope, ...), the
-- ops (gm.ops), and every module of the folder by its name when first touched: gm.nn, gm.data,
-- gm.models, gm.optim, ... What recipes call directly is listed in `from` below.
-- @module ganymede
local missing = require "ganymede.missing"

local gm = { ops = require "ganymede.ops" }
for name, fn in pairs(require "ganymede.tensor") do gm[name] = fn end

-- name -> module and field that serve it
local from = {
  initialize = { "ganymede.engine", "initialize" },
  launch     = { "ganymede.launch", "launch" },
  launch_from_torch = { "ganymede.launch", "launch_from_torch" },
  launch_from_slurm = { "ganymede.launch", "launch_from_slurm" },
  launch_from_openmpi = { "ganymede.launch", "launch_from_openmpi" },
  fit        = { "ganymede.fit", "fit" },
  recipe     = { "ganymede.recipe", "new" },
  gradcheck  = { "ganymede.gradcheck", "gradcheck" },
  build_pipeline_model = { "ganymede.pipeline.build", "build_pipeline_model" },
  build_pipeline_model_from_cfg = { "ganymede.pipeline.build", "build_pipeline_model_from_cfg" },
  ModelFromConfig = { "ganymede.nn", "ModelFromConfig" },
  PipelineSchedule = { "ganymede.schedules", "PipelineSchedule" },
  InterleavedPipelineSchedule = { "ganymede.schedules", "InterleavedPipelineSchedule" },
}

for _, name in ipairs {
  "gpc", "ParallelMode", "Trainer", "Engine", "LAYERS", "MODELS", "LOSSES", "OPTIMIZERS", "DATASETS", "LR_SCHEDULERS",
  "TRANSFORMS", "SAMPLERS", "DATA_SAMPLERS", "GRADIENT_HANDLER", "SCHEDULE", "HOOKS", "DIST_GROUP_INITIALIZER",
  "build_from_registry", "build_layer", "build_loss", "build_model", "build_dataset", "build_optimizer",
  "build_gradient_handler", "build_hooks", "build_transform", "build_data_sampler", "build_lr_scheduler",
  "build_schedule",
} do
  from[name] = { "ganymede.colossal", name }
end

local function load_named(name)
  local entry = from[name]
  if entry then return require(entry[1])[entry[2]] end
  local found = package.searchpath and package.searchpath("ganymede." .. name, package.path)
  if package.searchpath and not found then return nil end
  return require("ganymede." .. name)
end

missing.provide("gm", function()
  local names = {}
  for _, list in ipairs { gm, from } do
    for name in pairs(list) do names[#names + 1] = name end
  end
  return names
end)

return setmetatable(gm, {
  served = from,
  __index = function(self, name)
    local value = type(name) == "string" and load_named(name)
    if value == nil or value == false then
      missing.refuse("gm", name, 2)
    end
    rawset(self, name, value)
    return value
  end,
})
