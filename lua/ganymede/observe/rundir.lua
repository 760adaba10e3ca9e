--- The folder of a run: runs/NAME-DATE-ID/ with config.lua, env.json, metrics.jsonl and checkpoints/, plan.json of
-- parallel = "auto", events.jsonl of what happens besides steps (ganymede.job.run_events), and stats.json, which `run`
-- adds at the end (ganymede.observe.stats).
--
-- Nothing exists before open(), which is called when everything has been built; so a wrong recipe leaves nothing. From
-- open() to close() the folder belongs to this run: `.lock` is locked, and another run with that folder is refused
-- (status 2). runs/latest points to the newest run. With --out the folder is the user's, and may hold an older run. If
-- the run resumes that one, metrics.jsonl keeps the lines up to its step. Otherwise it loses them, but the run is
-- refused (status 2) if the older one has left checkpoints. Of several ranks,
-- rank 0 chooses the path, and it alone makes and writes files; Rundir {} is collective, the methods are not.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local MetricsFile = require "ganymede.observe.metrics_file"
local runs_folder = require "ganymede.job.runs_folder"
local version = require "ganymede.base.version"

local Rundir = {}
Rundir.__index = Rundir

local BASE = "runs"

--- Makes a Rundir. opt: name, out (or nil), text (resolved settings as Lua), argv (list), resumes (whether it resumes
-- an older run of the folder), plan (the text of plan.json, nil: none).
local function new(_, opt)
  local self = setmetatable({ name = opt.name, given = opt.out, text = opt.text, argv = opt.argv or {},
    resumes = opt.resumes, plan = opt.plan }, Rundir)
  self.path = opt.out or require("ganymede.job.launcher").of_rank_0(("%s/%s-%s-%s"):format(BASE, opt.name,
    os.date "%Y%m%d-%H%M%S", self:id()))
  return self
end

-- Returns an id, which distinguishes runs that begin in the same second.
function Rundir.id()
  local wall = core.wall()
  return ("%05x"):format((core.process().pid * 7919 + math.floor(wall % 1 * 1e6)) % 2 ^ 20)
end

--- Returns what env.json says: program, machine, device and command line of the run.
function Rundir:environment()
  local device, process = core.device(), core.process()
  return {
    version = version, luajit = jit.version, host = process.host, pid = process.pid, world = core.world(),
    device = device.name, backend = device.backend, threads = device.threads,
    started = os.date "!%Y-%m-%dT%H:%M:%SZ", argv = json.array { unpack(self.argv) },
  }
end

-- How long to wait for the lock, because a process that was just killed may still hold it.
local LOCK_SECONDS = 2

-- Locks the folder for as long as this process lives.
local function lock(self)
  local process = core.process()
  local about = ("process %d on %s since %s"):format(process.pid, process.host, os.date "%Y-%m-%d %H:%M:%S")
  local held, keeps, kind = core.lock_take(self.path .. "/.lock", about, LOCK_SECONDS)
  if held then
    self.lock = held
    if not keeps then log.warn("%s: this file system has no locks; let no other run use this folder", self.path) end
  elseif kind == "invalid" then
    failure(2, "the run folder %s is in use by %s; wait for its end or stop it, or give another --out", self.path,
      keeps)
  else
    failure(2, "%s", keeps)
  end
end

local function make(self)
  if self.given then
    core.make_folders(self.path)
  else
    core.make_folders(BASE)
    core.make_new_folder(self.path)
  end
end

--- Makes the folder and its first files. A second call does nothing.
function Rundir:open()
  if self.opened then return self.path end
  self.opened = true
  if core.rank() > 0 then return self.path end
  local made, reason = failure.try(make, self)
  if not made then failure(2, "%s", (failure.text(reason):gsub("^%S+%.lua:%d+: ", ""))) end
  lock(self)
  if self.given then
    if not self.resumes then runs_folder.refuse_older(self.path) end
  else
    local ok, why = failure.try(core.point_link, BASE .. "/latest", self.path:match "[^/]+$")
    if not ok then log.warn("%s", why) end
  end
  self.ours = true -- from here on its files are those of this run
  core.write_whole(self.path .. "/config.lua", self.text or "")
  os.remove(self.path .. "/stats.json") -- that of an older run would be taken for this one's
  for _, name in ipairs(self.resumes and {} or { "events.jsonl", "requests.jsonl", "plan.json" }) do
    os.remove(self.path .. "/" .. name)
  end
  if self.plan then core.write_whole(self.path .. "/plan.json", self.plan) end
  core.write_whole(self.path .. "/env.json", json.encode(self:environment(), { indent = true }) .. "\n")
  log.info("run folder %s", self.path)
  return self.path
end

--- Says that the run continues after that step, and so does metrics.jsonl. is_whole: that of MetricsFile.
function Rundir:begin(step, is_whole)
  self:open()
  if core.rank() == 0 then self.metrics = MetricsFile(self.path .. "/metrics.jsonl", step, is_whole) end
end

--- Writes one line of metrics.jsonl.
function Rundir:write(event) self.metrics:write(event) end

function Rundir:close()
  if self.metrics then self.metrics:close() end
  if self.lock then self.lock:close() end
  self.metrics, self.lock = nil, nil
end

return setmetatable(Rundir, { __call = new })
