--- gm.launch: what a program that trains in code does first; it gets the flags of the command line here.
--
--     local config = gm.launch { width = 64, steps = 100, seed = 3 }     -- --set width=32 --steps 20 work
--     local engine, loader = gm.initialize { ... }
--
-- Returns a copy of the table in which --set, --steps and --seed have taken effect, with rank, world and device
-- besides; makes the mesh of ranks that `parallel` asks for (see ganymede.context), seeds the random numbers
-- (`seed`, default 1024), sets the default dtype (`dtype`, default "f32") and the limit of memory (`memory_limit`,
-- in bytes). All ranks must call it with the same settings, before they make any tensor. Keys that recipes have are
-- checked by their schema, any others are the program's own; reading one that is not there is an error that names it.
-- The trap: --steps arrives as config.steps; it is the program that stops there.
local core = require "ganymede.core"
local failure = require "ganymede.failure"
local signature = require "ganymede.signature"

local launch = {}

local pending -- { args, source, about, settle, close } while a recipe runs
local used = false

-- Fills the document of --stats from the engine that made the first update.
local function observe(Engine, run)
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
    run.rank = require("ganymede.stats").rank(first)
    run.loss_scaling = first.loss_scaling and first.loss_scaling:state()
  end
end

--- For the command line: a recipe is about to run; gm.launch may take up its flags.
function launch.prepare(args, source, about)
  used = false
  local settle, close = observe(require("ganymede.engine").Engine, about.run)
  pending = { args = args, source = source, about = about, settle = settle, close = close }
end

--- For the command line: the recipe's code has run to its end; what its last step did is waited for.
function launch.settle()
  if pending then pending.settle() end
end

--- For the command line: the recipe has ended.
function launch.finish()
  if not pending then return end
  pending.close()
  pending = nil
end

--- Did the recipe call gm.launch?
function launch.used() return used end

-- What a program does itself in place of a flag, whose meaning lies in the loop that is the program's own.
local instead = {
  resume = "call require('ganymede.snapshot').restore(trainer, path) after trainer:prepare, or open and read_into of "
    .. "ganymede.checkpoint",
  out = "give CheckpointHook a directory, or ganymede.checkpoint.save one",
  no_eval = "give trainer:fit no test_dataloader",
  trace = "use require('ganymede.trace').attach(engine)",
  profile = "use require('ganymede.profile').attach(trainer)",
}

local function refuse_flags(args)
  for _, flag in ipairs { "resume", "out", "no_eval", "trace", "profile" } do
    if args[flag] then
      failure(2, "--%s works on recipes that return a table; this one trains in code: %s", (flag:gsub("_", "-")),
        instead[flag])
    end
  end
end

-- A setting that is not there: nil for a key of the schema that was not given, an error for any other.
local function missing(file)
  return function(settings, key)
    local fields = require("ganymede.schema").fields
    if fields[key] then return nil end
    local near = require("ganymede.options").nearest(key, require("ganymede.options").sorted_keys(settings))
    error(("there is no setting '%s' in %s%s"):format(tostring(key), file,
      near and (" (did you mean '%s'?)"):format(near) or ""), 2)
  end
end

--- Settings with the flags applied. given: a table (default: empty).
function launch.launch(given)
  local config = require "ganymede.config"
  if given == nil then given = {} end
  if type(given) ~= "table" then error("gm.launch takes a table of settings; got a " .. type(given), 2) end
  local command = pending or { args = {}, source = { path = "gm.launch" }, about = {} }
  local args, source = command.args, command.source
  refuse_flags(args)
  used = true
  local resolved = config.resolve(given, { file = source.path, text = source.text, sets = args.set,
    flags = { seed = args.seed, steps = args.steps }, in_code = true })
  command.about.settings = resolved.config
  local live = require("ganymede.session").join(resolved.config, { recipe = pending and source.path or nil,
    flags = { steps = args.steps } })
  local plan = live.plan
  if plan.split == "flops" and plan.pipeline * (plan.chunks or 1) > 1 then
    require("ganymede.plan.flops").weights(nil) -- says what to do instead
  end
  core.set_seed(resolved.config.seed)
  core.set_default_dtype(resolved.config.dtype)
  if resolved.config.memory_limit then core.memory_limit(resolved.config.memory_limit) end
  local settings = {}
  for key, value in pairs(resolved.config) do settings[key] = value end
  settings.rank, settings.world, settings.device = core.rank(), core.world(), core.device()
  return setmetatable(settings, { __index = missing(source.path) })
end

return signature.export("gm", launch)
