-- Folders of pictures: labels, orders and random transforms on any ranks, threads and after a seek; damaged pictures.
-- ranks: 1 2 3
--
-- Pictures are made by spec/data/pictures.lua, so each pixel is known by a formula. Each rank makes the same files in
-- a folder of its own.
-- luacheck: globals finally
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local log = require "ganymede.base.log"
local pictures = require "spec.data.pictures"
local shell = require "spec.support.shell"

local world = core.world()
local uncut, cut = { "pipeline", world }, { "data", world }
local root
local N = 11
local CLASSES = { cat = 4, ["Dog"] = 3, ["ant eater"] = 4 } -- by their bytes: Dog, ant eater, cat

local function size(i) return 8 + i % 3, 9 + i % 4 end

setup(function() root = pictures.folder(shell.temporary_folder(), CLASSES, size) end)
teardown(function() shell.remove(root) end)
before_each(function() both.mesh(cut) end)

local function scoped(fn)
  return function() gm.scope(fn) end
end

-- All batches of an epoch from `batch` on, whole: { x, y, numbers }.
local function batches(options, epoch, batch)
  local loader, out = data.loader(options), {}
  loader:set_epoch(epoch or 0)
  if batch then loader:seek(batch) end
  for x, y in loader:batches() do
    out[#out + 1] = { x = core.gather(x):totable(), y = core.gather(y):totable(), numbers = loader:sample_numbers() }
  end
  loader:close()
  return out
end

local function folder(more)
  local out = { type = "ImageFolder", root = root }
  for key, value in pairs(more or {}) do out[key] = value end
  return out
end

local function randomly(more)
  local out = { dataset = folder(), batch_size = 4, shuffle = true, seed = 5, transforms = {
    { type = "RandomResizedCrop", size = { 6, 5 }, scale = { 0.3, 1 } }, "RandomHorizontalFlip",
    { type = "ColorJitter", brightness = 0.3, contrast = 0.3, saturation = 0.3, hue = 0.2 } } }
  for key, value in pairs(more or {}) do out[key] = value end
  return out
end

local function label(i) return i < 3 and 0 or i < 7 and 1 or 2 end

-- A copy of the folder, where these files have other bytes: { ["cat/001.png"] = change(text) }.
local function changed(files)
  local copy = pictures.folder(shell.temporary_folder(), CLASSES, size)
  for name, change in pairs(files) do shell.write(copy .. "/" .. name, change(shell.read(copy .. "/" .. name))) end
  return copy
end

local function cut_off(text) return text:sub(1, -60) end
local function bad_checksum(text) return text:sub(1, -20) .. "\0" .. text:sub(-18) end

describe("ImageFolder", function()
  it("numbers samples by sorted classes and names, and gives their pixels", scoped(function()
    local dataset = data.ImageFolder { root = root }
    assert.equal(N, dataset:length())
    local about = dataset:describe()
    assert.same({ "Dog", "ant eater", "cat" }, about.class_names)
    assert.same({ 3, -1, -1 }, about.x_shape)
    assert.same({ 3, 0 }, { about.classes, about.left_out })
    for i = 0, N - 1 do
      local x, y = dataset:get(i + 1)
      local h, w = size(i)
      assert.same({ 3, h, w }, x:shape())
      assert.equal(label(i), y:item())
      for c, plane in ipairs(x:totable()) do
        for r, row in ipairs(plane) do
          for k, v in ipairs(row) do assert.equal(pictures.value(i, c - 1, r - 1, k - 1), v) end
        end
      end
    end
  end))

  it("takes the classes that are named, in their order, and leaves other files out", scoped(function()
    local dataset = data.ImageFolder { root = root, classes = { "cat", "ant eater", "Dog" } }
    assert.same({ "cat", "ant eater", "Dog" }, dataset:describe().class_names)
    local first, label_of_first = dataset:get(1)
    assert.same({ 0, 2 }, { label_of_first:item(), select(2, dataset:get(N)):item() })
    assert.equal(pictures.value(7, 0, 0, 0), first:get(1, 1, 1))
    assert.error_matches(function() data.ImageFolder { root = root, classes = { "cat", "Dog" } } end,
      "the folder 'ant eater', which is none of the classes")
    assert.error_matches(function() data.ImageFolder { root = root, classes = { "cat", "../Dog" } } end,
      "%.%./Dog is none")
    assert.error_matches(function() data.ImageFolder { root = root .. "/cat" } end, "has 0 folders")
    assert.error_matches(function() data.ImageFolder { root = root .. "/none" } end, "No such file")
    local copy = changed {}
    finally(function() shell.remove(copy) end)
    shell.write(copy .. "/cat/notes.txt", "no picture")
    shell.write(copy .. "/README", "none either")
    pictures.make_folder(copy .. "/cat/deeper/still")
    shell.write(copy .. "/cat/deeper/still/z.PNG", shell.read(copy .. "/cat/001.png"))
    dataset = data.ImageFolder { root = copy }
    assert.same({ N + 1, 2 }, { dataset:length(), dataset:describe().left_out })
    pictures.make_folder(copy .. "/empty")
    assert.error_matches(function() data.ImageFolder { root = copy } end, "empty: has no pictures")
  end))

  it("has the same batches on any ranks, threads and prefetch, each with its random numbers", scoped(function()
    both.mesh(uncut)
    local truth, later = batches(randomly { prefetch = 0 }, 3), batches(randomly { prefetch = 0 }, 4)
    assert.equal(3, #truth)
    both.mesh(cut)
    for threads = 1, 4, 3 do
      for prefetch = 0, 2, 2 do
        assert.same(truth, batches(randomly { prefetch = prefetch, threads = threads }, 3))
      end
    end
    assert.same({ truth[3] }, batches(randomly { threads = 2 }, 3, 2))
    for _, batch in ipairs(truth) do
      for k, i in ipairs(batch.numbers) do assert.equal(label(i - 1), batch.y[k]) end
    end
    local found = {} -- the same sample in another epoch is another part
    for _, b in ipairs(truth) do
      for k, i in ipairs(b.numbers) do found[i] = b.x[k] end
    end
    local equal = 0
    for _, b in ipairs(later) do
      for k, i in ipairs(b.numbers) do
        local same = pcall(assert.same, found[i], b.x[k])
        equal = equal + (same and 1 or 0)
      end
    end
    assert.equal(0, equal)
  end))

  it("goes by names and sizes in what must be equal on all ranks", scoped(function()
    local copy = changed { ["cat/004.png"] = cut_off }
    finally(function() shell.remove(copy) end)
    local one = data.ImageFolder({ root = root }):checksum()
    assert.equal(one, data.ImageFolder({ root = root, damaged = "skip" }):checksum())
    assert.not_equal(one, data.ImageFolder({ root = copy }):checksum())
  end))
end)

describe("a damaged picture", function()
  local middle = { { type = "CenterCrop", size = { 8, 9 } } }
  local function all(dataset) return { dataset = dataset, batch_size = 4, transforms = middle, prefetch = 0 } end

  for _, row in ipairs { { "cut off", cut_off }, { "wrong checksum", bad_checksum },
                         { "empty", function() return "" end }, { "no picture", function() return "hello" end } } do
    local name, change = row[1], row[2]
    it("stops the run, by its file and its number: " .. name, scoped(function()
      both.mesh(uncut)
      local copy = changed { ["ant eater/004.png"] = change }
      finally(function() shell.remove(copy) end)
      local loader = data.loader(all { type = "ImageFolder", root = copy })
      assert.equal(4, loader:next():size(1))
      local ok, err = pcall(loader.next, loader)
      loader:close()
      assert.is_false(ok)
      assert.equal(5, failure.code(err))
      assert(failure.text(err):find(copy .. "/ant eater/004.png", 1, true), failure.text(err))
      if name ~= "empty" then assert(failure.text(err):find("sample 7", 1, true), failure.text(err)) end
    end))
  end

  it("is left out where the recipe says so: the next one stands there, on any ranks, and it is named once",
    scoped(function()
      local copy = changed { ["Dog/003.png"] = cut_off, ["ant eater/001.png"] = bad_checksum,
        ["cat/004.png"] = cut_off }
      local said, warn = {}, log.warn
      log.warn = function(fmt, ...) said[#said + 1] = fmt:format(...) end
      finally(function()
        log.warn = warn
        shell.remove(copy)
      end)
      both.mesh(uncut)
      local dataset = data.ImageFolder { root = copy, damaged = "skip" }
      local whole = batches(all(folder()))
      for _ = 1, 2 do
        local got = batches(all(dataset))
        for k = 0, N - 1 do
          local from = ({ [2] = 4, [3] = 4, [10] = 0 })[k] or k -- the last one's next is the first
          local b, r = math.floor(k / 4) + 1, k % 4 + 1
          local fb, fr = math.floor(from / 4) + 1, from % 4 + 1
          assert.same(whole[fb].x[fr], got[b].x[r])
          assert.equal(whole[fb].y[fr], got[b].y[r])
          assert.equal(k + 1, got[b].numbers[r])
        end
      end
      assert.equal(3, dataset:describe().damaged)
      local text = table.concat(said, "\n")
      for _, name in ipairs { "Dog/003.png", "ant eater/001.png", "cat/004.png" } do
        local _, times = text:gsub(name:gsub("%p", "%%%0"), "")
        assert.equal(1, times, text)
      end
      local serial = batches(all { type = "ImageFolder", root = copy, damaged = "skip" })
      both.mesh(cut)
      assert.same(serial, batches(all { type = "ImageFolder", root = copy, damaged = "skip" }))
    end))

  it("is an error where a hundred in a row are damaged", scoped(function()
    both.mesh(uncut)
    local copy = shell.temporary_folder()
    finally(function() shell.remove(copy) end)
    pictures.make_folder(copy .. "/a")
    for k = 1, 3 do shell.write(("%s/a/%d.png"):format(copy, k), "hello") end
    local loader = data.loader(all { type = "ImageFolder", root = copy, damaged = "skip" })
    assert.error_matches(function() loader:next() end, "3 pictures in a row are damaged, from sample 1 on")
    loader:close()
  end))
end)
