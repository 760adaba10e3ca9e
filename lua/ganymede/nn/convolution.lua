--- Convolutions over 1, 2 and 3 dimensions of space, and transposed ones, with the options and the initial weights of
-- PyTorch. The kernel of the product also adds the bias and applies the activation, if there is one.
--
-- The weight of a convolution is (out_channels, in_channels / groups, kernel...), that of a transposed one
-- (in_channels, out_channels / groups, kernel...). Options that take a number for each dimension of space take one
-- number for all of them, or a list.
-- @module ganymede.nn.convolution
local functions = require "ganymede.nn.functions"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"

local M = {}

local each = { "integer", "list" }

local shared = {
  in_channels  = { type = "integer", min = 1, doc = "the number of channels of x" },
  out_channels = { type = "integer", min = 1, doc = "the number of channels of y" },
  kernel_size  = { type = each, min = 1, doc = "the sizes of the kernel" },
  stride       = { type = each, min = 1, default = 1, doc = "how far apart the places of the kernel are" },
  dilation     = { type = each, min = 1, default = 1, doc = "how far apart the elements are that a kernel reads" },
  groups       = { type = "integer", min = 1, default = 1,
    doc = "the number of groups of channels, each with kernels of its own; in_channels: depthwise" },
  bias         = { type = "boolean", default = true, doc = "whether the bias b is added" },
  activation   = { type = "string", optional = true, one_of = functions.in_products,
    doc = "the activation function, applied in the kernel of the product; default: none" },
  partition    = { type = "string", optional = true, hidden = true, one_of = { "column", "row", "whole" },
    doc = "the place of this layer in a pair, on a mesh that cuts layers; column: the first, which is cut over "
      .. "out_channels, row: the second, over in_channels; whole: 1D tensor parallelism does not cut it" },
  weight_initializer = init.option("the initializer of W; default: U(-1/sqrt(fan_in), 1/sqrt(fan_in)), where fan_in is "
    .. "the second size of W times the elements of the kernel, as in PyTorch"),
  bias_initializer   = init.option "the initializer of b; default: that of W",
}

local function with(more)
  local all = {}
  for _, list in ipairs { shared, more } do
    for name, option in pairs(list) do all[name] = option end
  end
  return all
end

local of_convolution = with {
  padding = { type = { "integer", "list", "string" }, min = 0, default = 0,
    doc = "zeros around x: a number, a list with a number or { in front, behind } for each dimension, \"same\": so "
      .. "many that y has the size of x, or \"valid\": none" },
}

local of_transposed = with {
  padding = { type = each, min = 0, default = 0,
    doc = "what is cut off y on both sides: a number, or a list with a number or { in front, behind } for each "
      .. "dimension" },
  output_padding = { type = each, min = 0, default = 0, doc = "how much longer y is; less than the stride" },
}

-- ---------------------------------------------------------------- options

-- A list of `space` whole numbers from `least` on. pairs_too: an entry may be { in front, behind }.
local function listed(class, name, value, least, pairs_too)
  local function check(v)
    if type(v) == "number" and v % 1 == 0 and v >= least and v < math.huge then return v end
    error(("%s: %s must hold whole numbers from %d on; got %s"):format(class.name, name, least, tostring(v)), 5)
  end
  if type(value) == "number" then
    local all = {}
    for d = 1, class.space do all[d] = value end
    return all
  end
  if #value ~= class.space then
    error(("%s: %s has %d numbers, and there %s %d dimension%s of space"):format(class.name, name, #value,
      class.space == 1 and "is" or "are", class.space, class.space == 1 and "" or "s"), 4)
  end
  local all = {}
  for d, v in ipairs(value) do
    if not pairs_too or type(v) ~= "table" then all[d] = check(v)
    elseif #v == 2 and options.is_of_type("list", v) then all[d] = { check(v[1]), check(v[2]) }
    else error(("%s: %s of a dimension is a number or { in front, behind }"):format(class.name, name), 4) end
  end
  return all
end

local function padding_of(class, opt, call)
  if type(opt.padding) ~= "string" then return listed(class, "padding", opt.padding, 0, true) end
  if opt.padding == "valid" then return nil end
  if opt.padding ~= "same" then
    error(("%s: padding must be a number, a list, \"same\" or \"valid\"; got %q"):format(class.name, opt.padding), 4)
  end
  local all = {}
  for d = 1, class.space do
    if call.stride[d] ~= 1 then error(("%s: padding = \"same\" needs a stride of 1"):format(class.name), 4) end
    local more = call.dilation[d] * (call.kernel[d] - 1)
    all[d] = { math.floor(more / 2), math.ceil(more / 2) }
  end
  return all
