--- What documents in one row save on a CPU: attention and its gradient, causal, of rows of n equal documents, in CPU
-- time, beside one document. The pairs that are seen are 1/n of those of one document, and some at the borders.
--
--     ./ganymede run spec/bench/documents.lua
--
-- f32, one row of 4096 positions, 4 heads of 64 numbers, the best of six runs each.
local core = require "ganymede.core"
local gm = require "ganymede"

local POSITIONS = 4096

local function best(fn)
  local least = math.huge
  for _ = 1, 6 do
    local start = os.clock()
    fn()
    least = math.min(least, os.clock() - start)
  end
  return least
end

-- Rows of n equal documents; nil: without limits.
local function limits_of(n)
  if not n then return nil end
  local segments = {}
  for i = 0, POSITIONS - 1 do segments[i + 1] = math.floor(i * n / POSITIONS) end
  return gm.ops.narrow(gm.ops.documents(gm.tensor({ segments }, { dtype = "i64" })), 3, 1, 2)
end

local function measure(x, limits)
  local attrs, saved = { causal = true }, nil
  local forward = best(function()
    saved = core.run_op("cpu", "attention", { x, x, x, nil, limits, n = 5 }, { true, true, n = 2 }, attrs)
  end)
  local backward = best(function()
    core.run_op("cpu", "attention_grad", { x, x, x, nil, saved[1], saved[2], x, limits, n = 8 },
      { true, true, true, n = 3 }, attrs)
  end)
  return forward, backward
end

gm.scope(function()
  local x = gm.normal({ 1, POSITIONS, 4, 64 }, { seed = 1 })
  local whole = { measure(x) }
  local function show(name, n)
    local forward, backward = measure(x, limits_of(n))
    print(("%-22s forward %6.1f ms, %.3f   backward %6.1f ms, %.3f"):format(name, 1e3 * forward, forward / whole[1],
      1e3 * backward, backward / whole[2]))
  end
  show("without limits")
  for _, n in ipairs { 1, 2, 4, 8, 16, 32, 64 } do show(("%d of %d positions"):format(n, POSITIONS / n), n) end
end)
