--- The folder of a run: runs/NAME-DATE-ID/ with config.lua, env.json, metrics.jsonl and checkpoints/.
--
-- Nothing exists before open(), which the trainer's first sign of life calls: a wrong recipe leaves nothing.
-- runs/latest points to the newest run. With --out the folder is the user's own, and may hold an older run:
-- one that is resumed gets more lines in metrics.jsonl, any other loses the old ones. Of several ranks, rank 0 chooses
-- the path, and it alone makes and writes anything; Rundir {} is collective, the methods are not.
local core = require "ganymede.core"
local failure = require "ganymede.failure"
local json = require "ganymede.json"
local log = require "ganymede.log"
local version = require "ganymede.version"

local Rundir = {}
Rundir.__index = Rundir

local BASE = "runs"

--- opt: name, out (or nil), text (resolved settings as Lua), argv (list), resumes (an older run of the folder?)
local function new(_, opt)
  local self = setmetatable({ name = opt.name, given = opt.out, text = opt.text, argv = opt.argv or {},
    resumes = opt.resumes }, Rundir)
  self.path = opt.out or require("ganymede.launcher").of_rank_0(("%s/%s-%s-%s"):format(BASE, opt.name,
    os.date "%Y%m%d-%H%M%S", self:id()))
  return self
end

-- Tells runs apart that begin in the same second.
function Rundir.id()
  local wall = core.wall()
  return ("%05x"):format((core.process().pid * 7919 + math.floor(wall % 1 * 1e6)) % 2 ^ 20)
end

--- What the run ran on, for whoever reads it next year.
function Rundir:environment()
  local device, process = core.device(), core.process()
  return {
    version = version, luajit = jit.version, host = process.host, pid = process.pid, world = core.world(),
    device = device.name, backend = device.backend, threads = device.threads,
    started = os.date "!%Y-%m-%dT%H:%M:%SZ", argv = json.array { unpack(self.argv) },
  }
end

--- Makes the folder and its first files; does nothing the second time.
function Rundir:open()
  if self.opened then return self.path end
  self.opened = true
  if core.rank() > 0 then return self.path end
  if self.given then
    core.make_folders(self.path)
    if not self.resumes and #core.list_folder(self.path .. "/checkpoints") > 0 then
      log.warn("%s holds checkpoints of an earlier run, which --resume would find", self.path)
    end
  else
    core.make_folders(BASE)
    core.make_new_folder(self.path)
    local ok, why = failure.try(core.point_link, BASE .. "/latest", self.path:match "[^/]+$")
    if not ok then log.warn("%s", why) end
  end
  core.write_whole(self.path .. "/config.lua", self.text or "")
  core.write_whole(self.path .. "/env.json", json.encode(self:environment(), { indent = true }) .. "\n")
  local file, why = io.open(self.path .. "/metrics.jsonl", self.resumes and "a" or "w")
  if not file then error("cannot write the metrics: " .. why, 0) end
  self.metrics = file
  log.info("run folder %s", self.path)
  return self.path
end

--- One line of metrics.jsonl.
function Rundir:write(event)
  self:open()
  if self.metrics then self.metrics:write(json.encode(event), "\n") end
end

function Rundir:close()
  if self.metrics then self.metrics:close() end
  self.metrics = nil
end

return setmetatable(Rundir, { __call = new })
