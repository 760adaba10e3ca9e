--- Models of ours in the formats of others: a folder that `transformers` loads, or plain arrays.
--
--     gm.export_model(model, "tuned")                    -- of a model in memory, in any layout; collective
--     export.checkpoint("runs/x", "tuned", {})           -- of a checkpoint; one process, one tensor after the other
--
-- Both write the same: config.json, model.safetensors (several files with an index where it is large), and the files of
-- the tokenizer, copied from where the model came from. What a format has no word for is refused. A checkpoint may be
-- of any mesh, mode and stage: it holds whole tensors by name. Adapters of a checkpoint are added to their weights.
-- The trap: the folder of a model that came from elsewhere must still be there, or be named again (config).
-- @module ganymede.hub.export
local adapter = require "ganymede.nn.adapter"
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local families = require "ganymede.hub.families"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local places = require "ganymede.base.places"
local ranks = require "ganymede.job.ranks"
local sources = require "ganymede.hub.sources"
local write = require "ganymede.hub.write"

local export = {}

-- ---------------------------------------------------------------- what is written beside the arrays

-- Files of a tokenizer, and what says how to generate.
export.copied = { "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
  "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja", "generation_config.json",
  "preprocessor_config.json" }

-- Keys of the config.json that a model came with, which our options do not have.
local kept_keys = { "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id",
  "id2label", "label2id", "initializer_range", "sample_size", "force_upcast", "upcast_attention",
  "pretrained_cfg" }

local names_of_types = { f32 = "float32", f64 = "float64", bf16 = "bfloat16", f16 = "float16" }

