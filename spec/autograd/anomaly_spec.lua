--- The search for the first number that is not finite, on two ranks. What an op makes of 0 and of numbers below it is
-- known without a computer: log 0 is -inf, the slope of sqrt at 0 is inf.
-- ranks: 2
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"

local function anomaly(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "no anomaly was found")
  assert.equal(8, failure.code(err))
  return failure.text(err)
end

local function has(text, ...)
  for _, part in ipairs { ... } do assert.is_true(text:find(part, 1, true) ~= nil, text) end
end

describe("the search for anomalies", function()
  before_each(function() core.detect_anomaly(true) end)
  after_each(function()
    core.detect_anomaly(false)
    gm.context.load_config {}
  end)

  it("names the op, the element and the range of what it was given", function()
    local text = anomaly(function() return gm.tensor({ 1, 0, -2 }):log() end)
    has(text, "anomaly: log made -inf: element 2 of y, f32 (3); x is finite, from -2 to 1")
    has(anomaly(function() return gm.tensor({ { 1, 4 }, { -1, 4 } }, { dtype = "f64" }):transpose(1, 2):sqrt() end),
      "sqrt made nan: element 2 of y, f64 (2, 2)")
    has(anomaly(function() return gm.full({ 2 }, 300, { dtype = "f16" }) * 300 end), "mul made inf: element 1")
  end)

  it("says what was not finite before", function()
    local bad = gm.tensor { 1, 0 / 0 }
    has(anomaly(function() return gm.ops.add(gm.ones { 2 }, bad) end), "add made nan: element 2 of y",
      "b had nan before: it came from the data, a parameter, another rank, or a write in place")
  end)

  it("names the backward pass, and the module in which the op was", function()
    local root = gm.nn.Sequential { gm.nn.Linear(1, 1), gm.nn.Tanh() }
    local class = getmetatable(root[2])
    local before = class.forward
    finally(function() class.forward = before end)
    function class.forward(_, x) return x:sqrt() end
    gm.no_grad(function()
      root[1].weight:set(1, 1, 0)
      root[1].bias:set(1, 0)
    end)
    has(anomaly(function() root(gm.ones { 3, 1 }):sum():backward() end),
      "anomaly: the backward pass of sqrt in 2 made inf: element 1 of the gradient of input 1, f32 (3, 1)",
      "the gradient of result 1 is finite, from 1 to 1")
  end)

  it("lets masks of -inf through, and statistics that are infinite", function()
    local scores = gm.zeros({ 2, 2 }):requires_grad(true)
    local mask = gm.tensor { { 0, -math.huge }, { 0, 0 } }
    local soft = gm.ops.softmax(scores + mask)
    soft:sum():backward()
    assert.equal(0, soft:get(1, 2))
    assert.equal(-math.huge, gm.full({ 2 }, -math.huge):get(1))
  end)

  it("does not look at padding before it is cleared", function()
    gm.context.load_config { parallel = { data = 2 } }
    gm.scope(function()
      local x = core.redistribute(gm.full({ 3 }, 2, { dtype = "f64" }), { cuts = { { "data" } } }):requires_grad(true)
      local y = (x * 1):log() -- of the fourth element, which is 0: -inf, and then 0 times its slope
      y:sum():backward()
      assert.near(3 * math.log(2), core.gather(y:sum()):item(), 1e-12)
      assert.near(0.5, core.gather(x:grad()):get(3), 1e-15)
    end)
  end)

  it("finds an anomaly on the rank that has it", function()
    gm.context.load_config { parallel = { data = 2 } }
    gm.scope(function()
      local x = core.redistribute(gm.tensor { 1, 2, 3, 0 }, { cuts = { { "data" } } })
      local ok, err = pcall(function() return x:log() end)
      assert.equal(core.rank() == 0, ok)
      if not ok then has(failure.text(err), "log made -inf: element 2 of y, f32 (2)") end
    end)
  end)

  it("is off unless it is asked for", function()
    core.detect_anomaly(false)
    assert.equal(-math.huge, gm.tensor({ 0 }):log():item())
  end)
end)
