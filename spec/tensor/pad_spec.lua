-- ops.pad with places that are mirrored or repeated: each element and each gradient, counted one by one. Numbers are
-- whole, so that sums are exact. spec/tensor/composed_spec.lua has PyTorch's numbers, and ranks.
local gm = require "ganymede"
local ops = gm.ops

-- The place of x that stands at place i (from 0) of the result.
local function shown(mode, i, n, before)
  i = i - before
  if mode == "replicate" then return math.max(0, math.min(n - 1, i)) end
  if i < 0 then return -i end
  return i >= n and 2 * (n - 1) - i or i
end

-- before, after: of each dimension, from the first. -> the numbers of the result, and those of the gradient of x, where
-- that of the result is 1, 2, 3, ...
local function expected(mode, shape, before, after)
  local result, gradient, size = {}, {}, 1
  for _, n in ipairs(shape) do size = size * n end
  for i = 1, size do gradient[i] = 0 end
  local function walk(d, place)
    if d > #shape then
      result[#result + 1] = place
      gradient[place + 1] = gradient[place + 1] + #result
      return
    end
    for i = 0, before[d] + shape[d] + after[d] - 1 do
      walk(d + 1, place * shape[d] + shown(mode, i, shape[d], before[d]))
    end
  end
  walk(1, 0)
  return result, gradient
end

local function flat(t) return t:reshape({ -1 }):totable() end

local function check(mode, shape, before, after)
  gm.scope(function()
    local sizes, size = {}, 1
    for d = #shape, 1, -1 do
      sizes[#sizes + 1], sizes[#sizes + 2] = before[d], after[d]
      size = size * shape[d]
    end
    local x = gm.arange(size, { dtype = "f64" }):reshape(shape):detach():requires_grad(true)
    local y = ops.pad(x, sizes, { mode = mode })
    local result, gradient = expected(mode, shape, before, after)
    assert.same(result, flat(y:detach()))
    ops.sum(y * gm.arange(#result, { dtype = "f64" }):reshape(y:shape()) + y):backward()
    assert.same(gradient, flat(x:grad()))
  end)
end

local cases = {
  { { 5 }, { 4 }, { 4 } }, { { 2, 3 }, { 1, 2 }, { 0, 1 } }, { { 3, 4, 5 }, { 2, 0, 3 }, { 1, 3, 0 } },
  { { 2, 1, 4, 3 }, { 0, 0, 3, 2 }, { 0, 0, 1, 2 } }, { { 2, 9, 8 }, { 1, 8, 7 }, { 1, 8, 7 } },
  { { 30, 3 }, { 9, 1 }, { 29, 2 } }, -- long borders
}

describe("ops.pad", function()
  for _, case in ipairs(cases) do
    local name = "(" .. table.concat(case[1], ", ") .. ")"
    it("with mirrored places of " .. name, function() check("reflect", unpack(case)) end)
    it("with repeated places of " .. name, function() check("replicate", unpack(case)) end)
  end

  it("repeats far more places than there are, and takes others away", function()
    check("replicate", { 2, 2 }, { 0, 70 }, { 100, 0 })
    local x = gm.arange(6):reshape { 2, 3 }
    assert.same({ { 1, 2, 1 }, { 4, 5, 4 } }, ops.pad(x, { -1, 1 }, { mode = "reflect" }):totable())
  end)
end)
