--- Regions on two ranks: what sums of gradients await, and gradients of inputs that are still to be summed. The
-- truth is the same on whole tensors, without regions.
-- ranks: 2
local core = require "ganymede.core"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local function number(shape, seed) return gm.normal(shape, { seed = seed, dtype = "f64" }) end

-- Adds up in another order than one rank does, so the last bits differ.
local function close(want, got)
  want, got = numeric.flat(want), numeric.flat(core.gather(got))
  assert.equal(#want, #got)
  for i, value in ipairs(want) do assert.near(value, got[i], 1e-12) end
end

local function as_region(in_region, fn, ...)
  if in_region then return gm.recompute(fn, ...) end
  return fn(...)
end

describe("a region on two ranks", function()
  after_each(function() gm.context.load_config {} end)

  -- Gradients of w and v from fn(x, w, v, in_region): summed by a reducer with a bucket for each of them, beside those
  -- of whole tensors.
  local function compare(fn)
    gm.context.load_config { parallel = { data = 2 } }
    gm.scope(function()
      local rows, list, truth = number({ 6, 4 }, 1), {}, {}
      for i = 1, 2 do
        list[i], truth[i] = number({ 4, 4 }, 1 + i):requires_grad(true), number({ 4, 4 }, 1 + i):requires_grad(true)
      end
      fn(rows, truth[1], truth[2], false):backward()
      local reducer = core.reducer_new(list, { bucket_bytes = 1 })
      assert.equal(2, core.reducer_info(reducer).buckets)
      core.reducer_arm(reducer)
      fn(core.redistribute(rows, { cuts = { { "data" }, {} } }), list[1], list[2], true):backward()
      core.reducer_finish(reducer)
      for i = 1, 2 do close(truth[i]:grad(), list[i]:grad()) end
      core.reducer_free(reducer)
    end)
  end

  it("has its terms in the sums of parameters that are used after it, too", function()
    compare(function(x, w, v, in_region)
      local y = as_region(in_region, function(a) return ops.tanh(ops.matmul(ops.tanh(ops.matmul(a, w)), v)) end, x)
      return ops.square(ops.matmul(y, w)):sum()
    end)
  end)

  it("has its terms in the sums of parameters that it hands on", function()
    compare(function(x, w, v, in_region)
      local y, same = as_region(in_region, function(a) return ops.matmul(a, w), v end, x)
      return ops.square(ops.matmul(ops.matmul(y, same), v)):sum() -- the bucket of v is summed before that of w
    end)
  end)

  it("says over which axes the gradient of its input is partial: one projection in tensor parallelism", function()
    gm.context.load_config { parallel = { tensor = { size = 2, mode = "1d" } } }
    for _, apply in ipairs { ops.linear, function(a, w) return ops.matmul(a, w:transpose(1, 2)) end } do
      gm.scope(function()
        local x, whole = number({ 3, 4 }, 1):requires_grad(true), number({ 6, 4 }, 2)
        local function loss(a, w, in_region)
          local h = ops.tanh(a)
          return ops.square(as_region(in_region, function(b) return apply(b, w) end, h)):sum()
        end
        loss(x, whole, false):backward()
        local truth = x:grad():clone()
        core.zero_grad { x }
        loss(x, core.redistribute(whole, { cuts = { { "tensor" }, {} } }), true):backward()
        close(truth, x:grad())
      end)
    end
  end)
end)
