--- Recipes against the schema. The malformed ones are generated from the schema itself: each field, each way of
-- being wrong; every one must be a failure of status 2 that names file and key path.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local config = require "ganymede.config"
local failure = require "ganymede.base.failure"
local parallel = require "ganymede.job.parallel"
local registry = require "ganymede.base.registry"
local schema = require "ganymede.config.schema"

local function recipe()
  return {
    model = { type = "MLP", inputs = 16, classes = 10 },
    data = { train = { type = "Synthetic", shape = { 16 } }, batch_size = 8 },
    loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
    hooks = { { type = "LossHook" }, { type = "CheckpointHook", interval = 3 } },
  }
end

local function resolve(given, ...) return config.resolve(given, { file = "recipes/r.lua", sets = { ... } }) end

-- The message of a recipe that must be refused.
local function refused(given, ...)
  local ok, err = pcall(resolve, given, ...)
  assert.is_false(ok, "was accepted")
  assert.equal(2, failure.code(err), failure.text(err))
  return failure.text(err)
end

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

local function put(root, path, value)
  local at, last = root, path:match "[^.]+$"
  for key in path:gmatch "([^.]+)%." do
    at[key] = type(at[key]) == "table" and at[key] or {}
    at = at[key]
  end
  at[last] = value
end

local holds = {
  integer = function(v) return type(v) == "number" and v == math.floor(v) and math.abs(v) <= 2 ^ 53 end,
  number = function(v) return type(v) == "number" and v == v and math.abs(v) < math.huge end,
  ["function"] = function(v) return type(v) == "function" end,
}
for _, name in ipairs { "string", "boolean", "table" } do
  holds[name] = function(v) return type(v) == name end
end

-- May the entry hold the value, as its declaration reads? Judged here apart from ganymede.base.options.
local function allowed(entry, value)
  local fits = false
  for _, name in ipairs(type(entry.type) == "table" and entry.type or { entry.type }) do
    fits = fits or (holds[name] and holds[name](value)) or false
  end
  fits = fits or entry.infinite and value == math.huge
  if not fits then return false end
  if type(value) == "number" then
    return value >= (entry.min or -math.huge) and value <= (entry.max or math.huge)
      and value > (entry.above or -math.huge)
  end
  return true
end

local wrong_values = {
  { "a wrong type", "!text" }, { "a boolean", true }, { "a table with a stray key", { no_such_key = 1 } },
  { "negative", -1 }, { "zero", 0 }, { "a fraction", 0.5 }, { "huge", 1e300 }, { "infinite", math.huge },
  { "NaN", 0 / 0 },
}

describe("a malformed recipe", function()
  local function try(path, entry)
    for _, case in ipairs(wrong_values) do
      local value = case[2]
      local skip = allowed(entry, value) and not (type(value) == "table" and entry.fields and not entry.open)
      if not skip then
        it(("is refused when %s is %s"):format(path, case[1]), function()
          local given = recipe()
          put(given, path, value)
          local text = refused(given)
          has(text, "recipes/r.lua")
          has(text, path)
        end)
      end
    end
  end

  local function walk(fields, prefix)
    for key, entry in pairs(fields) do
      local path = prefix .. key
      try(path, entry)
      if entry.fields then
        walk(entry.fields, path .. ".")
        it("is refused for an unknown key of " .. path, function()
          local given = recipe()
          put(given, path .. ".no_such_key", 1)
          has(refused(given), path .. ".no_such_key is no key of " .. path)
        end)
      end
    end
  end
  walk(schema.fields, "")

  it("is refused when what is required is missing", function()
    for _, key in ipairs { "model", "data", "loss", "optimizer" } do
      local given = recipe()
      given[key] = nil
      has(refused(given), key .. " is missing")
    end
    local given = recipe()
    given.data.train = nil
    has(refused(given), "data.train is missing")
  end)

  it("reports all problems together", function()
    local given = recipe()
    given.epochs, given.optimzer, given.model.width = 0, {}, 3
    local text = refused(given)
    has(text, "epochs must be")
    has(text, "optimzer is no key of a recipe (did you mean 'optimizer'?)")
    has(text, "model.width is no option")
  end)

  it("lists the keys of a small table where none is near", function()
    local given = recipe()
    given.checkpoint = { every = 3 }
    has(refused(given), "checkpoint.every is no key of checkpoint; there are ")
  end)

  it("is refused for an option that its classes do not have", function()
    local given = recipe()
    given.optimizer.learning_rate = 1
    given.hooks[2].intervall = 3
    given.data.train.split = "tset"
    local text = refused(given)
    has(text, "optimizer.learning_rate is no option")
    has(text, "hooks.2.intervall is no option (did you mean 'interval'?) [CheckpointHook]")
    has(text, "data.train.split must be one of")
  end)

  it("is refused for a class that does not exist, with the nearest", function()
    local given = recipe()
    given.model.type = "MPL"
    has(refused(given), "model.type is wrong: models: no type 'MPL' (did you mean 'MLP'?)")
  end)

  it("is refused when hooks are no list", function()
    local given = recipe()
    given.hooks = { type = "LossHook" }
    has(refused(given), "hooks.type is not a position")
    given.hooks = { [2] = { type = "LossHook" } }
    has(refused(given), "hooks is a list with holes")
  end)

  it("is refused when it contains itself", function()
    local given = recipe()
    given.user = { given }
    given.user.again = given.user
    has(refused(given), "contains itself")
  end)

  it("names the line where the key stands, when there is one", function()
    local given = recipe()
    given.epochs = -1
    local text = "return {\n  -- epochs = 3\n  epochs = -1,\n}"
    local ok, err = pcall(config.resolve, given, { file = "r.lua", text = text })
    assert.is_false(ok)
    has(failure.text(err), "r.lua:3: epochs must be")
  end)
end)

