--- Does a step wait for its pictures? Steps of a given length, alone and with batches of JPEG files that one thread of
-- the loader decodes and augments meanwhile.
--
--     python3 spec/bench/images.py make folder
--     FOLDER=folder ./ganymede run spec/bench/loader.lua --threads 1
--
-- A step is busy work of one thread that touches little memory; its length is a multiple of the time that one core
-- needs to decode a batch of 50. Printed: that multiple, milliseconds of a step alone and with batches (medians of 15),
-- and their ratio. With a core for the loader the ratio is 1 where the multiple is 1 or more, and the inverse of the
-- multiple below it.
local core = require "ganymede.core"
local gm = require "ganymede"

local root = assert(os.getenv "FOLDER", "which folder? see the first lines of this file")
local transforms = { { type = "RandomResizedCrop", size = 224 }, { type = "RandomHorizontalFlip" },
  { type = "Normalize", mean = { 0.485, 0.456, 0.406 }, std = { 0.229, 0.224, 0.225 } } }
local STEPS, BATCH = 15, 50

local function loader_with(prefetch)
  return gm.data.loader { dataset = { type = "ImageFolder", root = root }, batch_size = BATCH, prefetch = prefetch,
    threads = 1, transforms = transforms, seed = 1 }
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- The next batch, from another epoch where this one has ended.
local function batches(loader)
  local epoch = 0
  return function()
    if loader:next() then return end
    epoch = epoch + 1
    loader:set_epoch(epoch)
    assert(loader:next())
  end
end

local function seconds(fn)
  local began = core.now()
  gm.scope(fn)
  return core.now() - began
end

-- What one core needs for a batch, when nobody reads ahead.
local function decoding()
  local loader, all = loader_with(0), {}
  local next_batch = batches(loader)
  for i = 1, STEPS do all[i] = seconds(next_batch) end
  loader:close()
  return median(all)
end

local a = gm.normal({ 64, 64 }, { seed = 1 })

local function work(count)
  for _ = 1, count do gm.scope(function() return gm.ops.matmul(a, a) end) end
end

local count = 100
while seconds(function() work(count) end) < 0.05 do count = count * 2 end
local unit = seconds(function() work(count) end) / count

local batch = decoding()
print(("a batch of %d: %.1f ms of a core"):format(BATCH, 1e3 * batch))
for _, multiple in ipairs { 0.5, 1, 1.1, 1.25, 1.5, 2 } do
  local loader, alone, with = loader_with(2), {}, {}
  local next_batch, times = batches(loader), math.ceil(multiple * batch / unit)
  for i = -2, STEPS do -- the first ones fill what is read ahead
    local s = seconds(function() next_batch() work(times) end)
    if i > 0 then with[i] = s end
  end
  loader:close()
  for i = 1, STEPS do alone[i] = seconds(function() work(times) end) end
  print(("%.2f  alone %7.1f ms  with batches %7.1f ms  ratio %.3f"):format(multiple, 1e3 * median(alone),
    1e3 * median(with), median(with) / median(alone)))
end
