--- ganymede run RECIPE: trains a recipe.
--
-- The recipe is read and checked; gm.fit(settings, context) then builds all of it before anything is started or
-- written, and trains it. The context is what a run lends its trainer:
--
--     steps, resume, no_eval, recipe   from the flags (nil where they were not given)
--     trace, profile, step_file        of the flags: files, see the modules of ganymede.observe with these names
--     command                          recipe, set and seed of the flags, for another process (ganymede.pipeline.flops)
--     out()                            the run's folder, which the first call makes
--     log(text)                        a line about the run for the user
--     progress { step, epoch, loss, accuracy, samples, lr }   after every step
--     begin(step)                      training begins behind that step
--     memory                           interval of checkpoints in memory, and folder with a supervisor
--     leave()                          the run goes on in other ranks: gives up its folder and its sockets
--     taken_over(closed)               the state of a run was taken over from other ranks (ganymede.train.handover);
--                                      closed: they have closed its folder, and made no further step
--     record(event)                    an entry of metrics.jsonl
--     happened(event)                  an entry of events.jsonl (ganymede.job.run_events)
--     stats                            table to fill, see ganymede.observe.stats
--     stop_requested()                 true: save a checkpoint at the end of this step and raise failure(75)
--
-- A recipe that returns no table has done its work in code; gm.launch gives such a recipe its flags.
-- With -n N this process starts N ranks and watches over them (ganymede.job.launcher); each runs all of the above, the
-- functions of the context do something on rank 0 only, and rank 0 writes the statistics of all.
local attempts = require "ganymede.job.attempts"
local command_line = require "ganymede.job.command_line"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local live = require "ganymede.job.live"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local own = require "ganymede.base.own"
local run_events = require "ganymede.job.run_events"
local runs_folder = require "ganymede.job.runs_folder"
local session = require "ganymede.job.session"
local spares = require "ganymede.job.spares"
local steps = require "ganymede.job.steps"

local verb = { keeps_words = true, summary = "train a recipe" }

verb.examples = {
  "ganymede run first.lua",
  "ganymede run first.lua -n 4 --steps 100 --set optimizer.lr=3e-3",
  "ganymede run first.lua --resume auto",
}

local function number(text)
  local n = tonumber(text)
  if n and n > 0 and n < math.huge then return n end
  return nil, ("'%s' is no number of seconds above 0"):format(text)
end

local MOST_RANKS = 2 ^ 20

--- Declares the flags that run and check share.
function verb.shared_arguments(parser)
  parser:argument("recipe", "the Lua file that describes the run")
  parser:option("--set", "set a key of the recipe, such as optimizer.lr=3e-4 or hooks.1.interval=5; "
    .. "+key=value adds a key of your own; may be repeated"):count "*":argname "KEY=VALUE"
  parser:option("--seed", "the seed, in place of the recipe's"):argname "N":convert(session.integer(0))
  parser:option("-n --ranks", "number of ranks"):argname "N":convert(session.integer(1, MOST_RANKS))
end

