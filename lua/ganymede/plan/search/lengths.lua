--- What a step of many pieces takes, reckoned from simulations of three short ones.
--
--     local seconds, least = lengths.reckon({ t1, t2, t3 }, steps)
--
-- Once a pipeline is full, and from the second batch on, each piece adds as much as the one before. t1, t2 and t3 are
-- the seconds of steps with one more unit of pieces each; `steps` such units lie between the third and the whole step.
-- The straight line through the last two is the estimate. How far the line is bent between the three says how far it
-- may be off: a bend that is half as large in each further step moves the end by `steps` times the bend. Beside this, a
-- part of the time counts as unknown, because gathers of ZeRO do not repeat exactly from piece to piece. The trap:
-- `least` is no proof, as bounds are. So what is near to the best is simulated as a whole.
-- @module ganymede.plan.search.lengths
local lengths = {}

local UNKNOWN = 1e-3 -- of the time

--- Returns the seconds of the whole step by the line, and what it takes at least.
function lengths.reckon(seconds, steps)
  local last, before = seconds[3] - seconds[2], seconds[2] - seconds[1]
  local line, bend = seconds[3] + steps * last, math.abs(last - before)
  return line, line - steps * bend - UNKNOWN * line
end

return lengths
