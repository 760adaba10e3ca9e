--- Pipeline schedules carried out by the executor: a chain of parts cut over stages against the same chain on one tape.
-- ranks: 2 4
--
-- Gradients of a parameter are sums over micro-batches, which come back in another order: 1e-13 of the largest in f64.
local core = require "ganymede.core"
local failure = require "ganymede.failure"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local pipeline = require "ganymede.schedules.pipeline"

local world, rank = core.world(), core.rank()
local WIDTH = 6

local function number(seed, ...) return gm.normal({ ... }, { seed = seed, dtype = "f64" }) end

-- Parts 1 .. n: each a product; the last gives the loss.
local Chain = {}
Chain.__index = Chain

local function chain(n)
  local self = setmetatable({ n = n, weights = {} }, Chain)
  for part = 1, n do
    self.weights[part] = core.keep(core.requires_grad(number(100 + part, WIDTH, WIDTH), true))
  end
  return self
end

function Chain.input(_, micro_batch) return number(micro_batch, 3, WIDTH) end

-- list of (h, skip) or, for the first part, the input -> list or nil, text, loss or nil
function Chain:run(part, list, micro_batch)
  local h, skip = list[1] or self:input(micro_batch), list[2]
  local y = h:matmul(self.weights[part]):tanh()
  if part == self.n then return nil, nil, (y * (skip or y)):sum() end
  return { y, skip or y }, "from part " .. part
end

function Chain:serial(micro_batches)
  local losses = 0
  for m = 1, micro_batches do
    local list, loss = {}, nil
    for part = 1, self.n do
      local _
      list, _, loss = self:run(part, list, m)
    end
    losses = losses + loss:item()
    core.backward(loss)
  end
  return losses
end

function Chain:zero_grad() core.zero_grad(self.weights) end

-- One step of a schedule -> sum of losses (on the rank with the last part)
function Chain:step(executor, schedule, opt)
  opt = opt or {}
  local parts, losses, signatures = schedule.parts[rank + 1], 0, {}
  for m = 1, schedule.micro_batches do signatures[m] = "(3, 6)" end
  core.executor_run(executor, { actions = schedule.actions[rank + 1], parts = parts, n_parts = self.n,
    micro_batches = schedule.micro_batches, signatures = signatures, final = not schedule.forward_only,
    forward_only = schedule.forward_only,
    forward = function(m, chunk, list, text)
      if opt.before then opt.before(m, chunk) end
      assert.equal(parts[chunk] > 1 and "from part " .. parts[chunk] - 1 or "", text)
      local results, words, loss = self:run(parts[chunk], list, m)
      if loss then losses = losses + loss:item() end
      return results, words, loss
    end })
  return losses
end

local function gradients(self)
  local list = {}
  for part, w in ipairs(self.weights) do
    local g = core.grad(w)
    list[part] = g and g:totable()
  end
  return list
end

local schedules = { { "gpipe", 1 }, { "1f1b", 1 }, { "zb-h1", 1 }, { "zb-h2", 1 }, { "zb-v", 2 }, { "interleaved", 2 } }

describe("the executor of pipelines", function()
  local executor
  setup(function() core.set_mesh { { "pipeline", world } } end)
  before_each(function() executor = core.executor_new {} end)
  after_each(function() core.executor_free(executor) end)

  for _, entry in ipairs(schedules) do
    local name, chunks = entry[1], entry[2]
    it("gives with " .. name .. " the gradients of one tape", function()
      gm.scope(function()
        local self = chain(world * chunks)
        for _, micro_batches in ipairs { 1, 8 } do
          local losses = self:serial(micro_batches)
          local want = gradients(self)
          for _ = 1, 2 do -- the second step knows what crosses the borders
            self:zero_grad()
            local schedule = pipeline.build(name, { stages = world, micro_batches = micro_batches, chunks = chunks })
            local got_loss = self:step(executor, schedule)
            local got = gradients(self)
            for chunk, part in ipairs(schedule.parts[rank + 1]) do
              numeric.agree(got[part], want[part], 1e-13)
              if part == self.n then assert.equal(losses, got_loss) end
              assert.is_true(core.executor_peak(executor) <= micro_batches * chunk + micro_batches * chunks)
            end
            for part in ipairs(self.weights) do -- and none of other stages
              local mine = false
              for _, own in ipairs(schedule.parts[rank + 1]) do mine = mine or own == part end
              if not mine then assert.is_nil(got[part]) end
            end
          end
          self:zero_grad()
        end
      end)
    end)
  end
end)
