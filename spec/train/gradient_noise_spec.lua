-- GradientNoise: what it measures is the noise that a quadratic model has by its formula, and what gradients of single
-- parts of the batch say; it is the same on one rank and on several, in every mode, and changes no loss.
-- sanitizers: no, numbers of training on several ranks are compared
local gm = require "ganymede"
local GradientNoise = require "ganymede.observe.gradient_noise"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local support = require "spec.train.support"

-- ---------------------------------------------------------------- a model whose noise is known

-- Numbers with the standard normal distribution.
local function normal(seed)
  local random = require("ganymede.cluster.random").new(seed)
  return function() return math.sqrt(-2 * math.log(random())) * math.cos(2 * math.pi * random()) end
end

-- The loss of a sample is |w - x|^2 / 2, and x has the mean m and in dimension k the variance k: the gradient of the
-- mean is w - m, and the variance of a sample's gradient 1 + 2 + ... + d.
local D, SIZE = 24, 8

local function quadratic(steps, accumulation, size)
  local draw = normal(5)
  local mean = {}
  for k = 1, D do mean[k] = 0.5 * k end
  local model = gm.nn.Linear { inputs = 1, outputs = D, bias = false }
  local loader = { batches = steps * accumulation }
  function loader:length() return self.batches end
  function loader.set_epoch() end
  function loader.seek() end
  function loader.next()
    local rows = {}
    for i = 1, size do
      rows[i] = {}
      for k = 1, D do rows[i][k] = mean[k] + math.sqrt(k) * draw() end
    end
    return gm.ones { size, 1 }, gm.tensor(rows)
  end
  local criterion = setmetatable({ count = function(_, y) return y:size(1) end },
    { __call = function(_, output, y, n) return (output - y):square():sum() / (2 * (n or y:size(1))) end })
  local engine, train = gm.initialize { model = model, criterion = criterion, train_dataloader = loader,
    optimizer = { type = "SGD", lr = 0 }, gradient_accumulation = accumulation }
  local w, square = support.numbers(model), 0
  for k = 1, D do square = square + (w[k] - mean[k]) ^ 2 end
  return engine, train, square, D * (D + 1) / 2
end

local function fit(engine, train, steps, hook)
  local trainer, found = gm.trainer(engine), {}
  trainer.sink = function() end
  trainer.on_step = function(_, step) found[step.step] = step end
  trainer:fit { train_dataloader = train, max_steps = steps, hooks = { hook } }
  return found, trainer
end

describe("the noise of a quadratic model", function()
  -- The estimate of the variance has 3 x 24 degrees of freedom a step, of dimensions that weigh 1 to 24: in 150 steps
  -- its standard deviation is some 1.6 % of it, that of the square below 1 %.
  it("is that of its formula, as a mean over steps", function()
    support.with_dtype("f64", function()
      local engine, train, square, variance = quadratic(150, 4, SIZE)
      local found, trainer = fit(engine, train, 150, { type = "GradientNoise", every = 1, decay = 0.9999 })
      local last = found[150]
      assert.near(1, last.gradient_variance / variance, 0.06)
      assert.near(1, last.gradient_square / square, 0.04)
      assert.near(variance / square, last.gradient_noise, 0.1 * variance / square)
      assert.equal(last.gradient_noise, trainer.states.gradient_noise)
      assert.is_nil(engine.gradient_watch)
    end)
  end)

  it("is measured in every so many steps", function()
    support.with_dtype("f64", function()
      local engine, train = quadratic(7, 2, 2)
      local found = fit(engine, train, 7, { type = "GradientNoise", every = 3 })
      local at = {}
      for i = 1, 7 do at[i] = found[i].gradient_variance and i or 0 end
      assert.same({ 0, 0, 3, 0, 0, 6, 0 }, at)
    end)
  end)

  it("needs two sizes of batches", function()
    local engine, train = quadratic(2, 1, 4)
    assert.error_matches(function() fit(engine, train, 2, { type = "GradientNoise" }) end,
      "one data rank, and gradient_accumulation is 1.*set gradient_accumulation = 2")
  end)
end)

