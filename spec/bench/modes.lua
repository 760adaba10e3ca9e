-- modes.lua - what a step of one fixed layer costs in each mode: time, elements sent, and bytes held by a rank.
--
--     ganymede run spec/bench/modes.lua -n 4 --threads 1 --set "parallel={tensor={size=4,mode='2d'}}"
--     ganymede run spec/bench/modes.lua -n 4 --threads 1 --set "parallel={sequence=4}" --set layer=block
--     ganymede run spec/bench/modes.lua --threads 2                      -- one rank: the same work, nothing sent
--
-- layer "mlp": 512 -> 2048 -> 512 with gelu and biases on 1,024 rows, the peer's sizes (spec/bench/modes.sh has its
-- figures); "block": a causal transformer block of width 512, 8 heads, on 4 x 256 rows. f32, forward and backward with
-- the gradient of the rows. Printed by rank 0: median and least milliseconds of a step, elements sent a rank (mean over
-- ranks, gradients of copied parameters included), bytes of parameters and the largest bytes held by a rank.
local gm = require "ganymede"
local core = require "ganymede.core"
local nn = require "ganymede.nn"
local stream = require "ganymede.nn.stream"
local traffic = require "traffic"

local config = gm.launch { layer = "mlp", width = 512, heads = 8, batch = 4, length = 256, rounds = 15, parallel = {} }

local makers = {
  mlp = function() return nn.MLP { width = config.width, hidden = 4 * config.width } end,
  block = function() return nn.TransformerBlock { width = config.width, heads = config.heads, causal = true } end,
}
local make = makers[config.layer] or error("modes.lua: layer is mlp or block, not " .. tostring(config.layer), 0)
local layer = make():materialize()
local everybody = core.comm_group()

-- (batch, length, width) as the loader and the embedding of a model would lay it out
local function rows(seed)
  local whole = gm.uniform({ config.batch, config.length, config.width }, { low = -1, high = 1, seed = seed })
  local cut = whole:redistribute { cuts = { { "data" } } }
  return stream.join(stream.enter(cut)):detach():keep()
end

local x, slope = rows(1):requires_grad(true), rows(2)
local reducer
if core.world() > 1 then reducer = core.reducer_new(layer:parameters(), {}) end

local function step()
  core.comm_barrier(everybody)
  local began = core.now()
  gm.scope(function()
    core.zero_grad(layer:parameters())
    core.zero_grad { x }
    if reducer then core.reducer_arm(reducer, true) end
    layer(x):backward(slope)
    if reducer then core.reducer_finish(reducer) end
  end)
  return 1e3 * (core.now() - began)
end

for _ = 1, 3 do step() end
core.comm_reset_traffic()
gm.memory_reset_peak()
local times = {}
for i = 1, config.rounds do times[i] = step() end
table.sort(times)

local sent, held = traffic(), 0
for _, p in ipairs(layer:parameters()) do held = held + 4 * p:local_tensor():numel() end
local peak = 0
local told = core.comm_exchange(everybody, ("%.0f %.0f"):format(sent, gm.memory().peak))
sent = 0
for _, text in ipairs(told) do
  local s, p = text:match "(%d+) (%d+)"
  sent, peak = sent + tonumber(s), math.max(peak, tonumber(p))
end
local axes = {}
for i, axis in ipairs(core.mesh()) do axes[i] = axis.name .. " " .. axis.size end
if core.rank() == 0 then
  print(("%-5s %-24s %7.1f ms (least %.1f), %9.0f elements sent a rank, parameters %5.2f MB, peak %6.2f MB"):format(
    config.layer, #axes > 0 and table.concat(axes, " ") or "one rank", times[math.ceil(#times / 2)], times[1],
    sent / core.world() / config.rounds / 4, held / 1e6, peak / 1e6))
end
