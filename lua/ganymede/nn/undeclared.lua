--- What a user's class of modules leaves undeclared, so that it would compute and never be trained: parts that are made
-- by a method that nothing calls or by forward, modules in a plain list, parameters without an initializer.
-- @module ganymede.nn.undeclared
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local own = require "ganymede.base.own"

local undeclared = {}

-- What other languages and libraries call the method that we call build.
local other_builds = { "init", "_init", "__init", "__init__", "constructor" }

--- Refuses a class without a `build` whose parts are made where nobody looks: it would be built with none of them.
function undeclared.refuse_other_build(class, level)
  for _, name in ipairs(other_builds) do
    if rawget(class, name) then
      error(("%s has a method '%s', which nothing calls: name it 'build'; %s:build(options) makes the parts")
        :format(class.name, name, class.name), level + 1)
    end
  end
end

-- Is this a module that is part of no other one?
local function is_loose(value)
  local record = type(value) == "table" and rawget(value, "_module")
  return record and not record.parent
end

--- Refuses a module in whose fields plain lists hold modules: nobody would find their parameters.
function undeclared.refuse_lists(self, level)
  if own.has(self.build) then return end
  for key, list in pairs(self) do
    if type(list) == "table" and key ~= "opt" and key ~= "_module" and not getmetatable(list) then
      for place, value in pairs(list) do
        if is_loose(value) then
          error(("%s: the field '%s' holds %s in a plain table, where its parameters are not found: write "
            .. "self.%s = gm.nn.ModuleList { ... }, or give each module a field of its own"):format(self.name,
            tostring(key), value.name .. (type(place) == "number" and (" at %d"):format(place) or ""), tostring(key)),
            level + 1)
        end
      end
    end
  end
end

--- Refuses what a forward makes, by its words: the parameters of a model are read and given to an optimizer before.
function undeclared.refuse_late(what, level)
  error(("%s is made while forward runs: nobody would train it, because an optimizer has the parameters that there are "
    .. "before the first call. Make it in build, from sizes that are options of the class"):format(what), level + 1)
end

--- Refuses what is no shape or no initializer of a parameter.
function undeclared.refuse_parameter(self, name, shape, initializer, level)
  if type(shape) ~= "table" then
    error(("%s: parameter '%s' needs a shape, a list of sizes; got %s%s"):format(self.name, name,
      shape == nil and "nothing" or options.brief(shape), core.is_tensor(shape)
      and "; the numbers of a tensor come in by an assignment, self." .. name .. " = t, after self:param" or ""),
      level + 1)
  end
  if type(initializer) ~= "table" then
    error(("%s: parameter '%s' needs an initializer, such as gm.nn.init.normal { std = 0.02 }; got %s"):format(
      self.name, name, initializer == nil and "nothing" or options.brief(initializer)), level + 1)
  end
end

return undeclared
