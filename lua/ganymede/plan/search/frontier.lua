--- The Pareto front of time and memory: settings of which no other is both faster and smaller.
-- @module ganymede.plan.search.frontier
local frontier = {}

--- Returns whether some row is at least as good in time and memory as something of these bounds.
function frontier.dominates(rows, seconds, bytes)
  for _, row in ipairs(rows) do
    if row.seconds <= seconds and row.peak_bytes <= (bytes or 0) then return true end
  end
  return false
end

--- Returns the places of the front in rows, which are sorted by time: each needs less memory than all before it.
function frontier.of(rows)
  local out, least = {}, math.huge
  for i, row in ipairs(rows) do
    if row.peak_bytes < least then out[#out + 1], least = i, row.peak_bytes end
  end
  return out
end

return frontier
