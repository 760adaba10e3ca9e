--- What the ranks of a running job do, from the pages that they keep (host/comm/page.h): the table of `ganymede top`.
--
--     local rows = top.rows(job, pages)       -- job, pages: of ganymede.job.jobs
--     for _, line in ipairs(top.lines(job, rows)) do print(line) end
--
-- A page is read while its rank runs, waits or hangs, and nobody is asked. The rates are those of the last 16 steps. A
-- rank that waits in a call is shown with those members of the group that have not come to the same call; a rank that
-- computes, with its phase and, when its step takes long, what the system says of its process.
-- @module ganymede.observe.top
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local slowest = require "ganymede.observe.slowest"

local top = {}

local LONG = 2 -- seconds of a step after which its process is looked at
local SILENT = 10 -- seconds without a copy of its page, after which a rank of another machine is taken to be gone

-- Whether a rank has come to a call of another one.
local function has_come(page, call)
  local function is_at(own, later)
    return own ~= nil and own.group == call.group and (own.number == call.number or later and own.number > call.number)
  end
  return page ~= nil and (is_at(page.waiting, true) or is_at(page.last, true))
end

-- The ranks that a waiting rank waits for, as far as pages tell: a list; empty: all have come.
local function missing(rank, call, pages)
  if call.peer then return { call.peer } end
  local out = {}
  for _, member in ipairs(call.members) do
    if member ~= rank and not has_come(pages[member], call) then out[#out + 1] = member end
  end
  return out
end

local function rates(page)
  local lately = page.lately
  if not lately or lately.seconds <= 0 then return nil end
  return lately.samples / lately.seconds, lately.tokens > 0 and lately.tokens / lately.seconds or nil
end

-- The share of the last 16 steps in which the rank waited for others; nil: it is not known yet.
local function waits(page)
  local lately = page.lately
  return page.world > 1 and lately and lately.seconds > 0 and lately.waited / lately.seconds or nil
end

local function is_alive(pid)
  local said = core.process_is(pid)
  return not (said:find "is gone" or said:find "has ended")
end

local function row_of(rank, page, pages)
  if not page then return { rank = rank } end
  local row = { rank = rank, pid = page.pid, step = page.step, since_step = page.since_step, live = page.live,
    peak = page.peak, phase = page.world > 1 and page.phase or nil, host = page.silent and page.host or nil,
    silent = page.silent, waits = waits(page) }
  if page.silent then row.alive = page.silent < SILENT else row.alive = is_alive(page.pid) end
  row.samples_per_second, row.tokens_per_second = rates(page)
  local call = page.waiting
  if call and row.alive then
    row.waiting = { call = call.text, seconds = call.seconds, ranks = json.array(missing(rank, call, pages)) }
  elseif row.alive and not page.silent and (page.since_step or page.age) > LONG then
    row.process = core.process_is(page.pid)
  end
  return row
end

--- One row for each rank of a job: rank and, where it has a page, pid, alive, step, since_step (seconds),
-- samples_per_second, tokens_per_second, live, peak (bytes), waits (the share of the last 16 steps in which it waited
-- for others) and phase (of several ranks), and waiting { call, seconds, ranks } or process (a text); of a rank on
-- another machine host and silent, the seconds since its page was copied.
function top.rows(job, pages)
  local rows = {}
  for rank = 0, job.world - 1 do rows[rank + 1] = row_of(rank, pages[rank], pages) end
  return rows
end

local function seconds(s) return s == nil and "-" or ("%.1f s"):format(s) end

local function does_here(row)
  if row.waiting then
    local list = row.waiting.ranks
    local whom = #list == 0 and "" or (" for rank%s %s"):format(#list > 1 and "s" or "", table.concat(list, ", "))
    return ("waits %.1f s%s in %s"):format(row.waiting.seconds, whom, row.waiting.call)
  end
  return (row.phase or "runs") .. (row.process and ", " .. row.process or "")
end

local function does(row)
  if not row.pid then return "runs on another machine and has no page in the run's folder, or has not begun" end
  if row.host and not row.alive then
    return ("on %s: has told nothing for %.0f s, so it or its machine is gone"):format(row.host, row.silent)
  end
  if not row.alive then return "has ended" end
  return (row.host and "on " .. row.host .. ": " or "") .. does_here(row)
end

local function count(n) return n and ("%.0f"):format(n) or "-" end

--- The rank that the others have waited for in the last 16 steps (ganymede.observe.slowest, in shares of their time);
-- nil: there is none, or some rank tells nothing.
function top.slowest(rows)
  local shares = {}
  for i, row in ipairs(rows) do
    if not (row.alive and row.waits) then return nil end
    shares[i] = row.waits
  end
  return slowest.of(shares, 1)
end

local function percent(share) return share and ("%.0f %%"):format(100 * share) or "-" end

--- The table as a list of lines, and one more where the ranks wait for one of them. columns: the width of the terminal;
-- nil: as wide as it is.
function top.lines(job, rows, columns)
  local by_token = false
  for _, row in ipairs(rows) do by_token = by_token or row.tokens_per_second ~= nil end
  local form = "%4s %8s %9s %10s %12s %11s %11s %6s  %s"
  local lines = { ("%s%s, %d rank%s%s, since %s"):format(job.name, job.folder and " in " .. job.folder or "", job.world,
    job.world == 1 and "" or "s", job.batch and (", batch %d"):format(job.batch) or "", job.started or "?"),
    form:format("rank", "process", "step", "last step", by_token and "tokens/s" or "samples/s", "memory", "peak",
      "waits", "does") }
  for _, row in ipairs(rows) do
    lines[#lines + 1] = form:format(row.rank, row.pid or "-", row.step or "-", seconds(row.since_step),
      count(row.tokens_per_second or row.samples_per_second), row.live and machine.bytes(row.live) or "-",
      row.peak and machine.bytes(row.peak) or "-", percent(row.waits), does(row))
  end
  local slow = top.slowest(rows)
  if slow then
    lines[#lines + 1] = ("the others wait for rank %d: %s of the last steps each, rank %d itself %s"):format(slow.rank,
      percent(slow.others), slow.rank, percent(slow.waited))
  end
  for i, line in ipairs(lines) do lines[i] = columns and line:sub(1, columns) or line end
  return lines
end

return top
