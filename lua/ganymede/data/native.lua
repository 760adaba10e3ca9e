--- What datasets that are read in C share: their methods, and how a class of them is defined.
--
-- A dataset has length(), describe() and get(i [, epoch]), which returns raw x and y of sample i, from 1. If its values
-- should be normalized, it has `normalization` = { mean, std }; the loader applies it after the other transforms.
-- Files are checked when the dataset is opened, labels, tokens and pictures when they are read.
-- @module ganymede.data.native
local checked = require "ganymede.data.failing"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local native = {}

local Dataset = {}
Dataset.__index = Dataset

--- Returns the number of samples.
function Dataset:length() return core.dataset_describe(self.handle).length end

-- How many samples were found damaged and left out, those of the parts of a mix included.
local function damaged_in(dataset)
  local n = core.dataset_damage_count(dataset.handle)
  for _, part in ipairs(dataset.parts or {}) do n = n + damaged_in(part) end
  return n
end

--- Returns { name, length, classes, x_dtype, x_shape, y_shape, ... }, which describe raw samples. A size that differs
-- from sample to sample is -1.
function Dataset:describe()
  local about = core.dataset_describe(self.handle)
  about.name, about.class_names, about.normalization = self.name, self.class_names, self.normalization
  about.left_out, about.columns, about.counts = self.left_out, self.columns, self.counts
  if self.skips then about.damaged = damaged_in(self) end
  return about
end

--- Returns a checksum of all samples, or of some of them if there are many.
function Dataset:checksum() return checked(nil, core.dataset_checksum(self.handle)) end

--- Returns raw x and y of sample i, from 1, as tensors. Only TextPairs depends on the epoch (from 0, the default).
function Dataset:get(i, epoch)
  local n = self:length()
  if type(i) ~= "number" or i < 1 or i > n then
    error(("%s:get(i): i is a sample from 1 to %d; got %s"):format(self.name, n, options.brief(i)), 2)
  end
  return checked(nil, core.dataset_get(self.handle, i - 1, epoch))
end

function Dataset:__tostring() return self.name .. options.show(self.class_options, self.opt) end

--- Defines a class of datasets; build(opt) returns the handle and other fields.
function native.define(name, spec, build)
  local class = setmetatable({ name = name, options = spec, is_class = true }, {
    __call = signature.constructor("options table?", failure.blaming(function(_, given)
      local opt = options.check(name, spec, given, 2)
      local handle, fields = build(opt)
      local self = setmetatable(fields or {}, Dataset)
      self.name, self.opt, self.handle, self.class_options = name, opt, handle, spec
      return self
    end)),
  })
  registry.datasets:register(name, class)
  return class
end

signature.export("dataset", Dataset, ":")
return native
