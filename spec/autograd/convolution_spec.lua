-- Backward passes of convolutions: in two halves as in one, added to what is there, and a bias alone.
local core = require "ganymede.core"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"

local ops = gm.ops

local function uniform(seed, ...)
  return gm.uniform({ ... }, { low = -1, high = 1, seed = seed }):requires_grad(true)
end

-- A chain of both ops, with activations: leaves of weights and biases first, x last.
local function chain()
  local w = { uniform(1, 4, 2, 3, 3), uniform(2, 4), uniform(3, 4, 3, 2, 3), uniform(4, 3) }
  local x = uniform(5, 2, 2, 7, 8)
  local y = ops.convolution(x, w[1], w[2], { stride = 2, padding = { { 0, 1 }, 1 }, activation = "gelu" })
  local z = ops.transposed_convolution(y, w[3], w[4], { stride = 2, padding = 1, activation = "silu" })
  return w, x, ops.sum(ops.square(z))
end

local function gradients(list)
  local all = {}
  for i, t in ipairs(list) do all[i] = numeric.flat(t:grad()) end
  return all
end

-- Gradients of the weights and of x, by one pass or two halves.
local function backward(halves)
  local w, x, loss = chain()
  local tape = core.tape_take()
  if halves then
    core.tape_run(tape, { pass = "input", outputs = { loss }, inputs = { x } })
    assert.is_not_nil(x:grad())
    for _, t in ipairs(w) do assert.is_nil(core.grad_part(t)) end
    core.tape_run(tape, { pass = "weight" })
  else
    core.tape_run(tape, { outputs = { loss } })
  end
  core.tape_free(tape)
  w[#w + 1] = x
  return gradients(w)
end

describe("convolutions", function()
  it("have the same gradients in two halves", numeric.f64(function()
    local whole, halves = backward(false), backward(true)
    assert.equal(5, #whole)
    for i, want in ipairs(whole) do assert.same(want, halves[i]) end
  end))

  it("add to gradients that are there, also where only one of weight and bias has one", numeric.f64(function()
    local w, b, x = uniform(1, 3, 2, 2), uniform(2, 3), uniform(3, 2, 2, 5)
    local function pass(bias) ops.sum(ops.square(ops.convolution(x, w, bias))):backward() end
    pass(nil)
    local first = numeric.flat(w:grad())
    pass(b)
    local both = gradients { w, b }
    core.zero_grad { w, b }
    pass(b)
    local once = gradients { w, b }
    for i, v in ipairs(first) do once[1][i] = once[1][i] + v end
    for i = 1, 2 do numeric.agree(both[i], once[i], 1e-14) end
  end))

  it("whose weight is frozen give their bias its gradient", numeric.f64(function()
    for _, op in ipairs { "convolution", "transposed_convolution" } do
      local w, b, x = uniform(1, 3, 3, 2):detach(), uniform(2, 3), uniform(3, 2, 3, 5):detach()
      local y = ops[op](x, w, b)
      local seed = gm.uniform(y:shape(), { low = -1, high = 1, seed = 9 })
      ops.sum(y * seed):backward()
      numeric.agree(b:grad(), numeric.flat(ops.sum(seed, { 1, 3 })), 1e-14)
    end
  end))
end)
