--- gm.gradcheck: passes right gradients, and names what is wrong.
local gm = require "ganymede"
local core = require "ganymede.core"
local ops = gm.ops

local function random(shape, seed) return gm.uniform(shape, { low = -1, high = 1, dtype = "f64", seed = seed }) end

-- x^3 with a gradient of c x^2 instead of 3 x^2
local function cube(c)
  local saved
  return gm.custom {
    forward = function(x)
      saved = x
      return ops.power(x, 3)
    end,
    backward = function(g) return ops.mul(ops.mul(g, ops.square(saved)), c) end,
  }
end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("gm.gradcheck", function()
  it("agrees with the tape where that is right", function()
    local a, b = random({ 3, 4 }, 1), random({ 4, 2 }, 2)
    local worst = gm.gradcheck(function(x, y) return ops.tanh(ops.matmul(x, y)) end, { a, b })
    -- differences of values near 1, 2e-6 apart, keep about ten digits
    assert.is_true(worst < 1e-8 and worst >= 0)
    assert.is_true(gm.gradcheck(cube(3), { a }) < 1e-8)
  end)

  it("names input and element where the tape is wrong", function()
    local x = gm.tensor({ { 0, 0 }, { 0, 0.5 } }, { dtype = "f64" })
    assert.error_matches(function()
      gm.gradcheck(function(one, two) return ops.add(one, cube(2)(two)) end, { random({ 2, 2 }, 3), x })
    end, "gradcheck: input 2, element %(2, 2%) of %(2, 2%): the tape says [%d.]+, central differences say [%d.]+")
  end)

  it("does not let opposite errors cancel", function()
    -- gradients -c and +c around zero sum: the plain sum of outputs would hide them
    local wrong = gm.custom {
      forward = function(x) return ops.mul(x, 1) end,
      backward = function(g) return ops.cat({ ops.narrow(g, 1, 2, 1), ops.narrow(g, 1, 1, 1) }, 1) end,
    }
    assert.error_matches(function() gm.gradcheck(wrong, { random({ 2 }, 4) }) end, "input 1, element %(1%)")
  end)

  it("varies the parameters of a module and repeats dropout masks", function()
    local before = gm.default_dtype()
    gm.set_default_dtype "f64"
    finally(function() gm.set_default_dtype(before) end)
    core.set_seed(5)
    local model = gm.nn.Sequential { gm.nn.Linear(3, 4), gm.nn.GELU(), gm.nn.Dropout(0.3), gm.nn.Linear(4, 2) }
    assert.is_true(gm.gradcheck(model, { random({ 5, 3 }, 6) }) < 1e-8)
    for _, p in ipairs(model:parameters()) do assert.is_nil(p:grad()) end
  end)

  it("refuses what it cannot do", function()
    local f = gm.uniform({ 2 }, { dtype = "f32", seed = 1 })
    assert.error_matches(function() gm.gradcheck(ops.exp, { f }) end, "input 1 is f32")
    assert.error_matches(function() gm.gradcheck(ops.exp, { gm.arange(3) }) end, "no input is a floating")
    assert.error_matches(function() gm.gradcheck(ops.exp, { f }, { epsilon = 1 }) end, "no option 'epsilon'")
  end)

  it("gives back all memory, and the inputs unchanged", function()
    local x = random({ 3 }, 7)
    local values, live = x:totable(), gm.memory().live
    gm.gradcheck(ops.exp, { x })
    assert.equal(live, gm.memory().live)
    assert.same(values, x:totable())
  end)
end)
