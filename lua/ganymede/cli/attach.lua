--- ganymede attach [JOB]: a prompt whose lines run in a running job, on all its ranks, between two steps.
--
-- JOB is the folder of a run, its name, or its process; without it, the only job of this user. --run runs one line, for
-- scripts. History: that of the repl.
local jobs = require "ganymede.job.jobs"
local session = require "ganymede.job.session"

local verb = { summary = "run lines in a running job, between its steps" }

verb.examples = { "ganymede attach", "ganymede attach runs/latest --run optimizer.lr=1e-4",
  "ganymede attach runs/latest --run :checkpoint" }

function verb.arguments(parser)
  parser:argument("job", "the folder of a run, its name or its process (default: the only one)"):args "?"
  parser:option("--run", "run one line, print what came of it, and end: status 1 if it failed"):argname "LINE"
  parser:option("--limit", "seconds that a line may take (default 60)"):argname "S":convert(session.seconds(3600))
end

function verb.run(args)
  return session.with_person(true, function()
    local job = jobs.find(args.job, jobs.PATIENCE)
    local attach = require "ganymede.repl.attach"
    if args.run then return attach.line(job, args.run, args.limit) end
    return attach.interact(job, require("ganymede.cli.repl").history_file(), args.limit)
  end)
end

return verb
