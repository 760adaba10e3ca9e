-- Tensors that are cut or partial in users' hands: reading, writing, printing, gradients given and read.
-- ranks: 1 3
--
-- What is read is compared with the numbers that were written; every rank reads the same.
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local world = core.world()

-- (n, 2) with 10 row + column, cut along its rows
local function numbered(n)
  local list = {}
  for i = 1, n do list[i] = { 10 * i + 1, 10 * i + 2 } end
  return both.place(gm.tensor(list, { dtype = "f64" }), both.rows), list
end

describe("a tensor of which ranks hold blocks", function()
  both.in_f64(setup, teardown, function() both.mesh { "data", world } end)

  local function each(name, fn)
    for _, n in ipairs { 6, 4, 1 } do
      it(("%s, %d rows"):format(name, n), function() gm.scope(fn, n) end)
    end
  end

  each("has the shape of the whole, and a block of its own", function(n)
    local x = numbered(n)
    assert.same({ n, 2 }, x:shape())
    assert.same({ n, n, 2, 2 * n }, { x:size(1), #x:totable(), x:dim(), x:numel() })
    assert.same({ math.ceil(n / world), 2 }, x:local_tensor():shape())
    assert.equal("-,-", both.describe(x:local_tensor()))
    assert.equal(both.describe(x), both.describe(x:detach()))
  end)

  each("is read as a whole on every rank", function(n)
    local x, list = numbered(n)
    assert.same(list, x:totable())
    assert.equal(10 * n + 2, x:get(n, 2))
    assert.same(list[n], x[n]:totable())
    assert.equal(11, x[1][1]:item())
    assert.equal(11, x:narrow(2, 1, 1):sum(2, true):get(1, 1))
    local total = 0
    for _, row in ipairs(list) do total = total + row[1] + row[2] end
    assert.equal(total, x:sum():item())
    assert.same({ total / (2 * n) }, { x:mean():get() })
    local text = tostring(x)
    assert.truthy(text:find(("tensor f64 (%d, 2)"):format(n), 1, true))
    assert.truthy(text:find(("%d.0000"):format(10 * n + 2), 1, true))
  end)

  each("is written where the element is", function(n)
    local x, list = numbered(n)
    for i = 1, n do
      x:set(i, 2, -i)
      list[i][2] = -i
    end
    assert.same(list, x:totable())
    assert.error_matches(function() x:set(n + 1, 1, 0) end, ("index %d is outside"):format(n + 1))
    x:fill_(7)
    assert.equal(14 * n, x:sum():item())
  end)

  each("is copied into and from other layouts", function(n)
    local x, list = numbered(n)
    local whole = gm.zeros { n, 2 }
    whole:copy_(x)
    assert.same(list, whole:totable())
    x:copy_(whole * 2)
    assert.equal(2 * list[n][1], x:get(n, 1))
    x:copy_((numbered(n)))
    assert.same(list, x:totable())
    assert.error_matches(function() x:copy_(gm.zeros { n, 3 }) end, "%(%d, 3%)")
  end)

  each("has a gradient that is cut as it is, from any seed", function(n)
    local x = numbered(n):detach():requires_grad(true)
    local w = gm.tensor { 2, 3 }:requires_grad(true)
    local seed = gm.uniform({ n, 2 }, { seed = 3 })
    for _, given in ipairs { seed, both.place(seed, both.rows) } do
      core.zero_grad { x, w }
      ;(x * w):backward(given)
      numeric.agree(x:grad(), seed * gm.tensor { { 2, 3 } }, 1e-15)
      numeric.agree(w:grad(), (seed * core.gather(x:detach())):sum(1), 1e-14)
      assert.equal(both.describe(x), both.describe(x:grad()))
    end
    assert.error_matches(function() (x * w):backward(gm.ones { n, 3 }) end, "backward: the seed is f64 %(%d, 3%)")
  end)

  each("adds gradients of different states over several backward passes", function(n)
    local x = numbered(n)
    local want, w = gm.tensor { 2, 3 }:requires_grad(true), gm.tensor { 2, 3 }:requires_grad(true)
    for _, t in ipairs { want, w } do
      local data = t == w and x or core.gather(x)
      ;(t * t):sum():backward() -- replicated
      ;(data * t):sum():backward() -- partial
      ;(t * 5):sum():backward() -- replicated again
      ;((data * t):sum() + (t * t):sum()):backward() -- both at once
    end
    numeric.agree(w:grad(), want:grad(), 1e-14)
  end)

  if world == 1 then return end

  it("refuses what has no meaning on a part", function()
    gm.scope(function()
      local x = numbered(4)
      assert.error_matches(function() return x:data() end, "a rank has its block only")
      assert.error_matches(function() x:sum(1):fill_(1) end, "fill_: f64 %(2%) cut %(%-%) partial data is a sum")
      assert.error_matches(function() x:sum(1):set(1, 1) end, "set: .* is a sum over ranks")
      assert.error_matches(function() x:sum():copy_(gm.zeros {}) end, "copy_: .* is a sum over ranks")
      assert.error_matches(function() x:item() end, "item: the tensor has 8 elements")
      assert.error_matches(function() x:requires_grad(true):backward() end, "backward")
    end)
  end)

  it("leaves a partial loss whole: one seed, the gradient of the sum", function()
    gm.scope(function()
      local x = numbered(5):detach():requires_grad(true)
      local loss = ops.square(x):sum()
      assert.equal(" partial data", both.describe(loss))
      loss:backward(gm.tensor(3))
      numeric.agree(x:grad(), core.gather(x:detach()) * 6, 1e-15)
    end)
  end)
end)
