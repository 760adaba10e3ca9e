--- The folder in which a verb keeps several runs (sweep, cluster): who has it, and what a run in it said last.
--
--     local held = runs_folder.hold("runs/night")            -- raises a failure of status 2 if another process has it
--     local held, why = runs_folder.take("runs/night/a", 60) -- held:close() gives it back
--
-- @module ganymede.job.runs_folder
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local machine = require "ganymede.base.machine"

local runs_folder = {}

local HOLD_SECONDS = 2

--- Returns the lock of a folder; nil and why not, after so many seconds.
function runs_folder.take(path, seconds)
  local process = core.process()
  local held, why, kind = core.lock_take(path .. "/.lock", ("process %d on %s"):format(process.pid, process.host),
    seconds)
  if held then return held end
  return nil, kind == "invalid" and "is in use by " .. why or why
end

--- Returns the lock of the folder of a verb, or raises a failure of status 2 that says who has it.
function runs_folder.hold(path)
  local held, why = runs_folder.take(path, HOLD_SECONDS)
  if held then return held end
  failure(2, "the folder %s %s; wait for its end, or give another --out", path, why)
end

--- Returns the last line of what a run has written into a file, without the beginning "ganymede: ".
function runs_folder.last_line(log)
  local text = (machine.read(log) or ""):gsub("%s+$", "")
  return (text:match("([^\n]*)$"):gsub("^ganymede: ", ""))
end

return runs_folder
