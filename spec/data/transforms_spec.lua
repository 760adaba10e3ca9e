--- Transforms: what they compute, and that their chances are a function of (seed, epoch, sample).
-- luacheck: globals finally
local data = require "ganymede.data"
local made = require "spec.data.made"
local shell = require "spec.support.shell"

local folder, config
local N, H, W = 40, 4, 3

setup(function()
  folder = shell.temporary_folder()
  config = made.idx_pair(folder, N, H, W, 5)
end)
teardown(function() shell.remove(folder) end)

local function pixel(i, y, x) return ((7 * i + y * W + x) % 256) / 255 end

-- x of the epoch's samples in their own order: list of nested tables.
local function images(transforms, opt)
  opt = opt or {}
  local l = data.loader { dataset = config, batch_size = opt.batch_size or N, seed = opt.seed or 1, dtype = "f64",
                          transforms = transforms, shuffle = opt.shuffle or false }
  l:set_epoch(opt.epoch or 0)
  local list = {}
  for x in l:batches() do
    for k, i in ipairs(l:sample_numbers()) do list[i] = x:select(1, k):totable()[1] end
  end
  l:close() -- not in `finally`: an example has one, and the last call replaces those before it
  return list
end

describe("Normalize", function()
  it("is (value - mean) / std", function()
    local list = images { { type = "Normalize", mean = 0.25, std = 0.5 } }
    for _, at in ipairs { { 0, 0, 0 }, { 17, 2, 1 }, { 39, 3, 2 } } do
      local i, y, x = at[1], at[2], at[3]
      assert.near((pixel(i, y, x) - 0.25) / 0.5, list[i + 1][y + 1][x + 1], 1e-15) -- two roundings of a value near 1
    end
  end)

  it("counts channels, and refuses a deviation of zero", function()
    assert.error_matches(function() images { { type = "Normalize", mean = { 0, 0 }, std = { 1, 1 } } } end,
      "2 means for 1 channels")
    assert.error_matches(function() images { { type = "Normalize", mean = 0, std = 0 } } end, "std 0 must be above 0")
    assert.error_matches(function() images { { type = "Normalize", mean = { 0, 0 }, std = 1 } } end,
      "mean has 2 numbers and std 1")
  end)

  it("refuses at its call what no images could be", function()
    for _, wrong in ipairs { { { "a" }, 1 }, { {}, {} }, { 0, { 0 / 0 } }, { 0, -1 }, { { 0, 0 }, { 1 } } } do
      assert.error_matches(function() data.Normalize { mean = wrong[1], std = wrong[2] } end, "^[^ ]*Normalize: ")
    end
    for _, wrong in ipairs { { scale = { 0, 1 } }, { scale = { 0.5, 2 } }, { ratio = { 2, 1 } },
                             { ratio = { 0 / 0, 1 } } } do
      wrong.size = 4
      assert.error_matches(function() data.RandomResizedCrop(wrong) end, "the smaller first; got ")
    end
  end)

  it("has a mean and deviation a channel", function()
    local cifar = shell.temporary_folder()
    local loaders = {}
    finally(function() -- one for all: a second one would replace it
      for _, loader in ipairs(loaders) do loader:close() end
      shell.remove(cifar)
    end)
    local bytes = "\1" .. ("\51"):rep(1024) .. ("\102"):rep(1024) .. ("\204"):rep(1024) -- 0.2, 0.4, 0.8
    shell.write(cifar .. "/test_batch.bin", bytes)
    local function published(opt)
      opt.type, opt.root, opt.split, opt.whole = "CIFAR10", cifar, "test", false
      return opt
    end
    local l = data.loader { dataset = published {}, dtype = "f64" }
    loaders[1] = l
    local x = l:next()
    for c, want in ipairs { (0.2 - 0.4914) / 0.2470, (0.4 - 0.4822) / 0.2435, (0.8 - 0.4465) / 0.2616 } do
      assert.near(want, x:get(1, c, 32, 7), 1e-15)
    end
    local plain = data.loader { dataset = published { normalize = false } }
    loaders[2] = plain
    assert.near(0.4, plain:next():get(1, 2, 1, 1), 2 ^ -24) -- f32
  end)
end)

describe("RandomHorizontalFlip", function()
  it("mirrors left and right with p = 1, never with p = 0", function()
    local straight, turned = images {}, images { { type = "RandomHorizontalFlip", p = 1 } }
    assert.same(straight, images { { type = "RandomHorizontalFlip", p = 0 } })
    for i = 1, N do
      for y = 1, H do
        for x = 1, W do assert.equal(straight[i][y][x], turned[i][y][W + 1 - x]) end
      end
    end
  end)

  it("turns about half, others in another epoch, the same in another order", function()
    local straight = images {}
    local function turned(opt)
      local list, which = images({ "RandomHorizontalFlip" }, opt), {}
      for i = 1, N do which[i] = list[i][1][1] ~= straight[i][1][1] and 1 or 0 end
      return table.concat(which)
    end
    local first = turned { epoch = 1 }
    local ones = select(2, first:gsub("1", ""))
    -- 20 expected with a deviation of 3.2; the draws are fixed by the seed
    assert.is_true(ones > N / 4 and ones < 3 * N / 4, "turned " .. ones)
    assert.are_not.equal(first, turned { epoch = 2 })
    assert.are_not.equal(first, turned { epoch = 1, seed = 2 })
    assert.equal(first, turned { epoch = 1, batch_size = 7 })
    -- another order of the samples: shuffled with the same seed
    assert.equal(first, turned { epoch = 1, batch_size = 7, shuffle = true })
  end)
end)

