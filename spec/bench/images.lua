--- Pictures a second of one core: JPEG files decoded and augmented, beside torchvision and Pillow (images.py).
--
--     python3 spec/bench/images.py make folder; FOLDER=folder ./ganymede run spec/bench/images.lua
--     python3 spec/bench/images.py folder
--
-- One thread reads batches of 50 when they are asked for; the time is that of the process on cores, the best of three
-- passes over the folder.
local gm = require "ganymede"

local root = assert(os.getenv "FOLDER", "which folder? see the first lines of this file")
local normalize = { type = "Normalize", mean = { 0.485, 0.456, 0.406 }, std = { 0.229, 0.224, 0.225 } }
local crop, flip = { type = "RandomResizedCrop", size = 224 }, { type = "RandomHorizontalFlip" }
local lists = {
  { "train", { crop, flip, normalize } },
  { "jitter", { crop, flip,
    { type = "ColorJitter", brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1 }, normalize } },
  { "test", { { type = "Resize", size = 256 }, { type = "CenterCrop", size = 224 }, normalize } },
}

for _, row in ipairs(lists) do
  local loader = gm.data.loader { dataset = { type = "ImageFolder", root = root }, batch_size = 50, prefetch = 0,
    transforms = row[2], seed = 1 }
  local best = 0
  for pass = 0, 2 do
    local begin, n = os.clock(), 0
    loader:set_epoch(pass)
    while true do
      local done = gm.scope(function()
        if not loader:next() then return true end
        n = n + loader:samples()
      end)
      if done then break end
    end
    best = math.max(best, n / (os.clock() - begin))
  end
  loader:close()
  print(("%-7s %7.1f pictures a second of a core"):format(row[1], best))
end