function verb.arguments(parser)
  verb.shared_arguments(parser)
  parser:option("--steps", "end after N optimizer steps and evaluate once"):argname "N":convert(session.integer(1))
  parser:option("--out", "the folder of the run (default: a new one in runs/)"):argname "DIR"
  parser:option("--resume", "continue from the checkpoint DIR; auto: from the newest one in the run's folder")
    :argname "auto|DIR"
  parser:flag("--replan", "with --resume and parallel = \"auto\": plan anew, and do not take the plan of the run "
    .. "that is resumed")
  parser:option("--device", "the device that computes (default: cpu)"):choices { "cpu", "cuda" }
  parser:option("--stats", "write one JSON document at the end, also on failure"):argname "FILE"
  parser:option("--trace", "write what every rank did in the first 20 steps, as Chrome's trace events; as FILE.svg, "
    .. "write a picture of one step of the pipeline"):argname "FILE"
  parser:option("--profile", "write what each op cost in 20 steps after the first 3: a table, or JSON as FILE.json")
    :argname "FILE"
  parser:option("--step-file", "write what this rank did in the second step, as `ganymede simulate` replays it "
    .. "(FILE.RANK on several ranks)"):argname "FILE"
  parser:flag("--checked", "compare every collective between ranks before it moves anything")
  parser:option("--comm-timeout", "seconds to wait for another rank (default 600)"):argname "S":convert(number)
  parser:option("--interface", "the interface of this machine through which ranks on other machines are reached, such "
    .. "as ib0"):argname "NAME"
  parser:option("--timeout", "end the run after S seconds, with status 7"):argname "S":convert(number)
  parser:option("--limit-memory", "bytes that tensors may take, such as 512M"):argname "BYTES":convert(machine.bytes_of)
  parser:option("--max-restarts", "start the job again, from its newest checkpoint, after a rank has died or hangs; "
    .. "end it when more than K attempts in a row left no newer checkpoint"):argname "K":convert(session.integer(1))
  parser:option("--restart-delay", "with --max-restarts: seconds before a restart (default 1; none after an "
    .. "attempt that left a newer checkpoint), doubled for each one in a row without a newer checkpoint, up to 60")
    :argname "S":convert(number)
  parser:option("--min-ranks", "with --max-restarts: go on with fewer ranks, at least M, if a rank cannot be started "
    .. "again"):argname "M":convert(session.integer(1))
  parser:option("--memory-checkpoint", "with --max-restarts, or where mpirun, srun or torchrun start the ranks: save a "
    .. "checkpoint in memory after every K steps, which outlives the death of ranks; on several machines each keeps a "
    .. "copy of a neighbour's; a restart goes on from it, if it is the newest"):argname "K"
    :convert(session.integer(1))
  parser:flag("--standby", "with --memory-checkpoint: keep as many ranks again ready, which go on at once when a rank "
    .. "has died; they need the memory of a second job; also where srun or torchrun start the ranks, over TCP")
  parser:option("--memory-folder", "for the ranks of --memory-checkpoint: the folder in memory"):hidden(true)
  parser:option("--least-ranks", "for the ranks of `ganymede slurm --min-ranks`: the smallest number of them")
    :hidden(true):convert(session.integer(1))
  parser:flag("--takes-over", "for the ranks of a resize: wait for the state of the run (ganymede.job.elastic)")
    :hidden(true)
  parser:flag("--no-eval", "train without evaluating")
  parser:flag("-q --quiet", "no progress, and no messages but warnings and errors; lines of hooks and evaluations stay")
  parser:option("--threads", "threads of each rank (default: its share of the cores)"):argname "N"
    :convert(session.integer(1))
end

--- Refuses values that no run can take.
function verb.refuse_unserved(args)
  if (args.threads or 1) > 1024 then failure(2, "--threads %d: at most 1024", args.threads) end
  if args.replan and not args.resume then failure(2, "--replan belongs to --resume, which was not given") end
  if args.resume == "" then failure(2, "--resume takes a checkpoint, the folder of a run, or auto; it is empty") end
end

-- Whether the run with this folder has made a step.
local function has_begun(path)
  local file = io.open(path .. "/metrics.jsonl", "rb")
  local first = file and file:read(1)
  if file then file:close() end
  return first ~= nil
end

