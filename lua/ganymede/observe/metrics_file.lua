--- Writes metrics.jsonl of a run: one line of JSON for every step and evaluation, each whole and once.
--
--     local file = MetricsFile("runs/x/metrics.jsonl", 1200)    -- keeps the lines up to step 1200 and adds to them
--     file:write { step = 1201, loss = 0.3 }
--     file:close()
--
-- The line of a step is written before the checkpoint of that step exists, so a run that is killed has all lines up to
-- its newest checkpoint. If the disk is full, lines wait in memory until there is room; warnings say so, and how many
-- lines were lost.
-- @module ganymede.observe.metrics_file
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"

local MetricsFile = {}
MetricsFile.__index = MetricsFile

local WAIT_AT_MOST = 100000 -- lines, some 15 MB

-- Returns the lines of an older run that a run which continues from that step keeps: not those of later steps, and not
-- incomplete ones.
local function kept(path, step)
  local lines = {}
  if not core.is_file(path) then return lines end
  for line in io.lines(path) do
    local ok, event = failure.try(json.decode, line, path)
    local at = ok and type(event) == "table" and event.step
    if type(at) == "number" and at <= step then lines[#lines + 1] = line .. "\n" end
  end
  return lines
end

--- Opens the file. step: the number of steps that the run has already made; 0: the old contents are dropped.
local function new(_, path, step)
  local lines = step > 0 and kept(path, step) or {}
  core.write_whole(path, table.concat(lines))
  return setmetatable({ path = path, file = core.append_open(path), last = lines[#lines], lost = 0,
    waiting = { first = 1, last = 0 } }, MetricsFile)
end

-- Writes the waiting lines, oldest first. Returns nil, or the reason why the system refuses.
local function flush(self)
  local waiting = self.waiting
  while waiting.first <= waiting.last do
    local ok, why = self.file:write(waiting[waiting.first])
    if not ok then return why end
    waiting[waiting.first], waiting.first = nil, waiting.first + 1
  end
end

local function count(waiting) return waiting.last - waiting.first + 1 end

local function add(self, line)
  local waiting = self.waiting
  if count(waiting) == WAIT_AT_MOST then
    self.lost = self.lost + 1
    return
  end
  waiting.last = waiting.last + 1
  waiting[waiting.last] = line
end

--- Adds a line. The evaluation of a step that an earlier run has already written is not written again.
function MetricsFile:write(event)
  local line = json.encode(event) .. "\n"
  if line == self.last then return end
  self.last = line
  add(self, line)
  local why = flush(self)
  if why and not self.said then
    log.warn("%s; training goes on, its lines wait in memory", why)
  elseif self.said and not why then
    log.info("%s can be written again", self.path)
  end
  self.said = why
end

--- Closes the file, and warns if lines could not be written.
function MetricsFile:close()
  local why = flush(self)
  self.file:close()
  local lost = count(self.waiting) + self.lost
  if lost > 0 then log.warn("%d lines of metrics were lost: %s", lost, why or self.path .. " was full for too long") end
end

return setmetatable(MetricsFile, { __call = new })
