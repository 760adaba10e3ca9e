-- Ops that are made of others: what they refuse, their edges, and cut values against whole ones.
-- ranks: 1 2 4
-- sanitizers: at most 1 rank, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops

local world, rows = core.world(), both.rows
local any = both.source(900)

describe("ops made of others, on data ranks:", function()
  both.in_f64(setup, teardown, function() both.mesh { "data", world } end)

  for _, n in ipairs { 8, 5 } do
    it(("shapes of %d rows"):format(n), function()
      both.agree { inputs = { any(n, 3, 4), any(n, 3, 4) }, cuts = { rows, rows }, expect = "data,-",
        fn = function(x, y)
          return ops.flatten(x, 2), ops.stack({ x, y }, 2), ops.roll(x, { 1, 2 }, { 2, 3 }),
            ops.pad(x, { 1, 2, 0, 1 }, { value = 2 }), ops.pad(x, { -1, 3, 2, 0 }), select(2, ops.chunk(x, 2, 3))
        end }
    end)
    it(("a sum over %d rows is padded as the sum that it is"):format(n), function()
      both.agree { inputs = { any(n, 3) }, cuts = { rows }, fn = function(x)
        return ops.pad(x:sum(1), { 1, 2 }), ops.pad(x:sum(1), { 2, 0 }, { value = 3 })
      end }
    end)
    it(("numbers of %d rows"):format(n), function()
      both.agree { inputs = { any(n, 5) }, cuts = { rows }, expect = "data,-", fn = function(x)
        return ops.clamp(x, -0.5, 0.5), ops.cumsum(x, 2), ops.var(x, 2), ops.std(x), ops.var(x, 1),
          (ops.sort(x, 2)), (ops.sort(x, 2, true))
      end }
    end)
    it(("images of %d"):format(n), function()
      both.agree { inputs = { any(n, 2, 3, 4) }, cuts = { rows }, expect = "data,-,-,-", fn = function(x)
        return ops.interpolate(x, { size = { 5, 3 } }), ops.interpolate(x, { scale = 1.5, mode = "linear" }),
          ops.pad(x, { 1, 2, 1, 1 }, { mode = "reflect" }), ops.pad(x, { 3, 0 }, { mode = "replicate" })
      end }
    end)
    it(("one_hot of %d rows"):format(n), function()
      gm.scope(function()
        local index = gm.arange(n)
        local cut = core.redistribute(index, { cuts = { { "data" } } })
        assert.same(ops.one_hot(index, 9):totable(), ops.one_hot(cut, 9):totable())
      end)
    end)
  end
end)

if world > 1 then
  it("ops.pad does not pad a dimension that is cut", function()
    local x = core.redistribute(gm.ones { 8, 3 }, { cuts = { { "data" } } })
    assert.error_matches(function() ops.pad(x, { 0, 0, 1, 0 }) end, "pad: dimension 1 of .* is cut over ranks")
  end)
  return
end

