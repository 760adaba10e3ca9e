-- Products of floats of 8 bits with scales of blocks on tensors that are cut between blocks: values and gradients are
-- those of whole tensors, nothing is sent for scales, and other cuts are refused with what would be right.
-- ranks: 2 3 4
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"

local ops = gm.ops
local draw = both.source(70)
local SIDE, P = 128, core.world()

local function layer(x, w, b) return ops.linear_float8(x * 3, w, b, { blocks = true }):settle() end

describe("linear_float8 with scales of blocks #ranks", function()
  both.in_f64(setup, teardown, function() both.mesh({ "data", P }) end)

  it("of samples that are cut", function()
    both.agree { inputs = { draw(4 * P, 64, 48), draw(16, 48), draw(16) }, cuts = { both.laid "data,-,-" },
                 fn = layer, expect = "data,-,-" }
  end)

  it("of sequences that are cut", function()
    both.agree { inputs = { draw(2, SIDE * P, 16), draw(16, 16), draw(16) }, cuts = { both.laid "-,data,-" },
                 fn = layer, expect = "-,data,-" }
  end)

  it("of a weight whose rows are cut, a column of 1D", function()
    both.agree { inputs = { draw(3, 50, 144), draw(SIDE * P, 144), draw(SIDE * P) },
                 cuts = { nil, both.laid "data,-", both.laid "data" }, fn = layer, expect = "-,-,data" }
  end)

  it("of a weight whose columns are cut, a row of 1D", function()
    local inputs = { draw(3, 50, SIDE * P), draw(48, SIDE * P), draw(48) }
    both.agree { inputs = inputs, cuts = { both.laid "-,-,data", both.laid "-,data" }, fn = layer, expect = "-,-,-" }
    both.agree { inputs = inputs, cuts = { nil, both.laid "-,data" }, fn = layer, expect = "-,-,-" }
    both.agree { inputs = inputs, cuts = { both.laid "-,-,data" }, fn = layer, expect = "-,-,-" }
  end)

  it("of rows that the axis of the weight's rows cuts, as 1D does with sequences", function()
    both.agree { inputs = { draw(2 * P, 20, 48), draw(SIDE * P, 48), draw(SIDE * P) },
                 cuts = { both.laid "data,-,-", both.laid "data,-", both.laid "data" }, fn = layer,
                 expect = "-,-,data" }
  end)

  it("two in a row, the second after a nonlinear function", function()
    both.agree {
      inputs = { draw(2, 40, 48), draw(SIDE * P, 48), draw(SIDE * P), draw(32, SIDE * P), draw(32) },
      cuts = { nil, both.laid "data,-", both.laid "data", both.laid "-,data" },
      fn = function(x, w, b, v, c) return layer(ops.gelu(layer(x * 1, w, b)), v, c) end,
    }
  end)

  it("of samples and sequences that two axes cut", function()
    if P ~= 4 then return end
    both.mesh({ "data", 2 }, { "sequence", 2 })
    finally(function() both.mesh({ "data", 4 }) end)
    both.agree { inputs = { draw(4, 2 * SIDE, 32), draw(16, 32), draw(16) }, cuts = { both.laid "data,sequence,-" },
                 fn = layer, expect = "data,sequence,-" }
  end)

  it("sends nothing for scales", function()
    gm.scope(function()
      local x = both.place(draw(2 * P, 64, 16), both.laid "data,-,-")
      local w = draw(16, 16):detach():requires_grad(true)
      local sent = both.sent(function() ops.linear_float8(x, w, nil, { blocks = true }):sum():backward() end)
      local plain = both.sent(function() ops.linear(x, w):sum():backward() end)
      assert.equal(plain, sent)
    end)
  end)

  local function fails(message, x, w)
    local ok, err = pcall(ops.linear_float8, x, w, nil, { blocks = true })
    assert.is_false(ok)
    assert.truthy(tostring(err):find(message, 1, true), tostring(err))
    assert.truthy(tostring(err):find('"current" or "delayed" takes any sizes', 1, true), tostring(err))
  end

  it("refuses cuts in the middle of a block", function()
    local function wanted(t) return t:detach():requires_grad(true) end
    fails(("the %d outputs of w are cut into %d parts of 96;"):format(96 * P, P), draw(5, 16),
      both.place(draw(96 * P, 16), both.laid "data,-"))
    fails(("their number is a multiple of %d"):format(SIDE * P), draw(5, 64 * P),
      both.place(draw(16, 64 * P), both.laid "-,data"))
    local x = both.place(draw(2 * P, 50, 16), both.laid "data,-,-")
    fails("a rank has runs of 100 rows of x", x, wanted(draw(16, 16)))
    fails("a rank has runs of 64 rows of x", both.place(draw(4, 64 * P, 16), both.laid "-,data,-"),
      wanted(draw(16, 16)))
    fails("(the parts differ)", both.place(draw(P + 1, 64, 16), both.laid "data,-,-"), wanted(draw(16, 16)))
    -- without a gradient of w there are no blocks along rows
    assert.same({ 2 * P, 50, 16 }, ops.linear_float8(x, draw(16, 16), nil, { blocks = true }):shape())
  end)

  it("refuses ops on parts of tensors", function()
    local ok, err = pcall(ops.float8_block_encode, both.place(draw(P, 16), both.laid "data,-"))
    assert.is_false(ok)
    assert.matches("blocks of 128 are those of whole tensors", tostring(err), 1, true)
  end)
end)
