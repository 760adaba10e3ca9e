-- Frozen parameters (requires_grad(false) before gm.initialize): trained by nobody, on one rank and on two.
-- ranks: 1 2
-- sanitizers: at most 1 rank, more of them run the same lines of C
local gm = require "ganymede"

local function trained(freeze)
  local model = gm.nn.Sequential { gm.nn.Linear(3, 4), gm.nn.Linear(4, 2) }
  local parameters = model:named_parameters()
  local before = {}
  for i, p in ipairs(parameters) do
    if freeze and i <= 2 then p.tensor:requires_grad(false) end
    before[i] = p.tensor:totable()
  end
  local engine = gm.initialize { model = model, criterion = { type = "MSELoss" },
                                 optimizer = { type = "AdamW", lr = 0.1, weight_decay = 0.5 } }
  for _ = 1, 2 do
    gm.scope(function()
      engine:zero_grad()
      engine:backward(engine:criterion(engine(gm.ones { 4, 3 }), gm.zeros { 4, 2 }))
      engine:step()
    end)
  end
  return parameters, before, engine
end

describe("a frozen parameter", function()
  it("has no gradient, no state, and stays as it is; the others train", function()
    local parameters, before, engine = trained(true)
    for i, p in ipairs(parameters) do
      if i <= 2 then
        assert.same(before[i], p.tensor:totable())
        assert.is_nil(p.tensor:grad())
      else
        assert.not_same(before[i], p.tensor:totable())
      end
    end
    for _, entry in ipairs(engine.optimizer:state()) do assert.is_nil(entry.name:find(parameters[1].name, 1, true)) end
    assert.equal(#parameters - 2, #engine.optimizer.items)
  end)

  it("is why an optimizer with nothing else refuses", function()
    local model = gm.nn.Linear(2, 2)
    for _, p in ipairs(model:parameters()) do p:requires_grad(false) end
    assert.error_matches(function() gm.optim.SGD({ lr = 1 }, model) end, "no parameters that require a gradient")
  end)

  it("cannot be thawed behind gm.initialize, which had no place for it", function()
    local parameters, _, engine = trained(true)
    parameters[2].tensor:requires_grad(true)
    assert.error_matches(function() engine:zero_grad() end, "'1.bias' was frozen in gm.initialize")
    parameters[2].tensor:requires_grad(false)
    engine:zero_grad()
    assert.error_matches(function()
      parameters[2].tensor:requires_grad(true)
      local x, y = gm.ones { 4, 3 }, gm.zeros { 4, 2 }
      engine:train_step { { x, y }, samples = 4, tokens = 0, pieces = 1 }
    end, "cannot be trained now: call gm.initialize again")
  end)
end)

describe("a parameter that the optimizer does not have", function()
  it("has the gradient of one step", function()
    local model = gm.nn.Sequential { gm.nn.Linear(3, 4), gm.nn.Linear(4, 2) }
    local engine = gm.initialize { model = model, criterion = { type = "MSELoss" },
                                   optimizer = gm.optim.SGD({ lr = 0 }, model[2]) }
    local norms = {}
    for step = 1, 3 do
      gm.scope(function()
        engine:zero_grad()
        engine:backward(engine:criterion(engine(gm.ones { 4, 3 }), gm.zeros { 4, 2 }))
        engine:step()
        norms[step] = engine.grad_norm
      end)
    end
    assert.same({ norms[1], norms[1], norms[1] }, norms)
  end)
end)
