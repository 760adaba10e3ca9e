--- recompute = { memory = "4G" }: asks a rehearsal what runs again in backward (ganymede.plan.regions).
--
--     local setting, said = regions.setting(config.recompute, { recipe = "r.lua", set = { ... }, seed = 3 })
--
-- A process of its own measures and chooses (ganymede.train.asked), for rank 0, whose blocks are the largest, and in a
-- pipeline for the first rank of each stage; a rank of a rehearsal asks for its own stage. The trap:
-- what a program gives gm.fit has no file that another process could read. Its engine chooses
-- (ganymede.train.chosen_regions).
-- @module ganymede.train.regions
local asked = require "ganymede.train.asked"

local regions = {}

--- given: the setting. source: recipe (its path), set (of the command line), seed; nil in a program -> what `recompute`
-- takes (nil: nothing runs again), and lines about it. Collective.
function regions.setting(given, source)
  if type(given) ~= "table" or given.memory == nil then return given end
  if not source or not source.recipe then return given end -- ganymede.train.chosen_regions does it
  local found = asked("regions", source)
  return found.setting or nil, found.said
end

return regions
