-- memory.lua - what each technique of docs/memory.md costs and saves beside plain data parallelism: stages of ZeRO,
-- recomputation, offload to a disk. Time of a step, bytes sent, bytes held and the peak of a step.
--
--     [FOLDER=.] ganymede run spec/bench/memory.lua -n 2 --threads 1
--     [FOLDER=.] ganymede run spec/bench/memory.lua -n 4 --threads 1 --set blocks=8
--
-- A GPT of `blocks` blocks of `width`, one sequence of `length` tokens a rank, f32, AdamW. Stage 3 is run as it comes,
-- and frugal: one gathered parameter at a time, none ahead. Rounds go through all variants, so that a neighbour slows
-- all of them. Printed by rank 0: median and least milliseconds of a step; the ratio of the median to that of plain
-- data parallelism; megabytes sent a step and waited for in milliseconds; megabytes of parameters, gradients and
-- optimizer states (with the ring of offload) between steps, and the most that the pool held in a step.
local core = require "ganymede.core"
local gm = require "ganymede"
local held = require "ganymede.tensor.held"
package.path = "spec/bench/?.lua;" .. package.path
local traffic = require "traffic"

local config = gm.launch { vocabulary = 4096, width = 256, blocks = 6, length = 128, rounds = 7, parallel = {} }
local folder = os.getenv "FOLDER" or "."
local variants = {
  { "plain" }, { "zero 1", zero = 1 }, { "zero 2", zero = 2 }, { "zero 3", zero = { stage = 3 } },
  { "zero 3, frugal", zero = { stage = 3, keep = 0, ahead = 0 } },
  { "recompute attention", recompute = "attention" }, { "recompute block", recompute = "block" },
  { "states on disk", offload = { optimizer = "disk", disk = folder, ring = "least" } },
  { "all on disk, zero 2", zero = 2, offload = { optimizer = "disk", gradients = "disk", parameters = "disk",
    disk = folder, ring = "least" } },
}

local function make(variant)
  local engine = gm.initialize {
    model = gm.models.GPT { vocabulary = config.vocabulary, sequence_length = config.length, width = config.width,
      depth = config.blocks, heads = 4 },
    criterion = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 1e-4 }, zero = variant.zero or 0,
    recompute = variant.recompute, offload = variant.offload,
  }
  return engine:train()
end

local everybody = core.comm_group()
local world = core.world()
local cuts = { cuts = { { "data" } } }
local tokens = gm.uniform({ world, config.length + 1 }, { low = 0, high = config.vocabulary - 1, seed = 1 }):to "i64"
if world > 1 then tokens = tokens:redistribute(cuts) end
local x = tokens:narrow(2, 1, config.length):contiguous():keep()
local y = tokens:narrow(2, 2, config.length):contiguous():keep()

local function step(engine)
  core.comm_barrier(everybody)
  local began = core.now()
  gm.scope(function()
    engine:zero_grad()
    engine:backward(engine:criterion(engine(x), y))
    engine:step()
  end)
  return core.now() - began
end

local function bytes_of(engine)
  local parameters, gradients = 0, 0
  for _, p in ipairs(engine.parameters) do
    parameters, gradients = parameters + held.bytes(p), gradients + held.gradient_bytes(p)
  end
  return parameters, gradients, engine.optimizer:bytes() + (engine.ring_bytes or 0)
end

-- One variant at a time is in memory, so that the peak is its own.
local results = {}
for i in ipairs(variants) do results[i] = { seconds = {}, sent = 0, waited = 0 } end
for round = 1, config.rounds do
  for i, variant in ipairs(variants) do
    local before = core.memory().live
    local result, engine = results[i], make(variant)
    for _ = 1, 2 do step(engine) end -- the second knows what is needed next
    core.comm_reset_traffic()
    core.memory_reset_peak()
    result.seconds[round] = math.min(step(engine), step(engine), step(engine))
    local sent, waited = traffic()
    result.sent, result.waited = sent / 3, result.waited + waited / 3 / config.rounds
    result.peak, result.held = core.memory().peak - before, { bytes_of(engine) }
    if engine.reducer then core.reducer_free(engine.reducer) end
    if engine.tier then engine.tier:close() end
    engine = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
  end
end
if core.rank() == 0 then
  local MB = 2 ^ 20
  print(("%d ranks, %d blocks of width %d, %d tokens a rank"):format(world, config.blocks, config.width, config.length))
  print "                    ms a step (least)   ratio   sent MiB  waited ms   parameters  gradients  states   peak MiB"
  local plain
  for i, variant in ipairs(variants) do
    local r = results[i]
    table.sort(r.seconds)
    local median = r.seconds[math.ceil(#r.seconds / 2)]
    plain = plain or median
    print(("%-20s %7.1f (%.1f)   %6.2f   %7.1f   %7.1f   %9.1f  %9.1f  %7.1f  %8.1f"):format(variant[1], 1e3 * median,
      1e3 * r.seconds[1], median / plain, r.sent / MB, 1e3 * r.waited, r.held[1] / MB, r.held[2] / MB,
      r.held[3] / MB, r.peak / MB))
  end
end
