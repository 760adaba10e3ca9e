--- ganymede resize [JOB] -n M: a running job goes on with other ranks, or another mesh (ganymede.job.elastic), or with
-- another batch (--batch, ganymede.train.adaptive_batch), which its own ranks take up where -n is not given.
--
-- JOB is the folder of a run, its name, or its process; without it, the only job of this user. The job decides. Where
-- it refuses, it goes on as it was, and the verb ends with status 1. Ctrl-C leaves the job to finish what it has begun.
-- While a process of the job is stopped, the verb says so, and waits.
local core = require "ganymede.core"
local elastic = require "ganymede.job.elastic"
local failure = require "ganymede.base.failure"
local jobs = require "ganymede.job.jobs"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local session = require "ganymede.job.session"
local silence = require "ganymede.observe.silence"

local verb = { summary = "change the number of ranks, or the batch, of a running job", prints = true }

verb.examples = { "ganymede resize runs/latest -n 8", "ganymede resize -n 2 --batch 64",
  "ganymede resize -n 4 --set parallel.data.size=2 --set parallel.pipeline.size=2" }

function verb.arguments(parser)
  parser:argument("job", "the folder of a run, its name or its process (default: the only one)"):args "?"
  parser:option("-n --ranks", "number of ranks from the next steps on"):argname "M":convert(session.integer(1))
  parser:option("--set", "how these share the work: a key of parallel or zero, schedule, num_microbatches, recompute; "
    .. "may be repeated (default: the first of parallel.shrink grows, these shrink)"):count "*":argname "KEY=VALUE"
  parser:option("--batch", "data.batch_size from the next steps on, of a recipe with adaptive_batch; alone or with -n")
    :argname "N":convert(session.integer(1))
  parser:option("--limit", "give up after S seconds (default 600); the job goes on as it was"):argname "S"
    :convert(session.seconds(86400))
  parser:flag("--last", "for the script of a job of Slurm: print the words that start as many ranks as the run JOB had "
    .. "last in that job"):hidden(true)
  parser:flag("--json", "print what came of it as one JSON document")
end

-- What can be done where the allocation of Slurm has no room for so many ranks.
local function advice(job, ranks)
  local id = tostring(job.launched.job):match "^%d+$" or "JOB"
  return ("For other machines have it save and end (where it was submitted with --requeue, it then waits in the queue: "
    .. "scancel %s takes it out):\n  scancel --signal=TERM %s\nand submit `ganymede slurm %s -N MACHINES --out %s`, "
    .. "which goes on from its checkpoint with %d ranks"):format(id, id, job.recipe or "RECIPE", job.folder or "RUN",
    ranks)
end

local SOON = 2 -- seconds in which a supervisor listens beside ranks that have taken over

-- Reaches who can start ranks for a job -> the connection: its supervisor, or rank 0 of ranks that srun has started.
-- by_ranks: rank 0 serves the request in any case.
local function connect(job, by_ranks)
  local launched = type(job.launched) == "table" and job.launched or {}
  local path = job.path .. "/" .. ((by_ranks or launched.by == "srun") and "requests" or elastic.CONTROL)
  local ends = core.now() + (job.supervisor and SOON or 0)
  repeat
    local connection = core.request_connect(path)
    if connection then return connection end
  until core.now() > ends or not pcall(core.sleep, 0.02)
  if by_ranks or launched.by == "srun" then failure(1, "%s: rank 0 does not listen", job.name) end
  failure(1, "%s: nobody can start ranks for this job: %s", job.name, launched.by and launched.by ~= "nobody"
    and launched.by .. " started its ranks; stop it with SIGTERM and start it with the new number and --resume auto"
    or "it is one process without --max-restarts")
end

-- The answer of the job.
local function ask(job, request)
  local connection, look = connect(job, request.kind == "batch"), silence(job, request.kind == "batch")
  return failure.protect(function() connection:close() end, function()
    if not connection:send(json.encode(request)) then failure(1, "the job has ended") end
    while true do
      local text, why = connection:receive(0.5)
      if text then return json.decode(text, "the answer of the job") end
      if why == "gone" then failure(1, "the job has ended before it answered") end
      if why == "interrupted" then failure(130, "interrupted; what the job has begun goes on") end
      look()
    end
  end)
end

local function counted(n) return ("%d rank%s"):format(n, n == 1 and "" or "s") end

local function said(job, answer)
  local sets = #answer.sets > 0 and " (" .. table.concat(answer.sets, ", ") .. ")" or ""
  return ("%s: %s%s from step %d on, before it %d%s; training paused for %.2f s, the new ranks took %.1f s to build%s")
    :format(job.name, counted(answer.ranks), sets, answer.step + 1, answer.before,
    answer.batch and ("; batch %d"):format(answer.batch) or "", answer.paused, answer.built,
    answer.place == "memory" and "" or "; the state went over the disk")
end

local function is_given(value) return value and not (type(value) == "table" and #value == 0) end

-- Another batch for the ranks that there are.
local function change_batch(job, args)
  for _, name in ipairs { "limit", "set" } do
    if is_given(args[name]) then failure(2, "resize: --%s is for other ranks: give it with -n M", name) end
  end
  local answer = ask(job, { kind = "batch", batch = args.batch })
  local refused = answer.refused or answer.failed and answer.texts[1]
  if refused then failure(1, "refused: %s", refused) end
  local found = { step = answer.step, batch = args.batch }
  print(args.json and json.encode(found, { indent = true })
    or ("%s: batch %d from step %d on"):format(job.name, args.batch, answer.step + 1))
end

-- Prints how the script of a job that was put back starts the run.
local function last(args)
  for _, name in ipairs { "ranks", "batch", "limit", "json", "set" } do
    if is_given(args[name]) then failure(2, "resize: --last takes the folder of a run alone, not --%s", name) end
  end
  if not args.job then failure(2, "resize: --last takes the folder of a run") end
  local words, why = require("ganymede.job.steps").last_size(args.job)
  if why then log.warn("%s", why) end
  print(table.concat(words, " "))
end

function verb.run(args)
  if args.last then return last(args) end
  if not (args.ranks or args.batch) then failure(2, "resize: say how many ranks, with -n M, or --batch N") end
  return session.with_person(true, function()
    local job = jobs.find(args.job, jobs.PATIENCE)
    if not args.ranks then return change_batch(job, args) end
    log.info("%s, %s: the new ranks are built while these train", job.name, counted(job.world))
    local answer = ask(job, { kind = "resize", ranks = args.ranks, sets = json.array(args.set or {}),
      limit = args.limit, batch = args.batch })
    if answer.refused then
      failure(1, "refused: %s%s", answer.refused, answer.beyond and ". " .. advice(job, args.ranks) or "")
    end
    print(args.json and json.encode(answer, { indent = true }) or said(job, answer))
  end)
end

return verb
