--- ganymede import and export: a model of others becomes a checkpoint and goes back; runs of any mesh are taken away.
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local shell = require "spec.support.shell"

local HUB = "spec/golden/hub/"
local folder

-- -> status, standard output and errors
local function ganymede(words)
  local result = shell.run(shell.quote(shell.executable()) .. " " .. words)
  return result.code, result.out .. result.err
end

local function done(words, ...)
  local status, text = ganymede(words:format(...))
  assert.equal(0, status, text)
  return text
end

local function refused(status, reason, words, ...)
  local code, text = ganymede(words:format(...))
  assert.equal(status, code, text)
  assert.is_truthy(text:find(reason, 1, true), text)
end

-- All arrays of b are those of a, to the bit; b has all of them, but for what `may_lack` names.
local function same_arrays(a, b, may_lack)
  a, b = gm.open_arrays(a), gm.open_arrays(b)
  for _, name in ipairs(b:names()) do
    assert.same(a:info(name), b:info(name))
    gm.scope(function() assert.same(a:read(name):totable(), b:read(name):totable()) end)
  end
  for _, name in ipairs(a:names()) do assert.is_true(b:has(name) or name == may_lack, name) end
  a:close()
  b:close()
end

local RECIPE = [[
local gm = require "ganymede"
return gm.recipe {
  model = %s,
  data = { train = { type = "Synthetic", kind = "tokens", length = 24, vocab_size = 29, sequence_length = 8 },
           batch_size = 6 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 1e-2 },
  checkpoint = { interval = 2 },
}
]]

-- Two steps of a model -> the run's folder.
local function run(name, model, words)
  shell.write(folder .. "/recipe.lua", RECIPE:format(model))
  done("run %s/recipe.lua --steps 2 --no-eval --out %s/%s %s", folder, folder, name, words or "")
  return folder .. "/" .. name
end

