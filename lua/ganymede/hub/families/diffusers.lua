--- Models of latent diffusion as diffusers stores them: UNet2DConditionModel and AutoencoderKL, those of Stable
-- Diffusion 1 and 2. A pipeline of diffusers has a folder for each, unet/ and vae/.
--
-- Their config.json says the class (`_class_name`) and no model_type; here that is "diffusers." and the class.
-- The trap: what a U-Net's config.json calls attention_head_dim is the number of heads.
-- @module ganymede.hub.families.diffusers
local families = require "ganymede.hub.families"
local options = require "ganymede.base.options"
local unet_levels = require "ganymede.models.unet_levels"
require "ganymede.hub.families.pictures" -- adds to lists of entries

local FILE = "diffusion_pytorch_model.safetensors"

-- ---------------------------------------------------------------- what both say

-- Keys that change no number: of pipelines, or of types of 16 bits.
local function ask_idle(config)
  for _, key in ipairs { "sample_size", "force_upcast", "upcast_attention", "addition_embed_type_num_heads" } do
    config:get(key)
  end
end

-- The width of the first level, and by what it is multiplied at each level.
local function read_widths(config)
  local widths, multipliers = config:need "block_out_channels", {}
  for level, width in ipairs(widths) do
    multipliers[level] = width / widths[1]
    if multipliers[level] % 1 ~= 0 then
      config:refuse("block_out_channels[%d] is %d; it must be a multiple of the first, %d", level - 1, width, widths[1])
    end
  end
  return widths[1], multipliers
end

local function widths_of(kind, opt)
  if opt.multipliers[1] ~= 1 then families.refuse(kind, "multipliers", opt.multipliers) end
  local out = {}
  for level, factor in ipairs(opt.multipliers) do out[level] = opt.width * factor end
  return out
end

-- Kinds of blocks, a list with one of `known` for each level -> list of what known[name] is.
local function read_kinds(config, key, levels, known)
  local given, out = config:need(key), {}
  if #given ~= levels then config:refuse("%s lists %d levels, and block_out_channels %d", key, #given, levels) end
  for level, name in ipairs(given) do
    out[level] = known[name]
    if out[level] == nil then
      config:refuse("%s[%d] is %s; this program has %s", key, level - 1, options.brief(name),
        table.concat(known.words, " and "))
    end
  end
  return out
end

local function repeated(name, count)
  local out = {}
  for i = 1, count do out[i] = name end
  return out
end

local function add_resnet(list, ours, theirs, opt, inputs, outputs)
  list:both(ours .. "norm1", theirs .. "norm1")
  list:both(ours .. "first", theirs .. "conv1")
  if opt.scale_shift then
    list:both(ours .. "norm2.modulation", theirs .. "time_emb_proj")
    list:both(ours .. "norm2.norm", theirs .. "norm2")
  else
    if opt.timed then list:both(ours .. "time", theirs .. "time_emb_proj") end
    list:both(ours .. "norm2", theirs .. "norm2")
  end
  list:both(ours .. "second", theirs .. "conv2")
  if inputs ~= outputs then list:both(ours .. "shortcut", theirs .. "conv_shortcut") end
end

-- ---------------------------------------------------------------- the U-Net

local unet = { model = "UNet", types = { ["diffusers.UNet2DConditionModel"] = true }, file = FILE, untyped = true }
local UNET = "UNet2DConditionModel"

local down_kinds = { CrossAttnDownBlock2D = true, DownBlock2D = false,
  words = { "CrossAttnDownBlock2D", "DownBlock2D" } }
local up_kinds = { CrossAttnUpBlock2D = true, UpBlock2D = false, words = { "CrossAttnUpBlock2D", "UpBlock2D" } }

-- What is the same in all models of this kind, and in diffusers an option.
local fixed = { act_fn = "silu", mid_block_type = "UNetMidBlock2DCrossAttn", downsample_padding = 1,
  mid_block_scale_factor = 1, resnet_out_scale_factor = 1, time_embedding_type = "positional", conv_in_kernel = 3,
  conv_out_kernel = 3, attention_type = "default" }

function unet.takes(opt) return opt.context ~= nil end

