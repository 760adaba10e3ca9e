--- The engine and the trainer on two stages, alone and times two data ranks: what they must do whatever the order is.
-- ranks: 2 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local parallel = require "ganymede.job.parallel"
local ranks = require "ganymede.job.ranks"
local registry = require "ganymede.base.registry"
local schedules = require "ganymede.schedules"
local training = require "spec.pipeline.training"

local world = core.world()
local STAGES = { pipeline = 2 } -- data fills up what is left
local nn = gm.nn

local function pipeline(m, order, more)
  local opt = { num_microbatches = m, order = order or "1f1b" }
  for key, value in pairs(more or {}) do opt[key] = value end
  return schedules.PipelineSchedule(opt)
end

-- An engine on two stages with loaders of `n` samples in batches of `size`, and a silent trainer.
local function built(name, n, size, schedule, initialize)
  local given = { train_dataloader = training.loader(name, n, { batch_size = size }),
                  test_dataloader = training.loader(name, n, { batch_size = 5 }) }
  for key, value in pairs(initialize or {}) do given[key] = value end
  local engine, train, test = training.engine(name, { parallel = STAGES, schedule = schedule, initialize = given })
  local trainer = gm.trainer(engine)
  trainer.sink = function() end
  return engine, trainer, train, test
end

-- Batches of consecutive samples of the data set.
local function rows_of(name, n)
  local x, y = training.samples(name, n)
  return function(step, size)
    local first = (step - 1) * size + 1
    return x:narrow(1, first, size), y:narrow(1, first, size)
  end
end

