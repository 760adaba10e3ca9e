--- Files of models that are damaged or lie, by a seeded fuzzer (spec.support.mutate): each is refused with a message
-- that names the file, or it is valid; memory is bounded. More files: GANYMEDE_SPEC_FILES=20000, under the sanitizers.
local failure = require "ganymede.base.failure"
local ffi = require "ffi"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local mutate = require "spec.support.mutate"
local shell = require "spec.support.shell"

local GOLDEN, HUB = GANYMEDE_ROOT .. "/spec/golden/", GANYMEDE_ROOT .. "/spec/golden/hub/"
local ROOM = 2 ^ 29 -- bytes of memory that a file of some kilobytes may cost, and the largest of an accepted one
local COUNT = mutate.count(30)

local folder

-- Runs `open` on files that `make(r)` has written; what it raises must be clear and name `name`.
local function fuzz(name, seed, make, open)
  local accepted = 0
  mutate.bounded(ROOM, function()
    for i = 1, COUNT do
      local r = mutate.random(seed * 1000003 + i)
      make(r)
      local ok, err = pcall(gm.scope, gm.no_grad, open, r)
      if ok then accepted = accepted + 1
      else
        local text = failure.text(err)
        assert(mutate.is_clear(text, name), ("file %d of seed %d: %s"):format(i, seed, text:sub(1, 600)))
      end
      if i % 10 == 0 then collectgarbage() end
    end
  end)
  return accepted
end

local function path(name) return folder .. "/" .. name end

-- Reads all arrays that fit into memory.
local function read_all(file)
  for _, name in ipairs(file:names()) do
    if file:info(name).bytes < 2 ^ 22 then gm.scope(function() file:read(name) end) end
  end
  file:close()
end

