-- The settings of a sweep: how --set is read, the grid, draws, and the rounds of successive halving.
local space = require "ganymede.cli.sweep.space"

local function refused(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "not refused")
  assert.equal(2, err.exit_code)
  assert.matches(pattern, err.message)
end

describe("--set of a sweep", function()
  it("divides values at commas outside of brackets and quotes", function()
    local parsed = space.parse { "optimizer.lr=1e-3, 3e-4", "model.hidden={32},{64,64}", "name='a,b',\"c\\\",d\"",
      "parallel={tensor={size=4,mode='2d'}}", "epochs=2", "+mine=x,y" }
    assert.same({ "parallel={tensor={size=4,mode='2d'}}", "epochs=2" }, parsed.fixed)
    assert.same({
      { key = "optimizer.lr", values = { "1e-3", "3e-4" } }, { key = "model.hidden", values = { "{32}", "{64,64}" } },
      { key = "name", values = { "'a,b'", '"c\\",d"' } }, { key = "+mine", values = { "x", "y" } },
    }, parsed.axes)
  end)

  it("reads ranges, and takes what only looks like one as a value", function()
    local parsed = space.parse { "a=1..8", "b=log:1e-5..1e-2", "c=-0.5..2", "d=../data", "e=1..x" }
    assert.same({ "d=../data", "e=1..x" }, parsed.fixed)
    assert.same({ { key = "a", low = 1, high = 8, log = false, whole = true },
      { key = "b", low = 1e-5, high = 1e-2, log = true, whole = false },
      { key = "c", low = -0.5, high = 2, log = false, whole = false } }, parsed.axes)
  end)

  it("refuses what is nothing, twice there, or the wrong way round", function()
    refused("value 2 between the commas is empty", space.parse, { "a=1,,2" })
    refused("1 is there twice", space.parse, { "a=1,2,1" })
    refused("a is set twice", space.parse, { "a=1,2", "+a=3" })
    refused("expected key=value", space.parse, { "a" })
    refused("does not go from a smaller", space.parse, { "a=8..1" })
    refused("begins above 0", space.parse, { "a=log:0..1" })
  end)
end)

describe("a grid", function()
  it("has every combination once, the last key fastest", function()
    local axes = space.parse({ "a=1,2", "b=x,y,z" }).axes
    assert.same({ { "1", "x" }, { "1", "y" }, { "1", "z" }, { "2", "x" }, { "2", "y" }, { "2", "z" } },
      space.grid(axes))
  end)

  it("has no ranges, and an end", function()
    refused("a range has no grid", space.grid, space.parse({ "a=1,2", "b=0..1" }).axes)
    local sets = {}
    for i = 1, 14 do sets[i] = ("k%d=1,2"):format(i) end
    refused("16384 settings are more than 10000", space.grid, space.parse(sets).axes)
  end)

  it("gives a run what is fixed and its own values", function()
    local parsed = space.parse { "a=1,2", "c=7", "b=x,y" }
    assert.same({ "c=7", "a=2", "b=x" }, space.sets(parsed, { "2", "x" }))
  end)
end)

describe("draws", function()
  local axes = space.parse({ "lr=log:1e-4..1", "n=1..3", "x=0.0..1", "c=u,v" }).axes

  it("stay in their ranges, are different, and depend on the seed alone", function()
    local drawn, seen = space.random(axes, 400, 1), {}
    for _, setting in ipairs(drawn) do
      local lr, n, x = tonumber(setting[1]), tonumber(setting[2]), tonumber(setting[3])
      assert(lr >= 1e-4 and lr <= 1 and x >= 0 and x <= 1 and (n == 1 or n == 2 or n == 3))
      local name = table.concat(setting, " ")
      assert.is_nil(seen[name])
      seen[name] = true
    end
    assert.same(drawn, space.random(axes, 400, 1))
    assert.not_same(drawn, space.random(axes, 400, 2))
    local few = space.random(axes, 10, 1)
    for i = 1, 10 do assert.same(drawn[i], few[i]) end
  end)

  -- Of 400 draws a share p has a deviation of sqrt(p (1 - p) / 400): at most 0.025. Four of these are 0.1.
  it("are uniform, of log: in the logarithm", function()
    local low, ones, left, u = 0, 0, 0, 0
    for _, setting in ipairs(space.random(axes, 400, 3)) do
      low = low + (tonumber(setting[1]) < 1e-2 and 1 or 0)
      ones = ones + (setting[2] == "1" and 1 or 0)
      left = left + (tonumber(setting[3]) < 0.25 and 1 or 0)
      u = u + (setting[4] == "u" and 1 or 0)
    end
    for _, pair in ipairs { { low, 0.5 }, { ones, 1 / 3 }, { left, 0.25 }, { u, 0.5 } } do
      assert(math.abs(pair[1] / 400 - pair[2]) < 0.1, ("%d of 400"):format(pair[1]))
    end
  end)

  it("are refused if there are not so many", function()
    refused("there are 6 settings in all", space.random, space.parse({ "a=1,2", "b=1,2,3" }).axes, 6, 1)
    refused("only 3 different", space.random, space.parse({ "a=1..3" }).axes, 4, 1)
    assert.equal(5, #space.random(space.parse({ "a=1,2", "b=1,2,3" }).axes, 5, 1))
  end)
end)

describe("the rounds of successive halving", function()
  it("halve the settings and double the steps, the last makes all", function()
    assert.same({ { steps = 13, keep = 4 }, { steps = 25, keep = 2 }, { steps = 50, keep = 1 },
      { steps = 100, keep = 1 } }, space.rounds(8, 100))
    assert.same({ { steps = 8, keep = 3 }, { steps = 16, keep = 2 }, { steps = 32, keep = 1 },
      { steps = 64, keep = 1 } }, space.rounds(6, 64))
  end)

  it("need enough steps", function() refused("3 steps are too few for 8 settings", space.rounds, 8, 3) end)
end)
