-- What a program gives to gm.launch reaches gm.initialize and the trainer, or is refused; launch as Colossal-AI's users
-- call it; environments in which ranks cannot find each other.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local context = require "ganymede.job.context"
local gm = require "ganymede"
local launch = require "ganymede.train.launch"
local schema = require "ganymede.config.schema"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

local function refused(fn, part)
  local ok, err = pcall(fn)
  assert.is_false(ok)
  has(tostring(err), part)
end

local handler = { handle_gradient = function() end }

local function linear() return gm.nn.Linear { inputs = 16, outputs = 10 } end

describe("settings of gm.launch", function()
  after_each(function()
    context.destroy()
    require("ganymede.core").set_default_dtype "f32"
  end)

  it("reach gm.initialize, every one that is its own", function()
    local first = shell.temporary_folder()
    finally(function() shell.remove(first) end)
    local other = gm.registry.models:build { type = "MLP", inputs = 16, hidden = { 16 }, classes = 10 }
    gm.checkpoint.save(first, { tensors = other:state(), meta = { step = 1 } })
    local given = { optimizer = { type = "SGD", lr = 0.25 }, lr_scheduler = { type = "CosineAnnealingLR" },
      clip_grad_norm = 0.5, norm_type = 1, gradient_accumulation = 3, gradient_handler = { handler },
      schedule = { type = "PipelineSchedule" }, num_microbatches = 4, fp16 = { initial_scale = 64 }, graph = false,
      zero = 0, recompute = { "^layers" }, offload = "none", gradient_dtype = "f32", epochs = 5,
      init_from = { path = first }, lora = { rank = 1, train = "^layers" }, freeze = "^layers%.1%.bias",
      float8 = true,
      loss = { type = "CrossEntropyLoss", label_smoothing = 0.1 },
      model = { type = "MLP", inputs = 16, hidden = { 16 }, classes = 10 },
      data = { batch_size = 8, train = { type = "Synthetic", length = 96 },
        test = { type = "Synthetic", length = 40, split = "test" } } }
    for _, name in ipairs(schema.engine) do assert.is_not_nil(given[name], name) end
    gm.launch(given)
    local engine, train, test, scheduler = gm.initialize {}
    assert.same({ 0.5, 1, 3, "f16", 0.25 }, { engine.clip_grad_norm, engine.norm_type, engine.accumulation,
      engine.parameters[1]:dtype(), engine.optimizer.lr })
    assert.same({ handler }, engine.gradient_handlers)
    assert.same({ "PipelineSchedule", 4, 64 }, { engine.schedule.name, engine.schedule.num_microbatches,
      engine.loss_scaling.scale })
    assert.is_nil(engine.graph)
    engine.parameters[1]:sum():backward()
    assert.equal("f32", engine.parameters[1]:grad():dtype())
    refused(function() gm.initialize { zero = 1 } end, "zero divides the sums of gradients") -- and takes no handler
    refused(function() gm.initialize { zero = { level = 3 } } end, "zero divides the sums of gradients")
    assert.same({ 4, 5 }, { train:length(), test:length() }) -- 96 samples in 12 batches of 8, 3 a step
    assert.equal(20, scheduler.opt.total_steps)
    assert.equal("MLP", engine.model.name)
    assert.is_truthy(tostring(engine.model):find("LoRA { alpha = 2, rank = 1", 1, true))
    assert.equal(0.1, engine.loss_function.opt.label_smoothing)
    assert.is_false(engine.model.layers[1].bias:requires_grad())
    assert.is_true(engine.model.layers[1].float8)
    assert.same(gm.ops.cast(other.head.weight, "f16"):totable(), engine.model.head.weight:totable())
  end)

  it("give way to what gm.initialize is given", function()
    gm.launch { clip_grad_norm = 0.5, gradient_handler = { handler }, optimizer = { type = "SGD" } }
    local other = { handle_gradient = function() end }
    local engine = gm.initialize { model = linear(), clip_grad_norm = 2, gradient_handlers = { other },
      optimizer = { type = "AdamW" } }
    assert.same({ 2, "AdamW" }, { engine.clip_grad_norm, engine.optimizer.name })
    assert.equal(other, engine.gradient_handlers[1])
  end)

  it("are those of the last launch, and of none after a fit or destroy", function()
    gm.launch { clip_grad_norm = 0.5 }
    gm.launch {}
    assert.equal(0, gm.initialize({ model = linear() }).clip_grad_norm)
    gm.launch { clip_grad_norm = 0.5 }
    context.destroy()
    assert.equal(0, gm.initialize({ model = linear() }).clip_grad_norm)
  end)

  it("clip: a step moves the parameters as far as the norm allows", function()
    gm.launch { clip_grad_norm = 1e-3, optimizer = { type = "SGD", lr = 1 }, loss = { type = "MSELoss" },
      dtype = "f64" }
    local model = linear()
    local engine = gm.initialize { model = model }
    local x, y, before = gm.uniform({ 4, 16 }, { seed = 1 }), gm.zeros { 4, 10 }, {}
    for i, p in ipairs(engine.parameters) do before[i] = p:clone():detach() end
    engine:zero_grad()
    engine:backward(engine:criterion(engine(x), y))
    engine:step()
    local moved = 0
    for i, p in ipairs(engine.parameters) do moved = moved + ((p - before[i]) ^ 2):sum():item() end
    assert.near(1e-3, math.sqrt(moved), 1e-8) -- the factor is 1e-3 / (norm + 1e-6), as PyTorch's
  end)

  it("reach a trainer: hooks, checkpoints, epochs and test_interval", function()
    local folder, seen = shell.temporary_folder(), 0
    finally(function() shell.remove(folder) end)
    gm.launch { model = linear, loss = { type = "CrossEntropyLoss" }, epochs = 2, test_interval = 2,
      data = { batch_size = 8, train = { type = "Synthetic", length = 16 }, test = { type = "Synthetic", length = 8 } },
      checkpoint = { interval = 3, directory = folder },
      hooks = { { after_train_iter = function() seen = seen + 1 end, after_test = function() seen = seen + 100 end } } }
    local engine, train, test = gm.initialize {}
    gm.trainer(engine):fit { train_dataloader = train, test_dataloader = test }
    assert.equal(104, seen)
    assert.is_truthy(require("ganymede.checkpoint").latest(folder))
  end)

  for name, value in pairs { hooks = { { type = "LossHook" } }, checkpoint = { interval = 2 }, test_interval = 2 } do
    it("refuse " .. name .. " to a loop without a trainer", function()
      gm.launch { loss = { type = "MSELoss" }, [name] = value }
      local engine = gm.initialize { model = linear() }
      engine:zero_grad()
      engine:backward(engine:criterion(engine(gm.zeros { 1, 16 }), gm.zeros { 1, 10 }))
      refused(function() engine:step() end, "gm.launch was given " .. name .. ", which only a trainer uses")
    end)
  end

  it("refuse the machine of a plan, which code does not have", function()
    refused(function() gm.launch { machine = "dgx_h100" } end, "machine belongs to parallel = \"auto\"")
  end)

  it("refuse a batch that may change, of a loader that a program makes", function()
    refused(function() gm.launch { adaptive_batch = { largest = 64 } } end,
      "adaptive_batch is for recipes that return a table")
  end)

  it("are all taken up by somebody", function()
    local taken = { name = "names the run", parallel = "session.join", model = "initialize", data = "initialize",
      loss = "initialize", epochs = "trainer", steps = "trainer", seed = "launch", dtype = "launch",
      matmul_precision = "launch", time_products = "launch", deterministic = "launch",
      detect_anomaly = "launch",
      zero = "refused", machine = "refused", adaptive_batch = "refused",
      train_data = "becomes data", test_data = "becomes data", user = "the program's" }
    for _, list in ipairs { schema.engine, schema.trainer } do
      for _, name in ipairs(list) do taken[name] = "declared" end
    end
    for name in pairs(schema.fields) do assert.is_not_nil(taken[name], name) end
  end)

  it("say how products are made", function()
    local session, seen = require "ganymede.job.session", nil
    local before = session.use_ops
    finally(function() session.use_ops = before end)
    function session.use_ops(settings) seen = settings.matmul_precision end
    gm.launch { matmul_precision = "high" }
    assert.equal("high", seen)
  end)

  it("are declared once", function()
    local options = require("ganymede.train.engine").options
    for _, name in ipairs(schema.engine) do assert.equal(schema.fields[name].doc, options[name].doc) end
    refused(function() gm.launch { clip_grad_norm = -1 } end, "clip_grad_norm must be a number, at least 0; got -1")
    refused(function() gm.initialize { model = linear(), clip_grad_norm = -1 } end,
      "'clip_grad_norm' must be a number, at least 0; got -1")
  end)

  it("come from context.load_config, too", function()
    context.load_config { clip_grad_norm = 0.5 }
    assert.equal(0.5, gm.initialize({ model = linear() }).clip_grad_norm)
  end)
end)

