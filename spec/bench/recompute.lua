-- recompute.lua - what recomputation costs and saves: time of a step and the most that its activations take.
--
--     ganymede run spec/bench/recompute.lua --threads 2
--     ganymede run spec/bench/recompute.lua -n 2 --threads 1 --set length=512
--
-- A GPT of `blocks` blocks of `width`, one sequence of `length` tokens a rank, f32. Rounds go through all variants, so
-- that a neighbour slows all of them. Printed by rank 0: median and least milliseconds of a forward and backward pass,
-- their ratio to the pass that keeps everything, floating point operations as such a ratio, and the most that the pool
-- held in it beside parameters and gradients.
local core = require "ganymede.core"
local gm = require "ganymede"
local region = require "ganymede.nn.region"

local config = gm.launch { vocabulary = 1024, width = 256, blocks = 8, length = 256, rounds = 7, parallel = {} }
local variants = {
  { "keep all" }, { "attention", "attention" }, { "block", "block" },
  { "every second block", { "^blocks.%d*[02468]$" } },
  { "blocks, MLPs in them", { "^blocks.%d+$", "mlp$" } },
}

local world = core.world()
local model = gm.models.GPT { vocabulary = config.vocabulary, sequence_length = config.length, width = config.width,
  depth = config.blocks, heads = 4, dropout = 0.1 }
local criterion = gm.nn.CrossEntropyLoss()
local tokens = gm.uniform({ world, config.length + 1 }, { low = 0, high = config.vocabulary - 1, seed = 1 }):to "i64"
if world > 1 then tokens = tokens:redistribute { cuts = { { "data" } } } end
local x = tokens:narrow(2, 1, config.length):contiguous():keep()
local y = tokens:narrow(2, 2, config.length):contiguous():keep()
local everybody, parameters = core.comm_group(), model:parameters()

local function flops() return core.counters().flops end

local function pass()
  core.comm_barrier(everybody)
  core.zero_grad(parameters)
  local began = core.now()
  gm.scope(function() criterion(model(x), y):backward() end)
  return core.now() - began
end

local results = {}
for i in ipairs(variants) do results[i] = { seconds = {} } end
for round = 1, config.rounds do
  for i, variant in ipairs(variants) do
    local result = results[i]
    region.mark(model, variant[2])
    pass()
    local before, counted = core.memory().live, flops()
    core.memory_reset_peak()
    result.seconds[round] = math.min(pass(), pass())
    result.flops, result.peak = (flops() - counted) / 2, core.memory().peak - before
  end
end
if core.rank() == 0 then
  print(("%d ranks, %d blocks of width %d, %d tokens a rank"):format(world, config.blocks, config.width, config.length))
  print "                          ms (least)   ratio   FLOPs   peak MiB"
  for i, variant in ipairs(variants) do
    local r = results[i]
    table.sort(r.seconds)
    r.median = r.seconds[math.ceil(#r.seconds / 2)]
    print(("%-22s %7.1f (%.1f)   %5.2f   %5.2f   %8.1f"):format(variant[1], 1e3 * r.median, 1e3 * r.seconds[1],
      r.median / results[1].median, r.flops / results[1].flops, r.peak / 2 ^ 20))
  end
end
