-- Batch norm and pooling on blocks against the same on whole tensors: values, statistics and gradients.
-- ranks: 1 2 3 4 8
--
-- Rows are cut evenly, unevenly, and so that some ranks have none. Batch norm in f64 is to be that of the whole batch
-- to 1e-12 (both.TOLERANCE), however many ranks share it.
-- sanitizers: at most 4 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops
local sums = require "spec.support.sums"

local world, rows, laid = core.world(), both.rows, both.laid
local any, positive = both.source(600), both.source(700, 0.5, 2)

local function norm(x, w, b) return ops.batch_norm(x, w, b) end

describe("images on data ranks:", function()
  both.in_f64(setup, teardown, function() both.mesh { "data", world } end)

  for _, n in ipairs { 16, 10, 7, 2 } do
    it(("batch norm of %d rows is that of the whole batch"):format(n), function()
      both.agree { inputs = { any(n, 3), any(3), any(3) }, cuts = { rows }, fn = norm, expect = "data,-" }
      both.agree { inputs = { any(n, 2, 3, 2) + 3, any(2), any(2) }, cuts = { rows }, fn = norm }
      both.agree { inputs = { any(n, 5, 2) }, cuts = { rows }, fn = function(x) return norm(x) end }
    end)
    it(("batch norm of %d rows with given statistics"):format(n), function()
      both.agree { inputs = { any(n, 3, 2), any(3), any(3) }, cuts = { rows }, expect = "data,-,-",
                   fn = function(x, w, b)
                     local mean, variance = gm.tensor { 0.5, 0, -1 }, gm.tensor { 2, 1, 0.25 }
                     return ops.batch_norm(x, w, b, { mean = mean, variance = variance, eps = 0.1 })
                   end }
    end)
    it(("pooling of %d images"):format(n), function()
      both.agree { inputs = { any(n, 2, 5, 4) }, cuts = { rows }, expect = "data,-,-,-", fn = function(x)
        return ops.max_pool(x, { 3, 2 }, 2, 1), ops.avg_pool(x, 2, 1), ops.adaptive_avg_pool(x, { 3, 2 })
      end }
    end)
  end

  it("batch norm sends two numbers a channel each way: merged in two rounds, then as one all_reduce", function()
    gm.scope(function()
      local channels = 24 * world
      local x = core.redistribute(any(world, channels, 2), rows):detach():requires_grad(true)
      local numbers = 2 * channels * 8
      local forward, loss = both.sent(function() return (ops.batch_norm(x) ^ 3):sum():settle() end)
      local of_loss = both.sent(function() return x:sum():settle() end)
      assert.equal(2 * numbers * (world - 1) / world, forward - of_loss)
      assert.equal(sums.sent(world, numbers) / world, (both.sent(function() loss:backward() end)))
    end)
  end)

  it("a channel of one element is refused", function()
    gm.scope(function()
      local ok, why = pcall(ops.batch_norm, any(1, 3))
      assert.is_false(ok)
      assert.matches("1 element in the whole batch, and a variance needs 2", why)
      ok, why = pcall(ops.batch_norm, any(4, 3), any(2))
      assert.is_false(ok)
      assert.matches("w is f64 %(2%).* should have a number for each of 3 channels", why)
      ok, why = pcall(ops.batch_norm, any(4, 3), nil, nil, { mean = any(3) })
      assert.is_false(ok)
      assert.matches("mean and variance are given together", why)
    end)
  end)
end)

if world == 4 then
  describe("images on other axes:", function()
    both.in_f64(setup, teardown, function() both.mesh({ "data", 2 }, { "tensor", 2 }) end)

    local function case(name, shape, cut, fn, expect)
      it(name, function()
        local c = shape[2]
        both.agree { inputs = { any(unpack(shape)), any(c), positive(c) }, cuts = { laid(cut) }, fn = fn,
                     expect = expect }
      end)
    end

    for _, n in ipairs { 4, 7, 3 } do
      case(("channels of batch norm are cut, %d rows"):format(n), { n, 4, 3 }, "data,tensor,-", norm, "data,tensor,-")
      case(("uneven channels of batch norm are cut, %d rows"):format(n), { n, 5, 3 }, "data,tensor,-", norm)
      case(("space of batch norm is cut, %d rows"):format(n), { n, 3, 5, 2 }, "data,-,tensor,-", norm)
      case(("the last dimension of batch norm is cut, %d rows"):format(n), { n, 3, 2, 5 }, "data,-,-,tensor", norm)
      case(("channels of pooling are cut, %d images"):format(n), { n, 5, 4, 3 }, "data,tensor,-,-", function(x)
        return ops.max_pool(x, 2), ops.avg_pool(x, 2, 1, 1), ops.adaptive_max_pool(x, 2)
      end, "data,tensor,-,-")
    end

    it("windows along a dimension that is cut are refused", function()
      gm.scope(function()
        local x = core.redistribute(any(2, 2, 3, 6), laid "-,-,-,tensor")
        for _, fn in ipairs { function() ops.max_pool(x, 2) end, function() ops.adaptive_avg_pool(x, 2) end } do
          local ok, why = pcall(fn)
          assert.is_false(ok)
          assert.matches("windows move along a dimension that is cut", why)
        end
      end)
    end)

    it("sums over ranks: an average takes them, others do not", function()
      gm.scope(function()
        local x = core.redistribute(any(2, 4), laid "-,tensor"):sum(2):reshape(1, 1, 2)
        assert.matches("partial", both.describe(ops.avg_pool(x, 2)))
        for _, fn in ipairs { function() ops.max_pool(x, 2) end, function() ops.batch_norm(x) end } do
          local ok, why = pcall(fn)
          assert.is_false(ok)
          assert.matches("still a sum over ranks", why)
        end
      end)
    end)
  end)
end
