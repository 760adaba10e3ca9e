--- What happens to a run besides its steps, and how long it takes: events.jsonl in its folder.
--
--     run_events.note("runs/x", { event = "checkpoint", step = 40, seconds = 0.3, background = true })
--     run_events.append("runs/x/requests.jsonl", { step = 40, kind = "line" })
--
-- A line of JSON for each event: time (UTC), event, step (steps made), seconds, and what the event says:
--   checkpoint   seconds in which training stood still for it; background: whether it was written beside training;
--                failed: why it could not be saved
--   resize       seconds from the last step of the ranks before to the beginning of the others; before, ranks; built,
--                saved, read: seconds of these parts, of which the first one took place beside training
--   restart      seconds from the end of the ranks that failed to the beginning of the next ones; ranks; why
-- They are no lines of metrics.jsonl, which is the same for the same run, however often it is stopped and goes on.
-- Writing never ends a run: what cannot be written is said.
-- @module ganymede.job.run_events
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local own = require "ganymede.base.own"

local run_events = {}

--- Appends an entry, with its time, to a file of lines of JSON.
function run_events.append(path, entry)
  entry.time = os.date "!%Y-%m-%dT%H:%M:%SZ"
  local ok, why = failure.try(function()
    local file = core.append_open(path)
    local written, reason = file:write(json.encode(entry) .. "\n")
    file:close()
    if not written then error(reason, 0) end
  end)
  if not ok then log.warn("%s", own.without_place(failure.text(why))) end
end

--- Notes an event of the run in a folder.
function run_events.note(folder, event) run_events.append(folder .. "/events.jsonl", event) end

return run_events
