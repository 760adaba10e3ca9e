--- The setting `offload`: its fields, and what of it does not fit together. What it does: ganymede.train.offload.
-- @module ganymede.optim.offload_setting
local machine = require "ganymede.base.machine"
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
  memory = { type = { "integer", "string" }, min = 1, optional = true,
    doc = "the bytes of memory that a rank may take, such as 8G; on a GPU, of its memory; a rehearsal of the recipe "
      .. "then chooses what rests on the disk, or below a GPU on the host, so that a step moves as few bytes as "
      .. "possible" },
  fraction = { type = "number", above = 0, max = 1, default = 1,
    doc = "the part of the optimizer's states that is offloaded, from the first parameter on; the others stay in "
      .. "memory" },
  ring = { type = { "integer", "string" }, min = 1, optional = true,
    doc = "the bytes of memory through which all that rests on a disk passes, such as 256M, and on a GPU what goes "
      .. "to the host and back; \"least\": as few as the largest parameter with what belongs to it needs; default: "
      .. "more (docs/memory_offload.md)" },
  least = { type = { "integer", "string" }, min = 1, default = "64K",
    doc = "the bytes of the smallest parameter, gradient or activation that rests on a disk; optimizer states of any "
      .. "size do" },
}

--- What is said where memory is given for a CPU and no folder.
offload.needs_folder = 'to the disk needs a folder: { memory = "8G", disk = "/scratch" }'

local function is_on(given, tier)
  for _, kind in ipairs(offload.kinds) do
    if given[kind] == tier then return true end
  end
  return false
end

-- { memory = "8G", disk = "/scratch" }
local function problem_of_memory(given)
  local _, why = machine.bytes_of(tostring(given.memory))
  if why then return ".memory: " .. why end
  for _, key in ipairs { "optimizer", "gradients", "parameters", "activations", "fraction" } do
    if given[key] ~= nil and given[key] ~= offload.fields[key].default then
      return ("has memory and %s: the one chooses what rests on the disk, the other says it"):format(key)
    end
  end
end

--- What of the setting is wrong or does not fit together, or nil. given: a table, or the word of offload.optimizer.
function offload.problem(given)
  given = type(given) == "table" and given or { optimizer = given }
  for _, kind in ipairs(offload.kinds) do
    local why = given[kind] ~= nil and options.problem(offload.fields[kind], given[kind])
    if why then return ("%s: where %s rest"):format(why, kind == "optimizer" and "optimizer states" or kind) end
  end
  if given.memory ~= nil then return problem_of_memory(given) end
  local on_disk = is_on(given, "disk")
  if on_disk and not given.disk then
    return 'to the disk needs a folder: { optimizer = "disk", disk = "/scratch" }'
  end
  for _, name in ipairs { "disk", "ring", "least" } do
    local served = on_disk or name ~= "disk" and is_on(given, "host") -- below a GPU: ganymede.train.offload
    if not served and given[name] and given[name] ~= offload.fields[name].default then
      return ('has %s, and nothing is offloaded to a disk: say optimizer = "disk"'):format(name)
    end
  end
  if (given.optimizer or "none") == "none" and (given.fraction or 1) ~= 1 then
    return 'has a fraction of nothing: say optimizer = "host" or "disk"'
  end
  return nil
end

return offload
