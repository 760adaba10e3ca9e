--- VGG as torchvision stores it, and as timm does, whose first two dense layers are convolutions.
-- @module ganymede.hub.families.vgg
local pictures = require "ganymede.hub.families.pictures"
local families = require "ganymede.hub.families"

local counts = { [11] = { 1, 1, 2, 2, 2 }, [13] = { 2, 2, 2, 2, 2 }, [16] = { 2, 2, 3, 3, 3 },
  [19] = { 2, 2, 4, 4, 4 } }

local defaults = { depth = 16, batch_norm = false, width = 64, hidden = 4096, pool = 7, dropout = 0.5 }

-- -> the entries of the convolutions, and the channels of the last
local function convolutions(opt)
  local list, place, number, width = families.list(), 0, 0
  for stage, count in ipairs(opt.blocks or counts[opt.depth or defaults.depth]) do
    width = (opt.width or defaults.width) * math.min(2 ^ (stage - 1), 8)
    for _ = 1, count do
      number = number + 1
      list:both("convolutions." .. number, "features." .. place)
      if opt.batch_norm then list:batch_norm("norms." .. number, "features." .. place + 1, width) end
      place = place + (opt.batch_norm and 3 or 2) -- behind a relu
    end
    place = place + 1 -- behind a pooling
  end
  return list, width
end

local entries = {}

function entries.torchvision(opt)
  local list = convolutions(opt)
  for i, name in ipairs { "hidden1", "hidden2", "head" } do list:both(name, "classifier." .. 3 * (i - 1)) end
  return list
end

function entries.timm(opt)
  local list, channels = convolutions(opt)
  local hidden, pool = opt.hidden or defaults.hidden, opt.pool or defaults.pool
  list:shaped("hidden1.weight", "pre_logits.fc1.weight", { hidden, channels * pool ^ 2 },
    { hidden, channels, pool, pool })
  list:add("hidden1.bias", "pre_logits.fc1.bias")
  list:shaped("hidden2.weight", "pre_logits.fc2.weight", { hidden, hidden }, { hidden, hidden, 1, 1 })
  list:add("hidden2.bias", "pre_logits.fc2.bias")
  list:both("head", "head.fc")
  return list
end

local function family(library)
  local sizes = {}
  for _, depth in ipairs { 11, 13, 16, 19 } do
    sizes[#sizes + 1] = { "vgg" .. depth, { depth = depth, batch_norm = false } }
    sizes[#sizes + 1] = { ("vgg%d_bn"):format(depth), { depth = depth, batch_norm = true } }
  end
  return pictures.family { library = library, model = "VGG", sizes = sizes,
    keys = { "blocks", "width", "hidden", "pool", "dropout" }, defaults = defaults, entries = entries[library] }
end

return { family "torchvision", family "timm" }
