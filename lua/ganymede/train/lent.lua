--- The flags of the command line while a program that trains in code runs: who takes them up.
--
--     lent.program       -- while it runs: { args, source, about, settle, close, context, run, resolved, left, owner,
--                        -- fitted }
--
-- gm.launch (ganymede.train.launch) leaves here what it does not take itself. The program's first trainer takes that,
-- or its first gm.fit, which takes the flags also where gm.launch was not called. What is still here when a loop of the
-- program's own makes a step is refused.
-- @module ganymede.train.lent
local failure = require "ganymede.base.failure"
local schema = require "ganymede.config.schema"

local lent = {}

-- What a program with a loop of its own does in place of a flag.
local instead = {
  resume = "give gm.launch a key resume = false of your own, which it fills with the checkpoint's path",
  out = "give gm.launch a key out = \"runs/mine\" of your own, which it replaces",
  no_eval = "give gm.launch a key no_eval = false of your own, which it sets",
  trace = "use gm.trace.attach(engine)",
  profile = "use gm.profile.attach(trainer)",
}

lent.flags = { "resume", "out", "no_eval", "trace", "profile" }

--- For trainers: the flags of the command line, for the first trainer that asks -> nil, or { context, over, run }: the
-- run context of gm.fit (nil: --steps alone), over(opt), which puts the flags over what the trainer's fit was given,
-- and run(trainer, context), which trains as gm.fit does.
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

-- The flags that are left for gm.fit. Without gm.launch these are all of them, and --set and --seed have no taker.
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

--- For gm.fit in a program: the run context that it was given, with the flags of the command line over it. resolved:
-- the settings as ganymede.config.resolve gives them.
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

-- Settings of gm.launch that a trainer takes up, and there is none.
local function refuse_settings(launched)
  for _, name in ipairs(schema.trainer) do
    local value = launched[name]
    if value ~= nil and not (type(value) == "table" and next(value) == nil) then
      failure(2, "gm.launch was given %s, which a trainer takes up, and this loop has none: train with "
        .. "gm.trainer(engine):fit { ... }, or leave %s away", name, name)
    end
  end
end

--- Raises where settings or flags have been given that nobody has taken up: the loop is the program's own. launched:
-- the settings, where a step is about to be made.
function lent.refuse_untaken(launched)
  local pending = lent.program
  if launched then refuse_settings(launched) end
  for _, flag in ipairs(lent.flags) do
    if pending and pending.left and pending.left[flag] then
      failure(2, "--%s is taken up by recipes that return a table and by trainers (gm.trainer(engine):fit { ... }); "
        .. "this loop is the recipe's own: %s", (flag:gsub("_", "-")), instead[flag])
    end
  end
end

return lent
