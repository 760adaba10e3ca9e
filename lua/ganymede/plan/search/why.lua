--- Says why a setting is slower than the best: the parts of its step that take most more time, of a mean rank.
-- @module ganymede.plan.search.why
local function parts_of(row)
  local out, sum = { computing = row.busy }, row.busy
  for _, e in ipairs(row.exposed) do
    out["waiting for " .. e.axes] = (out["waiting for " .. e.axes] or 0) + e.mean
    sum = sum + e.mean
  end
  out["other ranks to end"] = math.max(0, row.seconds - sum)
  return out
end

return function(row, best)
  if row.key == best.key then return "takes as long, and is less simple" end
  local own, other, list = parts_of(row), parts_of(best), {}
  for name, seconds in pairs(own) do
    local more = seconds - (other[name] or 0)
    if more > 0.02 * (row.seconds - best.seconds) then list[#list + 1] = { name, more } end
  end
  table.sort(list, function(a, b) return a[2] > b[2] or (a[2] == b[2] and a[1] < b[1]) end)
  local said = {}
  for i = 1, math.min(2, #list) do
    said[i] = ("%s +%.3g ms"):format(list[i][1], 1e3 * list[i][2])
  end
  return table.concat(said, ", ")
end
