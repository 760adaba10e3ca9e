--- Which ranks share a machine, and whose memory keeps a copy of what a rank has in its own. Pure functions, but
-- `here`.
--
--     local list = machines.of { "a", "a", "b" }     -- names of the machines of all ranks, by rank + 1
--     list[2]                                         -- { name = "b", ranks = { 2 } }; in order of their first ranks
--     machines.keepers(list)                          -- { [0] = 2, [1] = 2, [2] = 0 }
--
-- The rule: the machines stand in a ring, in order of their first ranks. The rank of place p among the n ranks of a
-- machine (from 0) has its keeper on the next machine of the ring: the rank of place p modulo the number of ranks
-- there. So every rank but those of a single machine has one keeper, on another machine, and a machine that dies takes
-- along no part of which a copy does not lie on its neighbour. Two neighbours that die at once do.
local core = require "ganymede.core"
local machine = require "ganymede.base.machine"

local machines = {}

--- The name of this machine, as part of a file's name: its node in Slurm or its host, and which start of the system it
-- is, so that machines which were given one name differ.
function machines.here()
  local name = os.getenv "SLURMD_NODENAME" or core.process().host
  local boot = (machine.read "/proc/sys/kernel/random/boot_id" or ""):match "^%x+" or "0"
  return (name .. "-" .. boot):gsub("[^%w.-]", "_") .. ""
end

--- The machines of these names, by rank + 1 -> list of { name, ranks }, in order of their first ranks.
function machines.of(names)
  local list, by = {}, {}
  for i, name in ipairs(names) do
    if not by[name] then
      by[name] = { name = name, ranks = {} }
      list[#list + 1] = by[name]
    end
    table.insert(by[name].ranks, i - 1)
  end
  return list
end

--- Who keeps the copy of each rank, by rank from 0; empty where there is one machine.
function machines.keepers(list)
  local keepers = {}
  for m, entry in ipairs(#list > 1 and list or {}) do
    local there = list[m % #list + 1].ranks
    for place, rank in ipairs(entry.ranks) do keepers[rank] = there[(place - 1) % #there + 1] end
  end
  return keepers
end

return machines
