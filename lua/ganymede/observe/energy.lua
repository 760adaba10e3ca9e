--- Energy that a run takes: of the CPUs by RAPL's counters (Linux powercap), of a GPU by NVML's; for --stats.
--
--     local meter = energy.start()    counters of this machine and of the device in use (host/observe/energy.h)
--     meter:update()                  now and then: a counter of RAPL begins anew after some minutes under load
--     meter:report()                  { machine, gpu, cpu_joules, gpu_joules, cpu_reason, gpu_reason }
--     energy.total(reports, counts)   the entry of --stats, from the reports of all ranks
--
-- The counters are of whole packages and whole GPUs, whatever else ran there. What cannot be read is left out, with the
-- reason; nothing is estimated. Ranks of one machine read the same counters: total counts each machine and GPU once.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local signature = require "ganymede.base.signature"

local energy = {}

-- Begins to count. The options are for specs.
energy.start = signature.declare("energy.start", "options options?", {
  powercap = { type = "string", optional = true, doc = "the folder of the CPU's counters" },
  nvml = { type = "string", optional = true, doc = "the library that reads a GPU's" },
  gpu = { type = "string", optional = true, doc = "its name; default: the device in use" },
}, function(opt) return core.energy_open(opt) end)

-- ---------------------------------------------------------------- all ranks

-- The sum over what is told apart by name, or nil and the first reason.
local function once_each(reports, field, reason, name)
  local sum, seen = 0, {}
  for _, r in ipairs(reports) do
    if not r[field] then return nil, r[reason] or "not measured" end
    -- of several readings of one counter the longest: ranks do not begin and end at once
    local key = name(r)
    if r[field] > (seen[key] or -1) then sum, seen[key] = sum + r[field] - (seen[key] or 0), r[field] end
  end
  return sum
end

--- reports: one a rank (nil: none was measured); counts: { tokens =, samples = }, of all ranks. Joules are of CPUs and
-- GPUs together where both are known, else of what is, which `of` names: "cpu", "gpu", "cpu+gpu".
function energy.total(reports, counts)
  local cpu, cpu_reason, gpu, gpu_reason
  if #reports == 0 then
    cpu_reason, gpu_reason = "nothing was trained", "nothing was trained"
  else
    cpu, cpu_reason = once_each(reports, "cpu_joules", "cpu_reason", function(r) return r.machine end)
    gpu, gpu_reason = once_each(reports, "gpu_joules", "gpu_reason", function(r) return r.machine .. " " .. r.gpu end)
  end
  local joules = (cpu or gpu) and (cpu or 0) + (gpu or 0) or nil
  local function per(n) return joules and n and n > 0 and joules / n or json.null end
  local of = cpu and gpu and "cpu+gpu" or cpu and "cpu" or gpu and "gpu"
  return {
    joules = joules or json.null, of = of or json.null, cpu_joules = cpu or json.null, gpu_joules = gpu or json.null,
    cpu_reason = cpu_reason or json.null, gpu_reason = gpu_reason or json.null,
    joules_per_token = per(counts.tokens), joules_per_sample = per(counts.samples),
    reason = not joules and ("CPU: %s; GPU: %s"):format(cpu_reason, gpu_reason)
      or (counts.tokens or 0) == 0 and "this model's samples are no tokens" or json.null,
  }
end

return signature.export("energy", energy)