--- Returns the folder of the newest run of this recipe. One that failed before the end of its first step has nothing to
-- resume, and counts only where there is no other. The names of these folders sort by date.
local function newest_run(name)
  local newest, newest_begun
  for _, entry in ipairs(core.list_folder "runs") do
    local rest = entry:sub(1, #name + 1) == name .. "-" and entry:sub(#name + 2)
    if rest and rest:match "^%d%d%d%d%d%d%d%d%-%d%d%d%d%d%d%-%x+$" then
      if not newest or entry > newest then newest = entry end
      if (not newest_begun or entry > newest_begun) and has_begun("runs/" .. entry) then newest_begun = entry end
    end
  end
  newest = newest_begun or newest
  return newest and "runs/" .. newest
end

local function folder_of(args, settings)
  if args.out then return args.out end
  return args.resume == "auto" and newest_run(settings.name) or nil
end

local function hash(source, settings)
  local literal = require "ganymede.base.literal"
  return require "ganymede.base.sha256"(source.text .. "\n" .. (settings and literal.show(settings) or ""))
end

-- Makes what the trainer works with; see the top of this file. about_restarts: of attempts.prepare.
local function make_context(args, about, run, folder, settings, about_restarts)
  local progress = require "ganymede.observe.progress" { steps = args.steps or settings.steps }
  local context = { steps = args.steps, resume = args.resume, no_eval = args.no_eval, log = log.result, stats = run,
    recipe = args.recipe, command = { recipe = args.recipe, set = args.set, seed = args.seed },
    trace = args.trace, profile = args.profile, step_file = args.step_file,
    stop_requested = core.signals_stop_requested }
  function context.out()
    local path = folder:open()
    live.tell { name = folder.name, folder = path }
    return path
  end
  function context.leave()
    about.left = true
    folder:close()
    live.close()
  end
  local is_whole = false -- metrics.jsonl, because others have closed it behind this step
  function context.begin(step)
    folder:begin(step, is_whole)
    if not about_restarts then return end
    about_restarts.folder, about_restarts.step = folder.path, step
    attempts.tell(about_restarts)
  end
  if args.memory_checkpoint then
    context.memory = { folder = args.memory_folder, interval = args.memory_checkpoint }
  end
  if args.takes_over then
    function context.taken_over(closed)
      is_whole, about.taken = closed, true
      live.open { recipe = args.recipe, folder = folder.path }
      live.share(folder.path)
    end
  end
  function context.record(event) folder:write(event) end
  function context.happened(event) run_events.note(folder:open(), event) end
  if not args.quiet then
    function context.progress(event) progress:update(event) end
  end
  return context, function()
    progress:close()
    if folder then folder:close() end
  end
end

local function joined(list, more)
  local out = { unpack(list or {}) }
  for _, text in ipairs(more) do out[#out + 1] = text end
  return out
end

-- Where the run that is resumed may have left its plan, the likeliest first.
local function folders_of_plan(args, given)
  if args.takes_over then return { args.out } end
  if not args.resume or args.replan then return {} end
  local path = args.resume == "auto" and folder_of(args, { name = given.name or "" }) or args.resume
  if not path or path == "auto" then return {} end
  path = path:gsub("/+$", "")
  return { path, path:match "^(.*)/[^/]*$", path:match "^(.*)/[^/]*/[^/]*$" }
end

-- Returns the resolved settings, and the plan of parallel = "auto".
local function settled(args, source, given)
  local auto = require "ganymede.plan.auto"
  return auto.resolve(source, given, args, { ranks = core.world(), threads = core.device().threads or 1, measure = true,
    memory = args.limit_memory, before = folders_of_plan(args, given) })
end

-- What rank 0 tells the supervisor of --max-restarts. folder: nil if the run has none; planned: whether the recipe left
-- its mesh to a plan.
local function prepare_restarts(args, settings, folder, planned)
  if folder then
    steps.open { argv = args.argv, parallel = planned and "auto" or settings.parallel,
      folder = function() return folder.path end }
  end
  local hooks = require "ganymede.hooks.base"
  local saves = folder and (settings.checkpoint ~= nil or hooks.saves(settings))
  return attempts.prepare(args, planned and "auto" or settings.parallel, hooks.checkpoint_directory(settings), saves)
end

local function train(args, source, given, about)
  local resolved, plan = settled(args, source, given)
  if args.replan and not plan then
    failure(2, "--replan plans anew what parallel = \"auto\" left to a plan; the recipe has no such parallel")
  end
  local settings = resolved.config
  about.settings, about.recipe_hash = settings, hash(source, settings)
  core.set_seed(settings.seed)
  core.set_default_dtype(settings.dtype)
  local folder = require "ganymede.observe.rundir" { name = settings.name, out = folder_of(args, settings),
    text = resolved:text(), argv = args.argv,
    resumes = args.resume ~= nil or args.takes_over == true,
    plan = plan and require("ganymede.base.json").encode(plan, { indent = true }) }
  about.folder = folder
  live.share(folder.path)
  local context, close = make_context(args, about, about.run, folder, settings, prepare_restarts(args, settings,
    folder, plan ~= nil))
  if plan then
    context.predicted, context.command.set = plan, joined(args.set, plan.sets)
  end
  session.announce(settings)
  about.started = core.now()
  local function still_building() return about.run.loss == nil end -- gm.fit adds it when everything is built
  failure.protect(close, session.blaming_recipe, source.path, still_building, require("ganymede").fit, settings,
    context)
  if core.rank() ~= 0 then return end
  log.info("%s", require("ganymede.observe.stats").summary(about.run.rank, #about.run.loss))
end

-- Makes what a trainer in code works with if flags were given -> a function, and a function that closes what the first
-- one opened. Such a trainer has a folder only with --out, and prints its progress itself.
local function lender(args, about)
  local close
  return function(flags, resolved)
    local out, settings = flags.out, resolved.config
    if flags.resume == "auto" and not out then
      failure(2, "--resume auto: a recipe in code has the folder that --out DIR names; give it, or --resume DIR")
    end
    local folder = out and require "ganymede.observe.rundir" { name = settings.name or args.recipe, out = out,
      text = resolved:text(), argv = args.argv,
      resumes = flags.resume ~= nil or args.takes_over == true }
    about.folder = folder
    if folder then live.share(folder.path) end
    local context, done = make_context(args, about, nil, folder, settings, prepare_restarts(args, settings,
      folder))
    context.progress = nil
    if not folder then
      context.out, context.begin, context.record, context.stop_requested, context.leave = nil, nil, nil, nil, nil
      context.happened = nil
    end
    close = done
    return context
  end, function()
    if close then close() end
  end
end

-- Refuses flags that take effect only in a recipe that returns a table or calls gm.launch.
local function refuse_unused(args, source)
  local launch = require "ganymede.train.launch"
  if launch.used() then return end
  for _, flag in ipairs { "set", "seed", "steps", "resume", "out", "no_eval", "trace", "profile", "step_file" } do
    local value = args[flag]
    if value and not (type(value) == "table" and #value == 0) then
      failure(2, "%s: --%s was given, but this recipe returns no table and does not call gm.launch; its code ran "
        .. "without it", source.path, (flag:gsub("_", "-")))
    end
  end
end

-- A file that trains in code may return an object that it has made. These values look like a forgotten table.
local function warn_unused(source, returned)
  local kind = type(returned)
  if kind ~= "function" and kind ~= "number" and kind ~= "string" then return end
  log.warn("%s returns a %s, which has no effect; to train, a recipe returns a table of settings: return gm.recipe "
    .. "{ ... }", source.path, kind)
end

local function run_recipe(args, about)
  local recipe, launch = require "ganymede.config.recipe", require "ganymede.train.launch"
  local source = recipe.read(args.recipe)
  about.recipe_hash = hash(source)
  session.open_device(args)
  local context, close = lender(args, about)
  launch.prepare(args, source, about, context)
  about.started = core.now()
  local given = failure.protect(function()
    launch.finish()
    close()
  end, session.strictly, function()
    local returned, other = recipe.run(source)
    launch.settle()
    warn_unused(source, other)
    if not returned then require("ganymede.train.lent").refuse_untaken() end
    return returned
  end)
  if given then return session.strictly(train, args, source, given, about) end
  refuse_unused(args, source)
end

-- Writes the document of --stats, and the same as stats.json of the run's folder, if the run has opened one. If --stats
-- fails, the run fails, unless it had failed already.
local function write_stats(args, about, ok, err)
  if about.left then return end -- they are those of the ranks that go on
  if args.takes_over and not about.taken then return end -- it never was a rank of the run
  if not args.stats and not about.folder then return end -- the same on all ranks, which gather
  local stats = require "ganymede.observe.stats"
  about.exit_code = ok and 0 or failure.code(err)
  about.error = not ok and failure.text(err) or nil
  local made, document = pcall(stats.document, about.run, about)
  if made and type(document.slowest) == "table" and core.rank() == 0 then
    log.info("%s", require("ganymede.observe.slowest").text(document.slowest, document.seconds))
  end
  local function write(path)
    local written, why = made, document
    if made then written, why = pcall(stats.write, path, document) end
    return written or own.without_place(failure.text(why))
  end
  local folder = about.folder and about.folder.ours and about.folder.path -- on rank 0
  local kept = not folder or write(folder .. "/stats.json")
  if kept ~= true then log.warn("%s", kept) end
  local written = not args.stats or write(args.stats)
  if written == true then return end
  if ok then failure(1, "cannot write --stats %s: %s", args.stats, written) end
  log.warn("cannot write --stats %s: %s", args.stats, written)
end

-- Requests of `ganymede attach` load what runs lines only when the first one comes.
local function serve(...) return require "ganymede.repl.attached"(...) end

-- A user wants to know before the run, not after it, that a file cannot be written, or would be written twice.
local function check_files(args)
  local seen = {}
  for _, flag in ipairs { "stats", "trace", "profile", "step_file" } do
    local path, name = args[flag], flag:gsub("_", "-")
    if path then
      local ok, why = core.check_writable(path)
      if not ok then
        args[flag] = nil -- nor is it tried at the end
        failure(2, "--%s: %s", name, why)
      end
      if seen[path] then failure(2, "--%s and --%s name one file, %s; name two", seen[path], name, path) end
      seen[path] = name
    end
  end
end

-- Trains. Also returns where the run goes on in ranks that this one has started.
local function run_or_leave(args, about)
  local ok, err = xpcall(run_recipe, failure.handler, args, about)
  if ok or about.left and steps.left() then return end
  if steps.folder() and not about.taken and not failure.is_peer(err) then steps.fail(failure.text(err)) end
  error(err, 0)
end

local function close()
  steps.close()
  live.close()
end

-- Takes up what `ganymede resize` has made of the ranks of this job of Slurm, whose script starts them again.
local function take_last_size(args)
  local found = launcher.started and launcher.started.by == "srun" and args.out and args.resume == "auto"
    and (not args.takes_over or spares.folder()) and steps.last_sets(args.out, core.world())
  if not found then return end
  args.set = joined(args.set, found)
  for _, text in ipairs(found) do args.argv = command_line.with(args.argv, "--set", text) end
  if core.rank() == 0 then
    log.info("%d rank%s, as `ganymede resize` left them in this job of Slurm%s", core.world(),
      core.world() == 1 and "" or "s", #found > 0 and ": " .. table.concat(found, ", ") or "")
  end
end

local function run(args)
  local about = { run = {} }
  local function all()
    verb.refuse_unserved(args)
    launcher.connect(args)
    take_last_size(args)
    if core.rank() == 0 then check_files(args) end
    live.handle = serve
    if not args.takes_over then
      live.open { recipe = args.recipe, folder = args.out and runs_folder.is_ours(args.out) and args.out or nil }
    end
    failure.protect(close, run_or_leave, args, about)
    if core.rank() == 0 then require("ganymede.cli").check_output() end
  end
  local status -- of the ranks that go on, if this one has left
  local function after(ok, err)
    if not ok and core.world() > 1 then require("ganymede.cli").report(err) end -- at once: the others wait
    write_stats(args, about, ok, err)
    if ok and steps.left() then status = steps.follow() end
  end
  local timeout = not core.link_rank() and args.timeout or nil -- a job's is its supervisor's
  require "ganymede.observe.stats" -- a stop while it was being loaded would leave it half loaded
  session.with_signals({ timeout = timeout, limit = args.timeout, after = after }, launcher.without_exit, all)
  return status
end

function verb.run(args)
  if args.quiet then log.level = math.min(log.level, 1) end
  if not core.link_rank() then attempts.check(args) end
  if spares.wanted(args) then
    verb.refuse_unserved(args)
    return spares.guard(args)
  end
  if not launcher.supervises(args) then return run(args) end
  verb.refuse_unserved(args)
  check_files(args)
  require("ganymede.config.recipe").read(args.recipe) -- a file that cannot be read is said once, and starts nothing
  return attempts.supervise(args)
end

return verb
