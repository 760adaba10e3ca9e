--- ganymede slurm RECIPE -N NODES: writes a batch script for Slurm and submits it.
--
-- The recipe is rehearsed first, as `check` does, so that a wrong one does not wait in a queue. The script lies in the
-- folder of the run, RUN/slurm.sh, and can be read, changed and submitted again by sbatch. srun starts the ranks, which
-- find each other (host/comm/launched.h). When Slurm sends SIGTERM, because the job is preempted or its time is over,
-- they save a checkpoint and end with status 75. With --requeue the job then waits again, and continues from there in
-- the same folder: the script always runs with --resume auto. With --max-restarts the script starts the ranks again
-- after a failure, on the machines that it has; it asks this verb whether to (ganymede.job.batch_attempts). With
-- --memory-checkpoint after -- they go on from the memory of the machines (ganymede.train.neighbour_memory), from which
-- the script has all removed at the end of the job. With --min-ranks they leave out machines that have died.
-- The trap: a script starts in the folder in which it was submitted, and with its environment.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local places = require "ganymede.base.places"
local rehearsal = require "ganymede.job.rehearsal"
local session = require "ganymede.job.session"

local verb = { keeps_words = true, summary = "submit a run to Slurm, on one or several machines" }

verb.examples = {
  "ganymede slurm first.lua -N 2 --ntasks-per-node 4 --time 2:00:00 --requeue",
  "ganymede slurm first.lua -N 1 --dry-run -- --steps 100 --set optimizer.lr=3e-4",
}

local WARN = 120 -- seconds

-- What may stand in a line of #SBATCH without quotes, in words of Slurm: times, partitions, accounts.
local function plain(text)
  if text:find "^[%w_.,:@+-]+$" and not text:find "^%-" then return text end
  return nil, ("'%s' is no word of letters, digits and . , : _ + -"):format(text)
end

