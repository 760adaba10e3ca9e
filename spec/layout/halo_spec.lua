-- Images whose first dimension of space is cut over ranks: convolutions, pooling, norms and interpolation of blocks,
-- with the rows that they need of others, are those of the whole image; and what is sent follows a formula.
-- ranks: 2 3 4
--
-- Everything is f64 and agrees to 1e-12 (both.TOLERANCE), with NaN wherever no zeros are promised. Sizes divide evenly
-- and unevenly; with 5 places 4 ranks have 2, 2, 1 and none, and kernels reach over several ranks.
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local padding = require "spec.support.padding"
local ops = gm.ops

local world, any = core.world(), both.source(1600)

local function space(ndim) return both.laid("-,-,sequence" .. (",-"):rep(ndim - 3)) end

-- Values and gradients of fn(x, ...) with x cut along its first dimension of space, and what it gives cut so too.
local function agree(fn, x, ...)
  local ndim = x:dim()
  local case = { inputs = { x, ... }, cuts = { space(ndim) }, fn = fn, expect = "-,-,sequence" .. (",-"):rep(ndim - 3) }
  padding.poisoned(function() both.agree(case) end)
end

-- Sizes of x without the batch, of w, options.
local convolutions = {
  { "one dimension, places that are too few for all", { 2, 5 }, { 3, 2, 3 }, { padding = 1 } },
  { "a kernel over several ranks", { 2, 6 }, { 3, 2, 9 }, { padding = 4 } },
  { "a kernel as long as the image, unevenly padded", { 1, 7 }, { 2, 1, 7 }, { padding = { { 4, 2 } } } },
  { "a stride that leaves places out", { 2, 11 }, { 3, 2, 2 }, { stride = 3 } },
  { "a stride and a dilation", { 2, 13 }, { 3, 2, 3 }, { stride = 2, dilation = 2, padding = { { 1, 3 } } } },
  { "groups and an activation", { 4, 9, 3 }, { 6, 2, 3, 2 }, { groups = 2, padding = { 1, 1 }, activation = "gelu" } },
  { "depthwise, two dimensions", { 3, 8, 4 }, { 3, 1, 3, 3 }, { groups = 3, padding = 1, activation = "silu" } },
  { "three dimensions", { 2, 6, 4, 3 }, { 3, 2, 3, 3, 3 }, { padding = 1, stride = { 2, 1, 1 } } },
  { "a kernel of one place", { 2, 8, 2 }, { 3, 2, 1, 1 }, {} },
}

local transposed = {
  { "doubles sizes", { 2, 5 }, { 2, 3, 2 }, { stride = 2 } },
  { "a kernel over several ranks", { 2, 5, 2 }, { 2, 3, 4, 2 }, { stride = 2, padding = { 1, 0 } } },
  { "a stride beyond the kernel", { 2, 4 }, { 2, 3, 2 }, { stride = 4, output_padding = 3 } },
  { "dilation, groups, an activation", { 4, 6 }, { 4, 1, 3 },
    { stride = 2, dilation = 2, groups = 2, padding = { { 3, 1 } }, output_padding = 1, activation = "gelu" } },
  { "three dimensions", { 2, 3, 2, 2 }, { 2, 2, 2, 2, 2 }, { stride = 2 } },
}

