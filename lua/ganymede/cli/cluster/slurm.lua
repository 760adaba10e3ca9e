--- Runs the jobs of a cluster on Slurm: `ganymede slurm` writes and submits the script of each start.
--
-- It is a driver as ganymede.cli.cluster.here is. A job of Slurm keeps its machines until it ends, and ranks that srun
-- has started cannot be replaced while they run. So another number of ranks is a checkpoint, the end of the job of
-- Slurm, and the next one, which is submitted with its number and resumes in the same folder. (A job that is requeued
-- would wait two minutes, by Slurm's rule.) `scancel --signal=TERM` has the ranks save and end with status 75; a job
-- that has not begun is cancelled. A job that Slurm itself preempts ends in the same way, and waits until the policy
-- gives it places again. Jobs live on when this process is killed: the one that comes after it takes them up by their
-- numbers, or, where it was killed before it wrote one down, by the comment that each has. The trap: the state of an
-- ended job is known for some minutes only (MinJobAge), so it is asked for every second.
-- @module ganymede.cli.cluster.slurm
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local Here = require "ganymede.cli.cluster.here"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"

local Slurm = { moves = false }
Slurm.__index = Slurm

local SELDOM = 1 -- seconds between two questions about a job
local NAP = 0.3  -- and about those that are being ended
local ASKS = 30  -- unanswered questions in a row, after which a job is taken to be gone

function Slurm.new(plan, record)
  local path = core.real_path(record.path) or record.path
  return setmetatable({ plan = plan, record = record,
    tag = "ganymede:" .. require "ganymede.base.sha256"(path):sub(1, 16) }, Slurm)
end

-- What a program of Slurm prints. `timeout` keeps Ctrl-C on the terminal away from it.
local function ask(command) return machine.ask("timeout 60 " .. command) end

--- What is missing for this driver; nil: nothing.
function Slurm.missing()
  for _, name in ipairs { "sbatch", "scontrol", "scancel", "squeue" } do
    if not machine.ask("command -v " .. name) then
      return ("there is no %s in PATH: Slurm is not on this machine"):format(name)
    end
  end
end

local function words_of(self, job, ranks)
  local places = self.plan.nodes[1]
  local machines = math.ceil(ranks / places)
  local words = { core.executable(), "slurm", job.recipe, "-N", tostring(machines), "--ntasks-per-node",
    tostring(ranks / machines), "--out", self.record:of(job.name) }
  local function add(...)
    for _, word in ipairs { ... } do words[#words + 1] = word end
  end
  add(("--sbatch=--comment=%s:%d:%s"):format(self.tag, ranks, job.name))
  for _, option in ipairs(self.plan.sbatch) do add("--sbatch=" .. option) end
  add("--", "--threads", tostring(self.plan.threads))
  return Here.add_settings(words, job, ranks)
end

-- Submits a start -> the number of the job of Slurm.
local function submit(words)
  local said = os.tmpname()
  for i, word in ipairs(words) do words[i] = machine.quote(word) end
  local id = machine.ask(("GANYMEDE_ROOT=%s timeout 600 %s 2>%s"):format(machine.quote(GANYMEDE_ROOT),
    table.concat(words, " "), machine.quote(said)))
  local complaint = (machine.read(said) or ""):gsub("%s+$", ""):gsub("^ganymede: ", "")
  os.remove(said)
  if not (id and id:find "^%d+$") then failure(1, "it could not be submitted: %s", complaint) end
  return id
end

function Slurm:start(job, ranks)
  core.make_folders(self.record:of(job.name))
  job.handle = { id = submit(words_of(self, job, ranks)), asked = core.now(), silent = 0 }
  return true
end

-- The jobs of this folder that Slurm has: { [name] = { id, ranks } }.
local function submitted(self)
  local found = {}
  for line in (ask "squeue -h -o '%i %k'" or ""):gmatch "[^\n]+" do
    local id, tag, ranks, name = line:match "^(%d+) (ganymede:%x+):(%d+):(%S+)$"
    if tag == self.tag then found[name] = { id = id, ranks = tonumber(ranks) } end
  end
  return found
end

--- Takes up a job that a process before this one has started. was: its event, { id, ranks }; nil: none was written, and
-- the job may have been submitted nevertheless -> what was taken up; nil: nothing.
function Slurm:adopt(job, was)
  self.submitted = self.submitted or submitted(self)
  local found = self.submitted[job.name] or was
  if not (found and type(found.id) == "string" and type(found.ranks) == "number") then return nil end
  job.handle = { id = found.id, asked = -math.huge, silent = 0 }
  log.info("%s: job %s of Slurm was submitted before", job.name, found.id)
  return found
end

-- What Slurm says of a job -> its state and its exit status; nil: it does not know.
local function state_of(id)
  local said = ask("scontrol -o show job " .. id) or ""
  local state, code, signal = said:match "JobState=(%u+)", said:match "ExitCode=(%d+):(%d+)"
  if not state then return nil end
  local number = tonumber(code or "")
  if number == 0 and tonumber(signal) > 0 then number = 128 + tonumber(signal) end
  return state, number
end

function Slurm.stop(_, job)
  local state = state_of(job.handle.id)
  local signal = state == "RUNNING" and "--signal=TERM " or ""
  ask("scancel " .. signal .. job.handle.id)
end

local lives = { PENDING = true, CONFIGURING = true, RUNNING = true, COMPLETING = true, SUSPENDED = true,
  REQUEUED = true, STOPPED = true, SIGNALING = true, STAGE_OUT = true, RESIZING = true }
local taken = { PREEMPTED = true, CANCELLED = true, NODE_FAIL = true } -- by Slurm or by a person

-- The exit status that the end of a job of Slurm means for the scheduler.
local function status_of(state, code)
  if state == "COMPLETED" then return 0 end
  if taken[state] then return 75 end
  if state == "TIMEOUT" then return 7 end
  return code ~= 0 and code or 1
end

-- The answer about a job -> an event, or nil.
local function look(self, job)
  local handle = job.handle
  local state, code = state_of(handle.id)
  handle.silent = state and 0 or handle.silent + 1
  if not state and handle.silent >= ASKS then
    return { kind = "ended", status = 1, why = "Slurm does not know job " .. handle.id .. " any more" }
  end
  if not state or lives[state] then return nil end
  local folder, status = self.record:of(job.name), status_of(state, code)
  return { kind = "ended", status = status, why = ("job %s of Slurm: %s: %s"):format(handle.id, state,
    Here.why(folder, ("%s/slurm-%s.log"):format(folder, handle.id), status)) }
end

function Slurm:look(job)
  if core.now() - job.handle.asked < SELDOM then return nil end
  job.handle.asked = core.now()
  return look(self, job)
end

--- Ends jobs and waits for their ends. Another Ctrl-C cancels them.
function Slurm:close(jobs, ended)
  log.info("%d job%s saved and ended on Slurm; another Ctrl-C cancels", #jobs, #jobs == 1 and " is" or "s are")
  for _, job in ipairs(jobs) do self:stop(job) end
  local left = { unpack(jobs) }
  while #left > 0 do
    for i = #left, 1, -1 do
      local event = look(self, left[i])
      if event then
        ended(left[i], event.status, event.why)
        table.remove(left, i)
      end
    end
    if #left > 0 and launcher.nap(NAP) then
      for _, job in ipairs(left) do ask("scancel " .. job.handle.id) end
    end
  end
end

return Slurm
