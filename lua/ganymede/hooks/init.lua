--- The hooks that ship: gm.hooks.LossHook { ... } in code, { type = "LossHook", ... } in a recipe; base.lua
-- says how to write one.
-- @module ganymede.hooks
local base = require "ganymede.hooks.base"

local hooks = { class = base.class, points = base.points, Hook = base.Hook }
for _, part in ipairs { "accuracy", "checkpoint", "gradient_norm", "loss", "lr_scheduler", "memory", "throughput" } do
  local class = require("ganymede.hooks." .. part)
  hooks[class.name] = class
end

return hooks
