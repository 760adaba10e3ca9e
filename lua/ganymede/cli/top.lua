--- ganymede top [JOB]: what each rank of a running job does, also while it hangs (ganymede.observe.top).
--
-- On a terminal the table is shown anew each second until the job ends or Ctrl-C; elsewhere, and with --once, once.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local jobs = require "ganymede.job.jobs"
local json = require "ganymede.base.json"
local session = require "ganymede.job.session"
local top = require "ganymede.observe.top"

local verb = { summary = "what each rank of a running job does: step, rate, memory, whom it waits for", prints = true }

verb.examples = { "ganymede top", "ganymede top runs/latest --once" }

function verb.arguments(parser)
  parser:argument("job", "the folder of a run, its name or its process (default: the only one)"):args "?"
  parser:flag("--once", "print the table once")
  parser:flag("--json", "print it once, as one JSON document")
end

local function document(job, rows)
  local about = {}
  for _, key in ipairs { "name", "recipe", "folder", "world", "batch", "host", "pid", "started" } do
    about[key] = job[key]
  end
  return json.encode({ job = about, ranks = json.array(rows), slowest = top.slowest(rows) }, { indent = true })
end

-- Whether a rank of the job is there.
local function goes_on(rows)
  for _, row in ipairs(rows) do
    if row.alive then return true end
  end
  return false
end

local HOME, REST_OF_LINE, REST = "\27[H", "\27[K\n", "\27[J"

local function watch(job)
  while true do
    local rows = top.rows(job, jobs.pages(job))
    if not goes_on(rows) then
      print "the job has ended"
      return
    end
    local lines = top.lines(job, rows, core.terminal_columns())
    io.stdout:write(HOME, table.concat(lines, REST_OF_LINE), REST_OF_LINE, REST)
    io.stdout:flush()
    core.sleep(1)
  end
end

-- Ctrl-C is how a user leaves.
local function until_left(job)
  io.stdout:write "\27[2J"
  local ok, err = pcall(watch, job)
  if not ok and failure.code(err) ~= 130 then error(err, 0) end
end

function verb.run(args)
  return session.with_person(true, function()
    core.signals_arm(true)
    local job = jobs.find(args.job, jobs.PATIENCE)
    if not (args.once or args.json) and core.is_terminal(1) then return until_left(job) end
    local rows = top.rows(job, jobs.pages(job))
    print(args.json and document(job, rows) or table.concat(top.lines(job, rows), "\n"))
  end)
end

return verb
