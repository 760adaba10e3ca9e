--- The hooks that come with Ganymede: gm.hooks.LossHook { ... } in code, { type = "LossHook", ... } in a recipe.
-- base.lua says how to write one.
-- @module ganymede.hooks
local base = require "ganymede.hooks.base"
local missing = require "ganymede.base.missing"
local registry = require "ganymede.base.registry"

local hooks = { class = base.class, points = base.points, Hook = base.Hook }

local function add(class, name) hooks[name or class.name] = class end

for _, part in ipairs {
  "accuracy", "checkpoint", "csv", "early_stop", "ema", "evaluation", "float8", "gradient_noise",
  "gradient_norm", "learning_rate", "log_metric", "loss", "lr_scheduler", "memory", "metric", "metrics", "nan_watch",
  "prometheus", "samples", "tensorboard", "throughput",
} do
  local found = require("ganymede.hooks." .. part)
  for _, class in ipairs(found.name and { found } or found) do add(class) end
end

add(registry.hooks:register("LogMemoryByEpochHook", hooks.MemoryHook), "LogMemoryByEpochHook")

return missing.guard("hooks", hooks)
