--- Samplers choose the order of an epoch. RandomSampler and SequentialSampler run in C without a list of
-- all samples; one of your own is a table with order(self, epoch, length) -> list of samples from 1, which
-- may repeat some and leave out others. The order must depend on the epoch alone, or resuming is off.
--
-- DataParallelSampler is Colossal-AI's spelling: shuffle, seed and drop_last in one place. The trap: no sampler deals
-- samples out to ranks. The order is one for the whole job, a batch holds batch_size samples of it over all ranks, and
-- the loader gives each rank its block of every batch; so the samples of a step are the same on any number of ranks,
-- and none is repeated to make ranks even.
-- @module ganymede.data.samplers
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local samplers = {}

-- settings(opt) -> what the sampler stands for: shuffle, and loader options that it brings (seed, drop_last)
local function define(name, class_options, settings)
  local class = setmetatable({ name = name, options = class_options, is_class = true }, {
    __call = signature.constructor("options table?", function(_, given)
      local sampler = settings(options.check(name, class_options, given, 2))
      sampler.name = name
      return sampler
    end),
  })
  samplers[name] = class
  registry.samplers:register(name, class)
end

define("RandomSampler", {}, function() return { shuffle = true } end)
define("SequentialSampler", {}, function() return { shuffle = false } end)

define("DataParallelSampler", {
  shuffle = { type = "boolean", default = false, doc = "a new order every epoch, from the seed?" },
  seed = { type = "integer", min = 0, max = 2 ^ 53, optional = true, doc = "of the order; default: the loader's" },
  drop_last = { type = "boolean", optional = true, doc = "leave out an incomplete last batch? default: the loader's" },
}, function(opt) return { shuffle = opt.shuffle, seed = opt.seed, drop_last = opt.drop_last } end)

return samplers
