--- Training steps that are given up between their passes and their update: by an error that a program survives, or by
-- ranks that rehearse a step before they take up a run (ganymede.train.handover). They leave nothing to the next step.
--
-- The truth is the same run without them.
local core = require "ganymede.core"
local gm = require "ganymede"
local StepLoader = require "ganymede.train.step_loader"
local support = require "spec.train.support"

local WIDTH = 16

-- An engine with a step(scale): one training step with inputs so many times as large. given_up: its passes only.
local function engine_of(model, opt)
  local engine = gm.initialize { model = model, criterion = { type = "MSELoss" }, float8 = opt.float8,
    optimizer = { type = "SGD", lr = 0.05 }, graph = opt.graph }
  engine:train()
  local step = 0
  return engine, function(scale, given_up)
    return gm.scope(function()
      local x, y = gm.normal({ 32, WIDTH }, { seed = step }) * scale, gm.normal({ 32, WIDTH }, { seed = 99 - step })
      local batches = { { x, y }, samples = 32, tokens = 0, pieces = 1 }
      if given_up then
        StepLoader.announce(engine, batches)
        engine:forward_backward(batches, false)
        return engine:zero_grad()
      end
      step = step + 1
      engine:train_step(batches)
      return engine.last_loss
    end)
  end
end

-- Makes n steps of a new model, and gives one up before those of the list. Returns their losses and the weights.
local function run(new_model, opt, n, before)
  core.set_seed(5)
  local engine, step = engine_of(new_model(), opt)
  local losses = {}
  for i = 1, n do
    if before[i] then step(before[i], true) end
    losses[i] = step(1)
  end
  core.set_seed(1024)
  return { losses, support.numbers(engine.model), opt.more and opt.more(engine.model) }
end

describe("a step that is given up", function()
  before_each(require "spec.support.collected")

  local function dense()
    return gm.nn.Sequential { gm.nn.Linear { inputs = WIDTH, outputs = WIDTH }, gm.nn.ReLU(),
      gm.nn.Linear { inputs = WIDTH, outputs = WIDTH } }
  end

  for _, graph in ipairs { false, true } do
    it("leaves nothing in the scales of 8 bits that layers keep, graph = " .. tostring(graph), function()
      local opt = { float8 = { scaling = "delayed", history = 4 }, graph = graph }
      local want = run(dense, opt, 9, {})
      for _, before in ipairs { { 1000 }, { [3] = 1000 }, { [4] = 1000 }, { [7] = 1000 } } do
        assert.same(want, run(dense, opt, 9, before))
      end
    end)
  end

  it("leaves nothing in the loads that a router balances", function()
    local function experts()
      return gm.nn.MoE { width = WIDTH, hidden = 8, experts = 4,
        router = { type = "SigmoidRouter", k = 1, bias_step = 0.1 } }
    end
    local opt = { more = function(model) return model.router.bias:totable() end }
    assert.same(run(experts, opt, 4, {}), run(experts, opt, 4, { [2] = -1, [3] = -1, [4] = -1 }))
  end)
end)
