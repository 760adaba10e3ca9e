--- The time of an update of AdamW with states in f32, bf16 and 8 bits, and of Adafactor, beside the time that the bytes
-- alone take.
--
--     MILLIONS=16 build/ganymede run spec/bench/optimizer_states.lua
--
-- The floor: an update reads the gradient, the weight and the states, and writes the last two. The bandwidth is that of
-- an axpy on tensors of the same size, which reads two and writes one. Times are the least of 7.
local core = require "ganymede.core"
local gm = require "ganymede"
local optim = require "ganymede.optim"

local rows = math.floor((tonumber(os.getenv "MILLIONS") or 16) * 2 ^ 20 / 1024)
local n = rows * 1024

local function least(fn)
  local best = math.huge
  for _ = 1, 7 do
    core.synchronize()
    local begin = core.now()
    fn()
    core.synchronize()
    best = math.min(best, core.now() - begin)
  end
  return best
end

local function bandwidth()
  return gm.scope(function()
    local x, y = gm.ones({ rows, 1024 }), gm.ones({ rows, 1024 })
    return 12 * n / least(function() core.run_op(core.device().backend, "axpy", { x }, { y }, { alpha = 0.5 }) end)
  end)
end

local speed = bandwidth()
print(("%d elements, %.1f GB/s by axpy"):format(n, speed / 1e9))

local plain -- seconds with states in f32, which are measured first

local function measure(label, make, state_bytes)
  gm.scope(function()
    local p = gm.normal({ rows, 1024 }):keep():requires_grad(true)
    local g = gm.normal({ rows, 1024 })
    gm.scope(function() (p * g):sum():backward() end)
    local optimizer = make(p)
    optimizer:step()
    local seconds = least(function() optimizer:step() end)
    local floor = (12 + 2 * state_bytes) * n / speed
    plain = plain or seconds
    print(("%-16s %8.2f ms   floor %8.2f ms   %.2f of it   %.1f times f32"):format(label, seconds * 1e3, floor * 1e3,
      seconds / floor, seconds / plain))
  end)
end

for _, kind in ipairs { { "f32", 8 }, { "bf16", 4 }, { "8bit", 2 + 8 / 256 } } do
  measure("AdamW " .. kind[1], function(p) return optim.AdamW({ state_dtype = kind[1] }, { p }) end, kind[2])
end
measure("Adafactor", function(p) return optim.Adafactor({}, { p }) end, 0)
