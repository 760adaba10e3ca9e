--- What documents in one row save on a CPU: attention and its gradient, causal, of rows of n equal documents, in CPU
-- time, beside one document. The pairs that are seen are 1/n of those of one document, and some at the borders.
--
--     ./ganymede run spec/bench/documents.lua
--
-- f32, one row of 4096 positions, 4 heads of 64 numbers, the best of six runs each.
local gm = require "ganymede"
local measure = require "attention_time"

local POSITIONS = 4096

-- Rows of n equal documents; nil: without limits.
local function limits_of(n)
  if not n then return nil end
  local segments = {}
  for i = 0, POSITIONS - 1 do segments[i + 1] = math.floor(i * n / POSITIONS) end
  return gm.ops.narrow(gm.ops.documents(gm.tensor({ segments }, { dtype = "i64" })), 3, 1, 2)
end

gm.scope(function()
  local x = gm.normal({ 1, POSITIONS, 4, 64 }, { seed = 1 })
  local whole = { measure(x, { causal = true }) }
  local function show(name, n)
    local forward, backward = measure(x, { causal = true }, limits_of(n))
    print(("%-22s forward %6.1f ms, %.3f   backward %6.1f ms, %.3f"):format(name, 1e3 * forward, forward / whole[1],
      1e3 * backward, backward / whole[2]))
  end
  show("without limits")
  for _, n in ipairs { 1, 2, 4, 8, 16, 32, 64 } do show(("%d of %d positions"):format(n, POSITIONS / n), n) end
end)
