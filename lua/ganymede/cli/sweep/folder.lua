--- The folder of a sweep: sweep.json, and a folder of each run, 001, 002, ...
--
-- What a run has reached is read from its own folder, so a sweep that was killed knows all that was finished:
-- sweep-N.json is the document of --stats of the run to N steps (sweep-all.json: to its end), metrics.jsonl has its
-- numbers, log.txt what it said. sweep.json says which sweep it is, and has the results so far. The folder belongs to
-- one sweep at a time (.lock).
-- @module ganymede.cli.sweep.folder
local core = require "ganymede.core"
local read_document = require "ganymede.observe.document"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local MetricsFile = require "ganymede.observe.metrics_file"
local runs_folder = require "ganymede.job.runs_folder"

local Folder = {}
Folder.__index = Folder

local RUN_SECONDS = 60

--- Opens the folder of the sweep with this id, and makes it if there is none. Another sweep's folder is refused.
local function open(_, path, id)
  failure.about(path, core.make_folders, path)
  local held = runs_folder.hold(path)
  local before = read_document(path .. "/sweep.json")
  if before and before.id ~= id then
    held:close()
    failure(2, "%s holds another sweep: `%s`, or its recipe has changed since; give another --out", path,
      tostring(before.command))
  end
  if not before and #core.list_folder(path) > 0 then -- .lock is not listed
    held:close()
    failure(2, "%s is not empty and holds no sweep; give another --out", path)
  end
  return setmetatable({ path = path, held = held, continues = before ~= nil }, Folder)
end

--- Returns the folder of a run.
function Folder:of(run) return ("%s/%03d"):format(self.path, run) end

--- Returns the path of the statistics of a run to so many steps (nil: to its end).
function Folder:stats_path(run, steps)
  return ("%s/sweep-%s.json"):format(self:of(run), steps and ("%d"):format(steps) or "all")
end

--- Returns the statistics of a run to so many steps; nil if it has not come to an end.
function Folder:stats(run, steps) return (read_document(self:stats_path(run, steps))) end

--- Whether a run can go on from a checkpoint.
function Folder:has_checkpoint(run) return #core.list_folder(self:of(run) .. "/checkpoints") > 0 end

--- Waits until no other process has the folder of a run: one that a killed sweep has left may be saving. Raises a
-- failure of status 2 if it does not end.
function Folder:wait_for(run)
  local path = self:of(run)
  core.make_folders(path)
  local held, why, in_use = runs_folder.take(path, 0)
  if in_use then
    log.info("%s; waiting for its end", why)
    held, why = runs_folder.take(path, RUN_SECONDS)
  end
  if not held then failure(2, "%s%s", why, in_use and (", which did not end within %d s"):format(RUN_SECONDS) or "") end
  held:close()
end

--- Returns the last line of what a run has said, without the beginning "ganymede: ".
function Folder:said(run)
  return runs_folder.last_line(self:of(run) .. "/log.txt")
end

-- Adds the numbers of a line of metrics.jsonl, up to a step, to what was found.
local function take(found, event, steps)
  if steps and event.step > steps then return end
  if type(event.test) == "table" then
    if not steps or event.step == steps then found.test = event.test end
    return
  end
  found.steps[#found.steps + 1] = event
end

-- Returns the means of the numbers of the last tenth of the steps.
local function last_tenth(steps)
  local sums, counts, from = {}, {}, #steps - math.max(1, math.floor(#steps / 10)) + 1
  for i = from, #steps do
    for name, value in pairs(steps[i]) do
      if type(value) == "number" then sums[name], counts[name] = (sums[name] or 0) + value, (counts[name] or 0) + 1 end
    end
  end
  for name, sum in pairs(sums) do sums[name] = sum / counts[name] end
  for _, name in ipairs { "step", "epoch", "samples" } do sums[name] = nil end
  return sums
end

--- Returns what metrics.jsonl of a run says of its first `steps` (nil: all): { train = means over the last tenth of the
-- steps, test = the evaluation of the last one, steps = their number }.
function Folder:metrics(run, steps)
  local found = { steps = {} }
  for _, event in ipairs(MetricsFile.read(self:of(run) .. "/metrics.jsonl")) do take(found, event, steps) end
  return { train = last_tenth(found.steps), test = found.test or {}, steps = #found.steps }
end

--- Writes sweep.json, whole.
function Folder:write(document)
  core.write_whole(self.path .. "/sweep.json", json.encode(document, { indent = true }) .. "\n")
end

function Folder:close()
  if self.held then self.held:close() end
  self.held = nil
end

return setmetatable(Folder, { __call = open })
