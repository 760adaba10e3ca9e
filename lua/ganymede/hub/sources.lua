--- Where the numbers of a model come from: a folder of Hugging Face's format, a GGUF file, or a checkpoint of ours.
--
--     local source = sources.open("SmolLM2-135M", { strict = true })
--     source.class, source.options            -- the class, in gm.registry.models, and its options
--     source.files                            -- the folder that has the tokenizer, if anything has it
--     source:read("blocks.1.norm1.weight", tensor)    -- this rank's block of it, in any layout; false: it has none
--     source:close()
--
-- sources.options(PATH) reads what the model is, and no numbers. A checkpoint is named by its folder, by the folder of
-- the checkpoints of a run (the newest counts) or by that of the run.
-- The trap: opening a checkpoint is collective, because ranks share its checksums.
-- @module ganymede.hub.sources
local arrays = require "ganymede.hub.arrays"
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local families = require "ganymede.hub.families"
local gguf = require "ganymede.hub.gguf"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local registry = require "ganymede.base.registry"
local tokenizer = require "ganymede.text.tokenizer"
local twins = require "ganymede.hub.twins"

local sources = {}

local exists = machine.exists

-- ---------------------------------------------------------------- what a model is

local function tokens_that_end(folder, config)
  local generation = json.of_file(folder .. "/generation_config.json") or {}
  local ids = generation.eos_token_id
  if ids == nil or ids == json.null then ids = config.eos_token_id end
  if ids == nil or ids == json.null then return {} end
  return type(ids) == "table" and ids or { ids }
end

-- Refuses what is no folder of a model. at: its config.json, which cannot be read.
local function no_model(path, at)
  if #core.list_folder(path) > 0 then
    failure(2, "%s: cannot be read; the folder of a model has it, beside model.safetensors", at)
  end
  failure(2, "%s: there is no such folder, or it is empty. A model is a folder on this machine with config.json and "
    .. "model.safetensors, a GGUF file, or a checkpoint; names on the hub are not looked up: download the model first "
    .. "(`huggingface-cli download NAME --local-dir DIR`) and give DIR", path)
end

-- Of a folder with config.json.
local function of_folder(path, opt)
  local at = path .. "/config.json"
  local values = json.of_file(at) or no_model(path, at)
  local family, found = families.read(values, at, opt.ignore)
  return { path = path, files = path, family = family, class = family.model, options = found, config = values,
    stop_tokens = tokens_that_end(path, values) }
end

local function folder_of(path) return path:match "^(.*)/[^/]*$" or "." end

--- The checkpoint that a path names: itself, or the newest in it or in its folder `checkpoints`; nil: none. whole: the
-- newest that is not damaged, which all ranks verify together; status 5 if all are. Otherwise nothing is verified.
function sources.checkpoint_at(path, whole)
  path = path:gsub("(.)/+$", "%1")
  if core.is_file(path) then
    failure(2, "%s: is a file; a model is a folder with config.json, a checkpoint, the folder of a run, or a file "
      .. "whose name ends in .gguf", path)
  end
  if exists(path .. "/index.json") then return path end
  for _, folder in ipairs { path, path .. "/checkpoints" } do
    if whole then
      local found, seen = checkpoint.search(folder)
      if seen > 0 then return found or failure(5, "all checkpoints in %s are damaged", folder) end
    else
      local list = checkpoint.list(folder)
      if #list > 0 then return list[#list].path end
    end
  end
end

-- The folder beside a checkpoint or above that holds files of a model, or nil.
local function files_beside(path)
  local above = folder_of(path)
  for _, folder in ipairs { above, folder_of(above) } do
    for _, name in ipairs { "tokenizer.json", "tokenizer.model", "generation_config.json" } do
      if exists(folder .. "/" .. name) then return folder end
    end
  end
end

-- The folder of the tokenizer with which a run's data became tokens, if it is there; nil: none.
local function files_of_data(config)
  local train = type(config.data) == "table" and config.data.train
  local folder = type(train) == "table" and train.tokenizer
  return type(folder) == "string" and tokenizer.is_in(folder) and folder or nil
