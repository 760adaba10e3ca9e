--- The settings `lora` and `init_from` of a recipe: their keys, and what is wrong with one.
--
--     lora = { rank = 8, match = "qkv$" }                  -- new adapters: the options of gm.lora
--     lora = { path = "tuned", dropout = 0.1 }             -- those of a folder: gm.load_adapter
--     init_from = "runs/first"                             -- or { path = ..., match = ..., strict = false }
--
-- ganymede.train.model applies them.
-- @module ganymede.config.tuning_setting
local lora = require "ganymede.nn.lora"

local setting = {}

setting.init_from = {
  path = { type = "string",
    doc = "a checkpoint, the folder of a run or of its checkpoints (the newest counts), or a folder in Hugging Face's "
      .. "format" },
  match = { type = { "string", "list" }, optional = true,
    doc = "a Lua pattern, or a list of them, over the names of the parameters that are loaded; default: all" },
  strict = { type = "boolean", default = true,
    doc = "whether it is an error if a parameter is missing there or has another shape, or if something there belongs "
      .. "to nothing; otherwise what cannot be loaded keeps its initial numbers, and is said" },
}

local of_files = { path = true, dropout = true, train = true }

-- Without defaults, so that what was given can be told from what was not: gm.lora fills them in.
setting.lora = {
  path = { type = "string", optional = true,
    doc = "the folder of adapters to begin from: one of PEFT, or a checkpoint; only dropout and train go with it" },
}
for name, entry in pairs(lora.options) do
  local own = {}
  for key, value in pairs(entry) do own[key] = value end
  if own.default ~= nil then own.initial, own.default = tostring(own.default), nil end
  own.optional = true
  setting.lora[name] = own
end

--- What is wrong with a value of `lora`, or nil.
function setting.problem(value)
  if not value.path then return nil end
  for key in pairs(value) do
    if not of_files[key] then
      return ("has path and %s: the files in the folder say it; give dropout or train, or leave path out"):format(
        tostring(key))
    end
  end
end

return setting
