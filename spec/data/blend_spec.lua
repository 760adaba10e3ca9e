--- MixUp and CutMix: each sample against the two that it is made of, as its probabilities say; the distribution of
-- shares; the same for any batches, threads, pieces and ranks; training with them.
-- ranks: 1 2
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local data = require "ganymede.data"
local gm = require "ganymede"
local job = require "spec.parallel.job"
local ranks = require "ganymede.job.ranks"
local shell = require "spec.support.shell"

local N, C, H, W = 60, 2, 5, 7 -- every sample has a class of its own, so its probabilities say what was mixed
local folder, path

setup(function()
  folder = ranks.from_first(shell.temporary_folder)
  path = folder .. "/samples.safetensors"
  gm.context.load_config {}
  local y = {}
  for i = 1, N do y[i] = i - 1 end
  gm.scope(function()
    gm.save_arrays(path, { { "x", gm.uniform({ N, C, H, W }, { seed = 2, dtype = "f64" }) },
      { "y", gm.tensor(y, { dtype = "i64" }) } })
  end)
end)
teardown(function()
  ranks.texts "done"
  if ranks.is_first() then shell.remove(folder) end
end)

local function loader(transforms, opt)
  opt = opt or {}
  return data.loader { dataset = { type = "Arrays", x = path .. ":x", y = path .. ":y", classes = N },
    seed = opt.seed or 4, batch_size = opt.batch_size or 16, threads = opt.threads, prefetch = opt.prefetch,
    dtype = "f64", shuffle = opt.shuffle, transforms = transforms }
end

-- { [sample] = { x = nested list, y = list } } of an epoch.
local function all(transforms, opt)
  local l, out = loader(transforms, opt), {}
  l:set_epoch(opt and opt.epoch or 0)
  gm.scope(function()
    for x, y in l:batches() do
      local xs, ys = core.gather(x):totable(), core.gather(y):totable()
      for k, i in ipairs(l:sample_numbers()) do out[i] = { x = xs[k], y = ys[k] } end
    end
  end)
  l:close()
  return out
end

-- The share of sample i in its mixture, and its partner (nil: none).
local function parts(i, y)
  local share, partner = y[i], nil
  for k, v in ipairs(y) do
    if k ~= i and v > 0 then
      assert.is_nil(partner)
      partner = k
    end
  end
  if partner then assert.near(1, share + y[partner], 1e-15) else assert.equal(1, share) end
  return share, partner
end

local function plain() return all {} end

-- The largest difference of x from the mixture of a and b.
local function distance(x, a, b, share)
  local most = 0
  for c = 1, C do
    for h = 1, H do
      for w = 1, W do
        most = math.max(most, math.abs(share * a[c][h][w] + (1 - share) * b[c][h][w] - x[c][h][w]))
      end
    end
  end
  return most
end

describe("MixUp", function()
  it("adds two samples by their shares, whose variance is that of Beta", function()
    local whole, mixed = {}, 0
    for i, s in pairs(plain()) do whole[i] = s.x end
    for _, alpha in ipairs { 0.2, 3 } do
      local sum, squares, n = 0, 0, 0
      for epoch = 0, core.world() == 1 and 14 or 0 do
        for i, s in pairs(all({ { type = "MixUp", alpha = alpha } }, { epoch = epoch })) do
          local share, partner = parts(i, s.y)
          if partner then
            mixed = mixed + 1
            sum, squares, n = sum + share, squares + (share - 0.5) ^ 2, n + 1
            assert.is_true(distance(s.x, whole[i], whole[partner], share) <= 1e-15)
          end
        end
      end
      -- some 880 draws: the mean is within 4 deviations, sqrt(v / n) each, and so is the variance, v sqrt(2 / n) each
      local v = 1 / (4 * (2 * alpha + 1))
      assert.near(0.5, sum / n, 4 * math.sqrt(v / n))
      assert.near(v, squares / n, 4 * v * math.sqrt(2 / n))
    end
    assert.is_true(mixed > (core.world() == 1 and 1700 or 100)) -- one in 60 meets itself
  end)

  it("happens with its probability, and mixes labels of vectors too", function()
    local mixed = 0
    for i, s in pairs(all { { type = "MixUp", p = 0.5 } }) do
      local _, partner = parts(i, s.y)
      mixed = mixed + (partner and 1 or 0)
    end
    assert.is_true(mixed > 15 and mixed < 45, mixed) -- 30, deviation 3.9
    local l = data.loader { dataset = { type = "Synthetic", shape = { 3 }, classes = 4 }, transforms = { "MixUp" },
      batch_size = 5 }
    local x, y = l:next()
    assert.same({ { 5, 3 }, { 5, 4 } }, { x:shape(), y:shape() })
    assert.same({ "f32", "f32" }, { x:dtype(), y:dtype() })
  end)
end)

