--- Data: datasets, transforms, samplers, and the loader that makes batches of them.
--
--     local data = require "ganymede.data"
--     local loader = data.loader { dataset = { type = "FashionMNIST" }, batch_size = 128, shuffle = true }
--     loader:set_epoch(1)
--     for x, y in loader:batches() do ... end      -- x (128, 1, 28, 28), y (128) i64
--
-- The order of an epoch and every random transform are functions of (seed, epoch, sample). They are the same on every
-- machine, for any prefetch, and after any seek. A dataset of your own is { length = n, get = function(i) return x, y
-- end }; i counts from 1, and x and y are numbers, nested lists or tensors. A dataset whose samples differ in length
-- has width_of(list of samples) besides, and get(i, width) then gives x and y of that width.
-- @module ganymede.data
local Loader = require "ganymede.data.loader"
local core = require "ganymede.core"
local datasets = require "ganymede.data.datasets"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local data = {}
for name, value in pairs(datasets) do data[name] = value end
for _, module in ipairs { "images", "tables", "clicks", "mix", "chat", "transforms", "samplers" } do
  for name, class in pairs(require("ganymede.data." .. module)) do data[name] = class end
end

data.loader_options = {
  dataset = { type = { "table", "string", "function" },
    doc = "the dataset: { type = NAME, and its options }, a dataset object, or one of your own" },
  batch_size = { type = "integer", min = 1, max = 2 ^ 31 - 1, default = 32,
    doc = "the number of samples in a batch, of all ranks together" },
  shuffle = { type = "boolean", default = false,
    doc = "whether every epoch has a new order of the samples, drawn from the seed" },
  seed = { type = "integer", min = 0, max = 2 ^ 53, optional = true,
    doc = "the seed of the order; default: the seed of the run" },
  drop_last = { type = "boolean", default = false, doc = "whether an incomplete last batch of an epoch is left out" },
  transforms = { type = "list", default = {},
    doc = "the list of transforms that samples go through, in order; functions of your own come last" },
  sampler = { type = { "table", "string" }, optional = true,
    doc = "the sampler, which chooses the samples of an epoch in place of shuffle" },
  prefetch = { type = "integer", min = 0, max = 16, default = 2,
    doc = "the number of batches that are prepared ahead" },
  threads = { type = "integer", min = 1, max = 64, default = 1,
    doc = "the number of threads that read and transform samples; batches do not depend on it" },
  dtype = { type = "string", one_of = require("ganymede.base.dtypes").floats, optional = true,
    doc = "the element type of x; default: gm.default_dtype()" },
}

--- Returns the dataset that a config, a name, a function or an object stands for.
function data.dataset(given) return registry.datasets:build(given) end

local told = false

-- Tells the user, once in a process, that transforms in Lua take time on the main thread.
local function tell_main_thread(what)
  if told or core.rank() ~= 0 then return end
  told = true
  log.info("data: %s runs on the main thread, between the steps", what)
end

-- Returns the lists of native descriptions, of Lua functions, and of ways to mix samples, from configs, classes and
-- functions in order, and whether one of them normalizes.
local function split_transforms(list)
  local native, own, blends, normalized = {}, {}, {}, false
  for k, given in ipairs(list) do
    local t = type(given) == "function" and given or registry.transforms:build(given)
    if type(t) == "table" and t.blend then
      if #own > 0 then
        error(("data.loader: transform %d, %s, mixes samples before functions in Lua see them: put it before those")
          :format(k, t.name), 0)
      end
      blends[#blends + 1] = t.blend
    elseif type(t) == "table" and t.native then
      if #own > 0 then
        error(("data.loader: transform %d, %s, runs on the prefetch thread: put it before the functions in Lua"):format(
          k, t.name), 0)
      end
      if #blends > 0 then
        error(("data.loader: transform %d, %s, changes samples before they are mixed: put it before %s"):format(k,
          t.name, blends[1].kind == "mixup" and "MixUp" or "CutMix"), 0)
      end
      native[#native + 1] = t.native
      normalized = normalized or t.native.kind == "normalize"
    else
      own[#own + 1] = t
    end
  end
  return native, own, blends, normalized
end

local function choose_sampler(opt, given)
  if not opt.sampler then return end
  if given.shuffle ~= nil then error("data.loader: give shuffle or sampler, not both", 0) end
  opt.sampler = registry.samplers:build(opt.sampler)
  if opt.sampler.order then return end
  opt.shuffle = opt.sampler.shuffle
  for _, key in ipairs { "seed", "drop_last" } do
    if opt.sampler[key] ~= nil then opt[key] = opt.sampler[key] end
  end
end

--- Makes a loader; data.loader_options lists its options. loader:length() is the number of batches in an epoch,
-- :set_epoch(e) begins an epoch, :seek(batch from 0) goes to a batch, :next() returns x and y, or nil at the end,
-- :batches() returns an iterator, :samples() the number of samples in the last batch; :close() ends the loader.
function data.loader(given)
  local opt = options.check("data.loader", data.loader_options, given, 2)
  opt.dataset = data.dataset(opt.dataset)
  opt.seed = opt.seed or core.seed()
  choose_sampler(opt, given)
  local native, own, blends, normalized = split_transforms(opt.transforms)
  local norm = opt.dataset.normalization
  if norm and not normalized then native[#native + 1] = { kind = "normalize", mean = norm.mean, std = norm.std } end
  if not opt.dataset.handle then
    if #native + #blends > 0 then
      error("data.loader: built-in transforms need a built-in dataset; a dataset written in Lua must transform its "
        .. "samples itself", 0)
    end
    tell_main_thread "a dataset written in Lua"
  elseif #own > 0 then
    tell_main_thread "a transform written in Lua"
  end
  return Loader.new(opt, native, own, blends)
end

--- Returns the loader of data.train or data.test of a recipe's settings; nil if they have none. which: "train" or
-- "test".
function data.of_config(config, which)
  local c = config.data or {}
  local dataset = c[which]
  if not dataset then return nil end
  local training = which == "train"
  return data.loader {
    dataset = dataset, seed = config.seed, prefetch = c.prefetch, threads = c.threads,
    batch_size = not training and c.test_batch_size or c.batch_size,
    sampler = training and c.sampler or nil,
    shuffle = training and not c.sampler and c.shuffle ~= false or nil, drop_last = training and c.drop_last or nil,
    transforms = training and c.transforms or not training and c.test_transforms or nil,
  }
end

data.loader = failure.blaming(data.loader)
return missing.guard("data", signature.export("data", data, nil, nil, { loader = data.loader_options }))
