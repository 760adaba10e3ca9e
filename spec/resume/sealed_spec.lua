--- A checkpoint whose checksums are right and whose index says something impossible: a run that goes on from it ends
-- with status 5 and a sentence, before it has trained anything, whoever wrote it.
local forge = require "spec.checkpoint.forge"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local recipe = [[
return { name = "sealed", seed = 3, epochs = 9,
  model = { type = "MLP", inputs = 4, hidden = { 4 }, classes = 3 },
  data = { train = { type = "Synthetic", length = 64, shape = { 4 }, classes = 3 }, batch_size = 16 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 2 },
  hooks = { { type = "LossHook" }, { type = "AccuracyHook" }, { type = "CheckpointHook", interval = 2 } } }
]]

describe("a sealed checkpoint", function()
  local home, index, text
  setup(function()
    home = shell.temporary_folder()
    shell.write(home .. "/recipe.lua", recipe)
    local result = run_host({ "run", "recipe.lua", "--threads", "1", "--steps", "2", "--out", "out" }, { cwd = home,
      env = { GANYMEDE_ROOT = GANYMEDE_ROOT } })
    assert(result.code == 0, result.err)
    index = home .. "/out/checkpoints/step-00000002/index.json"
    text = shell.read(index):gsub(',"crc32c":"%x+"}\n$', "}")
  end)
  teardown(function() shell.remove(home) end)

  local function resume()
    return run_host({ "run", "recipe.lua", "--threads", "1", "--steps", "4", "--out", "new", "--resume",
      "out/checkpoints/step-00000002" }, { cwd = home, env = { GANYMEDE_ROOT = GANYMEDE_ROOT } })
  end

  it("that was only sealed again is as good as before", function()
    shell.write(index, forge.index(text))
    local result = resume()
    assert.equal(0, result.code, result.err)
    assert.matches("at step 2", result.out)
  end)

  for what, edit in pairs {
    ["a step that is a text"] = { '("trainer":{.-"step":)2', '%1"2"' },
    ["a step that cannot be counted"] = { '("step":)2', "%19007199254740992" }, -- everywhere
    ["a negative step"] = { '("trainer":{.-"step":)2', "%1-2" },
    ["two different steps"] = { '("trainer":{.-"step":)2', "%13" },
    ["no trainer"] = { '"trainer":', '"trainee":' },
    ["metrics that are a number"] = { '"metrics":{[^{}]*{[^{}]*}[^{}]*{[^{}]*}[^{}]*}', '"metrics":1' },
    ["hooks that are a text"] = { '"hooks":%b[]', '"hooks":"none"' },
    ["hooks whose states are numbers"] = { '"state":%b{}', '"state":7' },
    ["hooks that are numbers"] = { '"hooks":%b[]', '"hooks":[1,2]' },
    ["an optimizer that is a list"] = { '"optimizer":%b{}', '"optimizer":[]' },
    ["no random numbers"] = { '"rng":%b{}', '"rng":null' },
    ["a position of the scheduler that is a text"] = { '("position":)%d+', '%1"far"' },
    ["a position of the scheduler in the middle"] = { '("position":)%d+', "%11.5" },
    ["a dtype that is a number"] = { '"dtype":"f32","format"', '"dtype":32,"format"' },
  } do
    it("with " .. what .. " gets status 5 and a sentence", function()
      local changed, times = text:gsub(edit[1], edit[2])
      assert.is_true(times >= 1, text:match '"meta".*"tensors"')
      shell.write(index, forge.index(changed))
      local result = resume()
      assert.equal(5, result.code, result.err)
      assert.is_nil(result.err:find "traceback", result.err)
      assert.matches("ganymede: out/checkpoints/step%-00000002", result.err)
    end)
  end

  it("whose index would take much more memory than its bytes is refused before that", function()
    -- 3 MB that would take a hundred times as much
    local many = text:gsub('"meta":{', '"meta":{"a":[' .. ("[],"):rep(1000000) .. "1],")
    shell.write(index, forge.index(many))
    local result = resume()
    assert.equal(5, result.code, result.err)
    assert.matches("index.json: is no index: its %d+ bytes would take %d+ MB of memory", result.err)
  end)
end)
