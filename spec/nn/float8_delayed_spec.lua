-- Scales of floats of 8 bits that are kept from step to step (ganymede.nn.float8_history): a layer with scales that are
-- given against the ops that it is made of, the scales of the next step against a plain loop over the last steps, and
-- what a step of a program of its own does. Training is in spec/nn/float8_spec.lua, on ranks in
-- spec/parallel/float8_spec.lua, and resuming in spec/resume/float8_spec.lua.
--
-- In f64 codes and scales are exact, and sums of at most 64 products round in 1e-16 of the largest of them: 1e-13.
local fails = require "spec.support.fails"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"

local ops = gm.ops

local seed = 100
local function draw(...)
  seed = seed + 1
  return gm.uniform({ ... }, { low = -1, high = 1, dtype = "f64", seed = seed })
end

local function number(v) return gm.full({}, v, { dtype = "f64" }) end

local function numbers(...)
  local list = {}
  for i = 1, 3 do list[i] = number((select(i, ...))) end
  return list
end

local function values(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = t:item() end
  return out
end

describe("linear_float8 with scales that are given", function()
  -- the scale of x is too small for its largest elements, those of w and dy are larger than they must be
  it("rounds with them, and says what is needed", function()
    gm.scope(function()
      local x, w, g = (draw(6, 32) * 3):detach(), draw(16, 32), draw(6, 16)
      x:requires_grad(true)
      w:requires_grad(true)
      local scale, needed = numbers(2 ^ -8, 2, 2 ^ 10), numbers(0, 64, 0)
      local y = ops.linear_float8(x, w, nil, { scale = scale, needed = needed })
      assert.equal(0, needed[3]:item())
      y:backward(g)
      local function codes(t, k, format) return ops.float8_encode(t:detach(), scale[k], { format = format }) end
      local x8, x8_turned = codes(x, 1)
      local w8, w8_turned = codes(w, 2)
      local g8, g8_turned = codes(g, 3, "e5m2")
      local function product(a, b, a_scale, b_scale, format)
        return ops.float8_product(a, b, a_scale, b_scale, { dtype = "f64", format = format })
      end
      numeric.agree(y:detach(), product(x8, w8, scale[1], scale[2]), 1e-13, 1)
      numeric.agree(x:grad(), product(g8, w8_turned, scale[3], scale[2], "e5m2"), 1e-13, 1)
      numeric.agree(w:grad(), product(g8_turned, x8_turned, scale[3], scale[1], "e5m2"), 1e-13, 1)
      assert.same({ ops.float8_scale(x:detach()):item(), 64, ops.float8_scale(g, { format = "e5m2" }):item() },
        values(needed))
      assert.same({ 2 ^ -8, 2, 2 ^ 10 }, values(scale))
    end)
  end)

  it("is what it is without them, if they are what is needed", function()
    gm.scope(function()
      local x, w, needed = draw(6, 32), draw(16, 32), numbers(0, 0, 0)
      local want = ops.linear_float8(x, w, nil, { needed = needed })
      assert.same(ops.linear_float8(x, w):totable(), want:totable())
      local scale = numbers(needed[1]:item(), needed[2]:item(), 1)
      assert.same(want:totable(), ops.linear_float8(x, w, nil, { scale = scale }):totable())
    end)
  end)

  it("refuses others than three numbers of the right dtype, and backward after a change", function()
    local x, w = draw(2, 16), draw(16, 16):detach():requires_grad(true)
    fails("scale should be a list of 3 tensors", ops.linear_float8, x, w, nil, { scale = { number(1) } })
    fails("scale should be a list of 3 tensors", ops.linear_float8, x, w, nil, { scale = number(1) })
    fails("a needed scale beside x of f64 should be f64 ()", ops.linear_float8, x, w, nil,
      { needed = { number(0), gm.zeros({ 1 }, { dtype = "f64" }), number(0) } })
    fails("a scale beside x of f64 should be f64 ()", ops.linear_float8, x, w, nil,
      { scale = { gm.ones {}, number(1), number(1) } })
    local scale = numbers(1, 1, 1)
    local y = ops.linear_float8(x, w, nil, { scale = scale })
    scale[3]:fill_(2)
    fails("linear_float8", function() y:sum():backward() end)
  end)
end)

-- What layers with a history do, by a loop: steps is a list of what a tensor needed in each step, x first.
local function expected(steps, length, margin)
  local scale = { 0, 0, 0 }
  for last = 1, #steps do
    for k = 1, 3 do
      local largest = 0
      for i = math.max(1, last - length + 1), last do
        local v = steps[i][k]
        if v > 2 ^ -126 and v < math.huge then largest = math.max(largest, v) end
      end
      if largest > 0 then scale[k] = largest * 2 ^ margin
      elseif scale[k] == 0 and steps[last][1] > 0 then scale[k] = 1 end
    end
  end
  return scale
end

describe("gm.float8 with delayed scaling", function()
  local function model(opt)
    local m = gm.nn.Sequential { gm.nn.Linear(32, 64), gm.nn.Linear(64, 16) }:materialize()
    opt.scaling = "delayed"
    gm.float8(m, opt)
    return m
  end

  it("takes the largest of the last steps, without those that were zero or not finite", function()
    local inf, none = math.huge, 2 ^ -126
    local steps = { { 4, none, inf }, { 2, none, inf }, { 8, 0.5, 2 }, { inf, none, none }, { 1, 2, 2 ^ -30 },
      { 0.5, 2 ^ -20, none }, { 0.25, none, inf }, { 0.25, none, none } }
    for _, case in ipairs { { 1, 0 }, { 2, 0 }, { 3, 2 }, { 16, 7 } } do
      local m = model { history = case[1], margin = case[2] }
      local state = m[2].float8.state
      state:open "f32"
      for last = 1, #steps do
        for k, t in ipairs(m[2].float8.needed) do t:fill_(steps[last][k]) end
        gm.float8_update(m)
        local so_far = {}
        for i = 1, last do so_far[i] = steps[i] end
        assert.same({ { 0, 0, 0 }, expected(so_far, case[1], case[2]) }, state.scale:totable())
        assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, state.needed:totable())
      end
    end
  end)

  -- One step of a layer's inputs, forward and backward.
  local function step(m, x)
    local y = m(x)
    y:sum():backward()
    return y:detach()
  end

  it("finds scales as without a history in the first step, and has the last one's in the next", function()
    gm.scope(function()
      local m, x = model {}, gm.uniform({ 4, 32 }, { seed = 3, low = -1 })
      local layer = m[1].float8
      local first = step(m, x)
      local now = ops.linear_float8(ops.linear_float8(x, m[1].weight:detach(), m[1].bias:detach()),
        m[2].weight:detach(), m[2].bias:detach())
      assert.same(now:totable(), first:totable())
      local needed = values(layer.needed)
      assert.equal(ops.float8_scale(x):item(), needed[1])
      assert.equal(ops.float8_scale(m[1].weight:detach()):item(), needed[2])
      assert.is_true(needed[3] > 0)
      gm.float8_update(m)
      assert.same(needed, values(layer.scale))
      assert.same({ 0, 0, 0 }, values(layer.needed))
      local larger = (x * 1000):detach() -- numbers beyond the range become its end, and the next step knows
      local second = m[1](larger)
      local want = ops.linear_float8(larger, m[1].weight, m[1].bias, { scale = layer.scale })
      assert.same(want:totable(), second:totable())
      assert.not_same(ops.linear_float8(larger, m[1].weight, m[1].bias):totable(), second:totable())
      gm.float8_update(m)
      assert.equal(ops.float8_scale(larger):item(), values(layer.scale)[1])
    end)
  end)

  it("finds the scales of a layer that has not run yet", function()
    gm.scope(function()
      local m, x = model {}, gm.uniform({ 4, 32 }, { seed = 3, low = -1 })
      step(m[1], x)
      gm.float8_update(m)
      local y = m[1](x):detach()
      assert.same(ops.linear_float8(y, m[2].weight, m[2].bias):totable(), m[2](y):totable())
      assert.same({ 0, 0, 0 }, values(m[2].float8.scale))
    end)
  end)

  it("adds up the micro-batches of a step", function()
    gm.scope(function()
      local m, x = model {}, gm.uniform({ 4, 32 }, { seed = 3, low = -1 })
      local larger = (x * 1000):detach()
      step(m, x)
      step(m, larger)
      step(m, x)
      gm.float8_update(m)
      assert.equal(ops.float8_scale(larger):item(), values(m[1].float8.scale)[1])
    end)
  end)

  it("has the scales of training in evaluation, which leaves them alone", function()
    gm.scope(function()
      local m, x = model {}, gm.uniform({ 4, 32 }, { seed = 3, low = -1 })
      m:eval()
      local before = m(x):totable()
      assert.is_false(m[1].float8.called)
      m:train()
      step(m, x)
      gm.float8_update(m)
      local scale = values(m[1].float8.scale)
      m:eval()
      assert.same(before, m(x):totable()) -- they are those that x needs
      local other = ops.linear_float8((x * 1000):detach(), m[1].weight, m[1].bias, { scale = m[1].float8.scale })
      assert.same(other:totable(), m[1]((x * 1000):detach()):totable())
      gm.float8_update(m)
      assert.same(scale, values(m[1].float8.scale))
    end)
  end)

  it("runs a block again with the scales of its first run", function()
    gm.scope(function()
      local m, x = model {}, gm.uniform({ 4, 32 }, { seed = 3, low = -1 }):detach():requires_grad(true)
      ops.linear_float8((x * 100):detach(), m[1].weight:detach(), nil, { needed = m[1].float8.needed })
      m[1].float8.called = true
      gm.float8_update(m)
      m(x):sum():backward()
      local once, needed = m[1].weight:grad():clone(), values(m[1].float8.needed)
      gm.recompute(m, x):sum():backward() -- adds the same gradient, to the bit
      numeric.agree(m[1].weight:grad(), once * 2, 0, 1)
      assert.same(needed, values(m[1].float8.needed))
    end)
  end)

  it("leaves nothing finite of a number that is not, and forgets it", function()
    gm.scope(function()
      local m, x = model {}, gm.uniform({ 4, 32 }, { seed = 3, low = -1 })
      step(m, x)
      gm.float8_update(m)
      local scale = values(m[1].float8.scale)
      local bad = x:clone()
      bad:set(2, 7, math.huge)
      local row = m[1](bad):totable()[2]
      for _, v in ipairs(row) do assert.is_true(v ~= v) end
      gm.float8_update(m)
      assert.same(scale, values(m[1].float8.scale))
    end)
  end)

  it("holds 3 numbers and their histories for each layer, to the byte", function()
    for _, case in ipairs { { 1, "f32", 4 }, { 16, "bf16", 4 }, { 5, "f64", 8 } } do
      local m = model { history = case[1] }
      local before = gm.memory().live
      m[1].float8.state:open(case[2])
      assert.equal(2 * 3 * (case[1] + 2) * case[3], gm.memory().live - before)
    end
  end)

  it("refuses what would do nothing", function()
    local layer = gm.nn.Linear(16, 16)
    fails('history goes with scaling = "delayed"', gm.float8, layer, { history = 3 })
    fails('margin goes with scaling = "delayed"', gm.float8, layer, { margin = 1 })
    fails("no layer of the model keeps scales", gm.float8_update, layer)
    gm.float8(layer, { scaling = "delayed" })
    fails("keep scales already", gm.float8, layer, { scaling = "delayed" })
    local other = gm.nn.Linear(16, 16)
    gm.float8(other, { scaling = "delayed" })
    fails("parts of the model have scales of their own", gm.float8_update, gm.nn.Sequential { layer, other })
    fails("scaling", gm.float8, gm.nn.Linear(16, 16), { scaling = "later" })
  end)
end)
