-- sequence.lua - what attention over a sequence costs when ranks share it: time, and elements sent.
--
--     ganymede run spec/bench/sequence.lua -n 4 --threads 1 --set attention=ring --set length=4096
--     ganymede run spec/bench/sequence.lua -n 4 --threads 1 --set attention=ring --set balance=false
--     ganymede run spec/bench/sequence.lua -n 2 --threads 1 --set attention=ulysses --set causal=false
--     ganymede run spec/bench/sequence.lua --threads 2                     # one rank: the same work, nothing sent
--
-- One sample, 8 heads of 64, f32, from the packed projection (b, s, h, 3, d) to the result and back. Printed by rank 0:
-- median and least seconds of a step, elements sent a rank (the mean over ranks; in brackets of the stream, s h d of
-- them), the largest and the mean work of a rank in multiplications and additions, and the time in which rank 0 did
-- nothing but wait or move data. Causal and contiguous the last rank has 2 - 1/p times the mean work; where there are
-- more ranks than cores that costs nothing.
local gm = require "ganymede"
local core = require "ganymede.core"
local traffic = require "traffic"
local sequence_parallel = require "ganymede.nn.sequence_parallel"

local world = core.world()
local config = gm.launch { attention = "ring", balance = "auto", causal = true, length = 1024, heads = 8, size = 64,
  steps = 9, parallel = { sequence = { size = world } } }

local mode = sequence_parallel.modes[config.attention]
if not mode then error("sequence.lua: attention is ring or ulysses, not " .. tostring(config.attention), 0) end
local attention = world > 1 and mode.packed or sequence_parallel.attention_packed
local options = { causal = config.causal }
if config.balance ~= "auto" then options.balance = config.balance end

local s, h, d = config.length, config.heads, config.size
local cut = { cuts = { {}, { "sequence" } } }
local function make(...)
  local t = gm.normal({ ... }, { seed = s }):redistribute(cut):detach()
  return t:keep()
end

local qkv, slope = make(1, s, h, 3, d), make(1, s, h, d)
qkv:requires_grad(true)
local everybody = core.comm_group()

local function step()
  core.comm_barrier(everybody)
  local began = core.now()
  gm.scope(function()
    core.zero_grad { qkv }
    attention(qkv, options):backward(slope)
  end)
  return core.now() - began
end

local function flops()
  local by_op = core.counters().by_op
  return by_op.attention.flops + by_op.attention_grad.flops
end

-- Sum and largest over all ranks.
local function of_all(number)
  local sum, most = 0, 0
  for _, text in ipairs(core.comm_exchange(everybody, ("%.17g"):format(number))) do
    sum, most = sum + tonumber(text), math.max(most, tonumber(text))
  end
  return sum, most
end

for _ = 1, 2 do step() end
core.comm_reset_traffic()
local before, seconds = flops(), {}
for i = 1, config.steps do seconds[i] = step() end
table.sort(seconds)
local bytes, exposed = traffic()
local elements = of_all(bytes) / world / config.steps / 4
local work, most = of_all((flops() - before) / config.steps)
if core.rank() == 0 then
  local format = "%-7s on %d, s %5d: %7.1f ms a step (least %.1f), %8.0f elements sent a rank (%.3f), work %.3g, "
    .. "at most %.3g, %.1f ms waiting or moving"
  print(format:format(config.attention, world, s, 1e3 * seconds[math.ceil(#seconds / 2)], 1e3 * seconds[1], elements,
    elements / (s * h * d), work / world, most, 1e3 * exposed / config.steps))
end
