--- The loader: every sample once, an order that (seed, epoch) alone decide, the same bits for any prefetch.
-- luacheck: globals finally
local core = require "ganymede.core"
local data = require "ganymede.data"
local gm = require "ganymede"
local made = require "spec.data.made"
local registry = require "ganymede.base.registry"
local shell = require "spec.support.shell"

local folder, config
local N, H, W = 53, 6, 5

local function loader(opt)
  opt.dataset = opt.dataset or config
  local l = data.loader(opt)
  finally(function() l:close() end)
  return l
end

-- Sample numbers (from 1) of the epoch, batch by batch.
local function order(l)
  local batches = {}
  while true do
    local x, y = l:next()
    if not x then return batches end
    batches[#batches + 1] = l:sample_numbers()
    assert.equal(#batches[#batches], l:samples())
    assert.equal(l:samples(), x:size(1))
    assert.equal(l:samples(), y:size(1))
  end
end

local function flat(batches)
  local all = {}
  for _, b in ipairs(batches) do
    for _, i in ipairs(b) do all[#all + 1] = i end
  end
  return all
end

setup(function()
  folder = shell.temporary_folder()
  config = made.idx_pair(folder, N, H, W, 7)
  config.type = "IDX"
end)
teardown(function() shell.remove(folder) end)

describe("data.loader", function()
  it("gives batches in order with value / 255 and i64 labels", function()
    local l = loader { batch_size = 4 }
    local x, y = l:next()
    assert.same({ 4, 1, H, W }, x:shape())
    assert.equal("f32", x:dtype())
    assert.equal("i64", y:dtype())
    assert.same({ 0, 1, 2, 3 }, y:totable())
    local f64 = loader { batch_size = 4, dtype = "f64" }:next()
    assert.equal(((7 * 2 + 6) % 256) / 255, f64:get(3, 1, 2, 2)) -- image 2, pixel 6
  end)

  it("visits every sample once, the last batch short", function()
    for _, shuffle in ipairs { false, true } do
      local l = loader { batch_size = 10, shuffle = shuffle, seed = 5 }
      assert.equal(6, l:length())
      local batches = order(l)
      assert.equal(6, #batches)
      assert.equal(3, #batches[6])
      local all = flat(batches)
      table.sort(all)
      for i = 1, N do assert.equal(i, all[i]) end
      assert.equal(N, #all)
    end
  end)

  it("leaves the short batch out when drop_last asks", function()
    local l = loader { batch_size = 10, drop_last = true }
    assert.equal(5, l:length())
    assert.equal(50, #flat(order(l)))
  end)

  it("shuffles: not the given order, another one for another epoch or seed", function()
    local function at(seed, epoch)
      local l = loader { batch_size = N, shuffle = true, seed = seed }
      l:set_epoch(epoch)
      return table.concat(flat(order(l)), " ")
    end
    local straight = {}
    for i = 1, N do straight[i] = i end
    assert.are_not.equal(table.concat(straight, " "), at(1, 0))
    assert.are_not.equal(at(1, 0), at(1, 1))
    assert.are_not.equal(at(1, 0), at(2, 0))
    assert.equal(at(1, 3), at(1, 3))
  end)

  it("gives x and y of the samples that it names", function()
    local l = loader { batch_size = 8, shuffle = true, seed = 3, dtype = "f64" }
    local x, y = l:next()
    for k, i in ipairs(l:sample_numbers()) do
      assert.equal((i - 1) % 7, y:get(k))
      assert.equal(((7 * (i - 1)) % 256) / 255, x:get(k, 1, 1, 1))
    end
  end)

  it("gives the same bits for any prefetch, with random transforms", function()
    local reference
    for prefetch = 0, 5 do
      local l = loader {
        batch_size = 7, shuffle = true, seed = 11, prefetch = prefetch,
        transforms = { { type = "RandomCrop", size = { H, W }, padding = 2 }, "RandomHorizontalFlip",
                       { type = "Normalize", mean = 0.3, std = 0.2 } },
      }
      l:set_epoch(4)
      local xs, ys = made.drain(l)
      assert.equal(N * H * W, #xs)
      reference = reference or { xs, ys }
      assert.same(reference, { xs, ys })
    end
  end)

  it("seek(k) equals skipping k batches, in any epoch, forward and back", function()
    local l = loader { batch_size = 8, shuffle = true, seed = 2, prefetch = 3, transforms = { "RandomHorizontalFlip" } }
    l:set_epoch(6)
    local skipped = {}
    for k = 0, l:length() - 1 do skipped[k] = l:next():totable() end
    assert.is_nil(l:next())
    for _, k in ipairs { 5, 0, 6, 3, 3 } do
      l:seek(k)
      assert.same(skipped[k], l:next():totable())
    end
    l:seek(l:length())
    assert.is_nil(l:next())
    assert.error_matches(function() l:seek(l:length() + 1) end, "batch 8 of an epoch of 7")
  end)

  for _, case in ipairs { { "in C", nil }, { "in Lua", { length = N, get = function(i) return { i }, i end } },
    { "in C, in an order of the user's own", nil, { order = function(_, epoch, n)
      local list = {}
      for k = 1, n + epoch do list[k] = (7 * k + epoch) % n + 1 end
      return list
    end } } } do
    it("goes on from a sample of the order, with batches of another size: a dataset " .. case[1], function()
      local function new(size)
        return loader { dataset = case[2], batch_size = size, shuffle = not case[3] or nil, seed = 9, prefetch = 2,
          sampler = case[3] }
      end
      local l, whole = new(8), new(1)
      whole:set_epoch(2)
      local all = flat(order(whole))
      assert.equal(#all, whole:samples_of_epoch())
      l:set_epoch(2)
      local seen = {}
      for _ = 1, 2 do
        l:next()
        for _, i in ipairs(l:sample_numbers()) do seen[#seen + 1] = i end
      end
      l:set_batch(11)
      l:begin_at(#seen)
      assert.same({ math.ceil((#all - 16) / 11), #all }, { l:length(), l:samples_of_epoch() })
      l:seek(1) -- counts from there
      l:seek(0)
      local rest = order(l)
      assert.equal(11, #rest[1])
      for _, i in ipairs(flat(rest)) do seen[#seen + 1] = i end
      assert.same(all, seen)
      l:set_epoch(2) -- begins at the first sample again
      assert.same(all, flat(order(l)))
      l:begin_at(#all)
      assert.same({ 0 }, { l:length() })
      assert.is_nil((l:next()))
      assert.error_matches(function() l:begin_at(#all + 1) end, "sample %d+ of an epoch of %d+")
      assert.error_matches(function() l:set_batch(0) end, "a whole number of samples from 1")
    end)
  end

  it("stays at the end, and begins anew with set_epoch", function()
    local l = loader { batch_size = 50, prefetch = 2 }
    order(l)
    for _ = 1, 3 do assert.is_nil(l:next()) end
    l:set_epoch(1)
    assert.equal(2, #order(l))
  end)

  it("can be left in the middle, closed twice, and says so when used afterwards", function()
    local l = data.loader { dataset = config, batch_size = 2, prefetch = 8 }
    l:next()
    l:close()
    l:close()
    assert.error_matches(function() l:next() end, "was closed")
    for _ = 1, 20 do data.loader({ dataset = config, batch_size = 1, prefetch = 16 }):next() end
    collectgarbage()
    collectgarbage()
  end)

  it("iterates from where it stands, then from the start", function()
    local l = loader { batch_size = 20 }
    l:seek(1)
    local seen = 0
    for x in l:batches() do seen = seen + x:size(1) end
    assert.equal(33, seen)
    for x in l:batches() do seen = seen + x:size(1) end
    assert.equal(33 + N, seen)
  end)

  it("takes batches larger than the data set", function()
    local l = loader { batch_size = 1000 }
    assert.equal(1, l:length())
    l:next()
    assert.equal(N, l:samples())
  end)

  it("releases all it holds with its batches", function()
    local l = loader { batch_size = 10 }
    local before = gm.memory().live
    gm.scope(function()
      for _ in l:batches() do assert.is_true(gm.memory().live > before) end
    end)
    assert.equal(before, gm.memory().live)
  end)

  it("names options and types that do not exist", function()
    assert.error_matches(function() loader { batchsize = 3 } end, "did you mean 'batch_size'")
    assert.error_matches(function() loader { dataset = { type = "IDXX" } } end, "did you mean 'IDX'")
    assert.error_matches(function() loader { transforms = { "RandomFlip" } } end, "no type 'RandomFlip'")
    assert.error_matches(function() loader { sampler = "RandomSampler", shuffle = true } end, "not both")
  end)
end)

describe("samplers", function()
  it("RandomSampler is shuffle, SequentialSampler is the given order", function()
    local a = order(loader { batch_size = 9, shuffle = true, seed = 4 })
    assert.same(a, order(loader { batch_size = 9, sampler = { type = "RandomSampler" }, seed = 4 }))
    assert.same({ 1, 2, 3 }, order(loader { batch_size = 3, sampler = "SequentialSampler" })[1])
  end)

  it("one of the user's own decides what an epoch holds", function()
    local mine = { order = function(_, epoch, length) return { length, 1, 1, epoch + 1 } end }
    local l = loader { batch_size = 3, sampler = mine }
    assert.equal(2, l:length())
    l:set_epoch(6)
    assert.same({ { N, 1, 1 }, { 7 } }, order(l))
    l:seek(1)
    assert.same({ { 7 } }, order(l))
    local wrong = { order = function() return { N + 1 } end }
    assert.error_matches(function() loader { sampler = wrong } end, "chose sample 54; samples are 1 to 53")
  end)

  it("draw every order of four samples equally often", function()
    local count, kinds, draws = {}, 0, 4800
    for epoch = 1, draws do
      local key = table.concat(core.data_order(4, true, 99, epoch, 0, 4), "")
      if not count[key] then kinds = kinds + 1 end
      count[key] = (count[key] or 0) + 1
    end
    assert.equal(24, kinds)
    local chi2, expected = 0, draws / 24
    for _, c in pairs(count) do chi2 = chi2 + (c - expected) ^ 2 / expected end
    -- 23 degrees of freedom: above 49.7 once in a thousand sound generators; the draws are fixed by the seed
    assert.is_true(chi2 < 49.7, "chi2 " .. chi2)
  end)

  it("are permutations of any number of samples, and parts agree with the whole", function()
    for _, n in ipairs { 1, 2, 3, 7, 64, 65, 1000 } do
      local whole, seen = core.data_order(n, true, 7, 2, 0, n), {}
      for _, i in ipairs(whole) do
        assert.is_true(i >= 0 and i < n and not seen[i])
        seen[i] = true
      end
      local first = math.floor(n / 3)
      local part = core.data_order(n, true, 7, 2, first, n - first)
      for k, i in ipairs(part) do assert.equal(whole[first + k], i) end
    end
  end)
end)

describe("datasets and transforms in Lua", function()
  it("are asked for samples from 1 and stacked, tables and tensors", function()
    local tables = { length = 5, get = function(i) return { i, 10 * i }, i - 1 end }
    local l = loader { dataset = tables, batch_size = 2 }
    local x, y = l:next()
    assert.same({ { 1, 10 }, { 2, 20 } }, x:totable())
    assert.same({ 0, 1 }, y:totable())
    assert.equal(3, l:length())
    local tensors = {
      length = function() return 3 end,
      get = function(i) return gm.full({ 2, 2 }, i), gm.full({}, i, { dtype = "i64" }) end,
    }
    x, y = loader({ dataset = tensors, batch_size = 3 }):next()
    assert.same({ 3, 2, 2 }, x:shape())
    assert.same({ 1, 2, 3 }, y:totable())
    assert.equal(3, x:get(3, 2, 1))
  end)

  it("are shuffled and sought as those in C", function()
    local mine = { length = N, get = function(i) return { i }, 0 end }
    local a, b = loader { dataset = mine, batch_size = 8, shuffle = true, seed = 4 },
      loader { batch_size = 8, shuffle = true, seed = 4 }
    a:set_epoch(2)
    b:set_epoch(2)
    assert.same(order(b), order(a))
    a:seek(3)
    b:seek(3)
    assert.same(order(b), order(a))
  end)

  it("can be objects, and can be registered", function()
    local Mine = {}
    Mine.__index = Mine
    function Mine.length(self) return self.n end
    function Mine.get(_, i) return { i }, i end
    local name = "LoaderSpecDataset"
    registry.datasets:register(name, function(opt) return setmetatable({ n = opt.n }, Mine) end)
    assert.equal(4, #flat(order(loader { dataset = { type = name, n = 4 }, batch_size = 3 })))
  end)

  it("refuse fractions where labels are whole, and take them where y_dtype says so", function()
    local mine = { length = 1, get = function() return { 1 }, 0.5 end }
    local l = loader { dataset = mine }
    assert.error_matches(function() l:next() end, "y of sample 1 holds 0.5")
    mine.get = function() return { 1 }, "2" end
    assert.error_matches(function() l:next() end, 'y of sample 1 holds "2", which is a string and not a number')
    mine.get = function() return { 1 }, 0.5 end
    mine.y_dtype = "f64"
    assert.equal(0.5, select(2, loader({ dataset = mine }):next()):get(1))
  end)

  it("name the sample that is no numbers, or of another shape than those before it", function()
    local values = { { 1, 2 }, { 1, 2 }, { 1 } }
    local l = loader { dataset = { length = 3, get = function(i) return values[i], 0 end }, batch_size = 3 }
    local function next_of() l:set_epoch(0) l:next() end
    assert.error_matches(next_of, "^data.loader: x of sample 3 has the shape %(1%), that of sample 1 %(2%)$")
    values[2] = { 1, "2" }
    assert.error_matches(next_of, "^data.loader: x of sample 2: .*is a string, not a number$")
    values[2] = { { 1 }, { 1, 2 } }
    assert.error_matches(next_of, "^data.loader: x of sample 2: .*differ in length$")
    values[2], values[3] = { 1, 2 }, { 1, 2 }
    next_of()
  end)

  it("transforms run on whole batches after those in C", function()
    local twice = function(x, y) return x * 2, y end
    local norm = { type = "Normalize", mean = 0, std = 0.5 }
    local l = loader { batch_size = 2, dtype = "f64", transforms = { norm, twice } }
    local x, y = l:next()
    assert.equal(7 / 255 / 0.5 * 2, x:get(2, 1, 1, 1))
    assert.same({ 0, 1 }, y:totable())
    assert.error_matches(function() loader { transforms = { twice, "RandomHorizontalFlip" } } end,
      "put it before the functions in Lua")
  end)
end)