describe("gm.fit", function()
  after_each(function() context.destroy() end)

  it("takes a recipe as its file returns it, and settings that are resolved", function()
    local function recipe()
      return { model = { type = "MLP", inputs = 16, hidden = { 8 }, classes = 10 }, steps = 3, SEED = 6,
        data = { train = { type = "Synthetic", length = 64 }, batch_size = 8 },
        loss = "CrossEntropyLoss", optimizer = { type = "SGD", lr = 0.1 } }
    end
    local first = gm.fit(gm.recipe(recipe())).losses
    assert.equal(3, #first)
    assert.same(first, gm.fit(recipe()).losses)
    assert.same(first, gm.fit(require("ganymede.config").resolve(recipe()).config, {}).losses)
    local wrong = recipe()
    wrong.optimzer = {}
    refused(function() gm.fit(wrong) end, "did you mean 'optimizer'")
  end)
end)

describe("gm.launch { config = ... }", function()
  local folder
  before_each(function()
    folder = shell.temporary_folder()
    shell.write(folder .. "/base.lua", "return { seed = 5, width = 8, clip_grad_norm = 1, BATCH_SIZE = 4 }")
  end)
  after_each(function()
    context.destroy()
    shell.remove(folder)
  end)

  it("loads the file, and changes what is given besides", function()
    local config = gm.launch { config = folder .. "/base.lua", clip_grad_norm = 2, depth = 3 }
    assert.same({ 5, 8, 2, 3, 4 }, { config.seed, config.width, config.clip_grad_norm, config.depth,
      config.data.batch_size })
    assert.equal(2, gm.initialize({ model = linear() }).clip_grad_norm)
  end)

  it("takes a table, a path alone, or Colossal-AI's arguments in their order", function()
    assert.equal(9, gm.launch({ config = { width = 9 } }).width)
    assert.equal(8, gm.launch(folder .. "/base.lua").width)
    local config = gm.launch(folder .. "/base.lua", 0, 1, "localhost", 29500, "nccl", 0, 7, false)
    assert.same({ 8, 7, 1 }, { config.width, config.seed, config.world })
    assert.equal(8, gm.launch_from_torch({ config = folder .. "/base.lua" }).width)
    assert.equal(8, gm.launch_from_slurm(folder .. "/base.lua", "node1", 29500, nil, nil, false).width)
    assert.equal(8, gm.launch_from_openmpi(folder .. "/base.lua").width)
  end)

  it("refuses what it cannot load, and ranks that are others", function()
    refused(function() gm.launch { config = folder .. "/none.lua" } end, "cannot read the recipe")
    refused(function() gm.launch_from_torch({}, nil, nil, nil, 5) end, "at most 4 arguments by position")
    refused(function() gm.launch { config = 3 } end, "config must be a file that returns a table")
    shell.write(folder .. "/code.lua", "local x = 1; x = x + 1")
    refused(function() gm.launch { config = folder .. "/code.lua" } end, "returns no table")
    refused(function() gm.launch { world_size = 4 } end, "world_size = 4, and this process is rank 0 of 1")
    refused(function() gm.launch { rank = 1 } end, "ganymede run FILE -n N")
    refused(function() gm.launch { device = "cuda" } end, "--device")
  end)

  it("is found beside the recipe, from any folder", function()
    shell.write(folder .. "/recipe.lua", "print(require('ganymede').launch({ config = 'base.lua' }).width)")
    local result = support.run("/", { "run", folder .. "/recipe.lua" })
    assert.equal("8\n", result.out, result.err)
  end)
end)

describe("ranks that others started", function()
  local folder
  before_each(function() folder = support.home "print(require('ganymede').launch_from_torch({ width = 3 }).width)" end)
  after_each(function() shell.remove(folder) end)

  local function run(words, env)
    env.OMP_NUM_THREADS = 1
    return support.run(folder, words, { env = env })
  end

  it("are refused where torchrun's variables are not complete, with the right command", function()
    local result = run({ "run", "recipe.lua" }, { RANK = 2, WORLD_SIZE = 4, LOCAL_RANK = 2 })
    assert.equal(2, result.code, result.err)
    has(result.err, "ganymede run ... -n 4")
    assert.equal("", result.out)
    assert.equal(2, run({ "run", "recipe.lua", "-n", "4" }, { RANK = 2, WORLD_SIZE = 4 }).code) -- 4 jobs of 4
    result = run({ "run", "recipe.lua" }, { WORLD_SIZE = 4 })
    assert.equal(2, result.code)
    has(result.err, "RANK does not say which rank this is")
  end)

  it("train where WORLD_SIZE is what there is", function()
    local result = run({ "run", "recipe.lua" }, { RANK = 0, WORLD_SIZE = 1 })
    assert.equal("3\n", result.out, result.err)
    result = run({ "run", "recipe.lua", "-n", "2" }, { WORLD_SIZE = 2 })
    assert.equal("3\n3\n", result.out, result.err)
  end)

  it("are refused by launch_from_slurm in a job of other tasks", function()
    shell.write(folder .. "/recipe.lua", "require('ganymede').launch_from_slurm({})")
    local result = run({ "run", "recipe.lua" }, { SLURM_NPROCS = 4, SLURM_PROCID = 0 })
    assert.equal(2, result.code, result.err)
    has(result.err, "srun -n 4 ganymede run FILE")
  end)

  it("bring settings of gm.launch to a pipeline's stages", function()
    shell.write(folder .. "/recipe.lua", [[
      local gm = require "ganymede"
      gm.launch { NUM_MICRO_BATCHES = 2, parallel = { pipeline = 2 }, clip_grad_norm = 0.5, hooks = {},
        model = { type = "MLP", inputs = 16, hidden = { 8 }, classes = 10 }, loss = { type = "CrossEntropyLoss" },
        data = { batch_size = 8, train = { type = "Synthetic", length = 16 } } }
      local engine, train = gm.initialize {}
      gm.trainer(engine):fit { train_dataloader = train, max_steps = 2 }
      print(engine.stage.stages, engine.clip_grad_norm, engine.steps_done)
    ]])
    local result = run({ "run", "recipe.lua", "-n", "2" }, {})
    assert.equal("2\t0.5\t2\n2\t0.5\t2\n", result.out, result.err)
  end)

  it("find launch_from_* in gm", function() assert.equal(launch.launch_from_torch, gm.launch_from_torch) end)
end)
