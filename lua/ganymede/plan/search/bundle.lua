--- Children of a node of the tree of settings, of which only the nearest stands in the heap of a search.
--
--     local list = bundle.new(entries, fn)     -- of entries { bound, count, ... }, sorted by `before`
--     local entry = bundle.next(list)          -- the next entry, made anew; nil: there are no more
--     list.count                               -- settings of those that are left
--
-- A family of a large world has a hundred settings, and a share a thousand families, most of which are never looked at.
-- Of each, a bundle keeps four numbers: code, bound, peak and count. fn(code, bound, peak, count) makes the entry when
-- its turn comes; entry.rest is the bundle then. code: a number by which fn knows the child.
-- @module ganymede.plan.search.bundle
local bundle = {}

local FIELDS = 4

--- Returns the bundle of a list of { code, bound, peak, count }, the nearest first.
function bundle.new(list, make)
  local out = { at = 0, count = 0, make = make }
  for i, one in ipairs(list) do
    local first = (i - 1) * FIELDS
    out[first + 1], out[first + 2], out[first + 3], out[first + 4] = one.code, one.bound, one.peak, one.count
    out.count = out.count + one.count
  end
  return out
end

--- Returns the next entry, whose `rest` is the bundle; nil: there are no more.
function bundle.next(list)
  local first = list.at
  if not list[first + 1] then return nil end
  list.at, list.count = first + FIELDS, list.count - list[first + 4]
  local entry = list.make(list[first + 1], list[first + 2], list[first + 3], list[first + 4])
  entry.rest = list
  return entry
end

return bundle
