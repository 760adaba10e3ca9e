--- GGUF files as models: a golden model is written as llama.cpp's converter would do it, and gives the same logits.
--
-- The converter turns the rows of queries and keys of Llama from (heads, 2, d / 2) to (heads, d / 2, 2). The loops
-- here do that row by row.
local core = require "ganymede.core"
local ffi = require "ffi"
local gguf = require "ganymede.hub.gguf"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local numeric = require "spec.support.numeric"
local shell = require "spec.support.shell"
local sources = require "ganymede.hub.sources"

local HUB = "spec/golden/hub/"
local folder

-- ---------------------------------------------------------------- a writer

local function bytes(kind, value) return ffi.string(ffi.new(kind .. "[1]", value), ffi.sizeof(kind)) end
local function u32(n) return bytes("uint32_t", n) end
local function u64(n) return bytes("uint64_t", n) end
local function text(s) return u64(#s) .. s end

-- A key: a text, a whole number (u32), or { f32 = number }.
local function key(name, value)
  if type(value) == "string" then return text(name) .. u32(8) .. text(value) end
  if type(value) == "table" then return text(name) .. u32(6) .. bytes("float", value.f32) end
  return text(name) .. u32(4) .. u32(value)
end

-- arrays: list of { name, shape, numbers }, all f32
local function write(path, keys, arrays)
  local head, data, at = {}, {}, 0
  for name, value in pairs(keys) do head[#head + 1] = key(name, value) end
  local count = #head
  for _, a in ipairs(arrays) do
    local dims = {}
    for d = #a.shape, 1, -1 do dims[#dims + 1] = u64(a.shape[d]) end
    head[#head + 1] = text(a.name) .. u32(#dims) .. table.concat(dims) .. u32(0) .. u64(at)
    local numbers = ffi.string(ffi.new("float[?]", #a.numbers, a.numbers), 4 * #a.numbers)
    data[#data + 1] = numbers .. ("\0"):rep(-#numbers % 32)
    at = at + #data[#data]
  end
  local start = "GGUF" .. u32(3) .. u64(#arrays) .. u64(count) .. table.concat(head)
  shell.write(path, start .. ("\0"):rep(-#start % 32) .. table.concat(data))
  return path
end

-- ---------------------------------------------------------------- a converter

local NAMES = { ["self_attn.q_proj"] = "attn_q", ["self_attn.k_proj"] = "attn_k", ["self_attn.v_proj"] = "attn_v",
  ["self_attn.o_proj"] = "attn_output", ["self_attn.q_norm"] = "attn_q_norm", ["self_attn.k_norm"] = "attn_k_norm",
  input_layernorm = "attn_norm", post_attention_layernorm = "ffn_norm", ["mlp.gate_proj"] = "ffn_gate",
  ["mlp.up_proj"] = "ffn_up", ["mlp.down_proj"] = "ffn_down", ["block_sparse_moe.gate"] = "ffn_gate_inp",
  ["mlp.gate"] = "ffn_gate_inp", ["mlp.shared_expert_gate"] = "ffn_gate_inp_shexp",
  ["mlp.shared_expert.gate_proj"] = "ffn_gate_shexp", ["mlp.shared_expert.up_proj"] = "ffn_up_shexp",
  ["mlp.shared_expert.down_proj"] = "ffn_down_shexp" }
local EXPERTS = { w1 = "gate", w2 = "down", w3 = "up", gate_proj = "gate", up_proj = "up", down_proj = "down" }

-- The array of an expert -> the name of the array of all of its layer, the number of the expert.
local function of_expert(name)
  local layer, number, what = name:match "^model%.layers%.(%d+)%..*experts%.(%d+)%.([%w_]+)%.weight$"
  if layer then return ("blk.%s.ffn_%s_exps.weight"):format(layer, EXPERTS[what]), tonumber(number) end
end

local function renamed(name)
  local layer, rest, what = name:match "^model%.layers%.(%d+)%.(.*)%.(%a+)$"
  if layer then return ("blk.%s.%s.%s"):format(layer, NAMES[rest], what), rest end
  return ({ ["model.embed_tokens.weight"] = "token_embd.weight", ["model.norm.weight"] = "output_norm.weight",
    ["lm_head.weight"] = "output.weight" })[name]
end

-- Row h d + j 2 + r of the file is row h d + r d / 2 + j of the model.
local function turned(rows, heads)
  local size, out = #rows / heads, {}
  for h = 0, heads - 1 do
    for j = 0, size / 2 - 1 do
      for r = 0, 1 do out[h * size + 2 * j + r + 1] = rows[h * size + r * size / 2 + j + 1] end
    end
  end
  return out
end

-- The keys of experts, stretched positions and sizes of heads, where a config has them.
local function more_keys(config, architecture, keys)
  local rope = config.rope_parameters
  local more = { expert_count = config.num_local_experts or config.num_experts,
    expert_used_count = config.num_experts_per_tok, expert_feed_forward_length = config.moe_intermediate_size,
    expert_shared_feed_forward_length = config.shared_expert_intermediate_size,
    ["attention.value_length"] = config.head_dim }
  if rope.rope_type == "yarn" then
    more["rope.scaling.type"], more["rope.scaling.factor"] = "yarn", { f32 = rope.factor }
    more["rope.scaling.original_context_length"] = rope.original_max_position_embeddings
    for ours, theirs in pairs { attn_factor = "attention_factor", beta_fast = "beta_fast", beta_slow = "beta_slow" } do
      more["rope.scaling.yarn_" .. ours] = rope[theirs] and { f32 = rope[theirs] }
    end
  end
  for key_name, value in pairs(more) do
    keys[architecture .. "." .. key_name] = value ~= json.null and value or nil
  end
end

-- change: a function that changes keys and arrays first
local function convert(name, architecture, change)
  local config = json.decode(machine.read(HUB .. name .. "/config.json"), name)
  local file, arrays, stacks = gm.open_arrays(HUB .. name), {}, {}
  for _, array in ipairs(file:names()) do
    local stack, number = of_expert(array)
    local theirs, rest = renamed(array)
    if stack then gm.scope(function()
      local t = file:read(array)
      local own = stacks[stack] or { name = stack, shape = { 0, t:size(1), t:size(2) }, parts = {} }
      stacks[stack], own.parts[number + 1], own.shape[1] = own, numeric.flat(t), own.shape[1] + 1
    end) end
    if not stack then gm.scope(function()
      local t = file:read(array)
      local values = t:totable()
      local heads = ({ ["self_attn.q_proj"] = config.num_attention_heads,
        ["self_attn.k_proj"] = config.num_key_value_heads })[rest or ""]
      if heads and architecture == "llama" then values = turned(values, heads) end
      local shape = rest == "mlp.shared_expert_gate" and { t:size(2) } or t:shape()
      arrays[#arrays + 1] = { name = theirs, shape = shape, numbers = numeric.flat(values) }
    end) end
  end
  for _, own in pairs(stacks) do
    local numbers = {}
    for _, part in ipairs(own.parts) do
      for _, n in ipairs(part) do numbers[#numbers + 1] = n end
    end
    arrays[#arrays + 1] = { name = own.name, shape = own.shape, numbers = numbers }
  end
  file:close()
  local keys = { ["general.architecture"] = architecture }
  for key_name, value in pairs {
    vocab_size = config.vocab_size, embedding_length = config.hidden_size, block_count = config.num_hidden_layers,
    feed_forward_length = config.intermediate_size, context_length = config.max_position_embeddings,
    ["attention.head_count"] = config.num_attention_heads, ["attention.head_count_kv"] = config.num_key_value_heads,
    ["attention.key_length"] = config.head_dim, ["attention.layer_norm_rms_epsilon"] = { f32 = config.rms_norm_eps },
    ["rope.freq_base"] = { f32 = config.rope_parameters.rope_theta },
  } do keys[architecture .. "." .. key_name] = value ~= json.null and value or nil end
  more_keys(config, architecture, keys)
  if change then change(keys, arrays) end
  return write(("%s/%s.gguf"):format(folder, name), keys, arrays)
end

describe("a GGUF file", function()
  setup(function() folder = shell.temporary_folder() end)
  teardown(function() shell.remove(folder) end)

  for name, architecture in pairs { mistral = "llama", qwen2 = "qwen2", qwen3 = "qwen3", mixtral = "llama",
    mixtral_odd = "llama", qwen2_moe = "qwen2moe", qwen3_moe = "qwen3moe", llama_yarn_plain = "llama",
    qwen3_moe_yarn = "qwen3moe" } do
    it(("of %s gives the logits of transformers"):format(name), function()
      local path, want = convert(name, architecture), json.decode(machine.read(HUB .. name .. "/expected.json"), name)
      gm.scope(gm.no_grad, function()
        local logits = gm.pretrained(path):eval()(gm.tensor(want.tokens, { dtype = "i64" }))
        numeric.agree(logits, gm.tensor(want.logits or want.outputs[1]), 1e-5) -- as spec/hub/pretrained_spec.lua
      end)
    end)
  end

  -- A change of files: the arrays of all experts become one for each of them, as in files of 2023.
  local function one_for_each(_, arrays)
    for i = #arrays, 1, -1 do
      local stem, a = arrays[i].name:match "^(.*)_exps%.weight$", arrays[i]
      if stem then
        table.remove(arrays, i)
        local size = a.shape[2] * a.shape[3]
        for e = 0, a.shape[1] - 1 do
          arrays[#arrays + 1] = { name = ("%s.%d.weight"):format(stem, e), shape = { a.shape[2], a.shape[3] },
            numbers = { unpack(a.numbers, e * size + 1, (e + 1) * size) } }
        end
      end
    end
  end

  it("with experts is written back as the family that it is, also where each expert has arrays of its own", function()
    for name, how in pairs { mixtral = { "llama" }, mixtral_odd = { "llama", one_for_each },
      qwen2_moe = { "qwen2moe" }, qwen3_moe = { "qwen3moe" } } do
      local out = folder .. "/" .. name
      gm.scope(function() gm.export_model(gm.pretrained(convert(name, how[1], how[2])), out) end)
      local a, b = gm.open_arrays(HUB .. name), gm.open_arrays(out)
      assert.same(a:names(), b:names())
      for _, array in ipairs(a:names()) do
        gm.scope(function() assert.same(a:read(array):totable(), b:read(array):totable()) end)
      end
      a:close()
      b:close()
      local there = json.decode(machine.read(HUB .. name .. "/config.json"), name)
      local here = json.decode(machine.read(out .. "/config.json"), name)
      assert.equal(there.num_experts or there.num_local_experts, here.num_experts or here.num_local_experts)
      for _, key_name in ipairs { "model_type", "num_experts_per_tok", "norm_topk_prob", "moe_intermediate_size",
        "shared_expert_intermediate_size", "intermediate_size" } do
        assert.equal(there[key_name], here[key_name], key_name)
      end
    end
  end)

  it("of a stretched model grows queries and keys as its keys say", function()
    local function magnitude(change)
      return sources.options(convert("llama_yarn_plain", "llama", change)).options.rotary.scaling.magnitude
    end
    local own = 0.1 * math.log(4) + 1
    assert.is_nil(magnitude()) -- what yarn says itself
    assert.near(1.5 * own, magnitude(function(keys) keys["llama.rope.scaling.attn_factor"] = { f32 = 1.5 } end), 1e-12)
    assert.equal(1.25, magnitude(function(keys) keys["llama.rope.scaling.yarn_attn_factor"] = { f32 = 1.25 } end))
  end)

  it("that says a factor and no type is linear", function()
    local path = convert("mistral", "llama", function(keys) keys["llama.rope.scaling.factor"] = { f32 = 2 } end)
    assert.same({ type = "linear", factor = 2 }, sources.options(path).options.rotary.scaling)
  end)

  it("becomes a checkpoint, and from there a folder for transformers", function()
    local function done(words)
      local result = shell.run(shell.quote(shell.executable()) .. " " .. words:format(folder, folder))
      assert.equal(0, result.code, result.err)
      return result.err
    end
    local path = convert("mistral", "llama", function(keys)
      keys["tokenizer.ggml.eos_token_id"], keys["tokenizer.ggml.eot_token_id"] = 5, 7
    end)
    assert.is_truthy(done("import %s/mistral.gguf %s/checkpoint"):find("no tokenizer is written", 1, true))
    done "export %s/checkpoint %s/back"
    local a, b = gm.open_arrays(HUB .. "mistral"), gm.open_arrays(folder .. "/back")
    assert.same(a:names(), b:names())
    for _, name in ipairs(a:names()) do
      gm.scope(function() assert.same(a:read(name):totable(), b:read(name):totable()) end)
    end
    for _, place in ipairs { path, folder .. "/checkpoint", folder .. "/back" } do -- and texts end where they did
      gm.scope(function() assert.same({ 5, 7 }, { unpack(gm.pretrained(place).source.stop_tokens) }) end)
      assert.same({ 5, 7 }, { unpack(sources.options(place).stop_tokens) })
    end
  end)

  -- What the converter divides frequencies by: 1, the factor, or between, by how often a pair turns in `length`.
  local function factor_of(frequency, factor, length)
    local turns = length * frequency / (2 * math.pi)
    if turns > 4 then return 1 elseif turns < 1 then return factor end
    local share = (turns - 1) / (4 - 1)
    return 1 / ((1 - share) / factor + share)
  end

  it("of Llama 3.1 has the factors of its frequencies in an array, and gives the logits of transformers", function()
    local want = json.decode(machine.read(HUB .. "llama/expected.json"), "llama")
    local function scaling(numbers, name)
      local path = convert(name, "llama", function(_, arrays)
        arrays[#arrays + 1] = { name = "rope_freqs.weight", shape = { #numbers }, numbers = numbers }
      end)
      return sources.options(path).options.rotary.scaling, path
    end
    local between = factor_of(1, 4, 16) -- of the one pair that this model turns
    assert.is_true(between > 1.2 and between < 3.8)
    local found, path = scaling({ between }, "llama") -- which no length explains
    assert.equal("longrope", found.type)
    gm.scope(gm.no_grad, function()
      local logits = gm.pretrained(path):eval()(gm.tensor(want.tokens, { dtype = "i64" }))
      numeric.agree(logits, gm.tensor(want.logits), 1e-5)
    end)
    local config = json.decode(machine.read(HUB .. "mistral/config.json"), "mistral")
    local slow = config.rope_parameters.rope_theta ^ -0.5
    found = scaling({ factor_of(1, 8, 16), factor_of(slow, 8, 16) }, "mistral")
    assert.same({ "llama3", 8, 16, 1, 4 }, { found.type, found.factor, found.length, found.low, found.high })
    assert.is_nil((scaling({ 1, 1 }, "mistral")))
  end)

  it("is refused with the key or array that is not understood", function()
    local function refused(words, change)
      local path = convert("mistral", "llama", change)
      local ok, err = pcall(gm.pretrained, path)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(words, 1, true), err)
    end
    refused('general.architecture is "rwkv"', function(keys) keys["general.architecture"] = "rwkv" end)
    refused("llama.new.thing", function(keys) keys["llama.new.thing"] = 3 end)
    local path = convert("mistral", "llama", function(keys) keys["llama.new.thing"] = 3 end)
    assert.is_true(gm.pretrained(path, { ignore = { "llama.new.thing" } }):count() > 0)
    refused('rope.scaling.type is "longrope"', function(keys) keys["llama.rope.scaling.type"] = "longrope" end)
    refused("has no key 'llama.rope.scaling.factor'", function(keys) keys["llama.rope.scaling.type"] = "yarn" end)
    local function stretched(more)
      return function(keys)
        keys["llama.rope.scaling.type"], keys["llama.rope.scaling.factor"] = "yarn", { f32 = 2 }
        for name, value in pairs(more) do keys["llama.rope.scaling." .. name] = { f32 = value } end
      end
    end
    refused("yarn_ext_factor is 0", stretched { yarn_ext_factor = 0 })
    refused("one of both says how much queries and keys grow", stretched { attn_factor = 1, yarn_attn_factor = 1 })
    refused("yarn_log_multiplier", stretched { yarn_log_multiplier = 0.5 })
    refused("has no key 'llama.block_count'", function(keys) keys["llama.block_count"] = nil end)
    refused("turns 2 of the 4 numbers of a head (llama.rope.dimension_count)", function(keys)
      keys["llama.rope.dimension_count"] = 2
    end)
    refused("says a vocabulary of 28 (llama.vocab_size), and 'token_embd.weight' has 29 rows", function(keys)
      keys["llama.vocab_size"] = 28
    end)
    refused("says that there are 800 experts", function(keys)
      keys["llama.expert_count"], keys["llama.expert_used_count"] = 800, 2
    end)
    refused("has no key 'llama.expert_used_count'", function(keys) keys["llama.expert_count"] = 8 end)
    refused("'rope_freqs.weight' is (3), and 2 pairs of a head are turned", function(_, arrays)
      arrays[#arrays + 1] = { name = "rope_freqs.weight", shape = { 3 }, numbers = { 1, 2, 2 } }
    end)
    refused("has rope.scaling.type linear and 'rope_freqs.weight'", function(keys, arrays)
      keys["llama.rope.scaling.type"], keys["llama.rope.scaling.factor"] = "linear", { f32 = 2 }
      arrays[#arrays + 1] = { name = "rope_freqs.weight", shape = { 2 }, numbers = { 1, 2 } }
    end)
    refused("lacks blk.1.ffn_up.weight", function(_, arrays)
      for i, a in ipairs(arrays) do
        if a.name == "blk.1.ffn_up.weight" then table.remove(arrays, i) break end
      end
    end)
  end)
end)

it("a GGUF file whose experts are not what its keys say is refused", function()
  folder = shell.temporary_folder()
  finally(function() shell.remove(folder) end)
  local function refused(words, change)
    local ok, err = pcall(gm.pretrained, convert("qwen2_moe", "qwen2moe", change))
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find(words, 1, true), err)
  end
  local function with(name, value) return function(keys) keys["qwen2moe." .. name] = value end end
  refused("says that there are 3 experts; its arrays have 4", with("expert_count", 3))
  refused("says that a token has 5 experts, of 4", with("expert_used_count", 5))
  refused("is a qwen2moe without experts (qwen2moe.expert_count)", with("expert_count", 0))
  refused("its routers are no softmax (qwen2moe.expert_gating_func)", with("expert_gating_func", 2))
  refused("says 8 for qwen2moe.expert_feed_forward_length, and 'blk.0.ffn_up_exps.weight' has 7 rows",
    with("expert_feed_forward_length", 8))
  refused("says 8 for qwen2moe.expert_shared_feed_forward_length, and 'blk.0.ffn_up_shexp.weight' has 9 rows",
    with("expert_shared_feed_forward_length", 8))
  refused("qwen2moe.expert_weights_scale", with("expert_weights_scale", { f32 = 2 }))
end)

describe("the tokenizer of a GGUF file", function()
  -- The keys that llama.cpp makes of a tokenizer.json.
  local function keys_of(name, pre)
    local path = ("spec/golden/tokenizers/%s.json"):format(name)
    local file, tokens, types = json.decode(machine.read(path), path), {}, {}
    for token, id in pairs(file.model.vocab) do tokens[id + 1], types[id + 1] = token, 1 end
    for _, added in ipairs(file.added_tokens) do
      tokens[added.id + 1], types[added.id + 1] = added.content, added.special and 3 or 4
    end
    local merges = {}
    for i, pair in ipairs(file.model.merges) do
      merges[i] = type(pair) == "table" and pair[1] .. " " .. pair[2] or pair
    end
    return { ["tokenizer.ggml.model"] = "gpt2", ["tokenizer.ggml.pre"] = pre, ["tokenizer.ggml.tokens"] = tokens,
      ["tokenizer.ggml.token_type"] = types, ["tokenizer.ggml.merges"] = merges }, gm.tokenizer(path)
  end

  for name, pre in pairs { smollm = "smollm", llama3 = "llama-bpe", qwen2 = "qwen2", gpt2 = "gpt-2" } do
    it(("%s has the numbers of its tokenizer.json"):format(name), function()
      local keys, want = keys_of(name, pre)
      local out = shell.temporary_folder()
      finally(function() shell.remove(out) end)
      assert.is_truthy(gguf.write_tokenizer(keys, out))
      local got = gm.tokenizer(out)
      for _, line in ipairs { "Hello world, it's 12345 o'clock\n\n  now", "é日本語 naïve\t\tx=3;",
        machine.read "README.md" } do
        assert.same(want:encode(line, { special = false }), got:encode(line, { special = false }))
      end
    end)
  end

  it("that is none of these is said, and nothing is written", function()
    local keys = keys_of("smollm", "some-new-way")
    local ok, why = gguf.tokenizer_files(keys)
    assert.is_nil(ok)
    assert.equal("its texts are cut as 'some-new-way'", why)
    for _, pre in ipairs { "default", false } do -- llama.cpp cuts in a way of its own, which is that of no model
      keys["tokenizer.ggml.pre"] = pre or nil
      assert.is_nil((gguf.tokenizer_files(keys)))
    end
    keys["tokenizer.ggml.model"] = "llama"
    ok, why = gguf.write_tokenizer(keys, "no such folder")
    assert.is_nil(ok)
    assert.equal('its tokenizer is of the kind "llama"', why)
    assert.equal(0, #core.list_folder "no such folder")
    assert.equal("it has no tokenizer (tokenizer.ggml.model)", select(2, gguf.tokenizer_files {}))
  end)
end)
