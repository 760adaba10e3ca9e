--- Starts a job of several ranks again after a rank has died or hangs: `run --max-restarts K`.
--
--     return attempts.supervise(args)              -- in the supervisor -> the exit status
--     attempts.tell(about)                         -- on rank 0, when training begins; about: of attempts.prepare
--
-- An attempt is one job (ganymede.job.elastic). Another one follows as ganymede.job.restarts decides. It has the same
-- command line and the same run folder, and resumes from the newest whole checkpoint there, as `--resume auto` does. If
-- there is none, it begins anew. What the supervisor must know of the run, rank 0 tells it when training begins: the
-- folder, the folder of the checkpoints, and which smaller numbers of ranks fit. Ctrl-C and SIGTERM end the job for
-- good, also between two attempts. The trap: the ranks read the command line of the supervisor, so that args here means
-- the same flags on both sides.
local command_line = require "ganymede.job.command_line"
local core = require "ganymede.core"
local elastic = require "ganymede.job.elastic"
local failure = require "ganymede.base.failure"
local fewer = require "ganymede.job.fewer"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local restarts = require "ganymede.job.restarts"
local runs_folder = require "ganymede.job.runs_folder"
local run_events = require "ganymede.job.run_events"
local spares = require "ganymede.job.spares"
local srun_steps = require "ganymede.job.steps"

local attempts = {}

local NAP = 0.05      -- seconds between two looks for a stop

-- ---------------------------------------------------------------- flags

--- Refuses flags of restarts that have no effect, before anything is started.
function attempts.check(args)
  for _, flag in ipairs { "takes_over", "memory_folder" } do
    if args[flag] and not (flag == "takes_over" and (srun_steps.folder() or spares.folder())) then
      failure(2, "--%s is for ranks that a supervisor has started; leave it out", (flag:gsub("_", "-")))
    end
  end
  if not args.max_restarts then
    for _, flag in ipairs { "min_ranks", "restart_delay", "memory_checkpoint", "standby" } do
      -- without a supervisor, the ranks that another launcher starts again find what lies in memory
      local own = (flag == "memory_checkpoint" or flag == "standby")
        and (launcher.expected() > 1 or srun_steps.folder() ~= nil)
      if args[flag] and not own then
        failure(2, "--%s belongs to --max-restarts, which was not given", (flag:gsub("_", "-")))
      end
    end
    if args.standby then spares.check(args) end
    return
  end
  if args.standby and not args.memory_checkpoint then
    failure(2, "--standby: the ranks that stand by go on from memory: give --memory-checkpoint K, too")
  end
  if launcher.expected() > 1 then
    failure(2, "--max-restarts: this is one of %d ranks that another launcher has started, and that one would have to "
      .. "start them again; give `ganymede run ... -n %d`, or let the launcher do it with --resume auto",
      launcher.expected(), launcher.expected())
  end
  if args.min_ranks and args.min_ranks >= (args.ranks or 1) then
    failure(2, "--min-ranks %d: must be less than the %d rank%s of -n", args.min_ranks, args.ranks or 1,
      args.ranks and args.ranks > 1 and "s" or "")
  end
end

-- ---------------------------------------------------------------- on the ranks

-- The step of the newest checkpoint in a folder, which may not be known; 0: there is none.
local function newest_in(folder) return folder and runs_folder.newest_step(folder) or 0 end

-- A restart resumes from the newest checkpoint of the folder; one of another run would be taken for its own.
local function refuse_older(folder)
  if newest_in(folder) == 0 then return end
  failure(2, "--max-restarts: %s holds checkpoints of an earlier run, which a restart would take for its own; give "
    .. "--resume auto, or another --out", folder)
end

--- Returns what rank 0 tells the supervisor about its run, and refuses what could not be started again. parallel: the
-- table of the recipe, nil or "auto"; checkpoints: the folder that the recipe names for them, or nil; saves: whether it
-- saves any.
function attempts.prepare(args, parallel, checkpoints, saves)
  if not core.link_rank() then return args.least_ranks and { parallel = parallel, least = args.least_ranks } or nil end
  local about = { parallel = parallel, checkpoints = checkpoints, on_host = core.device().on_host }
  if not args.max_restarts then return about end
  if checkpoints and not (args.resume or args.takes_over) then refuse_older(checkpoints) end
  local worlds, why
  if args.min_ranks and core.world() > args.min_ranks then
    worlds, why = fewer.worlds(parallel, core.world(), args.min_ranks)
    if #worlds == 0 then failure(2, "--min-ranks %d: no smaller number of ranks fits; %s", args.min_ranks, why) end
  end
  if not saves and not args.memory_folder and core.rank() == 0 then
    log.warn("this recipe saves no checkpoints: after a failure the run begins anew at step 1; "
      .. "set checkpoint.interval")
  end
  about.worlds = json.array(worlds or {})
  return about
