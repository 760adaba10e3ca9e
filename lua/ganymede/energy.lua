--- Energy that a run takes: of the CPUs by RAPL's counters (Linux powercap), of a GPU by NVML's; for --stats.
--
--     local meter = energy.start()    counters of this machine and of the device in use
--     meter:update()                  now and then: a counter of RAPL begins anew after some minutes under load
--     meter:report()                  { machine, gpu, cpu_joules, gpu_joules, cpu_reason, gpu_reason }
--     energy.total(reports, counts)   the entry of --stats, from the reports of all ranks
--
-- The counters are of whole packages and whole GPUs, whatever else ran there. What cannot be read is left out, with the
-- reason; nothing is estimated. Ranks of one machine read the same counters: total counts each machine and GPU once.
local core = require "ganymede.core"
local ffi = require "ffi"
local json = require "ganymede.json"

local energy = {}

local function first_line(path)
  local file, why = io.open(path, "rb")
  if not file then return nil, why end
  local text = file:read "*l"
  file:close()
  return text, text == nil and path .. ": nothing can be read from it" or nil
end

-- ---------------------------------------------------------------- CPUs

-- The packages, each with its counter in microjoules; nil and why not.
local function find_packages(folder)
  local packages = {}
  for n = 0, 255 do
    local place = ("%s/intel-rapl:%d"):format(folder, n) -- AMD's are called so too
    local name = first_line(place .. "/name")
    if not name then break end
    if name:find "^package" then
      local now, why = first_line(place .. "/energy_uj")
      if not tonumber(now) then return nil, (why or place .. ": no number") .. " (often root's alone: chmod a+r it)" end
      local range = tonumber((first_line(place .. "/max_energy_range_uj")))
      if not range then return nil, place .. "/max_energy_range_uj cannot be read" end
      table.insert(packages, { path = place .. "/energy_uj", last = tonumber(now), range = range, used = 0 })
    end
  end
  if #packages == 0 then return nil, folder .. " has no RAPL counters of CPU packages" end
  return packages
end

-- ---------------------------------------------------------------- GPU

local declared

local function nvml_library(path)
  if not declared then
    ffi.cdef [[
      int nvmlInit_v2(void);
      int nvmlDeviceGetCount_v2(unsigned int *count);
      int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device);
      int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
      int nvmlDeviceGetName(void *device, char *name, unsigned int length);
      int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);
      const char *nvmlErrorString(int error);
    ]]
    declared = true
  end
  local ok, lib = pcall(ffi.load, path)
  if not ok then return nil, "no NVML: " .. tostring(lib) end
  local error = lib.nvmlInit_v2()
  if error ~= 0 then return nil, "NVML does not start: " .. ffi.string(lib.nvmlErrorString(error)) end
  return lib
end

-- CUDA numbers GPUs by speed, NVML by place; where all are of one kind or CUDA is told to go by place it is the same.
local function numbers_agree(lib)
  if os.getenv "CUDA_DEVICE_ORDER" == "PCI_BUS_ID" then return true end
  local count, device, name, first = ffi.new "unsigned int[1]", ffi.new "void *[1]", ffi.new "char[96]", nil
  if lib.nvmlDeviceGetCount_v2(count) ~= 0 then return false end
  for i = 0, count[0] - 1 do
    if lib.nvmlDeviceGetHandleByIndex_v2(i, device) ~= 0 then return false end
    if lib.nvmlDeviceGetName(device[0], name, 96) ~= 0 then return false end
    first = first or ffi.string(name)
    if ffi.string(name) ~= first then return false end
  end
  return true
end

-- The entry of CUDA_VISIBLE_DEVICES that "cuda:ordinal" stands for.
local function name_of(ordinal)
  local visible, at = os.getenv "CUDA_VISIBLE_DEVICES", 0
  if not visible or visible == "" then return tostring(ordinal) end
  for name in visible:gmatch "[^,%s]+" do
    if at == ordinal then return name end
    at = at + 1
  end
  return nil
end

-- A function that reads millijoules, and the GPU's name; nil and why not.
local function find_gpu(path, ordinal)
  local lib, why = nvml_library(path)
  if not lib then return nil, why end
  local device, value, name = ffi.new "void *[1]", ffi.new "unsigned long long[1]", name_of(ordinal)
  if not name then return nil, ("CUDA_VISIBLE_DEVICES has no entry for cuda:%d"):format(ordinal) end
  local error
  if tonumber(name) then
    if not numbers_agree(lib) then
      return nil, "GPUs of several kinds: set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that CUDA and NVML number them alike"
    end
    error = lib.nvmlDeviceGetHandleByIndex_v2(tonumber(name), device)
  else
    error = lib.nvmlDeviceGetHandleByUUID(name, device)
  end
  if error ~= 0 then return nil, ("NVML has no GPU %s: %s"):format(name, ffi.string(lib.nvmlErrorString(error))) end
  local handle = device[0]
  local function read()
    error = lib.nvmlDeviceGetTotalEnergyConsumption(handle, value)
    if error ~= 0 then return nil, "NVML gives no energy: " .. ffi.string(lib.nvmlErrorString(error)) end
    return tonumber(value[0])
  end
  local now
  now, why = read()
  if not now then return nil, why end
  return { read = read, first = now, last = now, name = name }
end

-- ---------------------------------------------------------------- the meter

local Meter = {}
Meter.__index = Meter

--- Begins to count. options, for specs: folder (of powercap), nvml (library), device (as core.device().name).
function energy.start(options)
  options = options or {}
  local self = setmetatable({}, Meter)
  self.packages, self.cpu_reason = find_packages(options.folder or "/sys/class/powercap")
  local device = options.device or core.device().name
  if device:find "^cuda" then
    self.gpu, self.gpu_reason = find_gpu(options.nvml or "libnvidia-ml.so.1", tonumber(device:match ":(%d+)$") or 0)
  else
    self.gpu_reason = "the run is not on a GPU"
  end
  self.machine = first_line "/proc/sys/kernel/random/boot_id" or "?"
  self.at = core.now()
  return self
end

--- Reads the counters, at most every ten seconds unless `now`: those of 262 kJ take minutes to come round.
function Meter:update(now)
  if not now and core.now() - self.at < 10 then return end
  self.at = core.now()
  for _, p in ipairs(self.packages or {}) do
    local value, why = first_line(p.path)
    value = tonumber(value)
    if not value then
      self.packages, self.cpu_reason = nil, why or p.path .. ": no number"
      break
    end
    p.used = p.used + (value - p.last) % (p.range + 1)
    p.last = value
  end
  if self.gpu then
    local value, why = self.gpu.read()
    if value then self.gpu.last = value else self.gpu, self.gpu_reason = nil, why end
  end
end

--- What was used since the start.
function Meter:report()
  self:update(true)
  local report = { machine = self.machine, cpu_reason = self.cpu_reason, gpu_reason = self.gpu_reason }
  if self.packages then
    report.cpu_joules = 0
    for _, p in ipairs(self.packages) do report.cpu_joules = report.cpu_joules + p.used * 1e-6 end
  end
  if self.gpu then
    report.gpu, report.gpu_joules = self.gpu.name, (self.gpu.last - self.gpu.first) * 1e-3
  end
  return report
end

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

return energy
