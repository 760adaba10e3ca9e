--- ganymede report RUN...: writes one HTML page about runs, side by side (ganymede.observe.report).
--
-- It reads what the folders of the runs hold. What modules hold on rank 0 is not among it: `check` rehearses the
-- settings of each run for that, in a process of its own. What is missing is said on the page.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local rehearsal = require "ganymede.job.rehearsal"

local verb = { summary = "write one HTML page about runs: curves, settings, memory, communication" }

verb.examples = { "ganymede report runs/latest", "ganymede report runs/a runs/b --out compared.html" }

function verb.arguments(parser)
  parser:argument("runs", "folders of runs; of a sweep, all of its runs"):args "+"
  parser:option("--out", "the page that is written (default: report.html)"):argname "FILE"
  parser:flag("--no-rehearsal", "leave out what modules hold, which `check` finds out for each run")
end

-- Adds the folders of the runs of a sweep.
local function add_sweep(path, out)
  for _, name in ipairs(core.list_folder(path)) do
    if name:match "^%d%d%d+$" then out[#out + 1] = path .. "/" .. name end
  end
end

local function folders(args)
  local out = {}
  for _, path in ipairs(args.runs) do
    if core.is_file(path .. "/sweep.json") then add_sweep(path:gsub("/+$", ""), out) else out[#out + 1] = path end
  end
  return out
end

-- Rehearses the settings of a run as its rank 0.
local function rehearse(run)
  local path = run.path .. "/config.lua"
  if not core.is_file(path) then
    run.modules_why = path .. " is not there, so no rehearsal was made"
    return
  end
  local found, failed = rehearsal { recipe = path, ranks = run.env and run.env.world or 1 }
  run.modules = found and found.modules
  if not found then run.modules_why = "the settings could not be rehearsed: " .. failed.text end
end

local function report(args)
  local read, runs = require "ganymede.observe.report.read", {}
  local path = args.out or "report.html"
  for i, folder in ipairs(folders(args)) do runs[i] = read(folder) end
  if #runs == 0 then failure(2, "the sweep has no run yet") end
  local ok, why = core.check_writable(path)
  if not ok then failure(2, "--out: %s", why) end
  for _, run in ipairs(runs) do
    run.modules_why = "no rehearsal was made (--no-rehearsal)"
    if not args.no_rehearsal then rehearse(run) end
    if run.modules_why and not run.modules then run.missing[#run.missing + 1] = { "modules", run.modules_why } end
  end
  local html = require "ganymede.observe.report"(runs)
  core.write_whole(path, html)
  log.result(("%s: %d run%s, %s"):format(path, #runs, #runs == 1 and "" or "s", machine.bytes(#html)))
end

function verb.run(args)
  require("ganymede.job.session").with_signals({}, rehearsal.with_workers, report, args)
end

return verb
