--- A small generator of random numbers with a state of its own, so that a simulation repeats.
--
-- Park and Miller, "Random number generators: good ones are hard to find" (CACM 1988): x becomes 16807 x mod 2^31 - 1.
-- All products are exact in doubles.
-- @module ganymede.cluster.random
local random = {}

local M = 2147483647

--- seed: a whole number from 0. The object is a function: r() is uniform in (0, 1), r(n) a whole number from 1 to n.
function random.new(seed)
  local x = seed * 7919 % (M - 1) + 1
  for _ = 1, 3 do x = x * 16807 % M end -- neighbouring seeds part
  return function(n)
    x = x * 16807 % M
    if n then return math.floor(x / M * n) + 1 end
    return x / M
  end
end

return random
