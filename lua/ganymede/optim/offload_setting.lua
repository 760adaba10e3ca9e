--- The setting `offload`: its fields, and what of it does not fit together. What it does: ganymede.train.offload.
-- @module ganymede.optim.offload_setting
local options = require "ganymede.base.options"

local offload = {}

local function where(what)
  return { type = "string", one_of = { "none", "host", "disk" }, default = "none", doc = what
    .. "; none: in memory, host: in the host's memory, disk: in a file in the folder offload.disk" }
end

--- What can rest outside of memory: keys of the setting.
offload.kinds = { "optimizer", "gradients", "parameters", "activations" }

offload.fields = {
  optimizer = where "where the optimizer's states rest between updates",
  gradients = where "where gradients rest between backward and the update",
  parameters = where "where parameters rest between their uses",
  activations = where "where forward leaves what backward needs",
  disk = { type = "string", optional = true,
    doc = "the folder of that file, which has no name and disappears with the run; each rank has a file of its own" },
  fraction = { type = "number", above = 0, max = 1, default = 1,
    doc = "the part of the optimizer's states that is offloaded, from the first parameter on; the others stay in "
      .. "memory" },
  ring = { type = { "integer", "string" }, min = 1, optional = true,
    doc = "the bytes of memory through which all that rests on a disk passes, such as 256M; default: enough for the "
      .. "largest parameter with what belongs to it (docs/memory.md)" },
  least = { type = { "integer", "string" }, min = 1, default = "64K",
    doc = "the bytes of the smallest parameter, gradient or activation that rests on a disk; optimizer states of any "
      .. "size do" },
}

local function is_on(given, tier)
  for _, kind in ipairs(offload.kinds) do
    if given[kind] == tier then return true end
  end
  return false
end

--- What of the setting is wrong or does not fit together, or nil. given: a table, or the word of offload.optimizer.
function offload.problem(given)
  given = type(given) == "table" and given or { optimizer = given }
  for _, kind in ipairs(offload.kinds) do
    local why = given[kind] ~= nil and options.problem(offload.fields[kind], given[kind])
    if why then return ("%s: where %s rest"):format(why, kind == "optimizer" and "optimizer states" or kind) end
  end
  local on_disk = is_on(given, "disk")
  if on_disk and not given.disk then
    return 'to the disk needs a folder: { optimizer = "disk", disk = "/scratch" }'
  end
  for _, name in ipairs { "disk", "ring", "least" } do
    if not on_disk and given[name] and given[name] ~= offload.fields[name].default then
      return ('has %s, and nothing is offloaded to a disk: say optimizer = "disk"'):format(name)
    end
  end
  if (given.optimizer or "none") == "none" and (given.fraction or 1) ~= 1 then
    return 'has a fraction of nothing: say optimizer = "host" or "disk"'
  end
  return nil
end

return offload
