--- Learning-rate schedulers. They are pure functions of the step (base.lua): without warm-up (curves.lua), with warm-up
-- (warmup.lua), or a warm-up and a delay before any other (delayed.lua). Users may register their own:
--
--     local Halving = gm.lr_scheduler.class("Halving", { every = { type = "integer", min = 1 } })
--     function Halving:at(step, lr) return lr * 0.5 ^ math.floor(step / self.opt.every) end
--
-- @module ganymede.lr_scheduler
local base = require "ganymede.lr_scheduler.base"

local lr_scheduler = { class = base.class, Scheduler = base.Scheduler }
for _, part in ipairs { "curves", "warmup", "delayed" } do
  for name, class in pairs(require("ganymede.lr_scheduler." .. part)) do lr_scheduler[name] = class end
end

return require("ganymede.base.missing").guard("lr_scheduler", lr_scheduler)
