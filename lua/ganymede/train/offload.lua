--- What of a training run rests outside of memory while it is not needed: the setting `offload` (docs/memory.md).
--
--     gm.initialize { offload = { optimizer = "disk", disk = "/scratch" }, ... }
--
-- The states of the optimizer rest in a tier (host/tier) and stream through its update (host/optim/offload.h). The
-- trap: space is taken here, so this comes when it is settled which part of a parameter a rank owns (ZeRO).
-- @module ganymede.train.offload
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"
local setting = require "ganymede.optim.offload_setting"

local offload = {}

-- "64M" or a number -> bytes
local function bytes_of(ring)
  local bytes, problem = machine.bytes_of(tostring(ring))
  if not bytes then error("gm.initialize: offload.ring: " .. problem, 0) end
  return bytes
end

local function say(engine, tier)
  for text in function() return core.device_note() end do log.info("%s", text) end
  if not core.device().has_data then return end
  local found = engine.optimizer:offloaded()
  if tier == "host" then
    log.info("offload: the memory of the device %s is the host's memory, so optimizer states on the host save nothing",
      core.device().name)
  else
    log.info("offload: optimizer states pass through %s of memory", machine.bytes(found.ring_bytes))
  end
end

--- Begins what the setting asks for: a table, a tier of the optimizer's states, or nil.
function offload.start(engine, given)
  if given == nil then return end
  local opt = options.check("gm.initialize: offload", setting.fields,
    type(given) == "table" and given or { optimizer = given }, 0)
  local problem = setting.problem(given)
  if problem then error("gm.initialize: offload " .. problem, 0) end
  if opt.optimizer == "none" then return end
  engine.optimizer:offload { tier = opt.optimizer, folder = opt.disk, fraction = opt.fraction,
    ring = opt.ring and bytes_of(opt.ring) }
  say(engine, opt.optimizer)
end

return offload
