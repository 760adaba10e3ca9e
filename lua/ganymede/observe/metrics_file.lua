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
local json = require "ganymede.base.json"
local WaitingFile = require "ganymede.observe.waiting_file"

local MetricsFile = {}
MetricsFile.__index = MetricsFile

local WAIT_AT_MOST = 100000 -- lines, some 15 MB

-- Returns the lines of an older run that a run which continues from that step keeps: not those of later steps, and not
-- incomplete ones.
local function kept(path, step)
  local lines = {}
  json.each_line(path, function(event, line)
    if type(event.step) == "number" and event.step <= step then lines[#lines + 1] = line .. "\n" end
  end)
  return lines
end

--- Returns the entries of a file, without lines that are incomplete; an empty list if there is no file.
function MetricsFile.read(path)
  local events = {}
  json.each_line(path, function(event)
    if type(event.step) == "number" then events[#events + 1] = event end
  end)
  return events
end

--- Opens the file. step: the number of steps that the run has already made; 0: the old contents are dropped.
-- is_whole: the file is known to hold those of this run until then, and nothing else, and is left as it is.
local function new(_, path, step, is_whole)
  local lines = step > 0 and not is_whole and kept(path, step) or {}
  if not is_whole then core.write_whole(path, table.concat(lines)) end
  local file = WaitingFile { path = path, what = "lines", of = "metrics", most = WAIT_AT_MOST }
  return setmetatable({ file = file, last = lines[#lines] }, MetricsFile)
end

--- Adds a line. The evaluation of a step that an earlier run has already written is not written again.
function MetricsFile:write(event)
  local line = json.encode(event) .. "\n"
  if line == self.last then return end
  self.last = line
  self.file:write(line)
end

--- Closes the file, and warns if lines could not be written.
function MetricsFile:close() self.file:close() end

return setmetatable(MetricsFile, { __call = new })
