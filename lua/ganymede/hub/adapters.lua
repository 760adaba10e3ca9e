--- Adapters apart from their model, in the format of PEFT: adapter_config.json and adapter_model.safetensors.
--
--     gm.save_adapter(model, "tuned")                      -- Python: peft.PeftModel.from_pretrained(base, "tuned")
--     gm.load_adapter(gm.pretrained "base", "tuned")       -- and files that PEFT has written
--     lora = { path = "tuned" }                            -- the same, in a recipe
--
-- The names of layers and arrays there come from the table of the family (ganymede.hub.families), in both directions.
-- They are those that transformers 5 has in memory; files with the names of models on a disk, as older versions had
-- them in memory too, are read as well.
-- Queries, keys and values are one layer here and may be three there. Three adapters there become three here, whatever
-- their ranks, or as many as there are. One adapter here becomes three with the same A there, and the file says so, so
-- that it becomes one again here. All of this is exact. What is trained whole beside the adapters is modules_to_save
-- there (ganymede.hub.whole_modules).
-- gm.load_adapter also takes a checkpoint of a run with adapters, whatever ranks wrote it: its meta lists them.
-- The trap: numbers are read when a parameter is made, as those of gm.pretrained; the folder must stay until then.
-- @module ganymede.hub.adapters
local arrays = require "ganymede.hub.arrays"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local families = require "ganymede.hub.families"
local json = require "ganymede.base.json"
local lora = require "ganymede.nn.lora"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local signature = require "ganymede.base.signature"
local sources = require "ganymede.hub.sources"
local values = require "ganymede.hub.values"
local whole_modules = require "ganymede.hub.whole_modules"
local write = require "ganymede.hub.write"

local M = {}

local ROOT = "base_model.model."
local SHARED = "shared_qkv" -- in the file's metadata: layers of several parts have one adapter

-- ---------------------------------------------------------------- layers and their names there

