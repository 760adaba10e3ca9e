--- Steps whose numbers come late, as on a GPU (spec/cuda/training_spec.lua has that), here on the device at hand: the
-- engine is told that it must not look and is ahead of the device, and must do what one does that looks at once.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local failure = require "ganymede.base.failure"
local shell = require "spec.support.shell"
local snapshot = require "ganymede.checkpoint.snapshot"
local support = require "spec.train.support"

-- opt.late: as on a GPU. opt.spoil: the step (from 1) whose loss is not finite.
local function build(opt)
  local model = support.model { width = 5, classes = 4, dropout = 0.25 }
  local loader = support.loader { batches = 12, size = 2, width = 5, classes = 4, ignored = true }
  local engine, train = gm.initialize {
    model = model, criterion = { type = "CrossEntropyLoss" }, train_dataloader = loader,
    optimizer = { type = "AdamW", lr = 0.02, weight_decay = 0.1 }, clip_grad_norm = 0.5, gradient_accumulation = 2,
  }
  engine.late, engine.ahead = opt.late or engine.late, opt.late or engine.ahead
  engine.on_not_finite = opt.on_not_finite
  local criterion = engine.criterion
  function engine.criterion(self, ...)
    local loss = criterion(self, ...)
    return self.steps_done + 1 == opt.spoil and loss * math.huge or loss
  end
  return { engine = engine, train = train, model = model }
end

local function fit(run, hooks, steps)
  local trainer = gm.trainer(run.engine)
  trainer.sink = function() end
  trainer:fit { train_dataloader = run.train, max_steps = steps or 6, hooks = hooks }
  return trainer
end

describe("numbers that come late", function()
  it("are the same bits as those that are looked at", function()
    local at_once, late = build {}, build { late = true }
    local want, got = fit(at_once), fit(late)
    assert.equal(6, #want.losses)
    assert.same(want.losses, got.losses)
    assert.equal(want.targets, got.targets) -- of which some are ignored
    assert.is_true(got.targets < 6 * 4)
    assert.same(support.numbers(at_once.model), support.numbers(late.model))
    assert.equal(at_once.engine.grad_norm, late.engine.grad_norm)
  end)

  it("are told in the order of steps, one step late, each with its own", function()
    local run, order = build { late = true }, {}
    local hook = { needs_output = false, needs_loss = false }
    function hook.after_train_iter(_, trainer, _, _, loss)
      assert.is_nil(loss)
      order[#order + 1] = "queued " .. trainer.step
    end
    function hook.after_train_loss(_, trainer, step)
      assert.equal(trainer.losses[step.step], step.loss)
      order[#order + 1] = "known " .. step.step
    end
    fit(run, { hook }, 3)
    assert.same({ "queued 1", "queued 2", "known 1", "queued 3", "known 2", "known 3" }, order)
  end)

  it("are waited for by a hook that needs the loss", function()
    local run, seen = build { late = true }, {}
    local hook = { needs_output = false }
    function hook.after_train_iter(_, trainer, _, _, loss) seen[trainer.step] = loss end
    local trainer = fit(run, { hook })
    assert.equal(6, #seen)
    assert.same(trainer.losses, seen)
  end)

  it("are waited for by who reads the engine", function()
    local run, want = build { late = true }, fit(build {}).losses
    run.engine:train()
    local losses = {}
    for x, y in run.train:batches() do
      run.engine:zero_grad()
      run.engine:backward(run.engine:criterion(run.engine(x), y))
      if run.engine:step() then losses[#losses + 1] = run.engine.last_loss end
    end
    assert.same(want, losses)
  end)

  it("end a run one step late, when nothing has changed since", function()
    local run, two = build { late = true, spoil = 3 }, build {}
    fit(two, nil, 2)
    local ok, err = pcall(fit, run)
    assert.is_false(ok)
    assert.equal(8, failure.code(err))
    assert.matches("diverged: loss inf, gradient norm .- in step 3; .*in the gradients of step 4", failure.text(err))
    assert.same(support.numbers(two.model), support.numbers(run.model))
    assert.same({ 2, 2 }, { run.engine.steps_done, run.engine.optimizer:steps() })
    run.engine.criterion, two.engine.criterion = nil, nil -- and it can go on as if the step had not been
    local function go_on(which)
      which.train:set_epoch(1)
      local step = which.train:next_step()
      which.engine:train()
      which.engine:forward_backward(step)
      which.engine:step()
      which.engine:settle()
      return which.engine.last_loss, support.numbers(which.model)
    end
    assert.same({ go_on(two) }, { go_on(run) })
  end)

  it("skip the same steps, which Adam does not count", function()
    local at_once = build { spoil = 3, on_not_finite = "skip" }
    local late = build { late = true, spoil = 3, on_not_finite = "skip" }
    local want, got = fit(at_once), fit(late)
    for i = 1, 6 do assert.is_true(want.losses[i] == got.losses[i] or i == 3) end
    assert.same(support.numbers(at_once.model), support.numbers(late.model))
    assert.same({ 6, 5, 1 }, { late.engine.steps_done, late.engine.optimizer:steps(), late.engine.not_finite })
    assert.same({ 6, 5 }, { at_once.engine.steps_done, at_once.engine.optimizer:steps() })
  end)

  it("go on from a checkpoint as if never stopped, after a step that was skipped", function()
    local directory = shell.temporary_folder()
    local whole = build { spoil = 2, on_not_finite = "skip" }
    local first = build { spoil = 2, late = true, on_not_finite = "skip" }
    fit(whole, nil, 9)
    local path = snapshot.save(fit(first, nil, 4), directory, {})
    local rest = build { late = true, on_not_finite = "skip" }
    local trainer = gm.trainer(rest.engine)
    trainer.sink = function() end
    trainer:prepare { train_dataloader = rest.train, max_steps = 9 }
    snapshot.restore(trainer, path)
    trainer:fit()
    shell.run("rm -rf " .. shell.quote(directory))
    assert.same(support.numbers(whole.model), support.numbers(rest.model))
    assert.equal(8, rest.engine.optimizer:steps())
  end)
end)
