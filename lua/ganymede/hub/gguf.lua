--- Models in one GGUF file, as llama.cpp writes them: Llama, Mixtral, Qwen2, Qwen3 and the two with experts, with
-- numbers of any type that is read.
--
-- The keys of the file become options of gm.models.Llama; keys of the architecture that nobody understands are refused.
-- llama.cpp turns neighbouring pairs, where transformers and we turn the halves of a head: for Llama the rows of
-- queries and keys stand in the order 0, d/2, 1, d/2 + 1, ... in the file, and are put back here.
-- Llama 3.1 and later bring the factors by which frequencies are divided as an array, rope_freqs.weight.
-- @module ganymede.hub.gguf
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local families = require "ganymede.hub.families"
local experts = require "ganymede.hub.gguf_experts"
local json = require "ganymede.base.json"
local options = require "ganymede.base.options"
local rotary = require "ganymede.nn.rotary"
local tensors = require "ganymede.tensor"
local tokenizers = require "ganymede.text.tokenizer"

local gguf = {}

-- ---------------------------------------------------------------- keys

-- architecture -> { permuted = rows of queries and keys stand in pairs, norm = queries and keys are normalised, moe =
-- it has experts, shared = one of them takes all tokens }
local architectures = { llama = { permuted = true }, qwen2 = {}, qwen3 = { norm = true },
  qwen2moe = { moe = true, shared = true }, qwen3moe = { moe = true, norm = true } }

local Keys = {}
Keys.__index = Keys

-- What values are: whole numbers from 1 to 2^24 ("whole"), also lists of them, which who asks looks at ("list"), or
-- numbers.
local kinds = { vocab_size = "whole", embedding_length = "whole", block_count = "whole", feed_forward_length = "whole",
  context_length = "whole", ["attention.head_count"] = "list", ["attention.head_count_kv"] = "list",
  ["attention.key_length"] = "whole", ["attention.value_length"] = "whole", ["rope.dimension_count"] = "whole",
  ["rope.freq_base"] = "number", ["rope.scaling.factor"] = "number", expert_count = "number",
  expert_used_count = "number", ["rope.scaling.attn_factor"] = "number", ["rope.scaling.yarn_attn_factor"] = "number",
  ["rope.scaling.yarn_beta_fast"] = "number", ["rope.scaling.yarn_beta_slow"] = "number",
  ["rope.scaling.original_context_length"] = "whole", expert_feed_forward_length = "whole",
  expert_shared_feed_forward_length = "whole", ["attention.layer_norm_rms_epsilon"] = "number" }

local function is_kind(kind, value)
  if kind == nil or kind == "list" and type(value) == "table" then return true end
  return type(value) == "number" and (kind == "number" or value % 1 == 0 and value >= 1 and value <= 2 ^ 24)
end

function Keys:get(name, otherwise)
  self.asked[self.architecture .. "." .. name] = true
  local value = self.meta[self.architecture .. "." .. name]
  if value == nil then return otherwise end
  if not is_kind(kinds[name], value) then
    failure(2, "%s: the key '%s.%s' is %s; it must be a %s", self.path, self.architecture, name,
      type(value) == "table" and "a list" or options.brief(value),
      kinds[name] == "number" and "number" or "whole number from 1 to 2^24")
  end
  return value
end

function Keys:need(name)
  local value = self:get(name)
  if value == nil then failure(2, "%s: has no key '%s.%s'", self.path, self.architecture, name) end
  return value
end

