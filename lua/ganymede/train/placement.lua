--- offload = { memory = BYTES, disk = DIR }: asks a rehearsal what rests on the disk (ganymede.plan.placement).
--
--     config = placement.settled(config, command)
--
-- The trap: what a program gives gm.fit or gm.initialize has no file that another process could rehearse.
-- `ganymede check RECIPE --placement` prints a setting that a program can give.
-- @module ganymede.train.placement
local asked = require "ganymede.train.asked"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local setting = require "ganymede.optim.offload_setting"
local settings = require "ganymede.config"

local placement = {}

--- Is the choice left to a rehearsal?
function placement.is_wanted(given) return type(given) == "table" and given.memory ~= nil end

--- Refuses it where there is no recipe to rehearse.
function placement.refuse()
  failure(2, "offload.memory needs a recipe that returns a table, which a rehearsal can read; a program says itself "
    .. "what rests where: offload = { optimizer = \"disk\", disk = DIR }")
end

--- Returns the settings with the placement that was chosen, and sets the limit of this rank's memory. source: recipe
-- (its path), set (of the command line), seed; nil in a program. Collective.
function placement.settled(config, source, rehearses)
  if not placement.is_wanted(config.offload) then return config end
  if not source or not source.recipe then placement.refuse() end
  if not config.offload.disk and not core.device().apart then failure(2, "offload %s", setting.needs_folder) end
  local found = asked("placement", source)
  if not rehearses and core.rank() == 0 then log.info("offload: %s", found.said[1]) end
  core.memory_limit(found.limit)
  return settings.with(config, { offload = found.setting })
end

return placement
