--- Adapters of others, written by PEFT (spec/golden/adapters.py): their logits, back to the same numbers, and what is
-- refused.
-- ranks: 1 2 4
local against = require "spec.tensor.against_serial"
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local numeric = require "spec.support.numeric"
local ranks = require "ganymede.job.ranks"

-- As of models of others (spec/hub/pretrained_spec.lua).
local TOLERANCE = 1e-5

local meshes = ({
  [1] = { { name = "one rank" } },
  [2] = { { name = "1d", tensor = { size = 2, mode = "1d" } } },
  [4] = { { name = "2d", tensor = { size = 4, mode = "2d" } } },
})[core.world()]

local function place(name) return "spec/golden/adapters/" .. name end

local function expected(name) return json.decode(machine.read(place(name) .. "/expected.json"), name) end

local function base_of(name) return gm.pretrained("spec/golden/hub/" .. expected(name).base, { dropout = 0 }):eval() end

local function folder()
  local path = ranks.from_first(function()
    local name = os.tmpname()
    os.remove(name)
    return name
  end)
  finally(function()
    if core.world() > 1 then gm.comm.barrier() end
    if core.rank() == 0 then os.execute("rm -rf " .. path) end
  end)
  return path
end

-- The arrays of two files are the same numbers.
local function same_arrays(a, b)
  a, b = gm.open_arrays(a .. "/adapter_model.safetensors"), gm.open_arrays(b .. "/adapter_model.safetensors")
  assert.same(a:names(), b:names())
  for _, name in ipairs(a:names()) do
    gm.scope(function() assert.same(a:read(name):totable(), b:read(name):totable(), name) end)
  end
  a:close()
  b:close()
end

local function logits_of(model, want)
  return gm.no_grad(function() return model(gm.tensor(want.tokens, { dtype = "i64" })):gather() end)
end

-- What a BERT, a RoBERTa or a ViT gives for what goes in with its base (spec/hub/families_spec.lua), as a list of
-- tensors.
local function outputs_of(model, base)
  local given, rows = json.decode(machine.read("spec/golden/hub/" .. base .. "/expected.json"), base), {}
  for i, tokens in ipairs(given.segments and given.tokens or {}) do
    rows[i] = { tokens, given.segments[i], given.mask[i] }
  end
  local x = given.pixels and gm.tensor(given.pixels) or gm.tensor(rows, { dtype = "i64" })
  local out = gm.no_grad(model, x)
  if core.is_tensor(out) then return { out:gather() } end
  return { out[1]:gather(), out[2]:gather() }
end

