--- A step that fails on one stage, as a line of the repl may: all ranks leave it, what was in flight is let go, and the
-- next step is the one it would have been.
-- ranks: 3
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local schedules = require "ganymede.schedules"
local section = require "spec.support.section"
local training = require "spec.pipeline.training"

local world, rank = core.world(), core.rank()
local N, M = 8, 4

-- x as it is; its gradient's way back fails
local broken_way_back = gm.custom {
  forward = function(x) return x * 1 end,
  backward = function() error("no way back", 0) end,
}

-- In the k-th forward pass of this rank's stage, once, what the input becomes.
local function trap(engine, k, change)
  local forward, calls = engine.stage.forward, 0
  engine.stage.forward = function(self, chunk, x, ...)
    calls = calls + 1
    if calls == k then x = change(x) end
    return forward(self, chunk, x, ...)
  end
  return function() engine.stage.forward = forward end
end

local mistakes = {
  { "a forward pass", "no such luck", function() error("no such luck", 0) end },
  { "a backward pass", "no way back", function(x) return broken_way_back(core.requires_grad(x, true)) end },
}

describe("a step that fails on one stage", function()
  before_each(function() gm.set_default_dtype "f64" end)
  after_each(function()
    gm.set_default_dtype "f32"
    training.install {}
  end)

  local function step(engine)
    local x, y = training.models.mlp.batch(1, N)
    engine:zero_grad()
    return gm.scope(function()
      local _, _, loss = engine:execute_schedule(training.once(x, y))
      return loss:item()
    end)
  end

  for _, order in ipairs { "1f1b", "zb-h2" } do
    for _, mistake in ipairs(mistakes) do
      it(("in %s is followed by one that is right: %s"):format(mistake[1], order), function()
        local wanted = training.serial("mlp", N, training.sizes(N, M), 1)[1]
        local engine = training.engine("mlp", { parallel = { pipeline = world },
          schedule = schedules.PipelineSchedule { num_microbatches = M, order = order } })
        for bad = 0, world - 1 do
          local undo = rank == bad and trap(engine, 2 + bad % 2, mistake[3])
          local err, failed, first = section(function() step(engine) end)
          if undo then undo() end
          assert.same({ 1, bad }, { failed, first })
          assert.matches(mistake[2], tostring(err))
          if rank ~= bad then assert.is_true(err.peer) end
        end
        assert.near(wanted.loss, step(engine), 1e-12 * wanted.loss)
        assert.is_true(engine:step())
        training.agree("weight", wanted.weights, engine, function(p) return p end)
      end)
    end
  end

  it("takes the batches before it along, which ranks may have counted differently", function()
    local loader = training.loader("mlp", 2 * N, { batch_size = N })
    local engine, train = training.engine("mlp", { parallel = { pipeline = world },
      schedule = schedules.PipelineSchedule { num_microbatches = M },
      initialize = { train_dataloader = loader, gradient_accumulation = 2 } })
    local function two_batches()
      local batches = train:batches()
      for _ = 1, 2 do
        engine:zero_grad()
        engine:execute_schedule(batches, { return_loss = false })
        engine:step()
      end
    end
    for bad = 0, world - 1 do
      local undo = rank == bad and trap(engine, M + 3, mistakes[1][3]) -- in the second batch
      local _, failed = section(function() gm.scope(two_batches) end)
      if undo then undo() end
      assert.equal(1, failed)
    end
    assert.equal(0, engine.steps_done)
    gm.scope(two_batches)
    assert.equal(1, engine.steps_done)
    local whole = function() return training.samples("mlp", 2 * N) end
    local wanted = training.serial("mlp", 2 * N, training.sizes(2 * N, 2 * M), 1, { batch = whole })[1]
    training.agree("weight", wanted.weights, engine, function(p) return p end)
  end)

  it("leaves random numbers alike on all ranks, wherever it left them", function()
    local engine = training.engine("mlp", { parallel = { pipeline = world },
      schedule = schedules.PipelineSchedule { num_microbatches = M } })
    for bad = 0, world - 1 do
      local undo = rank == bad and trap(engine, 2, function(x)
        gm.ops.dropout(x, 0.5) -- a call of this rank alone
        error("no such luck", 0)
      end)
      section(function() step(engine) end)
      if undo then undo() end
      gm.scope(function()
        local kept = gm.ops.dropout(gm.ones { N, 16 }, 0.5):totable()
        for _, text in ipairs(core.comm_exchange(nil, json.encode(kept))) do assert.same(kept, json.decode(text)) end
      end)
    end
  end)

  it("leaves no memory behind", function()
    local engine = training.engine("mlp", { parallel = { pipeline = world },
      schedule = schedules.PipelineSchedule { num_microbatches = M } })
    local function live()
      collectgarbage()
      return core.memory().live
    end
    step(engine) -- borders have met, gradients have their place
    local before
    for round = 1, 3 do
      local undo = rank == 1 and trap(engine, 3, mistakes[1][3])
      local _, failed = section(function() step(engine) end)
      if undo then undo() end
      assert.equal(1, failed)
      if round == 1 then before = live() end
    end
    assert.equal(before, live())
  end)
end)
