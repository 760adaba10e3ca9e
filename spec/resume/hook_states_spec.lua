--- States of hooks find their hooks again in a run that goes on with other hooks: more, fewer, in another order.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local fit = require("ganymede.train.fit").fit
local gm = require "ganymede"
local numbers = require("spec.train.support").numbers
local states = require "ganymede.hooks.states"
local support = require "spec.resume.support"

local function ema() return { type = "EMA", decay = 0.9 } end
local function rows(output, label) return (output - output):sum() + label:size(1), label:size(1) end
local function ratio(name, factor)
  return { type = "MetricHook", name = name, measure = function(output, label)
    local sum, count = rows(output, label)
    return sum * factor, count
  end }
end
local saves = { type = "CheckpointHook", interval = 5, keep_last = 9 }

-- Runs to a step with these hooks -> the trainer, whose `said` is what it told.
local function run(folder, steps, hooks, opt)
  local said = {}
  local context = { steps = steps, out = folder, log = function(text) said[#said + 1] = text end }
  for key, value in pairs(opt or {}) do context[key] = value end
  local trainer = fit(support.config { hooks = hooks }, context)
  trainer.said = table.concat(said, "\n")
  return trainer
end

local function hook_of(trainer, name)
  for _, hook in ipairs(trainer.hooks) do
    if hook.name == name then return hook end
  end
end

-- The averages of a trainer's EMA as numbers.
local function averages(trainer)
  local out = {}
  for i, entry in ipairs(hook_of(trainer, "EMA"):averages()) do out[i] = entry.tensor:reshape(-1):totable() end
  return out
end

describe("states of hooks", function()
  after_each(support.clean)

  it("are taken up by their hooks where there are others in front of them", function()
    local whole, folder = run(support.folder(), 10, { ema(), saves }), support.folder()
    run(folder, 5, { ema(), saves })
    local more = { { type = "LossHook" }, { type = "GradientNormHook" }, ema(), saves }
    local on = run(folder, 10, more, { resume = "auto" })
    assert.same(averages(whole), averages(on))
    assert.same(numbers(whole.engine.model), numbers(on.engine.model))
    assert.not_matches("not used", on.said)
  end)

  it("are taken up where a flag brings a hook", function()
    local whole, folder = run(support.folder(), 10, { ema(), saves }), support.folder()
    run(folder, 5, { ema(), saves })
    local on = run(folder, 10, { ema(), saves }, { resume = "auto", step_file = support.folder() .. "/step.json" })
    assert.same(averages(whole), averages(on))
  end)

  it("that no hook takes are named", function()
    local folder = support.folder()
    run(folder, 5, { ratio("one", 1), { type = "LossHook" }, ratio("two", 2), saves })
    local on = run(folder, 6, { ratio("two", 2), { type = "LossHook" }, saves }, { resume = "auto" })
    assert.equal(2, on.metrics.train.two) -- the sums of "one" would give less
    assert.matches("resume: the checkpoint has a state of MetricHook one, which is not used: no hook here takes it",
      on.said)
    assert.not_matches("LossHook, which", on.said)
  end)

  it("of metrics belong to metrics with these options", function()
    local function measures(...) return { { type = "MetricsHook", train = true, metrics = { ... } }, saves } end
    local accuracy, top, new = { type = "Accuracy" }, { type = "TopK", k = 2 }, { type = "Accuracy", name = "new" }
    local whole = run(support.folder(), 6, measures(accuracy, top)).metrics.train
    local folder = support.folder()
    run(folder, 5, measures(accuracy, top))
    local on = run(folder, 6, measures(new, top, accuracy), { resume = "auto" }).metrics.train
    assert.same({ whole.accuracy, whole.top_2 }, { on.accuracy, on.top_2 })
    local function of_another(name) -- top 3 of the steps after the fifth
      local older = { resume = folder .. "/checkpoints/step-00000005" }
      return run(folder, 6, measures({ type = "TopK", k = 3, name = name }), older).metrics.train[name]
    end
    assert.equal(of_another "top_3", of_another "top_2") -- another metric of a known name takes nothing, either
    assert.is_true(on.new ~= on.accuracy)
  end)

  it("of metrics of training are taken by the hook that measures training", function()
    local function hooks()
      return { { type = "MetricsHook", metrics = { { type = "TopK", k = 2 } } },
        { type = "MetricsHook", train = true, metrics = { { type = "Accuracy" } } }, saves }
    end
    local whole, folder = run(support.folder(), 6, hooks()), support.folder()
    run(folder, 5, hooks())
    assert.equal(whole.metrics.train.accuracy, run(folder, 6, hooks(), { resume = "auto" }).metrics.train.accuracy)
  end)

  it("of one title go in order, and other checkpoints have names for titles", function()
    local got = {}
    local function hook(name, number)
      return { name = name, state = function() return { number = number } end,
        load_state = function(_, state) got[#got + 1] = ("%s %d takes %d"):format(name, number, state.number) end }
    end
    local hooks = { hook("a", 1), { name = "b" }, hook("a", 2), hook("c", 3) }
    local list = states.of(hooks)
    assert.same({ { title = "a", state = { number = 1 } }, { title = "a", state = { number = 2 } },
      { title = "c", state = { number = 3 } } }, list)
    assert.same({}, states.load({ hooks[4], hooks[1], hooks[3] }, list))
    assert.same({ "a 1 takes 1", "a 2 takes 2", "c 3 takes 3" }, got)
    assert.same({ "b", "a" }, states.load({ hooks[1] }, { { name = "b", state = {} }, { name = "a", index = 4,
      state = { number = 7 } }, { title = "a", state = { number = 8 } } }))
    assert.equal("a 1 takes 7", got[4])
  end)

  it("of EarlyStopHook are those of one metric", function()
    local a = gm.hooks.EarlyStopHook { metric = "loss" }
    a.best, a.waited = 0.5, 2
    local b = gm.hooks.EarlyStopHook { metric = "accuracy" }
    assert.same({ "EarlyStopHook loss" }, states.load({ b }, states.of { a }))
    assert.is_nil(b.best)
  end)
end)
