-- Batch norm as a layer: its running numbers, its modes, and what it refuses. spec/golden/images.py has PyTorch's
-- numbers, spec/layout/images_spec.lua ranks, spec/parallel/batch_norm_spec.lua training.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local region = require "ganymede.nn.region"
local nn, ops = gm.nn, gm.ops

local function near(got, want) numeric.agree(got, want, 1e-13) end

-- Mean and variance of each channel of x (n, c), in plain Lua.
local function statistics(x)
  local rows, means, variances = x:totable(), {}, {}
  for c = 1, #rows[1] do
    local sum, squares = 0, 0
    for _, row in ipairs(rows) do sum = sum + row[c] end
    for _, row in ipairs(rows) do squares = squares + (row[c] - sum / #rows) ^ 2 end
    means[c], variances[c] = sum / #rows, squares / (#rows - 1)
  end
  return means, variances
end

local function moved(list, by, target)
  local out = {}
  for i, v in ipairs(list) do out[i] = v + by * (target[i] - v) end
  return out
end

local function samples(seed) return gm.normal({ 6, 3 }, { mean = 2, std = 3, seed = seed }) end

describe("batch norm", function()
  it("moves its running numbers in training, and uses them in evaluation", numeric.f64(function()
    local layer = nn.BatchNorm1d { channels = 3, momentum = 0.25, affine = false }
    local mean, variance = { 0, 0, 0 }, { 1, 1, 1 }
    for step = 1, 3 do
      local x = samples(step)
      local now, spread = statistics(x)
      mean, variance = moved(mean, 0.25, now), moved(variance, 0.25, spread)
      layer(x)
      near(layer.running_mean, mean)
      near(layer.running_var, variance)
      assert.equal(step, layer.num_batches_tracked:item())
    end
    layer:eval()
    local x = samples(9)
    local y, rows = layer(x):totable(), x:totable()
    for c = 1, 3 do
      assert.is_true(math.abs(y[4][c] - (rows[4][c] - mean[c]) / math.sqrt(variance[c] + 1e-5)) < 1e-12)
    end
    near(layer.running_mean, mean)
    assert.equal(1, layer(x:narrow(1, 1, 1)):size(1)) -- one sample has no variance, and needs none
  end))

  it("keeps its running numbers in f32 where the model is of 16 bits, so that small moves count", function()
    local before = gm.default_dtype()
    finally(function() gm.set_default_dtype(before) end)
    for _, dtype in ipairs { "bf16", "f16" } do
      gm.set_default_dtype(dtype)
      gm.scope(function()
        local layer = nn.BatchNorm1d { channels = 1, momentum = 0.001 }
        local x, part = gm.tensor({ { 1 }, { 3 }, { 1 }, { 3 } }, { dtype = dtype }), 0.999 ^ 300
        for _ = 1, 300 do gm.scope(layer, x) end
        assert.equal(dtype, layer.weight:dtype())
        assert.equal("f32", layer.running_mean:dtype())
        -- 300 roundings of 2^-24 at most; numbers of 8 bits would be off by several per cent
        assert.near(2 * (1 - part), layer.running_mean:item(), 1e-4)
        assert.near(part + 4 / 3 * (1 - part), layer.running_var:item(), 1e-4)
        assert.equal(dtype, layer:eval()(x):dtype())
      end)
    end
  end)

  it("with momentum = false keeps the mean of all batches", numeric.f64(function()
    local layer, sum = nn.BatchNorm1d { channels = 3, momentum = false }, { 0, 0, 0 }
    for step = 1, 4 do
      local x = samples(step)
      local now = statistics(x)
      for c = 1, 3 do sum[c] = sum[c] + now[c] / 4 end
      layer(x)
    end
    near(layer.running_mean, sum)
  end))

  it("counts a call in a region once", numeric.f64(function()
    local plain, again = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    local model = nn.Sequential { again }
    region.mark(model, { "^1$" })
    local x = samples(1):requires_grad(true)
    plain(x):square():sum():backward()
    model(x):square():sum():backward()
    assert.equal(1, again.num_batches_tracked:item())
    assert.same(plain.running_var:totable(), again.running_var:totable())
    assert.is_false(region.is_again())
  end))

  it("has its running numbers in its state, unless it tracks none", function()
    local names = {}
    for i, e in ipairs(nn.Sequential { nn.BatchNorm2d(4), nn.BatchNorm1d { channels = 2, track_running_stats = false,
      affine = false } }:state()) do names[i] = e.name end
    assert.same({ "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked" }, names)
  end)

  it("in evaluation has the gradients of constants", numeric.f64(function()
    local layer = nn.BatchNorm1d(3)
    layer.running_var:copy_(gm.tensor { 4, 1, 0.25 })
    layer:eval()
    local x = samples(2):requires_grad(true)
    layer(x):sum():backward()
    local slope = x:grad():totable()
    for c, variance in ipairs { 4, 1, 0.25 } do
      assert.is_true(math.abs(slope[5][c] - 1 / math.sqrt(variance + 1e-5)) < 1e-13)
    end
    near(layer.bias:grad(), { 6, 6, 6 })
  end))

  it("of no samples gives none: norms of groups and of channels", function()
    for _, norm in ipairs { nn.GroupNorm(2, 4), nn.InstanceNorm2d { channels = 4, affine = true } } do
      local x = gm.ones({ 0, 4, 2, 3 }):requires_grad(true)
      local y = norm(x)
      assert.same({ 0, 4, 2, 3 }, y:shape())
      y:sum():backward()
      assert.same({ 0, 4, 2, 3 }, x:grad():shape())
    end
  end)

  -- Samples with and without dimensions behind their channels, which two groups share.
  for _, behind in ipairs { 1, 3 } do
    it("of groups is its formula, with a scale and a shift for each channel, " .. behind, numeric.f64(function()
      local x = gm.normal(behind == 1 and { 3, 4 } or { 3, 4, behind }, { mean = 2, std = 3, seed = 5 })
      local g, layer = gm.normal(x:shape(), { seed = 6 }), nn.GroupNorm(2, 4)
      gm.no_grad(function()
        layer.weight:copy_(gm.tensor { 2, -1, 0.5, 3 })
        layer.bias:copy_(gm.tensor { 1, 0, -2, 0.25 })
      end)
      local y = layer(x)
      ops.sum(ops.mul(y, g)):backward()
      local given, slopes = x:reshape({ 3, 4, behind }):totable(), g:reshape({ 3, 4, behind }):totable()
      local want, of_weight, of_bias, count = {}, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, 2 * behind
      for i = 1, 3 do
        for c = 1, 4 do
          local first, sum, squares = c < 3 and 1 or 3, 0, 0
          local function each(fn)
            for d = first, first + 1 do
              for k = 1, behind do fn(given[i][d][k]) end
            end
          end
          each(function(v) sum = sum + v end)
          each(function(v) squares = squares + (v - sum / count) ^ 2 end)
          for k = 1, behind do
            local hat = (given[i][c][k] - sum / count) / math.sqrt(squares / count + 1e-5)
            want[#want + 1] = hat * layer.weight:get(c) + layer.bias:get(c)
            of_weight[c], of_bias[c] = of_weight[c] + slopes[i][c][k] * hat, of_bias[c] + slopes[i][c][k]
          end
        end
      end
      near(y:reshape { -1 }, want)
      near(layer.weight:grad(), of_weight)
      near(layer.bias:grad(), of_bias)
    end))
  end

  it("refuses other shapes, at the call", function()
    local function refused(message, fn)
      local ok, why = pcall(fn)
      assert.is_false(ok)
      assert.matches(message, why)
    end
    refused("samples must be %(batch, 3, height, width%); got %(2, 3%)", function()
      nn.BatchNorm2d(3)(gm.ones { 2, 3 })
    end)
    refused("samples must be %(batch, 3 or more", function() nn.BatchNorm1d(3)(gm.ones { 2, 4 }) end)
    refused("momentum is a number from 0 to 1, or false", function()
      nn.BatchNorm1d { channels = 3, momentum = true }
    end)
    refused("4 groups do not divide 6 channels", function() nn.GroupNorm(4, 6) end)
    refused("a channel of %(2, 3, 1, 1%) is one number", function() nn.InstanceNorm2d(3)(gm.ones { 2, 3, 1, 1 }) end)
    refused("kernel must be a whole number from 1, or a list of 2; got { 2, 2, 2 }", function()
      nn.MaxPool2d { kernel = { 2, 2, 2 } }
    end)
    refused("images must be %(batch, channels, height, width%); got %(1, 2, 3%)", function()
      nn.MaxPool2d(2)(gm.ones { 1, 2, 3 })
    end)
  end)
end)
