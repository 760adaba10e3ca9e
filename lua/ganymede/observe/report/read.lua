--- Reads what the folder of a run holds, for a report: settings, environment, metrics, statistics, prediction, trace.
--
--     local run = read "runs/first-20261125-120000-ab12c"
--     run.steps, run.tests, run.requests, run.events, run.settings, run.env, run.stats, run.plan, run.trace
--     run.missing                -- list of { what, why and how to have it }
--
-- Files of a run are data: nothing in them is executed. A trace or profile is one that the folder has (trace.json,
-- profile.json), or that the run's command line names (--trace FILE), if it is there. A file that cannot be read is
-- missing, and the report says why; only a folder without any file of a run is an error (status 2).
-- @module ganymede.observe.report.read
local core = require "ganymede.core"
local document = require "ganymede.observe.document"
local failure = require "ganymede.base.failure"
local flat = require "ganymede.observe.flat"
local literal = require "ganymede.base.literal"
local machine = require "ganymede.base.machine"
local MetricsFile = require "ganymede.observe.metrics_file"

-- Returns the settings by path, as stats.json or config.lua has them; nil and why not.
local function settings_of(run)
  if run.stats and type(run.stats.resolved) == "table" and next(run.stats.resolved) then
    return flat(run.stats.resolved)
  end
  local text = machine.read(run.path .. "/config.lua")
  if not text then return nil, run.path .. "/config.lua is not there" end
  local ok, value, why = pcall(literal.parse, (text:gsub("^%s*return%s+", ""):gsub("%s+$", "")))
  if ok and type(value) == "table" then return flat(value) end
  return nil, ("%s/config.lua is no table of plain values (%s)"):format(run.path, ok and why or failure.text(value))
end

-- Returns the value of a flag on the run's command line; nil: it was not given.
local function flag(run, name)
  local argv = run.env and run.env.argv or {}
  for i, word in ipairs(argv) do
    if word == name then return argv[i + 1] end
    if type(word) == "string" and word:sub(1, #name + 1) == name .. "=" then return word:sub(#name + 2) end
  end
end

-- Adds a document that a flag of `run` makes.
local function add_made(run, key, flag_name)
  local own, named = ("%s/%s.json"):format(run.path, key), flag(run, flag_name)
  local path = core.is_file(own) and own or named and named:match "%.json$" and named or nil
  local value, why
  if path then value, why = document(path) end
  run[key] = value
  if not value then
    run.missing[#run.missing + 1] = { key, (why or "the run has none") .. "; ganymede run ... " .. flag_name .. " "
      .. key .. ".json makes one" }
  end
end

local function split_events(run)
  run.steps, run.tests = {}, {}
  for _, event in ipairs(MetricsFile.read(run.path .. "/metrics.jsonl")) do
    table.insert(type(event.test) == "table" and run.tests or run.steps, event)
  end
end

--- Reads a run.
local function read(path)
  path = #path > 1 and path:gsub("/+$", "") or path
  local run = { path = path, name = path:match "[^/]+$" or path, missing = {} }
  local has = false
  for _, name in ipairs { "metrics.jsonl", "config.lua", "env.json", "stats.json" } do
    has = has or core.is_file(path .. "/" .. name)
  end
  if not has then failure(2, "%s is no folder of a run: it has neither metrics.jsonl nor config.lua", path) end
  split_events(run)
  local function miss(what, why) run.missing[#run.missing + 1] = { what, why } end
  local function take(key, name, hint)
    local value, why = document(path .. "/" .. name)
    run[key] = value
    if not value and hint then miss(key, why .. hint) end
  end
  take("stats", "stats.json", "; a run writes it at its end")
  take("env", "env.json", "")
  take("plan", "plan.json", nil)
  local why
  run.settings, why = settings_of(run)
  if not run.settings then miss("settings", why) end
  run.requests = MetricsFile.read(path .. "/requests.jsonl")
  run.events = MetricsFile.read(path .. "/events.jsonl")
  if #run.steps == 0 then miss("metrics", path .. "/metrics.jsonl has no step") end
  add_made(run, "trace", "--trace")
  add_made(run, "profile", "--profile")
  return run
end

return read
