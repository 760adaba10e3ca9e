-- attention_bf16.lua - attention of bf16 by two tables of kernels in turns: the one that converts it to f32 and back,
-- and the one that multiplies it as it is (vdpbf16ps); f32 by the first one beside them.
--
--     ganymede run spec/bench/attention_bf16.lua --threads 1 --set rounds=3
--
-- Prints the CPU time of a call, forward and gradient, the least of the rounds of six calls each. On a busy machine
-- believe the ratios only. docs/performance_kernels.md has figures.
local gm = require "ganymede"
local core = require "ganymede.core"
local measure = require "attention_time"

local config = gm.launch { rounds = 3 }

-- batch, length, heads, size, causal
local shapes = {
  { 32, 50, 3, 64, false }, { 4, 64, 12, 64, true }, { 2, 512, 4, 64, false }, { 1, 1024, 12, 64, true },
  { 1, 2048, 4, 128, true }, { 64, 16, 4, 16, false },
}
local ways = { { "f32", "cpu-avx512" }, { "bf16", "cpu-avx512" }, { "bf16", "cpu-avx512bf16" } }

local function compare(b, s, h, d, causal)
  local least = {}
  for _ = 1, config.rounds do
    for i, way in ipairs(ways) do
      local x = gm.normal({ b, s, h, d }, { seed = 1, dtype = way[1] })
      local forward, backward = measure(x, { causal = causal }, nil, way[2])
      local best = least[i] or { math.huge, math.huge }
      least[i] = { math.min(best[1], forward), math.min(best[2], backward) }
    end
  end
  local words = { ("%d x %d x %d x %d%s"):format(b, s, h, d, causal and " causal" or "") }
  for i, way in ipairs(ways) do
    words[#words + 1] = ("%s on %s %.3f, %.3f ms"):format(way[1], way[2], least[i][1] * 1e3, least[i][2] * 1e3)
  end
  words[#words + 1] = ("%.2f, %.2f times as fast"):format(least[2][1] / least[3][1], least[2][2] / least[3][2])
  print(table.concat(words, "   "))
end

for _, way in ipairs(ways) do
  if not core.has_backend(way[2]) then error("this machine, or this build, lacks the table " .. way[2], 0) end
end
for _, shape in ipairs(shapes) do gm.scope(compare, unpack(shape)) end
