--- A heap of entries, the least first.
--
--     local h = heap.new(before); h:push(entry); local least = h:pop(); h:first()
--
-- before(a, b): whether a comes out first. #h.list: how many there are.
-- @module ganymede.plan.search.heap
local Heap = {}
Heap.__index = Heap

function Heap:push(entry)
  local list, before = self.list, self.before
  local at = #list + 1
  while at > 1 and before(entry, list[math.floor(at / 2)]) do
    list[at] = list[math.floor(at / 2)]
    at = math.floor(at / 2)
  end
  list[at] = entry
end

--- Takes the least entry out; nil: there is none.
function Heap:pop()
  local list, before = self.list, self.before
  local first, last = list[1], table.remove(list)
  local at, n = 1, #list
  if n == 0 then return first end
  while true do
    local child = 2 * at
    if child > n then break end
    if child < n and before(list[child + 1], list[child]) then child = child + 1 end
    if not before(list[child], last) then break end
    list[at], at = list[child], child
  end
  list[at] = last
  return first
end

function Heap:first() return self.list[1] end

return { new = function(before) return setmetatable({ list = {}, before = before }, Heap) end }