end

--- Tells the supervisor, or the script of `ganymede slurm --min-ranks`, that training begins. about: what prepare
-- returned, with folder and step.
function attempts.tell(about)
  if about.least then return require("ganymede.job.batch_attempts").tell(about) end
  about.at = core.now()
  core.link_answer(0, json.encode(about))
end

-- ---------------------------------------------------------------- the supervisor

-- The words of the command line without a flag that takes no value.
local function without(words, flag)
  local out = {}
  for _, word in ipairs(words) do
    if word ~= flag then out[#out + 1] = word end
  end
  return out
end

-- Where the run keeps its checkpoints; nil: its folder is not known yet.
local function checkpoints_of(known) return known.checkpoints or known.folder and known.folder .. "/checkpoints" end

-- The step of the newest checkpoint that the run has, 0: there is none; and whether it is the one in memory.
local function newest_of(known)
  local disk, memory = newest_in(checkpoints_of(known)), newest_in(known.memory)
  return math.max(disk, memory), memory > 0 and memory >= disk
end

-- Takes up that the job has other ranks from now on. world: the entry of worlds that it has.
local function share(now, world)
  now.ranks, now.base = world.ranks, command_line.changed(now.base, world.ranks, world.sets)
end

-- The command line of the next attempt. known: folder, checkpoints.
local function command(now, known)
  local words = without(now.base, "--replan")
  if known.folder then words = command_line.with(words, "--out", known.folder) end
  local step, in_memory = newest_of(known)
  if step == 0 then return words end
  return command_line.with(words, "--resume", in_memory and known.memory or known.checkpoints or "auto")
end

-- elastic.run; a job that cannot even be started has failed like one whose ranks do not start.
local function run_once(args, known)
  local function finish(ok, status, ended)
    if ok then return status, ended end
    failure.let_stops_pass(status)
    log.error("%s", failure.text(status))
    return failure.code(status), { first = { text = failure.text(status) } }
  end
  return finish(pcall(elastic.run, args, known))
end

-- What ganymede.job.restarts says of an attempt. status, ended: of elastic.run; args: its own.
local function described(args, known, status, ended)
  local told, first = ended.told or {}, ended.first or {}
  return { ranks = args.ranks, status = status, text = first.text or "", rank = first.rank, stopped = ended.asked,
    began = told.step, reached = (newest_of(known)) }
end

local function first_line(text) return (text:match "^[^\n]*") end

-- Lets elastic.run replace ranks that have failed by those that stand by, as often as a job may be started again.
local function allow_replacing(now, known, history, limits)
  now.standby = true
  function now.may_replace(status, ended)
    local with = { unpack(history) }
    with[#with + 1] = described(now, known, status, ended)
    local plan = restarts.next(with, limits)
    return plan ~= nil and not plan.smaller
  end
  function now.replaced(status, ended)
    history[#history + 1] = described(now, known, status, ended)
    now.failed = { at = core.now(), why = first_line(history[#history].text) }
  end
end

-- What happened at each attempt, for the end of a job that was given up.
local function history_text(history)
  local lines = {}
  for i, a in ipairs(history) do
    lines[i] = ("  attempt %d, %d rank%s, %s: %s%s; newest checkpoint: %s"):format(i, a.ranks,
      a.ranks == 1 and "" or "s", a.began and "from step " .. a.began or "ended before training",
      a.rank and ("rank %d: "):format(a.rank) or "", first_line(a.text),
      a.reached > 0 and "step " .. a.reached or "none")
  end
  return table.concat(lines, "\n")
end

-- Notes a restart when training begins again. now.failed: { at, why } of the ranks before.
local function note_restart(now)
  function now.began(told)
    local failed = now.failed
    now.failed = nil
    if not (failed and told.folder) then return end
    run_events.note(told.folder, { event = "restart", step = told.step, seconds = told.at - failed.at,
      ranks = now.ranks, why = failed.why })
  end
end

local stops = { interrupt = { 130, "stopped by Ctrl-C" }, terminate = { 143, "stopped by SIGTERM" } }

-- Raises a stop that comes when no rank trains, after an attempt. What was saved can be resumed, as the scheduler wants
-- to know. moment: in words.
local function raise_stop(name, known, moment)
  local code, text = unpack(stops[name] or stops.interrupt)
  local folder = checkpoints_of(known)
  if code == 143 and newest_in(folder) > 0 then
    failure(75, "%s %s; the newest checkpoint is in %s (continue with --resume)", text, moment, folder)
  end
  failure(code, "%s", text)
end

-- Waits before the next attempt. ends: when the time limit passes, or nil.
local function wait(seconds, known, ends, limit)
  local last = core.now() + seconds
  repeat
    local name = launcher.nap(math.max(0, math.min(NAP, last - core.now())))
    if name then raise_stop(name, known, "between two attempts") end
    if ends and core.now() > ends then
      failure(7, "the run did not end within %g seconds (--timeout)", limit)
    end
  until core.now() >= last
end

-- resumed: what the first attempt was told to resume from, or nil.
local function say_next(plan, known, number, resumed)
  local step, in_memory = newest_of(known)
  local from = "anew, because there is no checkpoint"
  if step > 0 then from = ("from the checkpoint of step %d%s"):format(step, in_memory and " in memory" or "")
  elseif resumed and resumed ~= "auto" then from = ("from %s again, because it has saved nothing"):format(resumed) end
  log.warn("attempt %d begins in %g s: %d rank%s, %s%s", number, plan.delay, plan.ranks, plan.ranks == 1 and "" or "s",
    from, plan.smaller and "; a place for a rank is gone" or "")
end

-- Whether an attempt that is not the first one was stopped by SIGTERM before its ranks trained.
local function was_stopped_early(history)
  local last = history[#history]
  return #history > 1 and last.status == 143 and last.stopped == "terminate" and not last.began
end

-- args: of the command line; now: of elastic.run; known: what is known of the run
local function all_attempts(args, now, known)
  if not args.max_restarts then return elastic.run(now, known) end
  local history, began = {}, core.now()
  local limits = { most = args.max_restarts, delay = args.restart_delay }
  if args.standby then allow_replacing(now, known, history, limits) end
  note_restart(now)
  while true do
    local status, ended = run_once(now, known)
    if status == 0 then return 0, ended end
    local last = described(now, known, status, ended)
    history[#history + 1], limits.worlds = last, known.worlds
    now.failed = { at = core.now(), why = first_line(last.text) }
    local plan, why = restarts.next(history, limits)
    if not plan then
      if #history > 1 then log.error("not started again: %s\n%s", why, history_text(history)) end
      if was_stopped_early(history) then raise_stop("terminate", known, "before the ranks trained again") end
      return last.status, ended
    end
    say_next(plan, known, #history + 1, args.resume)
    wait(plan.delay, known, args.timeout and began + args.timeout, args.timeout)
    if args.stats then os.remove(args.stats) end -- that of a rank that could not write its own would seem to be new
    if plan.smaller then share(now, plan.smaller) end
    now.argv = command(now, known)
    now.spent = core.now() - began
  end
end

-- Makes the folder for checkpoints in memory, and tells the ranks of it.
local function open_memory(now, known)
  local ok, folder = failure.try(core.folder_make, true, true)
  if not ok then failure(2, "--memory-checkpoint: %s", failure.text(folder)) end
  now.keep.folder, now.keep.stays = folder, true
  known.memory = folder:path() .. "/checkpoints"
  now.base = command_line.with(now.base, "--memory-folder", known.memory)
  now.argv = now.base
end

--- Runs a command line on several ranks, and with --max-restarts again where a rank fails -> the exit status of the
-- last attempt.
function attempts.supervise(args)
  if args.max_restarts and args.out and args.resume ~= "auto" then refuse_older(args.out .. "/checkpoints") end
  local now = { argv = args.argv, base = args.argv, ranks = args.ranks or 1, threads = args.threads,
    quiet = args.quiet, timeout = args.timeout, keep = {} }
  local known = { folder = args.out }
  return failure.protect(function()
    if now.keep.folder then now.keep.folder:close() end
    if now.keep.run then now.keep.run:close() end
  end, launcher.supervising, function()
    if args.memory_checkpoint then open_memory(now, known) end
    return all_attempts(args, now, known)
  end)
end

return attempts
