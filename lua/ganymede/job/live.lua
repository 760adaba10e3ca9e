--- What other processes see of a running job, and ask of it: `ganymede top`, `attach` and `resize`.
--
--     live.open { recipe = "first.lua" }      -- collective; before it, and after close(), nothing is seen. folder: of
--                                             -- a run that others have begun, whose ranks these follow
--     live.step(12, 384, 0)                   -- 12 steps are made; samples and tokens so far
--     live.serve { engine = e, trainer = t }  -- at the border of two steps, where all ranks know of a request
--
-- The job's private folder (host/job/folder.h) holds `job`, a JSON that says what runs here; `requests`, the socket of
-- rank 0 (host/job/requests.h); and `rank-N`, the page of each rank of this machine (host/comm/page.h). Ranks of other
-- machines copy theirs each second into pages/ of the run's folder (host/comm/page_copy.h). A job of a
-- supervisor has such a folder; any other makes one. Training never depends on it: where it cannot be made, one line
-- says so. What requests mean is the business of live.handle, which the command line sets. What the supervisor asks
-- comes over its own connection (host/job/link.h), with the id live.SUPERVISOR.
-- The trap: live.waiting() is known to rank 0 alone; engines add it to what the ranks agree on in every step.
-- @module ganymede.job.live
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local ranks = require "ganymede.job.ranks"
local spares = require "ganymede.job.spares"

local live = {}

--- handle(live, subject): serves what waits, on all ranks at the same border; nil: nobody serves requests.
live.handle = nil

--- errand(): what a change of the ranks has for them, as the text of a request (ganymede.job.steps), or nil. Rank 0.
live.errand = nil

local open -- of this process: { path, folder, page, requests, about }

local function page_path(path, rank) return ("%s/rank-%d"):format(path, rank) end

-- Readers see the old text or the new one. It is not brought to a disk: after a crash of the machine there is no job.
local function write_about()
  local path = open.path .. "/job"
  local file = assert(io.open(path .. ".new", "w"))
  local ok, why = file:write(json.encode(open.about), "\n")
  local closed, late = file:close()
  if not (ok and closed) then error(why or late, 0) end
  assert(os.rename(path .. ".new", path))
end

-- Makes what rank 0 makes -> the path of the folder.
local function make(about)
  local path = core.job_folder() or spares.folder()
  if not path then
    open.folder = core.folder_make(core.world() == 1)
    path = open.folder:path()
  end
  open.path = path
  open.requests = core.requests_open(path .. "/requests")
  local process = core.process()
  open.about = { recipe = about.recipe, name = about.recipe:match "([^/]*)$", world = core.world(), pid = process.pid,
    supervisor = core.link_rank() and tonumber(os.getenv "GANYMEDE_SUPERVISOR_PROCESS" or "") or nil,
    launched = not core.link_rank() and launcher.started or nil, host = process.host,
    started = os.date "!%Y-%m-%dT%H:%M:%SZ", folder = about.folder and core.real_path(about.folder) }
  write_about()
  return path
end

-- What is wrong, without the place in the program.
local function said(err) return (failure.text(err):gsub("^%S+%.lua:%d+: ", "")) end

-- Rank 0 makes its part -> the path of the folder, or nil.
local function try_make(about)
  local ok, made = failure.try(make, about)
  if ok then return made end
  log.info("`ganymede attach` and `top` will not find this job: %s", said(made))
  live.close()
end

-- The path of the folder on every rank, and whether it is on this machine. Under a supervisor all know it; otherwise
-- rank 0 tells it, and its machine.
local function path_for(about)
  if core.job_folder() then
    if core.rank() > 0 then return core.job_folder(), true end
    return try_make(about), true
  end
  local host = core.process().host
  local told = ranks.from_first(function()
    local path = try_make(about)
    return path and host .. "\n" .. path
  end)
  if not told then return nil end
  local first, path = told:match "^(.-)\n(.*)$"
  return path, first == host
end

--- Lets others see this job. about: recipe, folder (or nil). Collective.
function live.open(about)
  open = {}
  local path, here = path_for(about)
  if not path then
    open = nil
  else
    here = here and core.is_own_folder(path) -- otherwise live.share shows the page
    local ok, page = failure.try(core.page_make, here and page_path(path, core.rank()) or nil)
    open.path, open.here, open.page = path, here, ok and page or nil
    if not ok then log.warn("`ganymede top` will not show this rank: %s", said(page)) end
  end
end

--- The name of the copy of a page in the folder of a run.
function live.copy_path(folder, rank) return ("%s/pages/rank-%d"):format(folder, rank) end

--- Shows the page of this rank in the folder of the run, if it is on another machine than rank 0. Not collective.
function live.share(folder)
  if not (open and open.page) or open.here or open.shared then return end
  open.shared = true
  local ok, why = failure.try(open.page.copy, open.page, live.copy_path(folder, core.rank()))
  if not ok then log.warn("`ganymede top` will not show this rank: %s", said(why)) end
end

--- Says more about the job: name, folder. Rank 0 alone.
function live.tell(more)
  if not (open and open.about) then return end
  for key, value in pairs(more) do open.about[key] = value end
  if more.folder then
    open.about.folder = core.real_path(more.folder) or more.folder
    open.run_folder = open.about.folder
  end
  local ok, why = failure.try(write_about)
  if not ok then log.warn("%s", said(why)) end
end

--- The run's folder, which rank 0 has opened; nil: it has not, there is none, or this is another rank.
function live.run_folder() return open and open.run_folder end

-- Seconds between two looks at the sockets, at least: a look is a system call, and some steps take little longer.
local PAUSE = 0.02

--- The id of what the supervisor asks.
live.SUPERVISOR = -1

local looked = 0

--- Whether a request waits. Rank 0 alone knows; it never waits for anybody.
function live.waiting()
  if core.rank() > 0 or not live.handle then return false end
  local now = core.now()
  if now - looked < PAUSE then return false end
  looked = now
  return core.link_waiting() or live.errand ~= nil and live.errand() ~= nil
    or (open and open.requests and open.requests:look() > 0) or false
end

--- The next request -> its id, its text; nil: none. Rank 0 alone, as answer.
function live.take()
  if core.link_waiting() then return live.SUPERVISOR, (select(2, core.link_read())) end
  local errand = live.errand and live.errand()
  if errand then return live.SUPERVISOR, errand end
  if not (open and open.requests) then return nil end
  open.requests:look()
  return open.requests:take()
end

--- Answers the request with that id -> whether who asked has got it.
function live.answer(id, text) return open ~= nil and open.requests ~= nil and open.requests:answer(id, text) end

--- Notes what this rank has done.
function live.step(step, samples, tokens)
  if open and open.page then open.page:step(step, samples, tokens) end
end

--- Serves the requests that wait. subject: engine and, where there is one, trainer. Collective.
function live.serve(subject)
  if live.handle then live.handle(live, subject) end
end

--- Ends what live.open began.
function live.close()
  local was = open
  open = nil
  if not was then return end
  if was.requests then was.requests:close() end
  if was.page then
    was.page:close()
    if was.here then os.remove(page_path(was.path, core.rank())) end
  end
  if was.folder then
    was.folder:close()
  elseif was.about then
    os.remove(was.path .. "/job") -- the folder is the supervisor's
  end
end

return live