end

--- What the meta of a checkpoint at `path` says of its model. given: what a folder says of it, where the meta does not.
function sources.of_meta(meta, path, given)
  local config = type(meta) == "table" and type(meta.config) == "table" and meta.config or {}
  local model = type(config.model) == "table" and config.model or nil
  local about = given
  if not about and model and model.type == "Pretrained" then
    local ok, found = failure.try(sources.options, model.path, { ignore = model.ignore })
    if not ok then
      failure(2, "%s: is of a model from %s, which cannot be read: %s; name another folder with its config.json", path,
        tostring(model.path), failure.text(found))
    end
    about = found
  end
  if not about and not (model and model.type) then
    failure(2, "%s: does not say what model it is of: no recipe made it; name a folder with its config.json", path)
  end
  about = about or { class = model.type }
  local options = about.options
  if not options then
    options = json.plain(model)
    options.type = nil
  end
  local original = json.plain(meta.original)
  local family = about.family or type(original) == "table" and families.of(original.model_type)
  return { path = path, class = about.class, options = options, config = original or about.config,
    family = family or families.of_class(about.class, options),
    files = files_beside(path) or about.files or files_of_data(config),
    stop_tokens = json.plain(meta.stop_tokens) or about.stop_tokens or {} }
end

-- ---------------------------------------------------------------- numbers of files

