--- Measures the energy of a run for --stats: that of CPUs by the counters of RAPL (Linux powercap), that of a GPU by
-- NVML.
--
--     local meter = energy.start()    counters of this machine and of the device in use (host/observe/energy.h)
--     meter:update()                  from time to time, because a counter of RAPL restarts after some minutes under
-- load
--     meter:report()                  { machine, gpu, cpu_joules, gpu_joules, cpu_reason, gpu_reason }
--     energy.total(reports, counts)   the entry of --stats, from the reports of all ranks
--
-- The counters belong to whole packages and whole GPUs, whatever else runs there. If one cannot be read, it is left out
-- and the reason is given; nothing is estimated. The trap: ranks of one machine read the same counters, so total counts
-- each machine and each GPU once.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local missing = require "ganymede.base.missing"
local signature = require "ganymede.base.signature"

local energy = {}

-- Begins to count. The options exist for specs.
energy.start = signature.declare("energy.start", "options options?", {
  powercap = { type = "string", optional = true, doc = "the folder of the counters of CPUs" },
  nvml = { type = "string", optional = true, doc = "the library that reads the counters of a GPU" },
  gpu = { type = "string", optional = true, doc = "the name of the GPU; default: the device in use" },
}, function(opt) return core.energy_open(opt) end)

-- ---------------------------------------------------------------- all ranks

-- Returns the sum over the counters, each once, or nil and the first reason. name(report) identifies a counter.
local function once_each(reports, field, reason, name)
  local sum, seen = 0, {}
  for _, r in ipairs(reports) do
    if not r[field] then return nil, r[reason] or "not measured" end
    -- the largest of several readings of one counter counts, because ranks do not begin and end at the same time
    local key = name(r)
    if r[field] > (seen[key] or -1) then sum, seen[key] = sum + r[field] - (seen[key] or 0), r[field] end
  end
  return sum
end

--- Returns the entry of --stats. reports: one of each rank; counts: { tokens =, samples = } of all ranks. `joules` is
-- the energy of CPUs and GPUs together if both are known, otherwise of one of them; `of` says which: "cpu", "gpu",
-- "cpu+gpu".
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
      or (counts.tokens or 0) == 0 and "the samples of this model are not tokens" or json.null,
  }
end

return missing.guard("energy", signature.export("energy", energy))
