--- Gives the flags of the command line to whoever trains in a program that trains in code.
--
--     lent.program       -- while it runs: { args, source, about, settle, close, context, run, resolved, left, owner,
--                        -- fitted }
--
-- gm.launch (ganymede.train.launch) leaves here the flags that it does not take itself. The program's first trainer
-- takes them, or its first gm.fit, which also takes them if gm.launch was not called. Flags that are still here when a
-- loop of the program's own makes a step are refused, but for trace and profile, which need its engine alone.
-- @module ganymede.train.lent
local failure = require "ganymede.base.failure"
local schema = require "ganymede.config.schema"

local lent = {}

-- What a program with a loop of its own can do in place of a flag.
local instead = {
  resume = "give gm.launch a key resume = false of your own, which it fills with the checkpoint's path",
  out = "give gm.launch a key out = \"runs/mine\" of your own, which it replaces",
  no_eval = "give gm.launch a key no_eval = false of your own, which it sets",
  trace = "it made no update that could be recorded",
  profile = "it made no update that could be timed",
  step_file = "train with gm.fit, or with the first trainer of the program",
}

lent.flags = { "resume", "out", "no_eval", "trace", "profile", "step_file" }

--- Lends the flags of the command line to the first trainer that asks. Returns nil, or { context, over, run }: context
-- is the run context of gm.fit (nil: only --steps was given), over(opt) applies the flags to what the trainer's fit was
-- given, and run(trainer, context) trains as gm.fit does.
function lent.lend(trainer)
  local pending = lent.program
  if not pending or pending.owner and pending.owner ~= trainer then return nil end
  local left, steps = pending.left, pending.args.steps
  if not left and not steps then return nil end
  pending.owner, pending.left = trainer, nil
  local function over(opt)
    if steps then opt.epochs, opt.max_steps, opt.test_interval = nil, steps, 2 ^ 53 end
    if left and left.no_eval then opt.test_dataloader = nil end
    return opt
  end
  return { context = left and pending.context(left, pending.resolved), over = over,
    run = pending.run }
end

-- Returns the flags that are left for gm.fit. Without gm.launch these are all of them, and --set and --seed are
-- refused.
local function left_for_fit(pending)
  if pending.resolved then return pending.left or {} end
  for _, flag in ipairs { "set", "seed" } do
    local value = pending.args[flag]
    if value and not (type(value) == "table" and #value == 0) then
      failure(2, "--%s changes what a recipe returns, or what it gives gm.launch; this one calls gm.fit with settings "
        .. "of its own: return them, or call gm.launch before", flag)
    end
  end
  local left = {}
  for _, flag in ipairs(lent.flags) do left[flag] = pending.args[flag] or nil end
  return left
end

--- Returns the run context that gm.fit was given in a program, with the flags of the command line applied. resolved:
-- the settings as ganymede.config.resolve returns them.
function lent.over_run(run, resolved)
  local pending = lent.program
  if not pending or pending.owner then return run end
  local left, out = left_for_fit(pending), {}
  pending.owner, pending.left, pending.fitted = lent, nil, true
  for key, value in pairs(run) do out[key] = value end
  for key, value in pairs(next(left) and pending.context(left, resolved) or {}) do out[key] = value end
  out.steps = pending.args.steps or out.steps
  return out
end

-- Refuses settings of gm.launch that only a trainer uses, in a loop without one.
local function refuse_settings(launched)
  for _, name in ipairs(schema.trainer) do
    local value = launched[name]
    if value ~= nil and not (type(value) == "table" and next(value) == nil) then
      failure(2, "gm.launch was given %s, which only a trainer uses, and this loop has none: train with "
        .. "gm.trainer(engine):fit { ... }, or leave %s out", name, name)
    end
  end
end

-- Begins what --trace and --profile write at the end of the program.
local function observe(pending, engine)
  local left, ends = pending.left, pending.ends or {}
  pending.ends = ends
  local function begin(flag, attach)
    local path = left[flag]
    left[flag] = nil
    local found = path and attach(path)
    if found then ends[#ends + 1] = function() return found:write(path) end end
  end
  begin("trace", function(path)
    if path:match "%.svg$" and not engine.executor then
      failure(2, "--trace %s: a picture shows a step of a pipeline schedule, and this program runs none; name it .json",
        path)
    end
    engine.graph = nil
    return require("ganymede.observe.trace").attach(engine)
  end)
  begin("profile", function() return require("ganymede.observe.profile").attach(engine) end)
end

--- Writes the files of --trace and --profile of a loop of its own. Collective; the program has come to its end.
function lent.write_observed()
  local pending = lent.program
  for _, write in ipairs(pending and pending.ends or {}) do
    local _, why = write()
    if why then require("ganymede.base.log").warn("--profile: %s", why) end
  end
end

--- Raises an error if settings or flags were given that nobody has used, because the loop is the program's own.
-- launched: the settings, if a step is about to be made; engine: that of the loop.
function lent.refuse_untaken(launched, engine)
  local pending = lent.program
  if launched then refuse_settings(launched) end
  if engine and pending and pending.left then observe(pending, engine) end
  for _, flag in ipairs(lent.flags) do
    if pending and pending.left and pending.left[flag] then
      failure(2, "--%s works with recipes that return a table and with trainers (gm.trainer(engine):fit { ... }); "
        .. "this loop is the recipe's own: %s", (flag:gsub("_", "-")), instead[flag])
    end
  end
end

return lent