describe("ops made of others", function()
  local function refused(message, fn)
    local ok, why = pcall(fn)
    assert.is_false(ok)
    assert.matches(message, why)
  end

  it("refuse what cannot be meant", function()
    gm.scope(function()
      local x = gm.ones { 2, 3 }
      refused("there is no dimension 3 in a tensor of 2", function() ops.flatten(x, 3) end)
      refused("dimension 1, the last, is before 2, the first", function() ops.flatten(x, 2, 1) end)
      refused("tensor 2 is %(2%), the first %(2, 3%)", function() ops.stack { x, gm.ones { 2 } } end)
      refused("pieces is 0", function() ops.chunk(x, 0) end)
      refused("a dimension is a whole number; got { 1 }", function() ops.var(x, { { 1 } }) end)
      refused("shift 1 is { 1, 0 }, no whole number", function() ops.roll(x, { { 1, 0 } }, { 1 }) end)
      refused("2 shifts for 1 dimensions", function() ops.roll(x, { 1, 2 }, 1) end)
      refused("a list of pairs", function() ops.pad(x, { 1 }) end)
      refused("a list of pairs", function() ops.pad(x, { 1, 1, 1, 1, 1, 1 }) end)
      refused("dimension 2 has 3 places, too few to reflect 3 in front", function()
        ops.pad(x, { 3, 0 }, { mode = "reflect" })
      end)
      refused("dimension 2 has 3 places, and 4 are taken away", function() ops.pad(x, { -2, -2 }) end)
      refused("there is no dimension 3 in a tensor of 2", function() x:transpose(1, 3) end)
      refused("there is no dimension %-3 in a tensor of 2", function() x:transpose(-3, 1) end)
      refused("low or high must be given", function() ops.clamp(x) end)
      refused("low is 2, above high, 1", function() ops.clamp(x, 2, 1) end)
      refused("1 element less a correction of 1", function() ops.var(gm.ones { 1 }) end)
      refused("give size or scale, and not both", function() ops.interpolate(gm.ones { 1, 1, 2 }, {}) end)
      refused("align_corners needs mode", function()
        ops.interpolate(gm.ones { 1, 1, 2 }, { size = 3, align_corners = true })
      end)
      refused("size has 2 numbers for images of 1 dimension", function()
        ops.interpolate(gm.ones { 1, 1, 2 }, { size = { 3, 3 } })
      end)
      refused("scale is 0, should be a number above 0", function()
        ops.interpolate(gm.ones { 1, 1, 2 }, { scale = 0 })
      end)
      refused("one to three dimensions behind", function() ops.interpolate(x, { size = 3 }) end)
      refused("embedding", function() ops.one_hot(gm.tensor({ 0, 3 }, { dtype = "i64" }), 3) end)
      refused("embedding", function() ops.one_hot(gm.tensor({ -1 }, { dtype = "i64" }), 3) end)
    end)
  end)

  it("have edges", function()
    gm.scope(function()
      assert.same({ 7 }, ops.flatten(gm.tensor(7)):totable())
      assert.same({ 3, 2 }, gm.ones({ 2, 3 }):transpose(-1, -2):shape())
      assert.same({ 5 }, { select("#", gm.arange(5):chunk(7)) })
      assert.same({ 3 }, { select("#", gm.arange(5):chunk(3)) })
      local y, index = gm.tensor({ 2, 0 / 0, 1, 2 }):sort()
      assert.same({ 2, 0, 3, 1 }, index:totable()) -- NaN last, equals in their order
      assert.same({ 1, 2, 2 }, y:narrow(1, 1, 3):totable())
      assert.same({ 1, 0, 3, 2 }, select(2, gm.tensor({ 2, 0 / 0, 1, 2 }):sort(1, true)):totable())
      assert.is_true(gm.tensor({ 0 / 0 }):clamp(0, 1):item() ~= gm.tensor({ 0 / 0 }):clamp(0, 1):item())
    end)
  end)

  it("arange counts from 0 in every dtype", function()
    gm.scope(function()
      assert.equal("i64", gm.arange(3):dtype())
      for _, dtype in ipairs { "f32", "f64", "bf16", "f16", "i32", "i64", "u8" } do
        local y = gm.arange(5, { dtype = dtype })
        assert.equal(dtype, y:dtype())
        assert.same({ 0, 1, 2, 3, 4 }, y:totable())
      end
      assert.same({ 0 }, gm.arange(0):shape())
      assert.error_matches(function() gm.arange(-1) end, "%-1")
    end)
  end)

  it("bounds of clamp are numbers of the tensor's dtype: an element can be at one", function()
    for _, dtype in ipairs { "f32", "bf16", "f16", "f64" } do
      gm.scope(function()
        local x = gm.tensor({ 0.1, 0.3, 0.05, 0.2 }, { dtype = dtype }):requires_grad(true)
        local y = x:clamp(0.1, 0.3)
        y:sum():backward()
        local is = x:totable()
        assert.same({ is[1], is[2], is[1], is[4] }, y:totable(), dtype)
        assert.same({ 0, 0, 0, 1 }, x:grad():totable(), dtype)
      end)
    end
  end)

  it("cumsum rounds as a tree does", function()
    gm.scope(function()
      local y = gm.full({ 4096 }, 0.1, { dtype = "f32" }):cumsum()
      assert.is_true(math.abs(y:get(4096) - 409.6) < 4e-4) -- one after the other it would be off by 0.02
    end)
  end)
end)
