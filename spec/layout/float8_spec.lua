-- Products of floats of 8 bits on tensors that are cut: values and gradients are those of whole tensors, because scales
-- are those of whole tensors; and what is sent.
-- ranks: 2 3 4
--
-- The ranks are one axis, and on 4 ranks two axes, as well. Sizes are uneven, so blocks have padding.
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local padding = require "spec.support.padding"

local ops = gm.ops
local draw = both.source(40)

local function layer(x, w, b) return ops.linear_float8(x * 3, w, b):settle() end

local function agree(case)
  both.agree(case)
  padding.poisoned(function() both.agree(case) end)
end

describe("linear_float8 #ranks", function()
  both.in_f64(setup, teardown, function() both.mesh({ "data", core.world() }) end)
  local function inputs(m, n, k) return { draw(m, n > 4 and 3 or 2, k), draw(n, k), draw(n) } end

  for _, size in ipairs { { 8, 12, 24 }, { 7, 5, 11 }, { 2, 3, 5 } } do
    local name = ("(%d, %d, %d)"):format(unpack(size))
    it("of rows that are cut " .. name, function()
      agree { inputs = inputs(unpack(size)), cuts = { both.laid "data,-,-" }, fn = layer, expect = "data,-,-" }
    end)
    it("of a weight whose rows are cut, a column of 1D " .. name, function()
      agree { inputs = inputs(unpack(size)), cuts = { nil, both.laid "data,-", both.laid "data" }, fn = layer,
              expect = "-,-,data" }
    end)
    it("of a weight whose columns are cut, a row of 1D " .. name, function()
      agree { inputs = inputs(unpack(size)), cuts = { both.laid "-,-,data", both.laid "-,data" }, fn = layer,
              expect = "-,-,-" }
      agree { inputs = inputs(unpack(size)), cuts = { nil, both.laid "-,data" }, fn = layer, expect = "-,-,-" }
      agree { inputs = inputs(unpack(size)), cuts = { both.laid "-,-,data" }, fn = layer, expect = "-,-,-" }
    end)
    it("of rows that the axis of the weight's rows cuts, as 1D does with sequences " .. name, function()
      agree { inputs = inputs(unpack(size)), cuts = { both.laid "data,-,-", both.laid "data,-", both.laid "data" },
              fn = layer, expect = "-,-,data" }
    end)
  end

  -- dy of a column is the sum of what all ranks make of it, and codes are no linear function of it
  it("two in a row, the second after a nonlinear function", function()
    agree {
      inputs = { draw(5, 2, 8), draw(12, 8), draw(12), draw(7, 12), draw(7) },
      cuts = { nil, both.laid "data,-", both.laid "data", both.laid "-,data" },
      fn = function(x, w, b, v, c) return layer(ops.gelu(layer(x * 1, w, b)), v, c) end,
    }
  end)

  it("before a product by blocks, whose gradient of its input is a sum over ranks", function()
    agree {
      inputs = { draw(5, 8), draw(8, 8), draw(8), draw(8, 12) },
      cuts = { nil, nil, nil, both.laid "-,data" },
      fn = function(x, u, b, w) return ops.matmul(ops.linear_float8(x, u, b), w) end,
    }
  end)

  it("refuses a weight that is cut both ways, and sums", function()
    if core.world() ~= 4 then return end
    both.mesh({ "row", 2 }, { "col", 2 })
    finally(function() both.mesh({ "data", 4 }) end)
    local x = both.place(draw(4, 8), both.laid "row,col")
    local w = both.place(draw(8, 8), both.laid "col,row")
    local ok, err = pcall(ops.linear_float8, x, w)
    assert.is_false(ok)
    assert.matches("both dimensions of w are cut", tostring(err))
    local sum = ops.linear(both.place(draw(4, 8), both.laid "-,row"), both.place(draw(8, 8), both.laid "-,row"))
    ok, err = pcall(ops.linear_float8, sum, draw(8, 8))
    assert.is_false(ok)
    assert.matches("still a sum over ranks", tostring(err))
  end)
end)

describe("float8_scale #ranks", function()
  both.in_f64(setup, teardown, function() both.mesh({ "data", core.world() }) end)

  it("is that of the whole tensor, wherever its largest element is", function()
    for at = 1, 7 do
      gm.scope(function()
        local list = { 1, 2, 3, 4, 5, 6, 7 }
        list[at] = -1000
        local x = both.place(gm.tensor(list), both.laid "data")
        assert.equal(4, ops.float8_scale(x):item())
        assert.equal(ops.float8_scale(gm.tensor(list)):item(), ops.float8_scale(x):item())
      end)
    end
  end)
end)
