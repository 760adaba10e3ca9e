--- Families of models that others make: how a config.json and names of arrays become a model of ours, and back.
--
-- A family is a table, and nothing else knows it:
--
--     { model = "Llama",                          -- the class, in gm.registry.models
--       types = { llama = true, ... },            -- model_type in config.json
--       takes = function(options) ... end,        -- of several families of a class: is the model one of this?
--       options = function(config) ... end,       -- config (a reader, see below) -> options of the class
--       config = function(options) ... end,       -- back: options of the class -> config.json
--       entries = function(options, has) ... end, -- list of { parameter, pieces, shapes }
--       transposed = true,                        -- nil: matrices stand as ours; true: the other way round
--       task = "CAUSAL_LM",                       -- what PEFT calls what the model is for; nil: it has no word for it
--       tied = function(options) ... end,         -- arrays that are one parameter here and two modules there:
--                                                 -- { [name in entries] = the other name }; nil: there are none
--       in_memory = function(name) ... end,       -- name of an array in files -> what transformers 5 calls it in
--                                                 -- memory, and so PEFT in its files; nil: the same
--       ignored = function(options) ... end,      -- patterns of arrays of files without numbers of the model
--       constants = function(options) ... end,    -- arrays that options tell: { name, dtype, shape, make() }
--       layers = function(options) ... end,       -- how many layers options say, at most as many as arrays; nil:
--                                                 -- blocks, or else depth
--       complete = function(config) ... end,      -- adds to a config.json that is about to be written
--       file = "model.safetensors",               -- the name of the file that is written; nil: this one
--       untyped = true }                          -- config.json does not say the type of the numbers
--
-- A file returns one family, or a list of them (torchvision's and timm's of one class; the first writes new models).
-- `pieces` is a list as Arrays:read_pieces takes it: boxes of arrays which together are the parameter. Export writes by
-- the same list. shapes[name]: that of an array in the file, where pieces see it in another one (shape). Arrays are
-- named by those who made the files; `has(name)` tells whether the file has one. `config` refuses options that the
-- format cannot say (families.refuse). An entry of a buffer has its shape as `buffer`; wide: it is f64; dtype: of the
-- array, in place of that of the model.
-- @module ganymede.hub.families
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local options = require "ganymede.base.options"

local families = {}

-- ---------------------------------------------------------------- config.json

local Config = {}
Config.__index = Config

-- Keys that change no number that a model gives: of what a model is for, of generation, of other programs, and those
-- that files of well-known models have and that the code of transformers for these types does not read.
local idle = {}
for name in ([[architectures model_type torch_dtype dtype transformers_version use_cache bos_token_id eos_token_id
  pad_token_id unk_token_id sep_token_id cls_token_id decoder_start_token_id initializer_range
  is_llama_config pretraining_tp task_specific_params summary_type summary_use_proj summary_activation
  summary_first_dropout summary_proj_to_labels n_ctx id2label label2id output_attentions output_hidden_states
  return_dict problem_type gradient_checkpointing torchscript
  chunk_size_feed_forward is_decoder is_encoder_decoder auto_map
  max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
  typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
  num_return_sequences output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id
  remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens prefix tokenizer_class
  finetuning_task tf_legacy_loss use_bfloat16 cache_implementation
  transformers.js_config unsloth_fixed unsloth_version max_sequence_length full_attn_mod interpolate_factor
  directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
  pooler_type]]):gmatch "%S+" do
  idle[name] = true
end

-- What values of keys are, where that is no matter of the family: whole numbers up to a limit, which keeps lists of
-- layers, heads and experts in bounds before files are looked at; numbers; truths; lists.
local function whole(least, most)
  return { test = function(v) return type(v) == "number" and v % 1 == 0 and v >= least and v <= most end,
           words = ("a whole number from %d to %d"):format(least, most) }
end
local function of_type(name, words)
  return { test = function(v) return type(v) == name and v == v and v ~= math.huge and v ~= -math.huge end,
           words = words }