describe("RandomCrop", function()
  it("cuts windows of the image, padded with zeros", function()
    local straight = images {}
    local list, places = images { { type = "RandomCrop", size = { H, W }, padding = 1 } }, {}
    for i = 1, N do
      local found
      for top = -1, 1 do
        for left = -1, 1 do
          local same = true
          for y = 1, H do
            for x = 1, W do
              local row = straight[i][y + top]
              same = same and list[i][y][x] == (row and row[x + left] or 0)
            end
          end
          if same then found = top .. "," .. left end
        end
      end
      assert.is_truthy(found, "image " .. i .. " is no window of the padded one")
      places[found] = true
    end
    local n = 0
    for _ in pairs(places) do n = n + 1 end
    assert.is_true(n >= 7, n .. " of 9 places met by 40 images") -- fixed by the seed
  end)

  it("changes the size, also to less, and refuses what does not fit", function()
    local list = images { { type = "RandomCrop", size = 2 } }
    assert.equal(2, #list[1])
    assert.equal(2, #list[1][1])
    assert.error_matches(function() images { { type = "RandomCrop", size = 5 } } end, "5 x 5 out of 4 x 3")
  end)

  it("stands before or after Normalize: zeros are zeros of what comes in", function()
    local crop = { type = "RandomCrop", size = { H, W }, padding = 3 }
    local norm = { type = "Normalize", mean = 0.5, std = 1 }
    local before, after = images { crop, norm }, images { norm, crop }
    local filled = 0
    for i = 1, N do
      for y = 1, H do
        for x = 1, W do
          local a, b = before[i][y][x], after[i][y][x]
          if a ~= b then
            assert.same({ -0.5, 0 }, { a, b })
            filled = filled + 1
          end
        end
      end
    end
    assert.is_true(filled > N)
  end)
end)

describe("Synthetic", function()
  local function first(opt)
    opt.type = "Synthetic"
    local l = data.loader { dataset = opt, batch_size = 6, dtype = "f64" }
    finally(function() l:close() end)
    return l:next()
  end

  it("gives clusters around centres that the splits share", function()
    local x, y = first { length = 20, shape = { 2, 3 }, classes = 3, noise = 0, seed = 5 }
    local u, v = first { length = 20, shape = { 2, 3 }, classes = 3, noise = 0, seed = 5, split = "test" }
    assert.same({ 0, 1, 2, 0, 1, 2 }, y:totable())
    assert.same({ 6, 2, 3 }, x:shape())
    assert.same(x:totable(), u:totable())
    assert.same(y:totable(), v:totable())
    assert.same(x:select(1, 1):totable(), x:select(1, 4):totable())
    assert.are_not.same(x:select(1, 1):totable(), x:select(1, 2):totable())
    local noisy = first { length = 20, shape = { 2, 3 }, classes = 3, seed = 5 }
    local other = first { length = 20, shape = { 2, 3 }, classes = 3, seed = 5, split = "test" }
    assert.are_not.same(noisy:totable(), other:totable())
  end)

  it("gives chains in which a token decides the next", function()
    local x, y = first { kind = "tokens", length = 6, sequence_length = 20, vocab_size = 9, noise = 0 }
    local follows = {}
    for k = 1, 6 do
      for t = 1, 20 do
        local a, b = x:get(k, t), y:get(k, t)
        assert.equal(follows[a] or b, b)
        follows[a] = b
        if t < 20 then assert.equal(b, x:get(k, t + 1)) end
      end
    end
  end)

  it("has noise of the deviation asked for", function()
    local set = { length = 500, shape = { 20 }, classes = 1, noise = 0.5, seed = 2 }
    local centre = first { length = 6, shape = { 20 }, classes = 1, noise = 0, seed = 2 }:totable()[1]
    set.type = "Synthetic"
    local l = data.loader { dataset = set, batch_size = 500, dtype = "f64" }
    finally(function() l:close() end)
    local sum, squares, n = 0, 0, 0
    for _, row in ipairs(l:next():totable()) do
      for k, v in ipairs(row) do
        local d = v - centre[k]
        sum, squares, n = sum + d, squares + d * d, n + 1
      end
    end
    -- 10,000 draws: the mean is off by 0.005, the mean square by 0.25 * sqrt(2 / n) = 0.0035; four of each
    assert.near(0, sum / n, 0.02)
    assert.near(0.25, squares / n, 0.015)
  end)
end)
