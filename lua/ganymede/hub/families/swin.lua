--- Swin Transformers as torchvision stores them, and as timm does. torchvision's files also have the numbers of the
-- rows that a window looks up, which are written anew.
-- The trap: timm makes windows smaller where an image is, and torchvision pads the image, as we do: the same for images
-- whose every stage windows tile.
-- @module ganymede.hub.families.swin
local core = require "ganymede.core"
local pictures = require "ganymede.hub.families.pictures"
local families = require "ganymede.hub.families"
local WindowAttention = require("ganymede.nn").WindowAttention

local blocks = { tiny = { 2, 2, 6, 2 }, small = { 2, 2, 18, 2 }, base = { 2, 2, 18, 2 }, large = { 2, 2, 18, 2 } }
local heads = { tiny = { 3, 6, 12, 24 }, small = { 3, 6, 12, 24 }, base = { 4, 8, 16, 32 }, large = { 6, 12, 24, 48 } }
local widths = { tiny = 96, small = 96, base = 128, large = 192 }

local defaults = { size = "tiny", patch_size = 4, window = 7, mlp_ratio = 4, qkv_bias = true, eps = 1e-5, dropout = 0,
  attention_dropout = 0, drop_path = 0 }

-- Names there: of the stem's layers, of what stands before a stage, of a block (stage and block from 0), of the two
-- layers of its MLP, and of the head.
local names = {
  torchvision = { stem = { "features.0.0", "features.0.2" },
    merge = function(stage) return ("features.%d."):format(2 * stage) end,
    block = function(stage, i) return ("features.%d.%d."):format(2 * stage + 1, i) end, mlp = { "mlp.0", "mlp.3" },
    head = "head", sizes = { { "swin_t", "tiny" }, { "swin_s", "small" }, { "swin_b", "base" } } },
  timm = { stem = { "patch_embed.proj", "patch_embed.norm" },
    merge = function(stage) return ("layers.%d.downsample."):format(stage) end,
    block = function(stage, i) return ("layers.%d.blocks.%d."):format(stage, i) end, mlp = { "mlp.fc1", "mlp.fc2" },
    head = "head.fc",
    sizes = { { "swin_tiny_patch4_window7_224", "tiny" }, { "swin_small_patch4_window7_224", "small" },
      { "swin_base_patch4_window7_224", "base" }, { "swin_large_patch4_window7_224", "large" } } },
}

-- fn(number of the block, stage from 0, block of the stage from 0)
local function each_block(opt, fn)
  local number = 0
  for stage, count in ipairs(opt.blocks or blocks[opt.size or defaults.size]) do
    for i = 1, count do
      number = number + 1
      fn(number, stage - 1, i - 1)
    end
  end
end

local function block(list, there, opt, number, stage, i)
  local ours, theirs = ("blocks.%d."):format(number), there.block(stage, i)
  local width = (opt.width or widths[opt.size or defaults.size]) * 2 ^ stage
  local own_heads = (opt.heads or heads[opt.size or defaults.size])[stage + 1]
  list:both(ours .. "norm1", theirs .. "norm1")
  list:add(ours .. "attention.table", theirs .. "attn.relative_position_bias_table")
  list:joint_qkv(ours .. "attention.qkv", theirs .. "attn.qkv", own_heads, width, opt.qkv_bias ~= false)
  list:both(ours .. "attention.output", theirs .. "attn.proj")
  list:both(ours .. "norm2", theirs .. "norm2")
  list:both(ours .. "mlp.up", theirs .. there.mlp[1])
  list:both(ours .. "mlp.down", theirs .. there.mlp[2])
end

local function entries_of(there)
  return function(opt)
    local list = families.list()
    list:both("stem", there.stem[1])
    list:both("stem_norm", there.stem[2])
    each_block(opt, function(number, stage, i)
      if stage > 0 and i == 0 then
        list:both(("merges.%d.norm"):format(stage), there.merge(stage) .. "norm")
        list:add(("merges.%d.reduction.weight"):format(stage), there.merge(stage) .. "reduction.weight")
      end
      block(list, there, opt, number, stage, i)
    end)
    list:both("norm", "norm")
    list:both("head", there.head)
    return list
  end
end

-- The rows that windows look up.
local function constants(opt)
  local list, window = {}, opt.window or defaults.window
  local sides = type(window) == "table" and window or { window, window }
  local rows = WindowAttention.differences(sides)
  each_block(opt, function(_, stage, i)
    list[#list + 1] = { name = names.torchvision.block(stage, i) .. "attn.relative_position_index", dtype = "i64",
      shape = { #rows }, make = function() return core.tensor(rows, "i64", { #rows }) end }
  end)
  return list
end

-- The side of images changes no number, if windows of this size tile each stage.
local function read(args, opt)
  local sides = args:get("img_size", {})
  local window, patch = opt.window or defaults.window, opt.patch_size or defaults.patch_size
  if type(sides) == "number" then sides = { sides, sides } end
  for d, side in ipairs(sides) do
    local least = patch * (type(window) == "table" and window[d] or window)
    least = least * 2 ^ (#(opt.blocks or blocks[opt.size]) - 1)
    if side % least ~= 0 then
      args:refuse("img_size is %d; windows tile all stages if it is a multiple of %d", side, least)
    end
  end
end

local function family(library)
  local there, list = names[library], {}
  for i, size in ipairs(there.sizes) do list[i] = { size[1], { size = size[2] } } end
  return pictures.family { library = library, model = "Swin", sizes = list, defaults = defaults,
    keys = { "blocks", "width", "heads", "patch_size", "window", "mlp_ratio", "qkv_bias", "eps", "dropout",
      "attention_dropout", "drop_path" },
    read = library == "timm" and read or nil, entries = entries_of(there),
    constants = library == "torchvision" and constants or nil,
    ignored = function() return { "%.relative_position_index$", "%.attn_mask$" } end }
end

return { family "torchvision", family "timm" }