end
-- A list of 1 to 16 counts, such as blocks of stages; one side of a window, or two.
local function counts(v, most)
  local one = whole(1, most or 2 ^ 16).test
  if type(v) ~= "table" or #v < 1 or #v > 16 then return false end
  for _, n in ipairs(v) do
    if not one(n) then return false end
  end
  return true
end
local list_of_counts = { test = counts, words = "a list of 1 to 16 whole numbers from 1 to 65536" }
local sides = { test = function(v) return counts(type(v) == "table" and #v == 2 and v or { v }) end,
  words = "a whole number from 1 to 65536, or a list of two" }
local one_or_each = { test = function(v) return counts(type(v) == "table" and v or { v }, 1024) end,
  words = "a whole number from 1 to 1024, or a list of them" }
local function ratio(v) return type(v) == "number" and v > 0 and v < 2 ^ 16 end
local ratios = { test = function(v)
    return ratio(v) or type(v) == "table" and #v == 2 and ratio(v[1]) and ratio(v[2])
  end, words = "a number above 0 and below 65536, or a list of two" }
local checks, kinds_of_values = {}, {
  { whole(1, 2 ^ 24), [[vocab_size hidden_size intermediate_size n_embd n_inner n_positions moe_intermediate_size
    max_position_embeddings shared_expert_intermediate_size head_dim num_channels num_classes in_chans width hidden
    pool embed_dim cross_attention_dim in_channels out_channels latent_channels]] },
  { whole(1, 2 ^ 16), [[num_hidden_layers n_layer num_attention_heads n_head num_key_value_heads num_local_experts
    num_experts num_experts_per_tok decoder_sparse_step type_vocab_size patch_size num_labels kernel
    layers_per_block norm_num_groups depth num_heads]] },
  { list_of_counts, "blocks heads block_out_channels" }, { sides, "window img_size image_size" },
  { one_or_each, "attention_head_dim transformer_layers_per_block" },
  { whole(0, 2 ^ 31), "pad_token_id sliding_window max_window_layers original_max_position_embeddings freq_shift" },
  { of_type("number", "a number"), [[rms_norm_eps layer_norm_eps layer_norm_epsilon rope_theta
    partial_rotary_factor attention_dropout hidden_dropout_prob classifier_dropout attention_probs_dropout_prob
    resid_pdrop embd_pdrop attn_pdrop query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping
    router_aux_loss_coef router_jitter_noise dropout drop_path eps layer_scale norm_eps scaling_factor
    drop_path_rate attn_drop_rate]] },
  { ratios, "mlp_ratio" },
  { of_type("boolean", "true or false"), [[tie_word_embeddings attention_bias mlp_bias qkv_bias use_sliding_window
    norm_topk_prob output_router_logits scale_attn_weights scale_attn_by_inverse_layer_idx is_decoder
    add_cross_attention use_bidirectional_attention use_linear_projection flip_sin_to_cos mid_block_add_attention
    use_quant_conv use_post_quant_conv class_token]] },
  { of_type("table", "a list or an object"), [[layer_types rope_parameters rope_scaling mlp_only_layers
    down_block_types up_block_types]] },
  { of_type("string", "a text"), [[model_type hidden_act hidden_activation activation_function
    position_embedding_type stem global_pool resnet_time_scale_shift]] },
}
for _, entry in ipairs(kinds_of_values) do
  for key in entry[2]:gmatch "%S+" do checks[key] = entry[1] end
end

--- The value of a key, or otherwise; null counts as absent. Keys that nobody asks for are refused (`finish`).
function Config:get(key, otherwise)
  self.asked[key] = true
  local value, check = self.values[key], checks[key]
  if value == nil or value == json.null then return otherwise end
  if check and not check.test(value) then
    failure(2, "%s: '%s' is %s; it must be %s", self.path, key, options.brief(value), check.words)
  end
  return value
end

--- The value of a key that null switches off: nil; `without`: where it is absent.
function Config:capped(key, without)
  if self.values[key] == json.null then return nil end
  return self:get(key, without)
end

--- Null, in a config.json that is written.
families.null = json.null

--- The same, and it must be there.
function Config:need(key)
  local value = self:get(key)
  if value == nil then failure(2, "%s: has no '%s'", self.path, key) end
  return value
end

--- A reader of the object that a key holds; it is empty where the key is absent. Its keys that nobody asks for are
-- refused like those of the config itself.
function Config:object(key)
  local values = self:get(key, {})
  if type(values) ~= "table" or #values > 0 then
    failure(2, "%s: '%s' is %s; it must be an object", self.path, key, options.brief(values))
  end
  local inner = setmetatable({ values = values, path = self.path .. ": " .. key, asked = {}, inner = {} }, Config)
  self.inner[#self.inner + 1] = inner
  return inner
end

--- Refuses the config unless the key has this value, or is absent.
function Config:expect(key, wanted)
  local value = self:get(key, wanted)
  if value ~= wanted then
    failure(2, "%s: '%s' is %s; this program has only %s", self.path, key, options.brief(value), options.brief(wanted))
  end
end

--- Refuses the config, for a reason.
function Config:refuse(fmt, ...) failure(2, "%s: " .. fmt, self.path, ...) end

-- Keys that hold something and that nobody understands.
local function finish(self, ignore) -- and of the objects in it
  local unknown = {}
  for key, value in pairs(self.values) do
    local empty = value == json.null or value == false or type(value) == "table" and next(value) == nil
    local said = self.asked[key] or idle[key] or ignore[key] or key:sub(1, 1) == "_"
    if not (said or empty) then unknown[#unknown + 1] = key end
  end
  table.sort(unknown)
  if #unknown > 0 then
    failure(2, "%s: %s: not understood; what changes no number can be left out by ignore = { ... }", self.path,
      table.concat(unknown, ", "))
  end
  for _, inner in ipairs(self.inner) do finish(inner, ignore) end
end

-- ---------------------------------------------------------------- families

local list = { "llama", "moe", "gemma", "phi3", "olmo2", "gpt2", "bert", "roberta", "vit", "resnet", "vgg",
  "convnext", "swin", "mlp_mixer", "diffusers" }

-- All of them, in order.
local function all()
  local out = {}
  for _, name in ipairs(list) do
    local got = require("ganymede.hub.families." .. name)
    for _, family in ipairs(got.model and { got } or got) do out[#out + 1] = family end
  end
  return out
end

--- The family of a model_type, or nil and the types that there are.
function families.of(model_type)
  local types = {}
  for _, family in ipairs(all()) do
    if family.types[model_type] then return family end
    for name_of_type in pairs(family.types) do types[#types + 1] = name_of_type end
  end
  table.sort(types)
  return nil, types
end

--- A family whose arrays have the names that transformers 5 gives them in memory. PEFT writes these, where files of
-- models still have the older ones. The family itself, where there is no difference.
function families.in_memory(family)
  if not family.in_memory then return family end
  local function entries(...)
    local out = {}
    for i, entry in ipairs(family.entries(...)) do
      local pieces, shapes = {}, entry.shapes and {}
      for k, piece in ipairs(entry.pieces) do
        pieces[k] = {}
        for key, value in pairs(piece) do pieces[k][key] = value end
        pieces[k].name = family.in_memory(piece.name)
      end
      for name, shape in pairs(entry.shapes or {}) do shapes[family.in_memory(name)] = shape end
      out[i] = { parameter = entry.parameter, pieces = pieces, shapes = shapes }
    end
    return out
  end
  return setmetatable({ entries = entries }, { __index = family })
end

--- The family that has models of this class with these options, or nil. Families of one class tell by `takes`.
function families.of_class(class, opt)
  for _, family in ipairs(all()) do
    if family.model == class and (not family.takes or family.takes(opt)) then return family end
  end
end

--- The family of a model: that of the files it came from, or else the one that its options fit; nil: none.
function families.of_model(model)
  return model.source and model.source.family or families.of_class(model.name, model.opt)
end

--- The model_type that a config.json says; timm writes only the name of its model, as `architecture`, and diffusers
-- that of the class.
function families.type_of(values)
  if values.model_type ~= nil then return values.model_type end
  if type(values.architecture) == "string" then return "timm." .. values.architecture end
  return type(values._class_name) == "string" and "diffusers." .. values._class_name or nil
end

-- Those of a list of types that stand where this one does: with "timm." before the name, with nothing before it, ...
local function akin(kind, types)
  local found, before = {}, kind:match "^%a+%." or ""
  for _, name in ipairs(types) do
    if (name:match "^%a+%." or "") == before then found[#found + 1] = name end
  end
  return #found > 0 and found or types
end

--- What a config.json says -> family, options of its class. values: its keys; path: for messages; ignore: a list of
-- keys that are known to change no number.
function families.read(values, path, ignore)
  local set = {}
  for _, key in ipairs(ignore or {}) do set[key] = true end
  values.model_type = families.type_of(values)
  local config = setmetatable({ values = values, path = path, asked = {}, inner = {} }, Config)
  local family, types = families.of(config:need "model_type")
  if not family then
    failure(2, "%s: model_type is '%s'; this program has %s", path, tostring(values.model_type),
      table.concat(akin(tostring(values.model_type), types), ", "))
  end
  local opt = family.options(config)
  finish(config, set)
  return family, opt
end

--- What stands before the names of arrays of a model in a file: root, or nothing where it has `first` without it, as a
-- model that was saved without its head does. has: as of `entries`; nil: root.
function families.root(has, first, root) return has and has(first) and "" or root end

--- Activation functions that are not gated: name there -> name here.
families.activations = { gelu = "gelu", gelu_new = "gelu_tanh", gelu_pytorch_tanh = "gelu_tanh", relu = "relu",
  silu = "silu" }

local theirs_of = { gelu_tanh = "gelu_new", gelu = "gelu", relu = "relu", silu = "silu" }

--- The name there of an activation function of ours.
function families.activation_there(model_type, ours)
  return theirs_of[ours] or families.refuse(model_type, "activation", ours)
end

--- A width that was worked out by a ratio, without the rounding of the ratio.
function families.rounded(n) return math.floor(n + 0.5) end

--- Refuses to write a model with an option that the format of its family does not have.
function families.refuse(model_type, name, value)
  failure(2, "%s = %s: a model of type %s cannot say that in its config.json; write plain arrays (--plain, or "
    .. "gm.save_arrays)", name, options.brief(value), model_type)
end

--- The number of classes that a config.json says: that of their names.
function families.classes_of(config)
  local names, count = config:get "id2label", 0
  if type(names) ~= "table" then return config:get("num_labels", 2) end
  for _ in pairs(names) do count = count + 1 end
  return count
end

--- Names of so many classes: id2label, label2id.
function families.labels(count)
  local names, numbers = {}, {}
  for i = 0, count - 1 do names[tostring(i)], numbers["LABEL_" .. i] = "LABEL_" .. i, i end
  return names, numbers
end

-- ---------------------------------------------------------------- boxes

--- Arrays of entries: list of { name, dtype, shape } in order, from the shapes of parameters and their pieces.
function families.arrays(entries, shapes, dtype)
  local out, at = {}, {}
  for _, entry in ipairs(entries) do
    local shape = shapes[entry.parameter]
    for _, piece in ipairs(entry.pieces) do
      local size, order = piece.size or shape, piece.order
      if piece.transpose then order = { 2, 1 } end
      local known = at[piece.name]
      if not known then
        local given = entry.shapes and entry.shapes[piece.name]
        known = { name = piece.name, dtype = entry.dtype or dtype, shape = given or {}, given = given ~= nil }
        at[piece.name], out[#out + 1] = known, known
      end
      for d = 1, known.given and 0 or #shape do
        local e = order and order[d] or d
        known.shape[e] = math.max(known.shape[e] or 0, (piece.offset and piece.offset[e] or 1) - 1 + size[d])
      end
    end
  end
  return out
end

--- A parameter that is one array. transposed: it is stored the other way round.
function families.whole(parameter, name, transposed)
  return { parameter = parameter, pieces = { { name = name, transpose = transposed or nil } } }
end

--- Pieces of rows for queries, keys and values: our rows go key head by key head, each with its `group` queries, its
-- key and its value of `size` rows. source(part, head) -> name of the array and the row, from 1, of its first row;
-- part: 1 queries, 2 key, 3 value. shape: of the rest of a row (nil for a bias); transposed: rows are columns there.
function families.qkv(kv_heads, group, size, width, source, transposed)
  local pieces, row = {}, 1
  for head = 0, kv_heads - 1 do
    for part = 1, 3 do
      local rows = part == 1 and group * size or size
      local name, first = source(part, head)
      local piece = { name = name, offset = { first }, at = { row }, size = { rows } }
      if width then
        piece.offset = transposed and { 1, first } or { first, 1 }
        piece.at, piece.size = { row, 1 }, { rows, width }
        piece.order = transposed and { 2, 1 } or nil
      end
      pieces[#pieces + 1] = piece
      row = row + rows
    end
  end
  return pieces
end

local List = {}
List.__index = List

--- An empty list of entries, with methods that add some.
function families.list() return setmetatable({}, List) end

--- A parameter that is one array.
function List:add(ours, theirs, transposed) self[#self + 1] = families.whole(ours, theirs, transposed) end

--- Weight and bias of a layer.
function List:both(ours, theirs, transposed)
  self:add(ours .. ".weight", theirs .. ".weight", transposed)
  self:add(ours .. ".bias", theirs .. ".bias")
end

--- Queries, keys and values of layers of their own: names, in this order, behind `theirs`. has_bias: they have biases.
function List:qkv(opt, ours, theirs, names, has_bias)
  local kv, size = opt.kv_heads or opt.heads, opt.head_size or opt.width / opt.heads
  local group = opt.heads / kv
  local function rows(what)
    return function(part, head)
      return theirs .. names[part] .. what, head * (part == 1 and group or 1) * size + 1
    end
  end
  self[#self + 1] = { parameter = ours .. ".weight",
                      pieces = families.qkv(kv, group, size, opt.width, rows ".weight") }
  if has_bias then
    self[#self + 1] = { parameter = ours .. ".bias", pieces = families.qkv(kv, group, size, nil, rows ".bias") }
  end
end

--- The tables and blocks of an encoder as BERT's files have them. has: tells whether a file is of the encoder alone,
-- which has no prefix before the names of its arrays -> a list, what stands before these names.
function families.encoder(opt, has, prefix)
  local entries, root = families.list(), families.root(has, "embeddings.word_embeddings.weight", prefix)
  entries:add("tokens.weight", root .. "embeddings.word_embeddings.weight")
  entries:add("segments.weight", root .. "embeddings.token_type_embeddings.weight")
  entries:add("positions.weight", root .. "embeddings.position_embeddings.weight")
  entries:both("norm", root .. "embeddings.LayerNorm")
  for i = 1, opt.depth do
    local ours, theirs = ("blocks.%d."):format(i), ("%sencoder.layer.%d."):format(root, i - 1)
    entries:qkv(opt, ours .. "attention.qkv", theirs .. "attention.self.", { "query", "key", "value" }, true)
    entries:both(ours .. "attention.output", theirs .. "attention.output.dense")
    entries:both(ours .. "norm1", theirs .. "attention.output.LayerNorm")
    entries:both(ours .. "mlp.up", theirs .. "intermediate.dense")
    entries:both(ours .. "mlp.down", theirs .. "output.dense")
    entries:both(ours .. "norm2", theirs .. "output.LayerNorm")
  end
  return entries, root
end

return families