-- "90" (minutes), "90:30", "2:00:00", "1-12", "1-12:30", "1-12:30:00" -> seconds; nil: none of these
local function seconds_of(time)
  local days, rest = time:match "^(%d+)%-(.+)$"
  local numbers = {}
  for n in (rest or time):gmatch "%d+" do numbers[#numbers + 1] = tonumber(n) end
  if not (rest or time):find "^%d+:?%d*:?%d*$" or #numbers > 3 or (rest or time):find ":$" then return nil end
  if days then return ((tonumber(days) * 24 + numbers[1]) * 60 + (numbers[2] or 0)) * 60 + (numbers[3] or 0) end
  if #numbers == 3 then return (numbers[1] * 60 + numbers[2]) * 60 + numbers[3] end
  return numbers[1] * 60 + (numbers[2] or 0)
end

local function time(text)
  if seconds_of(text) then return text end
  return nil, ("'%s' is no time as Slurm writes it, such as 90 (minutes), 2:00:00 or 1-12:00:00"):format(text)
end

function verb.arguments(parser)
  parser:argument("recipe", "the Lua file that describes the run")
  parser:argument("options", "after --: options of `ganymede run`, such as --set or --steps"):args "*"
  parser:option("-N --nodes", "the number of machines"):argname "N":convert(session.integer(1)):count(1)
  parser:option("--ntasks-per-node", "ranks on each machine (default 1)"):argname "N":convert(session.integer(1))
  parser:option("--cpus-per-task", "cores of each rank"):argname "N":convert(session.integer(1))
  parser:option("--gpus-per-node", "GPUs on each machine"):argname "N":convert(session.integer(1))
  parser:option("--time", "the time that the job may take, such as 90 (minutes) or 2:00:00"):argname "T":convert(time)
  parser:option("--partition", "the partition, such as gpu"):argname "NAME":convert(plain)
  parser:option("--account", "the account that pays"):argname "NAME":convert(plain)
  parser:flag("--requeue", "let the job wait again when it was preempted or its time was over, until the run has ended")
  parser:option("--max-restarts", "start the ranks again, from their newest checkpoint, after one has died or hangs; "
    .. "end after K + 1 attempts in a row without a newer checkpoint"):argname "K":convert(session.integer(0))
  parser:option("--restart-delay", "with --max-restarts: seconds before a restart (default 1; none after an "
    .. "attempt that left a newer checkpoint), doubled for each one in a row without a newer checkpoint")
    :argname "S":convert(session.seconds(3600))
  parser:option("--min-ranks", "with --max-restarts: when a machine has died, go on with those that are left and at "
    .. "least M ranks"):argname "M":convert(session.integer(1))
  parser:option("--ended", "for the script of --max-restarts: the status of the ranks, or begin, over, forget")
    :hidden(true)
  parser:option("--warn", "seconds before the end of --time at which the ranks save a checkpoint and end (default 120)")
    :argname "S":convert(session.integer(10))
  parser:option("--sbatch", "another option of sbatch, such as --sbatch=--mem=64G; may be repeated"):count "*"
    :argname "OPTION"
  parser:option("--out", "the folder of the run (default: a new one in runs/); if it holds checkpoints, the run "
    .. "continues from the newest"):argname "DIR"
  parser:flag("--dry-run", "print the script, and neither write nor submit it")
end

-- ---------------------------------------------------------------- the options of run

local function parsed(words)
  local cli = require "ganymede.cli"
  local ok, result = cli.parser("run", require "ganymede.cli.run"):pparse(words)
  if not ok then failure(2, "after --, options of `ganymede run`: %s", result) end
  return result
end

local function ranks_of(args) return args.nodes * (args.ntasks_per_node or 1) end

-- Checkpoints in memory are for ranks that begin again while the machines stay.
local function refuse_memory(args)
  if not args.max_restarts then
    failure(2, "--memory-checkpoint after --: what lies in memory goes when the job ends; give --max-restarts before "
      .. "it, so that the ranks begin again in the job")
  end
  if ranks_of(args) == 1 then
    failure(2, "--memory-checkpoint after --: one rank alone keeps none in this way; give -N or --ntasks-per-node")
  end
end

-- The options after --, checked as `run` would.
local function run_options(args)
  local run = parsed { args.recipe, unpack(args.options) }
  if run.ranks then failure(2, "-n after --: Slurm starts the ranks; give -N and --ntasks-per-node before it") end
  if run.out then failure(2, "--out after --: give it before") end
  if run.resume == "auto" then failure(2, "--resume auto after --: the script always says so") end
  if run.resume then
    failure(2, "--resume %s after --: the job would begin there again after each requeue; copy it into the "
      .. "checkpoints/ of --out", run.resume)
  end
  if run.least_ranks then failure(2, "--least-ranks after --: give --min-ranks before it") end
  if run.memory_checkpoint then refuse_memory(args) end
  local wrong = run.standby and require("ganymede.job.spares").problem { out = "of the script",
    memory_checkpoint = run.memory_checkpoint, timeout = run.timeout }
  if wrong then failure(2, "after --: %s", wrong) end
  require("ganymede.cli.run").refuse_unserved(run)
  return run
end

local function rehearse(args, run)
  local found, failed = rehearsal { recipe = args.recipe, ranks = ranks_of(args),
    set = run.set, seed = run.seed, device = run.device, limit_memory = run.limit_memory }
  if not found then failure(math.max(2, failed.code), "%s", failed.text) end
  return found
end

-- ---------------------------------------------------------------- the script

-- A value of a line of #SBATCH, in quotes of its own kind. % would begin a name of Slurm in the path of the log.
local function quoted(text) return '"' .. text:gsub('[\\"]', "\\%0") .. '"' end

local function directives(args, name, folder, cwd)
  local lines = {}
  local function add(...) lines[#lines + 1] = "#SBATCH " .. table.concat({ ... }, "") end
  add("--job-name=", quoted(name))
  add("--nodes=", args.nodes)
  add("--ntasks-per-node=", args.ntasks_per_node or 1)
  for _, option in ipairs { "cpus_per_task", "gpus_per_node", "time", "partition", "account" } do
    if args[option] then add("--", option:gsub("_", "-"), "=", args[option]) end
  end
  add(args.requeue and "--requeue" or "--no-requeue")
  if args.min_ranks then add "--no-kill" end
  add("--signal=TERM@", args.warn or WARN)
  add("--chdir=", quoted(cwd))
  add("--output=", quoted(folder:gsub("%%", "%%%%") .. "/slurm-%j.log"))
  add "--open-mode=append"
  for _, option in ipairs(args.sbatch or {}) do add(option) end
  return table.concat(lines, "\n")
end

local template = [[
#!/bin/bash
# Made by `ganymede slurm`. `sbatch %s` submits it again; the run then continues from its newest checkpoint.
%s

# Slurm sends SIGTERM to the ranks, and to this script too when it takes the machines back. The ranks save a checkpoint
# and end with status 75; this script waits for them.
trap : TERM

# Task 0 runs on this machine. Ranks refuse whoever does not know the key.
export MASTER_ADDR=$(hostname)
export GANYMEDE_JOB_KEY=$(od -An -N16 -tx8 /dev/urandom | tr -d ' ')

%s
%sexit $status
]]

-- The words that ask for the last size of the ranks, the words of the ranks.
local once = [[
# Ranks that `ganymede resize` has changed in this job keep their number, if its machines hold them.
start=$(%s) || start=srun
$start %s
status=$?]]

-- The words that ask how it goes on, those that ask for the last size of the ranks, the words of the ranks, the words
-- that ask how it goes on.
local again = [[
# `ganymede` says whether a failure lets the ranks begin again, and prints the seconds to wait.
stopped=
trap 'stopped=1' TERM
%s --ended begin
while :; do
    # Ranks that `ganymede resize` has changed in this job keep their number, if its machines hold them.
    start=$(%s) || start=srun
    $start %s
    status=$?
    [ "$status" = 0 ] || [ -n "$stopped" ] && break
    pause=$(%s --ended "$status") || break
    sleep "$pause"
    [ -n "$stopped" ] && break
done]]

-- The words that remove it.
local over = [[

# Nothing of the run stays in the memory of the machines.
%s --ended over]]

-- After a preemption Slurm itself puts the job back, and its state is another one.
local requeue = [[
if [ "$status" = 75 ] && [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
]]

local function joined(words)
  for i, word in ipairs(words) do
    words[i] = word:find "^[%w_./=:,+-]+$" and word or machine.quote(word)
  end
  return table.concat(words, " ")
end

-- How the script starts the ranks: once, or again after failures. in_memory: their checkpoints lie in memory, too.
local function starts(args, folder, in_memory)
  local words = { core.executable(), "run", args.recipe, "--out", folder, "--resume", "auto" }
  for _, word in ipairs(args.min_ranks and { "--least-ranks", tostring(args.min_ranks) } or {}) do
    words[#words + 1] = word
  end
  for _, word in ipairs(args.options) do words[#words + 1] = word end
  local run = joined(words)
  local size = joined { core.executable(), "resize", folder, "--last" }
  if not args.max_restarts then return once:format(size, run) end
  local question = { core.executable(), "slurm", args.recipe, "-N", tostring(args.nodes), "--ntasks-per-node",
    tostring(args.ntasks_per_node or 1), "--out", folder, "--max-restarts", tostring(args.max_restarts) }
  for _, option in ipairs { "restart_delay", "min_ranks" } do
    if args[option] then table.insert(question, ("--%s=%s"):format((option:gsub("_", "-")), args[option])) end
  end
  local ask = joined(question)
  return again:format(ask, size, run, ask) .. (in_memory and over:format(ask) or "")
end

local function script(args, name, folder, cwd, in_memory)
  local path = machine.quote(folder .. "/slurm.sh"):gsub("[\r\n]", "?")
  return template:format(path, directives(args, name, folder, cwd), starts(args, folder, in_memory),
    args.requeue and requeue or "")
end

-- ---------------------------------------------------------------- the verb

local function refuse(args)
  if core.link_rank() or require("ganymede.job.launcher").expected() > 1 then
    failure(2, "this process is one of several ranks; submit a job from none of them")
  end
  local warn = args.warn or WARN
  if args.restart_delay and not args.max_restarts then
    failure(2, "--restart-delay is the time before a restart, and nothing is started again without --max-restarts")
  end
  if args.min_ranks and not args.max_restarts then
    failure(2, "--min-ranks is for ranks that start again, and nothing is started again without --max-restarts")
  end
  if args.min_ranks and args.min_ranks >= ranks_of(args) then
    failure(2, "--min-ranks %d: must be less than the %d ranks of -N and --ntasks-per-node", args.min_ranks,
      ranks_of(args))
  end
  if args.time and seconds_of(args.time) <= warn + 60 then
    failure(2, "--time %s: the ranks are told to end %d s before its end (--warn), and Slurm is up to 60 s early; no "
      .. "time is left to train", args.time, warn)
  end
  for _, option in ipairs(args.sbatch or {}) do
    if not option:find "^%-" or option:find "[\r\n]" then
      failure(2, "--sbatch %s: give an option of sbatch, such as --sbatch=--mem=64G", option)
    end
  end
end

local function absolute(path, cwd) return path:sub(1, 1) == "/" and path or cwd .. "/" .. path end

local function folder_of(args, name, cwd)
  local folder = args.out or ("runs/%s-%s-%s"):format(name, os.date "%Y%m%d-%H%M%S",
    require("ganymede.observe.rundir").id())
  folder = absolute(folder:gsub("(.)/+$", "%1"), cwd)
  if folder:find "[\r\n]" or cwd:find "[\r\n]" then failure(2, "Slurm takes no path with an end of line in it") end
  return folder
end

-- Runs sbatch -> the job's id.
local function submit(path)
  local said = os.tmpname()
  local id = machine.ask(("sbatch --parsable %s 2>%s"):format(machine.quote(path), machine.quote(said)))
  local complaint = (machine.read(said) or ""):gsub("%s+$", "")
  os.remove(said)
  if not id or not id:find "^%d+" then
    failure(1, "sbatch did not take %s: %s", path, complaint ~= "" and complaint or id or "it said nothing")
  end
  return id:match "^%d+"
end

-- Has what lies in memory removed, on each machine that answers.
local function forget_everywhere(args)
  local nodes = require "ganymede.job.slurm_nodes"
  local words = nodes.srun((nodes.look()) or { core.process().host })
  for _, word in ipairs { core.executable(), "slurm", args.recipe, "-N", tostring(args.nodes), "--out", args.out,
    "--max-restarts", tostring(args.max_restarts), "--ended", "forget" } do words[#words + 1] = word end
  if os.execute(joined(words)) ~= 0 then
    log.warn("what the run has in the memory of its machines could not be removed everywhere: "
      .. "rm -r /dev/shm/ganymede-memory-* does it")
  end
end

local said = {
  begin = function(args) require("ganymede.job.batch_attempts").begin(args.out) end,
  over = forget_everywhere,
  forget = function(args) require("ganymede.train.neighbour_memory").forget(args.out) end,
}

-- What the script of --max-restarts says and asks after each end of the ranks.
local function judge(args)
  local status = tonumber(args.ended)
  if not (args.out and args.max_restarts and (status or said[args.ended])) then
    failure(2, "--ended: a script that `ganymede slurm --max-restarts` has made says this, with --out")
  end
  if not status then return said[args.ended](args) end
  local pause, why = require("ganymede.job.batch_attempts").ended(args.out, status, ranks_of(args),
    { most = args.max_restarts, delay = args.restart_delay, nodes = args.min_ranks and args.nodes })
  if not pause then failure(1, "the ranks ended with status %d and are not started again: %s", status, why) end
  log.warn("the ranks ended with status %d; they are started again in %g s, from the newest checkpoint", status, pause)
  log.result(("%g"):format(pause))
end

local function slurm(args)
  if args.ended then return judge(args) end
  refuse(args)
  local run, cwd = run_options(args), core.process().folder
  local found = rehearse(args, run)
  local folder = folder_of(args, found.name, cwd)
  local text = script(args, found.name, folder, cwd, run.memory_checkpoint ~= nil)
  if args.dry_run then return log.result((text:gsub("\n$", ""))) end
  if not machine.ask "command -v sbatch" then
    failure(2, "there is no sbatch in PATH: Slurm is not on this machine; --dry-run prints the script")
  end
  places.make(folder)
  core.write_whole(folder .. "/slurm.sh", text)
  local id = submit(folder .. "/slurm.sh")
  log.info("run folder %s; `squeue -j %s` shows the job, slurm-%s.log what it prints", folder, id, id)
  log.result(id)
end

function verb.run(args) session.with_signals({}, slurm, args) end

return verb
