--- What a window saves on a CPU: attention and its gradient, without and with windows, in CPU time.
--
--     ./ganymede run spec/bench/windows.lua
--
-- f32, one sample of 4096 positions, 4 heads of 64 numbers, the best of six runs each.
local gm = require "ganymede"
local measure = require "attention_time"

local POSITIONS = 4096

gm.scope(function()
  local x = gm.normal({ 1, POSITIONS, 4, 64 }, { seed = 1 })
  local full = { measure(x, {}) }
  local function show(name, attrs)
    local forward, backward = measure(x, attrs)
    print(("%-14s forward %6.1f ms, %.2f of all pairs   backward %6.1f ms, %.2f"):format(name, 1e3 * forward,
      forward / full[1], 1e3 * backward, backward / full[2]))
  end
  show("causal", { causal = true })
  for _, part in ipairs { 2, 4, 8, 16 } do
    show("window of 1/" .. part, { causal = true, window = POSITIONS / part })
  end
  show("capped", { causal = true, softcap = 30 })
end)
