-- Stages that are late: 4 of them, whose passes wait up to a millisecond at random, train as those that never wait do,
-- to the bit, and come to their end; nothing is left over.
-- ranks: 4
--
-- A schedule fixes the order in which each rank computes and adds up gradients, so times must change nothing. Against
-- one rank that does everything, micro-batch after micro-batch, gradients are added in another order: 1e-9 after many
-- steps in f64.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local schedules = require "ganymede.schedules.pipeline"

local P, M, WIDTH, LATE = 4, 4, 3, 0.1 -- stages, micro-batches, numbers that cross, share of passes that wait

-- Seconds to wait before a pass: a generator of its own for each rank (Lehmer's, modulus 2^31 - 1).
local function delays(rank)
  local state = 1000 + 7 * rank
  return function()
    state = state * 16807 % 2147483647
    local share = state / 2147483647
    return share < LATE and share / LATE * 1e-3 or 0
  end
end

local function pause(delay)
  local seconds = delay and delay() or 0
  if seconds > 0 then core.sleep(seconds) end
end

-- x, and its backward pass, late.
local function late(delay)
  return gm.custom {
    splits = true,
    forward = function(x)
      pause(delay)
      return x:clone()
    end,
    backward = function(gradient)
      pause(delay)
      return gradient
    end,
  }
end

local Training = {}
Training.__index = Training

local function weight(part)
  return gm.normal({ WIDTH, WIDTH }, { dtype = "f64", seed = part }):requires_grad(true):keep()
end

local function input(micro_batch) return gm.normal({ 2, WIDTH }, { dtype = "f64", seed = 100 + micro_batch }) end

local function loss_of(y) return y:square():sum() end

local function update(weights)
  gm.no_grad(function()
    for _, w in ipairs(weights) do w:detach():copy_(w:detach() - w:grad() * 1e-3) end
  end)
end

local function training(order, delay)
  local rank = core.rank()
  local schedule = schedules.build(order, { stages = P, micro_batches = M })
  local weights = {}
  for chunk, part in ipairs(schedule.parts[rank + 1]) do weights[chunk] = weight(part) end
  return setmetatable({ schedule = schedule, rank = rank, n_parts = P * schedule.chunks, weights = weights,
                        late = late(delay), losses = 0, executor = core.executor_new {} }, Training)
end

function Training:part(micro_batch, chunk, received)
  local x = received[1] or input(micro_batch)
  local y = gm.ops.linear(self.late(x), self.weights[chunk]):tanh()
  if self.schedule.parts[self.rank + 1][chunk] < self.n_parts then return { y }, "" end
  local loss = loss_of(y)
  self.losses = self.losses + loss:item()
  return {}, "", loss
end

-- One step and a small update.
function Training:step()
  core.zero_grad(self.weights)
  core.executor_run(self.executor, {
    actions = self.schedule.actions[self.rank + 1], parts = self.schedule.parts[self.rank + 1], n_parts = self.n_parts,
    micro_batches = M, chunks = self.schedule.chunks, final = true,
    forward = function(...) return self:part(...) end,
  })
  update(self.weights)
end

-- Loss of all steps and the weights afterwards, of this rank; and what is held beyond the weights.
local function trained(order, steps, delay)
  local self = training(order, delay)
  gm.scope(self.step, self) -- after which everything that stays has been made
  collectgarbage() -- what earlier examples left must not go in between
  local before = gm.memory().live
  for _ = 2, steps do gm.scope(self.step, self) end
  local weights, left = {}, gm.memory().live - before
  for chunk, w in ipairs(self.weights) do
    weights[chunk] = w:totable()
    w:release()
  end
  core.executor_free(self.executor)
  return { loss = self.losses, weights = weights }, left
end

-- The weights of all parts after training on one rank.
local function serial(parts, steps)
  local weights = {}
  for part = 1, parts do weights[part] = weight(part) end
  for _ = 1, steps do
    gm.scope(function()
      core.zero_grad(weights)
      for m = 1, M do
        local x = input(m)
        for part = 1, parts do x = gm.ops.linear(x, weights[part]):tanh() end
        loss_of(x):backward()
      end
      update(weights)
    end)
  end
  return weights
end

describe("late stages", function()
  setup(function() core.set_mesh { { "pipeline", P } } end)

  for _, run in ipairs { { 200, "" }, { 1000, " #slow" } } do
    for _, order in ipairs { "1f1b", "interleaved", "zb-v" } do
      it(("train as punctual ones, %d steps of %s%s"):format(run[1], order, run[2]), function()
        local punctual = trained(order, run[1])
        local other, left = trained(order, run[1], delays(core.rank()))
        assert.same(punctual, other)
        assert.equal(0, left)
      end)
    end
  end

  it("train as one rank does", function()
    local schedule = schedules.build("zb-v", { stages = P, micro_batches = M })
    local late_ones, wanted = trained("zb-v", 50, delays(core.rank())).weights, serial(2 * P, 50)
    for chunk, part in ipairs(schedule.parts[core.rank() + 1]) do
      numeric.agree(late_ones[chunk], wanted[part], 1e-9)
      assert.is_true(numeric.relative_error(wanted[part], weight(part)) > 1e-3) -- they have moved
    end
  end)
end)
