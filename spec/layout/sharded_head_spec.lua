-- linear_cross_entropy of cut values: the sum, the places and the gradients of one rank, whatever cuts x and w.
-- ranks: 4
--
-- 5 samples of 4 rows on two ranks: the last of a block is padding, in the middle of the pieces. Pieces of 3 rows
-- divide no block.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local any = both.source(800)
local CLASSES, WIDTH = 11, 6 -- 11: blocks of 6 and 5

local function inputs()
  local targets = numeric.integers({ 5, 4 }, function(i) return i % 5 == 2 and -100 or 7 * i % CLASSES end)
  return { any(5, 4, WIDTH), any(CLASSES, WIDTH), any(CLASSES), targets }
end

local function head(rows)
  return function(x, w, b, target)
    local sum, places = ops.linear_cross_entropy(ops.tanh(x), w, b, target,
      { rows = rows, places = true, label_smoothing = 0.1 })
    return sum * 0.37, places
  end
end

-- { name, mesh, cuts of x, w, b and target, layout of the sum }
local cases = {
  { "data", { { "data", 4 } }, { "data,-,-", "-,-", "-", "data,-" }, " partial data" },
  { "data, vocabulary over tensor", { { "data", 2 }, { "tensor", 2 } }, { "data,-,-", "tensor,-", "tensor", "data,-" },
    " partial data" },
  { "sequences gathered over tensor", { { "data", 2 }, { "tensor", 2 } },
    { "data,tensor,-", "tensor,-", "tensor", "data,-" }, " partial data" },
  { "batches gathered over tensor, sequences over data", { { "data", 2 }, { "tensor", 2 } },
    { "tensor,data,-", "tensor,-", "tensor", "tensor,data" }, " partial data" },
  { "sequences", { { "data", 2 }, { "sequence", 2 } }, { "data,sequence,-", "-,-", "-", "data,-" },
    " partial data.sequence" },
  { "width over tensor", { { "data", 2 }, { "tensor", 2 } }, { "data,-,tensor", "-,tensor", "-", "data,-" },
    " partial data" },
  { "2D", { { "row", 2 }, { "col", 2 } }, { "row,-,col", "col,row", "col", "-,-" }, " partial row" },
  { "2D, the classes over rows", { { "row", 2 }, { "col", 2 } }, { "row,-,col", "row,col", "col", "-,-" },
    " partial row" },
}

describe("a head in pieces #ranks", function()
  both.in_f64(setup, teardown)

  for _, case in ipairs(cases) do
    local name, mesh, cuts, expect = unpack(case)
    it(name, function()
      both.mesh(unpack(mesh))
      local layouts = {}
      for i, text in ipairs(cuts) do layouts[i] = both.laid(text) end
      for _, rows in ipairs { 3, 100 } do
        both.agree { inputs = inputs(), cuts = layouts, fn = head(rows), expect = expect }
      end
    end)
  end

  it("sums the gradient of the sum, where ranks have terms of it", function()
    both.mesh({ "data", 2 }, { "tensor", 2 })
    local all = inputs()
    all[5] = any(6)
    both.agree {
      inputs = all, expect = "tensor partial data",
      cuts = { both.laid "data,-,-", both.laid "tensor,-", both.laid "tensor", both.laid "data,-", both.laid "tensor" },
      fn = function(x, w, b, target, v) return head(3)(x, w, b, target) * v end,
    }
  end)

  it("sends what the whole head sends", function()
    both.mesh({ "data", 2 }, { "tensor", 2 })
    local function bytes(rows)
      return gm.scope(function()
        local x = both.place(any(8, 4, WIDTH), both.laid "data,-,-"):requires_grad(true)
        local w = both.place(any(12, WIDTH), both.laid "tensor,-"):requires_grad(true)
        local target = both.place(numeric.integers({ 8, 4 }, function(i) return i % 12 end), both.laid "data,-")
        core.comm_reset_traffic()
        ops.linear_cross_entropy(x, w, nil, target, { rows = rows }):backward()
        local sum = 0
        for _, entry in ipairs(core.comm_traffic()) do sum = sum + entry.bytes end
        return sum
      end)
    end
    local whole = bytes(16)
    assert.is_true(whole > 0)
    assert.equal(whole, bytes(4))
  end)
end)
