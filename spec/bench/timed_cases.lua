-- timed_cases.lua - times cases on demand: dofile(GANYMEDE_ROOT .. "/spec/bench/timed_cases.lua")(cases), where cases
-- is a table of functions by name. beside.py asks.
--
-- Reads two lines of standard input for each answer, a name and how often it is called; prints the least seconds of one
-- call. A name that begins with "grad " runs with gradients, all others without.
local gm = require "ganymede"
local core = require "ganymede.core"

local function seconds(case, repeats)
  local best = math.huge
  for _ = 1, repeats do
    gm.scope(function()
      local from = core.now()
      case()
      best = math.min(best, core.now() - from)
    end)
  end
  return best
end

return function(cases)
  for name in io.lines() do
    local case, repeats = cases[name], tonumber(io.read())
    if not case then error("there is no case " .. name, 0) end
    local run = name:match "^grad " and gm.enable_grad or gm.no_grad
    print(("%.9f"):format(run(seconds, case, repeats)))
    io.stdout:flush()
  end
end
