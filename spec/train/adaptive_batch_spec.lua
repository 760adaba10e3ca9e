--- adaptive_batch: a run whose batch changes between steps reads each sample of an epoch once, gives the same losses on
-- any ranks and after a resume, and multiplies its learning rate as the rule says; recipes that cannot are refused.
--
-- In f64 losses agree to 1e-9: the order of sums differs, 1e-16 an addition, over some 40 steps.
-- sanitizers: no, numbers of training on several ranks are compared
local gm = require "ganymede"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local setting = require "ganymede.config.batch_setting"
local shell = require "spec.support.shell"
local support = require "spec.train.support"

-- The batch changes before these steps (the one after so many); the sixth change comes at the end of an epoch. Rank 0
-- writes the samples of each step into a file of the epoch.
local recipe = [[
local rank = require("ganymede.core").rank()
local changes = { [3] = 20, [5] = 33, [6] = 8, [9] = 50, [12] = 64, [13] = 9 }
require("ganymede.hooks.base").class("Change", {}, {
  before_train_iter = function(_, trainer)
    local batch = changes[trainer.step]
    if batch and trainer.batching and trainer.batching.batch ~= batch then assert(trainer:set_batch(batch)) end
  end,
  after_train_iter = function(_, trainer)
    local loader = trainer.opt.train_dataloader.loader
    if rank ~= 0 or not loader.sample_numbers then return end
    local file = assert(io.open(("epoch-%d"):format(trainer.epoch), "a"))
    for _, i in ipairs(loader:sample_numbers()) do file:write(i, "\n") end
    file:close()
  end })
return {
  name = "adaptive", seed = 3, dtype = "f64", epochs = 4, adaptive_batch = { largest = 64, rate = "linear" },
  model = { type = "MLP", inputs = 6, hidden = { 16, 12 }, classes = 4, dropout = 0.3 },
  data = { train = { type = "Synthetic", length = 90, shape = { 6 }, classes = 4, split = "train" },
    test = { type = "Synthetic", length = 8, shape = { 6 }, classes = 4, split = "test" }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.004 },
  hooks = { { type = "Change" }, { type = "EMA", decay = 0.9 } },
}
]]
local BATCHES = { 8, 8, 8, 20, 20, 33, 8, 8, 8, 50, 50, 50, 64 } -- of the first steps, as far as an epoch has samples

local home
before_each(function() home = shell.temporary_folder() end)
after_each(function() shell.remove(home) end)

