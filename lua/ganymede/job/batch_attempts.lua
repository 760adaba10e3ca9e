--- Whether ranks that a batch script has started begin again after a failure: `ganymede slurm --max-restarts`.
--
-- A batch script has no supervisor beside it that hears of the ranks. After each end of the ranks it asks, and what is
-- known between two questions is in RUN/attempts.json. The law is that of ganymede.job.restarts; what it wants to know
-- is read from the run's folder: the newest checkpoint, and whether metrics.jsonl has grown. The number of ranks stays.
-- @module ganymede.job.batch_attempts
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local restarts = require "ganymede.job.restarts"
local runs_folder = require "ganymede.job.runs_folder"

local batch = {}

local function bytes_of(path)
  local file = io.open(path)
  local size = file and file:seek "end" or 0
  if file then file:close() end
  return size
end

-- What the folder shows now.
local function seen(folder)
  return { reached = runs_folder.newest_step(folder .. "/checkpoints"), bytes = bytes_of(folder .. "/metrics.jsonl") }
end

local function path_of(folder) return folder .. "/attempts.json" end

local function write(folder, known) core.write_whole(path_of(folder), json.encode(known) .. "\n") end

--- Begins a count of attempts: the script has been started, and nothing has failed.
function batch.begin(folder)
  local known = seen(folder)
  known.history = json.array {}
  write(folder, known)
end

local function read(folder)
  local text = machine.read(path_of(folder))
  local known = text and json.decode(text, path_of(folder))
  if type(known) ~= "table" or type(known.history) ~= "table" then
    failure(2, "%s has no attempts of a script that `ganymede slurm --max-restarts` made", path_of(folder))
  end
  return known
end

--- Takes up that the ranks have ended with this status -> seconds to wait before they are started again; or nil and why
-- they are not. limits: most (attempts in a row without progress), delay (seconds).
function batch.ended(folder, status, ranks, limits)
  local known, now = read(folder), seen(folder)
  local history = known.history
  -- a script hears no words: two errors in a row are taken for the same one
  history[#history + 1] = { ranks = ranks, status = status, text = "", reached = now.reached,
    began = now.bytes > known.bytes and known.reached or nil }
  known.reached, known.bytes = now.reached, now.bytes
  write(folder, known)
  local plan, why = restarts.next(history, { most = limits.most, delay = limits.delay })
  if not plan then return nil, why end
  return plan.delay
end

return batch