-- The levels that have attention, from 1.
local function read_attention(config, levels)
  local down = read_kinds(config, "down_block_types", levels, down_kinds)
  local up, out = read_kinds(config, "up_block_types", levels, up_kinds), {}
  for level = 1, levels do
    if down[level] ~= up[levels + 1 - level] then
      config:refuse("down_block_types[%d] and up_block_types[%d] are of one level, and one of them has attention",
        level - 1, levels - level)
    end
    if down[level] then out[#out + 1] = level end
  end
  return out
end

-- The number of blocks of transformers, which is one for all here.
local function read_depth(config)
  local given = config:get("transformer_layers_per_block", 1)
  if type(given) ~= "table" then return given end
  for _, n in ipairs(given) do
    if n ~= given[1] then
      config:refuse("transformer_layers_per_block has %d beside %d; here all levels have as many", n, given[1])
    end
  end
  return given[1]
end

-- The numbers of heads, or that of each level.
local function read_heads(config, width, multipliers)
  local given = config:get("attention_head_dim", 8)
  if type(given) == "table" and #given ~= #multipliers then
    config:refuse("attention_head_dim lists %d levels, and block_out_channels %d", #given, #multipliers)
  end
  for level, factor in ipairs(multipliers) do
    local heads = type(given) == "table" and given[level] or given
    if width * factor % heads ~= 0 then
      config:refuse("attention_head_dim: %d heads do not divide the %d channels of block_out_channels[%d]", heads,
        width * factor, level - 1)
    end
  end
  return given
end

local function read_scale_shift(config)
  local how = config:get("resnet_time_scale_shift", "default")
  if how ~= "default" and how ~= "scale_shift" then
    config:refuse("resnet_time_scale_shift is '%s'; this program has 'default' and 'scale_shift'", how)
  end
  return how == "scale_shift"
end

function unet.options(config)
  for key, value in pairs(fixed) do config:expect(key, value) end
  ask_idle(config)
  local width, multipliers = read_widths(config)
  return {
    channels = config:get("in_channels", 4), outputs = config:get("out_channels", 4), width = width,
    multipliers = multipliers, attention = read_attention(config, #multipliers),
    blocks = config:get("layers_per_block", 2), heads = read_heads(config, width, multipliers),
    context = config:get("cross_attention_dim", 1280), depth = read_depth(config),
    linear = config:get("use_linear_projection", false), groups = config:need "norm_num_groups",
    eps = config:get("norm_eps", 1e-5), shift = config:get("freq_shift", 0),
    sine_first = not config:get("flip_sin_to_cos", true), scale_shift = read_scale_shift(config),
    dropout = config:get("dropout", 0),
  }
end

function unet.config(opt)
  local levels, attends, down, up = #opt.multipliers, unet_levels.attending(opt), {}, {}
  for level = 1, levels do
    down[level] = attends[level] and "CrossAttnDownBlock2D" or "DownBlock2D"
    up[levels + 1 - level] = attends[level] and "CrossAttnUpBlock2D" or "UpBlock2D"
  end
  local config = {
    _class_name = UNET, in_channels = opt.channels, out_channels = opt.outputs or opt.channels,
    block_out_channels = widths_of(UNET, opt), down_block_types = down, up_block_types = up,
    layers_per_block = opt.blocks, attention_head_dim = opt.heads, cross_attention_dim = opt.context,
    transformer_layers_per_block = opt.depth, use_linear_projection = opt.linear, norm_num_groups = opt.groups,
    norm_eps = opt.eps, freq_shift = opt.shift, flip_sin_to_cos = not opt.sine_first,
    resnet_time_scale_shift = opt.scale_shift and "scale_shift" or "default", dropout = opt.dropout,
  }
  for key, value in pairs(fixed) do config[key] = value end
  return config
end

--- The number of layers that the options say, at most that of the arrays.
function unet.layers(opt)
  local attends = (opt.attention and #opt.attention or #opt.multipliers - 1) * opt.blocks
  return #opt.multipliers * opt.blocks + (attends + 1) * opt.depth
end

-- Two matrices there, one of keys and one of values; here their heads take turns (nn.CrossAttention).
local function add_key_value(list, ours, theirs, width, heads, context)
  local size, pieces = width / heads, {}
  for head = 0, heads - 1 do
    for part, name in ipairs { "to_k.weight", "to_v.weight" } do
      pieces[#pieces + 1] = { name = theirs .. name, offset = { head * size + 1, 1 },
        at = { (2 * head + part - 1) * size + 1, 1 }, size = { size, context } }
    end
  end
  list[#list + 1] = { parameter = ours .. ".weight", pieces = pieces }
end

-- The MLP's first layer and its gate are one layer there, in this order.
local function add_gated(list, ours, theirs, width)
  local hidden = 4 * width
  for half, name in ipairs { "mlp.up", "mlp.gate" } do
    local first = (half - 1) * hidden + 1
    list[#list + 1] = { parameter = ours .. name .. ".weight",
      pieces = { { name = theirs .. "ff.net.0.proj.weight", offset = { first, 1 }, size = { hidden, width } } } }
    list[#list + 1] = { parameter = ours .. name .. ".bias",
      pieces = { { name = theirs .. "ff.net.0.proj.bias", offset = { first }, size = { hidden } } } }
  end
  list:both(ours .. "mlp.down", theirs .. "ff.net.2")
end

local function add_transformer(list, ours, theirs, opt, width, heads)
  list:both(ours .. "norm", theirs .. "norm")
  list:both(ours .. "enter", theirs .. "proj_in")
  for i = 1, opt.depth do
    local here, there = ("%sblocks.%d."):format(ours, i), ("%stransformer_blocks.%d."):format(theirs, i - 1)
    for _, norm in ipairs { "norm1", "norm2", "norm3" } do list:both(here .. norm, there .. norm) end
    list:qkv({ width = width, heads = heads }, here .. "attention.qkv", there .. "attn1.", { "to_q", "to_k", "to_v" })
    list:both(here .. "attention.output", there .. "attn1.to_out.0")
    list:add(here .. "cross.query.weight", there .. "attn2.to_q.weight")
    add_key_value(list, here .. "cross.key_value", there .. "attn2.", width, heads, opt.context)
    list:both(here .. "cross.output", there .. "attn2.to_out.0")
    add_gated(list, here, there, width)
  end
  list:both(ours .. "leave", theirs .. "proj_out")
end

-- A residual block of a level, number i from 0, and its transformer if there are heads.
local function add_step(list, ours, theirs, i, opt, inputs, outputs, heads)
  add_resnet(list, ours .. "block.", ("%sresnets.%d."):format(theirs, i),
    { timed = true, scale_shift = opt.scale_shift }, inputs, outputs)
  if heads then
    add_transformer(list, ours .. "attention.", ("%sattentions.%d."):format(theirs, i), opt, outputs, heads)
  end
end

-- The heads of a level that has attention.
local function heads_at(opt, level, attends)
  return attends[level] and (type(opt.heads) == "table" and opt.heads[level] or opt.heads) or nil
end

-- -> the numbers of channels of what the way down keeps
local function add_down(list, opt, attends)
  local number, at, kept = 0, opt.width, { opt.width }
  for level, factor in ipairs(opt.multipliers) do
    local theirs = ("down_blocks.%d."):format(level - 1)
    for i = 1, opt.blocks do
      number = number + 1
      add_step(list, ("down.%d."):format(number), theirs, i - 1, opt, at, opt.width * factor,
        heads_at(opt, level, attends))
      at = opt.width * factor
      kept[#kept + 1] = at
    end
    if level < #opt.multipliers then
      number = number + 1
      list:both(("down.%d.convolution"):format(number), theirs .. "downsamplers.0.conv")
      kept[#kept + 1] = at
    end
  end
  return kept, at
end

local function add_up(list, opt, attends, kept, at)
  local number, levels = 0, #opt.multipliers
  for level = levels, 1, -1 do
    local theirs, outputs = ("up_blocks.%d."):format(levels - level), opt.width * opt.multipliers[level]
    for i = 0, opt.blocks do
      number = number + 1
      add_step(list, ("up.%d."):format(number), theirs, i, opt, at + table.remove(kept), outputs,
        heads_at(opt, level, attends))
      at = outputs
    end
    if level > 1 then
      number = number + 1
      list:both(("up.%d.convolution"):format(number), theirs .. "upsamplers.0.conv")
    end
  end
end

function unet.entries(opt)
  local list, attends, levels = families.list(), unet_levels.attending(opt), #opt.multipliers
  list:both("time.first", "time_embedding.linear_1")
  list:both("time.second", "time_embedding.linear_2")
  list:both("enter", "conv_in")
  local kept, at = add_down(list, opt, attends)
  add_step(list, "middle.1.", "mid_block.", 0, opt, at, at, heads_at(opt, levels, { [levels] = true }))
  add_step(list, "middle.2.", "mid_block.", 1, opt, at, at)
  add_up(list, opt, attends, kept, at)
  list:both("norm", "conv_norm_out")
  list:both("leave", "conv_out")
  return list
end

-- ---------------------------------------------------------------- the autoencoder

local vae = { model = "AutoencoderKL", types = { ["diffusers.AutoencoderKL"] = true }, file = FILE, untyped = true }
local VAE = "AutoencoderKL"

local encoder_kinds = { DownEncoderBlock2D = true, words = { "DownEncoderBlock2D" } }
local decoder_kinds = { UpDecoderBlock2D = true, words = { "UpDecoderBlock2D" } }

function vae.options(config)
  config:expect("act_fn", "silu")
  for _, key in ipairs { "use_quant_conv", "use_post_quant_conv" } do config:expect(key, true) end
  ask_idle(config)
  local width, multipliers = read_widths(config)
  read_kinds(config, "down_block_types", #multipliers, encoder_kinds)
  read_kinds(config, "up_block_types", #multipliers, decoder_kinds)
  local channels = config:get("in_channels", 3)
  config:expect("out_channels", channels)
  return { channels = channels, latent = config:get("latent_channels", 4), width = width, multipliers = multipliers,
    blocks = config:get("layers_per_block", 1), attention = config:get("mid_block_add_attention", true),
    groups = config:need "norm_num_groups", latent_scale = config:get("scaling_factor", 0.18215) }
end

function vae.config(opt)
  local levels = #opt.multipliers
  return {
    _class_name = VAE, in_channels = opt.channels, out_channels = opt.channels, latent_channels = opt.latent,
    block_out_channels = widths_of(VAE, opt), down_block_types = repeated("DownEncoderBlock2D", levels),
    up_block_types = repeated("UpDecoderBlock2D", levels), layers_per_block = opt.blocks, act_fn = "silu",
    norm_num_groups = opt.groups, mid_block_add_attention = opt.attention, scaling_factor = opt.latent_scale,
    use_quant_conv = true, use_post_quant_conv = true,
  }
end

--- The number of layers that the options say, at most that of the arrays.
function vae.layers(opt) return #opt.multipliers * opt.blocks end

-- Names of the attention's layers; the second ones are those of older files, which diffusers reads as well.
local new_names = { query = "to_q", key = "to_k", value = "to_v", output = "to_out.0" }
local old_names = { query = "query", key = "key", value = "value", output = "proj_attn" }

local function add_attention(list, ours, theirs, width, has)
  local old = has and has(theirs .. "query.weight") and not has(theirs .. "to_q.weight")
  local names = old and old_names or new_names
  list:both(ours .. "norm", theirs .. "group_norm")
  list:qkv({ width = width, heads = 1 }, ours .. "attention.qkv", theirs, { names.query, names.key, names.value }, true)
  list:both(ours .. "attention.output", theirs .. names.output)
end

-- The layers of one half, number by number: ours is a flat list.
local function half(list, name)
  local number = 0
  return function() -- the place of the next layer
    number = number + 1
    return ("%s.%d"):format(name, number)
  end, function(place, theirs) list:both(place, name .. "." .. theirs) end
end

local function add_middle(list, next_place, name, opt, at, has)
  local theirs = name .. ".mid_block."
  add_resnet(list, next_place() .. ".", theirs .. "resnets.0.", {}, at, at)
  if opt.attention ~= false then add_attention(list, next_place() .. ".", theirs .. "attentions.0.", at, has) end
  add_resnet(list, next_place() .. ".", theirs .. "resnets.1.", {}, at, at)
end

local function add_head(next_place, add)
  add(next_place(), "conv_norm_out")
  next_place() -- SiLU
  add(next_place(), "conv_out")
end

local function add_encoder(list, opt, has)
  local next_place, add = half(list, "encoder")
  local at, levels = opt.width, #opt.multipliers
  add(next_place(), "conv_in")
  for level, factor in ipairs(opt.multipliers) do
    local theirs = ("down_blocks.%d."):format(level - 1)
    for i = 0, opt.blocks - 1 do
      add_resnet(list, next_place() .. ".", ("encoder.%sresnets.%d."):format(theirs, i), {}, at, opt.width * factor)
      at = opt.width * factor
    end
    if level < levels then add(next_place() .. ".convolution", theirs .. "downsamplers.0.conv") end
  end
  add_middle(list, next_place, "encoder", opt, at, has)
  add_head(next_place, add)
end

local function add_decoder(list, opt, has)
  local next_place, add = half(list, "decoder")
  local levels = #opt.multipliers
  local at = opt.width * opt.multipliers[levels]
  add(next_place(), "conv_in")
  add_middle(list, next_place, "decoder", opt, at, has)
  for level = levels, 1, -1 do
    local theirs, outputs = ("up_blocks.%d."):format(levels - level), opt.width * opt.multipliers[level]
    for i = 0, opt.blocks do
      add_resnet(list, next_place() .. ".", ("decoder.%sresnets.%d."):format(theirs, i), {}, at, outputs)
      at = outputs
    end
    if level > 1 then add(next_place() .. ".convolution", theirs .. "upsamplers.0.conv") end
  end
  add_head(next_place, add)
end

function vae.entries(opt, has)
  local list = families.list()
  add_encoder(list, opt, has)
  list:both("moments", "quant_conv")
  list:both("from_latent", "post_quant_conv")
  add_decoder(list, opt, has)
  return list
end

return { unet, vae }
