--- What a program does between training steps that are graphs, and what it reads there: all as if steps ran one by one.
--
-- The truth is the same program with graph = false. Whether steps were replayed is known by the model's forward, which
-- runs in Lua. spec/train/graph_spec.lua has the steps themselves.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local shell = require "spec.support.shell"
local snapshot = require "ganymede.checkpoint.snapshot"
local support = require "spec.train.support"

before_each(require "spec.support.collected")

local WIDTH, CLASSES = 5, 4

local function numbers(n, step) return gm.normal({ n, WIDTH }, { seed = step }) end
local function wanted(n, step) return gm.normal({ n, CLASSES }, { seed = step }) end

-- An engine of a model; engine.ran lists the steps whose forward has run in Lua.
local function engine_of(graph, opt)
  core.set_seed(5)
  local engine = gm.initialize { model = opt.model or support.model { width = WIDTH, classes = CLASSES },
    criterion = opt.criterion or { type = "MSELoss" }, optimizer = opt.optimizer or { type = "AdamW", lr = 0.02 },
    graph = graph, clip_grad_norm = 0.5 }
  engine.ran = {}
  local criterion = engine.criterion
  function engine.criterion(self, ...)
    self.ran[#self.ran + 1] = self.steps_done + 1
    return criterion(self, ...)
  end
  return engine:train()
end

-- Makes n steps. opt.before(engine, step), opt.after(engine, step, outputs, labels), opt.batch(step) -> x, y.
-- Returns the losses.
local function steps(engine, n, opt)
  local losses = {}
  for step = 1, n do
    if opt.before then opt.before(engine, step) end
    gm.scope(function()
      local x, y
      if opt.batch then x, y = opt.batch(step) else x, y = numbers(6, step), wanted(6, step) end
      local outputs, labels = engine:train_step({ { x, y }, samples = 6, tokens = 0, pieces = 1 }, opt.after ~= nil)
      losses[step] = engine.last_loss
      if opt.after then opt.after(engine, step, outputs, labels) end
    end)
  end
  return losses
end

-- Runs fn(graph) both ways, and compares what it returns: results, and the engine. Returns the engine with graphs.
local function same(fn)
  local want = fn(false)
  local got, engine = fn(true)
  assert.same(want, got)
  return engine
end

-- Makes n steps of opt() both ways, and compares losses and weights. ran: the steps that are to run in Lua.
local function same_steps(n, opt, ran)
  local engine = same(function(graph)
    local case = opt()
    local engine = engine_of(graph, case)
    return { steps(engine, n, case), support.numbers(engine.model) }, engine
  end)
  assert.same(ran, engine.ran)
  core.set_seed(1024)
end

local RECORDED = { 1, 2, 3, 4 }

-- A module of this forward(self, x) around a linear layer.
local function around(forward)
  local Around = gm.nn.class("Around", nil, false)
  Around.options = {}
  function Around:build()
    self.inner = gm.nn.Linear { inputs = WIDTH, outputs = CLASSES }
    self.other = gm.nn.Linear { inputs = WIDTH, outputs = CLASSES }
  end
  Around.forward = forward
  return Around {}
end

describe("between steps that are graphs", function()
  it("a value of a batch that is no tensor may change: it is a part of the kind of a step", function()
    same_steps(10, function()
      return {
        model = around(function(self, x) return (self.inner(x.numbers) + self.other(x.numbers)) * x.scale end),
        batch = function(step) return { numbers = numbers(6, step), scale = step == 7 and 3 or 1 }, wanted(6, step) end,
      }
    end, { 1, 2, 3, 4, 7 })
  end)

  it("so may the name under which a batch has a tensor", function()
    same_steps(9, function()
      return {
        model = around(function(self, x)
          if x.left then return self.inner(x.left) + self.other(x.left) end
          return self.inner(x.right) * self.other(x.right)
        end),
        batch = function(step) return { [step == 7 and "right" or "left"] = numbers(6, step) }, wanted(6, step) end,
      }
    end, { 1, 2, 3, 4, 7 })
  end)

  it("outputs and labels that a program keeps stay what they were", function()
    local engine = same(function(graph)
      local kept = {}
      local engine = engine_of(graph, {})
      steps(engine, 8, { after = function(_, step, outputs, labels)
        kept[step] = { outputs[1][1]:keep(), labels[1][1]:keep() }
      end })
      for step, pair in ipairs(kept) do kept[step] = { pair[1]:totable(), pair[2]:totable() } end
      return kept, engine
    end)
    assert.same(RECORDED, engine.ran)
  end)

  it("random numbers are those that a program would draw there", function()
    local function noisy(output, target) return gm.ops.mean(gm.ops.square(gm.ops.dropout(output, 0.5) - target)) end
    local engine = same(function(graph)
      local drawn = {}
      local engine = engine_of(graph, { criterion = noisy })
      steps(engine, 8, { after = function(_, step)
        drawn[step] = gm.ops.dropout(gm.ones { 40 }, 0.5):totable()
      end })
      return drawn, engine
    end)
    assert.same(RECORDED, engine.ran)
    core.set_seed(1024)
  end)

  for _, optimizer in ipairs {
    { type = "AdamW", lr = 0.02 }, { type = "SGD", lr = 0.02 }, { type = "Muon", lr = 0.02 },
  } do
    it("a parameter may be frozen and thawed, and its gradient read: " .. optimizer.type, function()
      same(function(graph)
        local gradients = {}
        local engine = engine_of(graph, { optimizer = optimizer })
        local weight = engine.model:parameters()[1]
        local losses = steps(engine, 14, {
          before = function(_, step)
            if step == 7 then weight:requires_grad(false) end
            if step == 9 then weight:requires_grad(true) end
          end,
          after = function(_, step)
            local g = weight:grad()
            gradients[step] = g and g:totable() or "none"
          end })
        assert.equal("none", gradients[8])
        assert.equal("table", type(gradients[9]))
        return { losses, gradients, support.numbers(engine.model) }
      end)
    end)
  end

  it("gradients that a program has forgotten are there again behind the next step", function()
    local engine = same(function(graph)
      local gradients = {}
      local engine = engine_of(graph, {})
      steps(engine, 9, {
        before = function(_, step)
          if step == 6 or step == 8 then engine:zero_grad() end
        end,
        after = function(_, step) gradients[step] = engine:gradient_norm(2) end })
      return gradients, engine
    end)
    assert.same(RECORDED, engine.ran)
  end)

  it("a step of another kind may leave out parameters, whose later updates count this", function()
    same_steps(12, function()
      return {
        model = around(function(self, x) return x:size(1) == 3 and self.inner(x) or self.inner(x) + self.other(x) end),
        batch = function(step)
          local n = step == 6 and 3 or 6
          return numbers(n, step), wanted(n, step)
        end,
      }
    end, { 1, 2, 3, 4, 6, 7, 8, 9, 10 })
  end)

  it("an optimizer or a loss may be replaced by one that is printed alike", function()
    local function loss(factor)
      local Loss = gm.nn.class("Squares", nil, false)
      Loss.options = {}
      function Loss.count(_, target) return target:numel() end
      function Loss.forward(_, output, target, count)
        return gm.ops.sum(gm.ops.square(output - target)) * (factor / (count or target:numel()))
      end
      return Loss {}
    end
    same_steps(15, function()
      return {
        criterion = loss(1),
        before = function(engine, step)
          if step == 6 then engine.optimizer = gm.optim.AdamW({ lr = 0.02 }, engine.model) end
          if step == 11 then engine.loss_function = loss(9) end
        end,
      }
    end, { 1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14 })
  end)

  it("another seed counts from the next step on", function()
    same_steps(8, function()
      return {
        model = support.model { width = WIDTH, classes = CLASSES, dropout = 0.3 },
        before = function(_, step)
          if step == 6 then core.set_seed(77) end
        end,
      }
    end, { 1, 2, 3, 4, 6, 7, 8 })
  end)

  it("detect_anomaly may be switched on: steps then run one by one", function()
    local texts = {}
    for i, graph in ipairs { false, true } do
      local engine = engine_of(graph, {})
      local ok, err = pcall(steps, engine, 8, {
        before = function(_, step)
          if step == 6 then gm.detect_anomaly(true) end
        end,
        batch = function(step)
          local y = wanted(6, step)
          if step == 8 then y:set(1, 1, math.huge) end
          return numbers(6, step), y
        end })
      gm.detect_anomaly(false)
      assert.is_false(ok)
      texts[i] = failure.text(err)
    end
    assert.matches("anomaly", texts[1])
    assert.equal(texts[1], texts[2])
  end)

  it("a checkpoint may be restored into the run that goes on", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    same(function(graph)
      local engine, train = gm.initialize { model = support.model { width = WIDTH, classes = CLASSES }, graph = graph,
        criterion = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.02 },
        train_dataloader = support.loader { batches = 14, size = 2, width = WIDTH, classes = CLASSES } }
      local bias, path = engine.model:parameters()[2], nil
      local trainer = gm.trainer(engine)
      trainer.sink = function() end
      local hook = {
        before_train_iter = function(_, t) bias:requires_grad(t.step ~= 2) end,
        after_train_iter = function(_, t)
          if t.step == 2 then path = snapshot.save(t, folder .. "/" .. tostring(graph), {}) end
        end }
      trainer:prepare { train_dataloader = train, max_steps = 9, hooks = { hook } }
      trainer:fit()
      snapshot.restore(trainer, path)
      trainer:prepare { train_dataloader = train, max_steps = 9, hooks = {} }
      trainer:fit()
      return { trainer.losses, support.numbers(engine.model) }
    end)
  end)
end)
