--- Who has a folder of runs: the verb that keeps several in it (sweep, cluster), and the supervisor of one. And what a
-- run in it said and saved last.
--
--     local held = runs_folder.hold("runs/night")            -- raises a failure of status 2 if another process has it
--     local held, why = runs_folder.take("runs/night/a", 60) -- held:close() gives it back
--     local held = runs_folder.supervise("runs/night/a")     -- as long as this process starts ranks for that run
--     runs_folder.supervisor("runs/night/a")                 -- -> who does, in words; nil: nobody
--
-- @module ganymede.job.runs_folder
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local machine = require "ganymede.base.machine"

local runs_folder = {}

local HOLD_SECONDS = 2
local LOOK_SECONDS = 0.2 -- who asks for the supervisor of a run has its lock for less

local function process_on(pid, host) return ("process %d on %s"):format(pid, host) end

-- Returns a lock of a folder; nil, why not and the kind of that, after so many seconds.
local function lock(path, name, seconds)
  local process = core.process()
  return core.lock_take(path .. name, process_on(process.pid, process.host), seconds)
end

--- Returns the lock that shows others who starts ranks for the run in a folder; nil and why there is none. The system
-- gives it back when this process ends, however that is.
function runs_folder.supervise(path) return lock(path, "/.supervisor", LOOK_SECONDS) end

--- Returns who starts ranks for the run in a folder, such as "process 12 on a"; nil: nobody does.
function runs_folder.supervisor(path)
  if not core.is_file(path .. "/.supervisor") then return nil end
  local held, who, kind = lock(path, "/.supervisor", 0)
  if held then held:close() end
  return not held and kind == "invalid" and who or nil
end

--- Whether the supervisor of this rank starts ranks for the run in a folder, from an earlier start of them on.
function runs_folder.is_ours(path)
  local pid = tonumber(os.getenv "GANYMEDE_SUPERVISOR_PROCESS" or "")
  return pid ~= nil and runs_folder.supervisor(path) == process_on(pid, core.process().host)
end

--- Returns the lock of a folder; nil, why not, and whether another process has it, after so many seconds.
function runs_folder.take(path, seconds)
  local held, why, kind = lock(path, "/.lock", seconds)
  if held then return held end
  local in_use = kind == "invalid"
  return nil, in_use and ("the folder %s is in use by %s"):format(path, why) or why, in_use
end

--- Returns the lock of the folder of a verb, or raises a failure of status 2 that says who has it.
function runs_folder.hold(path)
  local held, why, in_use = runs_folder.take(path, HOLD_SECONDS)
  if held then return held end
  failure(2, "%s; %sgive another --out", why, in_use and "wait for its end, or " or "")
end

--- Returns the last line of what a run has written into a file, without the beginning "ganymede: ".
function runs_folder.last_line(log)
  local text = (machine.read(log) or ""):gsub("%s+$", "")
  return (text:match("([^\n]*)$"):gsub("^ganymede: ", ""))
end

--- Returns the step of the newest checkpoint in a folder of checkpoints; 0: there is none.
function runs_folder.newest_step(checkpoints)
  local steps = core.checkpoint_list(checkpoints)
  return steps and steps[#steps] or 0
end

--- Raises a failure of status 2 if the folder of a run that begins at step 1 holds checkpoints. Those of both would be
-- mixed: the new ones would replace and delete old ones, and a resume would take the latest step of either.
-- path: the folder of the run; or checkpoints: that of its checkpoints alone, a setting.
function runs_folder.refuse_older(path, checkpoints)
  local place = checkpoints or path .. "/checkpoints"
  local step = runs_folder.newest_step(place)
  if step == 0 then return end
  local resume, other = "--resume auto", "--out"
  if checkpoints then resume, other = "--resume " .. checkpoints, "directory" end
  failure(2, "%s holds checkpoints of an earlier run, the newest of step %d, and this run would begin at step 1 and "
    .. "write over them: %s goes on from that step; to begin anew give another %s, or remove %s", checkpoints or path,
    step, resume, other, place)
end

return runs_folder
