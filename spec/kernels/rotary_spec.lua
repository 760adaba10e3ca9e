-- Rotary position embeddings: every CPU table and the CUDA kernels against the reference, and the reference by hand.
--
-- u c - v s of numbers below 1: cosine and sine are rounded, then both products and the difference, so 6 roundings of
-- numbers below 2 are more than there can be. Angles of positions up to 10^5 tell f32 from f64.
local gm = require "ganymede"
local support = require "spec.kernels.support"

local shapes = { { 1, 1, 2 }, { 2, 3, 8 }, { 2, 5, 3, 16 }, { 1, 4, 2, 3, 7 }, { 3, 2, 2, 5, 70 }, { 2, 0, 4 },
                 { 1, 2, 3, 0, 4 } }

local function frequencies(pairs, dtype)
  local list = {}
  for j = 1, pairs do list[j] = 10000 ^ -((j - 1) / pairs) end
  return gm.tensor(list, { dtype = support.wide(dtype) })
end

local function run(x, f, index, attrs)
  support.agree { op = "rotary", inputs = { n = 3, x, f, index }, outputs = { true }, attrs = attrs,
                  within = support.absolute(6, 2) }
end

describe("rotary agrees with ref:", function()
  support.each(it, "halves and neighbours, forth and back, in part", shapes, support.layouts,
    function(dtype, shape, layout)
      local x, d = support.input(shape, dtype, layout), shape[#shape]
      for _, r in ipairs(d > 3 and { math.floor(d / 2), 1 } or { 1 }) do
        local f = frequencies(r, dtype)
        for _, interleaved in ipairs { false, true } do
          run(x, f, nil, { interleaved = interleaved, first = 7 })
          run(x, f, nil, { interleaved = interleaved, inverse = true, alpha = 1.25 })
        end
        if #shape > 3 and shape[#shape - 1] > 1 then run(x, f, nil, { rotated = 1, first = 3 }) end
      end
    end)

  support.each(it, "positions that are given", { { 2, 5, 3, 16 }, { 3, 2, 8 } }, support.layouts,
    function(dtype, shape, layout)
      local x, f = support.input(shape, dtype, layout), frequencies(3, dtype)
      for _, kind in ipairs { "i64", "i32" } do
        run(x, f, support.integers({ shape[2] }, kind, 0, 100000, layout))
        run(x, f, support.integers({ shape[1], shape[2] }, kind, -5, 100000, layout))
      end
    end)
end)

describe("rotary by hand:", function()
  local ops = gm.ops
  local third = gm.tensor { math.pi / 3 }

  it("position times frequency, in halves and in neighbours; what is left over stays", function()
    gm.scope(function()
      local x = gm.tensor { { { 1, 0, 5 }, { 1, 0, 5 }, { 0, 1, 5 } } }
      local y = ops.rotary(x, third):totable()[1]
      assert.near(1, y[1][1], 1e-6)
      assert.near(0.5, y[2][1], 1e-6)
      assert.near(math.sqrt(3) / 2, y[2][2], 1e-6)
      assert.near(-math.sqrt(3) / 2, y[3][1], 1e-6)
      assert.near(-0.5, y[3][2], 1e-6)
      for s = 1, 3 do assert.equal(5, y[s][3]) end
      local four = gm.tensor { { { 1, 2, 3, 4 } } }
      local f = gm.tensor { math.pi / 2, math.pi }
      local turned = ops.rotary(four, f, { offset = 1 }):totable()[1][1]
      for i, want in ipairs { -3, -2, 1, -4 } do assert.near(want, turned[i], 1e-6) end
    end)
  end)

  it("products of turned rows depend on the distance only", function()
    gm.scope(function()
      local q = gm.normal({ 1, 1, 16 }, { seed = 1, dtype = "f64" })
      local k = gm.normal({ 1, 1, 16 }, { seed = 2, dtype = "f64" })
      local f = frequencies(8, "f64")
      local function product(a, b)
        return (ops.rotary(q, f, { offset = a }) * ops.rotary(k, f, { offset = b })):sum():item()
      end
      assert.near(product(3, 10), product(1003, 1010), 1e-10)
      assert.is_true(math.abs(product(3, 10) - product(3, 11)) > 1e-6)
    end)
  end)

  it("turned back it is what it was", function()
    gm.scope(function()
      local x, f = gm.normal({ 2, 3, 2, 3, 8 }, { seed = 3, dtype = "f64" }), frequencies(4, "f64")
      local options = { rotated = 2, offset = 5, interleaved = true }
      local y = ops.rotary(x, f, options)
      options.inverse = true
      local back = ops.rotary(y, f, options)
      assert.is_true((back - x):abs():max(1):max(1):max(1):max(1):max(1):item() < 1e-14)
    end)
  end)

  it("what does not fit is refused", function()
    gm.scope(function()
      local x = gm.ones { 2, 3, 4 }
      local function refused(words, ...)
        local ok, message = pcall(ops.rotary, ...)
        assert.is_false(ok)
        assert.is_truthy(tostring(message):find(words, 1, true), message)
      end
      refused("should be (r)", x, gm.ones { 3 })
      refused("should be (r)", x, gm.ones { 1, 2 })
      refused("should be from 1 to the last size but one", x, third, { rotated = 2 })
      refused("positions", x, third, { positions = gm.tensor({ 1, 2 }, { dtype = "i64" }) })
      refused("should be 0 where positions are given", x, third,
        { positions = gm.tensor({ 1, 2, 3 }, { dtype = "i64" }), offset = 1 })
      refused("offset", x, third, { offset = -1 })
      refused("position", x, third, { position = gm.tensor({ 1, 2, 3 }, { dtype = "i64" }) })
    end)
  end)
end)
