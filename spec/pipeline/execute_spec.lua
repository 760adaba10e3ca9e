--- Every registered order, on every number of stages and micro-batches: losses, gradients and updated weights are those
-- of a plain loop on one rank.
-- ranks: 2 3 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local gm = require "ganymede"
local ranks = require "ganymede.job.ranks"
local registry = require "ganymede.base.registry"
local schedules = require "ganymede.schedules"
local train_support = require "spec.train.support"
local training = require "spec.pipeline.training"

local stages, N, STEPS = core.world(), 10, 2

local references = {}

local function reference(name, m)
  local key = name .. m
  references[key] = references[key] or training.serial(name, N, training.sizes(N, m), STEPS)
  return references[key]
end

-- Two steps of a model by this schedule; each must be that of the loop.
local function check(name, schedule, m)
  local wanted, case = reference(name, m), training.models[name]
  local engine = training.engine(name, { parallel = { pipeline = stages }, schedule = schedule })
  for step = 1, STEPS do
    local x, y = case.batch(step, N)
    gm.scope(function()
      engine:zero_grad()
      local output, label, loss = engine:execute_schedule(training.once(x, y))
      assert.near(wanted[step].loss, loss:item(), 1e-12 * math.abs(wanted[step].loss))
      assert.equal(engine.stage:holds_last(), output ~= nil)
      assert.equal(N, (output or label):size(1))
    end)
    local _, largest = training.agree("gradient", wanted[step].gradients, engine, function(p) return p:grad() end)
    assert.is_true(ranks.max { largest }[1] >= 1e-3)
    assert.is_true(engine:step())
    assert.near(wanted[step].loss, engine.last_loss, 1e-12 * math.abs(wanted[step].loss))
    assert.near(wanted[step].norm, engine.grad_norm, 1e-12 * wanted[step].norm)
    training.agree("weight", wanted[step].weights, engine, function(p) return p end)
  end
  return engine
end

-- Does the table of the order say that it cannot have these sizes?
local function refused(order, m)
  local ok = pcall(schedules.pipeline.build, order, { stages = stages, micro_batches = m }, 0)
  return not ok
end

describe("a step through the pipeline", function()
  for _, order in ipairs(registry.pipeline_schedules:names()) do
    it("is that of one rank: " .. order, function()
      train_support.with_dtype("f64", function()
        local done = 0
        for _, m in ipairs { 1, math.max(stages - 1, 2), stages + 1, 2 * stages } do
          local schedule = schedules.PipelineSchedule { num_microbatches = m, order = order }
          if refused(order, m) then
            assert.error_matches(function() check("mlp", schedule, m) end, "micro%-batches")
          else
            check("mlp", schedule, m)
            if m > 1 then check("gpt", schedule, m) end
            done = done + 1
          end
        end
        assert.is_true(done >= 3)
      end)
    end)
  end

  it("is that of one rank: Colossal-AI's name, and chunks of one's own choice", function()
    train_support.with_dtype("f64", function()
      local chunks, m = stages == 2 and 3 or 2, 2 * stages
      local schedule = schedules.InterleavedPipelineSchedule { num_microbatches = m, num_model_chunks = chunks }
      assert.equal(chunks, #check("mlp", schedule, m).stage.parts)
    end)
  end)

  it("is that of one rank: an order of the user's own", function()
    -- All forward passes, then the backward passes of the last micro-batch first, weights at the very end.
    local last_first = { name = "last-first", order = function(count, micro_batches)
      local actions = {}
      for stage = 1, count do
        local list = {}
        for m = 1, micro_batches do list[#list + 1] = { "forward", m, 1 } end
        for m = micro_batches, 1, -1 do list[#list + 1] = { "backward_input", m, 1 } end
        for m = 1, micro_batches do list[#list + 1] = { "backward_weight", m, 1 } end
        actions[stage] = list
      end
      return actions
    end }
    train_support.with_dtype("f64", function()
      local schedule = schedules.PipelineSchedule { num_microbatches = 3, order = last_first }
      local engine = check("gpt", schedule, 3)
      assert.equal(3, core.executor_peak(engine.executor))
    end)
  end)
end)
