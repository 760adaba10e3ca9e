--- Refuses datasets of one kind whose labels mean different classes: folders of pictures number the classes that they
-- find, so label 0 can be a cat in one folder and a dog in another.
--
--     refuse_unlike("data.train", train, "data.test", test)      datasets, and what users call them
--
-- Names of different kinds are not compared: FashionMNIST says "sandal" where a folder says "5".
-- @module ganymede.data.class_names
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"

-- The names of the classes of each kind of dataset: { [kind] = names }, the first of a mix. A dataset written in Lua
-- has no kind.
local function names_of(dataset, into)
  local kind = dataset.class_names and dataset.name
  if kind then into[kind] = into[kind] or dataset.class_names end
  for _, part in ipairs(dataset.parts or {}) do names_of(part, into) end
  return into
end

return function(first, dataset, second, other)
  local names, others = names_of(dataset, {}), names_of(other, {})
  for _, kind in ipairs(options.sorted_keys(names)) do
    local a, b = options.literal(names[kind]), options.literal(others[kind])
    if others[kind] and a ~= b then
      failure(2, "%s and %s: a label means another class in each: the classes of %s are %s and %s; %s", first, second,
        kind, a, b, kind == "ImageFolder" and ("give both classes = %s, and a class without pictures an empty folder")
          :format(a) or "give both the same list of values")
    end
  end
end
