-- run.lua - published steps of training, predicted from their settings.
--
--     ganymede run spec/bench/published/run.lua --set table=nanotron [--set rows=1-4] [--set most=512]
--         [--set folder=DIR] [--set on=FILE] [--set whole=true]
--
-- tables/NAME.lua has the settings and what was measured, with the source. A row is predicted by rehearsals on the meta
-- device and a replay on the machine of the table (step.lua), after the records are rewritten as the published software
-- works (software.lua). Prints for each row the predicted and the published seconds, their ratio, the peak of memory
-- and whether that fits; then the median and the 90th percentile of |ratio - 1| without the rows of `calibrate`, which
-- were looked at when the machine's file was made. A row fits if its peak is at most 95 % of the memory; the driver,
-- libraries and the communicator's buffers hold about the rest. What was rehearsed stays in the folder (default:
-- published in the system's folder for temporary files), so a second run with another file of a machine takes seconds.
-- most: rows of more ranks are left out (default 128). rows: FROM-TO picks some. whole: every micro-batch is rehearsed.
-- kept: only rows that were rehearsed before.
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
package.path = GANYMEDE_ROOT .. "/spec/bench/published/?.lua;" .. package.path
local machines = require "ganymede.plan.machine"
local rehearsal = require "ganymede.job.rehearsal"
local software = require "software"
local step = require "step"

local config = gm.launch { table = "nanotron", folder = (os.getenv "TMPDIR" or "/tmp") .. "/published", most = 128,
  rows = "1-999", whole = false, kept = false, on = "" }

local function chosen()
  local from, to = tostring(config.rows):match "^(%d+)-(%d+)$"
  return tonumber(from or config.rows), tonumber(to or config.rows)
end

-- Of a list of errors.
local function percentile(list, part)
  table.sort(list)
  return list[math.max(1, math.ceil(part * #list))]
end

step.kept_only = config.kept
local given = dofile(("%s/spec/bench/published/tables/%s.lua"):format(GANYMEDE_ROOT, config.table))
local looked_at, about = {}, {}
for _, i in ipairs(given.calibrate or {}) do looked_at[i] = true end

local function machine_of(row)
  local name = config.on ~= "" and config.on or row.machine or given.machine
  about[name] = about[name] or machines.read(name)
  for key, value in pairs(given.network or {}) do about[name].links[#about[name].links][key] = value end
  return about[name]
end

local errors, all, fits_right, fits = {}, {}, 0, 0
local left_out = 0

local function show(i, row, found, m)
  local fit = m.memory == 0 or found.bytes <= m.memory * (1 - 0.05) -- the driver and NCCL hold about that much
  local ratio = row.seconds and found.seconds / row.seconds
  print(("%3d %-56s %s %s %s  %6.1f %s GiB %s%s"):format(i, row.name, ("%8.3f"):format(found.seconds),
    row.seconds and ("%8.3f"):format(row.seconds) or "     OOM", ratio and ("%5.2f"):format(ratio) or "     ",
    found.bytes / 2 ^ 30, row.gib and ("(%5.1f)"):format(row.gib) or "       ", fit and "fits" or "OUT OF MEMORY",
    looked_at[i] and "  (looked at)" or ""))
  io.stdout:flush()
  fits = fits + 1
  if fit == not row.out_of_memory then fits_right = fits_right + 1 end
  if not ratio then return end
  all[#all + 1] = math.abs(ratio - 1)
  if not looked_at[i] then errors[#errors + 1] = math.abs(ratio - 1) end
end

local function predict(i, row)
  local m = machine_of(row)
  local ok, found = failure.try(step.predict, row, m, software.with(software[given.software], row.how),
    config.folder .. "/" .. config.table, config.whole)
  if ok then show(i, row, found, m) else print(("%3d %-44s failed: %s"):format(i, row.name, tostring(found))) end
end

local from, to = chosen()
print(("%-60s %8s %8s %5s  %6s"):format("    row", "predict.", "publish.", "ratio", "memory"))
rehearsal.with_workers(function()
  for i = from, math.min(to, #given.rows) do
    local row = given.rows[i]
    if row.data * row.tensor * row.pipeline > config.most then left_out = left_out + 1 else predict(i, row) end
  end
end)
if #errors > 0 then
  local function of(list) return 100 * percentile(list, 0.5), 100 * percentile(list, 0.9) end
  local name = config.table
  print(("%s: %d rows held out: median error %.1f %%, 90th percentile %.1f %%"):format(name, #errors, of(errors)))
  print(("%s: with the %d looked at: %.1f %%, %.1f %%"):format(name, #all - #errors, of(all)))
end
print(("memory right in %d of %d rows; %d rows of more than %d ranks left out"):format(fits_right, fits, left_out,
  config.most))
