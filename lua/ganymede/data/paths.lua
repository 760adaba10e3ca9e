--- The files that the option `path` of a dataset names: a path, or a list of paths.
-- @module ganymede.data.paths
local options = require "ganymede.base.options"

--- Returns the list of the paths. name: of the dataset, for errors.
return function(name, given)
  if type(given) ~= "table" then return { given } end
  for i, path in ipairs(given) do
    if type(path) ~= "string" then
      error(("%s: path is a path, or a list of paths; entry %d of it is %s"):format(name, i, options.literal(path)), 0)
    end
  end
  if #given == 0 then error(("%s: path is an empty list"):format(name), 0) end
  return given
end