-- The message of what all ranks raise.
local function refused(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  return failure.text(err), failure.code(err)
end

local function bits(t)
  return gm.scope(function() return table.concat(t:detach():reshape(t:numel()):totable(), " ") end)
end

describe("the engine on stages", function()
  before_each(function() gm.set_default_dtype "f64" end)
  after_each(function()
    gm.set_default_dtype "f32"
    ranks.set_output_stage(nil)
    training.install {}
  end)

  it("accumulates gradients over batches, by the trainer, as the loop over their pieces does", function()
    -- 2 updates of 2 batches of 7 samples in pieces of 3, 2, 2: on two data ranks of 2 + 1 and 1 + 1
    local batch = rows_of("mlp", 28)
    local wanted = training.serial("mlp", 14, { 3, 2, 2, 3, 2, 2 }, 2, { batch = batch })
    local engine, trainer, train = built("mlp", 28, 7, pipeline(3, "zb-h1"), { gradient_accumulation = 2 })
    trainer:fit { train_dataloader = train, epochs = 1 }
    assert.equal(2, #trainer.losses)
    for step = 1, 2 do assert.near(wanted[step].loss, trainer.losses[step], 1e-12 * wanted[step].loss) end
    training.agree("weight", wanted[2].weights, engine, function(p) return p end)
    assert.same({ 28, 28 }, { trainer.samples, trainer.targets })
  end)

  for _, p in ipairs { 2, 3, math.huge } do
    it(("clips to the %g-norm of all stages"):format(p), function()
      local wanted = training.serial("gpt", 6, { 2, 2, 2 }, 2,
        { norm_type = p, clip = 0.05, batch = rows_of("gpt", 12) })
      local engine, trainer, train = built("gpt", 12, 6, pipeline(3), { norm_type = p, clip_grad_norm = 0.05 })
      local seen = {}
      local hook = { needs_output = false, after_train_iter = function(_, t) seen[#seen + 1] = t.engine.grad_norm end }
      local other = gm.hooks.GradientNormHook { norm_type = p }
      trainer:fit { train_dataloader = train, epochs = 1, hooks = { hook, other } }
      for step = 1, 2 do assert.near(wanted[step].norm, seen[step], 1e-12 * wanted[step].norm) end
      assert.near(wanted[2].norm, trainer.states.gradient_norm, 1e-12 * wanted[2].norm)
      assert.is_true(wanted[1].norm > 0.05) -- it does clip
      training.agree("weight", wanted[2].weights, engine, function(q) return q end)
      local text = ("%.17g"):format(engine.grad_norm)
      for _, said in ipairs(ranks.texts(text)) do assert.equal(text, said) end
    end)
  end

  it("keeps what stages share equal, to the bit", function()
    local adam = { optimizer = { type = "AdamW", lr = 0.01 } }
    assert.equal(0, #built("gpt", 20, 4, pipeline(2, "zb-v"), adam).shared) -- one stage has both ends
    local engine, trainer, train = built("gpt", 20, 4, pipeline(2), adam)
    trainer:fit { train_dataloader = train, epochs = 2 }
    assert.equal(10, engine.steps_done)
    assert.same({ "tokens.weight" }, engine.shared[1].names)
    local own = bits(engine.shared[1].tensors[1])
    for _, other in ipairs(ranks.texts(own)) do assert.is_true(own == other) end
    assert.equal(engine.stage.rank == 0 and #engine.parameters or #engine.parameters - 1, #engine.counted)
  end)

  it("has gradient handlers sum them where it was given some", function()
    local wanted = training.serial("gpt", 6, { 3, 3 }, 1, { batch = rows_of("gpt", 6) })
    local both = { { type = "DataParallelGradientHandler" }, { type = "PipelineSharedModuleGradientHandler" } }
    local engine, trainer, train = built("gpt", 6, 6, pipeline(2), { gradient_handler = both })
    trainer:fit { train_dataloader = train, epochs = 1 }
    training.agree("weight", wanted[1].weights, engine, function(p) return p end)
    engine, trainer, train = built("gpt", 6, 6, pipeline(2), { gradient_handler = { both[1] } })
    trainer:fit { train_dataloader = train, epochs = 1 }
    local shared, same = engine.shared[1].tensors[1], bits(engine.shared[1].tensors[1])
    assert.is_true(training.difference(wanted[1].weights["tokens.weight"], shared) > 1e-6) -- nobody summed them
    local differs = false
    for _, other in ipairs(ranks.texts(same)) do differs = differs or other ~= same end
    assert.is_true(differs)
  end)

  it("evaluates, predicts and counts right answers as one rank does", function()
    local wanted = training.serial("mlp", 10, { 4, 3, 3 }, 1, { batch = rows_of("mlp", 10) })
    local x, y = training.samples("mlp", 10)
    wanted.model:eval()
    local logits = gm.no_grad(wanted.model, x)
    local loss = gm.no_grad(nn.CrossEntropyLoss {}, logits, y):item()
    local right = gm.metrics.correct(logits, y) / 10
    for _, order in ipairs { "1f1b", "zb-v", "interleaved" } do
      -- test batches of 5 and 5 in pieces: interleaved cannot train on 2 stages with 5, but evaluates them
      local m = order == "interleaved" and 6 or 3
      local engine, trainer, train, test = built("mlp", 10, 10, pipeline(m, order))
      local outputs, iterations = 0, { 0, 0 }
      local hook = { before_test_iter = function() iterations[1] = iterations[1] + 1 end }
      function hook.after_test_iter(_, _, output, label, piece_loss)
        iterations[2] = iterations[2] + 1
        outputs = outputs + (output and output:size(1) or 0)
        assert.is_true(label:size(1) <= 2 and piece_loss > 0)
      end
      trainer:prepare { train_dataloader = train, test_dataloader = test, max_steps = 1,
                        hooks = { gm.hooks.AccuracyHook {}, hook } }
      for _, p in ipairs(engine.model:named_parameters()) do p.tensor:detach():copy_(wanted[1].weights[p.name]) end
      local metrics = trainer:evaluate(test)
      assert.near(loss, metrics.loss, 1e-12 * loss)
      assert.near(right, metrics.accuracy, 1e-15)
      assert.equal(iterations[1], iterations[2])
      assert.equal(engine.stage:holds_last() and 10 or 0, outputs)
      local output = trainer:predict(x)
      assert.equal(engine.stage:holds_last(), output ~= nil)
      assert.equal(engine.stage:holds_last() and 2 or 0, #trainer:predict { x, x })
      if output then assert.is_true(training.difference(logits, output) <= 1e-12) end
      assert.is_true(engine.training)
      engine:eval()
      local _, _, mean = engine:execute_schedule(training.once(x, y), { forward_only = true })
      assert.near(loss, mean:item(), 1e-12 * loss)
    end
  end)

  it("has one loop for every number of stages: that of the engine's head", function()
    local opt = { lr_scheduler = { type = "ExponentialLR", gamma = 0.5 }, gradient_accumulation = 2 }
    local engine, _, train = built("gpt", 20, 4, pipeline(3, "zb-h1"), opt)
    local scheduler, losses, turns = engine.lr_scheduler, {}, 0
    engine:train()
    for _ = 1, 2 do
      local batches = train:batches()
      repeat
        engine:zero_grad()
        local output, label, loss = engine:execute_schedule(batches)
        assert.equal(loss ~= nil and engine.stage:holds_last(), output ~= nil)
        assert.equal(loss ~= nil, label ~= nil)
        turns = turns + (loss and 1 or 0)
        if loss and engine:step() then
          scheduler:step()
          losses[#losses + 1] = engine.last_loss
        end
      until not loss
    end
    assert.same({ 10, 6 }, { turns, #losses }) -- 5 batches an epoch: updates from 2, 2 and 1
    local second, trainer, loader = built("gpt", 20, 4, pipeline(3, "zb-h1"), opt)
    trainer:fit { train_dataloader = loader, epochs = 2 }
    assert.same(losses, trainer.losses)
    for i, p in ipairs(engine.parameters) do assert.is_true(bits(p) == bits(second.parameters[i])) end
  end)

  it("gives hooks the outputs of a step on the last stage, and measures accuracy in training", function()
    local batch = rows_of("mlp", 12)
    local engine, trainer, train = built("mlp", 12, 6, pipeline(4), { gradient_accumulation = 2,
      optimizer = { type = "SGD", lr = 0 } })
    local shapes, labels = {}, nil
    local hook = { after_train_iter = function(_, _, output, label)
      shapes = { output and output:shape() or "none", label:shape() }
      labels = label:totable()
    end }
    trainer:fit { train_dataloader = train, epochs = 1, hooks = { hook, gm.hooks.AccuracyHook {} } }
    assert.same({ engine.stage:holds_last() and { 12, 4 } or "none", { 12 } }, shapes)
    local _, y = batch(1, 12)
    assert.same(y:totable(), labels)
    local everywhere = ("%.17g"):format(trainer.metrics.train.accuracy)
    for _, said in ipairs(ranks.texts(everywhere)) do assert.equal(everywhere, said) end
    local twelfths = trainer.metrics.train.accuracy * 12
    assert.near(math.floor(twelfths + 0.5), twelfths, 1e-9)
  end)

  -- the section of each stage's second chunk: the last one is the output's
  for _, case in ipairs { { "interleaved", 3, 4 }, { "zb-v", 4, 3 } } do
    local order = case[1]
    it("tells layers by the context which chunk runs, order " .. order, function()
      local Asking, seen = nn.class("Asking" .. order .. world, nil, false), {}
      Asking.options = { inputs = { type = "integer" } }
      function Asking:build(opt) self.inner = nn.Linear(opt.inputs, opt.inputs) end
      function Asking:forward(x)
        local now = gm.context.current()
        seen[self:path()] = { now:virtual_pipeline_parallel_size(), now:virtual_pipeline_parallel_rank(),
                              now:is_pipeline_first_stage(), now:is_pipeline_last_stage() }
        return self.inner(x)
      end
      training.install(STAGES)
      local schedule, layers = pipeline(4, order), {}
      for i = 1, 4 do layers[i] = Asking { inputs = 6 } end
      local model = gm.build_pipeline_model(layers, { schedule = schedule, split = "uniform" })
      local engine = gm.initialize { model = model, schedule = schedule, criterion = { type = "CrossEntropyLoss" } }
      engine:execute_schedule(training.once(training.samples("mlp", 4)))
      local one, two = engine.stage.rank + 1, case[engine.stage.rank + 2]
      assert.same({ [tostring(one)] = { 2, 0, one == 1, false }, [tostring(two)] = { 2, 1, false, two == 4 } }, seen)
      local now = gm.context.current()
      assert.same({ one == 1, two == 4 }, { now:is_pipeline_first_stage(), now:is_pipeline_last_stage() })
    end)
  end

  it("adds what layers of any stage add to the loss: means over micro-batches", function()
    local Noisy = nn.class("NoisyLinear" .. world, nil, false)
    Noisy.options = { inputs = { type = "integer" } }
    function Noisy:build(opt) self.inner = nn.Linear(opt.inputs, opt.inputs) end
    function Noisy:forward(x)
      local y = self.inner(x)
      if self.training then auxiliary.add(y:square():mean() * 0.3) end
      return y
    end
    local function model()
      return nn.Sequential { Noisy { inputs = 6 }, nn.Linear(6, 6), Noisy { inputs = 6 }, nn.Linear(6, 4) }
    end
    local x, y = training.samples("mlp", 8)
    training.install {}
    core.set_seed(7)
    local whole, loss = model(), 0
    for k = 0, 3 do
      local part = nn.CrossEntropyLoss {}(whole(x:narrow(1, 2 * k + 1, 2)), y:narrow(1, 2 * k + 1, 2), 8)
      part = part + auxiliary.take() * 0.25
      loss = loss + part:item()
      core.backward(part)
    end
    training.install(STAGES)
    core.set_seed(7)
    local cut = gm.build_pipeline_model(model(), { schedule = pipeline(4), split = "uniform" })
    local engine, train = gm.initialize { model = cut, schedule = pipeline(4),
      criterion = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0 },
      train_dataloader = training.loader("mlp", 8, { batch_size = 8 }) }
    gm.scope(function()
      local batches = train:batches()
      local _, _, said = engine:execute_schedule(batches)
      assert.near(loss, said:item(), 1e-12 * loss)
      for _, p in ipairs(engine.model:named_parameters()) do
        local wanted
        for _, q in ipairs(whole:named_parameters()) do wanted = q.name == p.name and q.tensor:grad() or wanted end
        assert.is_true(training.difference(wanted, p.tensor:grad()) <= 1e-12, p.name)
      end
    end)
    engine:step()
    assert.near(loss, engine.last_loss, 1e-12 * loss)
  end)

  it("takes batches of any iterator, whole or as tables, with labels made by the recipe", function()
    local wanted = training.serial("mlp", 6, { 2, 2, 2 }, 1, { batch = rows_of("mlp", 6) })
    local x, y = training.samples("mlp", 6)
    local schedule = pipeline(3, "1f1b", { data_process_func = function(batch) return batch.x, batch.y end })
    local engine = training.engine("mlp", { parallel = STAGES, schedule = schedule })
    local output, label, loss = schedule:forward_backward_step(engine, training.once({ x = x, y = y }))
    assert.near(wanted[1].loss, loss:item(), 1e-12)
    assert.same({ 6, engine.stage:holds_last() }, { label:size(1), output ~= nil })
    engine:step()
    engine:zero_grad()
    local nothing = { engine:execute_schedule(training.once({ x = x, y = y }), { return_loss = false,
      return_output_label = false }) }
    assert.is_nil(nothing[1] or nothing[2] or nothing[3])
    engine:step()
    assert.is_nil((engine:execute_schedule(function() return nil end)))
    local forward, _, without_update = engine:execute_schedule(training.once({ x = x, y = y }), { forward_only = true })
    assert.same({ engine.stage:holds_last(), 0 }, { forward ~= nil, engine.batch })
    assert.is_true(without_update:item() > 0)
  end)

  it("trains stages of which one has no parameters, and groups that other stages have", function()
    training.install(STAGES)
    core.set_seed(7)
    local schedule = pipeline(2)
    local model = nn.Sequential { nn.GELU(), nn.Linear(6, 4) }
    local engine = gm.initialize { model = gm.build_pipeline_model(model, { schedule = schedule, split = { 1, 1 } }),
      schedule = schedule, criterion = { type = "CrossEntropyLoss" },
      optimizer = { type = "SGD", lr = 0.5, groups = { { match = "^2%.", lr_scale = 0.5 } } } }
    local x, y = training.samples("mlp", 6)
    local losses = {}
    for step = 1, 3 do
      engine:zero_grad()
      engine:execute_schedule(training.once(x, y))
      engine:step()
      losses[step] = engine.last_loss
    end
    assert.is_true(losses[3] < losses[2] and losses[2] < losses[1])
    assert.equal(engine.stage.rank == 1 and 2 or 0, #engine.parameters)
    local text = refused(gm.optim.SGD, { groups = { { match = "^9%." } } }, engine.model)
    assert.has_match("no parameter is left for it", text)
  end)

  it("names the first parameter that is not finite, wherever it is", function()
    local engine = training.engine("mlp", { parallel = STAGES, schedule = pipeline(2) })
    local x, y = training.samples("mlp", 6)
    local first = engine.model:named_parameters()[1]
    if engine.stage.rank == 0 then first.tensor:detach():set(1, 1, 0 / 0) end
    engine:execute_schedule(training.once(x, y))
    local text, code = refused(engine.step, engine)
    assert.equal(8, code)
    assert.has_match("first that is not finite: .*layers%.1%.", text)
    for _, other in ipairs(ranks.texts(text)) do assert.equal(text, other) end
  end)

  it("refuses what a pipeline cannot do", function()
    local engine = training.engine("mlp", { parallel = STAGES, schedule = pipeline(2) })
    local x = training.samples("mlp", 6)
    assert.has_match("engine%(x%) with 2 pipeline stages.*engine:execute_schedule%(iter%)", refused(engine, x))
    assert.has_match("engine:backward%(loss%) with 2", refused(engine.backward, engine, x))
    local text, code = refused(gm.initialize, { model = training.models.mlp.build(), schedule = pipeline(2) })
    assert.has_match("every stage holds the whole model: split it with gm.build_pipeline_model", text)
    assert.equal(2, code)
    local _, y = training.samples("mlp", 1)
    assert.has_match("inputs of a batch have 2 micro%-batches, and the labels 1", refused(function()
      engine:execute_schedule(training.once(x, y))
    end))
    local cut = gm.build_pipeline_model(training.models.mlp.build(), { schedule = pipeline(2) })
    text, code = refused(gm.initialize, { model = cut, schedule = pipeline(2, "zb-v") })
    assert.has_match("stage %d holds part %d of a model in 2, but the schedule needs part %d, %d of 4 there", text)
    assert.equal(2, code)
  end)

  it("refuses parts of stages that declare the same parameter", function()
    training.install(STAGES)
    local schedule, rank = pipeline(2), ranks.stage()
    local part = nn.Sequential { nn.Linear(6, 6), rank == 1 and nn.Linear(6, 4) or nn.GELU() }
    local text, code = refused(gm.initialize, { model = part, schedule = schedule })
    assert.has_match("stages 0 and 1 both declare a parameter '1%.weight'", text)
    assert.equal(2, code)
  end)

  it("joins pieces that differ in their number of samples only", function()
    local join, lists = require "ganymede.data.join", require "ganymede.data.micro_batches"
    local a, b, long = gm.ones { 2, 3 }, gm.zeros { 1, 3 }, gm.ones { 2, 4 }
    assert.same({ { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 } }, join({ lists.List { a, b } }):totable())
    local tables = join { { x = a, n = 1 }, { x = b, n = 1 } }
    assert.same({ 3, 3 }, tables.x:shape())
    local apart = join { lists.List { a }, lists.List { long } }
    assert.is_true(lists.is_list(apart) and #apart == 2)
    assert.is_true(lists.is_list(join { { x = a }, { x = long } }))
    assert.is_true(lists.is_list(join { { x = a, y = a }, { x = b }, { x = a, y = a } }))
    assert.is_true(lists.is_list(join { { x = a }, { x = b, y = b } }))
    assert.is_nil(join {})
  end)

  it("names parameters that no loss depends on, and their stage", function()
    local Idle = nn.class("IdleLinear" .. world, nil, false)
    Idle.options = {}
    function Idle:build() self.used, self.idle = nn.Linear(6, 6), nn.Linear(2, 2) end
    function Idle:forward(x) return self.used(x) end
    training.install(STAGES)
    local schedule, said = pipeline(2), {}
    local model = nn.Sequential { nn.Linear(6, 6), Idle {}, nn.Linear(6, 4) }
    local engine = gm.initialize { model = gm.build_pipeline_model(model, { schedule = schedule, split = { 1, 2 } }),
      schedule = schedule, criterion = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.5 } }
    local log, warn = require "ganymede.base.log", require("ganymede.base.log").warn
    log.warn = function(...) said[#said + 1] = (...):format(select(2, ...)) end
    local x, y = training.samples("mlp", 6)
    for _ = 1, 2 do
      engine:zero_grad()
      engine:execute_schedule(training.once(x, y))
      engine:step()
    end
    log.warn = warn
    local speaks = world == 4 and engine.stage.rank == 1 and ranks.is_first_of_stage() -- ranks that sum find out
    local wanted = "no loss depends on 2.idle.weight, 2.idle.bias (stage 1): the ranks sum zeros for them"
    assert.equal(speaks and wanted or nil, said[1])
    assert.is_true(#said <= 1)
  end)

  it("says which batches an order cannot take", function()
    local schedule = pipeline(8, "interleaved")
    local engine, _, train = built("mlp", 21, 8, schedule) -- batches of 8, 8 and 5: 5 pieces on 2 stages
    local batches = train:batches()
    local function one()
      engine:zero_grad()
      engine:execute_schedule(batches)
      engine:step()
    end
    one()
    one()
    local text = refused(one)
    assert.has_match("a batch with samples for 5 of 8 micro%-batches.*do not divide.*data.drop_last = true", text)
    core.scope_unwind(0)
  end)
end)

describe("the schedule of a config", function()
  local function choose(config, pipeline_part, size)
    local plan = assert(parallel.resolve({ pipeline = pipeline_part }, size or 2))
    return schedules.choose(config, plan)
  end

  it("is 1F1B, or interleaved for chunks, and plain without a pipeline", function()
    assert.same({ "1f1b", 1, 4 }, (function(s) return { s.order, s.chunks, s.num_microbatches } end)(
      choose({ num_microbatches = 4 }, 2)))
    assert.same({ "interleaved", 3 }, (function(s) return { s.order, s.chunks } end)(
      choose({ num_microbatches = 4 }, { size = 2, chunks = 3 })))
    assert.equal("NonPipelineSchedule", choose({}, nil).name)
    assert.equal("1f1b", choose({ num_microbatches = 2 }, nil).order)
    local colossal = choose({ schedule = { type = "InterleavedPipelineSchedule", num_microbatches = 4,
      num_model_chunks = 2 } }, 2)
    assert.same({ { 1, 3 }, { 2, 4 } }, colossal:parts(2))
    assert.equal(0, choose({ schedule = { type = "PipelineSchedule", order = "zb-v" }, num_microbatches = 4 }, 2)
      :output_stage(2))
  end)

  it("evaluates any number of micro-batches, in every order", function()
    for _, order in ipairs(registry.pipeline_schedules:names()) do
      for stages = 1, 4 do
        local schedule, seen = pipeline(4 * stages, order), {}
        for m = 1, 4 * stages + 1 do
          local built_order = schedule:order_for(stages, m, true)
          assert.same(schedule:parts(stages), built_order.parts)
          for i, actions in ipairs(built_order.actions) do
            for _, action in ipairs(actions) do
              assert.is_true(action[1] == "forward" or action[2] == "activation")
              local part = action[1] == "forward" and built_order.parts[i][action[3]]
              if part then seen[("%d: %d of %d"):format(m, action[2], part)] = true end
            end
          end
        end
        local count, passes = 0, (4 * stages + 1) * (4 * stages + 2) / 2
        for _ in pairs(seen) do count = count + 1 end
        assert.equal(passes * stages * schedule.chunks, count) -- every micro-batch through every part
      end
    end
  end)

  it("is refused where it cannot be", function()
    local function says(pattern, ...)
      local text, code = refused(choose, ...)
      assert.has_match(pattern, text)
      assert.equal(2, code)
    end
    says("parallel.pipeline = 2 needs num_microbatches.*num_microbatches = 4", {}, 2)
    says("NonPipelineSchedule cannot run a pipeline", { schedule = "NonPipelineSchedule" }, 2)
    says("NonPipelineSchedule has no micro%-batches", { schedule = "NonPipelineSchedule", num_microbatches = 2 }, nil)
    says("chunks is 3, and the schedule has 2", { num_microbatches = 4,
      schedule = { type = "PipelineSchedule", order = "interleaved", chunks = 2 } }, { size = 2, chunks = 3 })
    says("5 micro%-batches do not divide", { num_microbatches = 5,
      schedule = { type = "PipelineSchedule", order = "interleaved" } }, 2)
    local text = refused(choose, { num_microbatches = 4, schedule = { type = "PipelineSchedule", order = "zb-h" } }, 2)
    assert.has_match("did you mean 'zb%-h1'", text)
  end)
end)
