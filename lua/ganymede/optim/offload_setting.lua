--- The setting `offload`: its fields, and what of it does not fit together. What it does: ganymede.train.offload.
-- @module ganymede.optim.offload_setting
local options = require "ganymede.base.options"

local offload = {}

offload.fields = {
  optimizer = { type = "string", one_of = { "none", "host", "disk" }, default = "none",
    doc = "where the optimizer's states rest between updates: none: with the parameters, host: in the host's memory, "
      .. "disk: in a file in the folder offload.disk" },
  disk = { type = "string", optional = true,
    doc = "the folder of that file, which has no name and disappears with the run; each rank has a file of its own" },
  fraction = { type = "number", above = 0, max = 1, default = 1,
    doc = "the part of the states that is offloaded, from the first parameter on; the others stay in memory" },
  ring = { type = { "integer", "string" }, min = 1, optional = true,
    doc = "the bytes of memory through which states on a disk pass, such as 256M; default: four times the states of "
      .. "the largest parameter" },
}

--- What of the setting is wrong or does not fit together, or nil. given: a table, or the word of offload.optimizer.
function offload.problem(given)
  given = type(given) == "table" and given or { optimizer = given }
  local tier = given.optimizer or "none"
  local why = options.problem(offload.fields.optimizer, tier)
  if why then return ("%s: where optimizer states rest"):format(why) end
  if tier == "disk" and not given.disk then
    return 'to the disk needs a folder: { optimizer = "disk", disk = "/scratch" }'
  end
  for _, name in ipairs { "disk", "ring" } do
    if tier ~= "disk" and given[name] then
      return ('has %s, and nothing is offloaded to a disk: say optimizer = "disk"'):format(name)
    end
  end
  if tier == "none" and (given.fraction or 1) ~= 1 then
    return 'has a fraction of nothing: say optimizer = "host" or "disk"'
  end
  return nil
end

return offload