describe("a program's own settings", function()
  it("may be anything, false included, and are given by --set", function()
    local given = { keep = false, size = 3 }
    local kept = config.resolve(given, { in_code = true }).config
    assert.is_false(kept.keep)
    assert.equal(3, kept.size)
    assert.is_true(config.resolve(given, { in_code = true, sets = { "keep=true" } }).config.keep)
    has(select(2, pcall(config.resolve, given, { in_code = true, sets = { "kept=true" } })).message, "kept is no key")
  end)
end)

describe("a setting in other words", function()
  it("is a stage of ZeRO in two words", function()
    local given = recipe()
    for _, zero in ipairs { 2, { level = 2 }, { type = "ZeroRedundancyOptimizer_Level_2" } } do
      given.zero = zero
      local got = resolve(given).config.zero
      assert.equal(2, type(got) == "table" and got.stage or got)
    end
    given.zero = { stage = 1, level = 2 }
    has(refused(given), "more than one key for the stage")
    given.zero = { type = "ZeroRedundancyOptimizer_Level_1", level = 2 }
    has(refused(given), "more than one key for the stage")
    for _, bytes in ipairs { "lots", "-1", "64X" } do
      given.zero = { stage = 3, keep = bytes }
      has(refused(given), "is no number of bytes")
    end
  end)

  it("says of gathered parameters what stage 3 alone takes", function()
    local given = recipe()
    for _, zero in ipairs { { stage = 2, keep = 0 }, { stage = 1, ahead = "1M" }, { whole_below = 0 },
      { level = 2, whole_below = 7 } } do
      given.zero = zero
      has(refused(given), "which is about parameters that stage 3 divides, and its stage is "
        .. (zero.stage or zero.level or 0) .. "; give stage = 3")
    end
    for _, zero in ipairs { { stage = 3, whole_below = 0, keep = 0, ahead = 0 }, { stage = 2, whole_below = 65536 } } do
      given.zero = zero -- the second: the settings that a run has stored
      assert.is_table(resolve(given).config)
    end
  end)

  it("is fp16 beside another dtype", function()
    local given = recipe()
    given.fp16, given.dtype = true, "bf16"
    has(refused(given), "asks for f16, and dtype for bf16")
    given.fp16, given.dtype = { initial_scale = 0.5 }, nil
    has(refused(given), "initial_scale")
  end)

  it("is fine when it asks for nothing", function()
    local given = recipe()
    given.parallel = { data = "auto", pipeline = 1, sequence = { size = 1 }, tensor = { size = 1, mode = "2d" } }
    given.zero, given.fp16, given.num_microbatches, given.gradient_handler = { stage = 2 }, false, 1, {}
    assert.is_table(resolve(given).config)
  end)
end)