local function events(path)
  local list = {}
  for line in io.lines(home .. "/" .. path) do list[#list + 1] = json.decode(line, line) end
  return list
end

-- The entries of the steps in a run's metrics.jsonl.
local function steps_of(folder)
  local list, tests = {}, 0
  for _, event in ipairs(events(folder .. "/metrics.jsonl")) do
    if event.test then
      tests = tests + 1
    else
      assert.equal(#list + 1, event.step)
      list[#list + 1] = event
    end
  end
  return list, tests
end

local function train(folder, ranks, more)
  local options = { flags = { "--out", folder } }
  for key, value in pairs(more or {}) do options[key] = value end
  job.run_in(home, recipe, ranks, options)
  return steps_of(folder)
end

local function check_losses(want, got)
  assert.equal(#want, #got)
  for i, step in ipairs(want) do
    assert.near(step.loss, got[i].loss, 1e-9)
    assert.equal(step.batch, got[i].batch)
    assert.equal(step.samples, got[i].samples)
    assert.equal(step.lr, got[i].lr)
  end
end

describe("a run whose batch changes", function()
  it("reads each sample of an epoch once, and says its batches and rates", function()
    local list, tests = train("one", 1)
    assert.equal(4, tests)
    for epoch = 0, 3 do
      local seen, count = {}, 0
      for line in io.lines(("%s/epoch-%d"):format(home, epoch)) do
        assert.is_nil(seen[line], "sample " .. line .. " came twice")
        seen[line], count = true, count + 1
      end
      assert.equal(90, count)
    end
    local samples = 0
    for step, batch in ipairs(BATCHES) do
      local left = 90 - samples % 90
      assert.equal(batch, list[step].batch)
      samples = samples + math.min(batch, left)
      assert.equal(samples, list[step].samples)
      assert.near(0.004 * batch / 8, list[step].lr, 1e-15)
    end
    assert.equal(360, list[#list].samples)
    local noted = {}
    for _, e in ipairs(events "one/events.jsonl") do
      if e.event == "batch" then noted[#noted + 1] = { e.step, e.before, e.batch, e.factor } end
    end
    assert.same({ { 3, 8, 20, 2.5 }, { 5, 20, 33, 4.125 }, { 6, 33, 8, 1 }, { 9, 8, 50, 6.25 }, { 12, 50, 64, 8 },
      { 13, 64, 9, 1.125 } }, noted)
  end)

  it("gives the same losses on 1, 2 and 4 ranks, by data and in a pipeline, and in several batches a step", function()
    local want = train("one", 1)
    check_losses(want, (train("two", 2)))
    check_losses(want, (train("four", 4)))
    check_losses(want, (train("stages", 4, { set = { "parallel.pipeline.size=2", "num_microbatches=2" } })))
    want = train("twice", 1, { set = { "gradient_accumulation=2" } })
    check_losses(want, (train("twice-two", 2, { set = { "gradient_accumulation=2" } })))
  end)

  it("goes on with its batch after a resume in the middle, on other ranks, also behind the end of an epoch", function()
    local want = train("one", 1)
    for at, ranks in pairs { [4] = { 1, 2 }, [7] = { 2, 1 }, [12] = { 4, 1 } } do -- 7: the last step of an epoch
      local folder = "cut-" .. at
      train(folder, ranks[1], { steps = at, set = { "checkpoint.interval=" .. at } })
      check_losses(want, (train(folder, ranks[2], { flags = { "--out", folder, "--resume", "auto" } })))
    end
  end)

  it("is not resumed by a recipe that cannot: without adaptive_batch, or with a smaller range", function()
    train("cut", 1, { steps = 4, set = { "checkpoint.interval=4" } })
    local flags = { "--out", "cut", "--resume", "auto" }
    local result = job.run_in(home, recipe, 1, { alone = true, code = 2, flags = flags,
      set = { "adaptive_batch.largest=19" } })
    assert.matches("a batch of 20 samples: adaptive_batch allows 8 to 19", result.err)
    local fixed = recipe:gsub("adaptive_batch = %b{},", "")
    result = job.run_in(home, fixed, 1, { alone = true, code = 2, flags = flags })
    assert.matches("the batch of that run has changed, and this recipe has no adaptive_batch", result.err)
  end)
end)

-- The loss of a sample is |w - x|^2 over a constant, and x has in dimension k the mean w + 1 and the variance k. So the
-- square of the true gradient is D, and the variance of a sample's 1 + 2 + ... + D, both over the same constant.
describe("adascale", function()
  local D, SAMPLES, FIRST, LARGEST = 24, 4800, 8, 64

  -- A dataset in Lua, whose loader another part of the program makes, and a model of one vector.
  local function settings(seen)
    local model = gm.nn.Linear { inputs = 1, outputs = D, bias = false }
    local w = support.numbers(model)
    local random = require("ganymede.cluster.random").new(5)
    local function normal() return math.sqrt(-2 * math.log(random())) * math.cos(2 * math.pi * random()) end
    local rows = {}
    for i = 1, SAMPLES do
      rows[i] = {}
      for k = 1, D do rows[i][k] = w[k] + 1 + math.sqrt(k) * normal() end
    end
    local dataset = { length = SAMPLES, y_dtype = "f64" }
    function dataset.get(i)
      seen[i] = (seen[i] or 0) + 1
      return { 1 }, rows[i]
    end
    return { name = "quadratic", dtype = "f64", epochs = 1, gradient_accumulation = 2, seed = 1,
      model = model, loss = { type = "MSELoss" },
      data = { train = dataset, batch_size = FIRST }, optimizer = { type = "SGD", lr = 1e-9 },
      adaptive_batch = { largest = LARGEST, every = 1 } }
  end

  -- The means of 250 estimates have standard deviations of some 2 % (variance) and 3 % (square), and the factor follows
  -- each by 0.45 of that: 1.6 % in all.
  it("multiplies the rate by what the formula says of the true noise", function()
    support.with_dtype("f64", function()
      local seen, found = {}, {}
      local config = settings(seen)
      local hook = { name = "Change" }
      function hook.before_train_iter(_, trainer)
        if trainer.step == 0 then found.before = { trainer:set_batch(16) } end
        if trainer.step == 250 then found.after = { trainer:set_batch(LARGEST) } end
      end
      config.hooks = { hook, { type = "GradientNoise", every = 1, decay = 0.999 } }
      config.adaptive_batch.every = nil -- the hook's counts
      local trainer = gm.fit(config, {})
      assert.is_nil(found.before[1])
      assert.matches("adascale needs the noise of the gradient", found.before[2])
      assert.is_true(found.after[1])
      local sqr, var = D, D * (D + 1) / 2 / FIRST
      local want = (var + sqr) / (var / (LARGEST / FIRST) + sqr)
      assert.near(1, trainer.batching.factor / want, 0.05)
      assert.near(trainer.batching.factor * 1e-9, trainer.engine.optimizer.lr, 1e-20)
      for i = 1, SAMPLES do assert.equal(1, seen[i]) end
      assert.equal(250 + math.ceil((SAMPLES - 250 * 2 * FIRST) / (2 * LARGEST)), trainer.step)
    end)
  end)
end)

describe("the setting", function()
  local function refused(set)
    job.write(home, recipe)
    local words = { "check", home .. "/recipe.lua" }
    for _, text in ipairs(set) do words[#words + 1], words[#words + 2] = "--set", text end
    local result = run_host(words)
    assert.equal(2, result.code, result.out)
    return result.err
  end

  it("is refused where steps are counted or batches are fixed", function()
    assert.matches("does not go with lr_scheduler, which counts", refused { "lr_scheduler.type=CosineAnnealingLR" })
    assert.matches("does not go with steps, which ends the run", refused { "steps=10" })
    assert.matches("does not go with drop_last", refused { "data.drop_last=true" })
    assert.matches("does not go with drop_last", refused { "data.sampler={type='DataParallelSampler',drop_last=true}" })
    assert.matches("largest = 64, less than data.batch_size = 65", refused { "data.batch_size=65" })
    assert.matches("rate", refused { "adaptive_batch.rate=cubic" })
  end)

  it("has the rules of the papers", function()
    assert.equal(4, setting.factor("linear", 4, nil, 8))
    assert.equal(2, setting.factor("sqrt", 4, nil, 8))
    -- var = 24 / 8 = 3, sqr = 1: (3 + 1) / (3 / 4 + 1)
    assert.near(16 / 7, setting.factor("adascale", 4, { square = 1, variance = 24 }, 8), 1e-15)
    assert.equal(1, setting.factor("adascale", 4, { square = 1, variance = 0 }, 8))
    assert.equal(4, setting.factor("adascale", 4, { square = 0, variance = 1 }, 8))
  end)

  it("says where the noise cannot be measured, on which adascale, the default, depends", function()
    job.write(home, (recipe:gsub("adaptive_batch = %b{}", "adaptive_batch = { largest = 64 }")))
    local result = run_host({ "run", "recipe.lua", "--out", "run", "--set", "epochs=1" }, { cwd = home })
    assert.equal(1, result.code) -- adascale knows no noise on one rank
    assert.matches("GradientNoise: nothing is measured on these ranks: .*gradient_accumulation is 1", result.err)
    assert.matches("adascale needs the noise of the gradient", result.err)
  end)

  it("lets a program's trainer say that its batch stays", function()
    local engine = gm.initialize { model = gm.nn.Linear { inputs = 2, outputs = 1 }, criterion = gm.nn.MSELoss(),
      optimizer = { type = "SGD", lr = 1 } }
    local ok, why = gm.trainer(engine):set_batch(4)
    assert.is_nil(ok)
    assert.matches("has no adaptive_batch", why)
  end)
end)
