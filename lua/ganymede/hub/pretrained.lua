--- Models that others have trained: a folder of Hugging Face's format becomes a model of ours, and back.
--
--     local model = gm.pretrained "SmolLM2-135M"
--     model = { type = "Pretrained", path = "SmolLM2-135M" }           -- the same, in a recipe
--     gm.export_model(model, "tuned")                                  -- config.json and safetensors
--
-- Numbers are read when a parameter is made, in whatever layout this job gives it: each rank reads the bytes of its own
-- block, a stage those of its own sections, and no rank holds the whole model. What a config.json says and this program
-- does not have is refused. families/ has what is known of each family.
-- The trap: the folder must stay until all parameters were made (model:materialize, or the first use).
-- @module ganymede.hub.pretrained
local core = require "ganymede.core"
local export = require "ganymede.hub.export"
local failure = require "ganymede.base.failure"
local few_bits = require "ganymede.nn.few_bits"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local sources = require "ganymede.hub.sources"
local values = require "ganymede.hub.values"
local write = require "ganymede.hub.write"

local M = {}

M.options = {
  path = { type = "string",
    doc = "the folder with config.json and model.safetensors, or its index; a GGUF file; or a checkpoint of a run" },
  ignore = { type = "list", default = {},
    doc = "keys of config.json, or of a GGUF file, that are known to change no number, though this program does not "
      .. "know them" },
  strict = { type = "boolean", default = true,
    doc = "whether arrays that are missing, or that belong to nothing in the model, are an error; otherwise what is "
      .. "missing keeps its initial numbers" },
  dropout = { type = "number", optional = true, min = 0, below = 1,
    doc = "the dropouts of the model, in place of those of config.json" },
  quantize = { type = { "string", "table" }, optional = true,
    doc = "round weights as they are read: int8, int4, or a table of bits, group and match (gm.quantize)" },
}

-- Makes each parameter with the numbers of the source.
local function read_when_made(model, source)
  local readers = {}
  for _, p in ipairs(model:declared()) do
    if source:has(p.name) then readers[p.name] = function(t) source:read(p.name, t) end end
  end
  values.set(model, readers)
end

-- Buffers: those of a checkpoint, and those that a family names. They are there already.
local function read_buffers(model, source)
  if core.device().backend == "meta" then return end
  for _, entry in ipairs(model:state(true)) do source:read(entry.name, entry.tensor) end
end

local function build(opt)
  local source = sources.open(opt.path, opt)
  if opt.dropout then
    local has = registry.models:get(source.class).options
    source.options.dropout = opt.dropout
    for _, name in ipairs { "attention_dropout", "classifier_dropout" } do
      if has[name] and not (has[name].optional and source.options[name] == nil) then
        source.options[name] = opt.dropout
      end
    end
  end
  local model = sources.model(source)
  source:check(model)
  read_when_made(model, source)
  read_buffers(model, source)
  if opt.quantize then few_bits.mark(model, few_bits.given("quantize", opt.quantize)) end
  model.source = source
  return model
end

--- Opens a model that others have trained.
-- @param path the folder of the model, a GGUF file, or a checkpoint
-- @param options what to be strict about
-- @return the model; its field `source` has the folder's `path` and `stop_tokens`, the tokens that end a text
-- @error config.json or an array says what this program does not have, or is damaged
-- @see gm.generate, gm.lora, gm.load_adapter, gm.quantize, gm.open_arrays, gm.export_model
-- @example
--   model = gm.pretrained "spec/golden/hub/llama"
--   model(gm.zeros({ 1, 4 }, { dtype = "i64" })):shape() --> { 1, 4, 29 }
function M.pretrained(path, opt)
  return build { path = path, ignore = opt.ignore, strict = opt.strict, dropout = opt.dropout,
    quantize = opt.quantize }
end

M.pretrained = signature.declare("gm.pretrained", "path string, options options?", {
  ignore = M.options.ignore, strict = M.options.strict, dropout = M.options.dropout,
  quantize = M.options.quantize,
}, failure.blaming(M.pretrained))

--- Writes a model in Hugging Face's format: config.json, model.safetensors, and the files of the tokenizer that it came
-- with. Collective.
-- @param model a model of a family that is known, such as gm.models.Llama; adapters are merged first (gm.merge_lora)
-- @param folder where the files go; it is made
-- @param options the type of the numbers, and how large a file may be
-- @return folder
-- @error the model's class belongs to no family, has adapters, or options that the format does not have
-- @see gm.pretrained, gm.save_arrays
-- @example
--   model = gm.models.GPT { vocabulary = 16, sequence_length = 8, width = 8, depth = 1, heads = 2 }
--   out = os.tmpname() .. ".model"
--   gm.open_arrays(gm.export_model(model, out)):has "transformer.wte.weight" --> true
--   os.execute("rm -r " .. out)
function M.export_model(model, folder, opt) return export.model(model, folder, opt) end

M.export_model = signature.declare("gm.export_model", "model table, folder string, options options?", {
  dtype = write.save_options.dtype, max_file_bytes = write.save_options.max_file_bytes,
}, failure.blaming(M.export_model))

registry.models:register("Pretrained", setmetatable({ name = "Pretrained", options = M.options }, {
  __call = function(_, given, ...)
    for i = 1, select("#", ...) do
      local more = select(i, ...)
      if more ~= nil then error("Pretrained takes one table, and nothing after it; got " .. options.brief(more), 2) end
    end
    return build(options.check("Pretrained", M.options, given, 2))
  end,
}))

return M
