--- Transforms of samples. The transforms in this file run in C on the prefetch thread, and each random choice is a
-- function of (seed, epoch, sample). A transform written in Lua is a function(x, y) that returns x and y of a whole
-- batch; it runs on the main thread after them.
-- @module ganymede.data.transforms
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local transforms = {}

-- Defines a class; native(opt) returns the description that the loader in C takes.
local function define(name, spec, native)
  local class = setmetatable({ name = name, options = spec, is_class = true }, {
    __call = signature.constructor("options table?", function(_, given)
      local opt = options.check(name, spec, given, 2)
      return setmetatable({ name = name, native = native(opt) },
        { __tostring = function() return name .. options.show(spec, opt) end })
    end),
  })
  transforms[name] = class
  registry.transforms:register(name, class)
end

local function list(value) return type(value) == "table" and value or { value } end

define("Normalize", {
  mean = { type = { "number", "table" },
    doc = "the mean that is subtracted from values from 0 to 1: one number, or a list with one for each channel" },
  std = { type = { "number", "table" },
    doc = "the standard deviation by which the result is divided: one number, or as many as means" },
}, function(opt) return { kind = "normalize", mean = list(opt.mean), std = list(opt.std) } end)

define("RandomCrop", {
  size = { type = { "integer", "table" }, doc = "the size of the result in pixels: one number, or { height, width }" },
  padding = { type = "integer", min = 0, default = 0, doc = "the number of zeros added on each side before the crop" },
}, function(opt)
  local size = list(opt.size)
  return { kind = "crop", height = size[1], width = size[2] or size[1], padding = opt.padding }
end)

define("RandomHorizontalFlip", {
  p = { type = "number", min = 0, max = 1, default = 0.5, doc = "the probability with which an image is flipped" },
}, function(opt) return { kind = "flip", probability = opt.p } end)

return transforms