-- Keys of the architecture that hold something and that nobody understands; ignore: a list of those that change no
-- number.
local function finish(self, ignore)
  local unknown = {}
  for _, key in ipairs(ignore or {}) do self.asked[key] = true end
  for key in pairs(self.meta) do
    if key:sub(1, #self.architecture + 1) == self.architecture .. "." and not self.asked[key] then
      unknown[#unknown + 1] = key
    end
  end
  table.sort(unknown)
  if #unknown > 0 then failure(2, "%s: keys that are not understood: %s", self.path, table.concat(unknown, ", ")) end
end

local FACTORS = "rope_freqs.weight" -- by which frequencies are divided, one for each pair

-- The factors of a file -> list of numbers; nil: it has none, or all are 1.
local function factors_of(file, pairs_turned)
  local info = file:info(FACTORS)
  if not info then return nil end
  if #info.shape ~= 1 or info.shape[1] ~= pairs_turned then
    failure(2, "%s: '%s' is (%s), and %d pairs of a head are turned", file.path, FACTORS,
      table.concat(info.shape, ", "), pairs_turned)
  end
  local list = tensors.scope(function() return file:read(FACTORS, { dtype = "f64" }):totable() end)
  for _, f in ipairs(list) do
    if f ~= 1 then return list end
  end
end

-- Does a scaling divide frequencies by these factors, which are rounded to f32?
local function gives(scaling, factors, base, size)
  local opt = { base = base, fraction = 2 * #factors / size }
  local plain = rotary.frequencies("rope_freqs", opt, size)
  opt.scaling = scaling
  for j, f in ipairs((rotary.frequencies("rope_freqs", opt, size))) do
    if math.abs(plain[j] / f - factors[j]) > 1e-5 * factors[j] then return false end
  end
  return true
end

-- What the factors are: those of Llama 3.1 and later for one of the lengths that such models may have had before, or
-- else a list, which LongRoPE has words for. Such files do not say it.
local function scaling_of_factors(factors, base, size)
  local most = 1
  for _, f in ipairs(factors) do most = math.max(most, f) end
  for power = 4, 20 do
    local scaling = { type = "llama3", factor = most, low = 1, high = 4, length = 2 ^ power }
    if gives(scaling, factors, base, size) then return scaling end
  end
  return { type = "longrope", short = factors, long = factors, factor = 1, magnitude = 1, length = 2 ^ 20 }
end

-- What llama.cpp multiplies queries and keys by is attn_factor times what yarn says itself. Its converter writes the
-- attention_factor of transformers, which stands for both, as yarn_attn_factor; llama.cpp has it for other
-- architectures only. -> nil: what yarn says itself.
local function magnitude_of(keys, factor)
  local own, whole = keys:get "rope.scaling.attn_factor", keys:get "rope.scaling.yarn_attn_factor"
  if own and whole then
    failure(2, "%s: has %s.rope.scaling.attn_factor and yarn_attn_factor; one of both says how much queries and keys "
      .. "grow", keys.path, keys.architecture)
  end
  return whole or own and own * (0.1 * math.log(math.max(1, factor)) + 1)
end

local function yarn_of(keys)
  local factor = keys:need "rope.scaling.factor"
  if keys:get("rope.scaling.yarn_ext_factor", 1) ~= 1 then
    failure(2, "%s: %s.rope.scaling.yarn_ext_factor is %s; this program has only 1", keys.path, keys.architecture,
      options.brief(keys:get "rope.scaling.yarn_ext_factor"))
  end
  return { type = "yarn", factor = factor, magnitude = magnitude_of(keys, factor),
    length = keys:get("rope.scaling.original_context_length", keys:need "context_length"),
    fast = keys:get("rope.scaling.yarn_beta_fast", 32), slow = keys:get("rope.scaling.yarn_beta_slow", 1) }
end

-- A factor without a type is linear, as in llama.cpp.
local function stretched(keys)
  keys:get "rope.scaling.finetuned" -- what was done to the model, and no number of it
  local kind = keys:get("rope.scaling.type", keys:get "rope.scaling.factor" and "linear" or "none")
  if kind == "yarn" then return yarn_of(keys), kind end
  if kind == "none" then return nil, kind end
  if kind ~= "linear" then
    failure(2, "%s: rope.scaling.type is %s; of GGUF files this program has none, linear and yarn", keys.path,
      options.brief(kind))
  end
  keys:get "rope.scaling.original_context_length" -- which linear does not need
  return { type = "linear", factor = keys:need "rope.scaling.factor" }, kind
end

local function rotary_of(keys, size, file)
  local turned = keys:get("rope.dimension_count", size)
  if turned ~= size and architectures[keys.architecture].permuted then
    failure(2, "%s: turns %d of the %d numbers of a head (%s.rope.dimension_count), and a file does not say in which "
      .. "order their rows are; this program reads such models from safetensors", keys.path, turned, size,
      keys.architecture)
  end
  local scaling, kind = stretched(keys)
  local base, factors = keys:get("rope.freq_base", 10000), factors_of(file, turned / 2)
  if factors and scaling then
    failure(2, "%s: has rope.scaling.type %s and '%s'; one of both says how positions are stretched", keys.path, kind,
      FACTORS)
  end
  return { base = base, fraction = turned / size,
    scaling = factors and scaling_of_factors(factors, base, size) or scaling }
end

local function sizes_of(keys)
  local width, heads = keys:need "embedding_length", keys:need "attention.head_count"
  local kv_heads = keys:get("attention.head_count_kv", heads)
  if type(heads) == "table" or type(kv_heads) == "table" then
    failure(2, "%s: layers with different numbers of heads, which this program does not have", keys.path)
  end
  local size = keys:get("attention.key_length", width / heads)
  if size % 1 ~= 0 then
    failure(2, "%s: there are %d heads, which do not divide the width, %d", keys.path, heads, width)
  end
  if keys:get("attention.value_length", size) ~= size then
    failure(2, "%s: keys and values of different lengths, which this program does not have", keys.path)
  end
  return width, heads, kv_heads, size
end

-- Refuses heads that the first layer has no rows for, before a list is made of them.
local function check_rows(file, which, heads, size, width)
  local name = ("blk.0.%s.weight"):format(which)
  local array = file:info(name) or failure(2, "%s: has no array '%s'", file.path, name)
  if #array.shape ~= 2 or array.shape[1] ~= heads * size or array.shape[2] ~= width then
    failure(2, "%s: '%s' is (%s), and %d heads of %d numbers need (%d, %d)", file.path, name,
      table.concat(array.shape, ", "), heads, size, heads * size, width)
  end
end

-- The options of the class.
local function options_of(keys, file, ignore)
  local width, heads, kv_heads, size = sizes_of(keys)
  check_rows(file, "attn_q", heads, size, width)
  check_rows(file, "attn_k", kv_heads, size, width)
  local eps, about = keys:need "attention.layer_norm_rms_epsilon", architectures[keys.architecture]
  local tokens = file:info "token_embd.weight" or failure(2, "%s: has no array 'token_embd.weight'", file.path)
  if #tokens.shape ~= 2 then failure(2, "%s: 'token_embd.weight' is no matrix", file.path) end
  if keys:get("vocab_size", tokens.shape[1]) ~= tokens.shape[1] then
    failure(2, "%s: says a vocabulary of %d (%s.vocab_size), and 'token_embd.weight' has %d rows", file.path,
      keys:get "vocab_size", keys.architecture, tokens.shape[1])
  end
  local depth, most = keys:need "block_count", #file:names()
  if depth > most then
    failure(2, "%s: says that there are %d layers; it has %d arrays", file.path, depth, most)
  end
  local moe = experts.options(keys, file, about)
  if about.moe and not moe then
    failure(2, "%s: is a %s without experts (%s.expert_count)", file.path, keys.architecture, keys.architecture)
  end
  local opt = {
    vocabulary = tokens.shape[1], moe = moe, width = width, heads = heads, kv_heads = kv_heads,
    head_size = size ~= width / heads and size or nil, depth = depth,
    hidden = keys:get("feed_forward_length", moe and moe.hidden) or keys:need "feed_forward_length",
    sequence_length = keys:need "context_length", eps = eps,
    rotary = rotary_of(keys, size, file), tied = not file:has "output.weight", bias = false,
    qkv_bias = file:has "blk.0.attn_q.bias" or nil, qk_norm = about.norm and eps or nil,
  }
  finish(keys, ignore)
  return opt
end

-- ---------------------------------------------------------------- arrays

-- A half of a head: rows 0, 2, 4, ... or 1, 3, 5, ... of the file, which is seen as rows of two.
local function half(name, rows, width, first, at, which, size)
  return { name = name, shape = { rows / 2, 2 * width }, offset = { first / 2 + 1, which * width + 1 },
           at = { at, 1 }, size = { size / 2, width } }
end

-- Pieces of our rows: key head by key head, its queries, its key, its value.
local function qkv_pieces(opt, stem, permuted)
  local size, group = opt.head_size or opt.width / opt.heads, opt.heads / opt.kv_heads
  local pieces, at = {}, 1
  local function take(name, heads, head)
    if permuted then
      for which = 0, 1 do
        pieces[#pieces + 1] = half(name, heads * size, opt.width, head * size, at + which * size / 2, which, size)
      end
    else
      pieces[#pieces + 1] = { name = name, offset = { head * size + 1, 1 }, at = { at, 1 }, size = { size, opt.width } }
    end
    at = at + size
  end
  for kv = 0, opt.kv_heads - 1 do
    for q = 0, group - 1 do take(stem .. "attn_q.weight", opt.heads, kv * group + q) end
    take(stem .. "attn_k.weight", opt.kv_heads, kv)
    pieces[#pieces + 1] = { name = stem .. "attn_v.weight", offset = { kv * size + 1, 1 }, at = { at, 1 },
                            size = { size, opt.width } }
    at = at + size
  end
  return pieces
end

local function entries_of(opt, architecture, file)
  local about, list = architectures[architecture], families.list()
  list:add("tokens.weight", "token_embd.weight")
  for i = 1, opt.depth do
    local ours, theirs = ("blocks.%d."):format(i), ("blk.%d."):format(i - 1)
    list:add(ours .. "norm1.weight", theirs .. "attn_norm.weight")
    list[#list + 1] = { parameter = ours .. "attention.qkv.weight", pieces = qkv_pieces(opt, theirs, about.permuted) }
    if opt.qkv_bias then
      local names = { "attn_q", "attn_k", "attn_v" }
      local both = families.list()
      both:qkv(opt, ours .. "attention.qkv", theirs, names, true)
      list[#list + 1] = both[2]
    end
    if about.norm then
      list:add(ours .. "attention.query_norm", theirs .. "attn_q_norm.weight")
      list:add(ours .. "attention.key_norm", theirs .. "attn_k_norm.weight")
    end
    list:add(ours .. "attention.output.weight", theirs .. "attn_output.weight")
    list:add(ours .. "norm2.weight", theirs .. "ffn_norm.weight")
    if opt.moe then experts.entries(list, opt, file, ours .. "mlp.", i - 1) end
    for _, name in ipairs(opt.moe and {} or { "gate", "up", "down" }) do
      list:add(("%smlp.%s.weight"):format(ours, name), ("%sffn_%s.weight"):format(theirs, name))
    end
  end
  list:add("norm.weight", "output_norm.weight")
  if not opt.tied then list:add("head.weight", "output.weight") end
  return list
end

--- What the model of an open GGUF file is -> class, options, entries. ignore: keys that change no number.
function gguf.model(file, ignore)
  local architecture = file.meta["general.architecture"]
  if not architectures[architecture] then
    failure(2, "%s: general.architecture is %s; this program has llama, qwen2, qwen2moe, qwen3, qwen3moe", file.path,
      options.brief(architecture))
  end
  local keys = setmetatable({ meta = file.meta, path = file.path, architecture = architecture, asked = {} }, Keys)
  local opt = options_of(keys, file, ignore)
  if architectures[architecture].permuted and opt.qkv_bias then
    failure(2, "%s: a llama with biases of queries, which this program reads from safetensors only", file.path)
  end
  return "Llama", opt, entries_of(opt, architecture, file)
end

--- Patterns of arrays that are read with the options.
gguf.ignored = { "^rope_freqs%.weight$" }

--- The tokens that end a text.
function gguf.stop_tokens(meta)
  local list = {}
  for _, name in ipairs { "eos", "eot", "eom" } do
    local id = meta[("tokenizer.ggml.%s_token_id"):format(name)]
    if id then list[#list + 1] = id end
  end
  return list
end

-- ---------------------------------------------------------------- tokenizer

local function bytes(use_regex)
  return { type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = use_regex }
end

local function split(pattern)
  return { type = "Sequence", pretokenizers = json.array {
    { type = "Split", pattern = { Regex = pattern }, behavior = "Isolated", invert = false }, bytes(false) } }
end

local words = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
local rest = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

-- How texts are cut before merging, by the name that llama.cpp gives to it.
local pre_tokenizers = {
  ["gpt-2"] = bytes(true), ["llama-bpe"] = split(words .. "\\p{N}{1,3}" .. rest),
  qwen2 = split(words .. "\\p{N}" .. rest),
  smollm = { type = "Sequence", pretokenizers = json.array {
    { type = "Digits", individual_digits = true }, bytes(true) } },
}

local CONTROL, USER_DEFINED = 3, 4 -- types of tokens

-- The tokens that stand in no merge, such as <|im_end|>.
local function added_tokens(tokens, types)
  local list = json.array {}
  for i, content in ipairs(tokens) do
    if types[i] == CONTROL or types[i] == USER_DEFINED then
      list[#list + 1] = { id = i - 1, content = content, special = types[i] == CONTROL, single_word = false,
        lstrip = false, rstrip = false, normalized = false }
    end
  end
  return list
end

-- A token that is put before each text, or null.
local function processor(meta, tokens)
  local id = meta["tokenizer.ggml.bos_token_id"]
  if not meta["tokenizer.ggml.add_bos_token"] or not id then return json.null end
  local token = tokens[id + 1]
  return { type = "TemplateProcessing",
    single = json.array { { SpecialToken = { id = token, type_id = 0 } }, { Sequence = { id = "A", type_id = 0 } } },
    pair = json.array { { SpecialToken = { id = token, type_id = 0 } }, { Sequence = { id = "A", type_id = 0 } },
      { SpecialToken = { id = token, type_id = 1 } }, { Sequence = { id = "B", type_id = 1 } } },
    special_tokens = { [token] = { id = token, ids = json.array { id }, tokens = json.array { token } } } }
end

--- The tokenizer of a GGUF file, as the texts of tokenizer.json and tokenizer_config.json; nil and why it cannot be:
-- only byte-level BPE is understood, cut in a way that is known here.
function gguf.tokenizer_files(meta)
  local kind, pre = meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"]
  if kind == nil then return nil, "it has no tokenizer (tokenizer.ggml.model)" end
  if kind ~= "gpt2" then return nil, ("its tokenizer is of the kind %s"):format(options.brief(kind)) end
  if pre == nil then return nil, "it does not say how texts are cut before merging (tokenizer.ggml.pre)" end
  if not pre_tokenizers[pre] then return nil, ("its texts are cut as '%s'"):format(tostring(pre)) end
  local tokens, vocab = meta["tokenizer.ggml.tokens"] or {}, {}
  for i, token in ipairs(tokens) do vocab[token] = i - 1 end
  local file = {
    version = "1.0", truncation = json.null, padding = json.null,
    added_tokens = added_tokens(tokens, meta["tokenizer.ggml.token_type"] or {}),
    normalizer = pre == "qwen2" and { type = "NFC" } or json.null, pre_tokenizer = pre_tokenizers[pre],
    post_processor = processor(meta, tokens), decoder = bytes(true),
    model = { type = "BPE", dropout = json.null, unk_token = json.null, continuing_subword_prefix = json.null,
      end_of_word_suffix = json.null, fuse_unk = false, byte_fallback = false, ignore_merges = pre == "llama-bpe",
      vocab = vocab, merges = json.array(meta["tokenizer.ggml.merges"] or {}) },
  }
  local config = { chat_template = meta["tokenizer.chat_template"] }
  for _, name in ipairs { "bos", "eos" } do
    local id = meta[("tokenizer.ggml.%s_token_id"):format(name)]
    config[name .. "_token"] = id and tokens[id + 1] or nil
  end
  return json.encode(file), json.encode(config)
end

--- Writes the files of its tokenizer into a folder -> list of their names; nil and why not.
function gguf.write_tokenizer(meta, folder)
  local file, config = gguf.tokenizer_files(meta)
  if not file then return nil, config end
  core.write_whole(folder .. "/tokenizer.json", file)
  core.write_whole(folder .. "/tokenizer_config.json", config)
  return { "tokenizer.json", "tokenizer_config.json" }
end

--- The tokenizer of a GGUF file, for a while in files of the system's temporary folder.
function gguf.tokenizer(source)
  local folder = os.tmpname() .. ".d"
  core.make_folders(folder)
  return failure.protect(function()
    for _, name in ipairs { "tokenizer.json", "tokenizer_config.json" } do os.remove(folder .. "/" .. name) end
    os.remove(folder)
    os.remove((folder:gsub("%.d$", "")))
  end, function()
    local ok, why = gguf.write_tokenizer(source.file.meta, folder)
    if not ok then
      failure(2, "%s: %s, which this program does not read; --tokenizer names another", source.path, why)
    end
    local tokenizer = tokenizers.open(folder)
    if source.file.meta["tokenizer.chat_template"] then tokenizer:load_template() end
    return tokenizer
  end)
end

return gguf
