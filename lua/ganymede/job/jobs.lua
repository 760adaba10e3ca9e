--- Finds the running jobs of this user on this machine, as ganymede.job.live leaves them.
--
--     for _, job in ipairs(jobs.running()) do print(job.name, job.folder, #job.pages()) end
--     local job = jobs.find "runs/latest"          -- by folder or name; nil: the only one
--     local job = jobs.find("runs/latest", 60)     -- waits so long where its ranks are just being started again
--
-- A job is { path (of its private folder), and what its file `job` says: name, recipe, folder, world, pid, supervisor
-- (its process, or nil), host, started }. Nobody else's folder, and nothing that another user listens on, is looked at.
-- What a job that was killed has left is removed.
-- @module ganymede.job.jobs
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local restarts = require "ganymede.job.restarts"
local runs_folder = require "ganymede.job.runs_folder"

local jobs = {}

--- Seconds for which a verb waits for ranks that a supervisor starts: the longest delay before an attempt, and their
-- start.
jobs.PATIENCE = restarts.MOST_SECONDS + 30

local NAP = 0.05 -- seconds between two looks
local GAP = 2    -- seconds for which ranks that take over from others may be unseen, at most

-- Where the private folders of jobs lie that were started in this environment (host/job/folder.c).
local function places()
  local wanted = core.folder_wanted()
  local path = wanted and core.real_path(wanted)
  return path and { path } or { "/dev/shm", "/tmp" }
end

-- Whether somebody listens; false also where another user does. A job that is busy has a full queue, and lives.
local function is_alive(path)
  local connection, why = core.request_connect(path .. "/requests")
  if connection then connection:close() end
  return connection ~= nil or not (why:find("refused", 1, true) or why:find("No such file", 1, true)
    or why:find("another user", 1, true))
end

-- Removes what a killed job has left (ganymede.job.live). A folder that a supervisor still needs holds more, and stays.
local function sweep(path)
  local ours = { job = true, ["job.new"] = true, requests = true, control = true }
  for _, name in ipairs(core.list_folder(path)) do
    if ours[name] or name:match "^rank%-%d+$" then os.remove(path .. "/" .. name) end
  end
  os.remove(path)
end

local function read(path)
  if not (core.is_own_folder(path) and core.is_file(path .. "/job")) then return nil end
  if not is_alive(path) then return sweep(path) end
  local ok, about = failure.try(json.decode, machine.read(path .. "/job") or "", path)
  if not ok or type(about) ~= "table" or type(about.name) ~= "string" or type(about.world) ~= "number" then
    return nil
  end
  about.path = path
  return about
end

--- The running jobs, the oldest first.
function jobs.running()
  local list = {}
  for _, place in ipairs(places()) do
    for _, name in ipairs(core.list_folder(place)) do
      local job = name:match "^ganymede%-%w%w%w%w%w%w$" and read(place .. "/" .. name)
      if job then list[#list + 1] = job end
    end
  end
  table.sort(list, function(a, b)
    if a.started ~= b.started then return (a.started or "") < (b.started or "") end
    return a.path < b.path
  end)
  return list
end

-- Whether a process is there that has not ended.
local function is_process(pid)
  local state = (machine.read(("/proc/%d/stat"):format(pid)) or ""):match "^.*%) (%u)"
  return state ~= nil and state ~= "Z" and state ~= "X"
end

--- The job that goes on where the ranks of this one are gone (`resize`, --max-restarts) -> it; nil: there is none yet;
-- false: there will be none, because nobody is left who could start ranks.
function jobs.successor(job)
  if not job.supervisor then return false end
  for _, other in ipairs(jobs.running()) do
    if other.supervisor == job.supervisor and other.path ~= job.path then return other end
  end
  if not is_process(job.supervisor) then return false end
end

-- The copy of a page in the run's folder, of a rank on another machine; nil: there is none, or an older job of the
-- folder has left it.
local function copied(job, rank)
  local page = job.folder and core.page_read(require("ganymede.job.live").copy_path(job.folder, rank))
  return page and page.silent and page.rank == rank and page.world == job.world and page or nil
end

--- The pages of a job's ranks: { [rank] = as core.page_read gives them }; ranks that have none are missing. Those of
-- other machines are copies in the run's folder, a second old or more.
function jobs.pages(job)
  local pages = {}
  for rank = 0, job.world - 1 do
    pages[rank] = core.page_read(("%s/rank-%d"):format(job.path, rank)) or copied(job, rank)
  end
  return pages
end

--- One line about a job.
function jobs.described(job)
  return ("%-12s %d rank%s, process %d since %s%s"):format(job.name, job.world, job.world == 1 and "" or "s",
    job.pid or 0, job.started or "?", job.folder and ", " .. job.folder or "")
end

local function listed(list)
  local lines = {}
  for i, job in ipairs(list) do lines[i] = "  " .. jobs.described(job) end
  return table.concat(lines, "\n")
end

-- The running jobs that a folder, a name or a process may mean (nil: all of them), and all running jobs.
local function meant_by(wanted, folder)
  local all, found = jobs.running(), {}
  for _, job in ipairs(all) do
    if not wanted or (folder and job.folder == folder) or job.name == wanted or tostring(job.pid) == wanted
      or (job.folder and job.folder:match "[^/]*$" == wanted) then
      found[#found + 1] = job
    end
  end
  return found, all
end

local function nap()
  if launcher.nap(NAP) then failure(130, "interrupted") end
end

-- Waits for the ranks that somebody starts for the run in a folder -> as meant_by, also where they do not come.
local function await(wanted, folder, who, patience)
  local found, all
  local ends = core.now() + patience
  log.info("the ranks of %s are being started by %s; waits for them, %g s at most", wanted, who, patience)
  repeat
    nap()
    local goes_on = runs_folder.supervisor(folder) -- asked first: it ends after its ranks
    found, all = meant_by(wanted, folder)
    if #found > 0 or not goes_on then return found, all end
  until core.now() > ends
  failure(1, "the ranks of %s did not come within %g s; %s still starts them: ask again, or look what it prints",
    wanted, patience, who)
end

--- The job that is meant: by its run's folder, its name or its process; nil: the only one. Raises a failure of status 2
-- that lists the jobs where there is none of them or more than one. patience: seconds to wait for a run, given by its
-- folder, whose supervisor starts ranks (after a death, or a change of ranks); with it, GAP seconds for any other job.
-- Without it nothing waits.
function jobs.find(wanted, patience)
  local folder = wanted and core.real_path(wanted)
  local found, all = meant_by(wanted, folder)
  local ends = core.now() + (patience and GAP or 0)
  while #found == 0 and core.now() < ends do
    local who = folder and runs_folder.supervisor(folder)
    if who then
      found, all = await(wanted, folder, who, patience)
      break
    end
    nap()
    found, all = meant_by(wanted, folder)
  end
  if #found == 1 then return found[1] end
  if #all == 0 then
    failure(2, "no job of this user runs on this machine, as far as %s shows (TMPDIR: jobs have their private folders "
      .. "there if its path is short, else in /dev/shm)", table.concat(places(), " or "))
  end
  if #found == 0 then failure(2, "no job '%s' runs here; those that do:\n%s", wanted, listed(all)) end
  failure(2, "%d jobs run here%s; name the folder or the process of one:\n%s", #found,
    wanted and (" that '%s' may mean"):format(wanted) or "", listed(found))
end

return jobs