end

local function check_groups(class, opt)
  for _, name in ipairs { "in_channels", "out_channels" } do
    if opt[name] % opt.groups ~= 0 then
      error(("%s: %s = %d cannot be divided into %d groups"):format(class.name, name, opt[name], opt.groups), 4)
    end
  end
end

-- What is longer than a stride would be a place of the kernel of its own.
local function output_padding_of(class, opt, call)
  local all = listed(class, "output_padding", opt.output_padding, 0)
  for d, more in ipairs(all) do
    if more >= call.stride[d] then
      error(("%s: output_padding of dimension %d is %d, and must be less than the stride, %d; a larger stride or less "
        .. "padding makes y longer"):format(class.name, d, more, call.stride[d]), 4)
    end
  end
  return all
end

-- ---------------------------------------------------------------- layers

local Convolution = {} -- the methods of all of them

function Convolution:build(opt)
  check_groups(self, opt)
  local call = { kernel = listed(self, "kernel_size", opt.kernel_size, 1) }
  call.stride = listed(self, "stride", opt.stride, 1)
  call.dilation = listed(self, "dilation", opt.dilation, 1)
  call.padding = padding_of(self, opt, call)
  if self.transposed then call.output_padding = output_padding_of(self, opt, call) end
  self.settings = { stride = call.stride, dilation = call.dilation, padding = call.padding, groups = opt.groups,
    output_padding = call.output_padding }
  local first, second = opt.out_channels, opt.in_channels / opt.groups
  if self.transposed then first, second = opt.in_channels, opt.out_channels / opt.groups end
  local shape, places = { first, second }, 1
  for d, size in ipairs(call.kernel) do
    shape[d + 2] = size
    places = places * size
  end
  self:param("weight", shape, init.resolve(opt.weight_initializer, init.dense_weight, second * places, first * places))
  if opt.bias then
    self:param("bias", { opt.out_channels }, init.resolve(opt.bias_initializer, init.dense_bias, second * places))
  end
end

-- y = f(conv(x, W) + b) with the layer's own weight. A mode of tensor parallelism replaces `forward`.
function Convolution:product(x, f)
  local call = {}
  for name, value in pairs(self.settings) do call[name] = value end
  call.activation = f
  local op = self.transposed and ops.transposed_convolution or ops.convolution
  return op(x, self:use "weight", self:use "bias", call)
end

function Convolution:check_input(x)
  if x:dim() == self.space + 2 and x:size(2) == self.opt.in_channels then return end
  error(("x must be (batch, %d, %s); got (%s)"):format(self.opt.in_channels,
    ({ "length", "height, width", "depth, height, width" })[self.space], table.concat(x:shape(), ", ")), 0)
end

local function add(class, space, transposed, own)
  class.positional = { "in_channels", "out_channels", "kernel_size", "stride", "padding" }
  class.space, class.transposed, class.options = space, transposed, own
  class.matrices = {} -- a kernel is no matrix of a hidden layer (ganymede.optim.muon)
  for name, method in pairs(Convolution) do class[name] = method end
  M[class.name] = class
  return class
end

-- x (b, in_channels, space...) -> y (b, out_channels, space...)
local function forward(self, x)
  self:check_input(x)
  return self:product(x, self.opt.activation)
end

--- A convolution over sequences: x (b, in_channels, length) -> (b, out_channels, length').
local Conv1d = module.class "Conv1d"
add(Conv1d, 1, false, of_convolution).forward = forward

--- A convolution over images: x (b, in_channels, height, width) -> (b, out_channels, height', width').
local Conv2d = module.class "Conv2d"
add(Conv2d, 2, false, of_convolution).forward = forward

--- A convolution over volumes: x (b, in_channels, depth, height, width) -> (b, out_channels, depth', height', width').
local Conv3d = module.class "Conv3d"
add(Conv3d, 3, false, of_convolution).forward = forward

--- The transposed convolution over sequences, which makes them longer by the stride.
local ConvTranspose1d = module.class "ConvTranspose1d"
add(ConvTranspose1d, 1, true, of_transposed).forward = forward

--- The transposed convolution over images, which makes them larger by the stride.
local ConvTranspose2d = module.class "ConvTranspose2d"
add(ConvTranspose2d, 2, true, of_transposed).forward = forward

--- The transposed convolution over volumes, which makes them larger by the stride.
local ConvTranspose3d = module.class "ConvTranspose3d"
add(ConvTranspose3d, 3, true, of_transposed).forward = forward

return M
