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
local arrays = require "ganymede.hub.arrays"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local families = require "ganymede.hub.families"
local few_bits = require "ganymede.nn.few_bits"
local init = require "ganymede.nn.initializers"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local write = require "ganymede.hub.write"

local M = {}

M.options = {
  path = { type = "string", doc = "the folder with config.json and model.safetensors, or its index" },
  ignore = { type = "table", default = {},
    doc = "keys of config.json that are known to change no number, though this program does not know them" },
  strict = { type = "boolean", default = true,
    doc = "whether arrays that are missing, or that belong to nothing in the model, are an error; otherwise what is "
      .. "missing keeps its initial numbers" },
  dropout = { type = "number", optional = true, min = 0, below = 1,
    doc = "the dropout of the model, in place of that of config.json" },
  quantize = { type = { "string", "table" }, optional = true,
    doc = "round weights as they are read: int8, int4, or a table of bits, group and match (gm.quantize)" },
}

local function read_config(folder)
  local path = folder .. "/config.json"
  local text = machine.read(path) or failure(2, "%s: cannot be read; the folder of a model has it", path)
  local values = json.decode(text, path, true)
  if type(values) ~= "table" then failure(2, "%s: is no object", path) end
  return values, path
end

-- The first names of a list, for a message.
local function some(list)
  table.sort(list)
  local shown = { unpack(list, 1, 5) }
  return table.concat(shown, ", ") .. (#list > 5 and (" and %d more"):format(#list - 5) or "")
end

local function is_ignored(family, name)
  for _, pattern in ipairs(family.ignored or {}) do
    if name:find(pattern) then return true end
  end
  return false
end

-- Refuses files that lack something, or have something that belongs to nothing. -> set of parameters that are there
local function check_names(family, entries, file, opt)
  local wanted, missing, left, there = {}, {}, {}, {}
  for _, entry in ipairs(entries) do
    there[entry.parameter] = true
    for _, piece in ipairs(entry.pieces) do
      if not wanted[piece.name] and not file:has(piece.name) then missing[#missing + 1] = piece.name end
      wanted[piece.name] = true
      if not file:has(piece.name) then there[entry.parameter] = nil end
    end
  end
  for _, name in ipairs(file:names()) do
    if not wanted[name] and not is_ignored(family, name) then left[#left + 1] = name end
  end
  -- a head that is tied is stored all the same by some
  if #left == 1 and left[1] == "lm_head.weight" then left = {} end
  if opt.strict and #missing > 0 then failure(2, "%s: lacks %s", file.path, some(missing)) end
  if opt.strict and #left > 0 then
    failure(2, "%s: has %s, which belongs to nothing in the model; strict = false leaves it out", file.path, some(left))
  end
  return there
end

-- Makes each parameter with the numbers of the file.
local function read_when_made(model, entries, there, file)
  local by_name = {}
  for _, p in ipairs(model:declared()) do by_name[p.name] = p.entry end
  for _, entry in ipairs(entries) do
    local p = by_name[entry.parameter]
    if p and there[entry.parameter] then
      local initializer = init.zeros()(1, 1)
      function initializer.finish(t)
        if core.device().name ~= "meta" then file:read_pieces(t:detach(), entry.pieces) end
      end
      p.initializer = initializer
    end
  end
end

local function tokens_that_end(folder, config)
  local text = machine.read(folder .. "/generation_config.json")
  local generation = text and json.decode(text, folder .. "/generation_config.json", true) or {}
  local ids = generation.eos_token_id
  if ids == nil or ids == json.null then ids = config.eos_token_id end
  if ids == nil or ids == json.null then return {} end
  return type(ids) == "table" and ids or { ids }
end

local function build(opt)
  local values, path = read_config(opt.path)
  local family, found = families.read(values, path, opt.ignore)
  if opt.dropout then found.dropout, found.attention_dropout = opt.dropout, opt.dropout end
  local model = registry.models:get(family.model)(found)
  local file = arrays.open(opt.path)
  local entries = family.entries(found, function(name) return file:has(name) end)
  read_when_made(model, entries, check_names(family, entries, file, opt), file)
  if opt.quantize then few_bits.mark(model, few_bits.given("quantize", opt.quantize)) end
  model.source = { path = opt.path, file = file, stop_tokens = tokens_that_end(opt.path, values) }
  return model
end

--- Opens a model that others have trained.
-- @param path the folder of the model
-- @param options what to be strict about
-- @return the model; its field `source` has the folder's `path` and `stop_tokens`, the tokens that end a text
-- @error config.json or an array says what this program does not have, or is damaged
-- @see gm.generate, gm.lora, gm.quantize, gm.open_arrays, gm.export_model
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
}, M.pretrained)

-- ---------------------------------------------------------------- export

-- Arrays of entries: list of { name, dtype, shape } in order, from the shapes of parameters and their pieces.
local function arrays_of(entries, shapes, dtype)
  local list, at = {}, {}
  for _, entry in ipairs(entries) do
    local shape = shapes[entry.parameter]
    for _, piece in ipairs(entry.pieces) do
      local size, order = piece.size or shape, piece.order
      if piece.transpose then order = { 2, 1 } end
      local known = at[piece.name]
      if not known then
        known = { name = piece.name, dtype = dtype, shape = {} }
        at[piece.name], list[#list + 1] = known, known
      end
      for d = 1, #shape do
        local e = order and order[d] or d
        known.shape[e] = math.max(known.shape[e] or 0, (piece.offset and piece.offset[e] or 1) - 1 + size[d])
      end
    end
  end
  return list
end

--- Writes a model in Hugging Face's format: config.json and model.safetensors. Collective.
-- @param model a model of a family that is known, such as gm.models.Llama; adapters are merged first (gm.merge_lora)
-- @param folder where the files go; it is made
-- @param options the type of the numbers, and how large a file may be
-- @return folder
-- @error the model's class belongs to no family, or has adapters
-- @see gm.pretrained, gm.save_arrays
-- @example
--   model = gm.models.GPT { vocabulary = 16, sequence_length = 8, width = 8, depth = 1, heads = 2 }
--   out = os.tmpname() .. ".model"
--   gm.open_arrays(gm.export_model(model, out)):has "transformer.wte.weight" --> true
--   os.execute("rm -r " .. out)
function M.export_model(model, folder, opt)
  local family = families.of_class(model.name)
    or failure(2, "export_model: a model of class %s belongs to no family that is known", tostring(model.name))
  local tensors, entries, dtype = {}, {}, opt.dtype
  for _, p in ipairs(model:named_parameters()) do tensors[p.name] = p.tensor end
  local shapes = {}
  for _, p in ipairs(model:declared()) do
    shapes[p.name] = p.shape
    dtype = dtype or tensors[p.name] and tensors[p.name]:dtype()
    if p.entry.few then
      failure(2, "export_model: %s has %d bits (gm.quantize); export the model before it is rounded", p.name,
        p.entry.few.bits)
    end
    if p.name:find "%.lora%." then failure(2, "export_model: %s is an adapter; call gm.merge_lora first", p.name) end
  end
  local own = family.entries(model.opt)
  for i, entry in ipairs(own) do
    entries[i] = { tensor = tensors[entry.parameter], shape = shapes[entry.parameter], dtype = dtype,
      pieces = entry.pieces }
  end
  if ranks.is_first() then
    core.make_folders(folder)
    local config = family.config(model.opt)
    config.dtype = ({ f32 = "float32", f64 = "float64", bf16 = "bfloat16", f16 = "float16" })[dtype]
    core.write_whole(folder .. "/config.json", json.encode(config) .. "\n")
  end
  write.all(folder .. "/model.safetensors", arrays_of(own, shapes, dtype), entries,
    { max_file_bytes = opt.max_file_bytes, metadata = { format = "pt" } })
  return folder
end

M.export_model = signature.declare("gm.export_model", "model table, folder string, options options?", {
  dtype = write.save_options.dtype, max_file_bytes = write.save_options.max_file_bytes,
}, M.export_model)

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
