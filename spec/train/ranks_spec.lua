--- Training on several ranks in one process each: what ranks agree on, what all of them measure, what is refused.
-- That whole runs equal those of one rank is shown in spec/parallel.
-- ranks: 3
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local ranks = require "ganymede.job.ranks"

local rank, world = core.rank(), core.world()

-- 50 points of 6 features in batches of 8: blocks of 3, 3 and 2 samples, and of the last batch 1, 1 and none.
local points = { type = "Synthetic", length = 50, shape = { 6 }, classes = 3 }

local function loader(opt)
  return gm.data.loader { dataset = points, batch_size = opt.batch_size or 8, seed = 3 }
end

local function build(opt)
  gm.context.load_config {}
  core.set_seed(5)
  gm.set_default_dtype "f64"
  finally(function() gm.set_default_dtype "f32" end)
  local nn = gm.nn
  local model = nn.Sequential { nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3) }
  local engine, train, test = gm.initialize {
    model = model, criterion = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
    train_dataloader = loader(opt), test_dataloader = loader { batch_size = 9 },
    gradient_accumulation = opt.accumulation, gradient_handler = opt.handlers,
  }
  local trainer = gm.trainer(engine)
  trainer.sink = function() end
  return trainer, train, test, model
end

-- Right answers and mean loss over all points, from whole tensors on every rank.
local function reference(model)
  local right, sum = 0, 0
  local dataset = gm.data.dataset(points)
  gm.scope(gm.no_grad, function()
    for i = 1, points.length do
      local x, y = dataset:get(i)
      local row = model(x:reshape(1, 6)):log_softmax(-1):totable()[1]
      local label = (type(y) == "number" and y or y:item()) + 1
      sum = sum - row[label]
      right = right + (row[label] == math.max(unpack(row)) and 1 or 0)
    end
  end)
  return right / points.length, sum / points.length
end

describe("ganymede.job.ranks", function()
  it("sums, compares and passes on", function()
    assert.same({ 3, 0.6, world }, (function(s) return { s[1], tonumber(("%.12g"):format(s[2])), s[3] } end)(
      ranks.sum { rank, 0.2, 1 }))
    assert.same({ 2, 0 }, ranks.max { rank, -rank })
    assert.is_true(ranks.any(rank == 1))
    assert.is_false(ranks.any(false))
    assert.same({ "r0", "r1", "r2" }, ranks.texts("r" .. rank))
    assert.equal("first 0", ranks.from_first(function() return "first " .. rank end))
    assert.is_nil(ranks.from_first(function() return nil end))
  end)

  it("knows this rank's term of sums and of copies", function()
    gm.context.load_config {}
    local copy = gm.tensor(7, { dtype = "f64" })
    assert.equal(rank == 0 and 7 or 0, ranks.part(copy))
    local x = gm.data.loader { dataset = points, batch_size = 8, dtype = "f64" }:next()
    local sum = x:sum()
    assert.same({ "data" }, core.layout(sum).partial)
    local whole = ranks.sum { ranks.part(sum) }[1]
    assert.near(sum:item(), whole, 1e-12 * math.abs(whole))
  end)

  it("raises a failure on all, which one rank prints", function()
    local ok, err = pcall(ranks.fail, 8, "diverged in step %d", 3)
    assert.is_false(ok)
    assert.equal(8, failure.code(err))
    assert.equal("diverged in step 3", failure.text(err))
    assert.equal(rank > 0, failure.is_peer(err))
    assert.is_true(ranks.agreed(err))
  end)

  it("names settings that differ, with their ranks", function()
    local function settings(lr, hidden) return { optimizer = { lr = lr }, model = { hidden = hidden }, f = print } end
    local hash = ranks.same_settings(settings(0.1, { 4, 2 }))
    assert.equal(hash, ranks.texts(hash)[1])
    local ok, err = pcall(ranks.same_settings, settings(rank == 1 and 0.2 or 0.1, rank == 2 and { 4 } or { 4, 2 }))
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
    assert.matches("model.hidden.2 is 2 on ranks 0, 1; not given on rank 2", failure.text(err), 1, true)
    assert.matches("optimizer.lr is 0.1 on ranks 0, 2; 0.2 on rank 1", failure.text(err), 1, true)
  end)
end)

