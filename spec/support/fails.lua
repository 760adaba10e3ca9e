-- fails.lua - a call must fail, and say these words.
local assert = require "luassert"

--- Calls fn(...), which must raise an error whose text contains `words`, as they stand (no pattern).
local function fails(words, fn, ...)
  local ok, why = pcall(fn, ...)
  assert.is_false(ok, "nothing failed; expected: " .. words)
  assert.truthy(tostring(why):find(words, 1, true), tostring(why))
end

return fails
