--- Runs programs beside this one, some at a time, and ends them in order.
--
--     programs.run({ { argv = { ... }, log = "x/log.txt" }, ... }, 2, began, ended)
--
-- began(job) is called when a job starts, ended(job, status, seconds, stopping) when it has ended, in the order in
-- which that happens; with stopping, it must not raise. Each program leads a group of processes, so Ctrl-C on the
-- terminal reaches this one alone. If programs.run is stopped, or a callback fails, every program gets SIGTERM and its
-- end is waited for: a run saves a checkpoint after its step. Another Ctrl-C or SIGTERM meanwhile sends SIGTERM again,
-- at which a run ends at once; a third one kills. If this process is killed, the system sends its programs SIGTERM
-- (host/job/process.h).
--
--     programs.stop(running, ended)      -- ends those that a caller has started itself: list of { program, began }
--
-- @module ganymede.job.programs
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"

local programs = {}

local NAP = 0.03 -- seconds between two looks

-- Takes jobs that have ended out of the list, and calls ended for each.
local function take_ended(running, ended, stopping)
  for i = #running, 1, -1 do
    local job = running[i]
    local status = job.program:ended()
    if status then
      table.remove(running, i)
      ended(job, status, core.now() - job.began, stopping)
    end
  end
end

local function signal(running, name)
  for _, job in ipairs(running) do job.program:signal(name) end
end

--- Ends all that runs, and waits for it. No stop is raised.
function programs.stop(running, ended)
  take_ended(running, ended, true)
  if #running == 0 then return end
  log.info("%d run%s saved and ended; another Ctrl-C ends at once", #running, #running == 1 and " is" or "s are")
  signal(running, "terminate")
  local asked = 1
  while #running > 0 do
    take_ended(running, ended, true)
    if #running > 0 and launcher.nap(NAP) then
      asked = asked + 1
      signal(running, asked > 2 and "kill" or "terminate")
    end
  end
end

--- Runs jobs, at most `width` at once.
function programs.run(list, width, began, ended)
  local running, at = {}, 1
  failure.protect(function() programs.stop(running, ended) end, function()
    while list[at] or #running > 0 do
      while list[at] and #running < width do
        local job = list[at]
        began(job)
        job.began, job.program = core.now(), core.program_start(job.argv, job.log)
        running[#running + 1], at = job, at + 1
      end
      take_ended(running, ended)
      if #running == width or not list[at] and #running > 0 then core.sleep(NAP) end
    end
  end)
end

return programs
