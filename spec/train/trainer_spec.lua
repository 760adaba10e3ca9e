--- The trainer: which hook points are called when, evaluation, prediction, the hooks that ship.
local gm = require "ganymede"
local hooks = require "ganymede.hooks"
local support = require "spec.train.support"
local tables = require "spec.support.tables"

local function build(opt)
  opt = opt or {}
  local model = support.model { width = 3, classes = 3, dropout = opt.dropout, seed = opt.seed }
  local loader = support.loader {
    batches = opt.batches or 3, size = 4, width = 3, classes = 3, ignored = opt.ignored }
  local engine, train, test = gm.initialize {
    model = model, criterion = { type = "CrossEntropyLoss" }, train_dataloader = loader, test_dataloader = loader,
    optimizer = { type = "SGD", lr = 0.1 }, lr_scheduler = opt.lr_scheduler, gradient_accumulation = opt.accumulation,
  }
  local trainer = gm.trainer(engine)
  trainer.said = {}
  trainer.sink = function(text) trainer.said[#trainer.said + 1] = text end
  return trainer, train, test, model, loader
end

local function tracer(trace, name, priority)
  local hook = { name = name, priority = priority }
  for _, point in ipairs(hooks.points) do
    hook[point] = function(self, trainer)
      assert(self == hook and trainer.engine)
      trace[#trace + 1] = name and name .. " " .. point or point
    end
  end
  return hook
end

local function repeated(n, ...)
  local out = {}
  for _ = 1, n do
    for _, v in ipairs { ... } do out[#out + 1] = v end
  end
  return out
end

local joined = tables.joined

describe("the trainer", function()
  it("calls the hook points in the golden order (2 epochs, 3 steps each, at most 5, test every epoch)", function()
    local trainer, train, test = build()
    local trace = {}
    trainer:fit { train_dataloader = train, test_dataloader = test, epochs = 2, max_steps = 5, test_interval = 1,
                  hooks = { tracer(trace) } }
    local function epoch(steps)
      return joined({ "before_train_epoch" },
        repeated(steps, "before_train_iter", "after_train_iter", "after_train_loss"), { "after_train_epoch" })
    end
    local evaluation = joined({ "before_test", "before_test_epoch" },
      repeated(3, "before_test_iter", "after_test_iter"), { "after_test_epoch", "after_test" })
    assert.same(joined({ "after_hook_is_attached", "before_train" }, epoch(3), evaluation, epoch(2), evaluation,
      { "after_train" }), trace)
    assert.equal(5, trainer.step)
  end)

  it("is not made without an engine", function()
    assert.has_error(function() gm.Trainer() end,
      "bad argument #1 to 'Trainer' (engine must be a table; got no value): Trainer(engine table)")
    assert.error_matches(function() gm.trainer(1) end, "#1 to 'Trainer' %(engine must be a table; got 1%)")
    assert.error_matches(function() gm.trainer({}, 2) end, "Trainer takes 1 argument; got 2")
  end)

  it("calls hooks by priority, then in the order given", function()
    local trainer, train = build { batches = 1 }
    local trace = {}
    local given = { tracer(trace, "c", 20), tracer(trace, "a", 0), tracer(trace, "d", 20), tracer(trace, "b") }
    trainer:fit { train_dataloader = train, max_steps = 1, hooks = given }
    local order = {}
    for _, entry in ipairs(trace) do
      if entry:match "after_train_iter" then order[#order + 1] = entry:sub(1, 1) end
    end
    assert.same({ "a", "b", "c", "d" }, order)
  end)

  it("evaluates every test_interval epochs, and at the end", function()
    local trainer, train, test = build()
    local at = {}
    trainer:fit { train_dataloader = train, test_dataloader = test, epochs = 5, test_interval = 2,
                  hooks = { { after_test = function(_, t) at[#at + 1] = t.step end } } }
    assert.same({ 6, 12, 15 }, at)
    assert.error_matches(function() trainer:fit { train_dataloader = train, epochs = 6, test_interval = 2 } end,
      "fit: test_interval has no effect without a test_dataloader")
  end)

  it("gives hooks the output, the labels and the loss of the step", function()
    local trainer, train = build { batches = 4, accumulation = 2 }
    local seen = {}
    trainer:fit { train_dataloader = train, epochs = 1, hooks = { {
      after_train_iter = function(_, _, output, label, loss)
        seen[#seen + 1] = { output:size(1), output:size(2), label:size(1), type(loss), output:requires_grad() }
      end } } }
    assert.same({ { 8, 3, 8, "number", false }, { 8, 3, 8, "number", false } }, seen)
  end)

  it("says which point does not exist", function()
    local trainer, train = build()
    assert.error_matches(function()
      trainer:fit { train_dataloader = train, epochs = 1, hooks = { { name = "mine", after_train_iteration = print } } }
    end, "hook mine: there is no point 'after_train_iteration' %(did you mean 'after_train_iter'%?%)")
    assert.error_matches(function()
      trainer:fit { train_dataloader = train, epochs = 1, hooks = { { after_train_iteration = print } } }
    end, "hook without a name: there is no point 'after_train_iteration'")
    assert.error_matches(function() trainer:fit { train_dataloader = train } end, "epochs or max_steps")
  end)

  it("moves the scheduler by itself, once", function()
    for _, given in ipairs { {}, { { type = "LRSchedulerHook" } } } do
      local trainer, train = build { lr_scheduler = { type = "ExponentialLR", gamma = 0.5 } }
      trainer:fit { train_dataloader = train, max_steps = 2, hooks = given }
      assert.equal(0.025, trainer.engine.optimizer.lr)
      assert.equal(0.025, trainer.states.lr)
    end
  end)

  it("trains to the same bits twice, and to others with another seed", function()
    local function bits(seed)
      local trainer, train, _, model = build { dropout = 0.3, seed = seed }
      trainer:fit { train_dataloader = train, epochs = 3 }
      return { trainer.losses, support.numbers(model) }
    end
    local first = bits()
    assert.same(first, bits())
    local other = bits(4)
    assert.is_not.same(first[1], other[1])
    assert.is_not.same(first[2], other[2])
  end)

  it("evaluation and prediction leave training as it was", function()
    local function bits(between)
      local trainer, train, test, model, loader = build { dropout = 0.3 }
      trainer:fit { train_dataloader = train, max_steps = 2 }
      if between then
        trainer:evaluate(test)
        loader:seek(0)
        trainer:predict((loader:next()))
      end
      trainer:fit { train_dataloader = train, max_steps = 6 }
      return support.numbers(model)
    end
    assert.same(bits(false), bits(true))
    local trainer, _, test, model = build()
    trainer:evaluate(test)
    assert.is_true(trainer.engine.training and model.training)
  end)

  it("predicts one input or many, without dropout and without gradients", function()
    local trainer, _, _, model, loader = build { dropout = 0.5 }
    local x = loader:next()
    local y = trainer:predict(x)
    model:eval()
    assert.same(model(x):totable(), y:totable())
    assert.is_false(y:requires_grad())
    assert.equal(2, #trainer:predict { x, x })
  end)

  it("stops at the end of a step when asked", function()
    local trainer, train, test = build()
    trainer.should_stop = function() return trainer.step >= 2 end
    local tested = false
    trainer:fit { train_dataloader = train, test_dataloader = test, epochs = 9,
                  hooks = { { before_test = function() tested = true end } } }
    assert.equal(2, trainer.step)
    assert.is_true(trainer.stopped)
    assert.is_false(tested)
  end)

  it("gives each step and each hook a scope of its own", function()
    local trainer, train = build { batches = 5 }
    local live = {}
    collectgarbage() -- what earlier examples left would go during the run
    trainer:fit { train_dataloader = train, epochs = 4, hooks = { {
      before_train_iter = function() live[#live + 1] = gm.memory().live end,
      after_train_iter = function() gm.zeros { 1000 } end } } }
    for i = 7, #live do assert.equal(live[6], live[i]) end -- a device may have kept a step as a graph by then
  end)
end)

describe("hooks", function()
  it("are added to a run that goes on, and removed from it, begun and ended", function()
    local trainer, train = build { batches = 6 }
    local said, late = {}, { name = "Late", needs_output = false }
    for _, point in ipairs { "after_hook_is_attached", "before_train", "after_train_iter", "after_train" } do
      late[point] = function(_, t, output) said[#said + 1] = point .. " " .. t.step .. (output and " output" or "") end
    end
    local function change(_, t)
      if t.step == 2 then
        assert.equal(late, t:add_hook(late))
        assert.error_matches(function() t:add_hook(late) end, "there already")
      end
      if t.step == 4 then assert.equal(1, t:remove_hook "Late") end
    end
    trainer:fit { train_dataloader = train, epochs = 1, hooks = { { before_train_iter = change } } }
    assert.same({ "after_hook_is_attached 2", "before_train 2", "after_train_iter 3", "after_train_iter 4",
      "after_train 4" }, said)
    assert.error_matches(function() trainer:remove_hook "Late" end, "no hook 'Late'.*names are: none")
    trainer:add_hook "LossHook"
    assert.error_matches(function() trainer:remove_hook "LosHook" end,
      "no hook 'LosHook' %(did you mean 'LossHook'%?%); those that have names are: LossHook")
    assert.equal(1, trainer:remove_hook "LossHook")
  end)

  it("are told of the end of an epoch where the steps end, and again when it goes on", function()
    local at = {}
    local function fit(steps, state, ending)
      local trainer, train = build { batches = 3 }
      trainer:prepare { train_dataloader = train, max_steps = steps, hooks = { "LossHook", {
        after_train_epoch = function(_, t) at[#at + 1] = ("%d %d"):format(t.epoch + 1, t.step) end,
        after_train_iter = function(_, t) if t.step == ending then t:stop() end end } } }
      if state then trainer:load_state(state) end
      trainer:fit()
      return trainer
    end
    local state = fit(4):state()
    assert.same({ "1 3", "2 4" }, at)
    local on = fit(7, state)
    assert.same({ "1 3", "2 4", "2 6", "3 7" }, at)
    assert.equal(7, on.step)
    at = {}
    fit(7, nil, 2)
    assert.same({ "1 2" }, at)
  end)

  it("AccuracyHook counts right answers, of training and test", function()
    local trainer, train, test = build()
    local right = 0
    trainer:fit { train_dataloader = train, test_dataloader = test, epochs = 1, hooks = {
      { type = "AccuracyHook" },
      { after_test_iter = function(_, _, output, label)
        for i = 1, 4 do
          local row, best = output[i]:totable(), 1
          for c = 2, 3 do if row[c] > row[best] then best = c end end
          if best - 1 == label:get(i) then right = right + 1 end
        end
      end } } }
    assert.equal(right / 12, trainer.metrics.test.accuracy)
    assert.is_true(trainer.metrics.train.accuracy >= 0 and trainer.metrics.train.accuracy <= 1)
  end)

  it("LossHook and the evaluation weigh batches by their targets", function()
    local trainer, train, test = build()
    trainer:fit { train_dataloader = train, test_dataloader = test, epochs = 1,
                  hooks = { { type = "LossHook", interval = 2 } } }
    local sum = 0
    for _, loss in ipairs(trainer.losses) do sum = sum + loss end
    assert.near(sum / 3, trainer.metrics.train.loss, 1e-12)
    assert.matches("^step 2  loss %d%.%d+  lr 0%.1$", trainer.said[1])
    assert.near(trainer:evaluate(test).loss, trainer.metrics.test.loss, 0)
  end)

  it("leave ignored targets out of the loss and the accuracy of an evaluation", function()
    local trainer, _, test, model, loader = build { ignored = true } -- 2, 3 and 3 targets in batches of 4
    trainer:attach { { type = "AccuracyHook" } }
    trainer:evaluate(test)
    model:eval()
    local sum, right, count = 0, 0, 0
    loader:seek(0)
    for x, y in function() return loader:next() end do
      local logits = model(x):log_softmax(-1):totable()
      for i, row in ipairs(logits) do
        local label = y:get(i)
        if label >= 0 then
          sum, count = sum - row[label + 1], count + 1
          if row[label + 1] == math.max(unpack(row)) then right = right + 1 end
        end
      end
    end
    assert.equal(8, count)
    assert.near(sum / count, trainer.metrics.test.loss, 1e-6) -- f32
    assert.equal(right / count, trainer.metrics.test.accuracy)
  end)

  it("ThroughputHook and MemoryHook measure; GradientNormHook keeps mean and largest", function()
    local trainer, train = build()
    trainer:fit { train_dataloader = train, epochs = 2, hooks = {
      { type = "ThroughputHook", ignored_steps = 2 }, { type = "MemoryHook" }, hooks.GradientNormHook {} } }
    assert.is_true(trainer.states.samples_per_second > 0)
    assert.is_nil(trainer.states.tokens_per_second) -- features are no tokens
    assert.equal(0, trainer.states.seconds_left)
    assert.is_true(trainer.states.memory_peak >= trainer.states.memory_live)
    assert.is_true(trainer.metrics.train.gradient_norm_max >= trainer.metrics.train.gradient_norm)
    assert.equal(trainer.engine.grad_norm, trainer.states.gradient_norm)
  end)

  it("ThroughputHook counts tokens where a sample is a sequence of them", function()
    local config = {
      seed = 1, dtype = "f32", steps = 3, loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW" },
      model = { type = "GPT", vocabulary = 16, sequence_length = 8, width = 8, depth = 1, heads = 2 },
      data = { train = { type = "Synthetic", kind = "tokens", length = 64, sequence_length = 8, vocab_size = 16 },
               batch_size = 4 },
      hooks = { { type = "ThroughputHook" }, { type = "AccuracyHook" } },
    }
    local stats = {}
    local trainer = gm.fit(config, { stats = stats, log = function() end })
    assert.equal(3 * 4 * 8, trainer.tokens)
    assert.near(8, trainer.states.tokens_per_second / trainer.states.samples_per_second, 1e-9)
    assert.near(8, stats.tokens_per_second / stats.samples_per_second, 1e-9)
    assert.equal(3, stats.steps)
    local rank = stats.ranks[1]
    assert.equal(4 * trainer.engine.model:count(), rank.parameter_bytes)
    assert.equal(rank.parameter_bytes, rank.gradient_bytes)
    assert.equal(2 * rank.parameter_bytes, rank.optimizer_bytes)
    assert.is_true(rank.activation_peak_bytes > 0 and rank.peak_bytes > 4 * rank.parameter_bytes)
  end)

  it("of a recipe that is wrong end the run with status 2 before it starts", function()
    local failure = require "ganymede.base.failure"
    local function config(changes)
      local c = {
        seed = 1, dtype = "f32", steps = 2, loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW" },
        model = { type = "MLP", inputs = 4, classes = 3 },
        data = { train = { type = "Synthetic", length = 8, shape = { 4 }, classes = 3 }, batch_size = 4 },
      }
      for key, value in pairs(changes) do c[key] = value end
      return c
    end
    for _, changes in ipairs {
      { lr_scheduler = { type = "OneCycleLR", pct_start = 0.5 } }, { hooks = { { type = "LossHook", intervall = 3 } } },
      { optimizer = { type = "SGD", nesterov = true } },
      { optimizer = { type = "AdamW", groups = { { match = "no such" } } } },
    } do
      local ok, err = pcall(gm.fit, config(changes), {})
      assert.is_false(ok)
      assert.equal(2, failure.code(err), failure.text(err))
    end
    assert.equal(2, gm.fit(config {}, { log = function() end }).step)
  end)

  it("refuse options they do not have", function()
    assert.error_matches(function() hooks.LossHook { every = 3 } end, "LossHook has no option 'every'")
    assert.error_matches(function() hooks.CheckpointHook { interval = 0 } end, "interval")
  end)
end)
