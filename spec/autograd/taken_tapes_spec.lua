-- Tapes that a schedule takes off the rank, as Lua sees them: what a transformer block holds after the first half of
-- its backward, gradients of a custom function asked for half by half, what cannot be done with values of a taken tape.
local core = require "ganymede.core"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local ops = gm.ops

local function leaf(values) return gm.tensor(values, { dtype = "f64" }):requires_grad(true) end

-- fn(...) in a scope of its own -> what it recorded, its first result
local function take(fn, ...)
  return gm.scope(function(...)
    local y = fn(...)
    return core.tape_take(), y
  end, ...)
end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("a tape that was taken", function()
  it("outlives the scope it began in, and waits for its turn", function()
    gm.scope(function()
      local w = leaf { 1, 2 }
      local first, y = take(function() return (w * w):sum() end)
      local second, z = take(function() return (w * 10):sum() end)
      assert.equal(0, core.tape_nodes())
      core.tape_run(second, { outputs = { z } })
      assert.same({ 10, 10 }, w:grad():totable())
      core.tape_run(first, { outputs = { y }, seeds = { gm.tensor(3, { dtype = "f64" }) } })
      assert.same({ 16, 22 }, w:grad():totable())
    end)
  end)

  it("is not gone on with by what comes after", function()
    gm.scope(function()
      local w = leaf { 1, 2 }
      local tape, y = take(function() return w * w end)
      assert.error_matches(function() return y * 2 end, "in a forward pass that has ended")
      assert.same({ 2, 8 }, (y:detach() * 2):totable())
      core.tape_free(tape)
      assert.error_matches(function() return y * 2 end, "computed on a tape that was dropped")
      assert.error_matches(function() y:backward(gm.ones({ 2 }, { dtype = "f64" })) end, "'mul'.* was dropped")
      assert.error_matches(function() core.tape_run(tape, { outputs = { y } }) end, "was freed")
    end)
  end)

  it("is refused where it goes on from a graph that a backward has released", function()
    gm.scope(function()
      local w, v = leaf { 1, 2 }, leaf { 3, 4 }
      local y = w * w
      y:sum():backward()
      local tape, z = take(function() return (y * v):sum() end)
      assert.error_matches(function() core.tape_run(tape, { outputs = { z } }) end, "graph of 'mul'.* was released")
      core.tape_free(tape)
    end)
  end)

  it("is nil when nothing was recorded", function() assert.is_nil(core.tape_take()) end)
end)

describe("a transformer block between two halves", function()
  local before
  setup(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
  end)
  teardown(function() gm.set_default_dtype(before) end)

  -- Of each Linear what comes in and the gradient of what goes out, before its activation: (in + out) of qkv, of the
  -- projection, and of the MLP's two. Nothing of the attention and the norms, no probabilities, no pre-activation.
  it("holds two tensors a product", function()
    gm.scope(function()
      local tokens, width, size = 2 * 6, 8, 8 -- bytes of f64
      local block = nn.TransformerBlock { width = width, heads = 2, dropout = 0.2, attention_dropout = 0.1 }
      local x = gm.normal({ 2, 6, width }, { seed = 1 }):requires_grad(true)
      local seed = gm.normal({ 2, 6, width }, { seed = 2 })
      gm.scope(function() block(x):backward(seed) end) -- gradients have their buffers from here on
      local idle = gm.memory().live
      local tape, y = take(block, x)
      core.tape_run(tape, { pass = "input", outputs = { y }, seeds = { seed }, inputs = { x } })
      y:release()
      local products = (width + 3 * width) + (width + width) + (width + 4 * width) + (4 * width + width)
      assert.equal(size * tokens * products, gm.memory().live - idle)
      core.tape_run(tape, { pass = "weight" })
      assert.equal(idle, gm.memory().live)
    end)
  end)
end)

describe("a custom function in two halves", function()
  local asked

  -- z = x w with a rule of its own; wrong: the second half forgets a factor
  local function product(splits, wrong)
    return function(x, w)
      return gm.custom({
        forward = function(a, b) return a * b end,
        backward = function(g, wants)
          asked[#asked + 1] = wants or "all"
          wants = wants or { true, true }
          return wants[1] and g * w:detach() or nil, wants[2] and g * (wrong and 1 or x:detach()) or nil
        end,
        splits = splits,
      })(x, w)
    end
  end

  local function run(splits, pass)
    asked = {}
    gm.scope(function()
      local x, w = leaf { 1, 2 }, leaf { 3, 4 }
      local tape, y = take(product(splits), x, w)
      core.tape_run(tape, { pass = pass, outputs = { y }, seeds = { gm.tensor({ 1, 10 }, { dtype = "f64" }) },
                            inputs = { x } })
      assert.same({ 3, 40 }, x:grad():totable())
      if pass == "input" then
        assert.equal(splits == nil, w:grad() ~= nil)
        core.tape_run(tape, { pass = "weight" })
      end
      assert.same({ 1, 20 }, w:grad():totable())
    end)
    return asked
  end

  it("is asked once for everything unless it says that it splits", function()
    assert.same({ "all" }, run(nil, "input"))
    assert.same({ "all" }, run(nil, "whole"))
  end)

  it("is asked for each half when it does", function()
    assert.same({ { true, false }, { false, true } }, run(true, "input"))
    assert.same({ { true, true } }, run(true, "whole"))
  end)

  it("is judged half by half by gradcheck", function()
    asked = {}
    gm.scope(function()
      local x, w = gm.tensor({ 1, 2 }, { dtype = "f64" }), leaf { 3, 4 }
      local with = { halves = true, parameters = { { name = "w", tensor = w } } }
      gm.gradcheck(function(a) return ops.mul(product(true)(a, w), 2) end, { x }, with)
      assert.same({ { true, false }, { false, true } }, asked)
      assert.error_matches(function()
        gm.gradcheck(product(true, true), { x, w }, { halves = true })
      end, "gradcheck: input 2")
    end)
  end)
end)
