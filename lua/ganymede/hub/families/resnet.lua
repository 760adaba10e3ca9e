--- Residual networks as torchvision stores them; timm's ResNets have the same names.
-- @module ganymede.hub.families.resnet
local pictures = require "ganymede.hub.families.pictures"
local families = require "ganymede.hub.families"

local counts = { [18] = { 2, 2, 2, 2 }, [34] = { 3, 4, 6, 3 }, [50] = { 3, 4, 6, 3 }, [101] = { 3, 4, 23, 3 },
  [152] = { 3, 8, 36, 3 } }

local function block(list, ours, theirs, width, bottleneck, shortcut)
  local outputs, last = bottleneck and 4 * width or width, bottleneck and 3 or 2
  for k = 1, last do
    list:add(("%s.convolutions.%d.weight"):format(ours, k), ("%s.conv%d.weight"):format(theirs, k))
    list:batch_norm(("%s.norms.%d"):format(ours, k), ("%s.bn%d"):format(theirs, k), k == last and outputs or width)
  end
  if not shortcut then return end
  list:add(ours .. ".shortcut.weight", theirs .. ".downsample.0.weight")
  list:batch_norm(ours .. ".shortcut_norm", theirs .. ".downsample.1", outputs)
end

local function entries(opt)
  local list, depth, first = families.list(), opt.depth or 50, opt.width or 64
  local bottleneck, at, number = depth >= 50, first, 0
  list:add("stem.weight", "conv1.weight")
  list:batch_norm("norm", "bn1", first)
  for stage, count in ipairs(opt.blocks or counts[depth]) do
    local width = first * 2 ^ (stage - 1)
    for i = 1, count do
      number = number + 1
      local outputs = bottleneck and 4 * width or width
      block(list, "blocks." .. number, ("layer%d.%d"):format(stage, i - 1), width, bottleneck,
        at ~= outputs or stage > 1 and i == 1)
      at = outputs
    end
  end
  list:both("head", "fc")
  return list
end

local function family(library)
  local sizes = {}
  for i, depth in ipairs { 18, 34, 50, 101, 152 } do sizes[i] = { "resnet" .. depth, { depth = depth } } end
  return pictures.family { library = library, model = "ResNet", sizes = sizes, keys = { "blocks", "stem", "width" },
    defaults = { depth = 50, stem = "imagenet", width = 64 }, entries = entries }
end

return { family "torchvision", family "timm" }
