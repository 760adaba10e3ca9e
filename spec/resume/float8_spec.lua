--- Runs whose layers keep scales of floats of 8 bits: a resumed run has the same bits as one that was never stopped, a
-- run on other ranks goes on with the same scales, and what a checkpoint does not have is said.
--
-- On other ranks the losses agree to 1e-12 in f64: only the order of sums differs, 1e-16 an addition.
-- sanitizers: no, numbers of several ranks are compared; spec/resume/in_process_spec.lua looks at that code
local fit = require("ganymede.train.fit").fit
local job = require "spec.parallel.job"
local numbers = require("spec.train.support").numbers
local shell = require "spec.support.shell"
local support = require "spec.resume.support"

-- With this margin scales are 64 times as large as they must be, so those of a tensor itself give other codes.
local DELAYED = { scaling = "delayed", history = 4, margin = 6 }

local function run(folder, steps, resume, changes)
  local said, all = {}, { model = { type = "MLP", inputs = 16, hidden = { 32, 16 }, classes = 4, dropout = 0.3 },
    float8 = DELAYED }
  all.data = support.config().data
  for _, part in ipairs { "train", "test" } do all.data[part].shape = { 16 } end
  for key, value in pairs(changes or {}) do all[key] = value end
  local trainer = fit(support.config(all), {
    steps = steps, out = folder, resume = resume, log = function(text) said[#said + 1] = text end })
  trainer.said = table.concat(said, "\n")
  return trainer
end

local function state_of(trainer)
  local out = {}
  for _, entry in ipairs(trainer.engine.float8:tensors()) do out[entry.name] = entry.tensor:totable() end
  return out
end

describe("resuming with delayed scales", function()
  after_each(support.clean)

  it("gives the same bits", function()
    local whole, folder = run(support.folder(), 15), support.folder()
    local first = run(folder, 10)
    local second = run(folder, 15, "auto")
    assert.same(whole.losses, support.joined(first.losses, second.losses))
    assert.same(numbers(whole.engine.model), numbers(second.engine.model))
    assert.same(state_of(whole), state_of(second))
    assert.not_same(state_of(first), state_of(second))
  end)

  it("begins with empty histories where the checkpoint has none of these layers, and says so", function()
    local folder = support.folder()
    run(folder, 5, nil, { float8 = true })
    local second = run(folder, 10, "auto")
    assert.matches("histories of float8: none; they begin empty", second.said, 1, true)
    assert.equal(5, #second.losses)
    local longer = run(folder, 15, "auto", { float8 = { scaling = "delayed", history = 5 } })
    assert.matches("histories of float8: of another length; they begin empty", longer.said, 1, true)
    local others = run(folder, 20, "auto", { float8 = { scaling = "delayed", history = 5, skip = "1$" } })
    assert.matches("histories of float8: of other layers; they begin empty", others.said, 1, true)
  end)

  it("says that it does not use them where layers keep none", function()
    local folder = support.folder()
    run(folder, 5)
    local second = run(folder, 10, "auto", { float8 = true })
    assert.matches("scales of float8 are not used", second.said, 1, true)
    assert.equal(5, #second.losses)
  end)
end)

local recipe = [[
return {
  name = "float8", seed = 6, dtype = "f64", float8 = { scaling = "delayed", history = 3, margin = 6 },
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 32, depth = 2, heads = 4 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 12 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 0.5,
  hooks = { { type = "LossHook" }, { type = "CheckpointHook", interval = 4 } },
}
]]

describe("on other ranks #ranks", function()
  local folder
  setup(function()
    folder = shell.temporary_folder()
  end)
  teardown(function() shell.remove(folder) end)

  for name, mesh in pairs {
    ["two stages"] = { "parallel={pipeline=2}", "num_microbatches=2" },
    ["1d"] = { "parallel={tensor={size=2,mode='1d'}}" },
    ["ZeRO 3"] = { "zero={stage=3,whole_below=0}" },
  } do
    it("resuming has the scales of the run before: " .. name, function()
      local micro = mesh[2] and { "gradient_accumulation=2", "data.batch_size=6" } or nil
      local whole = job.run(recipe, 1, { steps = 8, set = micro })
      local out = folder .. "/" .. name:gsub(" ", "")
      job.run(recipe, 2, { steps = 4, set = mesh, flags = { "--out", out } })
      local rest = job.run(recipe, 1, { steps = 8, set = micro, flags = { "--resume", out } })
      job.run(recipe, 1, { steps = 4, set = micro, flags = { "--out", out .. "one" } })
      local many = job.run(recipe, 2, { steps = 8, set = mesh, flags = { "--resume", out .. "one" } })
      for i = 1, 4 do
        assert.is_true(math.abs(rest.loss[i] - whole.loss[4 + i]) <= 1e-12 * whole.loss[4 + i], "step " .. 4 + i)
        assert.is_true(math.abs(many.loss[i] - whole.loss[4 + i]) <= 1e-12 * whole.loss[4 + i], "step " .. 4 + i)
      end
    end)
  end
end)
