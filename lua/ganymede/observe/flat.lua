--- Makes of a table of settings one of its numbers, booleans and strings by their paths: { ["optimizer.lr"] = 1e-3 }.
-- @module ganymede.observe.flat
local options = require "ganymede.base.options"

local function add(settings, prefix, out)
  for _, key in ipairs(options.sorted_keys(settings)) do
    local value, path = settings[key], prefix .. tostring(key)
    if type(value) == "table" and getmetatable(value) == nil then
      add(value, path .. ".", out)
    elseif type(value) == "number" or type(value) == "boolean" or type(value) == "string" then
      out[path] = value
    end
  end
  return out
end

return function(settings) return add(settings, "", {}) end
