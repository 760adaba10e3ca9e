--- Runs the jobs of a cluster on the rank slots of this machine: `ganymede run` in a process and a folder of its own.
--
-- A driver has, for a job (ganymede.cli.cluster.scheduler) and a number of ranks:
--
--     driver.moves                        whether the ranks of a job can change while it runs
--     driver:start(job, ranks)            -> true; or false: not yet; job.handle is the driver's
--     driver:resize(job, ranks, batch)    -> true; or false and why not. batch: that data.batch_size changes to, or nil
--     driver:rebatch(job, batch)          the same without other ranks; where `moves`
--     driver:stop(job)                    asks it to save a checkpoint and to end
--     driver:look(job)                    -> nil, or { kind = "ended", status, why }, { kind = "refused", why },
--                                            { kind = "resized", paused, built }, { kind = "rebatched" }
--     driver:close(jobs, ended)           ends all of them; ended(job, status, why) for each. No stop is raised
--
-- Each job has a supervisor, one rank alone too, so that `resize` reaches it, and a rank that dies costs one attempt.
-- All of them get SIGTERM when this process dies (host/job/process.h).
-- @module ganymede.cli.cluster.here
local core = require "ganymede.core"
local document = require "ganymede.observe.document"
local elastic = require "ganymede.job.elastic"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local live_jobs = require "ganymede.job.jobs"
local programs = require "ganymede.job.programs"
local runs_folder = require "ganymede.job.runs_folder"

local Here = { moves = true }
Here.__index = Here

local PATIENCE = 60 -- seconds until a folder that another process holds is given up
local LIMIT = 600   -- seconds that a change of ranks may take

--- plan: of ganymede.cli.cluster.file; record: its folder.
function Here.new(plan, record) return setmetatable({ plan = plan, record = record, waits = {} }, Here) end

--- Why a run ended with that status: what its stats.json says, or the last line of its log, without "ganymede: ".
function Here.why(folder, log, status)
  local stats = document(folder .. "/stats.json")
  if stats and stats.exit_code == status and type(stats.error) == "string" then return stats.error:match "^[^\n]*" end
  return runs_folder.last_line(log)
end

--- Adds to the words of `run` or of `slurm` what the file says of a job on so many ranks: settings, seed, steps.
function Here.add_settings(words, job, ranks)
  local function add(...)
    for _, word in ipairs { ... } do words[#words + 1] = word end
  end
  for _, list in ipairs { job.set, job.sets_of[ranks] } do
    for _, set in ipairs(list) do add("--set", set) end
  end
  if job.seed then add("--seed", ("%d"):format(job.seed)) end
  if job.steps then add("--steps", ("%d"):format(job.steps)) end
  return words
end


local function why_of(self, job, status)
  local folder = self.record:of(job.name)
  return Here.why(folder, folder .. "/log.txt", status)
end

-- Whether no other process has the folder: one that a killed scheduler has left may be saving.
local function is_free(self, job, folder)
  local held, why = core.lock_take(folder .. "/.lock", "ganymede cluster", 0)
  if held then
    held:close()
    self.waits[job.name] = nil
    return true
  end
  local began = self.waits[job.name] or core.now()
  self.waits[job.name] = began
  if core.now() - began > PATIENCE then
    failure(1, "the folder of job '%s' %s, which did not end within %d s", job.name, tostring(why), PATIENCE)
  end
  return false
end

local function words_of(self, job, folder, ranks)
  local words = { core.executable(), "run", job.recipe, "--out", folder, "--resume", "auto", "-n", tostring(ranks),
    "--max-restarts", "1", "--threads", tostring(self.plan.threads), "--quiet" }
  return Here.add_settings(words, job, ranks)
end

function Here:start(job, ranks)
  local folder = self.record:of(job.name)
  core.make_folders(folder)
  if not is_free(self, job, folder) then return false end
  job.handle = { program = core.program_start(words_of(self, job, folder, ranks), folder .. "/log.txt"),
    began = core.now() }
  return true
end

-- ---------------------------------------------------------------- a change

-- Sends a request to a socket of a job. who: is it, for messages.
local function ask(self, job, socket, who, request)
  local ok, found = failure.try(live_jobs.find, self.record:of(job.name))
  if not ok then return false, "nobody hears it yet" end
  local connection = core.request_connect(found.path .. "/" .. socket)
  if not (connection and connection:send(json.encode(request))) then return false, who .. " does not answer" end
  job.handle.asked = connection
  return true
end

function Here:resize(job, ranks, batch)
  return ask(self, job, elastic.CONTROL, "its supervisor", { kind = "resize", ranks = ranks, limit = LIMIT,
    batch = batch })
end

function Here:rebatch(job, batch) return ask(self, job, "requests", "rank 0", { kind = "batch", batch = batch }) end

-- What became of a change -> an event, or nil.
local function answer_of(handle)
  if not handle.asked then return nil end
  local text, why = handle.asked:receive(0)
  if not text and why ~= "gone" then return nil end
  handle.asked:close()
  handle.asked = nil
  if not text then return { kind = "refused", why = "the job went away" } end
  local answer = json.decode(text, "the answer of the job")
  local refused = answer.refused or answer.failed and answer.texts[1]
  if refused then return { kind = "refused", why = refused } end
  if not answer.ranks then return { kind = "rebatched" } end
  return { kind = "resized", paused = answer.paused, built = answer.built }
end

function Here.stop(_, job) job.handle.program:signal "terminate" end

function Here:look(job)
  local handle = job.handle
  local status = handle.program:ended()
  if not status then return answer_of(handle) end
  if handle.asked then handle.asked:close() end
  return { kind = "ended", status = status, why = why_of(self, job, status) }
end

function Here:close(jobs, ended)
  local list = {}
  for i, job in ipairs(jobs) do
    if job.handle.asked then job.handle.asked:close() end
    list[i] = { program = job.handle.program, began = job.handle.began, job = job }
  end
  programs.stop(list, function(entry, status)
    ended(entry.job, status, why_of(self, entry.job, status))
  end)
end

return Here
