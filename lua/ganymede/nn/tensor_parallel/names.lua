--- Names with a mode for classes that are the same in all modes: layers made of layers, losses, Accuracy; and the two
-- halves of a pair of Linears in 1D. Each name is the plain class, and an error on a mesh of another mode.
-- @module ganymede.nn.tensor_parallel.names
local losses = require "ganymede.nn.losses"
local module = require "ganymede.nn.module"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local layers = {
  require "ganymede.nn.attention", require "ganymede.nn.mlp", require "ganymede.nn.transformer",
  require "ganymede.nn.accuracy",
}

for _, mode in ipairs { "1d", "2d", "2.5d", "3d" } do
  for _, base in ipairs(layers) do tensor_parallel.name(mode, base, base.name) end
  for _, kind in ipairs { "", "VocabParallel" } do
    tensor_parallel.name(mode, losses.CrossEntropyLoss, kind .. "CrossEntropyLoss", "losses")
  end
end

-- The halves of a pair in 1D. With gather_output the first one gathers its result, as a single Linear does.
local Linear1D = tensor_parallel.layers.Linear1D

local function half(name, partition, more)
  local class = module.class(name, Linear1D)
  class.options = more
  for key, option in pairs(Linear1D.options) do class.options[key] = option end
  function class:build(opt)
    opt.partition = not opt.gather_output and partition or nil
    return Linear1D.build(self, opt)
  end
  tensor_parallel.layers[name] = class
end

half("Linear1D_Col", "column", {
  gather_output = { type = "boolean", default = false, doc = "whether every rank gets the whole of y" },
})
half("Linear1D_Row", "row", {})
