--- Samplers choose the order of an epoch. RandomSampler and SequentialSampler run in C without a list of
-- all samples; one of your own is a table with order(self, epoch, length) -> list of samples from 1, which
-- may repeat some and leave out others. The order must depend on the epoch alone, or resuming is off.
-- @module ganymede.data.samplers
local options = require "ganymede.options"
local registry = require "ganymede.registry"

local samplers = {}

local function define(name, shuffle)
  local class = setmetatable({ name = name, options = {}, is_class = true }, {
    __call = function(_, given)
      options.check(name, {}, given, 2)
      return { name = name, shuffle = shuffle }
    end,
  })
  samplers[name] = class
  registry.samplers:register(name, class)
end

define("RandomSampler", true)
define("SequentialSampler", false)

return samplers
