--- Transforms of samples. Those here run in C on the prefetch thread, each random choice a function of
-- (seed, epoch, sample); one written in Lua, function(x, y) -> x, y on a whole batch, runs on the main
-- thread after them.
-- @module ganymede.data.transforms
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local transforms = {}

-- native(opt) -> the description that the C loader takes
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
  mean = { type = { "number", "table" }, doc = "of values from 0 to 1; one number, or one a channel" },
  std = { type = { "number", "table" }, doc = "deviation; as many as means" },
}, function(opt) return { kind = "normalize", mean = list(opt.mean), std = list(opt.std) } end)

define("RandomCrop", {
  size = { type = { "integer", "table" }, doc = "of the result: one number, or { height, width }" },
  padding = { type = "integer", min = 0, default = 0, doc = "zeros added on each side before" },
}, function(opt)
  local size = list(opt.size)
  return { kind = "crop", height = size[1], width = size[2] or size[1], padding = opt.padding }
end)

define("RandomHorizontalFlip", {
  p = { type = "number", min = 0, max = 1, default = 0.5, doc = "probability" },
}, function(opt) return { kind = "flip", probability = opt.p } end)

return transforms
