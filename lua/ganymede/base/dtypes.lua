--- The element types, as kernels/dtypes.def lists them: names in order, floats first.
-- @module ganymede.base.dtypes
local core = require "ganymede.core"

local dtypes = { all = {}, floats = {}, bytes = {}, narrow = {} } -- bytes: of one element; narrow: floats of 16 bits

for i, entry in ipairs(core.dtypes) do
  dtypes.all[i], dtypes.bytes[entry.name] = entry.name, entry.bytes
  dtypes.narrow[entry.name] = entry.kind == "narrow" or nil
  if entry.kind ~= "whole" then dtypes.floats[#dtypes.floats + 1] = entry.name end
end

return dtypes
