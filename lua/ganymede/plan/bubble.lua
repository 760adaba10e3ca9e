--- The bubble of a replayed step: the part of it in which a mean rank neither computes nor waits for its host or for
-- axes other than the pipeline's.
--
--     local part = bubble_of(replay, mesh, world)     -- nil: there is one stage
--
-- The trap: a sum of fractions depends on its order, and that of `pairs` differs from process to process.
-- @module ganymede.plan.bubble
local options = require "ganymede.base.options"
local parallel = require "ganymede.job.parallel"

local function has_axis(group, axis)
  for _, name in ipairs(parallel.axis_names((group:gsub("@.*", "")))) do
    if name == axis then return true end
  end
  return false
end

return function(replay, mesh, world)
  if parallel.stages(mesh) == 1 then return nil end
  local used = 0
  for _, class in ipairs(replay.classes) do
    used = used + class.count * (class.busy + class.launching)
    for _, group in ipairs(options.sorted_keys(class.exposed)) do
      if not has_axis(group, "pipeline") then used = used + class.count * class.exposed[group] end
    end
  end
  return 1 - used / (world * replay.seconds)
end
