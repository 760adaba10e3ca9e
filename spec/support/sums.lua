--- What all p members together send of an all_reduce of so many bytes, for specs. It is written from what docs/ranks.md
-- says, and asks nothing of the code under test.
local sums = {}

--- One round, in which each sends all to all others, where that sends at most 8 KiB a member more than two do.
function sums.sent(p, bytes)
  local two_rounds, one_round = 2 * (p - 1) * bytes, p * (p - 1) * bytes
  return bytes <= 16384 and one_round <= two_rounds + p * 8192 and one_round or two_rounds
end

return sums