describe("the estimate of groups of different sizes", function()
  -- Plain sums over samples: the mean over all draws of the estimates is what the samples were drawn with.
  it("has the variance and the square as its means", function()
    local draw, sizes, total = normal(9), { 5, 2, 1 }, 8
    local variance, square, n = 0, 0, 4000
    for _ = 1, n do
      local term, all = 0, { 0, 0 }
      for _, b in ipairs(sizes) do
        local sum = { 0, 0 }
        for _ = 1, b do sum[1], sum[2] = sum[1] + 1 + draw(), sum[2] + 2 + 2 * draw() end
        term = term + (sum[1] ^ 2 + sum[2] ^ 2) / (total * total) / b
        all[1], all[2] = all[1] + sum[1] / total, all[2] + sum[2] / total
      end
      local found = GradientNoise.estimate({ term, #sizes }, math.sqrt(all[1] ^ 2 + all[2] ^ 2), total)
      variance, square = variance + found.variance / n, square + found.square / n
    end
    assert.near(5, variance, 0.3) -- 1 + 4; the standard deviation of the mean is below 0.1
    assert.near(5, square, 0.3) -- 1 + 4
  end)

  it("is none where a number is not finite or there is one group", function()
    assert.is_nil(GradientNoise.estimate({ 1, 1 }, 1, 4))
    assert.is_nil(GradientNoise.estimate({ 0 / 0, 2 }, 1, 4))
    assert.is_nil(GradientNoise.estimate({ 1, 2 }, math.huge, 4))
  end)
end)

-- ---------------------------------------------------------------- on several ranks

-- The groups are the same eight samples in all of these: a batch of 32 for 4 data ranks, 16 twice for 2, 8 four times.
local recipe = [[
return {
  name = "noise", seed = 3, dtype = "f64", steps = 2,
  model = { type = "GPT", vocabulary = 259, sequence_length = 7, width = 16, depth = 2, heads = 4, tied = false },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 7, stride = 31 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0 },
  hooks = { { type = "GradientNoise", every = 2, decay = 0 } },
}
]]

local function run(ranks, set, steps)
  local folder = shell.temporary_folder()
  local ok, found = pcall(function()
    local stats = job.run_in(folder, recipe, ranks, { set = set, steps = steps, flags = { "--out", "out" } })
    local events = {}
    for line in io.lines(folder .. "/out/metrics.jsonl") do events[#events + 1] = json.decode(line, line) end
    return { loss = stats.loss, events = events }
  end)
  shell.remove(folder)
  if not ok then error(found, 2) end
  return found
end

describe("the noise of a run", function()
  local wanted
  setup(function() wanted = run(1, { "gradient_accumulation=4" }) end)

  it("is what the gradients of the parts say, one by one", function()
    local parts, term = run(1, { "hooks={}" }, 8), 0
    for i = 5, 8 do term = term + 8 * parts.events[i].gradient_norm ^ 2 end -- of step 2
    local last = wanted.events[2]
    local variance = (term - 32 * last.gradient_norm ^ 2) / 3
    assert.is_nil(wanted.events[1].gradient_variance)
    assert.near(1, last.gradient_variance / variance, 1e-9)
    assert.near(1, last.gradient_square / (last.gradient_norm ^ 2 - variance / 32), 1e-9)
  end)

  it("changes no loss", function()
    local without = run(1, { "gradient_accumulation=4", "hooks={}", "optimizer.lr=0.1" })
    assert.same(without.loss, run(1, { "gradient_accumulation=4", "optimizer.lr=0.1" }).loss)
  end)

  for _, case in ipairs {
    { "two data ranks", 2, { "gradient_accumulation=2", "data.batch_size=16" } },
    { "four data ranks", 4, { "data.batch_size=32" } },
    { "ZeRO 1", 2, { "gradient_accumulation=2", "data.batch_size=16", "zero=1" } },
    { "ZeRO 2", 2, { "gradient_accumulation=2", "data.batch_size=16", "zero=2" } },
    { "ZeRO 3", 4, { "data.batch_size=32", "zero={stage=3,whole_below=0}" } },
    { "1D x data", 4, { "gradient_accumulation=2", "data.batch_size=16", "parallel={tensor={size=2,mode='1d'}}" } },
    { "2D", 4, { "gradient_accumulation=4", "parallel={tensor={size=4,mode='2d'}}" } },
    { "a ring x data", 4, { "gradient_accumulation=2", "data.batch_size=16",
      "parallel={sequence={size=2,mode='ring'}}" } },
    { "a pipeline", 2, { "gradient_accumulation=4", "parallel.pipeline=2", "num_microbatches=2" } },
    { "a pipeline x data", 4, { "gradient_accumulation=2", "data.batch_size=16", "parallel.pipeline=2",
      "num_microbatches=1" } }, -- more of them would be cut over the data ranks one by one: other groups
    { "handlers", 2, { "gradient_accumulation=2", "data.batch_size=16",
      "gradient_handler={{type='DataParallelGradientHandler'}}" } },
    { "another norm", 2, { "gradient_accumulation=2", "data.batch_size=16", "norm_type=1" } },
  } do
    it("is the same with " .. case[1], function()
      local got = run(case[2], case[3]).events[2]
      for _, name in ipairs { "gradient_variance", "gradient_square", "gradient_noise" } do
        local want = wanted.events[2][name]
        assert.near(0, (got[name] - want) / want, 1e-8, name) -- a difference of numbers some 10 times as large
      end
    end)
  end

  it("is refused where it cannot be known", function()
    local told = job.run(recipe, 1, { code = 2 })
    assert.matches("gradient_accumulation is 1", told.error)
  end)
end)

-- The table of embeddings is the weight of the last layer, too: gradients of both come together, on one stage or two.
describe("the noise of a model whose stages share a parameter", function()
  local wanted
  setup(function() wanted = run(1, { "gradient_accumulation=4", "model.tied=true" }) end)

  it("is not that of a model that shares nothing", function()
    local other = run(1, { "gradient_accumulation=4" }).events[2]
    assert.is_true(math.abs(wanted.events[2].gradient_variance / other.gradient_variance - 1) > 0.01)
  end)

  for _, case in ipairs {
    { "a pipeline", 2, { "gradient_accumulation=4", "parallel.pipeline=2", "num_microbatches=2" } },
    { "a pipeline x data", 4, { "gradient_accumulation=2", "data.batch_size=16", "parallel.pipeline=2",
      "num_microbatches=1" } },
    { "a pipeline x 1D", 4, { "gradient_accumulation=4", "parallel.pipeline=2", "num_microbatches=2",
      "parallel.tensor.size=2", "parallel.tensor.mode=1d" } },
    { "a pipeline x ZeRO 1", 4, { "gradient_accumulation=2", "data.batch_size=16", "parallel.pipeline=2",
      "num_microbatches=1", "zero=1" } },
  } do
    it("counts it once with " .. case[1], function()
      local got = run(case[2], { "model.tied=true", unpack(case[3]) })
      for _, name in ipairs { "gradient_variance", "gradient_square", "gradient_noise" } do
        local want = wanted.events[2][name]
        assert.near(0, (got.events[2][name] - want) / want, 1e-8, name)
      end
      for i, loss in ipairs(wanted.loss) do assert.near(loss, got.loss[i], 1e-9) end
    end)
  end
end)
