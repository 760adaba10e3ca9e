-- Fine-tuning as users do it: a model of others, conversations, adapters; on several meshes as on one rank; then the
-- adapters of a checkpoint, apart and merged.
-- sanitizers: no, numbers of several ranks are compared; other specs look at the same code
local gm = require "ganymede"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local numeric = require "spec.support.numeric"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local recipe = [[
local talks = {}
for i = 1, 30 do
  talks[i] = { messages = { { role = "user", content = "Say " .. ("x"):rep(i % 5) }, { role = "assistant",
    content = ("y"):rep(i % 7 + 1) } } }
end
return {
  name = "tuning", seed = 3, dtype = "f64", model = { type = "Pretrained", path = "base" },
  lora = { rank = 3, dora = true, split_qkv = true, dropout = 0.1 },
  data = { train = { type = "Chat", conversations = talks, tokenizer = "base", multiple = 2 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 2e-2 }, steps = 6, epochs = 2,
  checkpoint = { interval = 6, directory = "saved" },
}
]]

describe("adapters that are tuned on conversations #ranks", function()
  local folder, one
  setup(function()
    folder = shell.temporary_folder()
    gm.scope(function()
      gm.export_model(gm.models.Llama { vocabulary = 258, sequence_length = 64, width = 24, depth = 2, heads = 4,
        kv_heads = 2, hidden = 40, rotary = true }, folder .. "/base")
    end)
    shell.run(("cp %s/recipes/chat_lora/* %s/base"):format(GANYMEDE_ROOT, folder))
    one = job.run_in(folder, recipe, 1)
  end)
  teardown(function() shell.remove(folder) end)

  local meshes = {
    { "1d on 2", 2, { "parallel={tensor={size=2,mode='1d'}}" } },
    { "two stages", 2, { "parallel={pipeline=2}", "num_microbatches=2" } },
    { "data 2, ZeRO 3", 2, { "zero={stage=3,whole_below=0}" } },
    { "data 3 #slow", 3, {} },
  }
  for i, mesh in ipairs(meshes) do
    it("learn as on one rank, and leave its numbers in the checkpoint: " .. mesh[1], function()
      local set = { "checkpoint.directory=saved" .. i, unpack(mesh[3]) }
      local many = job.run_in(folder, recipe, mesh[2], { set = set })
      assert.is_true(one.loss[6] < one.loss[1] - 0.1)
      assert.is_true(job.largest_difference(one, many, 6) <= 1e-12) -- only the order of sums differs
      numeric.f64(function()
        local ids = gm.tensor({ { 1, 2, 3, 200 } }, { dtype = "i64" })
        local function logits(path, merged)
          local model = gm.pretrained(folder .. "/base"):eval()
          gm.load_adapter(model, path)
          if merged then gm.merge_lora(model) end
          return gm.no_grad(function() return model(ids) end), model
        end
        local want = logits(folder .. "/saved/step-00000006"):totable()
        local plain = gm.no_grad(function() return gm.pretrained(folder .. "/base"):eval()(ids) end)
        local got, model = logits(folder .. ("/saved%d/step-00000006"):format(i))
        numeric.agree(got, want, 1e-10) -- six updates of Adam make more of the order of sums
        assert.is_false(pcall(numeric.agree, plain, want, 1e-2))
        local out = folder .. "/adapter" .. i
        gm.save_adapter(model, out)
        assert.same(got:totable(), logits(out):totable())
        numeric.agree(logits(out, true), want, 1e-10)
      end)()
    end)
  end

  it("change what ganymede generate writes, from a folder and from a checkpoint alike", function()
    gm.scope(function()
      local model = gm.pretrained(folder .. "/base")
      gm.load_adapter(model, folder .. "/saved/step-00000006")
      gm.save_adapter(model, folder .. "/apart")
    end)
    local function written(...)
      local words = { "generate", "base", "--prompt", "Say x", "--max-tokens", "8", "--json", "out.json", ... }
      local result = run_host(words, { cwd = folder })
      assert.equal(0, result.code, result.err)
      return json.decode(shell.read(folder .. "/out.json"), "out.json").results[1].tokens
    end
    local apart = written("--adapter", "apart")
    assert.same(apart, written("--adapter", "saved/step-00000006"))
    assert.same(apart, written("--adapter", "apart", "-n", "2", "--set", "parallel={tensor={size=2,mode='1d'}}"))
    assert.not_same(apart, written())
  end)

  it("begin from a folder in a recipe, and go on", function()
    gm.scope(function()
      local model = gm.pretrained(folder .. "/base")
      gm.load_adapter(model, folder .. "/saved/step-00000006")
      gm.save_adapter(model, folder .. "/begun")
    end)
    local again = recipe:gsub("lora = %b{}", 'lora = { path = "begun" }'):gsub("checkpoint = %b{},", "")
    local more = job.run_in(folder, again, 1)
    assert.is_true(more.loss[1] < one.loss[1] - 0.1)
    assert.is_true(more.loss[6] < more.loss[1])
  end)
end)