-- A safetensors file of a header, as a value or a text, and bytes of data.
local function u64(n) return ffi.string(ffi.new("uint64_t[1]", n), 8) end
local function safetensors(header, data)
  if type(header) == "table" then header = json.encode(header) end
  return u64(#header) .. header .. data
end

local function parts_of(bytes)
  local n = tonumber(ffi.cast("const uint64_t *", bytes)[0])
  return json.decode(bytes:sub(9, 8 + n), "header"), bytes:sub(9 + n)
end

local crc = {}
for n = 0, 255 do
  local c = n
  for _ = 1, 8 do c = bit.band(c, 1) == 1 and bit.bxor(0xedb88320, bit.rshift(c, 1)) or bit.rshift(c, 1) end
  crc[n] = c
end
local function crc32(text)
  local c = bit.bnot(0)
  for i = 1, #text do c = bit.bxor(crc[bit.band(bit.bxor(c, text:byte(i)), 255)], bit.rshift(c, 8)) end
  return bit.bnot(c)
end

local function u16(n) return ffi.string(ffi.new("uint16_t[1]", n), 2) end
local function u32(n) return ffi.string(ffi.new("int32_t[1]", n), 4) end

-- A zip file of entries { name, bytes }, stored.
local function zip(entries)
  local out, directory, at = {}, {}, 0
  for _, e in ipairs(entries) do
    local about = u16(20) .. u16(0) .. u16(0) .. u32(0) .. u32(crc32(e[2])) .. u32(#e[2]) .. u32(#e[2]) .. u16(#e[1])
      .. u16(0)
    out[#out + 1] = "PK\3\4" .. about .. e[1] .. e[2]
    directory[#directory + 1] = "PK\1\2" .. u16(20) .. about .. u16(0) .. u16(0) .. u16(0) .. u32(0) .. u32(at) .. e[1]
    at = at + #out[#out]
  end
  local list = table.concat(directory)
  return table.concat(out) .. list .. "PK\5\6" .. u16(0) .. u16(0) .. u16(#entries) .. u16(#entries) .. u32(#list)
    .. u32(at) .. u16(0)
end

describe("hostile files of arrays", function()
  setup(function() folder = shell.temporary_folder() end)
  teardown(function() shell.remove(folder) end)

  local function arrays(name, seed, make)
    local accepted = fuzz(name, seed, function(r) shell.write(path(name), make(r)) end,
      function() read_all(gm.open_arrays(path(name))) end)
    assert(accepted < COUNT, "no file was refused")
  end

  for seed, name in ipairs { "arrays.safetensors", "arrays.gguf", "arrays.npy", "arrays_fortran.npy", "arrays.npz" } do
    it("are refused or valid: bytes of " .. name, function()
      local good = shell.read(GOLDEN .. name)
      arrays(name, seed, function(r) return mutate.bytes(r, good, 600) end)
    end)
  end

  it("are refused or valid: headers of safetensors", function()
    local header, data = parts_of(shell.read(GOLDEN .. "arrays.safetensors"))
    arrays("h.safetensors", 6, function(r)
      return safetensors(mutate.text(r, json.encode(mutate.json(r, header))), data)
    end)
  end)

  it("are refused or valid: npz whose checksums are right", function()
    local good = shell.read(GOLDEN .. "arrays.npy")
    arrays("z.npz", 7, function(r)
      local entries = {}
      for i = 0, r(3) do
        entries[i + 1] = { r.one { "a.npy", "b.npy", "../c.npy", ".npy", "d" }, mutate.bytes(r, good, 128) }
      end
      return zip(entries)
    end)
    gm.open_arrays(shell.write(path "good.npz", zip { { "a.npy", good } })):close() -- the zip itself is one
  end)

  it("are refused or valid: indexes of several files", function()
    local from = HUB .. "llama_tied_biased/"
    for i = 1, 4 do
      local name = ("model-%05d-of-00004.safetensors"):format(i)
      shell.write(path(name), shell.read(from .. name))
    end
    local index = json.decode(shell.read(from .. "model.safetensors.index.json"), "index")
    arrays("model.safetensors.index.json", 8, function(r)
      return mutate.text(r, json.encode(mutate.json(r, index)))
    end)
  end)
end)

describe("hostile models", function()
  setup(function() folder = shell.temporary_folder() end)
  teardown(function() shell.remove(folder) end)

  local function use(model)
    if model:count() > 2 ^ 22 then return end
    model:eval():parameters()
    if model.name == "Llama" or model.name == "GPT" then model(gm.zeros({ 1, 3 }, { dtype = "i64" })) end
    if model.name == "RoBERTa" then model(gm.zeros({ 1, 1 }, { dtype = "i64" })) end
    local channels = model.opt.channels
    if model.name == "AutoencoderKL" and channels < 9 and #model.opt.multipliers < 5 then
      model(gm.zeros { 1, channels, 16, 16 })
    end
  end

  local names = { "llama", "qwen2_windows", "mixtral_odd", "qwen2_moe_sparse", "gemma2", "phi3_odd", "gpt2", "bert_odd",
    "vit_odd", "sd_unet_odd", "sd_vae_odd", "timm_vit", "timm_mixer", "roberta_classes", "xlm_roberta" }
  for seed, name in ipairs(names) do
    it("are refused or valid: config.json of " .. name, function()
      local weights = name:find "^sd_" and "/diffusion_pytorch_model.safetensors" or "/model.safetensors"
      shell.write(path "model.safetensors", shell.read(HUB .. name .. weights))
      local config = json.decode(shell.read(HUB .. name .. "/config.json"), "config")
      fuzz(folder, 100 + seed, function(r)
        shell.write(path "config.json", mutate.text(r, json.encode(mutate.json(r, config))))
      end, function() use(gm.pretrained(folder, { strict = COUNT % 2 == 0 })) end)
    end)
  end

  it("are refused with more layers or larger arrays than there are, before memory is taken", function()
    shell.write(path "model.safetensors", shell.read(HUB .. "llama/model.safetensors"))
    local function refused(pattern, change)
      local config = json.decode(shell.read(HUB .. "llama/config.json"), "config")
      change(config)
      shell.write(path "config.json", json.encode(config))
      mutate.bounded(ROOM, function()
        local ok, err = pcall(function() gm.pretrained(folder, { strict = false }) end)
        assert.is_false(ok)
        assert.matches(pattern, failure.text(err))
      end)
    end
    refused("there are 60000 layers; the files have 21 arrays", function(c)
      c.num_hidden_layers, c.layer_types = 60000, nil
    end)
    refused("'model.embed_tokens.weight' is %(29, 12%), and the model that it says needs %(16000000, 12%)", function(c)
      c.vocab_size = 16000000
    end)
  end)

  it("are refused or valid: arrays of llama", function()
    local header, data = parts_of(shell.read(HUB .. "llama/model.safetensors"))
    shell.write(path "config.json", shell.read(HUB .. "llama/config.json"))
    fuzz(folder, 120, function(r)
      shell.write(path "model.safetensors", safetensors(json.encode(mutate.json(r, header)), data))
    end, function() use(gm.pretrained(folder)) end)
  end)

  it("are refused or valid: GGUF", function()
    local keys = { ["general.architecture"] = "llama" }
    for key, value in pairs { vocab_size = 5, embedding_length = 4, block_count = 1, feed_forward_length = 6,
                              context_length = 8, ["attention.head_count"] = 2, ["attention.head_count_kv"] = 1,
                              ["attention.layer_norm_rms_epsilon"] = 0.001 } do keys["llama." .. key] = value end
    local text = function(s) return u64(#s) .. s end
    local function key(name, value)
      if type(value) == "string" then return text(name) .. u32(8) .. text(value) end
      if type(value) == "boolean" then return text(name) .. u32(7) .. (value and "\1" or "\0") end
      if type(value) ~= "number" then return text(name) .. u32(9) .. u32(8) .. u64(1) .. text "a" end
      return text(name) .. u32(12) .. ffi.string(ffi.new("double[1]", value), 8)
    end
    local shapes = { ["token_embd.weight"] = { 4, 5 }, ["output_norm.weight"] = { 4 },
      ["blk.0.attn_norm.weight"] = { 4 }, ["blk.0.ffn_norm.weight"] = { 4 },
      ["blk.0.attn_q.weight"] = { 4, 4 }, ["blk.0.attn_k.weight"] = { 4, 2 },
      ["blk.0.attn_v.weight"] = { 4, 2 }, ["blk.0.attn_output.weight"] = { 4, 4 }, ["blk.0.ffn_gate.weight"] = { 4, 6 },
      ["blk.0.ffn_up.weight"] = { 4, 6 }, ["blk.0.ffn_down.weight"] = { 6, 4 } }
    local function file(own)
      local head, list, at, count = {}, {}, 0, 0
      for name, value in pairs(own) do
        head[#head + 1] = key(name, value)
        count = count + 1
      end
      for name, shape in pairs(shapes) do list[#list + 1] = { name, shape } end
      for _, a in ipairs(list) do
        local n, dims = 4, {}
        for d, size in ipairs(a[2]) do n, dims[d] = n * size, u64(size) end
        head[#head + 1] = text(a[1]) .. u32(#dims) .. table.concat(dims) .. u32(0) .. u64(at)
        at = at + n + -n % 32
      end
      local start = "GGUF" .. u32(3) .. u64(#list) .. u64(count) .. table.concat(head)
      return start .. ("\0"):rep(-#start % 32 + at)
    end
    shell.write(path "m.gguf", file(keys))
    gm.scope(gm.no_grad, function() use(gm.pretrained(path "m.gguf")) end)
    for name, message in pairs { head_count = "do not divide the width, 4", head_count_kv = "999999 heads of 2" } do
      local own = setmetatable({ ["llama.attention." .. name] = 999999 }, { __index = keys })
      for key_name in pairs(keys) do own[key_name] = own[key_name] end
      shell.write(path "m.gguf", file(own))
      mutate.bounded(ROOM, function()
        local ok, err = pcall(gm.pretrained, path "m.gguf")
        assert.is_false(ok)
        assert.matches(message, failure.text(err))
      end)
    end
    local function fuzz_keys(seed)
      fuzz("m.gguf", seed, function(r) shell.write(path "m.gguf", file(mutate.json(r, keys))) end,
        function() use(gm.pretrained(path "m.gguf")) end)
    end
    fuzz_keys(121)
    for name, value in pairs { expert_count = 2, expert_used_count = 1, expert_feed_forward_length = 6,
      ["rope.scaling.type"] = "yarn", ["rope.scaling.factor"] = 2, ["rope.scaling.original_context_length"] = 4,
      ["rope.scaling.attn_factor"] = 1.5, ["rope.scaling.yarn_beta_fast"] = 2 } do keys["llama." .. name] = value end
    for _, name in ipairs { "gate", "up", "down" } do
      shapes[("blk.0.ffn_%s.weight"):format(name)] = nil
      shapes[("blk.0.ffn_%s_exps.weight"):format(name)] = name == "down" and { 6, 4, 2 } or { 4, 6, 2 }
    end
    shapes["blk.0.ffn_gate_inp.weight"] = { 4, 2 }
    shell.write(path "m.gguf", file(keys))
    gm.scope(gm.no_grad, function() use(gm.pretrained(path "m.gguf")) end)
    fuzz_keys(140)
  end)

  for seed, name in ipairs { "llama", "qwen2", "gpt2" } do
    it("are refused or valid: adapters of PEFT, of " .. name, function()
      local from = GOLDEN .. "adapters/" .. name
      local config = json.decode(shell.read(from .. "/adapter_config.json"), "config")
      local header, data = parts_of(shell.read(from .. "/adapter_model.safetensors"))
      fuzz(folder, 130 + seed, function(r)
        local which = r(3)
        shell.write(path "adapter_config.json",
          which == 0 and json.encode(config) or mutate.text(r, json.encode(mutate.json(r, config))))
        shell.write(path "adapter_model.safetensors",
          safetensors(json.encode(which == 1 and header or mutate.json(r, header)), data))
      end, function()
        local model = gm.pretrained(HUB .. name)
        gm.load_adapter(model, folder)
        use(model)
      end)
    end)
  end
end)
