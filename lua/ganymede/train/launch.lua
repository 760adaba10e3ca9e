--- gm.launch is what a program that trains in code calls first; it gives the program the flags of the command line.
--
--     local config = gm.launch { width = 64, steps = 100, seed = 3 }     -- --set width=32 --steps 20 work
--     local engine, loader = gm.initialize { ... }
--
-- It returns a copy of the table, to which --set, --steps and --seed are applied, with rank, world and device added. It
-- makes the mesh of ranks that `parallel` asks for (see ganymede.job.context), seeds the random numbers (`seed`,
-- default 1024), sets the default dtype (`dtype`, default "f32") and the limit of memory (`memory_limit`, in bytes).
-- All ranks must call it with the same settings, before they make any tensor. Keys of recipes are checked by the
-- schema; all other keys belong to the program. Reading a key that does not exist is an error that names it.
--
-- gm.initialize takes from here what it is not given itself (model, loss, data, optimizer, clip_grad_norm, ...); a
-- trainer takes hooks, checkpoints and test_interval. `config = "base.lua"` (a file that returns a table, or the table)
-- is the base that the other keys change. Colossal-AI's order of arguments works as well, and so do launch_from_torch,
-- launch_from_slurm and launch_from_openmpi. The ranks have found each other before (host/comm/launched.h).
--
-- The first trainer of the program takes --out, --resume, --no-eval, --trace, --profile and --steps, as gm.fit does. A
-- loop of the program's own gets the first three as keys of its own, gm.launch { out = "runs/mine", resume = false };
-- without such a key they are refused. The trap: --steps becomes config.steps, at which such a loop must stop.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local signature = require "ganymede.base.signature"

local fit = require "ganymede.train.fit"
local lent = require "ganymede.train.lent"
local resting = require "ganymede.train.resting"
local zero = require "ganymede.optim.zero"

local launch = {}

local Engine = require("ganymede.train.engine").Engine
local used = false

