--- MLP-Mixers as timm stores them. Its builders take neither widths nor depths, so a model that has the size of none of
-- them is written with our names for these (ganymede.hub.families.pictures), which timm does not read.
-- @module ganymede.hub.families.mlp_mixer
local families = require "ganymede.hub.families"
local pictures = require "ganymede.hub.families.pictures"

local sizes = {}
for _, size in ipairs { { "b", 768, 12 }, { "s", 512, 8 }, { "l", 1024, 24 } } do
  for _, patch in ipairs { 16, 32 } do
    sizes[#sizes + 1] = { ("mixer_%s%d_224"):format(size[1], patch), { width = size[2], depth = size[3],
      patch_size = patch } }
  end
end

-- mlp_ratio is that of the MLPs over tokens and of those over channels, both by the width.
local function read(args, opt)
  for key, value in pairs { stem_norm = false, nlhb = false, drop_rate = 0, proj_drop_rate = 0, drop_path_rate = 0 } do
    args:expect(key, value)
  end
  local ratio = args:get("mlp_ratio", { 0.5, 4 })
  if type(ratio) == "number" then ratio = { ratio, ratio } end
  opt.token_hidden, opt.hidden = math.floor(ratio[1] * opt.width), math.floor(ratio[2] * opt.width)
end

local function write(opt, config, args)
  pictures.check_sides(config.model_type, opt)
  local tokens, channels = opt.token_hidden or math.ceil(opt.width / 2), opt.hidden or 4 * opt.width
  if tokens ~= math.floor(opt.width / 2) or channels ~= 4 * opt.width then
    args.mlp_ratio = { pictures.ratio(tokens, opt.width), pictures.ratio(channels, opt.width) }
  end
end

local function entries(opt)
  local list, patch = families.list(), opt.patch_size
  list:shaped("patches.weight", "stem.proj.weight", { opt.width, opt.channels * patch ^ 2 },
    { opt.width, opt.channels, patch, patch })
  list:add("patches.bias", "stem.proj.bias")
  for i = 1, opt.depth do
    local ours, theirs = ("blocks.%d."):format(i), ("blocks.%d."):format(i - 1)
    list:both(ours .. "norm1", theirs .. "norm1")
    list:both(ours .. "norm2", theirs .. "norm2")
    for _, names in ipairs { { "token_mlp", "mlp_tokens" }, { "mlp", "mlp_channels" } } do
      list:both(ours .. names[1] .. ".up", theirs .. names[2] .. ".fc1")
      list:both(ours .. names[1] .. ".down", theirs .. names[2] .. ".fc2")
    end
  end
  list:both("norm", "norm")
  list:both("head", "head")
  return list
end

return pictures.family { library = "timm", model = "MLPMixer", sizes = sizes, first = true,
  keys = { "width", "depth", "patch_size" }, defaults = { image_size = 224 }, args = { img_size = "image_size" },
  only = { eps = 1e-6, dropout = 0, drop_path = 0 }, read = read, write = write, entries = entries }
