--- The model of a recipe: what its key `model` describes, with the adapters of its key `lora`.
-- @module ganymede.config.model
local lora = require "ganymede.nn.lora"
local registry = require "ganymede.base.registry"

--- Builds the whole model of a config, before it is split into stages. The random numbers of its parameters come later.
return function(config)
  local model = registry.models:build(config.model)
  if config.lora then lora.lora(model, config.lora) end
  return model
end
