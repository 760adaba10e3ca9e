--- What a verb says that waits for a running job (`attach`, `resize`): which of its processes cannot answer.
--
--     local look = silence(job)       -- job: of ganymede.job.jobs
--     look()                          -- each time round; after 3 seconds it says what is known, and when that changes
--     look = silence(job, true)       -- also says how long a step takes, at whose end the job would answer
--
-- It looks at processes of this machine alone, as `top` does, asks nobody, and does not end the wait.
-- @module ganymede.observe.silence
local core = require "ganymede.core"
local jobs = require "ganymede.job.jobs"
local log = require "ganymede.base.log"
local top = require "ganymede.observe.top"

local SOON, PAUSE = 3, 1 -- seconds before the first look, and between two

local function is_stopped(pid) return core.process_is(pid):find("is stopped", 1, true) ~= nil end

-- The processes of a job that are stopped -> a list of their names, a list of their numbers.
local function stopped(job, rows)
  local names, pids = {}, {}
  local function add(name, pid)
    if not (pid and is_stopped(pid)) then return end
    names[#names + 1], pids[#pids + 1] = ("%s (process %d)"):format(name, pid), ("%d"):format(pid)
  end
  add("its supervisor", job.supervisor)
  for _, row in ipairs(rows) do
    if row.alive and not row.host then add("rank " .. row.rank, row.pid) end
  end
  return names, pids
end

-- What the job is waited for, in words; nil: nothing is known. in_step: whether a long step is said, too.
local function said(job, in_step)
  local rows = top.rows(job, jobs.pages(job))
  local names, pids = stopped(job, rows)
  if #names > 0 then
    return ("%s does not answer: %s %s stopped; `kill -CONT %s` lets %s go on"):format(job.name,
      table.concat(names, ", "), #names == 1 and "is" or "are", table.concat(pids, " "), #names == 1 and "it" or "them")
  end
  local first = rows[1]
  if not (in_step and first.alive and (first.since_step or 0) > SOON) then return nil end
  return ("%s does not answer yet: its rank 0 has been in this step for %.0f s (`ganymede top` shows what it does)")
    :format(job.name, first.since_step), "step"
end

return function(job, in_step)
  local began, looked, told = core.now(), core.now() + SOON - PAUSE, nil
  return function()
    local now = core.now()
    if now - began < SOON or now - looked < PAUSE then return end
    looked = now
    local text, kind = said(job, in_step)
    if text and (kind or text) ~= told then log.info("%s", text) end
    told = text and (kind or text) or told
  end
end
