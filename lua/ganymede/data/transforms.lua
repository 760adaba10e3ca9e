--- Transforms of samples. The transforms in this file run in C on the loader's threads, and each random choice is a
-- function of (seed, epoch, sample). A transform written in Lua is a function(x, y) that returns x and y of a whole
-- batch; it runs on the main thread after them.
-- @module ganymede.data.transforms
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local transforms = {}

-- Defines a class; native(opt) returns the description that the loader in C takes. field: "blend" for those that mix
-- samples.
local function define(name, spec, native, field)
  local class = setmetatable({ name = name, options = spec, is_class = true }, {
    __call = signature.constructor("options table?", function(_, given)
      local opt = options.check(name, spec, given, 2)
      return setmetatable({ name = name, [field or "native"] = native(opt) },
        { __tostring = function() return name .. options.show(spec, opt) end })
    end),
  })
  transforms[name] = class
  registry.transforms:register(name, class)
end

local function list(value) return type(value) == "table" and value or { value } end

-- Height and width of a size: one number stands for both.
local function sides(name, size)
  local s = list(size)
  for _, n in ipairs(s) do
    if type(n) ~= "number" or n ~= math.floor(n) or n < 1 then
      error(("%s: size is a number of pixels, or { height, width }; got %s"):format(name, options.literal(size)), 0)
    end
  end
  if #s < 1 or #s > 2 then
    error(("%s: size is one number, or { height, width }; got %s"):format(name, options.literal(size)), 0)
  end
  return s[1], s[2]
end

