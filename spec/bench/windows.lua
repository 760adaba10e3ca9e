--- What a window saves on a CPU: attention and its gradient, without and with windows, in CPU time.
--
--     ./ganymede run spec/bench/windows.lua
--
-- f32, one sample of 4096 positions, 4 heads of 64 numbers, the best of four runs each.
local core = require "ganymede.core"
local gm = require "ganymede"

local POSITIONS = 4096

local function best(fn)
  local least = math.huge
  for _ = 1, 4 do
    local start = os.clock()
    fn()
    least = math.min(least, os.clock() - start)
  end
  return least
end

local function measure(x, attrs)
  local inputs, saved = { x, x, x, nil, n = 5 }, nil
  local forward = best(function()
    saved = core.run_op("cpu", "attention", inputs, { true, true, n = 2 }, attrs)
  end)
  local backward = best(function()
    core.run_op("cpu", "attention_grad", { x, x, x, nil, saved[1], saved[2], x, n = 8 }, { true, true, true, n = 3 },
      attrs)
  end)
  return forward, backward
end

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