describe("parallel", function()
  for key, value in pairs {
    ["parallel.data"] = 4, ["parallel.pipeline"] = 4, ["parallel.sequence"] = 4, ["parallel.expert"] = 4,
    ["parallel.tensor"] = { size = 4, mode = "2d" },
  } do
    it("says how to get the ranks that it asks for: " .. key, function()
      local given = recipe()
      put(given, key, value)
      has(refused(given), "asks for 4 ranks, this job has 1; start it with -n 4")
    end)
  end

  it("says what is wrong with sizes before it says that they are too many", function()
    local given = recipe()
    given.parallel = { tensor = { size = 6, mode = "2d" } }
    has(refused(given), "parallel.tensor mode 2d needs a square size")
  end)

  it("takes Colossal-AI's spellings", function()
    local given = recipe()
    given.NUM_MICRO_BATCHES, given.parallel = 1, { tensor = { size = 1, mode = "sequence" } }
    local settings = resolve(given).config
    assert.equal(1, settings.num_microbatches)
    assert.same({ size = 1, mode = "ring" }, parallel.resolve(settings.parallel, 1).sequence)
  end)

  it("takes Colossal-AI's spellings of pipelines", function()
    local given = recipe()
    given.schedule, given.model.num_chunks, given.parallel = { num_microbatches = 4 }, 2, { pipeline = 1 }
    local settings = resolve(given).config
    assert.same({ 4, nil, nil, { pipeline = { size = 1, chunks = 2 } } }, { settings.num_microbatches,
      settings.schedule, settings.model.num_chunks, settings.parallel })
    assert.equal(2, parallel.resolve(settings.parallel, 1).chunks)
    given.schedule = { type = "NonPipelineSchedule", num_microbatches = 4 }
    assert.same({ type = "NonPipelineSchedule" }, resolve(given).config.schedule)
    given.num_microbatches = 8
    has(refused(given), "schedule.num_microbatches is 4, and num_microbatches is 8; give one of them")
  end)

  it("refuses shuffle = false beside a sampler, which says the order", function()
    local given = recipe()
    given.data.sampler = "RandomSampler"
    assert.equal("RandomSampler", resolve(given).config.data.sampler.type)
    given.data.shuffle = false
    has(refused(given), "data.shuffle has no effect beside data.sampler")
    given.data.sampler = nil
    assert.is_false(resolve(given).config.data.shuffle)
  end)

  it("refuses what has no effect without data to evaluate on", function()
    local idle = { "test_interval is", "data.test_batch_size is", "data.test_transforms is", "metrics is",
      "EarlyStopHook is", "SampleHook is", "CheckpointHook.best is" }
    local function with(test, ...)
      local given = recipe()
      given.test_interval, given.metrics = 2, { { type = "TopK" } }
      given.data.test_batch_size, given.data.test_transforms, given.data.test = 4, {}, test
      given.hooks = { { type = "EarlyStopHook" }, { type = "SampleHook", shape = { 1, 4, 4 } },
        { type = "CheckpointHook", best = "loss" }, ... }
      return given
    end
    local text = refused(with(nil))
    for _, words in ipairs(idle) do has(text, words:gsub(" is$", " has no effect, because there is no data.test")) end
    local own = refused(with(nil, { after_train_epoch = function(_, t) t:evaluate(t.mine) end }))
    assert.is_nil(own:find("metrics", 1, true) or own:find("EarlyStopHook", 1, true), own)
    assert.equal(2, resolve(with { type = "Synthetic", shape = { 16 } }).config.test_interval)
  end)

  it("knows which hooks --no-eval would leave without effect", function()
    local effects = require "ganymede.config.effects"
    for name, hook in pairs { EarlyStopHook = {}, SampleHook = {}, EvaluationHook = {},
      ["CheckpointHook.best"] = { type = "CheckpointHook", best = "loss" } } do
      hook.type = hook.type or name
      local found, is_same_run = effects.needs_evaluation { hooks = { { type = "CSVHook" }, hook } }
      assert.same({ name, name == "SampleHook" }, { found, is_same_run or false })
    end
    assert.is_nil(effects.needs_evaluation { hooks = { { type = "CheckpointHook", interval = 2 } } })
  end)

  it("refuses settings of hooks that are given besides", function()
    local given = recipe()
    given.checkpoint = { interval = 5 }
    has(refused(given), "checkpoint has no effect beside a CheckpointHook")
    given = recipe()
    given.hooks = { { type = "GradientNoise" } }
    given.adaptive_batch = { largest = 64 }
    assert.equal(10, resolve(given).config.adaptive_batch.every)
    given.adaptive_batch.every = 5
    has(refused(given), "adaptive_batch.every has no effect beside a hook GradientNoise")
  end)

  it("refuses more micro-batches than a batch has samples", function()
    local given = recipe()
    given.num_microbatches = 8
    assert.equal(8, resolve(given).config.num_microbatches)
    given.num_microbatches = 9
    has(refused(given), "num_microbatches is 9, more pieces than a batch has samples: data.batch_size is 8")
    given.num_microbatches, given.data.test_batch_size = 4, 2
    has(refused(given), "data.test_batch_size is 2")
  end)

  it("has the settings of the reducer", function()
    local given = recipe()
    given.parallel = { data = { size = "auto", bucket_mb = 0.5, overlap = false } }
    assert.same({ bucket_mb = 0.5, overlap = false }, parallel.resolve(resolve(given).config.parallel, 1).reducer)
    given.parallel.data.bucket_mb = 0
    has(refused(given), "parallel.data.bucket_mb must be a number, above 0; got 0")
  end)
end)

