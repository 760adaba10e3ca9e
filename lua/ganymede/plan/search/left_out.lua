--- The settings that a search leaves out, counted by reason, in words.
--
--     left_out.add(search, why, s, n)           -- n settings (1); s: one of them for an example, or nil
--     left_out.family(search, why, family)      -- all settings of a family
--     left_out.listed(search.reasons)           -- { why, count, example } of each reason, the most frequent first
--     left_out.reason_of(text)                  -- of the message of a rehearsal that was refused
--     left_out.is_too_large(search, bytes), left_out.too_large(search)
--
-- search: { reasons, memory, facts } of ganymede.plan.search.
-- @module ganymede.plan.search.left_out
local machine = require "ganymede.base.machine"
local setting = require "ganymede.plan.search.setting"
local space = require "ganymede.plan.search.space"

local left_out = {}

--- Counts n settings (1) under a reason.
function left_out.add(search, why, s, n)
  local row = search.reasons[why] or { why = why, count = 0, example = s and setting.words(s, search.facts) }
  search.reasons[why] = row
  row.count = row.count + (n or 1)
end

--- Leaves all settings of a family out; the first is the example.
function left_out.family(search, why, family) left_out.add(search, why, space.first(family), family.count) end

--- Returns the list of reasons, the most frequent first.
function left_out.listed(reasons)
  local out = {}
  for _, row in pairs(reasons) do out[#out + 1] = row end
  table.sort(out, function(a, b) return a.count > b.count or (a.count == b.count and a.why < b.why) end)
  return out
end

--- Returns what a rehearsal refused, without the parts that differ from setting to setting.
function left_out.reason_of(text)
  text = text:match "^[^\n]*":gsub("^as rank %d+: ", ""):gsub("^[%w_./-]+%.lua:?%d*: ", "")
  return "cannot be built: " .. text
end

--- Whether a rank has not so many bytes.
function left_out.is_too_large(search, bytes) return search.memory > 0 and bytes > search.memory end

--- The reason of what a rank has no room for.
function left_out.too_large(search) return ("needs more than %s of a rank"):format(machine.bytes(search.memory)) end

return left_out
