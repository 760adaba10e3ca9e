--- Hooks that decide something (evaluation, early stop, NaN watch) or report it (rates, norms, utilisation).
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.train.support"

local function build(opt)
  local model = support.model { width = 3, classes = 3 }
  local loader = support.loader { batches = opt.batches or 3, size = 4, width = 3, classes = 3 }
  local engine, train, test = gm.initialize {
    model = model, criterion = opt.criterion or { type = "CrossEntropyLoss" }, train_dataloader = loader,
    test_dataloader = loader, optimizer = { type = "SGD", lr = 0.1 }, lr_scheduler = opt.lr_scheduler,
  }
  local trainer = gm.trainer(engine)
  trainer.said = {}
  trainer.sink = function(text) trainer.said[#trainer.said + 1] = text end
  return trainer, train, test, model
end

local function said(trainer, pattern)
  for _, text in ipairs(trainer.said) do
    if text:find(pattern) then return true end
  end
  return false
end

-- A test metric that takes these values, evaluation by evaluation.
local function metric(name, values)
  local at = 0
  return { priority = 1, after_test_epoch = function(_, trainer)
    at = at + 1
    trainer.metrics.test[name] = values[math.min(at, #values)]
  end }
end

describe("help trainer", function()
  local text = ""
  setup(function()
    local result = run_host { "help", "trainer" }
    assert.equal(0, result.code, result.err)
    text = result.out:gsub("%s+", " ")
  end)

  it("lists the moments that a hook may define, all of them", function()
    local points, known = require("ganymede.hooks.base").points, {}
    for _, point in ipairs(points) do known[point] = true end
    local moments, n = text:match "define these moments, and hooks/base.lua says what each receives: ([^.]*)%.", 0
    for moment in moments:gmatch "[%w_]+" do
      n = n + 1
      assert.is_true(known[moment], moment)
    end
    assert.equal(#points, n)
  end)

  it("lists what a hook may read, and it is there", function()
    local trainer, train, test = build { lr_scheduler = { type = "StepLR" } }
    local reads, seen = text:match "A hook may read (.-)%. It may define", nil
    local hook = { needs_output = false, needs_loss = false }
    function hook.after_train_iter(_, t)
      seen = {}
      for name in reads:gsub("%b()", ""):gmatch "[%w_.]+" do
        local value = t
        for part in name:gmatch "[%w_]+" do value = value and value[part] end
        if name ~= "and" then seen[name] = value end
        assert.is_truthy(name == "and" or value ~= nil, name)
      end
    end
    trainer:fit { train_dataloader = train, test_dataloader = test, max_steps = 2, hooks = { hook } }
    for _, name in ipairs { "step", "epoch", "losses", "metrics.test", "engine", "total_steps" } do
      assert.is_truthy(seen[name] ~= nil, name)
    end
  end)
end)

describe("EvaluationHook", function()
  it("evaluates every so many steps, and the end once", function()
    local trainer, train, test = build {}
    local at = {}
    trainer:fit { train_dataloader = train, test_dataloader = test, max_steps = 6, hooks = {
      { type = "EvaluationHook", interval = 2 }, { after_test = function(_, t) at[#at + 1] = t.step end } } }
    assert.same({ 2, 3, 4, 6 }, at) -- 3 and 6 end epochs
  end)

  it("changes nothing of training", function()
    local function losses(hooks)
      local trainer, train, test = build {}
      trainer:fit { train_dataloader = train, test_dataloader = test, max_steps = 5, test_interval = 9, hooks = hooks }
      return trainer.losses
    end
    assert.same(losses {}, losses { { type = "EvaluationHook", interval = 1 } })
  end)

  it("needs something to evaluate on", function()
    local trainer, train = build {}
    assert.error_matches(function()
      trainer:fit { train_dataloader = train, max_steps = 1, hooks = { { type = "EvaluationHook", interval = 1 } } }
    end, "give data.test")
  end)
end)

describe("GradientNormHook", function()
  it("keeps a norm that is no number as the largest, whether code is compiled or is not", function()
    for _ = 1, 200 do
      local hook = gm.hooks.GradientNormHook {}
      local trainer = { engine = { norm_type = 2 }, states = {}, metrics = { train = {} } }
      for _, norm in ipairs { 1, 0 / 0, 3 } do hook:after_train_loss(trainer, { gradient_norm = norm }) end
      local largest = trainer.metrics.train.gradient_norm_max
      assert.is_true(largest ~= largest, tostring(largest))
      local on = gm.hooks.GradientNormHook {}
      on:load_state(json.decode(json.encode(hook:state()), "state"))
      on:after_train_loss(trainer, { gradient_norm = 4 })
      largest = trainer.metrics.train.gradient_norm_max
      assert.is_true(type(largest) == "number" and largest ~= largest)
    end
  end)
end)

describe("two hooks", function()
  local function fit(hooks)
    local trainer, train, test = build {}
    trainer:prepare { train_dataloader = train, test_dataloader = test, max_steps = 1, hooks = hooks }
    return trainer
  end

  it("of one class that write to one place are refused, at once", function()
    for _, name in ipairs { "CSVHook", "CheckpointHook", "TensorBoardHook", "PrometheusHook" } do
      local option, one = name == "PrometheusHook" and "file" or "directory", { type = name }
      assert.error_matches(function() fit { one, { type = name } } end, "hooks: two " .. name
        .. " write to one place, .* give one of them another " .. option)
      fit { one, { type = name, [option] = "x.prom" } }
    end
    assert.error_matches(function()
      fit { { type = "CSVHook", directory = "a/" }, { type = "CSVHook", directory = "a" } }
    end, "two CSVHook write to one place")
    fit { { type = "PrometheusHook" }, { type = "PrometheusHook", port = 0 }, { type = "PrometheusHook", port = 0 } }
    local trainer = fit { { type = "CSVHook", directory = "a" } }
    assert.error_matches(function() trainer:add_hook { type = "CSVHook", directory = "a" } end, "two CSVHook")
    assert.equal(1, #trainer.hooks)
  end)

  it("that measure under one name are refused, and a measure that hides the loss", function()
    local function measured(name) return { type = "MetricHook", name = name, measure = function() return 1 end } end
    fit { measured "error", measured "other", { type = "AccuracyHook" } }
    assert.error_matches(function() fit { measured "error", measured "error" } end,
      "MetricHook measures 'error', too; give one of them another name")
    assert.error_matches(function() fit { { type = "AccuracyHook" }, measured "accuracy" } end,
      "AccuracyHook measures 'accuracy', too")
    assert.error_matches(function()
      fit { measured "auc", { type = "MetricsHook", metrics = { { type = "AUC" } } } }
    end, "MetricsHook measures 'auc', too")
    assert.error_matches(function() fit { measured "loss" } end, 'MetricHook: name = "loss" would take the place')
    assert.error_matches(function()
      gm.hooks.MetricsHook { metrics = { { type = "Accuracy" }, { type = "AUC", name = "loss" } } }
    end, 'metrics%[2%]: name = "loss" would take the place of the loss of the evaluation')
  end)
end)

describe("EarlyStopHook", function()
  local function steps(values, opt)
    local trainer, train, test = build { batches = 1 }
    opt.type, opt.metric = "EarlyStopHook", opt.metric or "accuracy"
    trainer:fit { train_dataloader = train, test_dataloader = test, epochs = 9,
                  hooks = { metric(opt.metric, values), opt } }
    return trainer.step, trainer
  end

  it("ends after `patience` evaluations without progress", function()
    local step, trainer = steps({ 0.1, 0.5, 0.5, 0.4, 0.3, 0.9 }, { patience = 3 })
    assert.equal(5, step)
    assert.equal(0.5, trainer.states.best)
    assert.equal(2, trainer.states.best_step)
    assert.is_true(said(trainer, "the best accuracy was 0.5, in step 2"))
    assert.equal(9, (steps({ 1, 2, 3, 4, 5, 6, 7, 8, 9 }, { patience = 1 })))
    assert.equal(9, (steps({ 1, 1, 2, 2, 3, 3, 4, 4, 5 }, { patience = 2 }))) -- progress begins a new count
  end)

  it("takes NaN for no progress, and is not stuck with it", function()
    local nan = 0 / 0
    local step, trainer = steps({ nan, 0.5, nan, 0.6, 0.7, 0.6, nan }, { patience = 2 })
    assert.same({ 7, 0.7, 5 }, { step, trainer.states.best, trainer.states.best_step })
    step, trainer = steps({ nan, nan, 1 }, { patience = 2 })
    assert.equal(2, step)
    assert.is_nil(trainer.states.best)
    assert.is_true(said(trainer, "accuracy was NaN in all of 2 evaluations: training ends"))
  end)

  it("knows which way is better, and what is too little", function()
    assert.equal(2, (steps({ 1, 2, 0 }, { metric = "error", mode = "min", patience = 1 })))
    assert.equal(3, (steps({ 5, 4, 3.95, 3 }, { metric = "error", mode = "min", patience = 1, min_delta = 0.1 })))
  end)

  it("names the metrics there are", function()
    local trainer, train, test = build {}
    assert.error_matches(function()
      trainer:fit { train_dataloader = train, test_dataloader = test, epochs = 1,
                    hooks = { { type = "EarlyStopHook", metric = "f1" } } }
    end, "no metric 'f1'; there are loss")
    assert.equal(0, trainer.step) -- before the first step
  end)

  it("refuses a metric when hooks are attached, as soon as all of them say what they measure", function()
    local function try(metric_name, hooks)
      local trainer, train, test = build {}
      hooks[#hooks + 1] = { type = "EarlyStopHook", metric = metric_name }
      local ok, err = pcall(trainer.fit, trainer, { train_dataloader = train, test_dataloader = test, epochs = 1,
        hooks = hooks })
      return ok, err, trainer.step
    end
    local reporting = { "AccuracyHook", "EMA", "LossHook", "LogMetricByEpochHook",
      { type = "MetricsHook", metrics = { { type = "F1" } } },
      { type = "MetricHook", name = "mine", measure = function(output) return output:sum() end } }
    local ok, err, step = try("acuracy", { unpack(reporting) })
    assert.same({ false, 0 }, { ok, step })
    assert.matches("EarlyStopHook: evaluation has no metric 'acuracy'; there are accuracy, f1, loss, mine "
      .. "%(did you mean 'accuracy'%?%)", failure.text(err))
    local folder = shell.temporary_folder()
    ok, err, step = try("loss", { { type = "CheckpointHook", directory = folder, best = "acuracy" } })
    assert.same({ false, 0 }, { ok, step })
    assert.matches("CheckpointHook: evaluation has no metric 'acuracy'; there are loss", failure.text(err))
    shell.remove(folder)
    for _, name in ipairs { "accuracy", "f1", "loss", "mine" } do
      ok, err = try(name, { unpack(reporting) })
      assert.is_true(ok, failure.text(err))
    end
    ok, err, step = try("own", { metric("other", { 1 }) }) -- a hook that does not say what it measures
    assert.same({ false, 3 }, { ok, step })
    assert.matches("no metric 'own'; there are loss, other", failure.text(err))
    local Silent = gm.hooks.class("SilentHook", {}, { after_test = function() end,
      measures = function() return { "silence" } end })
    ok, err, step = try("own", { Silent() })
    assert.same({ false, 0 }, { ok, step })
    assert.matches("there are loss, silence", failure.text(err))
  end)
end)

describe("NaNWatchHook", function()
  -- A criterion whose loss of the batch number `bad` is not finite.
  local function spoiled(bad)
    local seen = 0
    return function(output, target)
      seen = seen + 1
      local loss = (output - gm.ops.cast(target, "f32"):reshape(4, 1)):square():mean()
      return bad[seen] and loss * (0 / 0) or loss
    end
  end

  local function run(action, bad, limit)
    local trainer, train, _, model = build { criterion = spoiled(bad) }
    local numbers = {}
    local hooks = { { after_train_iter = function() numbers[#numbers + 1] = support.numbers(model)[1] end },
                    action and { type = "NaNWatchHook", action = action, limit = limit } or nil }
    local ok, err = pcall(trainer.fit, trainer, { train_dataloader = train, max_steps = 4, hooks = hooks })
    return { ok = ok, err = err, trainer = trainer, numbers = numbers }
  end

  it("stops as a run without it does", function()
    for _, action in ipairs { false, "stop" } do
      local result = run(action, { [2] = true })
      assert.is_false(result.ok)
      assert.equal(8, failure.code(result.err))
      assert.equal(1, #result.numbers)
    end
  end)

  it("skips the update and goes on", function()
    local result = run("skip", { [2] = true })
    assert.is_true(result.ok, failure.text(result.err))
    assert.equal(result.numbers[1], result.numbers[2])
    assert.is_true(result.numbers[3] ~= result.numbers[2])
    assert.equal(4, result.trainer.step)
    assert.is_true(said(result.trainer, "step 2 .*the update was skipped"))
  end)

  it("warns and lets it happen", function()
    local result = run("warn", { [2] = true })
    assert.is_true(result.ok, failure.text(result.err))
    assert.is_true(result.numbers[2] ~= result.numbers[2]) -- NaN
    assert.is_true(said(result.trainer, "step 2 .*not finite"))
  end)

  it("gives up after `limit` steps in a row", function()
    local result = run("skip", { true, true, true, true }, 2)
    assert.equal(8, failure.code(result.err))
    assert.equal(2, result.trainer.step)
  end)

  it("goes on to count where a run is resumed among such steps", function()
    local all = setmetatable({}, { __index = function() return true end })
    local hooks = { { type = "NaNWatchHook", action = "skip", limit = 5 } }
    local before, train = build { criterion = spoiled(all) }
    before:fit { train_dataloader = train, max_steps = 3, hooks = hooks }
    local after, loader = build { criterion = spoiled(all) }
    after:prepare { train_dataloader = loader, max_steps = 9, hooks = hooks }
    after:load_state(json.decode(json.encode(before:state()), "state"))
    local ok, err = pcall(after.fit, after)
    assert.is_false(ok)
    assert.same({ 8, 5 }, { failure.code(err), after.step })
    local well = build {}
    well:fit { train_dataloader = loader, max_steps = 3, hooks = hooks }
    assert.same({}, well:state().hooks) -- nothing that a run without this hook would not take
  end)

  it("refuses a limit where the first such step ends the run", function()
    assert.error_matches(function() gm.hooks.NaNWatchHook { limit = 2 } end, "limit is for action")
    assert.error_matches(function() gm.hooks.NaNWatchHook { action = "stop", limit = 2 } end, "limit is for action")
  end)
end)

describe("hooks that report", function()
  it("measure any norm of the gradients", function()
    for _, p in ipairs { 1, 2, 3, math.huge } do
      local trainer, train, _, model = build {}
      trainer:fit { train_dataloader = train, max_steps = 1, hooks = { { type = "GradientNormHook", norm_type = p } } }
      local sum = 0
      for _, t in ipairs(model:parameters()) do
        for _, g in ipairs(t:grad():reshape(t:numel()):totable()) do
          sum = p == math.huge and math.max(sum, math.abs(g)) or sum + math.abs(g) ^ p
        end
      end
      local expected = p == math.huge and sum or sum ^ (1 / p)
      assert.is_true(expected > 1e-3)
      assert.near(1, trainer.states.gradient_norm / expected, 1e-6) -- f32 gradients, sums in f64
    end
  end)

  it("tell the learning rate of each step, not of the next", function()
    local trainer, train = build { lr_scheduler = { type = "ExponentialLR", gamma = 0.5 } }
    local rates = {}
    trainer:fit { train_dataloader = train, max_steps = 2, hooks = { { type = "LearningRateHook", interval = 1 },
      { priority = 99, after_train_iter = function(_, t) rates[#rates + 1] = t.metrics.train.lr end } } }
    assert.same({ 0.1, 0.05 }, rates)
    assert.is_true(said(trainer, "step 2  learning rate 0.05"))
  end)

  it("log all metrics, by step and by epoch", function()
    local trainer, train, test = build {}
    trainer:fit { train_dataloader = train, test_dataloader = test, epochs = 1, hooks = {
      { type = "LossHook" }, { type = "AccuracyHook" }, { type = "LogMetricByStepHook", interval = 2 },
      { type = "LogMetricByEpochHook" }, { type = "LogMemoryByEpochHook" } } }
    assert.is_true(said(trainer, "^step 2  loss %S+  accuracy %S+  loss %S+"))
    assert.is_false(said(trainer, "^step 3"))
    assert.is_true(said(trainer, "^epoch 1  step 3  accuracy"))
    assert.is_true(said(trainer, "^test  step 3  accuracy"))
    assert.is_true(said(trainer, "^memory  live"))
  end)

  it("show the share of the peak that a run uses", function()
    local trainer, train = build {}
    local before, hook = core.counters().flops, gm.hooks.ThroughputHook { peak_flops = 1e9 }
    trainer:fit { train_dataloader = train, max_steps = 2, hooks = { hook } }
    local states = trainer.states
    assert.is_true(states.flops_per_second > 0)
    assert.near(states.mfu, states.flops_per_second / 1e9, 1e-12)
    assert.equal(core.counters().flops - before, hook.flops) -- the steps are all that was computed
    assert.equal(hook.flops / hook.seconds, states.flops_per_second)
    trainer, train = build {}
    trainer:fit { train_dataloader = train, max_steps = 2,
                  hooks = { { type = "ThroughputHook", peak_flops = "measured", interval = 2 } } }
    assert.is_true(trainer.states.mfu > 0 and trainer.states.mfu < 1)
    assert.is_true(said(trainer, "MFU"))
    assert.error_matches(function() gm.hooks.ThroughputHook { peak_flops = "much" } end, '"measured"; got "much"')
  end)
end)
