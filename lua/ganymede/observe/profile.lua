--- Profiles measure what each op of a training step costs on this device, as a table or as JSON.
--
--     local profiler = profile.attach(trainer, { skip = 3, steps = 20 })   -- times steps 4 to 23; or attach(engine)
--     ... train ...
--     profiler:write "profile.txt"           -- tables; "profile.json": the numbers
--
-- Every call of an op is timed, on a GPU by events on its stream, so that the host does not wait (kernels/profile.h). A
-- line of the first table is an op with the dtype and shapes of its first inputs, one of the second a module, with
-- what is inside it and without. `bytes` is the least that it must move and `flops` what it must compute
-- (kernels/cost.c); compare GB/s and TFLOP/s with those of the device. Only rank 0 is timed.
-- The traps: collectives and copies to and from the host are not ops; the part of a step in no op (`other`) belongs to
-- them or to the host. Each op is timed with a gap before it, so small ops look slower than they are.
-- @module ganymede.observe.profile
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local profile_lines = require "ganymede.observe.profile_lines"
local ranks = require "ganymede.job.ranks"
local signature = require "ganymede.base.signature"

local profile = {}

local function fit(text, width)
  return #text <= width and text .. (" "):rep(width - #text) or text:sub(1, width - 3) .. "..."
end

local function header(add, document, total)
  local steps = math.max(1, document.steps)
  add("%s, %s, %d steps of %.3f ms; %.3f ms of each in ops, %.3f ms other", document.device, document.dtype,
    document.steps, 1e3 * document.seconds / steps, 1e3 * total / steps, 1e3 * (document.seconds - total) / steps)
  add("%9s %6s %8s %9s %9s  %s", "ms/step", "share", "calls", "GB/s", "TFLOP/s", "op")
end

local function add_modules(add, document, total)
  local steps = math.max(1, document.steps)
  add ""
  add("%9s %6s %9s %8s %9s  %s", "ms/step", "share", "own", "calls", "TFLOP/s", "module, with its parts")
  for _, m in ipairs(document.modules) do
    add("%9.4f %5.1f%% %9.4f %8.1f %9s  %s", 1e3 * m.seconds / steps, total > 0 and 100 * m.seconds / total or 0,
      1e3 * m.own / steps, m.calls / steps,
      m.seconds > 0 and ("%.3f"):format(m.flops / m.seconds / 1e12) or "-", m.module == "" and "(none)" or m.module)
  end
end

--- Returns a document as the lines of its tables. document: { device, dtype, steps, seconds (of all steps), lines,
-- modules (or nil) }.
function profile.table(document)
  local steps, total, out = math.max(1, document.steps), 0, {}
  for _, line in ipairs(document.lines) do total = total + line.seconds end
  local function add(fmt, ...) out[#out + 1] = fmt:format(...) end
  header(add, document, total)
  for _, line in ipairs(document.lines) do
    local seconds = line.seconds > 0 and line.seconds or nil
    add("%9.4f %5.1f%% %8.1f %9s %9s  %s %s", 1e3 * line.seconds / steps,
      total > 0 and 100 * line.seconds / total or 0, line.calls / steps,
      seconds and ("%.1f"):format(line.bytes / seconds / 1e9) or "-",
      seconds and ("%.3f"):format(line.flops / seconds / 1e12) or "-", fit(line.op, 22), line.about)
  end
  if document.modules then add_modules(add, document, total) end
  return out
end

local attach_options = {
  skip = { type = "integer", min = 0, default = 3, doc = "the number of first steps that are not timed" },
  steps = { type = "integer", min = 1, default = 20, doc = "the number of steps that are timed" },
}

local Profiler = {}
Profiler.__index = Profiler

local function start(self)
  core.synchronize()
  core.profile_start()
  self.running, self.began = true, core.now()
end

function Profiler:step()
  self.seen = self.seen + 1
  if self.running and self.seen == self.opt.skip + self.opt.steps then self:stop() end
  if self.seen == self.opt.skip then start(self) end
end

--- Ends timing and waits for the device. A second call does nothing.
function Profiler:stop()
  if not self.running then return end
  self.running = false
  core.synchronize()
  local seconds, lines = core.now() - self.began, core.profile_stop()
  self.document = { version = 1, device = core.device().description, dtype = core.default_dtype(),
    steps = self.seen - self.opt.skip, seconds = seconds, lines = json.array(profile_lines.by_op(lines)),
    modules = json.array(profile_lines.by_module(lines)) }
end

--- Begins to time the steps of a trainer, or of an engine in a loop of one's own: opt.steps of them, after opt.skip
-- others.
function profile.attach(trainer, opt)
  opt = options.check("profile.attach", attach_options, opt, 2)
  local self = setmetatable({ opt = opt, seen = 0 }, Profiler)
  if not ranks.is_first() then return self end
  local point = trainer.engine and "on_step" or "on_update" -- an engine has none
  local before = trainer[point]
  trainer[point] = function(...)
    if before then before(...) end
    self:step()
  end
  if opt.skip == 0 then start(self) end
  return self
end

--- Ends timing and writes the result: JSON if the path ends with .json, otherwise the table. If no step was timed, it
-- returns nil and the reason.
function Profiler:write(path)
  if not ranks.is_first() then return true end
  self:stop()
  if not self.document or self.document.steps == 0 then
    return nil, ("nothing was timed: the run made %d steps, and the first %d warm up"):format(self.seen, self.opt.skip)
  end
  local text = path:match "%.json$" and json.encode(self.document, { indent = true })
    or table.concat(profile.table(self.document), "\n")
  core.write_whole(path, text .. "\n")
  return true
end

signature.export("profiler", Profiler, ":")
return missing.guard("profile", signature.export("profile", profile, nil, nil, { attach = attach_options }))
