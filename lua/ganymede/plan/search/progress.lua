--- Says how far a search is: what it finds at once, and what it does when nothing was said for some seconds.
--
--     local progress = progress_of(tell)         -- tell(text, slow), or nil: nothing is said
--     progress:found "best so far 4.2 s"         -- tell(text, false)
--     progress:beat(fn, ...)                     -- tell(fn(...), true), 5 s after the beginning and then each 10 s
--
-- Whoever gave `tell` chooses by `slow` what to show: a person wants all on a terminal, and in a log only signs of
-- life. Nothing of it reaches the result of a search.
-- @module ganymede.plan.search.progress
local core = require "ganymede.core"

local FIRST, NEXT = 5, 10 -- seconds

local Progress = {}
Progress.__index = Progress

--- Says what was found.
function Progress:found(text)
  if not self.tell then return end
  self.tell(text, false)
  self.due = math.max(self.due, core.now() + FIRST)
end

--- Says what fn(...) returns if it is time for that.
function Progress:beat(fn, ...)
  if not self.tell or core.now() < self.due then return end
  self.tell(fn(...), true)
  self.due = core.now() + NEXT
end

return function(tell) return setmetatable({ tell = tell, due = core.now() + FIRST }, Progress) end
