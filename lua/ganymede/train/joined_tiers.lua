--- Two tiers of a rank as one: on a GPU, those of its tensors and of the optimizer's states (ganymede.train.offload).
--
--     local tier = joined(a, b)      -- of core.tier; one of both may be nil
--
-- The result has the methods that follow a step and tell what rests: end_step, stats, record, recorded, close.
-- @module ganymede.train.joined_tiers

local Joined = {}
Joined.__index = Joined

function Joined:end_step()
  for _, tier in ipairs(self) do tier:end_step() end
end

--- The sum of what both say; `tier` names the slower place.
function Joined:stats()
  local sum = self[1]:stats()
  for key, value in pairs(self[2]:stats()) do
    if key == "tier" then sum.tier = (sum.tier == "disk" or value == "disk") and "disk" or "host"
    else sum[key] = sum[key] + value end
  end
  return sum
end

--- Nothing more comes to rest in them.
function Joined:close()
  for _, tier in ipairs(self) do tier:close() end
end

function Joined:record(on)
  for _, tier in ipairs(self) do tier:record(on) end
end

--- What both recorded, in the order of their ends, and how many were lost.
function Joined:recorded()
  local all, lost = self[1]:recorded()
  local others, more = self[2]:recorded()
  for _, span in ipairs(others) do all[#all + 1] = span end
  table.sort(all, function(a, b) return a.finish < b.finish end)
  return all, lost + more
end

return function(a, b)
  if not a or not b then return a or b end
  return setmetatable({ a, b }, Joined)
end
