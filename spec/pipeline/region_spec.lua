--- Regions inside of the stages of a pipeline, in every schedule: the same chain of parts on the same stages, with
-- regions and without. Gradients and losses are equal to the bit. Parts draw random numbers, hand a stream on through a
-- region, have a region inside of a region, and read a parameter in a region and after it. The last is not so in orders
-- that split backward passes: there a region adds its terms in the first half and what follows it in the second, which
-- is another order of sums.
-- Whole runs of models are in spec/parallel/recompute_spec.lua.
-- ranks: 2
local core = require "ganymede.core"
local gm = require "ganymede"
local pipeline = require "ganymede.schedules.pipeline"
local ops = gm.ops

local world, rank = core.world(), core.rank()
local WIDTH, ROWS, MICRO_BATCHES = 6, 3, 4

local function number(seed, ...) return gm.normal({ ... }, { seed = seed, dtype = "f64" }) end

local function as_region(in_region, fn, ...)
  if in_region then return gm.recompute(fn, ...) end
  return fn(...)
end

-- Parts of a chain: products, dropouts, and a stream that goes by. Part i has weights i and n + i; shares: it has the
-- first alone.
local function chain(n, shares)
  local self = { n = n, weights = {}, shares = shares, drop = gm.nn.Dropout(0.3), runs = 0 }
  for i = 1, 2 * n do self.weights[i] = core.keep(core.requires_grad(number(100 + i, WIDTH, WIDTH), true)) end
  return self
end

local function run_part(self, part, list, micro_batch, in_region)
  local w, after = self.weights[part], self.weights[self.shares and part or self.n + part]
  local function inner(a) return self.drop(ops.tanh(ops.matmul(a, w))) end
  local function outer(a, stream)
    self.runs = self.runs + 1
    return ops.add(as_region(in_region, inner, a), inner(stream)), stream
  end
  local h, skip = list[1] or number(micro_batch, ROWS, WIDTH), list[2]
  local y, stream = as_region(in_region, outer, h, skip or h)
  y = ops.matmul(y, after)
  if part == self.n then return nil, nil, ops.mul(y, stream):sum() end
  return { y, stream }
end

-- One step of this stage -> losses by micro-batch, gradients of weights, calls of the functions.
local function step(executor, self, schedule, in_region)
  local losses, gradients, signatures = {}, {}, {}
  core.zero_grad(self.weights)
  core.set_seed(7)
  self.runs = 0
  for m = 1, MICRO_BATCHES do signatures[m] = "rows" end
  local parts = schedule.parts[rank + 1]
  core.executor_run(executor, { actions = schedule.actions[rank + 1], parts = parts, n_parts = self.n,
    micro_batches = MICRO_BATCHES, signatures = signatures, final = true,
    forward = function(m, chunk, list)
      core.begin_step()
      core.set_batch(ROWS * (m - 1), ROWS)
      local results, words, loss = run_part(self, parts[chunk], list, m, in_region)
      if loss then losses[m] = loss:item() end
      return results, words, loss
    end })
  for i, w in ipairs(self.weights) do gradients[i] = core.grad(w) and core.grad(w):totable() or false end
  for _, part in ipairs(parts) do assert(gradients[part] and (self.shares or gradients[self.n + part])) end
  return losses, gradients, self.runs
end

describe("regions in stages", function()
  local executor
  setup(function() core.set_mesh { { "pipeline", world } } end)
  before_each(function() executor = core.executor_new {} end)
  after_each(function() core.executor_free(executor) end)

  for _, entry in ipairs { { "gpipe", 1 }, { "1f1b", 1 }, { "interleaved", 2 }, { "zb-h1", 1 }, { "zb-h2", 1 },
                           { "zb-v", 2 } } do
    local name, chunks = entry[1], entry[2]
    it("give the bits of stages without them: " .. name, function()
      gm.scope(function()
        local self = chain(world * chunks, not name:find "^zb")
        local schedule = pipeline.build(name, { stages = world, micro_batches = MICRO_BATCHES, chunks = chunks })
        for _ = 1, 2 do -- the second step knows what crosses the borders
          local losses, gradients, runs = step(executor, self, schedule, false)
          local again, same, more = step(executor, self, schedule, true)
          assert.same(losses, again)
          assert.same(gradients, same)
          assert.same({ MICRO_BATCHES * chunks, 2 * MICRO_BATCHES * chunks }, { runs, more })
        end
      end)
    end)
  end
end)
