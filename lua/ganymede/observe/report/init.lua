--- Writes a report of runs: one page of HTML that needs nothing else, no network and no script.
--
--     local html = report { read "runs/a", read "runs/b" }
--
-- @module ganymede.observe.report
local chart = require "ganymede.observe.report.chart"
local parts = require "ganymede.observe.report.parts"
local style = require "ganymede.observe.report.style"
local version = require "ganymede.base.version"

local sections = {
  { "Runs", "overview" }, { "Curves", "curves" }, { "Settings that differ", "settings" },
  { "Throughput", "throughput" }, { "Checkpoints, changes of ranks and batches, restarts", "events" },
  { "Memory by rank", "memory" }, { "Memory by module", "modules" },
  { "Communication by axis", "communication" }, { "Lines from outside", "requests" },
  { "Trace", "trace" }, { "Ops", "profile" }, { "Environment", "environment" }, { "What is missing", "missing" },
}

-- Gives every run a title of its own: the shortest end of its path that no other run has.
local function name(runs)
  local count = {}
  for _, run in ipairs(runs) do count[run.name] = (count[run.name] or 0) + 1 end
  for _, run in ipairs(runs) do run.title = count[run.name] > 1 and run.path or run.name end
end

--- Returns the page. runs: what ganymede.observe.report.read returned, each with modules, or modules_why, if wanted.
return function(runs)
  name(runs)
  local titles, out = {}, {}
  for i, run in ipairs(runs) do titles[i] = chart.escaped(run.title) end
  for i, section in ipairs(sections) do
    local title = section[2] == "settings" and #runs == 1 and "Settings" or section[1]
    out[i] = ("<section id=\"%s\"><h2>%s</h2>\n%s\n</section>"):format(section[2], title, parts[section[2]](runs))
  end
  return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-'
    .. 'width"><title>%s</title>\n<style>\n%s</style></head>\n<body><h1>%s</h1><p class="dim">Ganymede %s</p>\n%s\n'
    .. "</body></html>\n"):format(table.concat(titles, ", "), style, table.concat(titles, ", "), version,
    table.concat(out, "\n"))
end