for _, mesh in ipairs(meshes) do
  describe("adapters of PEFT on " .. mesh.name, function()
    setup(function()
      if core.world() > 1 then against.install { tensor = mesh.tensor } end
    end)
    teardown(function()
      if core.world() > 1 then against.install { data = core.world() } end
    end)

    for _, name in ipairs { "llama", "qwen2", "gpt2", "llama_head", "llama_tied" } do
      if name ~= "gpt2" or core.world() == 1 then -- 3 heads of GPT-2 are shared by no two ranks
        it(name .. " give the logits of PEFT, and are written as they were read", function()
          local want, out = expected(name), folder()
          gm.scope(function()
            local model = base_of(name)
            gm.load_adapter(model, place(name))
            numeric.agree(logits_of(model, want), gm.tensor(want.logits), TOLERANCE)
            gm.save_adapter(model, out)
            same_arrays(place(name), out)
            local again = base_of(name)
            gm.load_adapter(again, out)
            assert.same(logits_of(model, want):totable(), logits_of(again, want):totable())
            gm.merge_lora(model)
            numeric.agree(logits_of(model, want), gm.tensor(want.logits), TOLERANCE)
          end)
        end)
      end
    end

    local encoders = { "bert", "vit", "roberta", "roberta_classes" }
    for _, name in ipairs(core.world() == 1 and { "bert_dora", "vit_odd" } or {}) do encoders[#encoders + 1] = name end
    for _, name in ipairs(encoders) do
      it(name .. " give the outputs of PEFT, and are written as they were read", function()
        local want, out = expected(name), folder()
        local function agree(model)
          for i, y in ipairs(outputs_of(model, want.base)) do
            numeric.agree(y, gm.tensor(want.outputs[i]), TOLERANCE)
          end
        end
        gm.scope(function()
          local model, again = base_of(name), base_of(name)
          gm.load_adapter(model, place(name))
          agree(model)
          gm.save_adapter(model, out)
          same_arrays(place(name), out)
          gm.load_adapter(again, out)
          agree(again)
          gm.merge_lora(model)
          agree(model)
        end)
      end)
    end

    for _, dora in ipairs { false, true } do
      it("that are one here are three with one A there, and one again here" .. (dora and ", with magnitudes" or ""),
        function()
          local out = folder()
          gm.scope(function()
            local model, want = gm.pretrained "spec/golden/hub/qwen2", expected "qwen2"
            gm.lora(model, { rank = 2, match = { "qkv", "down" }, dora = dora, scaling = "root", alpha = 3 })
            gm.no_grad(function()
              for i, m in ipairs(select(2, require("ganymede.nn.lora").describe(model))) do
                m.b.weight:copy_(gm.normal(m.b.weight:shape(), { seed = i }))
              end
            end)
            local before = logits_of(model, want):totable()
            gm.save_adapter(model, out)
            local file = gm.open_arrays(out .. "/adapter_model.safetensors")
            local root = "base_model.model.model.layers.1.self_attn."
            for _, part in ipairs { "q_proj", "k_proj" } do
              assert.same(file:read(root .. "v_proj.lora_A.weight"):totable(),
                file:read(root .. part .. ".lora_A.weight"):totable())
            end
            file:close()
            local again = gm.pretrained "spec/golden/hub/qwen2"
            gm.load_adapter(again, out)
            assert.equal(2, again.blocks[1].attention.qkv.lora.opt.rank)
            numeric.agree(logits_of(again, want), before, 1e-6) -- the same numbers, in the same order
          end)
        end)
    end
  end)
end

if core.world() > 1 then return end

describe("what is trained beside adapters", function()
  local function trained(base, options)
    local model = gm.pretrained("spec/golden/hub/" .. base, { dropout = 0 }):eval()
    gm.lora(model, options)
    gm.no_grad(function()
      for i, p in ipairs(model:named_parameters()) do
        if p.tensor:requires_grad() then
          p.tensor:copy_(p.tensor + gm.normal(p.tensor:shape(), { seed = i }) * 0.2)
        end
      end
    end)
    return model
  end

  -- What transformers calls the modules, and how many arrays they have. PEFT loads them: spec/golden/adapters.py check.
  local cases = {
    { "llama", { match = "output$", train = { "^head", "norm" } }, { "lm_head", "model.layers.0.input_layernorm",
      "model.layers.0.post_attention_layernorm", "model.layers.1.input_layernorm",
      "model.layers.1.post_attention_layernorm", "model.norm" }, 6 },
    { "llama_tied_biased", { match = "output$", train = "^tokens" }, { "lm_head", "model.embed_tokens" }, 2 },
    { "gpt2", { match = "up$", train = "1%.attention%.qkv%.weight" }, { "transformer.h.0.attn.c_attn" }, 2 },
    { "phi3", { match = "output$", train = "1%.mlp%.gate" }, { "model.layers.0.mlp.gate_up_proj" }, 1 },
  }
  for _, case in ipairs(cases) do
    it("goes with them as whole modules, and comes back: " .. case[1], function()
      gm.scope(function()
        local base, out = case[1], folder()
        local model, want = trained(base, case[2]), { tokens = { { 1, 5, 7, 2, 28, 3, 9 } } }
        gm.save_adapter(model, out)
        local config = json.decode(machine.read(out .. "/adapter_config.json"), "config")
        assert.same(case[3], config.modules_to_save)
        local file, whole = gm.open_arrays(out .. "/adapter_model.safetensors"), 0
        for _, name in ipairs(file:names()) do whole = whole + (name:find "lora_" and 0 or 1) end
        file:close()
        assert.equal(case[4], whole)
        local again = gm.pretrained("spec/golden/hub/" .. base, { dropout = 0 }):eval()
        gm.load_adapter(again, out)
        assert.same(logits_of(model, want):totable(), logits_of(again, want):totable())
        for _, p in ipairs(model:declared()) do -- whole modules are trained, and so is what was trained
          for _, q in ipairs(again:declared()) do
            if p.name == q.name and not p.entry.frozen then assert.is_nil(q.entry.frozen) end
          end
        end
      end)
    end)
  end

  it("is refused where one table here has two sets of numbers there", function()
    gm.scope(function()
      local out = folder()
      gm.save_adapter(trained("llama_tied_biased", { match = "output$", train = "^tokens" }), out)
      local path = out .. "/adapter_model.safetensors"
      local file, list = gm.open_arrays(path), {}
      for i, name in ipairs(file:names()) do
        local t = file:read(name)
        if name:find "lm_head" then t:set(29, 12, t:get(29, 12) + 1) end
        list[i] = { name, t }
      end
      file:close()
      os.remove(path)
      gm.save_arrays(path, list)
      assert.error_matches(function() gm.load_adapter(gm.pretrained "spec/golden/hub/llama_tied_biased", out) end,
        "embed_tokens.weight and base_model.model.lm_head.weight are one parameter here, 'tokens.weight'")
    end)
  end)
end)

it("an adapter of a ViT is read by the names that transformers 4 gave to modules", function()
  gm.scope(function()
    local out, want, list = folder(), expected "vit", {}
    assert(os.execute(("cp -r %s %s"):format(place "vit", out)))
    local path = out .. "/adapter_model.safetensors"
    local file = gm.open_arrays(path)
    for i, name in ipairs(file:names()) do
      local old = name
      for new, older in pairs {
        ["vit%.layers"] = "vit.encoder.layer", ["attention%.q_proj"] = "attention.attention.query",
        ["attention%.k_proj"] = "attention.attention.key", ["attention%.v_proj"] = "attention.attention.value",
        ["mlp%.fc1"] = "intermediate.dense", ["mlp%.fc2"] = "output.dense",
      } do old = old:gsub(new, older) end
      list[i] = { old, file:read(name) }
    end
    file:close()
    os.remove(path)
    gm.save_arrays(path, list)
    local model = base_of "vit"
    gm.load_adapter(model, out)
    numeric.agree(outputs_of(model, "vit")[1], gm.tensor(want.outputs[1]), TOLERANCE)
  end)
end)

describe("an adapter that is wrong", function()
  local function refused(words, change, base, adapter)
    local out = folder()
    os.execute(("cp -r %s %s"):format(place(adapter or "llama"), out))
    local path = out .. "/adapter_config.json"
    local config = json.decode(machine.read(path), path)
    change(config)
    core.write_whole(path, json.encode(config))
    local ok, err = pcall(gm.load_adapter, gm.pretrained("spec/golden/hub/" .. (base or "llama")), out)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find(words, 1, true), tostring(err))
  end

  it("is refused, with the key or the array", function()
    refused("peft_type is \"IA3\"", function(c) c.peft_type = "IA3" end)
    refused("lacks base_model.model.lm_head.weight", function(c) c.modules_to_save = json.array { "lm_head" } end)
    refused("modules_to_save names the module of model.layers.0.self_attn.v_proj.weight but not that of model.layers.0",
      function(c) c.modules_to_save = json.array { "v_proj" } end)
    refused("modules_to_save must be a list of names", function(c) c.modules_to_save = json.array { 3 } end)
    refused("modules_to_save is \"lm_head\"", function(c) c.modules_to_save = "lm_head" end)
    refused("has base_model.model.lm_head.weight, which belongs to nothing", function(c) c.modules_to_save = nil end,
      "llama", "llama_head")
    refused("the one parameter 'tokens.weight' here", function(c) c.ensure_weight_tying = nil end,
      "llama_tied_biased", "llama_tied")
    refused("'lora_bias' is set", function(c) c.lora_bias = true end)
    refused("bias is 'all'", function(c) c.bias = "all" end)
    refused("'pissa', which changes the weights", function(c) c.init_lora_weights = "pissa" end)
    refused("is a regular expression", function(c) c.alpha_pattern = { ["layers.*q_proj"] = 3 } end)
    refused("lacks base_model.model.model.layers.0.self_attn.o_proj.lora_magnitude_vector",
      function(c) c.use_dora = true end)
    refused("model.layers.0.mlp.gate_proj belongs to no layer", function() end, "gpt2")
    assert.error_matches(function() gm.load_adapter(gm.pretrained "spec/golden/hub/llama", "none") end,
      "adapter_config.json: cannot be read")
    assert.error_matches(function() gm.load_adapter(gm.nn.Linear(2, 2), place "llama") end, "belongs to no family")
  end)

  it("is not written", function()
    local function not_written(pattern, base, options)
      local model = gm.pretrained("spec/golden/hub/" .. base)
      if options then gm.lora(model, options) end
      assert.error_matches(function() gm.save_adapter(model, "/nowhere") end, pattern)
    end
    not_written("has no adapter", "llama")
    not_written("layers.0.self_attn.o_proj has an adapter, and is trained as a whole, too", "llama",
      { match = "output", train = "1%.attention%.output%.weight" })
    not_written("is the one layer transformer.h.0.attn.c_attn there", "gpt2", { split_qkv = true })
    not_written("mlp.gate' and 'blocks.1.mlp.up' are the one layer model.layers.0.mlp.gate_up_proj there", "phi3",
      { match = "mlp" })
  end)
end)
