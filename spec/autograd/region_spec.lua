--- Regions: calls that keep their arguments only and run again in backward. The truth is the same call without one.
local gm = require "ganymede"
local core = require "ganymede.core"
local auxiliary = require "ganymede.nn.auxiliary"
local region = require "ganymede.nn.region"
local nn = gm.nn
local ops = gm.ops

local function leaf(shape, seed) return gm.normal(shape, { seed = seed, dtype = "f64" }):requires_grad(true) end

local function gradients(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = t:grad() and t:grad():totable() or false end
  return out
end

-- Gradients of `list` from fn() as it is, and from fn(true) with regions.
local function compare(list, fn)
  local both = {}
  for i, in_region in ipairs { false, true } do
    core.zero_grad(list)
    core.set_seed(7)
    core.begin_step()
    gm.scope(function() fn(in_region):backward() end)
    both[i] = gradients(list)
  end
  assert.same(both[1], both[2])
end

local function as_region(in_region, fn, ...)
  if in_region then return gm.recompute(fn, ...) end
  return fn(...)
end

local function saved_bytes()
  local bytes = 0
  for _, entry in ipairs(core.tape_saved()) do bytes = bytes + entry.bytes end
  return bytes
end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("a region", function()
  local x, w = leaf({ 6, 5 }, 1):keep(), leaf({ 5, 5 }, 2):keep()
  before_each(function() core.zero_grad { x, w } end)

  local function layers(a)
    for _ = 1, 3 do a = ops.tanh(ops.matmul(a, w)) end
    return a
  end

  it("gives the gradients of its arguments and of the parameters that it reads", function()
    compare({ x, w }, function(in_region) return as_region(in_region, layers, x):sum() end)
  end)

  it("keeps its arguments alone", function()
    gm.scope(function()
      local a = ops.mul(x, 2)
      local before = saved_bytes()
      local y = gm.recompute(layers, a)
      assert.equal(before + 6 * 5 * 8, saved_bytes())
      y:sum():backward()
    end)
  end)

  it("holds nothing for backward in its first run", function()
    local wide = leaf({ 5, 5 }, 4)
    local a, size = gm.normal({ 4000, 5 }, { seed = 3, dtype = "f64" }), 4000 * 5 * 8
    local function many(v)
      for _ = 1, 10 do v = gm.scope(function(u) return ops.tanh(ops.matmul(u, wide)) end, v) end
      return v
    end
    gm.scope(function()
      local before = core.memory().live
      core.memory_reset_peak()
      gm.scope(function() gm.recompute(many, a) end)
      -- Each of ten layers has its result for as long as the scope of `many` does, and one more inside.
      assert.is_true(core.memory().peak - before <= 12 * size)
      core.memory_reset_peak()
      gm.scope(function() many(a) end)
      assert.is_true(core.memory().peak - before >= 19 * size)
    end)
  end)

  it("has let go of its result and of the gradient of that when it reaches its beginning", function()
    local wide, before, more = leaf({ 5, 4000 }, 4), nil, nil
    local watched = gm.custom { forward = function(a) return a * 1 end, backward = function(g)
      more = core.memory().live - before
      return g * 1
    end }
    gm.scope(function()
      local loss = gm.scope(function()
        return gm.recompute(function(a) return ops.matmul(watched(a), wide) end, x):sum()
      end)
      before = core.memory().live
      loss:backward()
    end)
    local gradient_of_wide, result = 5 * 4000 * 8, 6 * 4000 * 8
    assert.is_true(more < gradient_of_wide + result, more .. " bytes more")
  end)

  it("draws the random numbers of its first run, whatever was drawn since", function()
    local drop = nn.Dropout(0.5)
    local function dropped(a) return drop(ops.matmul(drop(a), w)) end
    compare({ x, w }, function(in_region)
      local y = as_region(in_region, dropped, x)
      return ops.add(y:sum(), drop(x):sum())
    end)
  end)

  it("stands in another region", function()
    compare({ x, w }, function(in_region)
      return as_region(in_region, function(a) return ops.add(as_region(in_region, layers, a), a) end, x):sum()
    end)
  end)

  it("has several arguments and results, of which some are no tensors", function()
    local function several(a, n, b, nothing)
      assert(nothing == nil)
      return ops.mul(a, n), nil, "text", ops.matmul(a, b), ops.sum(b)
    end
    compare({ x, w }, function(in_region)
      local p, none, text, q, s = as_region(in_region, several, x, 3, w, nil)
      assert(none == nil and text == "text")
      return ops.add(ops.add(ops.square(p):sum(), q:sum()), s)
    end)
  end)

  it("hands an argument on, or a parameter, with its gradient", function()
    local function add_up(list)
      local sum
      for _, t in ipairs(list) do sum = sum and ops.add(sum, ops.square(t):sum()) or ops.square(t):sum() end
      return sum
    end
    local function same(a) return a end
    local function other() return w end
    local function both(a) return a, w, ops.matmul(a, w), a end
    for _, fn in ipairs { same, other, both } do
      compare({ x, w }, function(in_region) return add_up { as_region(in_region, fn, x) } end)
      compare({ x, w }, function(in_region) return add_up { as_region(in_region, fn, ops.mul(x, 3)) } end)
    end
    compare({ x, w }, function(in_region)
      return add_up { as_region(in_region, function(a) return as_region(in_region, both, a) end, x) }
    end)
  end)

  it("takes 64 tensors as arguments, and refuses 65", function()
    local list = {}
    for i = 1, 64 do list[i] = leaf({ 3 }, 100 + i):keep() end
    local function weighed(...)
      local sum
      for i = 1, select("#", ...) do
        local term = ops.mul(ops.square((select(i, ...))), i)
        sum = sum and ops.add(sum, term) or term
      end
      return sum
    end
    compare(list, function(in_region) return as_region(in_region, weighed, unpack(list)):sum() end)
    list[65] = leaf({ 3 }, 7)
    local ok, why = pcall(gm.recompute, weighed, unpack(list))
    assert.is_false(ok)
    assert.truthy(why:find("the function has 65 tensors as arguments; at most 64 are allowed", 1, true), why)
    assert.equal(0, core.no_grad(0))
    compare({ x, w }, function(in_region) return as_region(in_region, layers, x):sum() end)
  end)

  it("leaves a result alone that nobody goes back from", function()
    compare({ x, w }, function(in_region)
      local p, q = as_region(in_region, function(a) return ops.square(a), ops.matmul(a, w) end, x)
      return ops.add(p:sum(), ops.mul(q:detach():sum(), 0))
    end)
  end)

  it("counts losses that layers put aside once", function()
    auxiliary.clear() -- of other specs
    local function layer(a)
      local y = ops.matmul(a, w)
      auxiliary.add(ops.square(y):mean())
      return y
    end
    compare({ x, w }, function(in_region)
      local y = as_region(in_region, layer, x)
      return auxiliary.add_to(y:sum(), 0.5)
    end)
  end)

  it("goes back twice where the graph is retained", function()
    compare({ x, w }, function(in_region)
      local loss = as_region(in_region, layers, x):sum()
      loss:backward { retain_graph = true }
      return loss
    end)
  end)

  it("goes back through functions of one's own", function()
    local double = gm.custom { forward = function(a) return a * 2 end, backward = function(g) return g * 2 end }
    compare({ x }, function(in_region) return as_region(in_region, double, x):sum() end)
  end)

  it("passes a gradient check", function()
    assert.is_true(gm.gradcheck(function(a, b)
      return gm.recompute(function(c, d) return ops.tanh(ops.matmul(c, d)) end, a, b)
    end, { x, w }) < 1e-6)
  end)

  it("is an ordinary call where nothing is recorded", function()
    local calls = 0
    gm.no_grad(function()
      gm.scope(function() gm.recompute(function(a)
        calls = calls + 1
        return a * 2
      end, x) end)
    end)
    assert.equal(1, calls)
  end)

  it("raises what the function raises, in either run, and leaves the tape as it was", function()
    local before = core.tape_nodes()
    local ok, why = pcall(gm.recompute, function() error("first", 0) end, x)
    assert.is_false(ok)
    assert.equal("first", why)
    assert.equal(before, core.tape_nodes())
    local runs = 0
    ok, why = pcall(gm.scope, function()
      gm.recompute(function(a)
        runs = runs + 1
        if runs == 2 then error("second", 0) end
        return layers(a)
      end, x):sum():backward()
    end)
    assert.is_false(ok)
    assert.truthy(tostring(why):find("second", 1, true), why)
    assert.equal(before, core.tape_nodes())
  end)

  local function refused(fn, words)
    local ok, why = pcall(gm.scope, fn)
    assert.is_false(ok)
    assert.truthy(tostring(why):find(words, 1, true), why)
  end

  it("refuses a tensor from outside that is no argument", function()
    refused(function()
      local a = ops.mul(x, 2)
      gm.recompute(function() return ops.matmul(a, w) end)
    end, "pass it as an argument")
  end)

  it("refuses a result from outside that is no argument", function()
    refused(function()
      local a = ops.mul(x, 2)
      gm.recompute(function(b) return ops.matmul(b, w), a end, x)
    end, "result 2 of the function was computed outside")
  end)

  it("refuses results that are tables", function()
    refused(function() gm.recompute(function(a) return { a } end, x) end, "result 1 is a table")
  end)

  it("refuses a second run with results of another shape", function()
    local rows = 6
    refused(function()
      local y = gm.recompute(function(a) return ops.matmul(a, w):narrow(1, 1, rows) end, x)
      rows = 3
      y:sum():backward()
    end, "gave another result 1")
  end)

  it("refuses a second run that draws other random numbers, and names its module", function()
    local both = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    local calls, first
    local function dropped(a)
      a = ops.matmul(a, w)
      for _ = 1, calls do a = first(a) end
      return a
    end
    local function twice(change, words)
      calls, first = 2, both[1]
      core.set_seed(7)
      refused(function()
        local y = gm.recompute(dropped, x)
        change()
        y:sum():backward()
      end, words)
    end
    twice(function() calls = 1 end, "the function drew random numbers 1 time, at first 2")
    twice(function() calls = 3 end, "drew random numbers 3 times, at first 2")
    twice(function() first = both[2] end, "the same number of times, but others")
    twice(function() core.set_seed(8) end, "the same number of times, but others")
    core.set_seed(7)
  end)

  it("names the module that drew other random numbers", function()
    local Odd, once = nn.class("SpecOdd", nil, false), false
    function Odd:build() self.drop = nn.Dropout(0.5) end
    function Odd:forward(a) return once and ops.matmul(a, w) or self.drop(ops.matmul(a, w)) end
    local model = nn.Sequential(nn.Dropout(0.5), Odd {})
    region.mark(model, { "^2$" })
    local function once_again(words)
      once = false
      refused(function()
        local y = model(x)
        once = true
        y:sum():backward()
      end, words)
    end
    once_again "run again, 2 drew random numbers 0 times, at first 1"
    region.mark(model, { sections = "1-2" })
    once_again "run again, 1 to 2 drew random numbers 1 time, at first 2"
  end)

  it("runs in the mode of its first run", function()
    gm.scope(function()
      local layer, ones = nn.Dropout(0.5), gm.ones({ 64 }):requires_grad(true)
      local y = gm.recompute(layer, ones)
      layer:eval()
      y:sum():backward()
      assert.same(y:totable(), ones:grad():totable())
      assert.is_false(layer.training)
    end)
  end)

  it("refuses a parameter that was changed in place meanwhile", function()
    refused(function()
      local own = leaf({ 5, 5 }, 3)
      local y = gm.recompute(function(a) return ops.matmul(a, own) end, x)
      gm.no_grad(function() own:fill_(3) end)
      y:sum():backward()
    end, "a parameter that the function reads was changed in place")
  end)

  it("refuses a function that changes its argument", function()
    refused(function()
      gm.recompute(function(a)
        local y = ops.matmul(a, w)
        gm.no_grad(function() a:fill_(0) end)
        return y
      end, ops.mul(x, 2))
    end, "changed its argument 1")
  end)

  it("refuses an argument that was changed in place meanwhile", function()
    refused(function()
      local a = gm.ones({ 6, 5 }, { dtype = "f64" })
      local y = gm.recompute(layers, a)
      a:fill_(2)
      y:sum():backward()
    end, "changed in place")
  end)
end)
