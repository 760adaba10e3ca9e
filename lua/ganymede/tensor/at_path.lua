--- Runs a function at another path than that of the module in hand: what it draws are other numbers, and its work and
-- memory count for that path.
-- @module ganymede.tensor.at_path
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"

--- Runs fn(...) at `path` and returns its results. The path is what it was before, also after an error.
return function(path, fn, ...)
  local before = core.set_path(path)
  return failure.protect(function() core.set_path(before) end, fn, ...)
end
