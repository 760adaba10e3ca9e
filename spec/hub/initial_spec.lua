--- gm.init_from and the recipe key init_from: what is loaded from a checkpoint or a folder of others, the report, and
-- what is refused; layer-wise rates.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local job = require "spec.parallel.job"
local numeric = require "spec.support.numeric"
local shell = require "spec.support.shell"

local GPT = { vocabulary = 31, sequence_length = 16, width = 12, depth = 2, heads = 3 }

local function gpt(changes)
  local opt = {}
  for key, value in pairs(GPT) do opt[key] = value end
  for key, value in pairs(changes or {}) do opt[key] = value end
  return gm.models.GPT(opt)
end

-- A checkpoint of a model, as a run saves it, in a folder that goes away.
local function saved(model)
  local folder = shell.temporary_folder()
  finally(function() shell.remove(folder) end)
  local list = model:state()
  list[#list + 1] = { name = "optimizer/m/tokens.weight", tensor = gm.ones { 2 } }
  list[#list + 1] = { name = "average/tokens.weight", tensor = gm.ones { 2 } }
  return gm.checkpoint.save(folder .. "/checkpoints", { tensors = list, meta = { step = 3 } }), folder
end

local function value(model, name)
  for _, p in ipairs(model:named_parameters()) do
    if p.name == name then return p.tensor:totable() end
  end
end

local function refused(model, options, ...)
  local ok, err = pcall(gm.init_from, model, options)
  assert.is_false(ok)
  for _, words in ipairs { ... } do assert.is_truthy(tostring(err):find(words, 1, true), tostring(err)) end
end

describe("weights of a checkpoint", function()
  it("are all loaded where the model is the same, by the path of it or of its run", function()
    gm.core.set_seed(1)
    local first = gpt()
    local path, folder = saved(first)
    gm.core.set_seed(2)
    for _, place in ipairs { path, folder, folder .. "/checkpoints" } do
      local model = gpt()
      local said = gm.init_from(model, { path = place })
      assert.same({ #first:parameters(), 0, 0, 0 }, { #said.loaded, #said.missing, #said.unexpected, #said.reshaped })
      for _, p in ipairs(first:named_parameters()) do assert.same(p.tensor:totable(), value(model, p.name)) end
    end
    local model = gpt():materialize() -- parameters that exist are filled as well
    gm.init_from(model, { path = path })
    assert.same(value(first, "norm.weight"), value(model, "norm.weight"))
  end)

  it("are loaded as far as they fit, with a report; new heads keep their numbers", function()
    local path = saved(gpt())
    gm.core.set_seed(3)
    local fresh = gpt { tied = false, depth = 3, mlp_ratio = 2 }
    local untouched = value(fresh, "head.weight")
    gm.core.set_seed(3)
    local model = gpt { tied = false, depth = 3, mlp_ratio = 2 }
    refused(model, { path = path }, "13 not there: blocks.3.attention.output.bias",
      "6 of another shape: blocks.1.mlp.down.weight is (12, 48) there and (12, 24) here", "strict = false")
    local said = gm.init_from(model, { path = path, strict = false })
    assert.equal(13, #said.missing)
    assert.equal("head.weight", said.missing[13])
    assert.equal(6, #said.reshaped)
    assert.same({}, said.unexpected)
    assert.same(untouched, value(model, "head.weight"))
    local smaller = gm.init_from(gpt { depth = 1 }, { path = path, strict = false })
    assert.equal(12, #smaller.unexpected)
    assert.equal("blocks.2.attention.output.bias", smaller.unexpected[1])
  end)

  it("are loaded where a pattern matches", function()
    gm.core.set_seed(1)
    local first = gpt()
    local path = saved(first)
    gm.core.set_seed(2)
    local model, other = gpt(), gpt()
    local said = gm.init_from(model, { path = path, match = { "^tokens", "norm1" } })
    assert.same({ "blocks.1.norm1.bias", "blocks.1.norm1.weight", "blocks.2.norm1.bias", "blocks.2.norm1.weight",
      "tokens.weight" }, said.loaded)
    assert.same(value(first, "tokens.weight"), value(model, "tokens.weight"))
    assert.same(value(other, "positions.weight"), value(model, "positions.weight"))
    refused(gpt(), { path = path, match = "zz" }, 'init_from: match[1] = "zz" matches nothing')
  end)

  it("are refused where there are none", function()
    refused(gpt(), { path = "spec" }, "is neither a checkpoint, nor a folder")
    refused(gpt(), { path = saved(gm.nn.Linear(3, 3)), strict = false }, "0 parameters loaded")
    refused(gpt(), { path = "spec/golden/hub/llama" }, "is a model of type 'llama', and the model here is a GPT")
  end)
end)

describe("weights of a model of others", function()
  it("are loaded into one with another head", function()
    local whole = gm.pretrained "spec/golden/hub/llama"
    local opt = {}
    for key, v in pairs(whole.opt) do opt[key] = v end
    opt.vocabulary, opt.rotary = 31, { base = 100 }
    local model = gm.models.Llama(opt)
    local said = gm.init_from(model, { path = "spec/golden/hub/llama", strict = false })
    assert.same({ "lm_head.weight is (29, 12) there and (31, 12) here",
      "model.embed_tokens.weight is (29, 12) there and (31, 12) here" }, said.reshaped)
    assert.same({ "rotary", "vocabulary" }, said.differing)
    assert.same(value(whole, "blocks.2.attention.qkv.weight"), value(model, "blocks.2.attention.qkv.weight"))
  end)

  it("leave out a head where the model has one table, and say so if its numbers are others", function()
    local opt = {}
    for key, v in pairs(gm.pretrained("spec/golden/hub/llama").opt) do opt[key] = v end
    opt.tied = true
    local said = gm.init_from(gm.models.Llama(opt), { path = "spec/golden/hub/llama", strict = false })
    assert.same({ "lm_head.weight" }, said.unexpected)
  end)
end)

describe("layer-wise rates", function()
  it("fall by a factor for each section, and multiply those of groups", numeric.f64(function()
    local model = gpt { depth = 2 }
    local adam = gm.optim.AdamW({ lr = 1, layer_decay = 0.5, groups = { { match = "norm", lr_scale = 3 } } }, model)
    local want = { tokens = 1 / 8, positions = 1 / 8, ["blocks.1"] = 1 / 4, ["blocks.2"] = 1 / 2, norm = 1, head = 1 }
    for _, item in ipairs(adam.items) do
      local section = item.name:match "^blocks%.%d" or item.name:match "^%a+"
      assert.equal(want[section] * (item.name:find "norm" and 3 or 1), item.lr_scale, item.name)
    end
    -- and the update is so much smaller: the first of Adam is lr times the sign
    local before = {}
    for i, item in ipairs(adam.items) do before[i] = item.tensor:totable() end
    for _, item in ipairs(adam.items) do (item.tensor:sum()):backward() end
    local plain = gm.optim.AdamW({ lr = 1e-3, layer_decay = 0.5 }, model)
    plain:step {}
    for i, item in ipairs(plain.items) do
      local section = item.name:match "^blocks%.%d" or item.name:match "^%a+"
      local now = numeric.flat(item.tensor)[1]
      local old = before[i]
      while type(old) == "table" do old = old[1] end
      -- weight decay 0.01 of a number below 2, and eps of AdamW: below 3e-5 of the rate
      assert.near(-1e-3 * want[section], now - old * (1 - 1e-5 * want[section]), 1e-10, item.name)
    end
  end))

  it("are refused where nothing has sections", function()
    local list = { gm.ones({ 2 }):requires_grad(true) }
    assert.error_matches(function() gm.optim.SGD({ lr = 1, layer_decay = 0.5 }, list) end, "layer_decay needs a model")
    assert.error_matches(function() gm.optim.SGD({ lr = 1, layer_decay = 0.5 }, gm.nn.Linear(2, 2)) end,
      "layer_decay counts the sections of the model")
    assert.error_matches(function() gm.optim.SGD({ lr = 1, layer_decay = 2 }, gpt()) end, "at most 1")
  end)
end)

describe("a recipe with init_from, freeze and layer_decay #ranks", function()
  local recipe = [[
return {
  name = "again", seed = SEED, dtype = "f64",
  model = { type = "GPT", vocabulary = 256, sequence_length = 16, width = 24, depth = 2, heads = 4 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", sequence_length = 16 }, batch_size = 6 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 1e-2 },
  checkpoint = { interval = 4, directory = "first" }, steps = 4,
}]]

  it("goes on from the weights of another run, on any mesh, and trains what is not frozen", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    job.run_in(folder, (recipe:gsub("SEED", "1")), 2, { steps = 4, set = { "parallel={tensor={size=2,mode='1d'}}" } })
    local again = recipe:gsub("SEED", "2"):gsub("checkpoint = .- },", [[init_from = "first", freeze = { "^tokens" },]])
      :gsub("lr = 1e%-2", "lr = 1e-3, layer_decay = 0.7")
    local one = job.run_in(folder, again, 1, { steps = 4 })
    assert.matches("init_from first/step%-00000004: 28 parameters loaded", one.err)
    local fresh = job.run_in(folder, (again:gsub('init_from = "first",', "")), 1, { steps = 4 })
    assert.is_true(one.loss[1] < fresh.loss[1] - 0.5)
    for _, mesh in ipairs { { 2, { "parallel={pipeline=2}", "num_microbatches=2" } }, { 2, { "zero=3" } } } do
      local many = job.run_in(folder, again, mesh[1], { steps = 4, set = mesh[2] })
      assert.is_true(job.largest_difference(one, many, 4) <= 1e-12) -- only the order of sums differs
    end
  end)

  it("is refused by what is wrong", function()
    local run = job.run((recipe:gsub("SEED", "1")), 1, { code = 2, set = { "+freeze=zz" } })
    assert.matches('names%[1%] = "zz" matches nothing', run.err)
    run = job.run((recipe:gsub("SEED", "1")), 1, { code = 2, set = { "lora={path='x',rank=3}" } })
    assert.matches("lora has path and rank", run.err)
    run = job.run((recipe:gsub("SEED", "1")), 1, { code = 2, set = { "init_from=nowhere" } })
    assert.matches("nowhere is neither a checkpoint", run.err)
  end)
end)
