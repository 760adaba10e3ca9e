--- ConvNeXt as torchvision stores it, and as timm does.
-- @module ganymede.hub.families.convnext
local pictures = require "ganymede.hub.families.pictures"
local families = require "ganymede.hub.families"

local sizes = { tiny = { 3, 3, 9, 3 }, small = { 3, 3, 27, 3 }, base = { 3, 3, 27, 3 }, large = { 3, 3, 27, 3 } }
local widths = { tiny = 96, small = 96, base = 128, large = 192 }

local defaults = { size = "tiny", patch_size = 4, kernel = 7, layer_scale = 1e-6, drop_path = 0, eps = 1e-6 }

-- Names there: of the stem's two layers, of a reduction's, of a block (stage and block from 0), what is in a block, and
-- of norm and head.
local names = {
  torchvision = { stem = "features.0.%d", reduction = function(stage) return ("features.%d.%%d"):format(2 * stage) end,
    block = function(stage, i) return ("features.%d.%d."):format(2 * stage + 1, i) end,
    inner = { "block.0", "block.2", "block.3", "block.5" }, scale = "layer_scale", norm = "classifier.0",
    head = "classifier.2" },
  timm = { stem = "stem.%d", reduction = function(stage) return ("stages.%d.downsample.%%d"):format(stage) end,
    block = function(stage, i) return ("stages.%d.blocks.%d."):format(stage, i) end,
    inner = { "conv_dw", "norm", "mlp.fc1", "mlp.fc2" }, scale = "gamma", norm = "head.norm", head = "head.fc" },
}

local function entries_of(library)
  local there = names[library]
  local function block(list, opt, number, stage, i)
    local ours, theirs = ("blocks.%d."):format(number), there.block(stage, i)
    for k, name in ipairs { "convolution", "norm", "mlp.up", "mlp.down" } do
      list:both(ours .. name, theirs .. there.inner[k])
    end
    if opt.layer_scale == 0 then return end
    local width = (opt.width or widths[opt.size or defaults.size]) * 2 ^ stage
    if library == "timm" then list:add(ours .. "scale", theirs .. there.scale)
    else list:shaped(ours .. "scale", theirs .. there.scale, { width }, { width, 1, 1 }) end
  end
  return function(opt)
    local list, number = families.list(), 0
    list:both("stem", there.stem:format(0))
    list:both("stem_norm", there.stem:format(1))
    for stage, count in ipairs(opt.blocks or sizes[opt.size or defaults.size]) do
      if stage > 1 then
        local place = there.reduction(stage - 1)
        list:both(("norms.%d"):format(stage - 1), place:format(0))
        list:both(("reductions.%d"):format(stage - 1), place:format(1))
      end
      for i = 1, count do
        number = number + 1
        block(list, opt, number, stage - 1, i - 1)
      end
    end
    list:both("norm", there.norm)
    list:both("head", there.head)
    return list
  end
end

local function family(library)
  local list = {}
  for i, size in ipairs { "tiny", "small", "base", "large" } do list[i] = { "convnext_" .. size, { size = size } } end
  return pictures.family { library = library, model = "ConvNeXt", sizes = list,
    keys = { "blocks", "width", "patch_size", "kernel", "layer_scale", "drop_path", "eps" }, defaults = defaults,
    entries = entries_of(library) }
end

return { family "torchvision", family "timm" }
