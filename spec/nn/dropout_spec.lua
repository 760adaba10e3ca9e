--- Dropout and DropPath: rates, scale, modes, and masks that are functions of seed, place and step.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"

-- A mask as a list of numbers: what a layer makes of ones.
local function mask(layer, shape) return numeric.flat(layer(gm.ones(shape))) end

-- fn() in a scope, with this seed, in this step; the seed there was is given back.
local function at(seed, step, fn)
  local before = core.seed()
  core.set_seed(seed)
  core.set_rng_step(step)
  core.begin_step()
  local ok, result = pcall(gm.scope, fn)
  core.set_seed(before)
  core.set_rng_step(0)
  if not ok then error(result, 0) end
  return result
end

-- What is kept is multiplied by this: p counts as a multiple of 1/65536 (kernels/drop.h).
local function factor(p) return 65536 / (65536 - math.floor(p * 65536 + 0.5)) end

local function two_dropouts() return nn.Sequential { nn.Dropout(0.5), nn.Dropout(0.5) } end

describe("nn.Dropout", function()
  it("drops with probability p and scales what is left", function()
    local n = 40000
    local list = at(3, 0, function() return mask(nn.Dropout(0.3), { 200, 200 }) end)
    local dropped = 0
    for _, v in ipairs(list) do
      if v == 0 then dropped = dropped + 1 else assert.near(factor(0.3), v, 1e-6) end
    end
    -- binomial: five standard deviations, sqrt(0.3 * 0.7 / n) each
    assert.near(0.3, dropped / n, 5 * math.sqrt(0.21 / n))
  end)

  it("sends the gradient through the same mask", function()
    at(3, 0, function()
      local x = gm.ones { 8, 8 }:requires_grad(true)
      local y = nn.Dropout(0.5)(x)
      gm.ops.sum(y):backward()
      assert.same(y:totable(), x:grad():totable())
    end)
  end)

  it("does nothing in evaluation mode, and with p = 0", function()
    gm.scope(function()
      local x = gm.normal({ 4, 4 }, { seed = 1 })
      assert.same(x:totable(), nn.Dropout(0.9):eval()(x):totable())
      assert.same(x:totable(), nn.Dropout(0)(x):totable())
      local model = two_dropouts():eval()
      assert.same(x:totable(), model(x):totable())
      assert.is_false(numeric.relative_error(model:train()(x), x) == 0)
    end)
  end)

  it("gives the same bits for the same seed and step, others for another", function()
    local function one() return mask(two_dropouts(), { 6, 50 }) end
    local base = at(3, 7, one)
    assert.same(base, at(3, 7, one))
    assert.is_false(numeric.relative_error(base, at(3, 8, one)) == 0)
    assert.is_false(numeric.relative_error(base, at(4, 7, one)) == 0)
  end)

  it("gives two layers, and two calls of one layer, masks of their own", function()
    at(3, 7, function()
      local model = nn.Sequential { nn.Dropout(0.5), nn.Dropout(0.5) }
      local first, second = mask(model[1], { 6, 50 }), mask(model[2], { 6, 50 })
      local again = mask(model[1], { 6, 50 })
      assert.is_false(numeric.relative_error(first, second) == 0)
      assert.is_false(numeric.relative_error(first, again) == 0)
    end)
  end)

  it("refuses what is no probability", function()
    assert.error_matches(function() nn.Dropout(1) end, "option 'p' must be a number, at least 0, below 1; got 1")
    assert.error_matches(function() nn.Dropout(-0.1) end, "option 'p'")
  end)
end)

describe("nn.DropPath", function()
  it("drops whole samples and scales the others", function()
    at(5, 0, function()
      local rows = nn.DropPath(0.25)(gm.ones { 400, 3, 2 }):totable()
      local dropped = 0
      for _, sample in ipairs(rows) do
        local v = sample[1][1]
        if v == 0 then dropped = dropped + 1 else assert.near(1 / 0.75, v, 1e-6) end
        for _, row in ipairs(sample) do for _, w in ipairs(row) do assert.equal(v, w) end end
      end
      assert.near(0.25, dropped / 400, 5 * math.sqrt(0.1875 / 400))
    end)
  end)

  it("sends no gradient to the dropped samples", function()
    at(5, 0, function()
      local x = gm.ones { 16, 4 }:requires_grad(true)
      local y = nn.DropPath(0.5)(x)
      gm.ops.sum(y):backward()
      assert.same(y:totable(), x:grad():totable())
    end)
  end)

  it("keeps the dtype, and does nothing in evaluation mode", function()
    gm.scope(function()
      local x = gm.ones({ 4, 4 }, { dtype = "f64" })
      assert.equal("f64", nn.DropPath(0.5)(x):dtype())
      assert.same(x:totable(), nn.DropPath(0.5):eval()(x):totable())
    end)
  end)
end)
