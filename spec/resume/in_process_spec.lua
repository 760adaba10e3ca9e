--- A resumed run has the same bits as one that was never stopped; a checkpoint that does not fit changes nothing.
local failure = require "ganymede.base.failure"
local checkpoint = require "ganymede.checkpoint"
local fit = require("ganymede.train.fit").fit
local gm = require "ganymede"
local numbers = require("spec.train.support").numbers
local support = require "spec.resume.support"


local function run(folder, steps, resume, changes)
  local said = {}
  local trainer = fit(support.config(changes), {
    steps = steps, out = folder, resume = resume, log = function(text) said[#said + 1] = text end })
  trainer.said = table.concat(said, "\n")
  return trainer
end

describe("resuming", function()
  after_each(support.clean)

  for _, steps in ipairs { 5, 10, 15 } do
    it(("at step %d of 20 gives the same bits"):format(steps), function()
      local whole = run(support.folder(), 20)
      local folder = support.folder()
      local first = run(folder, steps)
      local second = run(folder, 20, "auto")
      assert.equal(20, #whole.losses)
      assert.same(whole.losses, support.joined(first.losses, second.losses))
      assert.same(numbers(whole.engine.model), numbers(second.engine.model))
      assert.same(whole.metrics, second.metrics)
      assert.equal(whole.engine.optimizer.lr, second.engine.optimizer.lr)
      assert.is_true(whole.losses[20] < whole.losses[1])
    end)
  end

  it("saves each step once, also where the interval and the end meet", function()
    local snapshot = require "ganymede.checkpoint.snapshot"
    local start, saved = snapshot.start, {}
    finally(function() snapshot.start = start end)
    snapshot.start = function(trainer, ...)
      saved[#saved + 1] = trainer.step
      return start(trainer, ...)
    end
    run(support.folder(), 10)
    run(support.folder(), 3)
    assert.same({ 5, 10, 3 }, saved)
  end)

  it("is not what a run does in a folder that has checkpoints: it is refused, and nothing is lost", function()
    local folder = support.folder()
    run(folder, 10)
    local ok, err = pcall(run, folder, 5)
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
    assert.matches(folder .. " holds checkpoints of an earlier run, the newest of step 10", failure.text(err), 1, true)
    ok, err = pcall(run, support.folder(), 5, nil, { hooks = { { type = "CheckpointHook",
      directory = folder .. "/checkpoints" } } })
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
    assert.matches("--resume " .. folder .. "/checkpoints goes on from that step; to begin anew give another directory",
      failure.text(err), 1, true)
    assert.equal(10, run(folder, 10, "auto").step)
  end)

  it("reads the same numbers whatever happened before in the process", function()
    local folder = support.folder()
    run(folder, 10)
    local one = run(folder, 15, folder)
    assert.equal(15, one.step)
    local two = run(folder, 20, checkpoint.list(folder .. "/checkpoints")[2].path) -- of step 10
    local three = run(support.folder(), 20)
    assert.equal(10, #two.losses)
    for i = 1, 10 do assert.equal(three.losses[10 + i], two.losses[i]) end
  end)

  it("from an older checkpoint says which later ones auto would take", function()
    local folder = support.folder()
    run(folder, 15)
    local older = checkpoint.list(folder .. "/checkpoints")[2].path -- of step 10
    assert.matches("resume: .* has later checkpoints, up to step 15, which %-%-resume auto would take until",
      run(folder, 12, older).said)
    assert.not_matches("later checkpoints", run(support.folder(), 12, older).said)
    assert.not_matches("later checkpoints", run(folder, 16, "auto").said)
  end)

  it("stops with status 75 at the end of a step, saved, and goes on from there", function()
    local folder, stats = support.folder(), {}
    local ok, err = pcall(fit, support.config(), { steps = 20, out = folder, stats = stats, log = function() end,
      stop_requested = function() return stats.steps == 7 end })
    assert.is_false(ok)
    assert.equal(75, failure.code(err))
    assert.matches("stopped after step 7; saved .*%-%-resume", failure.text(err))
    assert.equal(7, #stats.loss)
    local second = run(folder, 20, "auto")
    assert.same(run(support.folder(), 20).losses, support.joined(stats.loss, second.losses))
  end)

  it("completes the checkpoint under way when the run ends with an error", function()
    local folder = support.folder()
    local raising = gm.hooks.class("RaisingHook", {}, { priority = 90, needs_output = false })
    function raising.after_train_iter(_, trainer)
      if trainer.step == 10 then error("no more", 0) end
    end
    local config = support.config()
    config.hooks[#config.hooks + 1] = raising {}
    local ok, err = pcall(fit, config, { steps = 20, out = folder, log = function() end })
    assert.is_false(ok)
    assert.matches("no more", failure.text(err))
    local list = checkpoint.list(folder .. "/checkpoints")
    assert.equal(10, list[#list].step)
    assert.is_true(checkpoint.verify(list[#list].path))
  end)

  it("evaluates once when there is nothing left to do", function()
    local folder = support.folder()
    local first = run(folder, 10)
    local again = run(folder, 10, "auto")
    assert.equal(0, #again.losses)
    assert.equal(first.metrics.test.accuracy, again.metrics.test.accuracy)
  end)

  it("starts fresh with auto and an empty folder, and says so when a folder was named", function()
    assert.equal(3, #run(support.folder(), 3, "auto").losses)
    local ok, err = pcall(run, support.folder(), 3, support.folder())
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
  end)

  local wrong = {
    { "another width", "shape of 'layers%.1%.weight' is 24, 6 here, 16, 6 in the checkpoint",
      { model = { type = "MLP", inputs = 6, hidden = { 24 }, classes = 4, dropout = 0.3 } } },
    { "another depth", "it has no 'layers%.2%.weight'",
      { model = { type = "MLP", inputs = 6, hidden = { 16, 4 }, classes = 4, dropout = 0.3 } } },
    { "fewer layers", "", { model = { type = "MLP", inputs = 6, hidden = {}, classes = 4 } } },
    { "another optimizer", "the optimizer is SGD here, AdamW in the checkpoint", { optimizer = { type = "SGD" } } },
    { "another seed", "the seed is 6 here, 5 in the checkpoint", { seed = 6 } },
    { "another dtype", "dtype is f64 here, f32 in the checkpoint", { dtype = "f64" } },
    { "another schedule", "scheduler is StepLR here, CosineAnnealingWarmupLR in",
      { lr_scheduler = { type = "StepLR" } } },
    { "more samples in as many steps", "the training data have 103 samples here, 100 in the checkpoint",
      { data = { train = { type = "Synthetic", length = 103, shape = { 6 }, classes = 4, split = "train" },
        test = support.config().data.test, batch_size = 8 } } },
    { "other batches", "steps an epoch is 13 here, 7 in the checkpoint", { gradient_accumulation = 1 } },
  }
  for _, case in ipairs(wrong) do
    it("refuses " .. case[1] .. " with status 2", function()
      local folder = support.folder()
      run(folder, 5)
      local before = require("ganymede.core").default_dtype()
      local ok, err = pcall(run, support.folder(), 10, folder, case[3])
      require("ganymede.core").set_default_dtype(before)
      assert.is_false(ok)
      assert.equal(2, failure.code(err), failure.text(err))
      assert.matches("cannot resume from .*" .. case[2], failure.text(err))
    end)
  end

  it("changes nothing in memory when the checkpoint does not fit", function()
    local snapshot = require "ganymede.checkpoint.snapshot"
    local folder = support.folder()
    run(folder, 5, nil, { model = { type = "MLP", inputs = 6, hidden = { 16, 16 }, classes = 4, dropout = 0.3 } })
    local here = run(support.folder(), 3)
    local before = { numbers(here.engine.model), here.step, here.engine.steps_done, here.engine.optimizer.lr,
                     here.engine.lr_scheduler:state() }
    assert.is_false(pcall(snapshot.restore, here, checkpoint.latest(folder .. "/checkpoints")))
    assert.same(before, { numbers(here.engine.model), here.step, here.engine.steps_done, here.engine.optimizer.lr,
                          here.engine.lr_scheduler:state() })
  end)

  it("ends with status 5 on a damaged checkpoint, and auto takes the one before", function()
    local log = require "ganymede.base.log"
    local level = log.level
    log.level = 0
    finally(function() log.level = level end)
    local folder = support.folder()
    run(folder, 10)
    local newest = checkpoint.latest(folder .. "/checkpoints")
    local pipe = io.popen("find '" .. newest .. "' -name '*.safetensors'")
    local file = pipe:read "*l"
    pipe:close()
    local bytes = support.read(file)
    support.write(file, bytes:sub(1, -10) .. string.char((bytes:byte(-9) + 1) % 256) .. bytes:sub(-8))
    local ok, err = pcall(run, support.folder(), 20, newest)
    assert.is_false(ok)
    assert.equal(5, failure.code(err), failure.text(err))
    assert.equal(15, #run(folder, 20, "auto").losses)
    for _, entry in ipairs(checkpoint.list(folder .. "/checkpoints")) do
      support.write(entry.path .. "/index.json", "{")
    end
    for _, resume in ipairs { "auto", folder } do -- never a silent fresh start
      ok, err = pcall(run, folder, 20, resume)
      assert.is_false(ok)
      assert.equal(5, failure.code(err))
      assert.matches("all checkpoints in .* are damaged", failure.text(err))
    end
  end)

  it("says which settings of the schedule are no longer what they were", function()
    local folder = support.folder()
    run(folder, 5)
    local trainer = run(folder, 6, "auto", { lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 3 } })
    assert.matches("resume: warmup_steps of CosineAnnealingWarmupLR was 12, is 3 now", trainer.said)
    assert.not_matches("total_steps", trainer.said)
  end)
end)