describe("images that ranks share:", function()
  both.in_f64(setup, teardown, function() both.mesh { "sequence", world } end)

  for _, case in ipairs(convolutions) do
    it("a convolution, " .. case[1], function()
      agree(function(x, w, b) return ops.convolution(x, w, b, case[4]) end, any(2, unpack(case[2])),
        any(unpack(case[3])), any(case[3][1]))
    end)
  end

  for _, case in ipairs(transposed) do
    it("a transposed convolution, " .. case[1], function()
      local outputs = case[3][2] * (case[4].groups or 1)
      agree(function(x, w, b) return ops.transposed_convolution(x, w, b, case[4]) end, any(2, unpack(case[2])),
        any(unpack(case[3])), any(outputs))
    end)
  end

  it("a weight without a gradient, and an image without one", function()
    local x, w = any(1, 2, 7), any(2, 2, 3)
    agree(function(y) return ops.convolution(y, w, nil, { padding = 1 }) end, x)
    both.agree { inputs = { w }, cuts = {}, fn = function(v)
      return ops.convolution(core.redistribute(x, space(3)), v, nil, { padding = 1 })
    end }
  end)

  it("a deep stack of them", function()
    local more = {}
    for i = 1, 6 do more[i] = any(3, 3, 3, 3) end
    agree(function(x, ...)
      for i, w in ipairs { ... } do
        x = ops.convolution(x, w, nil, { padding = 1, stride = i == 3 and 2 or 1, activation = "gelu" })
      end
      return ops.add(ops.transposed_convolution(x, more[1], nil, { stride = 1, padding = 1 }), x)
    end, any(1, 3, 13, 5), unpack(more))
  end)

  it("pooling", function()
    agree(function(x) return ops.max_pool(x, 2), ops.avg_pool(x, 2) end, any(2, 3, 10, 4))
    agree(function(x) return ops.max_pool(x, 3, 2, 1, 1, { ceil_mode = true }) end, any(1, 2, 14))
    agree(function(x) return ops.max_pool(x, 3, 1, 1, 2) end, any(2, 2, 9, 7, 6))
    agree(function(x) return ops.avg_pool(x, { 3, 2 }, { 2, 1 }, 1, { count_include_pad = false }) end, any(1, 2, 9, 5))
    agree(function(x) return ops.avg_pool(x, 4, 3, 2, { ceil_mode = true }) end, any(1, 2, 14))
    agree(function(x) return ops.avg_pool(x, 3, 2, 0, { divisor = 2 }) end, any(1, 2, 11))
    agree(function(x) return ops.adaptive_max_pool(x, { 4, 3 }) end, any(1, 2, 12, 5))
    agree(function(x) return ops.adaptive_avg_pool(x, { 4, 2 }) end, any(1, 2, 8, 5))
  end)

  it("the mean over the whole of an image, a sum of terms", function()
    for _, shape in ipairs { { 2, 3, 7 }, { 2, 3, 6, 5 }, { 1, 2, 5, 4, 3 } } do
      both.agree { inputs = { any(unpack(shape)) }, cuts = { space(#shape) }, fn = function(x)
        local y = ops.adaptive_avg_pool(x, 1)
        return y:settle()
      end }
    end
  end)

  it("norms of the batch, of groups and of each image", function()
    local group = gm.nn.GroupNorm { groups = 2, channels = 6, affine = false }
    local instance = gm.nn.InstanceNorm2d { channels = 6 }
    agree(function(x, w, b) return (ops.batch_norm(x, w, b)) end, any(2, 3, 7, 2) + 3, any(3), any(3))
    agree(function(x) return group(x) + instance(x) end, any(3, 6, 7, 3) + 3)
  end)

  it("interpolation", function()
    local function resized(options) return function(x) return ops.interpolate(x, options) end end
    agree(resized { scale = 2 }, any(2, 3, 5, 3))
    agree(resized { scale = 3, mode = "linear" }, any(1, 2, 7, 3))
    agree(resized { size = { 13, 4 }, mode = "linear", align_corners = true }, any(1, 2, 6, 3))
    agree(resized { size = { 5, 4, 4 } }, any(1, 2, 9, 2, 3))
  end)

  it("are joined along their channels, and added", function()
    agree(function(x, w)
      local y = ops.convolution(x, w, nil, { padding = 1 })
      return ops.relu(ops.cat({ x, y }, 2)) + ops.cat({ y, x }, 2)
    end, any(2, 2, 9, 3), any(2, 2, 3, 3))
  end)

  -- Rows [first, end) of n that a rank has.
  local function block(n, rank)
    local each = math.ceil(n / world)
    return math.min(rank * each, n), math.min((rank + 1) * each, n)
  end

  -- Rows of x that one rank has and another one's windows reach over.
  local function crossing(c, has, reads)
    local n, kernel, stride, before = unpack(c)
    local first, last = block(math.floor((n + 2 * before - kernel) / stride) + 1, reads)
    if first == last or has == reads then return 0 end
    local from, to = block(n, has)
    return math.max(0, math.min(to, (last - 1) * stride - before + kernel) - math.max(from, first * stride - before))
  end

  -- Places, kernel, stride, padding. Where windows begin and end with blocks nothing is sent.
  for _, c in ipairs { { 16, 3, 1, 1 }, { 13, 5, 1, 2 }, { 5, 3, 1, 1 }, { 24, 2, 2, 0 }, { 17, 4, 3, 1 } } do
    it(("a convolution sends the rows that others read: of %d, kernel %d, stride %d"):format(unpack(c)), function()
      gm.scope(function()
        local x, w = core.redistribute(any(2, 3, c[1], 5), space(4)):detach():requires_grad(true), any(4, 3, c[2], 1)
        local row, there, back = 2 * 3 * 5 * 8, 0, 0
        for rank = 0, world - 1 do
          there, back = there + crossing(c, core.rank(), rank), back + crossing(c, rank, core.rank())
        end
        local forward, y = both.sent(function()
          return ops.convolution(x, w:requires_grad(true), nil, { stride = { c[3], 1 }, padding = { c[4], 0 } })
        end)
        assert.equal(there * row, forward)
        local loss = y:sum()
        assert.equal((there + back) * row, (both.sent(function() loss:backward() end))) -- the rows again, and gradients
      end)
    end)
  end

  local function refused(fn, text)
    gm.scope(function()
      local ok, why = pcall(fn)
      assert.is_false(ok)
      assert.matches(text, why, 1, true)
    end)
  end

  it("are refused where it cannot be", function()
    local x = core.redistribute(any(1, 2, 5 * world), space(3))
    refused(function() ops.adaptive_avg_pool(x, 5 * world - 1) end, "must be more than one and equally long")
    refused(function() ops.adaptive_max_pool(x, 1) end, "must be more than one and equally long")
    refused(function() ops.max_pool(x, 2, 1, 0, 1, { places = true }) end, "there is no index where")
    local options = { padding = { { 0, 60 * world } } }
    refused(function() ops.convolution(x, any(1, 2, 1), nil, options) end, "lie in the padding alone")
    local alone = core.redistribute(any(1, 2, 2 * (2 * world - 1)), space(3))
    refused(function() ops.max_pool(alone, 3, 2, 0, 1, { ceil_mode = true }) end, "would lie alone on a rank")
    local second = core.redistribute(any(1, 2, 3, 8), both.laid "-,-,-,sequence")
    refused(function() ops.convolution(second, any(1, 2, 2, 2)) end, "the space that the kernel goes over is cut")
    refused(function() ops.max_pool(second, 2) end, "windows move along a dimension that is cut")
  end)
end)

if world == 4 then
  describe("images that ranks share, on other axes too:", function()
    both.in_f64(setup, teardown)

    -- The cuts of x and of w, the axis beside the sequence, the size of w.
    local function shared(name, axis, x_cuts, w_cuts, expect, w, options)
      it(name, function()
        core.set_mesh { { axis, 2 }, { "sequence", 2 } }
        options.padding = 1
        both.agree { inputs = { any(3, 4, 7, 3), any(unpack(w)), any(w[1]) }, expect = expect,
          cuts = { both.laid(x_cuts), w_cuts and both.laid(w_cuts) or false },
          fn = function(x, v, b) return ops.convolution(x, v, b, options) end }
      end)
    end

    shared("samples are cut, unevenly", "data", "data,-,sequence,-", nil, "data,-,sequence,-", { 5, 4, 3, 3 },
      { activation = "gelu" })
    shared("channels that are made are cut", "tensor", "-,-,sequence,-", "tensor,-,-,-", "-,tensor,sequence,-",
      { 5, 4, 3, 3 }, { activation = "silu" })
    shared("channels that are summed over are cut", "tensor", "-,tensor,sequence,-", "-,tensor,-,-",
      "-,-,sequence,- partial tensor", { 5, 4, 3, 3 }, {})
    shared("groups are cut", "tensor", "-,tensor,sequence,-", "tensor,-,-,-", "-,tensor,sequence,-", { 4, 1, 3, 3 },
      { groups = 4 })
  end)
end