describe("the trainer on several ranks", function()
  it("measures loss and accuracy over all samples, uneven batches included", function()
    local trainer, train, test, model = build {}
    trainer:fit { train_dataloader = train, test_dataloader = test, max_steps = 3, hooks = { "AccuracyHook" } }
    local accuracy, loss = reference(model)
    assert.equal(accuracy, trainer.metrics.test.accuracy)
    assert.near(loss, trainer.metrics.test.loss, 1e-12)
  end)

  it("divides by the targets of the whole step", function()
    local trainer, train, _, model = build { accumulation = 2 }
    local own, sum, count = loader {}, 0, 0
    own:set_epoch(0)
    for _ = 1, 2 do
      local x, y = own:next()
      sum = sum + gm.no_grad(function()
        return gm.nn.CrossEntropyLoss()(model(core.gather(x)), core.gather(y), 1):item()
      end)
      count = count + y:size(1)
    end
    trainer:fit { train_dataloader = train, max_steps = 1 }
    assert.equal(16, count)
    assert.equal(16, trainer.targets)
    assert.near(sum / count, trainer.losses[1], 1e-12)
  end)

  it("sees the outputs of accumulated batches whole", function()
    local seen, right, count = {}, 0, 0
    local trainer, train = build { accumulation = 2 }
    trainer:fit { train_dataloader = train, epochs = 1, hooks = { "AccuracyHook", {
      after_train_iter = function(_, _, output, label)
        seen[#seen + 1] = output:size(1)
        local labels = label:totable()
        for i, row in ipairs(output:totable()) do
          right = right + (row[labels[i] + 1] == math.max(unpack(row)) and 1 or 0)
          count = count + 1
        end
      end } } }
    assert.same({ 16, 16, 16, 2 }, seen)
    assert.equal(50, count)
    assert.equal(right / count, trainer.metrics.train.accuracy)
  end)

  it("has the same metrics on every rank, whatever the hooks", function()
    local trainer, train, test = build {}
    local said = {}
    trainer.sink = function(text) said[#said + 1] = text end
    trainer:fit { train_dataloader = train, test_dataloader = test, epochs = 2, hooks = {
      "LossHook", "AccuracyHook", "MemoryHook", "LearningRateHook", "LogMetricByStepHook", "LogMetricByEpochHook",
      { type = "GradientNormHook", norm_type = 3 }, { type = "ThroughputHook", peak_flops = "measured" },
      { type = "EvaluationHook", interval = 2 }, { type = "EarlyStopHook", patience = 2 }, "NaNWatchHook" } }
    local all = ranks.texts(json.encode { trainer.metrics, trainer.step, trainer.losses, trainer.states.best })
    assert.equal(all[1], all[2])
    assert.equal(all[1], all[3])
    assert.is_true(trainer.metrics.train.memory_peak >= core.memory().live)
    assert.is_true(trainer.states.mfu > 0 and trainer.states.mfu < 1)
    assert.equal(rank == 0, #said > 0) -- one rank speaks
  end)

  it("stops all ranks in the same step when one is asked to", function()
    local trainer, train = build {}
    trainer.should_stop = function() return rank == 2 and trainer.step >= 1 end
    trainer:fit { train_dataloader = train, max_steps = 6 }
    assert.is_true(trainer.stopped)
    assert.same({ "2", "2", "2" }, ranks.texts(tostring(trainer.step)))
  end)

  it("ends all ranks alike when a loss is not finite", function()
    local trainer, train = build {}
    trainer.engine.loss_function.forward = function(self, output, target, count) -- on one rank's samples alone
      local loss = gm.nn.CrossEntropyLoss.forward(self, output, target, count)
      return rank == 1 and loss * (0 / 0) or loss * 1
    end
    local ok, err = pcall(trainer.fit, trainer, { train_dataloader = train, max_steps = 2 })
    assert.is_false(ok)
    assert.equal(8, failure.code(err))
    assert.same({ "0", "0", "0" }, ranks.texts(tostring(trainer.step)))
  end)

  it("gathers the statistics of all ranks", function()
    local stats = {}
    gm.fit({
      seed = 1, dtype = "f64", loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
      model = { type = "MLP", inputs = 6, hidden = { 8 }, classes = 3 }, data = { train = points, batch_size = 9 },
      parallel = {}, steps = 2,
    }, { stats = stats })
    gm.set_default_dtype "f32"
    assert.equal(world, #stats.ranks)
    for i, entry in ipairs(stats.ranks) do
      assert.equal(i - 1, entry.rank)
      assert.equal(8 * (6 * 8 + 8 + 8 * 3 + 3), entry.parameter_bytes)
      assert.is_true(#entry.comm > 0)
    end
  end)
end)

describe("the engine on several ranks", function()
  local function one_step(engine, train)
    local x, y = train:batches()()
    engine:zero_grad()
    engine:backward(engine:criterion(engine(x), y))
    return x, y
  end

  it("refuses a backward that comes after the gradients were summed", function()
    local trainer, train = build {}
    local engine = trainer.engine
    local x, y = one_step(engine, train)
    local loss = engine:criterion(engine(x), y)
    assert.error_matches(function() engine:backward(loss) end, "is called again after the gradients .* add the losses")
    assert.is_true(engine:step())
  end)

  it("lets handlers of one's own sum, and refuses gradients that nobody summed", function()
    local function gradients(list)
      local trainer, train, _, model = build { handlers = list }
      one_step(trainer.engine, train)
      if list then assert.is_nil(trainer.engine.reducer) end
      trainer.engine:step()
      return model:parameters()[1]:grad():totable()
    end
    local own = { handle_gradient = function(_, engine) gm.gradient_handlers.sum(engine.parameters) end }
    local by_buckets, by_own = gradients(nil), gradients { own }
    local by_handler = gradients { { type = "DataParallelGradientHandler" } }
    for i, row in ipairs(by_buckets) do
      for j, v in ipairs(row) do
        assert.near(v, by_own[i][j], 1e-15)
        assert.near(v, by_handler[i][j], 1e-15)
      end
    end
    assert.error_matches(function() gradients { { handle_gradient = function() end } } end, "still to be summed")
  end)

  it("runs schedules: forward only, and with labels made by the recipe", function()
    local trainer, train = build {}
    local engine = trainer.engine
    local batches = train:batches()
    local output, label, loss = engine:execute_schedule(batches, { forward_only = true })
    assert.same({ 8, 3 }, output:shape())
    assert.same({ 8 }, label:shape())
    assert.same({ "data" }, core.layout(loss).partial)
    assert.equal(0, engine.batch)
    output, label, loss = engine:execute_schedule(batches, { return_output_label = false })
    assert.is_nil(output or label)
    assert.is_true(loss:item() > 0)
    assert.is_true(engine:step())
  end)
end)
