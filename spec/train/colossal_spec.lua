-- Colossal-AI's spellings as its users write them: registries with register_module, Trainer, Engine, ParallelMode, gpc,
-- initialize by position, ModelFromConfig with layers_cfg, build_pipeline_model(model, chunks); a raw loader in fit.
local context = require "ganymede.job.context"
local gm = require "ganymede"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local nn, registry = gm.nn, gm.registry

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

local function refused(fn, part)
  local ok, err = pcall(fn)
  assert.is_false(ok)
  has(tostring(err), part)
end

local function forget(kind, name)
  registry[kind].classes[name] = nil
  for i, known in ipairs(registry[kind].order) do
    if known == name then return table.remove(registry[kind].order, i) end
  end
end

describe("registries in Colossal-AI's words", function()
  it("register_module with a dot or a colon, by the class's name or a given one", function()
    finally(function()
      for _, name in ipairs { "SpecA", "SpecB" } do forget("models", name) end
      forget("layers", "SpecA")
      forget("losses", "spec_loss")
    end)
    local A = nn.class "SpecA"
    assert.equal(A, gm.LAYERS.register_module(A)) -- which nn.class did already
    assert.equal(A, gm.MODELS.register_module(A))
    local B = gm.MODELS:register_module(function() return nn.Linear(2, 3) end, "SpecB")
    assert.equal(B, gm.MODELS.get_module "SpecB")
    assert.is_true(gm.MODELS.has "SpecB")
    gm.LOSSES.register_module(function() return nn.MSELoss() end, "spec_loss")
    assert.equal("MSELoss", gm.build_loss({ type = "spec_loss" }).name)
    assert.equal("SpecA", gm.build_from_registry({ type = "SpecA" }, gm.MODELS).name)
    refused(function() gm.MODELS.register_module(function() end) end, "the name as second argument")
    refused(function() gm.MODELS.get_module "SpecC" end, "no type 'SpecC' (did you mean 'Spec")
  end)

  it("has every registry that it names", function()
    for _, name in ipairs { "LAYERS", "MODELS", "LOSSES", "OPTIMIZERS", "DATASETS", "LR_SCHEDULERS", "TRANSFORMS",
      "SAMPLERS", "DATA_SAMPLERS", "GRADIENT_HANDLER", "SCHEDULE", "HOOKS", "DIST_GROUP_INITIALIZER" } do
      assert.is_function(gm[name].register_module, name)
      assert.equal(gm[name].kind, gm[name]:names() and gm[name].kind)
    end
  end)

  it("load what they need: nobody has touched gm.nn or gm.models", function()
    local home = support.home [[
      local gm = require "ganymede"
      local gpt = { type = "GPT", vocabulary = 16, sequence_length = 8, width = 8, depth = 1, heads = 2 }
      print(gm.build_pipeline_model_from_cfg(gpt).name)
      print(gm.build_pipeline_model_from_cfg({ type = "ModelFromConfig", layers_cfg = {
        { type = "Linear", inputs = 2, outputs = 2 } } }).name)
      print(gm.registry.optimizers:has "AdamW", gm.registry.datasets:has "CIFAR10", gm.registry.hooks:has "LossHook")
      gm.launch { model = gpt, loss = { type = "CrossEntropyLoss" } }
      print(gm.initialize({}).model.name)
    ]]
    finally(function() shell.remove(home) end)
    local result = support.run(home, { "run", "recipe.lua" })
    assert.equal("GPT\nModelFromConfig\ntrue\ttrue\ttrue\nGPT\n", result.out, result.err)
  end)

  it("take a class of nn.class as a model, by its name", function()
    finally(function() forget("layers", "SpecNet") end)
    local Net = nn.class "SpecNet"
    Net.options = { width = { type = "integer", doc = "width" } }
    function Net:build(opt) self.head = nn.Linear { inputs = opt.width, outputs = 3 } end
    function Net:forward(x) return self.head(x) end
    assert.equal("SpecNet", gm.build_model({ type = "SpecNet", width = 4 }).name)
    local config = require "ganymede.config"
    local recipe = { model = { type = "SpecNet", width = 4 }, data = { train = { type = "Synthetic" } },
      loss = "MSELoss", optimizer = "SGD" }
    assert.equal(4, config.resolve(recipe).config.model.width)
    recipe.model = { type = "SpecNet", widht = 4 }
    refused(function() config.resolve(recipe) end, "did you mean 'width'")
  end)
end)