-- The first names of a list, for a message.
local function some(list)
  table.sort(list)
  local shown = { unpack(list, 1, 5) }
  return table.concat(shown, ", ") .. (#list > 5 and (" and %d more"):format(#list - 5) or "")
end

local function is_ignored(patterns, name)
  for _, pattern in ipairs(patterns) do
    if name:find(pattern) then return true end
  end
  return false
end

local function refuse_twin(file, twin, original)
  failure(2, "%s: %s has other numbers than %s, and the model has one table for both; tie_word_embeddings = false in "
    .. "its config.json makes two of them, strict = false leaves the first out", file.path, twin, original)
end

-- Refuses files of which no array is one of the model, whatever is asked for: all numbers would be new ones.
local function refuse_strangers(file, there, left)
  if next(there) or #left == 0 then return end
  failure(2, "%s: none of its arrays is one of the model that is said; it has %s", file.path, some(left))
end

-- Refuses files that lack something, or have something that belongs to nothing. apart: what twins.apart gives
-- -> entries that are there, by parameter
local function entries_there(entries, file, ignored, strict, apart)
  local wanted, missing, left, there = {}, {}, {}, {}
  for _, entry in ipairs(entries) do
    there[entry.parameter] = entry
    for _, piece in ipairs(entry.pieces) do
      if not wanted[piece.name] and not file:has(piece.name) then missing[#missing + 1] = piece.name end
      wanted[piece.name] = true
      if not file:has(piece.name) then there[entry.parameter] = nil end
    end
  end
  for _, name in ipairs(file:names()) do
    if strict and apart[name] then refuse_twin(file, name, apart[name]) end
    if not wanted[name] and not is_ignored(ignored, name) then left[#left + 1] = name end
  end
  refuse_strangers(file, there, left)
  if strict and #missing > 0 then
    failure(2, "%s: lacks %s; strict = false of gm.pretrained makes new ones", file.path, some(missing))
  end
  if #missing > 0 and core.rank() == 0 then
    log.warn("%s lacks %s: new numbers are made, which nobody has trained", file.path, some(missing))
  end
  if strict and #left > 0 then
    failure(2, "%s: has %s, which belongs to nothing in the model; strict = false leaves it out", file.path, some(left))
  end
  return there
end

local Source = {}
Source.__index = Source

-- The number of blocks of a model of images is that of its stages, if these are listed.
local function layers_of(about)
  local all, opt = 0, about.options
  if about.family.layers then return about.family.layers(opt) end
  for _, n in ipairs(opt.blocks or {}) do all = all + n end
  return opt.blocks and all or opt.depth
end

-- Refuses numbers of layers and experts that the files cannot have, before lists of that length are made.
local function check_counts(about, file)
  local most, opt = #file:names(), about.options
  for name, count in pairs { layers = layers_of(about), experts = opt.moe and opt.moe.experts } do
    if count > most then
      failure(2, "%s: says that there are %d %s; the files have %d arrays", about.path, count, name, most)
    end
  end
end

-- The parameters that entries name, whether files have them or not.
local function named_by(entries)
  local set = {}
  for _, entry in ipairs(entries) do set[entry.parameter] = true end
  return set
end

local function open_files(about, opt)
  local file = arrays.open(about.path)
  check_counts(about, file)
  local entries = about.family.entries(about.options, function(name) return file:has(name) end)
  local ignored = about.family.ignored and about.family.ignored(about.options) or {}
  local apart = opt.strict and twins.apart(file, about.family, about.options) or {}
  about.file, about.entries = file, entries_there(entries, file, ignored, opt.strict, apart)
  about.named, about.strict = named_by(entries), opt.strict
  return setmetatable(about, Source)
end

local function open_gguf(path, opt)
  local file = arrays.open(path)
  local class, found, entries = gguf.model(file, opt.ignore)
  return setmetatable({ path = path, class = class, options = found, family = families.of_class(class, found),
    file = file, entries = entries_there(entries, file, gguf.ignored, opt.strict, {}),
    named = named_by(entries), strict = opt.strict,
    stop_tokens = gguf.stop_tokens(file.meta),
  }, Source)
end

local function open_checkpoint(path, opt)
  if opt.ignore and #opt.ignore > 0 then
    failure(2, "%s: is a checkpoint, which has no config.json; leave ignore out", path)
  end
  local ck = checkpoint.open(path)
  local about = sources.of_meta(ck.meta, path)
  about.checkpoint, about.strict = ck, opt.strict
  return setmetatable(about, Source)
end

-- A mapped file fills memory while it is read, so what was read is given back now and then.
local READ_AHEAD = 2 ^ 24 -- elements

local function note_read(self, count)
  self.elements = (self.elements or 0) + count
  if self.elements < READ_AHEAD then return end
  self.file:forget()
  self.elements = 0
end

--- Fills this rank's block of a parameter -> true; false: the source has none of that name.
function Source:read(parameter, tensor)
  local entry = self.entries and self.entries[parameter]
  if entry then
    self.file:read_pieces(tensor, entry.pieces)
    note_read(self, tensor:numel())
    return true
  end
  if not (self.checkpoint and self.checkpoint:has(parameter)) then return false end
  self.checkpoint:read_into(parameter, tensor, { cast = true })
  return true
end

--- Does it have this parameter?
function Source:has(parameter)
  if self.entries then return self.entries[parameter] ~= nil end
  return self.checkpoint:has(parameter)
end

--- The type of the numbers of a parameter, as the source has them.
function Source:dtype(parameter)
  if self.checkpoint then return self.checkpoint:info(parameter).dtype end
  return self.file:info(self.entries[parameter].pieces[1].name).dtype
end

local function product(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function same_shape(a, b)
  for d = 1, math.max(#a, #b) do
    if a[d] ~= b[d] then return false end
  end
  return true
end

-- Refuses parameters and buffers that no entry of the family fills, whatever the files have: they would keep their
-- initial numbers. What the files lack, entries_there has refused or said.
local function refuse_unfilled(self, model)
  local list = {}
  for _, p in ipairs(model:declared()) do
    if not p.tied and not self.named[p.name] then list[#list + 1] = p.name end
  end
  for _, entry in ipairs(model:state(true)) do
    if not self.named[entry.name] then list[#list + 1] = entry.name end
  end
  if #list == 0 then return end
  if self.strict then
    failure(2, "%s: nothing in such files fills %s of %s; strict = false of gm.pretrained leaves new numbers there",
      self.path, some(list), model.name)
  end
  if core.rank() == 0 then
    log.warn("%s: nothing in such files fills %s of %s: new numbers are made, which nobody has trained", self.path,
      some(list), model.name)
  end
end

-- Refuses arrays of other shapes than the model's parameters need, and whole numbers where these are floating ones:
-- before memory for those is asked for. Of an array that pieces see in another shape only the number of elements is
-- known here.
local function check_arrays(self, model)
  refuse_unfilled(self, model)
  local shapes, list, seen_as = {}, {}, {}
  for _, p in ipairs(model:declared()) do
    local entry = self.entries[p.name]
    shapes[p.name], list[#list + 1] = p.shape, entry
    for _, piece in ipairs(entry and not entry.shapes and entry.pieces or {}) do
      seen_as[piece.name] = seen_as[piece.name] or piece.shape ~= nil
    end
  end
  for name, entry in pairs(self.entries) do
    if entry.buffer then shapes[name], list[#list + 1] = entry.buffer, entry end
  end
  for _, array in ipairs(families.arrays(list, shapes)) do
    local there, here = self.file:info(array.name).shape, array.shape
    if not (same_shape(there, here) or seen_as[array.name] and product(there) == product(here)) then
      failure(2, "%s: array '%s' is (%s), and the model that it says needs (%s)", self.path, array.name,
        table.concat(there, ", "), table.concat(here, ", "))
    end
    if array.dtype ~= "i64" then self.file:check_floating(array.name) end -- counters of batch norms are whole numbers
  end
end

--- Refuses a source that does not have what a model declares, or has what belongs to nothing in it.
function Source:check(model)
  if not self.checkpoint then return check_arrays(self, model) end -- entries_there has done the rest
  local known, missing, left = {}, {}, {}
  for _, p in ipairs(model:declared()) do
    known[p.name] = true
    if not p.tied and not self:has(p.name) then missing[#missing + 1] = p.name end
  end
  for _, entry in ipairs(model:state(true)) do
    known[entry.name] = true
    if not self:has(entry.name) then missing[#missing + 1] = entry.name end
  end
  for _, name in ipairs(self.checkpoint:names()) do
    if name:find "%.lora%.[ab]%.weight$" then
      failure(2, "%s: has adapters, such as %s; `ganymede export` adds them to the weights", self.path, name)
    end
    local other = name:find "^optimizer/" or name:find "^average%d*/"
    if not (known[name] or other) then left[#left + 1] = name end
  end
  if not self.strict then return end
  if #missing > 0 then failure(2, "%s: lacks %s", self.path, some(missing)) end
  if #left > 0 then failure(2, "%s: has %s, which belongs to nothing in the model", self.path, some(left)) end
end

function Source:close()
  if self.file then self.file:close() end
  if self.checkpoint then self.checkpoint:close() end
end

-- ---------------------------------------------------------------- opening

-- The kind of source that a path names, and the path of its checkpoint.
local function kind_of(path)
  if path:find "%.gguf$" then return "gguf" end
  if exists(path .. "/config.json") then return "folder" end
  local found = sources.checkpoint_at(path)
  if found then return "checkpoint", found end
  return "folder"
end

--- What the model at a path is, without its numbers. opt.ignore: keys of config.json that change no number.
function sources.options(path, opt)
  if type(path) ~= "string" then failure(2, "the path of a model must be a text, not %s", tostring(path)) end
  local kind, found = kind_of(path)
  if kind == "folder" then return of_folder(path, opt or {}) end
  if kind == "gguf" then
    local file = arrays.open(path)
    local class, options = gguf.model(file, opt and opt.ignore)
    local ends = gguf.stop_tokens(file.meta)
    file:close()
    return { path = path, class = class, options = options, family = families.of_class(class, options),
      stop_tokens = ends }
  end
  return sources.of_meta(json.of_file(found .. "/index.json").meta, found)
end

--- A new model of the class and with the options that a source says; what these have that is not possible is an error
-- of the source.
function sources.model(about)
  return failure.about(about.path, registry.models:get(about.class), about.options)
end

--- Opens the model at a path. opt: ignore; strict: refuse files that lack arrays, or have other ones. Collective.
function sources.open(path, opt)
  local kind, found = kind_of(path)
  if kind == "checkpoint" then return open_checkpoint(found, opt) end
  if kind == "gguf" then return open_gguf(path, opt) end
  return open_files(of_folder(path, opt), opt)
end

return sources
