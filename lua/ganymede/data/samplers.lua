--- Samplers choose the order of an epoch. RandomSampler and SequentialSampler run in C without a list of all samples. A
-- sampler of your own is a table with order(self, epoch, length), which returns a list of samples from 1; it may repeat
-- some and leave out others, as many in each epoch. The order must depend on the epoch alone: otherwise a resumed run
-- reads other samples. Ranks compare what it gives them.
--
-- DataParallelSampler is Colossal-AI's name for shuffle, seed and drop_last together. The trap: a sampler does not
-- divide samples over ranks. There is one order for the whole job, a batch holds batch_size samples of it over all
-- ranks, and the loader gives each rank its block of every batch. So the samples of a step are the same on any number
-- of ranks, and none is repeated to give ranks equal numbers.
-- @module ganymede.data.samplers
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local samplers = {}

-- Defines a class; settings(opt) returns what the sampler stands for: shuffle, and options of the loader (seed,
-- drop_last).
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
  shuffle = { type = "boolean", default = false,
    doc = "whether every epoch has a new order of the samples, drawn from the seed" },
  seed = { type = "integer", min = 0, max = 2 ^ 53, optional = true,
    doc = "the seed of the order; default: that of the loader" },
  drop_last = { type = "boolean", optional = true,
    doc = "whether an incomplete last batch of an epoch is left out; default: as the loader says" },
}, function(opt) return { shuffle = opt.shuffle, seed = opt.seed, drop_last = opt.drop_last } end)

return samplers