-- A list of numbers from one number or a list.
local function numbers(name, what, value)
  local all = list(value)
  for i = 1, math.max(1, #all) do
    local n = all[i]
    if type(n) ~= "number" or n ~= n or math.abs(n) == math.huge then
      error(("%s: %s is a number, or a list with one for each channel; got %s"):format(name, what,
        options.literal(value)), 0)
    end
  end
  return all
end

local function normal(opt)
  local mean, std = numbers("Normalize", "mean", opt.mean), numbers("Normalize", "std", opt.std)
  if #mean ~= #std then
    error(("Normalize: mean has %d number%s and std %d; give as many of both"):format(#mean, #mean > 1 and "s" or "",
      #std), 0)
  end
  for _, s in ipairs(std) do
    if s <= 0 then error(("Normalize: std %g must be above 0"):format(s), 0) end
  end
  return { kind = "normalize", mean = mean, std = std }
end

define("Normalize", {
  mean = { type = { "number", "list" },
    doc = "the mean that is subtracted from values from 0 to 1: one number, or a list with one for each channel" },
  std = { type = { "number", "list" },
    doc = "the standard deviation by which the result is divided: one number, or as many as means" },
}, normal)

define("RandomCrop", {
  size = { type = { "integer", "list" }, doc = "the size of the result in pixels: one number, or { height, width }" },
  padding = { type = "integer", min = 0, default = 0, doc = "the number of zeros added on each side before the crop" },
}, function(opt)
  local height, width = sides("RandomCrop", opt.size)
  return { kind = "crop", height = height, width = width or height, padding = opt.padding }
end)

define("CenterCrop", {
  size = { type = { "integer", "list" },
    doc = "the size of the result in pixels: one number, or { height, width }; zeros surround a smaller image" },
}, function(opt)
  local height, width = sides("CenterCrop", opt.size)
  return { kind = "center_crop", height = height, width = width or height }
end)

define("Resize", {
  size = { type = { "integer", "list" },
    doc = "the size of the result in pixels: { height, width }, or one number, that of the shorter side; the longer "
      .. "one keeps its ratio to it, rounded down" },
}, function(opt)
  local height, width = sides("Resize", opt.size)
  return { kind = "resize", height = height, width = width or 0 }
end)

-- Two numbers above 0 and up to `highest`, the smaller first.
local function range(name, what, value, highest)
  local least, most = value[1], value[2]
  if #value ~= 2 or type(least) ~= "number" or type(most) ~= "number" then
    error(("%s: %s is { least, most }; got %s"):format(name, what, options.literal(value)), 0)
  end
  if not (least > 0 and least <= most and most <= highest and most < math.huge) then
    error(("%s: %s is { least, most }, numbers above 0%s, the smaller first; got %s"):format(name, what,
      highest == 1 and " and up to 1" or "", options.literal(value)), 0)
  end
  return { least, most }
end

define("RandomResizedCrop", {
  size = { type = { "integer", "list" }, doc = "the size of the result in pixels: one number, or { height, width }" },
  scale = { type = "list", default = { 0.08, 1 },
    doc = "{ least, most }: the area of the part that is cut out and resized, as a fraction of the image's" },
  ratio = { type = "list", default = { 3 / 4, 4 / 3 }, doc = "{ least, most }: width / height of that part" },
}, function(opt)
  local height, width = sides("RandomResizedCrop", opt.size)
  return { kind = "resized_crop", height = height, width = width or height,
           scale = range("RandomResizedCrop", "scale", opt.scale, 1),
           ratio = range("RandomResizedCrop", "ratio", opt.ratio, math.huge) }
end)

local function amount(what)
  return { type = "number", min = 0, default = 0,
    doc = ("how much the %s changes: a factor is drawn from 1 - this (at least 0) to 1 + this"):format(what) }
end

define("ColorJitter", {
  brightness = amount "brightness", contrast = amount "contrast", saturation = amount "saturation",
  hue = { type = "number", min = 0, max = 0.5, default = 0,
    doc = "how much the hue changes: an angle is drawn from minus this to this, in turns of the circle of colours" },
}, function(opt)
  return { kind = "jitter", amount = { opt.brightness, opt.contrast, opt.saturation, opt.hue } }
end)

define("RandomHorizontalFlip", {
  p = { type = "number", min = 0, max = 1, default = 0.5, doc = "the probability with which an image is flipped" },
}, function(opt) return { kind = "flip", probability = opt.p } end)

-- In the order of host/image/augment.h.
local augments = { "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color",
  "Contrast", "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize" }

-- The set of operations of a list, bit by bit.
local function set_of(names)
  local set, bits = {}, 0
  for _, name in ipairs(names) do set[name] = true end
  for i, name in ipairs(augments) do
    if set[name] then bits, set[name] = bits + 2 ^ (i - 1), nil end
  end
  local wrong = next(set)
  if wrong ~= nil then
    error(("RandAugment: there is no operation %s%s"):format(options.literal(wrong),
      type(wrong) == "string" and options.hint(wrong, augments) or ""), 0)
  end
  if bits == 0 then error("RandAugment: among is an empty list", 0) end
  return bits
end

define("RandAugment", {
  ops = { type = "integer", min = 0, max = 64, default = 2, doc = "how many operations follow one another" },
  magnitude = { type = "number", min = 0, default = 9, doc = "how strong they are, from 0 to bins - 1" },
  bins = { type = "integer", min = 2, max = 1e6, default = 31, doc = "the number of magnitudes" },
  among = { type = "list", default = augments, doc = "the list of the operations that are drawn from" },
}, function(opt)
  if opt.magnitude > opt.bins - 1 then
    error(("RandAugment: magnitude is %g, and bins is %d: it goes up to %d"):format(opt.magnitude, opt.bins,
      opt.bins - 1), 0)
  end
  return { kind = "rand_augment", ops = opt.ops, strength = opt.magnitude / (opt.bins - 1), among = set_of(opt.among) }
end)

local native_transform = require "ganymede.data.native_transform"
define("NativeTransform", native_transform.options, native_transform.native)

-- ---------------------------------------------------------------- mixing samples: host/data/blend.h

local function define_blend(name, kind, alpha, doc)
  define(name, {
    alpha = { type = "number", above = 0, max = 1e6, default = alpha,
      doc = "the share of the sample is drawn from Beta(alpha, alpha): small ones give shares near 0 and 1" },
    p = { type = "number", min = 0, max = 1, default = 1, doc = doc },
  }, function(opt) return { kind = kind, alpha = opt.alpha, probability = opt.p } end, "blend")
end

define_blend("MixUp", "mixup", 0.2, "the probability with which a sample is mixed; of MixUp and CutMix the first whose "
  .. "chance comes is taken")
define_blend("CutMix", "cutmix", 1, "the probability with which a part of another sample is put in; of MixUp and "
  .. "CutMix the first whose chance comes is taken")

return transforms