describe("gradient_handler and schedule", function()
  it("name what is registered", function()
    local given = recipe()
    given.gradient_handler = { { type = "DataParallelGradientHandler", bucket_mb = 1 } }
    given.schedule = "NonPipelineSchedule"
    assert.same({ type = "NonPipelineSchedule" }, resolve(given).config.schedule)
    given.schedule = { type = "1f1b" }
    has(refused(given), "schedule.type is wrong: schedules: no type '1f1b'; there are InterleavedPipelineSchedule, "
      .. "NonPipelineSchedule, PipelineSchedule")
    has(refused(given), "schedule = { type = \"PipelineSchedule\", order = \"1f1b\" }")
    given.schedule = { type = "PipelineSchedule", order = "zbh1" }
    has(refused(given), "schedule.order is wrong: pipeline_schedules: no type 'zbh1' (did you mean 'zb-h1'?)")
    given.schedule, given.gradient_handler = nil, { { type = "DataParalelGradientHandler" } }
    has(refused(given), "did you mean 'DataParallelGradientHandler'?")
  end)
end)

describe("--set", function()
  it("sets keys of the recipe, of the schema, and of lists", function()
    local c = resolve(recipe(), "optimizer.lr=3e-4", "seed=7", "hooks.1.type=ThroughputHook", "hooks.2.interval=5",
      "hooks.3.type=LossHook", "data.test.type=Synthetic", "dtype=f64", "model.hidden={8, 4}").config
    assert.equal(3e-4, c.optimizer.lr)
    assert.equal(7, c.seed)
    assert.equal("ThroughputHook", c.hooks[1].type)
    assert.equal(5, c.hooks[2].interval)
    assert.equal("LossHook", c.hooks[3].type)
    assert.equal("Synthetic", c.data.test.type)
    assert.equal("f64", c.dtype)
    assert.same({ 8, 4 }, c.model.hidden)
  end)

  it("takes math.huge for the norm that is the largest gradient, and for no rate", function()
    assert.equal(math.huge, resolve(recipe(), "norm_type=math.huge").config.norm_type)
    has(refused(recipe(), "optimizer.lr=math.huge"), "optimizer.lr must be a number")
  end)

  it("takes the last of several, and nil takes a key away", function()
    assert.equal(2, resolve(recipe(), "seed=1", "seed=2").config.seed)
    assert.equal(1024, resolve(recipe(), "seed=1", "seed=nil").config.seed)
    has(refused(recipe(), "optimizer=nil"), "optimizer is missing")
  end)

  it("adds keys of the user's own with + only", function()
    assert.equal("2d", resolve(recipe(), "+mine.grid=2d").config.mine.grid)
    has(refused(recipe(), "mine.grid=2d"), "mine is no key of a recipe")
    has(refused(recipe(), "+model.grid=2"), "model.grid is no option")
  end)

  it("understands other spellings", function()
    local given = recipe()
    given.num_epochs, given.NUM_MICRO_BATCHES, given.precision = 3, 1, "fp64"
    local c = resolve(given, "BATCH_SIZE=64").config
    assert.same({ 3, 64, "f64" }, { c.epochs, c.data.batch_size, c.dtype })
    given.epochs = 2
    has(refused(given), "num_epochs is given twice, also as 'epochs'")
  end)

  it("understands Colossal-AI's data tables, and names what has no counterpart", function()
    local given = recipe()
    given.data = nil
    given.train_data = { dataset = { type = "Synthetic", shape = { 16 }, transform_pipeline = {} },
      dataloader = { batch_size = 5, shuffle = false } }
    local c = resolve(given).config
    assert.same({ "Synthetic", 5, false }, { c.data.train.type, c.data.batch_size, c.data.shuffle })
    given.train_data.dataloader.num_workers = 4
    has(refused(given), "train_data.dataloader.num_workers")
  end)

  it("lets a short form become a table", function()
    has(refused(recipe(), "parallel.tensor=4", "parallel.tensor.mode=2d"), "asks for 4 ranks")
  end)

  it("lets a name in a list stand for the table with this type", function()
    local given = recipe()
    given.hooks, given.metrics = { "LossHook", { type = "AccuracyHook" } }, { "Accuracy" }
    given.data.test = { type = "Synthetic" }
    given.data.transforms = { { type = "CenterCrop", size = 4 }, "RandomHorizontalFlip", "MixUp" }
    local c = resolve(given, "data.transforms.2.p=1", "hooks.1.interval=5").config
    assert.same({ { type = "LossHook", interval = 5 }, { type = "AccuracyHook" } }, c.hooks)
    assert.same({ { type = "Accuracy" } }, c.metrics)
    assert.same({ { type = "CenterCrop", size = 4 }, { type = "RandomHorizontalFlip", p = 1 }, { type = "MixUp" } },
      c.data.transforms)
    assert.same({ "LossHook", { type = "AccuracyHook" } }, given.hooks)
    given.data.transforms[2] = "RandomHorizontalFlp"
    has(refused(given), "did you mean 'RandomHorizontalFlip'")
    given.hooks[1] = "CheckpointHook"
    given.data.transforms[2] = 3
    has(refused(given), "data.transforms.2 must be a table or a function; got 3")
  end)

  for text, part in pairs {
    ["optimzer.lr=1"] = "did you mean 'optimizer'?", ["optimizer.lr"] = "expected key=value",
    ["=1"] = "is no key path", ["a..b=1"] = "is no key path", ["hooks.9.type=LossHook"] = "hooks has 2 entries",
    ["hooks.0=1"] = "hooks has 2 entries", ["epochs.x=1"] = "epochs", ["seed=-1"] = "--set: seed must be",
    ["optimizer.lr=fast"] = "--set: optimizer.lr must be", ["model={width=64"] = "no literal",
    ["clip_grad_norm=1e999"] = "got inf", ["name=../x"] = "must name a folder",
  } do
    it("refuses " .. text, function() has(refused(recipe(), text), part) end)
  end

  it("changes nothing in the recipe's own table", function()
    local given, before = recipe(), recipe()
    resolve(given, "optimizer.lr=1", "hooks.1.type=ThroughputHook", "data.batch_size=1")
    assert.same(before, given)
  end)

  it("gives each of two keys that share a table its own", function()
    local shared = { type = "Synthetic", shape = { 16 } }
    local given = recipe()
    given.data.train, given.data.test = shared, shared
    local c = resolve(given, "data.test.length=7").config
    assert.is_nil(c.data.train.length)
    assert.equal(7, c.data.test.length)
  end)
end)

describe("a resolved recipe", function()
  local function origins(resolved)
    local out = {}
    for _, row in ipairs(resolved:rows()) do out[row.path] = row end
    return out
  end

  it("knows where each value comes from", function()
    local found = origins(resolve(recipe(), "seed=5"))
    assert.equal("--set", found.seed.origin)
    assert.equal("recipes/r.lua", found["optimizer.lr"].origin)
    assert.equal("default", found.clip_grad_norm.origin)
    assert.equal("default of AdamW", found["optimizer.weight_decay"].origin)
    assert.equal(registry.optimizers:get("AdamW").options.weight_decay.default, found["optimizer.weight_decay"].value)
  end)

  it("is named after its file, and its text is a recipe that resolves to the same", function()
    local resolved = resolve(recipe())
    assert.equal("r", resolved.config.name)
    local again = resolve(assert(loadstring(resolved:text()))())
    assert.same(resolved.config, again.config)
  end)

  it("takes functions and objects as they are", function()
    local given = recipe()
    local model = function() end
    given.model, given.loss = model, setmetatable({ forward = print }, {})
    local c = resolve(given).config
    assert.equal(model, c.model)
    assert.equal(given.loss, c.loss)
  end)
end)