--- Copies the files of a tokenizer -> list of their names.
function export.copy_files(from, to)
  local list = {}
  for _, name in ipairs(from and export.copied or {}) do
    local text = machine.read(from .. "/" .. name)
    if text then
      core.write_whole(to .. "/" .. name, text)
      list[#list + 1] = name
    end
  end
  return list
end

-- Numbers that transformers takes only with a point in them, also where they are whole.
local reals = { "attn_logit_softcapping", "final_logit_softcapping", "initializer_range", "layer_norm_eps",
  "layer_norm_epsilon", "rms_norm_eps" }

local function text_of(config)
  local text = json.encode(config)
  for _, key in ipairs(reals) do text = text:gsub(('("%s":%%-?%%d+)([,}])'):format(key), "%1.0%2") end
  return text .. "\n"
end

-- The names of classes are those that the model came with, if it has as many classes as then.
local function keep_labels(config, before)
  local own, names, numbers = config.id2label, before.id2label, {}
  if type(own) ~= "table" or type(names) ~= "table" then return end
  for id in pairs(own) do
    if type(names[id]) ~= "string" then return end
  end
  for id, name in pairs(names) do
    if not own[id] then return end
    numbers[name] = tonumber(id)
  end
  config.id2label, config.label2id = names, numbers
end

-- config: what the family says of the model; source: where it came from, or nil
local function write_config(folder, family, config, source, dtype)
  local before = source and source.config or {}
  for _, key in ipairs(kept_keys) do
    if config[key] == nil then config[key] = before[key] end
  end
  keep_labels(config, before)
  local ends = source and source.stop_tokens or {} -- a GGUF file has them, and no config.json
  if config.eos_token_id == nil and #ends > 0 then config.eos_token_id = json.array(ends) end
  if family.complete then family.complete(config) end
  if not family.untyped then config.dtype = names_of_types[dtype] end
  core.write_whole(folder .. "/config.json", text_of(config))
  return export.copy_files(source and source.files, folder)
end

-- ---------------------------------------------------------------- arrays

local function check_class(class, family)
  if family then return end
  failure(2, "a model of class %s belongs to no family that is known; write plain arrays (--plain, or gm.save_arrays)",
    tostring(class))
end

-- Running numbers are f32, in models of f64 as well as these; counters are f64 (nn.batch_norm).
local function dtype_of_buffer(entry, dtype) return (entry.wide or dtype == "f64") and "f64" or "f32" end

-- family, options, list of { parameter, shape } -> config, arrays, entries without tensors, but for constants. kinds:
-- types of parameters by name, where they are not dtype.
local function described(family, opt, declared, dtype, kinds)
  local shapes = {}
  for _, p in ipairs(declared) do shapes[p.name] = p.shape end
  local config, own, entries = family.config(opt), family.entries(opt), {}
  for i, entry in ipairs(own) do
    local kind = not entry.buffer and kinds[entry.parameter] or nil
    shapes[entry.parameter] = shapes[entry.parameter] or entry.buffer
    entries[i] = { parameter = entry.parameter, shape = shapes[entry.parameter], pieces = entry.pieces,
      buffer = entry.buffer, dtype = entry.buffer and dtype_of_buffer(entry, dtype) or kind or dtype }
    entry.dtype = entry.dtype or kind
  end
  local list = families.arrays(own, shapes, dtype)
  for _, constant in ipairs(family.constants and family.constants(opt) or {}) do
    list[#list + 1] = { name = constant.name, dtype = constant.dtype, shape = constant.shape }
    entries[#entries + 1] = { shape = constant.shape, dtype = constant.dtype, tensor = constant.make,
      pieces = { { name = constant.name } } }
  end
  return config, list, entries
end

local function write_arrays(folder, file, list, entries, max_file_bytes)
  return write.all(folder .. "/" .. (file or "model.safetensors"), list, entries,
    { max_file_bytes = max_file_bytes, metadata = { format = "pt" } })
end

-- ---------------------------------------------------------------- of a model

--- What gm.export_model does (ganymede.hub.pretrained).
function export.model(model, folder, opt)
  local family, tensors, dtype = families.of_model(model), {}, opt.dtype
  check_class(model.name, family)
  for _, p in ipairs(model:named_parameters()) do tensors[p.name] = p.tensor end
  local declared = model:declared()
  for _, p in ipairs(declared) do
    dtype = dtype or tensors[p.name] and tensors[p.name]:dtype()
    if p.entry.few then
      failure(2, "export_model: %s has %d bits (gm.quantize); export the model before it is rounded", p.name,
        p.entry.few.bits)
    end
    if p.name:find "%.lora%." then failure(2, "export_model: %s is an adapter; call gm.merge_lora first", p.name) end
  end
  local config, list, entries = described(family, model.opt, declared, dtype, {})
  for _, e in ipairs(model:state(true)) do tensors[e.name] = e.tensor end
  for _, entry in ipairs(entries) do entry.tensor = entry.tensor or tensors[entry.parameter] end
  if ranks.is_first() then core.make_folders(folder) end
  write_arrays(folder, family.file, list, entries, opt.max_file_bytes)
  ranks.from_first(function() write_config(folder, family, config, model.source, dtype) end)
  return folder
end

-- ---------------------------------------------------------------- of a checkpoint

-- Is this a tensor of the model, under its own name?
local function of_model(name) return not (name:find "^optimizer/" or name:find "^average%d*/") end

-- The adapters of a checkpoint: { [path of a layer] = list of their items, as ganymede.nn.lora describes them }.
local function adapters_of(ck)
  local items = {}
  for _, item in ipairs(type(ck.meta.adapters) == "table" and ck.meta.adapters or {}) do
    local list = items[item.layer] or {}
    items[item.layer], list[#list + 1] = list, item
  end
  for _, name in ipairs(ck:names()) do
    local layer = name:match "^(.*)%.lora%..*a%.weight$"
    if layer and of_model(name) and not items[layer] then
      failure(2, "%s: has adapters, and does not say their alpha: no recipe made it; call gm.merge_lora before it is "
        .. "saved", ck.path)
    end
  end
  return items
end

-- The place of a part in a layer; nil: the adapter is of the whole layer.
local function place_of(ck, layer, item)
  for place, name in ipairs(item.part and rawget(layer, "part_names") or {}) do
    if name == item.part then return place end
  end
  if item.part then failure(2, "%s: '%s' has an adapter of a part '%s', which it has not", ck.path, item.layer,
    tostring(item.part)) end
end

-- The tensor `name` of a checkpoint, with what the adapters of its layer add; whole. layers: by their paths.
local function whole_tensor(ck, name, items, layers)
  local function read(of)
    local there = ck:info(of) or failure(2, "%s: has no '%s', which its adapters need", ck.path, of)
    return ck:read_into(of, core.empty(there.shape, there.dtype))
  end
  local tensor, path, list = read(name), name:match "^(.*)%.weight$", {}
  for i, item in ipairs(items[path] or {}) do
    local stem = path .. ".lora." .. (item.part and item.part .. "." or "")
    list[i] = { place = place_of(ck, layers[path], item), a = read(stem .. "a.weight"), b = read(stem .. "b.weight"),
      scale = adapter.scale(item), magnitude = item.dora and read(stem .. "magnitude") or nil }
  end
  return list[1] and adapter.merged(layers[path], tensor, list) or tensor
end

-- As a model of its family.
local function as_model(ck, about, folder, opt)
  check_class(about.class, about.family)
  local model = sources.model(about)
  local declared, dtype, kinds, items, layers = model:declared(), opt.dtype, {}, adapters_of(ck), {}
  for _, m in ipairs(model:modules()) do layers[m:path()] = m end
  for _, p in ipairs(declared) do
    local info = ck:info(p.name)
    if not (info or p.tied) then failure(2, "%s: has no '%s', which a %s has", ck.path, p.name, about.class) end
    dtype = dtype or info and info.dtype
    kinds[p.name] = opt.dtype or info and info.dtype
  end
  local config, list, entries = described(about.family, model.opt, declared, dtype, kinds)
  for _, entry in ipairs(entries) do
    if entry.buffer and not ck:info(entry.parameter) then
      failure(2, "%s: has no '%s', which a %s has", ck.path, entry.parameter, about.class)
    end
    entry.tensor = entry.tensor or function() return whole_tensor(ck, entry.parameter, items, layers) end
  end
  places.make(folder)
  write_arrays(folder, about.family.file, list, entries, opt.max_file_bytes)
  return { arrays = #list, files = write_config(folder, about.family, config, about, dtype),
    has_tokens = model.opt.vocabulary ~= nil }
end

-- As arrays under the names that they have here. all: also what is no part of the model.
local function as_arrays(ck, folder, opt)
  local list, entries = {}, {}
  for _, name in ipairs(ck:names()) do
    local info = ck:info(name)
    if opt.all or of_model(name) then
      local converted = opt.dtype and info.dtype:match "^[bf]" and opt.dtype or info.dtype
      list[#list + 1] = { name = name, dtype = converted, shape = info.shape }
      entries[#entries + 1] = { tensor = function() return (ck:read_into(name, core.empty(info.shape, info.dtype))) end,
        dtype = info.dtype, shape = info.shape, pieces = { { name = name } } }
    end
  end
  if #list == 0 then failure(2, "%s: has no tensors of a model; --all takes those of its optimizer", ck.path) end
  places.make(folder)
  write_arrays(folder, nil, list, entries, opt.max_file_bytes)
  return { arrays = #list, files = {} }
end

--- Writes the model of a checkpoint into a folder. opt: plain: arrays under our names, without config.json; all: also
-- those of optimizer and averages; dtype; max_file_bytes; config: a folder whose config.json says what the model is;
-- files: a folder with the tokenizer -> { path = the checkpoint, arrays = how many, files = names of copied files,
-- has_tokens = whether the model is one of tokens }.
-- One process, which never holds more than one tensor and its adapter.
function export.checkpoint(path, folder, opt)
  local found = sources.checkpoint_at(path)
    or failure(2, "%s: there is no checkpoint; name one, the folder of some, or that of a run", path)
  local ck = checkpoint.open(found)
  local done = failure.protect(function() ck:close() end, function()
    if opt.plain then return as_arrays(ck, folder, opt) end
    local about = sources.of_meta(ck.meta, found, opt.config and sources.options(opt.config))
    about.files = opt.files or about.files
    return as_model(ck, about, folder, opt)
  end)
  done.path = found
  return done
end

return export
