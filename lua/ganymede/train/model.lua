--- The whole model of a run: what its key `model` describes, with the weights of `init_from`, the adapters of `lora`,
-- what `freeze` names, and products of `float8`. In this order, and before the model is split into stages.
-- @module ganymede.train.model
local float8 = require "ganymede.nn.float8"
local lora = require "ganymede.nn.lora"
local registry = require "ganymede.base.registry"
local setting = require "ganymede.config.tuning_setting"

local M = {}

--- The settings of this file.
M.names = { "init_from", "lora", "freeze", "float8" }

-- The adapters of the setting `lora`: those of a folder, or new ones.
local function adapt(model, wanted)
  local problem = setting.problem(wanted)
  if problem then error("lora " .. problem, 0) end
  if not wanted.path then return lora.lora(model, wanted) end
  require("ganymede.hub.adapters").load_adapter(model, wanted.path, { dropout = wanted.dropout, train = wanted.train })
end

--- Applies the settings to a whole model. say(line): receives the report of init_from; optional.
function M.prepare(model, settings, say)
  local from = settings.init_from
  if from then
    local initial = require "ganymede.hub.initial"
    local report = initial.init_from(model, type(from) == "string" and { path = from } or from)
    for _, line in ipairs(say and initial.lines(report, 8) or {}) do say(line) end
  end
  if settings.lora then adapt(model, settings.lora) end
  if settings.freeze then lora.freeze(model, settings.freeze) end
  if settings.float8 then float8.float8(model, settings.float8 ~= true and settings.float8 or nil) end
  return model
end

--- Builds the whole model of a config. The random numbers of its parameters come later.
function M.build(config, say) return M.prepare(registry.models:build(config.model), config, say) end

return M
