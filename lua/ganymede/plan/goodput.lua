--- The useful part of a long run with failures and checkpoints, by a closed formula and by a simulated month.
--
--     local g = goodput { step = 2.5, nodes = 512, mtbf_of_node = 5e6, restart = 600, block = 3, write = 40,
--       steps = 100 }
--     g.interval, g.fraction     of the recipe (its steps between checkpoints): seconds, and the part that is useful
--     g.best                     { interval, fraction } of the interval at which the formula is largest
--     g.young, g.daly            the intervals of Young (1974) and Daly (2006), which count the block as the cost
--     g.month                    { fraction, lost, failures } of a run of 30 days, played failure by failure
--
-- host/plan/month.h has the model and the formula. Times are seconds. Without `steps` the best interval is taken.
-- @module ganymede.plan.goodput
local core = require "ganymede.core"

local MONTH = 30 * 24 * 3600

local function expected(given, mtbf, work)
  return core.run_expected { mtbf = mtbf, work = work, block = given.block, write = given.write,
    restart = given.restart }
end

-- Returns the interval with the largest useful part: golden section in its logarithm, on which the part has one peak.
local function best_of(given, mtbf)
  local low, high = math.log(math.max(given.step, given.write)), math.log(20 * mtbf)
  if high <= low then return math.exp(low) end
  local ratio = (math.sqrt(5) - 1) / 2
  local a, b = high - ratio * (high - low), low + ratio * (high - low)
  local at_a, at_b = expected(given, mtbf, math.exp(a)), expected(given, mtbf, math.exp(b))
  for _ = 1, 100 do
    if at_a >= at_b then
      high, b, at_b = b, a, at_a
      a = high - ratio * (high - low)
      at_a = expected(given, mtbf, math.exp(a))
    else
      low, a, at_a = a, b, at_b
      b = low + ratio * (high - low)
      at_b = expected(given, mtbf, math.exp(b))
    end
  end
  return math.exp((low + high) / 2)
end

-- Daly's third-order estimate; from half the mtbf on, the mtbf itself.
local function daly_of(cost, mtbf)
  if cost >= 2 * mtbf then return mtbf end
  local x = cost / (2 * mtbf)
  return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(x) / 3 + x / 9) - cost
end

--- given: step, nodes, mtbf_of_node, restart, block, write, and steps (between checkpoints), seed (0).
return function(given)
  local mtbf = given.mtbf_of_node / given.nodes
  local best = best_of(given, mtbf)
  local work = given.steps and given.steps * given.step or best
  local month = core.run_month { mtbf = mtbf, work = work, block = given.block, write = given.write,
    restart = given.restart, seconds = MONTH, seed = given.seed or 0 }
  return {
    mtbf = mtbf, interval = work, fraction = expected(given, mtbf, work), block = given.block, write = given.write,
    restart = given.restart, best = { interval = best, fraction = expected(given, mtbf, best) },
    young = math.sqrt(2 * given.block * mtbf), daly = daly_of(given.block, mtbf),
    month = { fraction = month.useful / MONTH, lost = month.lost, failures = month.failures },
  }
end
