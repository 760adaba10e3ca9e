--- Training steps of a CPU as graphs (ganymede.train.graph, graph = true): the same bits as steps that run one by one,
-- whatever the model, the optimizer and the data do, the same errors, and no work of Lua in a step that is replayed.
-- spec/train/graph_runs_spec.lua has runs of recipes, spec/cuda/graph_training_spec.lua graphs of GPUs.
--
-- The truth is the same program with graph = false. Which steps ran one by one is known by the criterion, which is
-- called in Lua.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local shell = require "spec.support.shell"
local snapshot = require "ganymede.checkpoint.snapshot"
local support = require "spec.train.support"

before_each(require "spec.support.collected")

-- An engine. engine.ran: for each call of the criterion the number of the step in which it was made.
local function engine_of(graph, opt)
  local engine, train, _, scheduler = gm.initialize {
    model = opt.model, criterion = opt.criterion or { type = "CrossEntropyLoss" }, train_dataloader = opt.loader,
    optimizer = opt.optimizer or { type = "AdamW", lr = 0.02, weight_decay = 0.1 }, graph = graph,
    lr_scheduler = opt.lr_scheduler, total_steps = 14, clip_grad_norm = opt.clip or 0.5,
    gradient_accumulation = opt.accumulation, norm_type = opt.norm_type, fp16 = opt.fp16, recompute = opt.recompute,
    num_microbatches = opt.num_microbatches,
  }
  local criterion = engine.criterion
  engine.ran = {}
  function engine.criterion(self, ...)
    self.ran[#self.ran + 1] = self.steps_done + 1
    return criterion(self, ...)
  end
  return engine, train, scheduler
end

-- A classifier with dropout whose batches have different numbers of targets, trained by a trainer.
local function fitted(graph, opt, steps, hooks, prepare)
  local loader = support.loader { batches = 12, size = 2, width = 5, classes = 4, ignored = true }
  local model = support.model { width = 5, classes = 4, dropout = 0.25 }
  local engine, train = engine_of(graph, { model = model, loader = loader, accumulation = 2, fp16 = opt.fp16,
    optimizer = opt.optimizer, lr_scheduler = opt.lr_scheduler, clip = opt.clip })
  local trainer = gm.trainer(engine)
  trainer.sink = function() end
  trainer:prepare { train_dataloader = train, max_steps = steps or 12, hooks = hooks }
  if prepare then prepare(trainer) end
  trainer:fit()
  return trainer
end

-- Trains n steps of a program's own loop. batch(step) -> x, y. Returns the loss of each step, or its error.
local function looped(engine, n, batch)
  local losses = {}
  engine:train()
  for step = 1, n do
    local ok, err = pcall(gm.scope, function()
      local x, y = batch(step)
      engine:train_step { { x, y }, samples = x:size(1), tokens = 0, pieces = 1 }
      losses[step] = engine.last_loss
    end)
    if not ok then losses[step] = err end
  end
  return losses
end

local function steps_of(engine)
  local out = {}
  for _, step in ipairs(engine.ran) do
    if out[#out] ~= step then out[#out + 1] = step end
  end
  return out
end

local RECORDED = { 1, 2, 3, 4 } -- three one by one, and the recording of the fourth

local tokens = { vocabulary = 12, sequence_length = 6, width = 8, depth = 2, heads = 2, dropout = 0.1,
                 attention_dropout = 0.1 }

local function text(step)
  local t = gm.uniform({ 3, 7 }, { low = 0, high = 12, seed = step }):to "i64"
  return t:narrow(2, 1, 6), t:narrow(2, 2, 6)
end

local function pictures(step)
  return gm.normal({ 4, 1, 8, 8 }, { seed = step }), gm.uniform({ 4 }, { low = 0, high = 5, seed = step }):to "i64"
end

local models = {
  { name = "a GPT with dropout, of views", model = function() return gm.models.GPT(tokens) end, batch = text },
  { name = "a GPT whose blocks run again", model = function() return gm.models.GPT(tokens) end, batch = text,
    recompute = "block" },
  { name = "a vision transformer", batch = pictures, model = function()
    return gm.models.VisionTransformer { image_size = 8, patch_size = 4, channels = 1, classes = 5, width = 8,
      depth = 1, heads = 2, pool = "mean" }
  end },
  { name = "convolutions and a batch norm", batch = pictures, model = function()
    local nn = gm.nn
    return nn.Sequential { nn.Conv2d { in_channels = 1, out_channels = 4, kernel_size = 3, padding = 1 },
      nn.BatchNorm2d { channels = 4 }, nn.ReLU(), nn.Flatten(), nn.Linear(256, 5) }
  end },
  { name = "probabilities as targets", model = function() return support.model { width = 5, classes = 4 } end,
    batch = function(step)
      return gm.normal({ 6, 5 }, { seed = step }), gm.normal({ 6, 4 }, { seed = step }):softmax(2)
    end },
  { name = "an error of squares", criterion = { type = "MSELoss" },
    model = function() return support.model { width = 5, classes = 4 } end,
    batch = function(step) return gm.normal({ 6, 5 }, { seed = step }), gm.normal({ 6, 4 }, { seed = step }) end },
}

describe("training steps of a CPU as graphs", function()
  for _, case in ipairs {
    { name = "AdamW in f32" },
    { name = "SGD with a momentum that moves", optimizer = { type = "SGD", lr = 0.05, momentum = 0.9 },
      lr_scheduler = { type = "OneCycleLR" } },
    { name = "bf16 with masters, and no clipping", dtype = "bf16", clip = 0 },
    { name = "f16, whose loss scale backs off and grows", dtype = "f16",
      fp16 = { initial_scale = 2 ^ 26, growth_interval = 3 } },
  } do
    it("have the bits of steps that run one by one: " .. case.name, function()
      support.with_dtype(case.dtype or "f32", function()
        local want, got = fitted(false, case), fitted(true, case)
        assert.equal(12, #want.losses)
        assert.same(want.losses, got.losses)
        assert.equal(want.targets, got.targets) -- of which some are ignored, not as many in each step
        assert.equal(want.engine.grad_norm, got.engine.grad_norm)
        assert.same(support.numbers(want.engine.model), support.numbers(got.engine.model))
        assert.equal(want.engine.optimizer:steps(), got.engine.optimizer:steps())
        assert.same(RECORDED, steps_of(got.engine))
        assert.equal(12, #steps_of(want.engine))
      end)
    end)
  end

  for _, case in ipairs(models) do
    it("have them in models: " .. case.name, function()
      local numbers, losses, engines = {}, {}, {}
      for i, graph in ipairs { false, true } do
        core.set_seed(5)
        local engine = engine_of(graph, { model = case.model(), criterion = case.criterion,
          recompute = case.recompute })
        losses[i], engines[i] = looped(engine, 8, case.batch), engine
        numbers[i] = support.numbers(engine.model)
        engine.model:eval()
        losses[i][9] = gm.scope(gm.no_grad, function() return engine.model((case.batch(1))):sum():item() end)
      end
      assert.same(losses[1], losses[2])
      assert.same(numbers[1], numbers[2])
      assert.same(RECORDED, steps_of(engines[2]))
    end)
  end

  it("tell hooks at the same places", function()
    local orders = {}
    for i, graph in ipairs { false, true } do
      local order, hook = {}, {}
      function hook.after_train_iter(_, trainer, output, label, loss)
        order[#order + 1] = ("%d %.17g %.17g %d"):format(trainer.step, loss, output:sum():item(), label:get(1))
      end
      function hook.after_train_loss(_, _, step) order[#order + 1] = ("%d %.17g"):format(step.step, step.loss) end
      fitted(graph, {}, 9, { hook })
      orders[i] = order
    end
    assert.equal(18, #orders[1])
    assert.same(orders[1], orders[2])
  end)

  it("tell a program its numbers before the step returns", function()
    local engine = engine_of(true, { model = gm.models.GPT(tokens) })
    for step = 1, 6 do
      gm.scope(function()
        local x, y = text(step)
        local told
        local function tell(numbers) told = numbers end
        engine:train_step({ { x, y }, samples = 3, tokens = 0, pieces = 1 }, false, tell)
        assert.same({ step, 18 }, { told.step, told.targets })
        assert.equal(engine.last_loss, told.loss)
      end)
    end
    assert.same(RECORDED, steps_of(engine))
  end)

  it("go on from a checkpoint as if they had never stopped", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    local whole = fitted(false, {}, 14)
    local path = snapshot.save(fitted(true, {}, 6), folder, {})
    local rest = fitted(true, {}, 14, nil, function(trainer) snapshot.restore(trainer, path) end)
    assert.same(support.numbers(whole.engine.model), support.numbers(rest.engine.model))
    assert.same({ 7, 8, 9, 10 }, steps_of(rest.engine))
  end)

  it("are of the kinds that they are: another one runs by itself, one that stays is recorded", function()
    local results, engines = {}, {}
    for i, graph in ipairs { false, true } do
      core.set_seed(5)
      local engine = engine_of(graph, { model = gm.nn.Linear { inputs = 6, outputs = 3 } })
      results[i] = looped(engine, 24, function(step)
        if step == 11 then engine.model.weight:requires_grad(false) end
        local n = step > 12 and 5 or step == 9 and 2 or 4
        return gm.normal({ n, 6 }, { seed = step }), gm.uniform({ n }, { high = 3, seed = step }):to "i64"
      end)
      engines[i] = engine
    end
    assert.same(results[1], results[2])
    assert.same(support.numbers(engines[1].model), support.numbers(engines[2].model))
    assert.same({ 1, 2, 3, 4, 9, 11, 12, 13, 14, 15, 16 }, steps_of(engines[2]))
  end)

  it("are recorded again after forget, and run one by one while ops are timed", function()
    local engine = engine_of(true, { model = gm.models.GPT(tokens) })
    looped(engine, 5, text)
    engine.graph:forget()
    looped(engine, 5, text)
    core.profile_start()
    looped(engine, 1, text)
    core.profile_stop()
    looped(engine, 1, text)
    assert.same({ 1, 2, 3, 4, 6, 7, 8, 9, 11 }, steps_of(engine))
  end)
end)

describe("an error in a replayed step", function()
  -- Both ways of a GPT with a step 6 that goes wrong -> lists of losses and errors, engines, numbers before and after.
  local function spoiled(spoil, opt)
    local all = {}
    for i, graph in ipairs { false, true } do
      core.set_seed(5)
      local engine = engine_of(graph, { model = opt.model(), criterion = opt.criterion })
      engine.on_not_finite = opt.on_not_finite
      local before, after
      local list = looped(engine, 9, function(step)
        if step == 6 then before = support.numbers(engine.model) end
        if step == 7 then after = support.numbers(engine.model) end
        local x, y = opt.batch(step)
        if step == 6 then return spoil(x:clone(), y:clone()) end
        return x, y
      end)
      all[i] = { list = list, engine = engine, before = before, after = after, numbers = support.numbers(engine.model) }
    end
    local one, graph = all[1], all[2]
    for step, loss in ipairs(one.list) do
      if step ~= 6 then assert.equal(loss, graph.list[step]) end
    end
    assert.same(one.numbers, graph.numbers)
    assert.same(steps_of(graph.engine), RECORDED)
    assert.same({ one.engine.steps_done, one.engine.optimizer:steps() },
      { graph.engine.steps_done, graph.engine.optimizer:steps() })
    return one, graph
  end

  local gpt = { model = function() return gm.models.GPT(tokens) end, batch = text }

  it("names what is wrong, its module and the step, and changes nothing", function()
    local one, graph = spoiled(function(x, y)
      x:set(2, 3, 99)
      return x, y
    end, gpt)
    assert.matches("embedding: index 99 at position", one.list[6])
    assert.matches("embedding: index 99 at position", graph.list[6])
    assert.matches("\n  in tokens: embedding %[.-%]\n  in step 6, replayed from a graph", graph.list[6])
    assert.same(graph.before, graph.after)
    assert.equal(8, graph.engine.steps_done)
  end)

  it("of a target is that of a step one by one", function()
    local one, graph = spoiled(function(x, y)
      y:set(1, 1, 50)
      return x, y
    end, gpt)
    local what = one.list[6]:match "cross_entropy[^\n]*"
    assert.matches("50", what)
    assert.equal(what, graph.list[6]:match "cross_entropy[^\n]*")
    assert.same(graph.before, graph.after)
  end)

  local squares = { model = function() return support.model { width = 5, classes = 4 } end,
    criterion = { type = "MSELoss" },
    batch = function(step) return gm.normal({ 6, 5 }, { seed = step }), gm.normal({ 6, 4 }, { seed = step }) end }

  local function infinite(x, y)
    y:set(1, 1, math.huge)
    return x, y
  end

  it("ends a run that diverged in the same words", function()
    local one, graph = spoiled(infinite, squares)
    assert.equal(8, failure.code(graph.list[6]))
    local said = failure.text(one.list[6])
    assert.matches("diverged: loss inf, gradient norm .- in step 6; first that is not finite", said)
    assert.equal(said, failure.text(graph.list[6]))
    assert.same(graph.before, graph.after)
  end)

  it("is no error where such steps are left out", function()
    local opt = setmetatable({ on_not_finite = "skip" }, { __index = squares })
    local one, graph = spoiled(infinite, opt)
    assert.equal(math.huge, graph.list[6])
    assert.same(graph.before, graph.after)
    assert.equal(one.engine.not_finite, graph.engine.not_finite)
    assert.same({ 9, 8, 1 }, { graph.engine.steps_done, graph.engine.optimizer:steps(), graph.engine.not_finite })
  end)
end)

describe("a step that cannot be recorded", function()
  -- A model of its own that does this in its forward.
  local function odd(act)
    local Odd = gm.nn.class("Odd", nil, false)
    Odd.options = {}
    function Odd:build() self.inner = gm.nn.Linear { inputs = 5, outputs = 4 } end
    function Odd:forward(x)
      local y = self.inner(x)
      act(y)
      return y
    end
    return Odd {}
  end

  local function batch(step) return gm.normal({ 6, 5 }, { seed = step }), gm.zeros({ 6 }, { dtype = "i64" }) end

  it("ends with what was asked of the host, and where", function()
    for _, case in ipairs {
      { function(y) return y:sum():item() end, "to read or write a number is work of the host" },
      { function(y) return y:data() end, "to take the address of numbers is work of the host" },
      { function(y) return y + gm.tensor { 1, 2, 3, 4 } end, "to write numbers is work of the host" },
    } do
      local engine = engine_of(true, { model = odd(case[1]) })
      local losses = looped(engine, 4, batch)
      local why = failure.text(losses[4])
      assert.equal(2, failure.code(losses[4]), why)
      assert.matches("graph = true: step 4 cannot be recorded: .*" .. case[2], why)
      assert.matches("\n  in the model: Odd", why)
      assert.equal(3, engine.steps_done)
      local one = engine_of(false, { model = odd(case[1]) }) -- the device is as it was
      assert.equal(6, #looped(one, 6, batch))
    end
  end)

  it("is refused at once where the settings tell, and is none without the setting", function()
    local function refused(more, why)
      more.model = more.model or gm.nn.Linear { inputs = 5, outputs = 4 }
      local ok, err = pcall(engine_of, true, more)
      assert.is_false(ok)
      assert.matches(why, failure.text(err))
    end
    refused({ norm_type = 1 }, "graph = true: steps cannot be recorded: the 1%-norm of gradients")
    refused({ num_microbatches = 2 }, "num_microbatches: the host adds up the losses of micro%-batches")
    for _, name in ipairs { "Adafactor", "CAME" } do
      refused({ optimizer = { type = name, lr = 0.1 } }, name .. " decides about updates on the host")
    end
    assert.is_nil(engine_of("auto", { model = gm.nn.Linear { inputs = 5, outputs = 4 } }).graph)
    assert.error_matches(function()
      gm.initialize { model = gm.nn.Linear { inputs = 5, outputs = 4 }, cuda_graph = true }
    end, "gm.initialize: cuda_graph is called graph now")
  end)
end)
