--- Facts about this machine, for `ganymede doctor`: read from /proc and from programs, never changed.
-- Every function returns nil (or an empty list) for what cannot be found out; none raises.
local core = require "ganymede.core"

local machine = {}

function machine.quote(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

--- Whether there is a file or a folder of this name that can be opened.
function machine.exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

--- The text of a file, or nil.
function machine.read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  return text
end

--- What a command prints, or nil when it printed nothing; its errors are dropped.
function machine.ask(command)
  local pipe = io.popen("(" .. command .. ") 2>/dev/null </dev/null")
  local text = pipe:read "*a"
  pipe:close()
  text = text:gsub("%s+$", "")
  return text ~= "" and text or nil
end

--- 4294967296 -> "4.0 GiB"
function machine.bytes(n)
  local units, i = { "B", "KiB", "MiB", "GiB", "TiB" }, 1
  while n >= 1024 and i < #units do n, i = n / 1024, i + 1 end
  return (i == 1 and "%d %s" or "%.1f %s"):format(n, units[i])
end

--- "512M" -> bytes; nil and a reason when it is no number of bytes.
function machine.bytes_of(text)
  local digits, unit = text:match "^(%d+%.?%d*)([kKmMgGtT]?)i?[bB]?$"
  local power = unit and ({ [""] = 0, k = 1, m = 2, g = 3, t = 4 })[unit:lower()]
  local bytes = digits and tonumber(digits) * 1024 ^ power
  if not bytes or bytes < 1 or bytes > 2 ^ 53 then
    return nil, ("'%s' is no number of bytes, such as 512M"):format(text)
  end
  return math.floor(bytes)
end

function machine.cpu_model()
  return (machine.read "/proc/cpuinfo" or ""):match "model name%s*:%s*([^\n]+)" or machine.ask "uname -m"
end

--- Those of some instruction sets that this CPU has, by the names that /proc/cpuinfo gives them -> a list of names.
-- names: a list, or nil for those the kernels are written for.
function machine.instruction_sets(names)
  local flags = " " .. ((machine.read "/proc/cpuinfo" or ""):match "\nflags%s*:%s*([^\n]+)" or "") .. " "
  local found = {}
  for _, name in ipairs(names or { "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl",
    "avx512_bf16", "amx_tile", "amx_bf16" }) do
    if flags:find(" " .. name .. " ", 1, true) then found[#found + 1] = name end
  end
  return found
end

--- Returns how many cores this process may run on, and the number of the first of them; nil: not known.
function machine.cores()
  local list = (machine.read "/proc/self/status" or ""):match "Cpus_allowed_list:%s*(%S+)"
  if not list then return nil end
  local n, lowest = 0, tonumber(list:match "^%d+")
  for first, last in list:gmatch "(%d+)%-?(%d*)" do
    n = n + (last == "" and 1 or tonumber(last) - tonumber(first) + 1)
  end
  return n, lowest
end

--- The value of a file of this process's control group: v2's name, else v1's.
local function control_group(v2, v1_controller, v1)
  local groups = machine.read "/proc/self/cgroup" or ""
  local path = groups:match "\n?0::(%S+)"
  local text = path and (machine.read("/sys/fs/cgroup" .. path .. "/" .. v2) or machine.read("/sys/fs/cgroup/" .. v2))
  if text then return text end
  path = groups:match(":[^:\n]*" .. v1_controller .. "[^:\n]*:(%S+)")
  local base = "/sys/fs/cgroup/" .. v1_controller
  return path and machine.read(base .. path .. "/" .. v1) or machine.read(base .. "/" .. v1)
end

--- Cores' worth of time that a container is granted, or nil without a quota.
function machine.cpu_quota()
  local quota, period = (control_group("cpu.max", "cpu", "-") or ""):match "^(%d+)%s+(%d+)"
  if quota then return tonumber(quota) / tonumber(period) end
  quota = tonumber(control_group("-", "cpu", "cpu.cfs_quota_us") or "")
  period = tonumber(control_group("-", "cpu", "cpu.cfs_period_us") or "")
  return quota and period and quota > 0 and quota / period or nil
end

--- { total =, available =, limit = } in bytes; limit: of the container, nil without one.
function machine.memory()
  local text = machine.read "/proc/meminfo" or ""
  local function field(name)
    local kilobytes = text:match(name .. ":%s*(%d+) kB")
    return kilobytes and tonumber(kilobytes) * 1024
  end
  local total = field "MemTotal"
  local limit = tonumber(control_group("memory.max", "memory", "memory.limit_in_bytes") or "")
  if limit and total and limit >= total then limit = nil end
  return { total = total, available = field "MemAvailable", limit = limit }
end

--- Bytes this process may lock in memory; math.huge without a limit.
function machine.memlock()
  local soft = (machine.read "/proc/self/limits" or ""):match "Max locked memory%s+(%S+)"
  return soft == "unlimited" and math.huge or tonumber(soft)
end

--- { size =, free = } of the file system that holds path, in bytes.
function machine.file_system(path)
  local line = machine.ask("LC_ALL=C df -P -k -- " .. machine.quote(path) .. " | tail -n 1") or ""
  local size, free = line:match "%s(%d+)%s+%d+%s+(%d+)%s+%d+%%"
  if not size then return nil end
  return { size = tonumber(size) * 1024, free = tonumber(free) * 1024 }
end

--- The folder itself or the nearest one above it that exists.
function machine.nearest_folder(path)
  return machine.ask(([[
    at=%s
    case $at in /*) ;; *) at=$PWD/$at ;; esac
    while ! [ -e "$at" ]; do at=$(dirname -- "$at"); done
    printf '%%s\n' "$at"]]):format(machine.quote(path)))
end

--- Writes `size` bytes into a new file of the folder, synced -> bytes a second; nil, why.
function machine.write_speed(folder, size)
  local name = ("%s/.ganymede-doctor-%d"):format(folder, os.time())
  local block, began = ("\0"):rep(2 ^ 20), core.now()
  local file, why = io.open(name, "wb")
  if not file then return nil, why end
  local ok
  for _ = 1, size / #block do
    ok, why = file:write(block)
    if not ok then break end
  end
  local closed = file:close()
  os.execute("sync -- " .. machine.quote(name) .. " 2>/dev/null")
  local seconds = core.now() - began
  os.remove(name)
  if not ok or not closed then return nil, why or "it could not be written to the end" end
  return size / seconds
end

--- The GPUs that the driver lists: { name =, memory =, driver = }.
function machine.gpus()
  local text = machine.ask "nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader"
  local found = {}
  for name, memory, driver in (text or ""):gmatch "([^,\n]+),%s*([^,\n]+),%s*([^,\n]+)" do
    found[#found + 1] = { name = name, memory = memory, driver = driver }
  end
  return found
end

--- Version of the CUDA compiler on PATH or in its usual place.
function machine.cuda_toolkit()
  local text = machine.ask [[nvcc --version || "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" --version]]
  return text and text:match "release ([%d%.]+)"
end

--- First line of mpirun --version.
function machine.mpi() return machine.ask "mpirun --version | head -n 1" end

return machine