-- Fills the document of --stats from the engine that made the first update.
local function observe(run)
  local first
  Engine.on_update = function(engine, numbers)
    first = first or engine
    if engine ~= first then return end
    run.loss = run.loss or {}
    run.loss[#run.loss + 1], run.steps = numbers.loss, numbers.step
    run.samples = (run.samples or 0) + numbers.samples
    run.global_batch = run.global_batch or numbers.samples
  end
  local function settle()
    if first then first:settle() end
  end
  return settle, function()
    Engine.on_update = nil
    if not first then return end
    run.rank = require("ganymede.observe.stats").rank(first)
    run.loss_scaling = first.loss_scaling and first.loss_scaling:state()
  end
end

--- Keeps the flags of the command line for gm.launch, before a recipe runs. context(flags, resolved settings) returns
-- the run context of gm.fit for a program's trainer.
function launch.prepare(args, source, about, context)
  used = false
  local settle, close = observe(about.run)
  lent.program = { args = args, source = source, about = about, settle = settle, close = close, context = context,
    run = fit.run }
end

--- Waits for the last step after the recipe's code has run to its end.
function launch.settle()
  if not lent.program then return end
  lent.program.settle()
  lent.write_observed()
end

--- Takes the flags back after the recipe has ended.
function launch.finish()
  if not lent.program then return end
  used = used or lent.program.fitted or false
  lent.program.close()
  lent.program = nil
end

--- Returns whether the recipe has called gm.launch or gm.fit.
function launch.used() return used end

-- ---------------------------------------------------------------- flags of the run

local own_keys = { resume = true, out = true, no_eval = true }

-- A flag whose name is a key of the program becomes the value of that key; the other flags are for its trainer.
local function share_flags(args, settings)
  local left = {}
  for _, flag in ipairs(lent.flags) do
    if args[flag] and own_keys[flag] and settings[flag] ~= nil then
      settings[flag] = args[flag]
    else
      left[flag] = args[flag] or nil
    end
  end
  if settings.resume and settings.resume == args.resume then
    settings.resume = fit.find_checkpoint(args.resume, settings.out) or false
  end
  return next(left) and left
end

-- Reads a setting that the table does not have: the value of the key that an alias stands for (BATCH_SIZE), nil for a
-- key of the schema, an error for any other.
local function missing(file)
  return function(settings, key)
    local schema = require "ganymede.config.schema"
    if schema.fields[key] then return nil end
    if schema.aliases[key] then
      local value = settings
      for part in schema.aliases[key]:gmatch "[^.]+" do value = value and value[part] end
      return value
    end
    local options = require "ganymede.base.options"
    error(("there is no setting '%s' in %s%s"):format(tostring(key), file,
      options.hint(key, options.sorted_keys(settings))), 2)
  end
end

-- ---------------------------------------------------------------- arguments

local by_position = { "config", "rank", "world_size", "host", "port", "backend", "local_rank", "seed", "verbose" }

-- Returns arguments given by position, or one table of settings, as one table.
local function named(names, first, ...)
  local more = select("#", ...)
  if more == 0 and type(first) ~= "string" then return first end
  if more >= #names then
    error(("gm.launch takes at most %d arguments by position: %s"):format(#names, table.concat(names, ", ")), 3)
  end
  local out, values = {}, { first, ... }
  for i, name in ipairs(names) do out[name] = values[i] end
  return out
end

-- Checks rank, world size and the like. Who starts the ranks numbers them, so a program cannot change these numbers.
local function check_rank(given)
  local is = { rank = core.rank(), world_size = core.world(), world = core.world(),
    local_rank = require("ganymede.job.launcher").place_here() }
  for _, name in ipairs { "rank", "world_size", "world", "local_rank" } do
    if given[name] ~= nil and given[name] ~= is[name] then
      failure(2, "gm.launch: %s = %s, and this process is rank %d of %d: ranks are started from outside, by "
        .. "`ganymede run FILE -n N`, or by mpirun or srun; leave %s out", name, tostring(given[name]), is.rank,
        is.world, name)
    end
  end
  if given.device ~= nil then
    failure(2, "gm.launch: device = %s: choose the device by `ganymede run FILE --device cpu|cuda`",
      tostring(given.device))
  end
end

-- Removes the addresses by which Colossal-AI's ranks find each other; ours have found each other before.
local function drop_addresses(given)
  local said = {}
  for _, name in ipairs { "host", "port", "backend" } do
    if given[name] ~= nil then said[#said + 1], given[name] = name, nil end
  end
  if #said > 0 and given.verbose ~= false and core.rank() == 0 then
    require("ganymede.base.log").info("gm.launch: %s: not needed, because the ranks have found each other "
      .. "(parallel.transport says how tensors of GPUs travel)", table.concat(said, ", "))
  end
  given.verbose = nil
end

-- Returns a path as it is, or in the folder of the recipe if there is no such file.
local function found(path)
  local beside = lent.program and lent.program.source.path:match "^(.*/)[^/]*$"
  local file = io.open(path)
  if file then file:close() end
  return not file and beside and beside .. path or path
end

-- Returns the settings, completed by those of `config`.
local function over_base(given)
  local base = given.config
  if base == nil then return given end
  if type(base) == "string" then base = require("ganymede.config.recipe").table_of(found(base)) end
  if type(base) ~= "table" then
    failure(2, "gm.launch: config must be a file that returns a table, or the table; got %s", tostring(base))
  end
  local out = {}
  for key, value in pairs(base) do out[key] = value end
  if out.config ~= nil then failure(2, "gm.launch: config: the table itself has a key `config`; only one may") end
  for key, value in pairs(given) do
    if key ~= "config" then out[key] = value end
  end
  drop_addresses(out)
  return out
end

--- Returns the settings with the flags applied. given: a table (default: empty), or Colossal-AI's arguments in order.
function launch.launch(...)
  local config = require "ganymede.config"
  local given = named(by_position, ...)
  if given == nil then given = {} end
  if type(given) ~= "table" then error("gm.launch takes a table of settings; got a " .. type(given), 2) end
  given = over_base(given)
  check_rank(given)
  local command = lent.program or { args = {}, source = { path = "gm.launch" }, about = {} }
  local args, source = command.args, command.source
  used = true
  local resolved = config.resolve(given, { file = source.path, text = source.text, sets = args.set,
    flags = { seed = args.seed, steps = args.steps }, in_code = true })
  command.about.settings = resolved.config
  if resolved.config.machine ~= nil then
    failure(2, "gm.launch: machine belongs to parallel = \"auto\", which is planned for recipes that return a table; "
      .. "`ganymede plan` says what to write here")
  end
  if resolved.config.adaptive_batch ~= nil then
    failure(2, "gm.launch: adaptive_batch is for recipes that return a table, whose loader Ganymede makes")
  end
  local live = require("ganymede.job.session").join(resolved.config, { recipe = lent.program and source.path or nil,
    flags = { steps = args.steps, resume = args.resume, no_eval = args.no_eval } })
  live.launched = resolved.config
  local plan = live.plan
  if plan.split == "flops" and plan.pipeline * (plan.chunks or 1) > 1 then
    require("ganymede.pipeline.flops").weights(nil) -- says what to do instead
  end
  core.set_seed(resolved.config.seed)
  core.set_default_dtype(resolved.config.dtype)
  require("ganymede.job.session").use_ops(resolved.config)
  resting.launch(zero.options(resolved.config.zero))
  if resolved.config.memory_limit then core.memory_limit(resolved.config.memory_limit) end
  local settings = {}
  for key, value in pairs(resolved.config) do settings[key] = value end
  settings.rank, settings.world, settings.device = core.rank(), core.world(), core.device()
  if lent.program then lent.program.left, lent.program.resolved = share_flags(args, settings), resolved end
  live.config = setmetatable(settings, { __index = missing(source.path) })
  return settings
end

-- ---------------------------------------------------------------- who started the ranks

-- Variables, other than MPI's, of the world size and the rank, and who sets them.
local environments = {
  torch = { "WORLD_SIZE", "RANK", "torchrun" }, slurm = { "SLURM_NPROCS", "SLURM_PROCID", "Slurm" },
}

-- Refuses an environment that describes another world than the one that MPI made.
local function check_environment(kind)
  local variables = environments[kind]
  local size, rank = tonumber(os.getenv(variables[1]) or ""), tonumber(os.getenv(variables[2]) or "")
  if not size then return end
  if size ~= core.world() then
    failure(2, "gm.launch_from_%s: %s is %d, and this process is one of %d rank%s, so it is not %s that started it; "
      .. "start `ganymede run FILE -n %d`, or under mpirun or srun `srun -n %d ganymede run FILE`", kind, variables[1],
      size, core.world(), core.world() == 1 and "" or "s", variables[3], size, size)
  elseif rank and rank ~= core.rank() then
    failure(2, "gm.launch_from_%s: %s is %d, and its launcher made this process rank %d: unset the variable", kind,
      variables[2], rank, core.rank())
  end
end

--- Does what gm.launch does, under torchrun or `ganymede run -n N`. Variables of torchrun that describe another world
-- are refused.
function launch.launch_from_torch(...)
  check_environment "torch"
  return launch.launch(named({ "config", "backend", "seed", "verbose" }, ...))
end

local with_host = { "config", "host", "port", "backend", "seed", "verbose" }

--- Does what gm.launch does, under srun or `ganymede run -n N`. A job whose tasks are not the ranks is refused.
function launch.launch_from_slurm(...)
  check_environment "slurm"
  return launch.launch(named(with_host, ...))
end

--- Does what gm.launch does, under mpirun or `ganymede run -n N`, which starts mpirun.
function launch.launch_from_openmpi(...) return launch.launch(named(with_host, ...)) end

for _, name in ipairs { "launch", "launch_from_torch", "launch_from_slurm", "launch_from_openmpi" } do
  launch[name] = failure.blaming(launch[name])
end
return signature.export("gm", launch)
