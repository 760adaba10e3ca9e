--- Models of others, written by transformers (spec/golden/hub.py): their logits, and back to the same bytes.
-- ranks: 1 2 3 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local against = require "spec.tensor.against_serial"
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local numeric = require "spec.support.numeric"
local sources = require "ganymede.hub.sources"

local FOLDERS = { "llama", "llama_tied_biased", "mistral", "qwen2", "qwen3", "gpt2", "mistral_window", "qwen2_windows" }

-- Two layers of sums of at most 20 products in f32, on numbers that were rounded to 7 places; transformers works out
-- angles in f32: a few 1e-6 of the largest logit.
local TOLERANCE = 1e-5

local meshes = ({
  [1] = { { name = "one rank" } },
  [2] = { { name = "1d", tensor = { size = 2, mode = "1d" } }, { name = "data", data = 2 } },
  [3] = { { name = "data", data = 3 } },
  [4] = { { name = "2d", tensor = { size = 4, mode = "2d" } } },
})[core.world()]

local function place(name) return "spec/golden/hub/" .. name end

local function expected(name)
  return json.decode(machine.read(place(name) .. "/expected.json"), name)
end

for _, mesh in ipairs(meshes) do
  describe("models of others on " .. mesh.name, function()
    setup(function()
      local given = {}
      for key, value in pairs(mesh) do given[key] = key ~= "name" and value or nil end
      if core.world() > 1 then against.install(given) end
    end)
    teardown(function()
      if core.world() > 1 then against.install { data = core.world() } end
    end)

    for _, name in ipairs(FOLDERS) do
      -- 3 heads of GPT-2 are shared by no two ranks
      local fits = not (name == "gpt2" and (core.world() == 4 or mesh.tensor))
      if fits then
        it(name .. " gives the logits of transformers", function()
          local want = expected(name)
          gm.scope(gm.no_grad, function()
            local model = gm.pretrained(place(name)):eval()
            local logits = model(gm.tensor(want.tokens, { dtype = "i64" })):gather()
            numeric.agree(logits, gm.tensor(want.logits), TOLERANCE)
          end)
        end)

        it(name .. " is written as it was read", function()
          local out = os.tmpname()
          os.remove(out)
          out = core.world() > 1 and require("ganymede.job.ranks").from_first(function() return out end) or out
          gm.scope(function() gm.export_model(gm.pretrained(place(name)), out) end)
          local a, b = gm.open_arrays(place(name)), gm.open_arrays(out)
          for _, array in ipairs(b:names()) do
            assert.same(a:info(array).shape, b:info(array).shape)
            gm.scope(function() assert.same(a:read(array):totable(), b:read(array):totable()) end)
          end
          for _, array in ipairs(a:names()) do assert.is_true(b:has(array) or array == "lm_head.weight", array) end
          a:close()
          b:close()
          gm.scope(function() -- and its config.json says the same
            local want = expected(name)
            local logits = gm.no_grad(gm.pretrained(out):eval(), gm.tensor(want.tokens, { dtype = "i64" })):gather()
            numeric.agree(logits, gm.tensor(want.logits), TOLERANCE)
          end)
          gm.comm.barrier()
          if core.rank() == 0 then os.execute("rm -r " .. out) end
        end)
      end
    end
  end)
end

if core.world() > 1 then return end