describe("CutMix", function()
  it("puts a rectangle of another sample into a sample, and shares by area", function()
    local whole, areas = {}, {}
    for i, s in pairs(plain()) do whole[i] = s.x end
    for i, s in pairs(all { { type = "CutMix" } }) do
      local share, partner = parts(i, s.y)
      if partner then
        local count, top, bottom, left, right = 0, H, 1, W, 1
        for h = 1, H do
          for w = 1, W do
            local other = s.x[1][h][w] == whole[partner][1][h][w]
            for c = 1, C do assert.equal(whole[other and partner or i][c][h][w], s.x[c][h][w]) end
            if other then
              count = count + 1
              top, bottom, left, right = math.min(top, h), math.max(bottom, h), math.min(left, w), math.max(right, w)
            end
          end
        end
        assert.near(1 - count / (H * W), share, 1e-15)
        assert.equal(count, (bottom - top + 1) * (right - left + 1))
        areas[count] = true
      end
    end
    local different = 0
    for _ in pairs(areas) do different = different + 1 end
    assert.is_true(different > 8, different)
  end)
end)

describe("mixed samples", function()
  local both = { { type = "MixUp", p = 0.5 }, { type = "CutMix" } }

  it("are the same in any batches, threads and orders, others in another epoch and for another seed", function()
    local want = all(both)
    assert.same(want, all(both, { batch_size = 7, threads = 3, shuffle = true }))
    assert.same(want, all(both, { batch_size = 60, prefetch = 0 }))
    assert.not_same(want, all(both, { epoch = 1 }))
    assert.not_same(want, all(both, { seed = 5 }))
    local l = loader(both, { batch_size = 60 })
    local xs, ys = l:next_pieces(4)
    assert.equal(4, #xs)
    local at = 0
    for k = 1, 4 do
      for _, y in ipairs(core.gather(ys[k]):totable()) do
        at = at + 1
        assert.same(want[at].y, y)
      end
    end
    l:close()
  end)

  it("are refused where they cannot be", function()
    local function refused(opt, pattern)
      assert.error_matches(function() data.loader(opt) end, pattern)
    end
    refused({ dataset = { type = "Synthetic", kind = "tokens" }, transforms = { "MixUp" } },
      "tokens, which cannot be mixed")
    refused({ dataset = { type = "Synthetic" }, transforms = { "CutMix" } }, "are no pictures")
    refused({ dataset = { type = "Arrays", x = path .. ":x", y = path .. ":x" }, transforms = { "MixUp" } },
      "need one label each")
    refused({ dataset = { type = "Arrays", x = path .. ":x", y = path .. ":y", classes = N },
      transforms = { "MixUp", "RandomHorizontalFlip" } }, "changes samples before they are mixed: put it before MixUp")
    refused({ dataset = { length = 1, get = function() return { 1 }, 0 end }, transforms = { "MixUp" } },
      "need a built%-in dataset")
    assert.error_matches(function() data.MixUp { alpha = 0 } end, "'alpha' must be a number, .* above 0; got 0")
  end)

  if core.world() > 1 then return end

  it("train a model, on two ranks as on one", function()
    local recipe = [[
return {
  name = "mixed", seed = 5, dtype = "f64", steps = 6,
  model = { type = "MLP", inputs = 6, hidden = { 8 }, classes = 3 },
  data = { train = { type = "Synthetic", length = 50, shape = { 6 }, classes = 3 },
    test = { type = "Synthetic", length = 50, shape = { 6 }, classes = 3 }, batch_size = 8,
    transforms = { { type = "MixUp", alpha = 1 } } },
  loss = { type = "CrossEntropyLoss", label_smoothing = 0.1 }, optimizer = { type = "SGD", lr = 0.1 },
  hooks = { { type = "AccuracyHook" } },
}
]]
    local one, two = job.run(recipe, 1), job.run(recipe, 2)
    assert.is_true(job.largest_difference(one, two, 6) <= 1e-12)
    assert.equal(one.metrics.train.accuracy, two.metrics.train.accuracy)
    local pipelined = job.run(recipe, 2, { set = { "parallel.pipeline=2", "num_microbatches=2" } })
    assert.is_true(job.largest_difference(one, pipelined, 6) <= 1e-12)
  end)
end)
