--- The engine: the canonical loop, accumulation, clipping, divergence.
local gm = require "ganymede"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local support = require "spec.train.support"

local shape = { width = 5, classes = 4, dropout = 0.25 }

local function build(opt)
  local model = support.model(opt.shape or shape)
  local loader = support.loader {
    batches = opt.batches, size = opt.size, width = 5, classes = 4, ignored = opt.ignored }
  local engine, train, test, scheduler = gm.initialize {
    model = model, criterion = { type = "CrossEntropyLoss" }, train_dataloader = loader, test_dataloader = loader,
    optimizer = opt.optimizer or { type = "AdamW", lr = 0.02, weight_decay = 0.1 }, lr_scheduler = opt.lr_scheduler,
    clip_grad_norm = opt.clip, gradient_accumulation = opt.accumulation,
  }
  return { engine = engine, train = train, test = test, scheduler = scheduler, model = model, loader = loader }
end

-- The loop of engine.lua's head -> losses of the updates
local function canonical(run, epochs)
  local losses, sum = {}, 0
  run.engine:train()
  for epoch = 0, epochs - 1 do
    run.train:set_epoch(epoch)
    for x, y in run.train:batches() do
      run.engine:zero_grad()
      local loss = run.engine:criterion(run.engine(x), y)
      run.engine:backward(loss)
      sum = sum + loss:item()
      run.engine:step()
      if run.scheduler then run.scheduler:step() end
      if run.engine.updated then losses[#losses + 1], sum = sum, 0 end
    end
  end
  return losses
end

describe("the engine", function()
  it("gives the same bits for the canonical loop and the trainer", function()
    local opt = { batches = 3, size = 4, clip = 0.7, lr_scheduler = { type = "CosineAnnealingLR", total_steps = 9 } }
    local one = build(opt)
    local losses = canonical(one, 3)
    local first = support.numbers(one.model)
    local two = build(opt)
    local trainer = gm.trainer(two.engine)
    trainer:fit { train_dataloader = two.train, epochs = 3 }
    assert.equal(9, #losses)
    assert.same(losses, trainer.losses)
    assert.same(first, support.numbers(two.model))
    assert.equal(one.engine.optimizer.lr, two.engine.optimizer.lr)
    local other = build { batches = 3, size = 4 }
    assert.is_not.same(losses, canonical(other, 3)) -- clip and scheduler do something
  end)

  for _, ignored in ipairs { false, true } do
    it(("4 batches of 2 equal one of 8, dropout on%s"):format(ignored and ", some targets ignored" or ""), function()
      support.with_dtype("f64", function()
        local small = build { batches = 12, size = 2, accumulation = 4, clip = 0.5, ignored = ignored }
        local small_losses = canonical(small, 1)
        local large = build { batches = 3, size = 8, clip = 0.5, ignored = ignored }
        local large_losses = canonical(large, 1)
        assert.equal(3, #small_losses)
        -- sums in another order: f64 rounding, 2^-53 a term, some hundred terms
        assert.is_true(support.difference(large_losses, small_losses) < 1e-12)
        assert.is_true(support.difference(support.numbers(large.model), support.numbers(small.model)) < 1e-12)
      end)
    end)
  end

  it("changes parameters and the rate at the last batch of a step only", function()
    local halving = { type = "ExponentialLR", gamma = 0.5 }
    local run = build { batches = 6, size = 2, accumulation = 3, lr_scheduler = halving }
    local before, changes, rates = support.numbers(run.model), {}, {}
    run.engine:train()
    for x, y in run.train:batches() do
      run.engine:zero_grad()
      run.engine:backward(run.engine:criterion(run.engine(x), y))
      run.engine:step()
      run.scheduler:step()
      local now = support.numbers(run.model)
      changes[#changes + 1] = support.difference(before, now) > 0
      rates[#rates + 1] = run.engine.optimizer.lr
      before = now
    end
    assert.same({ false, false, true, false, false, true }, changes)
    assert.same({ 0.02, 0.02, 0.01, 0.01, 0.01, 0.005 }, rates)
  end)

  it("takes what is left as the last step of an epoch", function()
    local run = build { batches = 5, size = 2, accumulation = 3 }
    assert.equal(2, run.train:length())
    assert.equal(2, #canonical(run, 1))
    assert.equal(2, run.engine.steps_done)
  end)

  it("refuses foreign batches when it accumulates", function()
    local run = build { batches = 2, size = 2, accumulation = 2 }
    local x, y = run.loader:next()
    assert.error_matches(function() run.engine:criterion(run.engine(x), y) end,
      "gradient_accumulation = 2: take the batches")
    assert.error_matches(function() run.engine:step() end, "without engine:backward")
  end)

  it("clips to the norm that the gradients have", function()
    -- SGD with lr 1: the change of the parameters is the clipped gradient
    local function change(clip)
      return support.with_dtype("f64", function()
        local run = build { batches = 1, size = 8, clip = clip, optimizer = { type = "SGD", lr = 1 } }
        local before = support.numbers(run.model)
        canonical(run, 1)
        local sum, out = 0, {}
        for i, v in ipairs(support.numbers(run.model)) do
          out[i] = before[i] - v
          sum = sum + out[i] ^ 2
        end
        return math.sqrt(sum), out, run.engine.grad_norm
      end)
    end
    local free, gradient, reported = change(0)
    assert.is_true(math.abs(free / reported - 1) < 1e-12)
    local clipped, direction = change(free / 4)
    assert.is_true(math.abs(clipped / (free / 4) * (free + 1e-6) / free - 1) < 1e-9)
    for i, g in ipairs(gradient) do direction[i] = direction[i] * 4 * (free + 1e-6) / free - g end
    for _, wrong in ipairs(direction) do assert.is_true(math.abs(wrong) < 1e-12) end
    assert.equal(free, (change(free * 2)))
  end)

  it("blames an op, not a parameter, for a loss that is NaN while all parameters are finite", function()
    local model = gm.nn.Linear { inputs = 2, outputs = 1 }
    local engine = gm.initialize { model = model, optimizer = { type = "SGD", lr = 0.1 },
      criterion = function(y) return gm.ops.log(y * 0 - 1):sum() end }
    engine:train()
    engine:zero_grad()
    engine:backward(engine:criterion(engine(gm.ones { 3, 2 })))
    local ok, err = pcall(function()
      engine:step()
      engine:settle()
    end)
    assert.is_false(ok)
    assert.matches("first that is not finite: the loss; all parameters are finite, so an op", failure.text(err))
  end)

  it("ends a run that diverges with status 8, the step, and the first bad parameter", function()
    local run = build { batches = 3, size = 4, optimizer = { type = "SGD", lr = 0.1 } }
    canonical(run, 1)
    run.model:parameters()[3]:detach():set(2, 1, math.huge)
    local ok, err = pcall(canonical, run, 1)
    assert.is_false(ok)
    assert.equal(8, failure.code(err))
    assert.matches("diverged: loss .*step 4; first that is not finite: 4%.weight[%s]", failure.text(err))
    local again = build { batches = 1, size = 4, optimizer = { type = "SGD", lr = 0.1 } }
    local before = support.numbers(again.model)
    again.engine:train()
    for x, y in again.train:batches() do
      local loss = again.engine:criterion(again.engine(x), y)
      again.engine:backward(loss * 1e30 * 1e30)
    end
    ok, err = pcall(function()
      again.engine:step()
      again.engine:settle() -- a GPU is a step behind
    end)
    assert.is_false(ok)
    assert.equal(8, failure.code(err))
    assert.matches("the loss; all parameters are finite", failure.text(err))
    assert.same(before, support.numbers(again.model))
  end)

  it("evaluates with the batch's own count and without dropout", function()
    local run = build { batches = 2, size = 4 }
    run.engine:eval()
    local x, y = run.loader:next()
    local a, b = run.engine:criterion(run.engine(x), y):item(), run.engine:criterion(run.engine(x), y):item()
    assert.equal(a, b)
    local loss = gm.ops.cross_entropy(run.model:eval()(x), y)
    assert.near(loss:mean():item(), a, 1e-6)
  end)

  it("draws the masks of a step from the step, not from what ran before", function()
    local run = build { batches = 2, size = 4 }
    local x = run.loader:next()
    local function output()
      run.engine:train()
      run.engine:zero_grad()
      return gm.scope(function() return run.engine(x):reshape(16):totable() end)
    end
    local first = output()
    run.engine:eval()
    gm.scope(function() run.engine(x) end)
    assert.same(first, output())
    run.engine:set_steps(1)
    assert.is_not.same(first, output())
  end)

  it("goes on to the next epoch by itself, unless set_epoch says which", function()
    local run = build { batches = 3, size = 2 }
    local epochs = {}
    local function pass(loader)
      loader:batches()() -- a pass that is broken off
      epochs[#epochs + 1] = run.loader.epoch
      for _ in loader:batches() do epochs[#epochs + 1] = run.loader.epoch end
    end
    pass(run.train)
    pass(run.train)
    run.train:set_epoch(5)
    pass(run.train)
    assert.same({ 0, 0, 0, 0, 1, 1, 1, 1, 5, 5, 5, 5 }, epochs)
    run.test:set_epoch(0)
    epochs = {}
    pass(run.test)
    pass(run.test)
    assert.same({ 0, 0, 0, 0, 0, 0, 0, 0 }, epochs)
  end)

  it("takes turns with another engine in the same process", function()
    local alone = canonical(build { batches = 3, size = 4 }, 2)
    local one, other = build { batches = 3, size = 4 }, build { batches = 6, size = 2 }
    local losses = {}
    for epoch = 0, 1 do
      one.train:set_epoch(epoch)
      for x, y in one.train:batches() do
        one.engine:zero_grad()
        local loss = one.engine:criterion(one.engine(x), y)
        one.engine:backward(loss)
        losses[#losses + 1] = loss:item()
        one.engine:step()
        if #losses % 2 == 0 then canonical(other, 1) end
      end
    end
    assert.same(alone, losses)
  end)

  it("checks what it is given", function()
    local model = support.model(shape)
    assert.error_matches(function() gm.initialize { model = model, critereon = {} } end, "did you mean 'criterion'")
    assert.error_matches(function() gm.initialize { model = model, optimizer = { type = "Adamw" } } end, "AdamW")
    assert.error_matches(function() gm.initialize { optimizer = { type = "AdamW" } } end, "option 'model' is missing")
  end)

  it("holds no memory from one turn of the loop to the next", function()
    local run = build { batches = 4, size = 8 }
    canonical(run, 2)
    collectgarbage()
    local live = gm.memory().live
    for _ = 1, 5 do canonical(run, 1) end
    assert.equal(live, gm.memory().live)
  end)

  it("closes the scopes of loops that were left by break or by an error", function()
    local run = build { batches = 3, size = 4, accumulation = 2 }
    local depth = core.scope_depth()
    local kept = gm.scope(function()
      return (run.train:batches()())
    end)
    assert.equal(depth, core.scope_depth())
    assert.same({ 4, 5 }, kept:shape())
    pcall(gm.scope, function()
      for _ in run.train:batches() do error "stop" end
    end)
    assert.equal(depth, core.scope_depth())
    local inner = build { batches = 3, size = 4 }
    for _ in run.train:batches() do inner.train:batches()() end
    assert.equal(depth, core.scope_depth())
  end)

  it("counts steps for the random numbers", function()
    local run = build { batches = 3, size = 4 }
    canonical(run, 1)
    assert.equal(3, run.engine.steps_done)
    assert.equal(3, run.engine.optimizer:steps())
    assert.equal(core.seed(), 3)
  end)
end)
