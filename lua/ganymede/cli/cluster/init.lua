--- ganymede cluster FILE: runs the jobs of a table under a policy that decides who has which ranks.
--
-- The policies are those of ganymede.cluster, and the same functions decide in its simulator. Jobs run on the rank
-- slots of this machine (ganymede.cli.cluster.here) or on Slurm (slurm). All is checked and every job rehearsed before
-- the first one starts. What happens is recorded in the folder (record), so that the same command goes on after Ctrl-C
-- or a kill. The trap: --policy and --interval are no part of the folder's identity; they may change when it continues.
local columns = require "ganymede.cli.columns"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local policies = require "ganymede.cluster.policies"
local session = require "ganymede.job.session"

local verb = { prints = true, keeps_words = true,
  summary = "run several jobs under a policy that shares the ranks between them" }

verb.examples = { "ganymede cluster jobs.lua", "ganymede cluster jobs.lua --policy tiresias --slots 4",
  "ganymede cluster jobs.lua --slurm --out runs/night" }

function verb.arguments(parser)
  parser:argument("file", "a Lua file that returns the table of jobs")
  parser:option("--policy", "who gets which ranks (default: the file's, or elastic)"):choices(policies.names)
  parser:option("--slots", "ranks that may run on this machine at a time (default: the file's nodes, or the cores)")
    :argname "N":convert(session.integer(1))
  parser:option("--interval", "seconds between two decisions, in place of the file's"):argname "S"
    :convert(session.seconds(86400))
  parser:flag("--slurm", "run the jobs on Slurm, on the nodes that the file names")
  parser:option("--out", "the folder (default: one in runs/ that the file and its jobs name)"):argname "DIR"
  parser:flag("--json", "print one JSON document in place of the table")
  parser:flag("-q --quiet", "print the result alone, with warnings and errors")
end

-- ---------------------------------------------------------------- what is told

-- The mean seconds from a start to the first step, and from the last step before a change to the first one after it.
local function pause_of(record)
  local sum, count, started = 0, 0, {}
  for _, event in ipairs(record:all()) do
    if event.event == "start" then started[event.job] = event.t end
    local paused = event.event == "resized" and event.paused
      or event.event == "trains" and started[event.job] and event.t - started[event.job]
    if type(paused) == "number" then sum, count = sum + paused, count + 1 end
  end
  return count > 0 and sum / count or 0
end

local function rounded(value) return value and math.floor(value * 1000 + 0.5) / 1000 end

local function document(plan, args, jobs, predicted, pause)
  local out = { file = args.file, policy = plan.policy, nodes = json.array { unpack(plan.nodes) },
    interval = plan.interval, driver = plan.slurm and "slurm" or "here", pause = rounded(pause), jobs = json.array() }
  local sum, count = 0, 0
  for i, job in ipairs(jobs) do
    local taken = job.state == "done" and job.ended - job.submitted or nil
    if taken then sum, count = sum + taken, count + 1 end
    local rates = json.array()
    for k, cell in ipairs(job.application:cells()) do
      rates[k] = { nodes = cell.nodes, ranks = cell.replicas, batch = job.largest and cell.batch,
        seconds = rounded(cell.seconds / cell.steps) }
    end
    local noise, worth = job.application:noise(job.has_batch)
    out.jobs[i] = { name = job.name, recipe = job.recipe, state = job.state, why = job.why, steps = job.epoch,
      of = job.total, arrived = job.submitted, waited = job.began and rounded(job.began - job.submitted),
      seconds = rounded(taken), predicted = rounded(predicted[job.name]), starts = job.starts, changes = job.changes,
      least = job.least_had, most = job.most_had, rank_seconds = rounded(job.attained), step_seconds = rates,
      batch = job.has_batch, first_batch = job.batch, batch_changes = job.rebatched,
      noise_scale = noise and noise < math.huge and rounded(noise) or nil,
      twice_the_batch = rounded(worth) }
  end
  out.mean = count > 0 and rounded(sum / count) or nil
  return out