describe("a model of others", function()
  setup(function() folder = shell.temporary_folder() end)
  teardown(function() shell.remove(folder) end)

  it("becomes a checkpoint and goes back with the same bytes", function()
    local text = done("import %sllama_tied_biased %s/tied", HUB, folder)
    assert.is_truthy(text:find("a Llama of 2784 parameters in 26 arrays", 1, true), text)
    done("export %s/tied %s/tied_back --max-file 5K", folder, folder)
    assert.is_nil(machine.read(folder .. "/tied_back/model.safetensors"))
    same_arrays(HUB .. "llama_tied_biased", folder .. "/tied_back", "lm_head.weight")
    local before = json.decode(machine.read(HUB .. "llama_tied_biased/config.json"), "config")
    local after = json.decode(machine.read(folder .. "/tied_back/config.json"), "config")
    for _, key in ipairs { "eos_token_id", "hidden_size", "tie_word_embeddings", "dtype", "model_type" } do
      assert.equal(before[key], after[key], key)
    end
  end)

  it("keeps the type of each of its arrays", function()
    local from, list = gm.open_arrays(HUB .. "llama"), {}
    for i, name in ipairs(from:names()) do
      list[i] = { name, from:read(name, { dtype = name:find "norm" and "f32" or "bf16" }) }
    end
    assert(os.execute(("mkdir %s/mixed && cp %sllama/config.json %s/mixed"):format(folder, HUB, folder)))
    gm.save_arrays(folder .. "/mixed/model.safetensors", list)
    done("import %s/mixed %s/mixed_here", folder, folder)
    done("export %s/mixed_here %s/mixed_back", folder, folder)
    same_arrays(folder .. "/mixed", folder .. "/mixed_back")
  end)

  it("keeps the running numbers of its batch norms", function()
    for _, name in ipairs { "timm_resnet", "tv_vgg" } do
      done("import %s%s %s/%s --dtype f64", HUB, name, folder, name)
      done("export %s/%s %s/%s_back --dtype f32", folder, name, folder, name)
      same_arrays(HUB .. name, ("%s/%s_back"):format(folder, name))
    end
  end)

  it("keeps the names of its classes, as long as it has as many", function()
    assert(os.execute(("cp -r %svit %s/named"):format(HUB, folder)))
    local config = json.decode(machine.read(HUB .. "vit/config.json"), "config")
    config.id2label, config.label2id = { ["0"] = "tench", ["1"] = "goldfish", ["2"] = "ray" }, nil
    shell.write(folder .. "/named/config.json", json.encode(config))
    done("import %s/named %s/named_here", folder, folder)
    done("export %s/named_here %s/named_back", folder, folder)
    local back = json.decode(machine.read(folder .. "/named_back/config.json"), "config")
    assert.same(config.id2label, back.id2label)
    assert.same({ tench = 0, goldfish = 1, ray = 2 }, back.label2id)
    gm.scope(function()
      local model = gm.pretrained(folder .. "/named")
      local other = {}
      for key, value in pairs(model.opt) do other[key] = value end
      other.classes = 2
      local fewer = gm.models.VisionTransformer(other)
      fewer.source = model.source
      gm.export_model(fewer, folder .. "/fewer")
    end)
    back = json.decode(machine.read(folder .. "/fewer/config.json"), "config")
    assert.same({ ["0"] = "LABEL_0", ["1"] = "LABEL_1" }, back.id2label)
  end)

  it("is refused as a checkpoint without these running numbers", function()
    local core, write = require "ganymede.core", require "ganymede.hub.write"
    local opt = { depth = 18, width = 2, blocks = { 1, 1, 1, 1 }, classes = 3, channels = 1, stem = "cifar" }
    local list, entries = {}, {}
    for i, p in ipairs(gm.models.ResNet(opt):named_parameters()) do
      list[i] = { name = p.name, dtype = "f32", shape = p.tensor:shape() }
      entries[i] = { tensor = p.tensor, dtype = "f32", shape = p.tensor:shape(), pieces = { { name = p.name } } }
    end
    opt.type = "ResNet"
    local handle, file = core.checkpoint_adopt(folder .. "/no_buffers", 0)
    write.all(file, list, entries, { max_file_bytes = 2 ^ 53 })
    core.checkpoint_adopt_finish(handle, json.encode { kind = "ganymede model", config = { model = opt } })
    core.checkpoint_adopt_free(handle)
    assert.error_matches(function() gm.pretrained(folder .. "/no_buffers") end, "lacks .*running_mean")
    assert.is_truthy(gm.pretrained(folder .. "/no_buffers", { strict = false }))
  end)

  it("is read from its checkpoint as from its folder, in another type too", function()
    done("import %sqwen3 %s/qwen3 --dtype f64", HUB, folder)
    gm.scope(gm.no_grad, function()
      local tokens = gm.tensor({ { 1, 2, 3 } }, { dtype = "i64" })
      local want = gm.pretrained(HUB .. "qwen3"):eval()(tokens):totable()
      assert.same(want, gm.pretrained(folder .. "/qwen3"):eval()(tokens):totable())
    end)
    assert.equal("f64", gm.open_arrays(folder .. "/qwen3/step-00000000/rank-00000.safetensors"):info(
      "norm.weight").dtype)
  end)

  it("is tuned with adapters, and taken away with what they add", function()
    local model = ('{ type = "Pretrained", path = %q }'):format(HUB .. "mistral")
    local dir = run("tuned", model, "--set 'lora={rank=2,alpha=3,match=\"mlp\"}' --set 'lora.train=\"norm\"'")
    done("export %s %s/tuned_out", dir, folder)
    local a, b = gm.open_arrays(HUB .. "mistral"), gm.open_arrays(folder .. "/tuned_out")
    local ck = require("ganymede.checkpoint").open(dir .. "/checkpoints/step-00000002")
    local function read(name) return ck:read_into(name, gm.zeros(ck:info(name).shape)) end
    gm.scope(gm.no_grad, function()
      local stem = "blocks.2.mlp.down."
      local added = (read(stem .. "lora.b.weight"):matmul(read(stem .. "lora.a.weight"))) * 1.5
      local name = "model.layers.1.mlp.down_proj.weight"
      assert.is_true(added:square():sum():item() > 0) -- two updates have moved it
      require("spec.support.numeric").agree(b:read(name), a:read(name) + added, 1e-6) -- roundings of one product
      name = "model.layers.1.self_attn.o_proj.weight"
      assert.same(a:read(name):totable(), b:read(name):totable())
      name = "model.norm.weight"
      assert.same(read("norm.weight"):totable(), b:read(name):totable())
    end)
    ck:close()
    refused(2, "has adapters", "generate %s --prompt x", dir)
    assert.error_matches(function() gm.pretrained(dir, { ignore = { "x" } }) end, "leave ignore out")
  end)

  it("is taken away with adapters of parts, and with magnitudes, as merged in memory", function()
    local base, agree = HUB .. "mistral", require("spec.support.numeric").agree
    local model = ('{ type = "Pretrained", path = %q }'):format(base)
    for i, lora in ipairs { "split_qkv=true", "dora=true", "dora=true,split_qkv={'value','query'},scaling='root'" } do
      local dir, out = run("parts" .. i, model, ("--set \"lora={rank=2,alpha=3,match='qkv$',%s}\""):format(lora)), {}
      done("export %s %s/parts_out%d", dir, folder, i)
      gm.scope(function()
        local merged = gm.pretrained(base)
        gm.load_adapter(merged, i == 1 and dir or dir .. "/checkpoints/step-00000002")
        gm.merge_lora(merged)
        gm.export_model(merged, ("%s/parts_merged%d"):format(folder, i))
      end)
      for k, name in ipairs { base, ("%s/parts_merged%d"):format(folder, i), ("%s/parts_out%d"):format(folder, i) } do
        out[k] = gm.open_arrays(name)
      end
      gm.scope(gm.no_grad, function()
        local moved = 0
        for _, name in ipairs(out[2]:names()) do
          local was, want, got = out[1]:read(name), out[2]:read(name), out[3]:read(name)
          agree(got, want, 1e-6) -- roundings of narrow products and norms
          moved = moved + ((was - want):square():sum():item() > 0 and 1 or 0)
        end
        assert.is_true(moved >= 4, lora) -- queries and values of two blocks at least
      end)
    end
  end)

  it("is taken away from ranks, stages and parts as from one rank", function()
    local model = ('{ type = "Pretrained", path = %q }'):format(HUB .. "qwen2")
    local ranks = run("stages", model, "-n 4 --set parallel.pipeline=2 --set num_microbatches=2 --set zero=3")
    done("export %s %s/stages_out", ranks, folder)
    done("export %s %s/stages_plain --plain", ranks, folder)
    local ck = require("ganymede.checkpoint").open(ranks .. "/checkpoints/step-00000002")
    local file, plain = gm.open_arrays(folder .. "/stages_out"), gm.open_arrays(folder .. "/stages_plain")
    gm.scope(function()
      for ours, theirs in pairs {
        ["tokens.weight"] = "model.embed_tokens.weight", ["norm.weight"] = "model.norm.weight",
        ["blocks.2.mlp.up.weight"] = "model.layers.1.mlp.up_proj.weight" } do
        local want = ck:read_into(ours, gm.zeros(ck:info(ours).shape)):totable()
        assert.same(want, file:read(theirs):totable())
        assert.same(want, plain:read(ours):totable())
      end
      for _, name in ipairs(plain:names()) do assert.is_nil(name:find "^optimizer/", name) end
    end)
    ck:close()
    done("export %s %s/stages_all --plain --all --dtype bf16", ranks, folder)
    local all = gm.open_arrays(folder .. "/stages_all")
    assert.equal("bf16", all:info("norm.weight").dtype)
    assert.is_true(#all:names() > 2 * #plain:names())
  end)

  it("takes the tokenizer of its run's data with it, and says where there is none", function()
    local talks, recipe = folder .. "/talks", folder .. "/talk.lua"
    assert(os.execute(("mkdir %s && cp recipes/chat_lora/* %s"):format(talks, talks)))
    local model = '{ type = "Llama", vocabulary = 258, width = 8, depth = 1, heads = 2, kv_heads = 2, hidden = 8 }'
    shell.write(recipe, RECIPE:format(model):gsub(
      "{ type = \"Synthetic\".-}", ("{ type = 'Chat', tokenizer = %q, sequence_length = 64, conversations = "
      .. "{ { prompt = 'a', completion = ' b' } } }"):format(talks)):gsub("batch_size = 6", "batch_size = 1"))
    done("run %s --steps 2 --no-eval --out %s/talked", recipe, folder)
    local text = done("export %s/talked %s/talked_out", folder, folder)
    assert.is_truthy(text:find("copied tokenizer.json, tokenizer_config.json, chat_template.jinja", 1, true), text)
    assert.equal(machine.read(talks .. "/tokenizer.json"), machine.read(folder .. "/talked_out/tokenizer.json"))
    assert.equal(0, (ganymede(("generate %s/talked --prompt a --max-tokens 1"):format(folder))))
    shell.remove(talks)
    text = done("export %s/talked %s/talked_alone", folder, folder)
    assert.is_truthy(text:find("no tokenizer is beside it, and --tokenizer DIR copies one", 1, true), text)
    text = done("export %s/kept %s/kept_plain --plain", folder, folder)
    assert.is_nil(text:find "tokenizer")
  end)

  it("of no family goes out as plain arrays alone", function()
    shell.write(folder .. "/mlp.lua", RECIPE:format('{ type = "MLP", inputs = 4, hidden = { 3 }, classes = 2 }'):gsub(
      'kind = "tokens", length = 24, vocab_size = 29, sequence_length = 8', "length = 24, shape = { 4 }, classes = 2"))
    done("run %s/mlp.lua --steps 2 --no-eval --out %s/mlp", folder, folder)
    refused(2, "class MLP belongs to no family", "export %s/mlp %s/mlp_out", folder, folder)
    done("export %s/mlp %s/mlp_out --plain", folder, folder)
    assert.is_true(gm.open_arrays(folder .. "/mlp_out"):has "head.weight")
  end)

  it("is refused where something is wrong, and nothing is left", function()
    local out = folder .. "/no"
    refused(2, "no-such-folder: there is no such folder, or it is empty. A model is a folder",
      "import no-such-folder %s", out)
    refused(2, "there is no such folder, or it is empty", "import %s %s", shell.quote(folder .. "/empty"), out)
    for _, verb in ipairs { "export", "import" } do
      refused(2, "model.safetensors: is a file; a model is", "%s %sllama/model.safetensors %s", verb, HUB, out)
    end
    refused(2, "new_thing: not understood", "import %s %s", shell.quote(folder .. "/odd"), out)
    refused(2, "there is no checkpoint", "export no-such-folder %s", out)
    refused(2, "ganymede: cannot make the folder /proc/none", "export %s/kept /proc/none", folder)
    refused(2, "is there and not empty", "export %s/kept %sllama", folder, HUB)
    refused(2, "has a checkpoint already", "import %sllama %s/kept", HUB, folder)
    refused(2, "--all goes with --plain", "export %s/kept %s --all", folder, out)
    refused(2, "--max-file lots", "export %s/kept %s --max-file lots", folder, out)
    refused(2, "has no tokenizer.json", "export %s/kept %s --tokenizer %s", folder, out, folder)
    local limited = shell.run(("ulimit -f 8; %s import %sllama %s"):format(shell.quote(shell.executable()), HUB, out))
    assert.equal(1, limited.code, limited.err) -- the file would be larger than 8 blocks
    assert.is_nil(machine.read(out .. "/config.json"))
    assert.equal(0, #require("ganymede.core").list_folder(out))
  end)

  setup(function()
    assert(os.execute(("mkdir %s/empty"):format(folder)))
    assert(os.execute(("mkdir %s/odd && cp %sllama/model.safetensors %s/odd"):format(folder, HUB, folder)))
    local config = machine.read(HUB .. "llama/config.json"):gsub('"model_type"', '"new_thing": 3, "model_type"')
    shell.write(folder .. "/odd/config.json", config)
    done("import %sllama %s/kept", HUB, folder)
  end)
end)
