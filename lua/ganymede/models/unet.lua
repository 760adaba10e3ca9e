--- A U-Net that predicts the noise in images (Ho, Jain and Abbeel 2020), or with a context that of latent images, as in
-- Stable Diffusion (Rombach et al. 2022).
--
--     gm.models.UNet { channels = 1, width = 32, multipliers = { 1, 2 }, groups = 8 }
--     gm.models.UNet { context = 768 }                    -- Stable Diffusion 1.5: 859,520,964 parameters
--
-- Level i has width * multipliers[i] channels, and half the height and width of the level before. On the way down the
-- results of all blocks are kept; on the way up each block takes the last one that is left beside its input. What is
-- kept goes from section to section, so a pipeline may cut anywhere: it then crosses the border too.
-- @module ganymede.models.unet
local core = require "ganymede.core"
local init = require "ganymede.nn.initializers"
local levels = require "ganymede.models.unet_levels"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local UNet = module.class("UNet", nil, "models")

UNet.aliases = { in_channels = "channels" }
UNet.options = {
  channels = { type = "integer", min = 1, default = 4, doc = "the number of channels of x" },
  outputs  = { type = "integer", min = 1, optional = true,
    doc = "the number of channels of the result; default: channels" },
  width    = { type = "integer", min = 2, default = 320, doc = "the number of channels of the first level" },
  multipliers = { type = "list", default = { 1, 2, 4, 4 },
    doc = "the list of the numbers by which width is multiplied, one for each level" },
  blocks   = { type = "integer", min = 1, default = 2,
    doc = "the number of residual blocks of a level on the way down; on the way up there is one more" },
  attention = { type = "list", optional = true,
    doc = "the list of levels, from 1, that have attention behind their blocks; default: all but the last" },
  heads    = { type = { "integer", "list" }, min = 1, default = 8,
    doc = "the number of attention heads, or a list with that of each level; the middle has those of the last level" },
  context  = { type = "integer", min = 1, optional = true,
    doc = "the width of a context, a sequence to which all attention looks too; default: there is none" },
  depth    = { type = "integer", min = 1, default = 1, doc = "with a context: how many blocks a transformer has" },
  linear   = nn.SpatialTransformer.options.linear,
  classes  = { type = "integer", min = 1, optional = true,
    doc = "the number of classes; the embedding of the class of an image is then added to that of its time" },
  groups   = { type = "integer", min = 1, default = 32, doc = "the number of groups of channels in the norms" },
  eps      = { type = "number", default = 1e-5, above = 0,
    doc = "a number added to the variance in the norms; those before attention add 1e-6" },
  shift    = nn.TimeEmbedding.options.shift,
  sine_first = nn.TimeEmbedding.options.sine_first,
  scale_shift = nn.TimeResidualBlock.options.scale_shift,
  dropout  = nn.TimeResidualBlock.options.dropout,
}

-- One step of the way: a residual block and what follows it.
local Step = module.class("UNetStep", nil, false)
Step.options = { inputs = { type = "integer", doc = "the number of channels of x" },
  outputs = { type = "integer", doc = "the number of channels of y" },
  heads = { type = "integer", optional = true, doc = "the number of heads of the attention that follows" },
  unet = { type = "table", doc = "the options of the U-Net" } }

function Step:build(opt)
  local of = opt.unet
  self.block = nn.TimeResidualBlock { inputs = opt.inputs, outputs = opt.outputs, condition = 4 * of.width,
    groups = of.groups, eps = of.eps, scale_shift = of.scale_shift, dropout = of.dropout }
  if not opt.heads then return end
  if of.context then
    self.attention = nn.SpatialTransformer { channels = opt.outputs, groups = of.groups, heads = opt.heads,
      context = of.context, depth = of.depth, linear = of.linear }
  else
    self.attention = nn.SpatialAttention { channels = opt.outputs, groups = of.groups, heads = opt.heads }
  end
end

function Step:forward(x, time, context)
  x = self.block(x, time)
  if not self.attention then return x end
  return self.attention(x, self.opt.unet.context and context or nil)
end