describe("a folder that is wrong", function()
  local function changed(name, change)
    local folder = os.tmpname()
    os.remove(folder)
    assert(os.execute(("cp -r %s %s"):format(place(name), folder)))
    local path = folder .. "/config.json"
    local config = json.decode(machine.read(path), path)
    change(config, folder)
    core.write_whole(path, json.encode(config))
    return folder
  end

  local function refused(words, name, change, opt)
    local folder = changed(name, change)
    local ok, err = pcall(gm.pretrained, folder, opt)
    os.execute("rm -r " .. folder)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find(words, 1, true), err)
  end

  it("is refused, with the key", function()
    refused("model_type is 'rwkv'; this program has bert, camembert, gemma, gemma2, gpt2, llama, mistral, mixtral, "
      .. "olmo2, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe, roberta, vit, xlm-roberta", "llama",
      function(c) c.model_type = "rwkv" end)
    refused("has no 'hidden_size'", "llama", function(c) c.hidden_size = nil end)
    refused("new_thing: not understood", "llama", function(c) c.new_thing = 3 end)
    refused("hidden_act is 'relu6'", "llama", function(c) c.hidden_act = "relu6" end)
    refused("rope_type 'ntk' is not one of", "llama", function(c) c.rope_parameters.rope_type = "ntk" end)
    refused("_freq_factor' of rope_type 'longrope'", "llama", function(c)
      c.rope_parameters.rope_type = "longrope"
    end)
    refused("original_max_position_embeddings of longrope must be a number; got string", "llama_long", function(c)
      c.rope_parameters.original_max_position_embeddings = "six"
    end)
    refused("rotary.scaling: option 'short'", "phi3_long", function(c) c.rope_parameters.short_factor = nil end)
    refused("layer_types[1] is 'chunked_attention'", "qwen3", function(c) c.layer_types[2] = "chunked_attention" end)
    refused("layer_types has 2 entries, for 3 layers", "qwen3", function(c) c.num_hidden_layers = 3 end)
    refused("no sliding_window is in use", "qwen2_windows", function(c) c.use_sliding_window = false end)
    refused("'scale_attn_weights' is false", "gpt2", function(c) c.scale_attn_weights = false end)
    refused("mlp.down_proj.bias", "llama", function(c) c.mlp_bias = true end)
    refused("'mscale' of rope_type 'yarn' is \"much\"; it must be a number", "llama_yarn", function(c)
      c.rope_parameters.mscale = "much"
    end)
    refused("two pairs of a head that are turned, or more; got one", "llama", function(c)
      c.rope_parameters = { rope_type = "dynamic", factor = 2 }
    end)
    refused("mlp_only_layers[1] is \"two\"", "qwen3_moe", function(c) c.mlp_only_layers = { 0, "two" } end)
    refused("moe.dense lists all blocks that would have experts", "qwen3_moe", function(c)
      c.mlp_only_layers = { 0, 1 }
    end)
    assert.error_matches(function() gm.pretrained "no such folder" end,
      "no such folder: there is no such folder, or it is empty. A model is a folder")
  end)

  it("is refused, with the arrays that lack or belong to nothing", function()
    refused("lacks lm_head.weight", "llama_tied_biased", function(c) c.tie_word_embeddings = false end)
    refused("which belongs to nothing", "qwen2", function(c) c.model_type = "llama" end)
    refused("lacks model.layers.2.input_layernorm.weight", "qwen3", function(c)
      c.num_hidden_layers, c.layer_types = 3, nil
    end)
  end)

  it("is refused where its head is said to be the table of tokens, and has other numbers", function()
    local function tie(c) c.tie_word_embeddings = true end
    refused("lm_head.weight has other numbers than model.embed_tokens.weight", "llama", tie)
    local function loads(change, opt)
      local folder = changed("llama", change)
      gm.scope(function() assert.is_true(gm.pretrained(folder, opt).opt.tied) end)
      os.execute("rm -r " .. folder)
    end
    loads(tie, { strict = false })
    loads(function(c, folder)
      local file, list = gm.open_arrays(folder), {}
      for _, name in ipairs(file:names()) do
        list[#list + 1] = { name, file:read(name == "lm_head.weight" and "model.embed_tokens.weight" or name) }
      end
      file:close()
      os.remove(folder .. "/model.safetensors")
      gm.save_arrays(folder .. "/model.safetensors", list)
      tie(c)
    end)
  end)

  it("the border of LongRoPE is that of transformers, whichever key says it", function()
    local function scaling(name, change)
      local folder, out = changed(name, change), nil
      gm.scope(function() out = gm.pretrained(folder).opt.rotary.scaling end)
      os.execute("rm -r " .. folder)
      return out.length, out.factor
    end
    local function without(c) c.original_max_position_embeddings = nil end
    assert.same({ 9, 64 / 9 }, { scaling("phi3_long", function() end) })
    assert.same({ 4096, 1 }, { scaling("phi3_long", without) }) -- Phi-3 never asks rope_parameters
    assert.same({ 6, 8 }, { scaling("llama_long", function() end) })
    assert.same({ 12, 4 }, { scaling("llama_long", function(c) c.original_max_position_embeddings = 12 end) })
    assert.same({ 48, 1 }, { scaling("llama_long", function(c)
      c.rope_parameters.original_max_position_embeddings = nil
    end) })
    assert.same({ 9, 64 / 9 }, { scaling("phi3_long", function(c) c.rope_parameters.rope_type = "yarn" end) })
  end)

  it("rope_scaling, the older name, says what rope_parameters says, and nothing else", function()
    local function rotary(name, change)
      local folder = changed(name, change)
      local out = sources.options(folder).options.rotary
      os.execute("rm -r " .. folder)
      return json.plain(out)
    end
    local function older(more)
      return function(c)
        c.rope_scaling, c.rope_parameters = c.rope_parameters, more
        c.rope_scaling.type, c.rope_scaling.rope_type = c.rope_scaling.rope_type, nil
      end
    end
    for _, name in ipairs { "llama_yarn", "phi3_long", "mistral" } do
      local want = rotary(name, function() end)
      assert.same(want, rotary(name, older(nil)))
      assert.same(want, rotary(name, older {}))
      local config = json.decode(machine.read(place(name) .. "/config.json"), name)
      assert.same(want, rotary(name, older(config.rope_parameters)))
      assert.same(want, rotary(name, function(c) c.rope_scaling = {} end))
    end
    local function linear(c)
      c.rope_scaling, c.rope_parameters, c.rope_theta = { type = "linear", factor = 2 }, nil, 500
    end
    assert.same({ base = 500, fraction = 1, scaling = { type = "linear", factor = 2 } }, rotary("mistral", linear))
    local words = "rope_scaling and rope_parameters say different things of the positions"
    refused(words, "llama", function(c) c.rope_scaling = { type = "linear", factor = 2 } end)
    refused(words, "llama_yarn", older { rope_type = "yarn", factor = 8, rope_theta = 50 })
    refused(words, "mistral", function(c) -- without its base, which only the other says
      c.rope_scaling, c.rope_parameters = { type = "default" }, { rope_type = "default", rope_theta = 77 }
      c.rope_theta = nil
    end)
  end)

  it("what yarn multiplies by is that of transformers, whichever keys say it", function()
    local function scaling(change)
      local folder = changed("llama_yarn", change)
      local out = sources.options(folder).options.rotary.scaling
      os.execute("rm -r " .. folder)
      return out
    end
    local log = 0.1 * math.log(4)
    assert.near((0.7 * log + 1) / (0.4 * log + 1), scaling(function() end).magnitude, 1e-15)
    for _, name in ipairs { "mscale", "mscale_all_dim" } do -- one alone, or zero, says nothing
      assert.is_nil(scaling(function(c) c.rope_parameters[name] = nil end).magnitude)
      assert.is_nil(scaling(function(c) c.rope_parameters[name] = json.null end).magnitude)
      assert.is_nil(scaling(function(c) c.rope_parameters[name] = 0 end).magnitude)
    end
    assert.equal(1.3, scaling(function(c) c.rope_parameters.attention_factor = 1.3 end).magnitude)
    assert.is_false(scaling(function() end).truncate)
    assert.is_false(scaling(function(c) c.rope_parameters.truncate = json.null end).truncate)
    assert.is_nil(scaling(function(c) c.rope_parameters.truncate = nil end).truncate)
    local more = scaling(function(c) -- null counts as absent; a factor is then the quotient of the lengths
      c.rope_parameters.factor, c.rope_parameters.beta_slow, c.rope_parameters.finetuned = json.null, json.null, true
      c.original_max_position_embeddings = 32 -- goes before that of rope_parameters
    end)
    assert.same({ 8, 32 }, { more.factor, more.length })
    assert.is_nil(more.slow)
  end)

  it("biases are where the file has some", function()
    local function biases(name)
      local list = {}
      for _, p in ipairs(gm.pretrained(place(name)):declared()) do
        list[#list + 1] = p.name:match "^blocks%.1%.(.*bias)$"
      end
      table.sort(list)
      return table.concat(list, " ")
    end
    assert.equal("attention.output.bias attention.qkv.bias", biases "llama_yarn")
    assert.equal("mlp.down.bias mlp.gate.bias mlp.up.bias", biases "llama_dynamic")
    assert.equal("attention.output.bias attention.qkv.bias", biases "qwen3_moe_layers")
    assert.equal("attention.qkv.bias", biases "qwen2")
  end)

  it("a dynamic base grows behind max_position_embeddings, and texts may have a factor more", function()
    local opt = sources.options(place "llama_dynamic").options
    assert.same({ type = "dynamic", factor = 8, length = 5 }, opt.rotary.scaling)
    assert.equal(40, opt.sequence_length)
  end)

  it("numbers are those of transformers' defaults where config.json does not say more", function()
    local function options(name, change)
      local folder = changed(name, change)
      local out = sources.options(folder).options
      os.execute("rm -r " .. folder)
      return out
    end
    local function silent(c)
      for _, key in ipairs { "rms_norm_eps", "rope_theta", "rope_parameters", "num_experts_per_tok", "head_dim" } do
        c[key] = nil
      end
    end
    local mixtral, qwen2, qwen3 = options("mixtral", silent), options("qwen2_moe", silent), options("qwen3_moe", silent)
    assert.same({ 1e-5, 1e6, 2 }, { mixtral.eps, mixtral.rotary.base, mixtral.moe.k })
    assert.same({ 1e-6, 1e4, 4 }, { qwen2.eps, qwen2.rotary.base, qwen2.moe.k })
    assert.same({ 1e-6, 1e4, 8 }, { qwen3.eps, qwen3.rotary.base, qwen3.moe.k })
    assert.is_nil(qwen3.head_size) -- its head_dim is the width of a head
    local both = options("llama", function(c)
      c.rope_parameters.rope_theta, c.rope_theta = 500, 700
    end)
    assert.equal(500, both.rotary.base)
  end)

  it("windows are those of transformers' defaults where config.json does not say more", function()
    local function windows(name, change)
      local folder, list = changed(name, change), {}
      gm.scope(function()
        for i, block in gm.pretrained(folder).blocks:each() do list[i] = block.attention.opt.window or 0 end
      end)
      os.execute("rm -r " .. folder)
      return list
    end
    assert.same({ 0, 2, 2 }, windows("qwen2_windows", function(c) c.layer_types = nil end))
    assert.same({ 0, 0, 0 }, windows("qwen2_windows", function(c)
      c.layer_types, c.use_sliding_window = nil, false
    end))
    assert.same({ 3, 0, 3 }, windows("qwen2_moe_window", function(c)
      c.layer_types, c.max_window_layers = nil, 3
    end))
    assert.same({ 4096, 4096 }, windows("mistral_window", function(c) c.sliding_window = nil end))
    assert.same({ 0, 0 }, windows("mistral", function() end)) -- null
  end)

  it("windows that a config.json cannot say are refused when it is written", function()
    local function unwritable(words, options)
      local model = gm.models.Llama { vocabulary = 9, width = 8, heads = 2, kv_heads = 2, hidden = 8, depth = 2,
                                      window = options.window, attention_softcap = options.softcap,
                                      attention_scale = options.scale }
      assert.error_matches(function() gm.export_model(model, os.tmpname() .. ".d") end, words, 1, true)
    end
    unwritable("windows of 3 and 4 positions in one model", { window = { 3, 4 } })
    unwritable("model of type mistral cannot say that", { window = { 3, 0 } })
    unwritable("attention_softcap = 5", { softcap = 5 })
    unwritable("attention_scale = 0.25", { scale = 0.25 })
  end)

  it("biases and blocks without experts that a config.json cannot say are refused when it is written", function()
    local function unwritable(words, more)
      local opt = { vocabulary = 9, width = 8, heads = 2, kv_heads = 2, hidden = 8, depth = 2 }
      for key, value in pairs(more) do opt[key] = value end
      assert.error_matches(function() gm.export_model(gm.models.Llama(opt), os.tmpname() .. ".d") end, words, 1, true)
    end
    unwritable("mlp_bias = true: a model of type qwen2 cannot", { qkv_bias = true, mlp_bias = true })
    unwritable("qkv_bias = false: a model of type llama cannot", { bias = true, qkv_bias = false })
    unwritable("mlp_bias = true: a model of type qwen3 cannot", { qk_norm = true, eps = 1e-6, mlp_bias = true })
    unwritable("bias = true: a model of type qwen3 cannot", { qk_norm = true, eps = 1e-6, bias = true })
    unwritable("qkv_bias = true: a model of type qwen3 cannot", { qk_norm = true, eps = 1e-6, qkv_bias = true })
    local moe = { experts = 2, k = 1, dense = { 1 } }
    unwritable("moe.dense = ", { moe = moe })
    unwritable("moe.bias = true: a model of type qwen3_moe cannot", { qk_norm = true, eps = 1e-6, bias = true,
      moe = { experts = 2, k = 1 } })
    unwritable("mlp_bias = true: a model of type qwen3_moe cannot", { qk_norm = true, eps = 1e-6, mlp_bias = true,
      moe = { experts = 2, k = 1, bias = false, dense = { 1 } } })
    unwritable("bias = true: a model of type mixtral cannot", { bias = true,
      moe = { experts = 2, k = 1, bias = false } })
  end)

  it("may have keys that change no number, as files of well-known models have", function()
    local function reads(name, keys)
      local folder = changed(name, function(c)
        for key, value in pairs(keys) do c[key] = value end
      end)
      local own, other = sources.options(place(name)).options, sources.options(folder).options
      os.execute("rm -r " .. folder)
      assert.same(own, other)
    end
    reads("llama", { ["transformers.js_config"] = { kv_cache_dtype = { q4f16 = "float16" } }, is_llama_config = true,
      rope_interleaved = false, pretraining_tp = 1 })
    reads("llama", { unsloth_fixed = true, unsloth_version = "2024.9" })
    reads("llama", { max_sequence_length = 2048, max_length = 50, do_sample = true, temperature = 0.9 })
    reads("gemma2", { cache_implementation = "hybrid" })
    reads("phi3", { full_attn_mod = 1, interpolate_factor = 1, lm_head_bias = false, mlp_bias = false })
    reads("bert", { directionality = "bidi", pooler_fc_size = 768, pooler_type = "first_token_transform",
      finetuning_task = "mrpc" })
    refused("quantization_config: not understood", "llama", function(c)
      c.quantization_config = { quant_method = "gptq" }
    end)
    refused("rope_interleaved: not understood", "llama", function(c) c.rope_interleaved = true end)
  end)

  it("is read all the same where that is asked for", function()
    local folder = changed("qwen2", function(c)
      c.model_type, c.new_thing = "llama", 3
    end)
    local model = gm.pretrained(folder, { ignore = { "new_thing" }, strict = false })
    assert.is_true(model:count() > 0)
    gm.scope(function() model:parameters() end)
    os.execute("rm -r " .. folder)
  end)
end)

describe("a config.json that is written", function() -- read with the configs of transformers 5.24
  local function written(model)
    local folder = os.tmpname()
    os.remove(folder)
    gm.export_model(model, folder)
    local text = machine.read(folder .. "/config.json")
    os.execute("rm -r " .. folder)
    return text
  end

  it("has points where transformers wants them", function()
    gm.scope(function()
      local text = written(gm.pretrained "spec/golden/hub/gemma2")
      assert.is_truthy(text:find('"final_logit_softcapping":3.0,', 1, true), text)
      assert.is_truthy(text:find '"attn_logit_softcapping":%d+%.%d')
      assert.is_truthy(text:find '"head_dim":%d+,')
    end)
  end)

  it("says what transformers needs to be told of llama3", function()
    gm.scope(function()
      local model = gm.models.Llama { vocabulary = 16, width = 8, depth = 1, heads = 2, kv_heads = 1, hidden = 8,
        rotary = { base = 10000, scaling = { type = "llama3", factor = 8, length = 512 } } }
      local rope = json.decode(written(model), "config").rope_parameters
      assert.same({ 1, 4, 8, 512 }, { rope.low_freq_factor, rope.high_freq_factor, rope.factor,
        rope.original_max_position_embeddings })
    end)
  end)
end)
