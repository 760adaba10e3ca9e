--- Cross entropy that is told what backward will bring: the same losses and gradients as without, whatever backward
-- then brings, however often it comes, and wherever else the logits are read.
-- ranks: 1 2
-- sanitizers: at most 1 rank, more of them run the same lines of C
local gm = require "ganymede"
local core = require "ganymede.core"
local both = require "spec.layout.both_ways"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local ROWS, CLASSES = 6, 37

local function logits(dtype)
  return gm.uniform({ ROWS, CLASSES }, { low = -3, high = 3, seed = 1, dtype = dtype }):requires_grad(true)
end

local function targets()
  return numeric.integers({ ROWS }, function(i) return i % 4 == 2 and -100 or 7 * i % CLASSES end)
end

local function number(v, dtype) return gm.tensor(v, { dtype = dtype }) end

-- The losses of the rows, and the gradient of fn(losses, logits).
local function measure(dtype, smoothing, scale, fn, options)
  return gm.scope(function()
    local x = logits(dtype)
    local losses = ops.cross_entropy(x, targets(), { label_smoothing = smoothing, scale = scale })
    local loss = fn(losses, x)
    for _ = 1, options and options.times or 1 do loss:backward(nil, options and { retain_graph = true }) end
    return losses:totable(), numeric.flat(x:grad())
  end)
end

local function near(want, got, within)
  assert.equal(#want, #got)
  for i, v in ipairs(want) do assert.near(v, got[i], within) end
end

describe("cross_entropy that knows its gradient's factor", function()
  if core.world() == 2 then both.mesh({ "data", 2 }) end

  for _, smoothing in ipairs { 0, 0.1 } do
    it("gives the bits of the op without a scale, where backward brings it; smoothing " .. smoothing, function()
      for _, dtype in ipairs { "f32", "f64" } do
        local function third(losses) return losses:sum() * (1 / 3) end
        local want, dx = measure(dtype, smoothing, nil, third)
        local scale = gm.scope(function() return number(1, dtype) * (1 / 3) end)
        local got, at_once = measure(dtype, smoothing, scale, third)
        assert.same(want, got)
        if core.device().backend == "cuda" then near(dx, at_once, 1e-6) else assert.same(dx, at_once) end
      end
    end)

    it("is right where backward brings anything else; smoothing " .. smoothing, function()
      local weights = gm.tensor({ 1, -2, 0, 3, 0.5, 1 }, { dtype = "f64" }):keep()
      local cases = {
        { "another factor", function(losses) return losses:sum() * 0.7 end },
        { "a factor for each row", function(losses) return (losses * weights):sum() end },
        { "a gradient besides", function(losses, x) return losses:sum() * 2 + (x * x):sum() end },
        { "a gradient besides the right one", function(losses, x) return losses:sum() + (x * x):sum() end },
      }
      for _, case in ipairs(cases) do
        local want, dx = measure("f64", smoothing, nil, case[2])
        local got, after = measure("f64", smoothing, number(1, "f64"), case[2])
        assert.same(want, got, case[1])
        near(dx, after, 1e-14)
      end
    end)
  end

  it("may go backward more than once", function()
    for _, by in ipairs { 1, 0.7 } do
      local function fn(losses) return losses:sum() * by end
      local _, dx = measure("f64", 0, nil, fn, { times = 3 })
      local _, after = measure("f64", 0, number(1, "f64"), fn, { times = 3 })
      near(dx, after, 1e-14)
    end
  end)

  it("costs a gradient only where one is wanted", function()
    gm.scope(function()
      local x = logits "f32"
      local function held()
        local before = gm.memory().live
        local losses = ops.cross_entropy(x, targets(), { scale = number(1, "f32") })
        return gm.memory().live - before, losses
      end
      assert.is_true(held() >= 4 * ROWS * CLASSES)
      assert.is_true(gm.no_grad(held) < 4 * ROWS * CLASSES)
    end)
  end)

  it("is what CrossEntropyLoss does, with a count that is a number or a tensor", function()
    local criterion = gm.nn.CrossEntropyLoss {}
    for _, count in ipairs { 3, 7 } do
      for _, as_tensor in ipairs { false, true } do
        local function gradient(fn)
          return gm.scope(function()
            local x = logits "f32"
            fn(x):backward()
            return numeric.flat(x:grad())
          end)
        end
        local want = gradient(function(x) return ops.cross_entropy(x, targets()):sum() * (1 / count) end)
        local got = gradient(function(x)
          return criterion(x, targets(), as_tensor and number(count, "f64") or count)
        end)
        if core.device().backend == "cuda" then near(want, got, 1e-7) else assert.same(want, got) end
      end
    end
  end)

  if core.world() == 2 then
    it("has rows on several ranks, and classes, where it is the op without a scale", function()
      for _, dim in ipairs { 1, 2 } do
        local function gradient(scale)
          return gm.scope(function()
            local cut = core.layout(logits "f64")
            cut.cuts[dim] = { "data" }
            local x = logits("f64"):detach():redistribute(cut):detach():requires_grad(true)
            local losses = ops.cross_entropy(x, targets(), { scale = scale })
            local loss = losses:sum() * 0.5
            loss:backward()
            return numeric.flat(core.gather(x:grad()):totable())
          end)
        end
        near(gradient(nil), gradient(number(0.5, "f64")), 1e-14)
        near(gradient(nil), gradient(number(1, "f64")), 1e-14)
      end
    end)
  end
end)