describe("launch, initialize, Engine and Trainer in Colossal-AI's words", function()
  after_each(function() context.destroy() end)

  local function loader(length)
    return gm.data.loader { dataset = { type = "Synthetic", length = length or 32 }, batch_size = 8, seed = 1 }
  end

  it("initialize by position", function()
    local model = nn.Linear(16, 10)
    local optimizer = gm.optim.SGD({ lr = 0.1 }, model)
    local scheduler = gm.lr_scheduler.StepLR({ step_size = 1 }, optimizer)
    local engine, train, test, moved = gm.initialize(model, optimizer, nn.CrossEntropyLoss(), loader(), loader(16),
      scheduler)
    assert.same({ model, optimizer, scheduler, 4, 2 }, { engine.model, engine.optimizer, moved, train:length(),
      test:length() })
    assert.equal(model, gm.initialize(model).model)
    refused(function() gm.initialize(model, optimizer, nil, nil, nil, nil, {}) end, "at most 6 parts by position")
  end)

  it("Engine and Trainer, with a loader as it is", function()
    local engine = gm.Engine(nn.Linear(16, 10), { type = "SGD", lr = 0.1 }, { type = "CrossEntropyLoss" }, nil, 0.5)
    assert.equal(0.5, engine.clip_grad_norm)
    local trainer = gm.Trainer { engine = engine }
    local metrics = trainer:fit { train_dataloader = loader(), epochs = 2, test_dataloader = loader(16) }
    assert.same({ 8, 8 }, { trainer.step, engine.steps_done })
    assert.is_number(metrics.test.loss)
    assert.near(metrics.test.loss, trainer:evaluate(loader(16)).loss, 1e-12)
    refused(function() gm.Trainer { engin = engine } end, "did you mean 'engine'")
  end)

  it("a raw loader trains as one of initialize does, gradient accumulation included", function()
    local function losses(raw)
      require("ganymede.core").set_seed(4)
      local data = loader(48)
      local engine, train = gm.initialize { model = nn.Linear(16, 10), criterion = { type = "CrossEntropyLoss" },
        optimizer = { type = "SGD", lr = 0.1 }, gradient_accumulation = 3, train_dataloader = not raw and data or nil }
      local trainer = gm.trainer(engine)
      trainer:fit { train_dataloader = raw and data or train, epochs = 2 }
      return trainer.losses
    end
    local own = losses(false)
    assert.equal(4, #own)
    assert.same(own, losses(true))
  end)

  it("gpc and ParallelMode; the config by its own names", function()
    refused(function() return gm.gpc.config end, "no config before gm.launch")
    gm.launch { config = { NUM_EPOCHS = 3, BATCH_SIZE = 8, LOG_PATH = "x", clip_grad_norm = 1 } }
    local config = gm.gpc.config
    assert.same({ 3, 8, "x", 1, 3 }, { config.NUM_EPOCHS, config.BATCH_SIZE, config.LOG_PATH, config.clip_grad_norm,
      config.epochs })
    assert.is_nil(config.NUM_MICRO_BATCHES)
    refused(function() return config.LOG_PAHT end, "did you mean 'LOG_PATH'")
    assert.equal(1, gm.gpc.get_world_size(gm.ParallelMode.DATA))
    assert.equal(0, gm.gpc:get_local_rank(gm.ParallelMode.GLOBAL))
  end)
end)

describe("ModelFromConfig", function()
  local layers = { { type = "Linear", inputs = 4, outputs = 8 }, { type = "ReLU" },
    { type = "Linear", inputs = 8, outputs = 2 } }

  it("takes layers_cfg that a subclass sets", function()
    finally(function() forget("models", "SpecFromConfig") end)
    local Mine = nn.class("SpecFromConfig", gm.ModelFromConfig, "models")
    function Mine:build() self.layers_cfg = layers end
    local model = gm.build_model { type = "SpecFromConfig" }
    assert.equal(3, model:size())
    assert.same({ 5, 2 }, model(gm.zeros { 5, 4 }):shape())
    assert.same(gm.ModelFromConfig({ layers_cfg = layers }):count(), model:count())
    assert.equal(3, #model:section_list())
  end)

  it("says what is missing", function()
    finally(function() forget("models", "SpecEmptyConfig") end)
    local Mine = nn.class("SpecEmptyConfig", gm.ModelFromConfig, "models")
    function Mine:build() self.other = layers end
    refused(function() Mine {}(gm.zeros { 5, 4 }) end, "set self.layers_cfg = ")
    refused(function() gm.ModelFromConfig {} end, "option 'layers_cfg' is missing")
    refused(function() gm.ModelFromConfig { layers_cfg = {} } end, "it is empty")
  end)
end)

describe("pipelines in Colossal-AI's words", function()
  after_each(function() context.destroy() end)

  it("build_pipeline_model(model, num_chunks)", function()
    local model = nn.Sequential { nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2) }
    assert.equal(model, gm.build_pipeline_model(model, 1))
    assert.equal(2, require("ganymede.pipeline.stage").of(gm.build_pipeline_model(nn.Sequential { nn.Linear(4, 8),
      nn.Linear(8, 2) }, 2)).chunks)
  end)

  it("show the sections that a model could name", function()
    finally(function() forget("layers", "SpecWhole") end)
    local Whole = nn.class "SpecWhole"
    function Whole:build()
      self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
    end
    function Whole:forward(x) return self.second(self.first(x)) end
    local ok, err = pcall(gm.build_pipeline_model, Whole {}, 2)
    assert.is_false(ok)
    has(err, "SpecWhole names no sections")
    local code = err:match "(function SpecWhole:sections%(%).*\n  end)"
    Whole.forward = nil
    assert(loadstring("local SpecWhole = ...\n" .. code))(Whole)
    assert.equal(2, gm.build_pipeline_model(Whole {}, 2):section_list() and 2)
  end)
end)