end

local function cell(fmt, value) return value and fmt:format(value) or "-" end

local function print_table(found)
  local rows = { { "job", "ranks", "steps", "arrived", "waited", "seconds", "predicted", "starts", "changes",
    "state" } }
  for _, job in ipairs(found.jobs) do
    local ranks = job.least and (job.least == job.most and ("%d"):format(job.least)
      or ("%d-%d"):format(job.least, job.most)) or "-"
    rows[#rows + 1] = { job.name, ranks, ("%d"):format(job.steps), ("%.1f"):format(job.arrived),
      cell("%.1f", job.waited), cell("%.1f", job.seconds), cell("%.1f", job.predicted), ("%d"):format(job.starts),
      ("%d"):format(job.changes), job.state }
  end
  for _, line in ipairs(columns.lines(rows, columns.numbers)) do print(line) end
  print(("\n%s: mean seconds from arrival to end: %s"):format(found.policy, cell("%.1f", found.mean)))
  for _, job in ipairs(found.jobs) do
    if job.batch_changes > 0 then
      print(("%s: batch %d at first, %d at its end, %d change%s"):format(job.name, job.first_batch, job.batch,
        job.batch_changes, job.batch_changes == 1 and "" or "s"))
    end
    if job.twice_the_batch then
      print(("%s: noise scale %s samples, batch %d: a step of twice the batch is worth %.2f steps"):format(job.name,
        job.noise_scale and ("%.4g"):format(job.noise_scale) or "beyond measure", job.batch, job.twice_the_batch))
    end
  end
  for _, job in ipairs(found.jobs) do
    if job.why then print(("%s: %s"):format(job.name, job.why)) end
  end
end

-- ---------------------------------------------------------------- the verb

local function refuse(args)
  if launcher.expected() > 1 or core.link_rank() then
    failure(2, "a cluster starts its jobs itself; start it without mpirun or srun")
  end
  if args.slurm and args.slots then failure(2, "--slots is for this machine; with --slurm the file's nodes count") end
  local missing = args.slurm and require("ganymede.cli.cluster.slurm").missing()
  if missing then failure(2, "%s", missing) end
end

local function name_of(path) return (path:match "([^/]*)$":gsub("%.lua$", ""):gsub("[^%w_.-]", "-")) end

local function cluster(args)
  refuse(args)
  session.open_device { device = "meta" }
  local plan = require("ganymede.cli.cluster.file").read(args.file, { policy = args.policy, slots = args.slots,
    slurm = args.slurm, cores = machine.cores() or 1 })
  plan.interval = args.interval or plan.interval
  local path = args.out or ("runs/%s-cluster-%s"):format(name_of(args.file), plan.id:sub(1, 8))
  local record = require "ganymede.cli.cluster.record"(path, { id = plan.id, policy = plan.policy })
  local scheduler = require "ganymede.cli.cluster.scheduler"
  return failure.protect(function() record:close() end, function()
    log.info("%d jobs, %d places, policy %s, in %s%s", #plan.jobs, require("ganymede.cluster.nodes").total(plan.nodes),
      plan.policy, path, record.continues and " (continues)" or "")
    local driver = require("ganymede.cli.cluster." .. (args.slurm and "slurm" or "here")).new(plan, record)
    local jobs = scheduler.run(plan, driver, record)
    local pause = pause_of(record)
    local found = document(plan, args, jobs, scheduler.predict(plan, jobs, pause), pause)
    record:write("end", nil, {})
    record:save(found)
    return found
  end)
end

function verb.run(args)
  if args.quiet then log.level = math.min(log.level, 1) end
  local found = session.with_signals({}, cluster, args)
  if args.json then print(json.encode(found, { indent = true })) else print_table(found) end
  for _, job in ipairs(found.jobs) do
    if job.state ~= "done" then failure(1, "not all jobs came to their ends") end
  end
end

return verb
