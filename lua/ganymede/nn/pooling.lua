--- Pooling of images (n, channels, ...) with one, two or three dimensions behind the channels: the largest element or
-- the mean of windows, of a given size, or as many as the result shall have (adaptive). Ranks may share the batch, the
-- channels, and the first dimension behind them.
-- @module ganymede.nn.pooling
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"

local layers = {}

local axes = { "length", "height, width", "depth, height, width" }
local sized = { "integer", "list" }

-- A size of each of `dims` dimensions from a number, or a list with one for each. Raises at the line that builds.
local function check_sizes(self, name, dims, least)
  local given = self.opt[name]
  if given == nil then return end
  local list = type(given) == "table" and given or { given }
  local right = type(given) ~= "table" or #list == dims
  for _, n in ipairs(list) do right = right and type(n) == "number" and n >= least and n == math.floor(n) end
  if right then return end
  error(("%s: %s must be a whole number from %d, or a list of %d; got %s"):format(self.name, name, least, dims,
    options.brief(given)), 4)
end

local function check_images(x, dims)
  if x:dim() == dims + 2 then return end
  error(("images must be (batch, channels, %s); got (%s)"):format(axes[dims], table.concat(x:shape(), ", ")), 0)
end

-- A class for each number of dimensions: its options, what `build` looks at (name -> the least number), and its op.
local function define(kind, fields, sizes, run)
  for dims = 1, 3 do
    local class = module.class(("%s%dd"):format(kind, dims))
    for key, value in pairs(fields) do class[key] = value end
    function class:build()
      for _, entry in ipairs(sizes) do check_sizes(self, entry[1], dims, entry[2]) end
    end
    --- x (n, channels, ...) -> (n, channels, ...), a number for each window. Backward: dx is set.
    function class:forward(x)
      check_images(x, dims)
      return run(x, self.opt)
    end
    layers[class.name] = class
  end
end

local kernel = { type = sized, min = 1,
  doc = "the size of the window: a number, or a list with one for each dimension" }
local stride = { type = sized, min = 1, optional = true, initial = "the size of the window",
  doc = "the distance between windows, likewise" }
local padding = { type = sized, min = 0, default = 0,
  doc = "the elements around the image on each side, likewise, at most half of the window" }
local ceil_mode = { type = "boolean", default = false,
  doc = "whether the number of windows is rounded up, not down; no window begins in the padding behind the image" }
local places = { type = "boolean", default = false,
  doc = "whether the place of each largest element in its image is returned too" }
local size = { type = sized, min = 1, doc = "the size of the result: a number, or a list with one for each dimension" }
local names = { kernel_size = "kernel", return_indices = "places", divisor_override = "divisor", output_size = "size" }

local function renamed(...)
  local own = {}
  for _, name in ipairs { ... } do own[name] = names[name] end
  return own
end

define("MaxPool", {
  positional = { "kernel", "stride", "padding" }, aliases = renamed("kernel_size", "return_indices"),
  options = { kernel = kernel, stride = stride, padding = padding, ceil_mode = ceil_mode, places = places,
    dilation = { type = sized, min = 1, default = 1,
      doc = "the distance between the elements of a window, likewise" } },
}, { { "kernel", 1 }, { "stride", 1 }, { "padding", 0 }, { "dilation", 1 } }, function(x, opt)
  return ops.max_pool(x, opt.kernel, opt.stride, opt.padding, opt.dilation,
    { ceil_mode = opt.ceil_mode, places = opt.places })
end)

define("AvgPool", {
  positional = { "kernel", "stride", "padding" }, aliases = renamed("kernel_size", "divisor_override"),
  options = { kernel = kernel, stride = stride, padding = padding, ceil_mode = ceil_mode,
    count_include_pad = { type = "boolean", default = true, doc = "whether elements of the padding count, as zeros" },
    divisor = { type = "integer", min = 1, optional = true, initial = "the number of elements",
      doc = "what the sum of a window is divided by" } },
}, { { "kernel", 1 }, { "stride", 1 }, { "padding", 0 } }, function(x, opt)
  return ops.avg_pool(x, opt.kernel, opt.stride, opt.padding,
    { ceil_mode = opt.ceil_mode, count_include_pad = opt.count_include_pad, divisor = opt.divisor })
end)

define("AdaptiveAvgPool", { positional = { "size" }, aliases = renamed "output_size", options = { size = size } },
  { { "size", 1 } }, function(x, opt) return ops.adaptive_avg_pool(x, opt.size) end)

define("AdaptiveMaxPool", { positional = { "size" }, aliases = renamed("output_size", "return_indices"),
  options = { size = size, places = places } },
  { { "size", 1 } }, function(x, opt) return ops.adaptive_max_pool(x, opt.size, { places = opt.places }) end)

return layers
