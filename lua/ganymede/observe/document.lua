--- Reads a file of JSON that a run or a sweep has written: returns its table; nil and why there is none.
-- @module ganymede.observe.document
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"

return function(path)
  local text = machine.read(path)
  if not text then return nil, path .. " is not there" end
  local ok, value = failure.try(json.decode, text, path)
  if ok and type(value) == "table" then return value end
  return nil, ok and path .. " holds no table" or failure.text(value)
end