-- The layers there that a weight of ours is: a list of { name, pieces } in the order of our parts.
local function targets_of(entry)
  local list, by_name = {}, {}
  for _, piece in ipairs(entry.pieces) do
    local name = piece.name:gsub("%.weight$", "")
    if not by_name[name] then
      by_name[name] = { name = name, pieces = {} }
      list[#list + 1] = by_name[name]
    end
    table.insert(by_name[name].pieces, piece)
  end
  return list
end

local function family_of(what, model)
  return families.of_model(model)
    or failure(2, "%s: a model of class %s belongs to no family that is known", what, tostring(model.name))
end

-- The family with those names of the two kinds that a file of adapters has.
local function family_in(file, family, model)
  local own, there = family.entries(model.opt), families.in_memory(family)
  for i, entry in ipairs(there == family and {} or there.entries(model.opt)) do
    for k, piece in ipairs(entry.pieces) do
      local module = piece.name:gsub("%.%w+$", "")
      for _, name in ipairs(piece.name ~= own[i].pieces[k].name and file:names() or {}) do
        if name:sub(1, #ROOT + #module + 1) == ROOT .. module .. "." then return there end
      end
    end
  end
  return family
end

-- Path of a layer of ours -> the layers there.
local function names_of(family, model)
  local out = {}
  for _, entry in ipairs(family.entries(model.opt)) do
    local path = entry.parameter:match "^(.*)%.weight$"
    if path then out[path] = targets_of(entry) end
  end
  return out
end

-- Rows of a tensor of ours as boxes of an array there. width: of a row; nil: numbers, not rows.
local function row_pieces(target, array, width)
  local out = {}
  for i, piece in ipairs(target.pieces) do
    if not piece.at then return { { name = array } } end
    local row, there = piece.at[1], piece.order and piece.offset[2] or piece.offset[1]
    out[i] = width and { name = array, at = { row, 1 }, size = { piece.size[1], width }, offset = { there, 1 } }
      or { name = array, at = { row }, size = { piece.size[1] }, offset = { there } }
  end
  return out
end

local function append(list, more)
  for _, each in ipairs(more) do list[#list + 1] = each end
end

-- The parameters of an adapter and what they are there: list of { parameter, pieces }.
local function entries_of(item, targets, layer)
  local path = item.layer .. ".lora." .. (item.part and item.part .. "." or "")
  local a, b, m = {}, {}, {}
  local function add(target, whole)
    local name = ROOT .. target.name
    a[#a + 1] = { name = name .. ".lora_A.weight" }
    local rows, vector = name .. ".lora_B.weight", name .. ".lora_magnitude_vector"
    append(b, whole and { { name = rows } } or row_pieces(target, rows, item.rank))
    append(m, whole and { { name = vector } } or row_pieces(target, vector))
  end
  if item.part then
    for place, name in ipairs(layer.part_names) do
      if name == item.part then add(targets[place], true) end -- rows of a part stand head by head on both sides
    end
  else
    for _, target in ipairs(targets) do add(target) end
  end
  local list = { { parameter = path .. "a.weight", pieces = a }, { parameter = path .. "b.weight", pieces = b } }
  if item.dora then list[3] = { parameter = path .. "magnitude", pieces = m } end
  return list
end

local function layers_of(model)
  local out = {}
  for _, m in ipairs(model:modules()) do out[m:path()] = m end
  return out
end

-- All parameters of a list of adapters -> list of { parameter, pieces }.
local function all_entries(model, names, items)
  local list, layers = {}, layers_of(model)
  for _, item in ipairs(items) do append(list, entries_of(item, names[item.layer], layers[item.layer])) end
  return list
end

-- ---------------------------------------------------------------- adapter_config.json

-- Keys that change no number, or that arrays say as well.
local idle = {}
for name in ([[task_type base_model_name_or_path inference_mode target_modules exclude_modules layers_to_transform
  layers_pattern auto_mapping revision peft_version megatron_core qalora_group_size eva_config runtime_config
  rank_pattern fan_in_fan_out r lora_alpha lora_dropout alpha_pattern use_rslora use_dora peft_type bias
  init_lora_weights modules_to_save ensure_weight_tying]]):gmatch "%S+" do
  idle[name] = true
end

local function is_empty(value)
  return value == nil or value == json.null or value == false or type(value) == "table" and next(value) == nil
end

-- Ways to begin that also change the weights of the model.
local changing = { "^pissa", "^olora", "^corda", "^loftq", "^lora_ga" }

local function read_config(folder)
  local path = folder .. "/adapter_config.json"
  local config = json.of_file(path)
    or failure(2, "%s: cannot be read; the folder of adapters has it, and a run with lora has a checkpoint", path)
  local function refuse(fmt, ...) failure(2, "%s: " .. fmt, path, ...) end
  local kind = config.peft_type
  if kind ~= "LORA" then refuse("peft_type is %s; this program has LORA", options.brief(kind)) end
  for _, key in ipairs(options.sorted_keys(config)) do
    if not (idle[key] or is_empty(config[key])) then
      refuse("'%s' is set, and this program does not have what it asks for", key)
    end
  end
  if not (is_empty(config.bias) or config.bias == "none") then
    refuse("bias is '%s'; this program has 'none'", tostring(config.bias))
  end
  local begun = config.init_lora_weights
  for _, pattern in ipairs(type(begun) == "string" and changing or {}) do
    if begun:find(pattern) then
      refuse("init_lora_weights is '%s', which changes the weights of the model; convert it with PEFT first", begun)
    end
  end
  if type(config.r) ~= "number" or type(config.lora_alpha) ~= "number" then refuse "has no r, or no lora_alpha" end
  for key, wanted in pairs { alpha_pattern = "table", lora_dropout = "number", use_rslora = "boolean",
                             use_dora = "boolean" } do
    local value = config[key]
    if not is_empty(value) and type(value) ~= wanted then
      refuse("'%s' is %s; it must be a %s", key, options.brief(value), wanted)
    end
  end
  return config, refuse
end

-- Does a key of alpha_pattern mean this layer? They are regular expressions there, of which names are read here.
local function means(refuse, key, name)
  local from_start = key:sub(1, 1) == "^"
  local plain = key:gsub("^%^", ""):gsub("\\%.", ".")
  if plain:find "[^%w_.%-]" then
    refuse("alpha_pattern: '%s' is a regular expression; this program reads names of layers", key)
  end
  return name == plain or not from_start and name:sub(-#plain - 1) == "." .. plain
end

local function alpha_of(config, refuse, name)
  local found
  for key, alpha in pairs(is_empty(config.alpha_pattern) and {} or config.alpha_pattern) do
    if type(key) ~= "string" or type(alpha) ~= "number" then refuse "alpha_pattern: a name and a number are needed" end
    if means(refuse, key, name) then
      if found and found ~= alpha then refuse("alpha_pattern says two things of %s", name) end
      found = alpha
    end
  end
  return found or config.lora_alpha
end

-- ---------------------------------------------------------------- reading

-- The adapted layers of a file: name there -> the rank.
local function ranks_of(file)
  local out = {}
  for _, name in ipairs(file:names()) do
    local target, what = name:match("^" .. ROOT:gsub("%.", "%%.") .. "(.+)%.(lora_%w[%w_]*)")
    if what == "lora_A" and name:find "%.weight$" then
      out[target] = file:info(name).shape[1]
      if not out[target] then failure(2, "%s: %s is no matrix", file.path, name) end
    elseif what and not (what == "lora_B" and name:find "%.weight$" or what == "lora_magnitude_vector") then
      failure(2, "%s: has %s, which is no adapter of a linear layer", file.path, name)
    end
  end
  if not next(out) then failure(2, "%s: has no adapter", file.path) end
  return out
end

-- The adapters of a folder as lora.describe lists them.
local function items_of(file, config, refuse, model, names)
  local given, items, seen, layers = ranks_of(file), {}, {}, layers_of(model)
  local shared = file.meta[SHARED] == "true"
  for _, path in ipairs(options.sorted_keys(names)) do
    local targets = names[path]
    local parts = #targets > 1 and not shared and layers[path].part_names
    for place, target in ipairs(targets) do
      local rank = given[target.name]
      seen[target.name] = true
      if rank and (place == 1 or parts) then
        items[#items + 1] = { layer = path, part = parts and parts[place] or nil, rank = rank,
          alpha = alpha_of(config, refuse, target.name), scaling = config.use_rslora == true and "root" or "rank",
          dropout = is_empty(config.lora_dropout) and 0 or config.lora_dropout, dora = config.use_dora == true }
      end
    end
  end
  for _, name in ipairs(options.sorted_keys(given)) do
    if not seen[name] then failure(2, "%s: %s belongs to no layer of this model", file.path, name) end
  end
  return items
end

local function check_shapes(file, entries, model)
  local shapes, wanted = {}, {}
  for _, p in ipairs(model:declared()) do shapes[p.name] = p.shape end
  for _, array in ipairs(families.arrays(entries, shapes)) do
    local info = file:info(array.name) or failure(2, "%s: lacks %s", file.path, array.name)
    local here, there = table.concat(array.shape, ", "), table.concat(info.shape, ", ")
    if here ~= there then
      failure(2, "%s: %s is (%s), this model needs (%s); the adapter is of another model", file.path, array.name, there,
        here)
    end
    file:check_floating(array.name)
    wanted[array.name] = true
  end
  for _, name in ipairs(file:names()) do
    if not wanted[name] then failure(2, "%s: has %s, which belongs to nothing", file.path, name) end
  end
end

-- Patterns of what is trained beside adapters: the parameters of a list of entries, and what was asked for.
local function patterns_of(entries, train)
  local list = { unpack(type(train) == "string" and { train } or train or {}) }
  for _, entry in ipairs(entries) do list[#list + 1] = "^" .. entry.parameter:gsub("%p", "%%%0") .. "$" end
  return list
end

local function from_peft(model, path, opt)
  local config, refuse = read_config(path)
  local file = arrays.open(path .. "/adapter_model.safetensors")
  local family = family_in(file, family_of("load_adapter", model), model)
  local names = names_of(family, model)
  local items = items_of(file, config, refuse, model, names)
  if opt.dropout then
    for _, item in ipairs(items) do item.dropout = opt.dropout end
  end
  local whole = whole_modules.of_file(config, refuse, model, family, ROOT)
  local trained, all = failure.about(path .. "/adapter_config.json", lora.attach, model, items,
    patterns_of(whole, opt.train))
  local entries, readers = all_entries(model, names, items), {}
  append(entries, whole)
  check_shapes(file, entries, model)
  whole_modules.check_twins(file, whole)
  for _, entry in ipairs(entries) do
    local pieces = entry.parameter:find "%.lora%..*%.a%.weight$" and { entry.pieces[1] } or entry.pieces
    if not entry.twin_of then readers[entry.parameter] = function(t) file:read_pieces(t, pieces) end end
  end
  values.set(model, readers)
  return items, trained, all
end

-- ---------------------------------------------------------------- checkpoints

local function from_checkpoint(model, path, opt)
  local ck = require("ganymede.checkpoint").open(path)
  local items = ck.meta.adapters
  if type(items) ~= "table" or #items == 0 then
    failure(2, "%s: is a checkpoint of a run without adapters; gm.init_from reads its weights", path)
  end
  for _, item in ipairs(items) do item.dropout = opt.dropout or item.dropout end
  local trained, all = lora.attach(model, items, opt.train)
  local readers, others = {}, {}
  for _, name in ipairs(ck.meta.trained or {}) do others[name] = true end
  for _, p in ipairs(model:declared()) do
    if p.name:find "%.lora%." or others[p.name] then
      local info = ck:info(p.name) or failure(2, "%s: has no '%s'", path, p.name)
      local here, there = table.concat(p.shape, ", "), table.concat(info.shape, ", ")
      if here ~= there then failure(2, "%s: '%s' is (%s), here it is (%s)", path, p.name, there, here) end
      readers[p.name] = function(t) ck:read_into(p.name, t, { cast = true }) end
    end
  end
  values.set(model, readers)
  return items, trained, all
end

-- ---------------------------------------------------------------- the two functions

--- Adds the adapters that a folder describes to a model, and freezes all other parameters. The folder is one of PEFT,
-- a checkpoint of a run with adapters, or the folder of that run (the newest counts). What is trained beside the
-- adapters there is taken and trained as well: with PEFT, the modules of modules_to_save. Collective.
-- @param model a model of a family that is known, before it is split into stages
-- @param path the folder
-- @param options what changes about them
-- @return { layers = paths of the adapted layers, trained = number of elements that are trained, parameters = number of
-- all elements of the model }
-- @error the files ask for what this program does not have, or belong to another model
-- @see gm.save_adapter, gm.lora, gm.merge_lora
-- @example
--   model = gm.pretrained "spec/golden/hub/llama"
--   #gm.load_adapter(model, "spec/golden/adapters/llama").layers --> 6
function M.load_adapter(model, path, opt)
  local found = not core.is_file(path .. "/adapter_config.json") and sources.checkpoint_at(path)
  local items, trained, all = (found and from_checkpoint or from_peft)(model, found or path, opt)
  local layers, seen = {}, {}
  for _, item in ipairs(items) do
    if not seen[item.layer] then layers[#layers + 1] = item.layer end
    seen[item.layer] = true
  end
  return { layers = layers, trained = trained, parameters = all }
end

M.load_adapter = signature.declare("gm.load_adapter", "model module, path string, options options?", {
  dropout = { type = "number", min = 0, below = 1, optional = true,
    doc = "the dropout of the adapters' inputs, in place of the one that the files say" },
  train = lora.options.train,
}, failure.blaming(M.load_adapter))

-- What all adapters must have in common there.
local function common(items, key)
  for _, item in ipairs(items) do
    if item[key] ~= items[1][key] then
      failure(2, "save_adapter: '%s' has %s = %s, '%s' has %s; PEFT has one for all", item.layer, key,
        tostring(item[key]), items[1].layer, tostring(items[1][key]))
    end
  end
  return items[1][key]
end

-- Layer there -> the layers of ours that are parts of it, by name.
local function owners_of(names)
  local out = {}
  for _, path in ipairs(options.sorted_keys(names)) do
    for _, target in ipairs(names[path]) do
      local list = out[target.name] or {}
      out[target.name], list[#list + 1] = list, path
    end
  end
  return out
end

-- The layers there of each adapter: list of { name, item }.
local function named(model, names, items)
  local out, layers, owners = {}, layers_of(model), owners_of(names)
  for _, item in ipairs(items) do
    local targets = names[item.layer] or failure(2, "save_adapter: '%s' has no counterpart in the files of others",
      item.layer)
    if item.part and #targets == 1 then
      failure(2, "save_adapter: '%s' has adapters for queries, keys and values, and is the one layer %s there; "
        .. "train without split_qkv, or merge", item.layer, targets[1].name)
    end
    for place, target in ipairs(targets) do
      if #owners[target.name] > 1 then
        failure(2, "save_adapter: '%s' are the one layer %s there, which has one adapter; merge",
          table.concat(owners[target.name], "' and '"), target.name)
      end
      if not item.part or layers[item.layer].part_names[place] == item.part then
        out[#out + 1] = { name = target.name, item = item }
      end
    end
  end
  return out
end

-- Short names where they mean the adapted layers alone, otherwise full names.
local function target_modules(list, names)
  local adapted, short, is_short = {}, {}, true
  local function last(name) return name:match "[^.]*$" end
  for _, each in ipairs(list) do adapted[each.name], short[last(each.name)] = true, true end
  for _, targets in pairs(names) do
    for _, target in ipairs(targets) do
      is_short = is_short and (adapted[target.name] or not short[last(target.name)])
    end
  end
  return json.array(options.sorted_keys(is_short and short or adapted))
end

local function config_of(model, family, list, names, items, whole)
  local first, ranks_there, alphas = items[1], {}, {}
  for _, each in ipairs(list) do
    local item = each.item
    if item.rank ~= first.rank then ranks_there[each.name] = item.rank end
    if item.alpha ~= first.alpha then alphas[each.name] = item.alpha end
  end
  return {
    peft_type = "LORA", task_type = family.task or json.null, inference_mode = true, bias = "none", r = first.rank,
    base_model_name_or_path = model.source and model.source.path or json.null, lora_alpha = first.alpha,
    lora_dropout = common(items, "dropout"), use_rslora = common(items, "scaling") == "root",
    use_dora = common(items, "dora"), target_modules = target_modules(list, names), rank_pattern = ranks_there,
    alpha_pattern = alphas, fan_in_fan_out = family.transposed or false,
    modules_to_save = #whole > 0 and json.array(whole) or json.null,
  }
end

--- Writes the adapters of a model in PEFT's format: adapter_config.json and adapter_model.safetensors. Modules that are
-- trained beside them (`train`), such as a head, go with them as they are (modules_to_save). Collective.
-- @param model a model of a family that is known, with adapters
-- @param folder where the files go; it is made
-- @param options the type of the numbers
-- @return folder
-- @error the model has no adapter; a layer is trained as a whole and has one; adapters of one layer's parts have no
-- counterpart
-- @see gm.load_adapter, gm.merge_lora, gm.export_model
-- @example
--   model = gm.pretrained "spec/golden/hub/llama"
--   gm.lora(model, { rank = 2, match = "mlp" })
--   out = os.tmpname() .. ".adapter"
--   #gm.open_arrays(gm.save_adapter(model, out) .. "/adapter_model.safetensors"):names() --> 12
--   os.execute("rm -r " .. out)
function M.save_adapter(model, folder, opt)
  local items = lora.describe(model)
  if #items == 0 then failure(2, "save_adapter: the model has no adapter; gm.lora adds them") end
  local family = families.in_memory(family_of("save_adapter", model))
  local names = names_of(family, model)
  local list, adapted = named(model, names, items), {}
  for i, each in ipairs(list) do adapted[i] = each.name end
  local more, whole = whole_modules.of_model(model, family, ROOT, adapted)
  local config = config_of(model, family, list, names, items, whole)
  local own, tensors, shapes, entries = all_entries(model, names, items), {}, {}, {}
  append(own, more)
  for _, p in ipairs(model:named_parameters()) do tensors[p.name] = p.tensor end
  for _, p in ipairs(model:declared()) do shapes[p.name] = p.shape end
  local dtype, shared = opt.dtype or core.default_dtype(), true
  for _, item in ipairs(items) do shared = shared and not item.part end
  for i, entry in ipairs(own) do
    entries[i] = { tensor = tensors[entry.parameter], shape = shapes[entry.parameter], dtype = dtype,
      pieces = entry.pieces }
  end
  if ranks.is_first() then
    core.make_folders(folder)
    core.write_whole(folder .. "/adapter_config.json", json.encode(config) .. "\n")
  end
  write.all(folder .. "/adapter_model.safetensors", families.arrays(own, shapes, dtype), entries,
    { max_file_bytes = 2 ^ 53, metadata = { format = "pt", [SHARED] = shared and "true" or nil } })
  return folder
end

M.save_adapter = signature.declare("gm.save_adapter", "model table, folder string, options options?", {
  dtype = write.save_options.dtype,
}, failure.blaming(M.save_adapter))

return M