-- The way down: self.down is a list of steps and of Downsamples. Returns the numbers of channels of what is kept.
local function build_down(self, opt, heads)
  local kept, at = { opt.width }, opt.width
  for level, factor in ipairs(opt.multipliers) do
    for _ = 1, opt.blocks do
      self.down:append(Step { inputs = at, outputs = opt.width * factor, heads = heads[level], unet = opt })
      at = opt.width * factor
      kept[#kept + 1] = at
    end
    if level < #opt.multipliers then
      self.down:append(nn.Downsample(at))
      kept[#kept + 1] = at
    end
  end
  return kept, at
end

local function build_up(self, opt, heads, kept, at)
  for level = #opt.multipliers, 1, -1 do
    local outputs = opt.width * opt.multipliers[level]
    for _ = 1, opt.blocks + 1 do
      self.up:append(Step { inputs = at + table.remove(kept), outputs = outputs, heads = heads[level], unet = opt })
      at = outputs
    end
    if level > 1 then self.up:append(nn.Upsample(at)) end
  end
end

local function conv(inputs, outputs, zero)
  return nn.Conv2d { in_channels = inputs, out_channels = outputs, kernel_size = 3, padding = 1, partition = "whole",
    weight_initializer = zero and init.zeros() or nil, bias_initializer = zero and init.zeros() or nil }
end

function UNet:build(opt)
  if opt.context and opt.classes then
    error("UNet: give context or classes; the condition is one of them", 3)
  end
  if opt.linear and not opt.context then
    error("UNet: linear is of transformers, which a model without context does not have", 3)
  end
  local attends, list, heads = levels.attending(opt), levels.heads(opt), {}
  for level in pairs(attends) do heads[level] = list[level] end
  self.time = nn.TimeEmbedding { channels = opt.width, width = 4 * opt.width, shift = opt.shift,
    sine_first = opt.sine_first }
  if opt.classes then self.classes = nn.Embedding(opt.classes, 4 * opt.width) end
  self.enter = conv(opt.channels, opt.width)
  self.down, self.middle, self.up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
  local kept, at = build_down(self, opt, heads)
  local any = opt.context ~= nil or next(attends) ~= nil
  self.middle:append(Step { inputs = at, outputs = at, heads = any and list[#list] or nil, unet = opt })
  self.middle:append(Step { inputs = at, outputs = at, unet = opt })
  build_up(self, opt, heads, kept, at)
  local last = opt.width * opt.multipliers[1]
  self.norm = nn.GroupNorm { groups = opt.groups, channels = last, eps = opt.eps }
  self.leave = conv(last, opt.outputs or opt.channels, true)
end

-- ---------------------------------------------------------------- sections
-- What goes from one to the next: x, the embedding of the time, the context or false, and what is kept, the last at the
-- end.

local function check_condition(self, condition)
  local opt, needs = self.opt, nil
  if opt.context then needs = "a context (batch, sequence, " .. opt.context .. ")" end
  if opt.classes then needs = needs or "classes (batch) of whole numbers" end
  if needs and condition == nil then error("this U-Net needs " .. needs .. " as its third argument", 0) end
  if not needs and condition ~= nil then
    error("this U-Net has neither context nor classes, and a condition is given", 0)
  end
end

local function begin(self, x, time, condition)
  if not core.is_tensor(x) and type(x) == "table" then x, time, condition = x[1], x[2], x[3] end
  check_condition(self, condition)
  local side, shape = 2 ^ (#self.opt.multipliers - 1), x:shape()
  if #shape ~= 4 or shape[2] ~= self.opt.channels or shape[3] % side ~= 0 or shape[4] % side ~= 0 then
    error(("x must be (batch, %d, height, width), height and width multiples of %d; got (%s)"):format(
      self.opt.channels, side, table.concat(shape, ", ")), 0)
  end
  local embedded = stream.to(self.time(time), 1) -- as embeddings return theirs
  if self.classes then embedded = ops.add(embedded, self.classes(condition)) end
  x = self.enter(x)
  return x, embedded, self.opt.context and condition or false, x
end

local function keeping(step, x, time, context, ...)
  local y = step(x, time, context)
  local kept, n = { ... }, select("#", ...)
  kept[n + 1] = y
  return y, time, context, unpack(kept, 1, n + 1)
end

local function taking(step, x, time, context, ...)
  local n = select("#", ...)
  local y = step(stream.join_channels(x, (select(n, ...))), time, context)
  return y, time, context, unpack({ ... }, 1, n - 1)
end

local function passing(step, x, ...) return step(x, ...), ... end

-- A step reads the time and the context; Downsample and Upsample read x alone.
local function section(step, way)
  local is_step = step.name == "UNetStep"
  return { modules = { step }, forward = function(x, time, context, ...)
    if is_step then return way(step, x, time, context, ...) end
    return way(function(y) return step(y) end, x, time, context, ...)
  end }
end

local function whole_step(step)
  return { modules = { step }, forward = function(x, time, context, ...)
    return step(x, time, context), time, context, ...
  end }
end

--- The forward pass: x (b, channels, h, w), time (b), and where the model has them a context (b, s, width) or classes
-- (b) i64 -> (b, outputs, h, w). All of them may come as one list. Height and width are multiples of 2^(levels - 1).
-- Sections: the embeddings, each block, Downsample and Upsample, the head.
function UNet:sections()
  local list = { { modules = { self.time, self.enter, self.classes }, -- classes: none, or the last
                   forward = function(...) return begin(self, ...) end } }
  for _, step in self.down:each() do list[#list + 1] = section(step, keeping) end
  for _, step in self.middle:each() do list[#list + 1] = whole_step(step) end
  for _, step in self.up:each() do
    list[#list + 1] = section(step, step.name == "UNetStep" and taking or passing)
  end
  list[#list + 1] = { modules = { self.norm, self.leave },
                      forward = function(x) return stream.summed(self.leave(ops.silu(self.norm(x)))) end }
  return list
end

return UNet
