-- exp, sigmoid, silu and tanh are as exact as kernels/cpu/vector.c says, on every CPU table. Where it says 2.5 units,
-- those for GPUs have up to 3.
--
-- The truth is the C library's, in double; f32 results are measured in their units in the last place. The slopes of the
-- gelu pair, silu, sigmoid and tanh have 8 epsilon max(1, |x|). Below the normal range a result may be 0.
local assert = require "luassert"
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end

-- name, from, to, units, the truth. The functions are tried at 20,011 places: whole vectors and a rest.
local values = {
  { "exp", -87.3, 88.7, 1.1, math.exp },
  { "exp", -1, 1, 1.1, math.exp },
  { "sigmoid", -87, 30, 3, sigmoid },
  { "silu", -80, 30, 3, function(x) return x * sigmoid(x) end },
  { "tanh", -12, 12, 2.5, math.tanh },
  { "tanh", -0.4, 0.4, 2.5, math.tanh },
}
local slopes = {
  { "sigmoid", -30, 30, function(x) return sigmoid(x) * sigmoid(-x) end },
  { "silu", -30, 30, function(x) return sigmoid(x) * (1 + x * sigmoid(-x)) end },
  { "tanh", -12, 12, function(x) return 1 - math.tanh(x) ^ 2 end },
}
local places = 20011

local function range(from, to)
  local list = {}
  for i = 1, places do list[i] = from + (to - from) * (i - 1) / (places - 1) end
  return gm.tensor(list, { dtype = "f32" })
end

local function run(backend, op, inputs, name)
  return core.run_op(backend, op, inputs, { n = 1, true }, { ["function"] = name })[1]:totable()
end

describe("functions in f32:", function()
  for _, case in ipairs(values) do
    local name, from, to, units, truth = unpack(case)
    it(("%s from %g to %g has %g units"):format(name, from, to, units), function()
      gm.scope(function()
        local x = range(from, to)
        local given = x:totable()
        for _, backend in ipairs(support.backends) do
          local worst, at = 0, 0
          for i, y in ipairs(run(backend, "unary", { n = 1, x }, name)) do
            local exact = truth(given[i])
            local _, exponent = math.frexp(exact)
            local off = math.abs(y - exact) / 2 ^ (exponent - 24)
            if off ~= off then off = 1 / 0 end
            if math.abs(exact) >= 2 ^ -126 and off > worst then worst, at = off, given[i] end
          end
          assert.is_true(worst <= units, ("%s: %g units at %.9g"):format(backend, worst, at))
        end
      end)
    end)
  end

  for _, case in ipairs(slopes) do
    local name, from, to, truth = unpack(case)
    it(("the slope of %s"):format(name), function()
      gm.scope(function()
        local x, ones = range(from, to), gm.full({ places }, 1)
        local given = x:totable()
        for _, backend in ipairs(support.backends) do
          for i, y in ipairs(run(backend, "unary_grad", { n = 2, x, ones }, name)) do
            local off = math.abs(y - truth(given[i])) / math.max(1, math.abs(given[i]))
            assert.is_true(off <= 8 * 2 ^ -24, ("%s: off by %g at %.9g"):format(backend, off, given[i]))
          end
        end
      end)
    end)
  end

  it("exp(0) and tanh far out are 1, and softmax has zeros and ones where exp says so", function()
    gm.scope(function()
      for _, dtype in ipairs { "f32", "f64" } do
        local x = gm.tensor({ 0, -0.0, 25, -25, 1e30, -1e30, 1 / 0, -1 / 0, 0.0 }, { dtype = dtype })
        local row = gm.tensor({ -1e30, -800, 0, -750, -1 / 0, -800, -1e4, -900, -1e30 }, { dtype = dtype })
        for _, backend in ipairs(support.backends) do
          local e, t = run(backend, "unary", { n = 1, x }, "exp"), run(backend, "unary", { n = 1, x }, "tanh")
          assert.same({ 1, 1, 1, 1 / 0, 0, 1 / 0, 0 }, { e[1], e[2], e[9], e[5], e[6], e[7], e[8] }, backend)
          assert.same({ 0, 0, 1, -1, 1, -1, 1, -1, 0 }, t, backend)
          assert.same({ 0, 0, 1, 0, 0, 0, 0, 0, 0 },
            core.run_op(backend, "softmax", { n = 1, row }, { n = 1, true }, {})[1]:totable(), backend)
        end
      end
    end)
  end)
end)
