--- Which group of an optimizer's settings a parameter belongs to, by the names of both.
-- @module ganymede.optim.matching
local core = require "ganymede.core"
local module = require "ganymede.nn.module"
local ranks = require "ganymede.job.ranks"

local matching = {}

--- The first group whose pattern matches the name, or nil.
function matching.group(groups, name)
  for _, g in ipairs(groups) do
    if name:find(g.match) then return g end
  end
end

--- The names that a pattern may match. For a module they include the parameters that other stages of a pipeline hold.
function matching.names(given, params)
  local names = {}
  for _, p in ipairs(module.is_module(given) and given:declared() or params) do
    if not p.tied then names[#names + 1] = p.name end
  end
  return names
end

--- Refuses a group whose pattern matches no parameter. If each stage has built its own part, no stage may have a match.
function matching.refuse_idle(owner, groups, names)
  if #groups == 0 then return end
  local used, place = {}, {}
  for i, g in ipairs(groups) do used[i], place[g] = 0, i end
  for _, name in ipairs(names) do
    local g = matching.group(groups, name)
    if g then used[place[g]] = 1 end
  end
  local _, stages = ranks.stage()
  if stages > 1 and core.device().has_data then used = ranks.sum(used) end
  for i, g in ipairs(groups) do
    if used[i] == 0 and (stages == 1 or core.device().has_data) then
      error(("%s: groups[%d] has match = %q, and no parameter is left for it; names look like '%s'"):format(
        owner, i, g.match, names[1] or ""), 0)
    end
  end
end

return matching
