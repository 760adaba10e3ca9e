--- The machines of the allocation of Slurm in which this process is, and which of them have died.
--
--     local alive, dead = slurm_nodes.look()        -- lists of names, in the order of the allocation; nil: no Slurm
--     slurm_nodes.srun { "n1", "n3" }               -- the words that start a task on each of these machines
--
-- A machine counts as dead if Slurm calls it DOWN or failing, or says that it does not answer (a star behind its
-- state).
-- The trap: Slurm itself finds out after its SlurmdTimeout (300 s by default), and srun waits for as long.
local machine = require "ganymede.base.machine"

local slurm_nodes = {}

local function is_dead(state) return state:find "DOWN" or state:find "FAIL" or state:find("*", 1, true) end

--- The machines whose lines `scontrol -o show node` has printed -> alive, dead.
function slurm_nodes.sorted(text)
  local alive, dead = {}, {}
  for line in text:gmatch "[^\n]+" do
    local name, state = line:match "^NodeName=(%S+)", line:match "%sState=(%S+)"
    local list = name and (state and not is_dead(state) and alive or dead)
    if list then list[#list + 1] = name end
  end
  return alive, dead
end

function slurm_nodes.look()
  local list = os.getenv "SLURM_JOB_NODELIST"
  local text = list and machine.ask("scontrol -o show node " .. machine.quote(list))
  if not text then return nil end
  return slurm_nodes.sorted(text)
end

function slurm_nodes.srun(names)
  return { "env", "-u", "SLURM_NTASKS_PER_NODE", "-u", "SLURM_NTASKS", "-u", "SLURM_NPROCS", "-u", "SLURM_NNODES",
    "srun", "--overlap", "--nodelist=" .. table.concat(names, ","), "--nodes=" .. #names, "--ntasks=" .. #names,
    "--ntasks-per-node=1" }
end

return slurm_nodes
