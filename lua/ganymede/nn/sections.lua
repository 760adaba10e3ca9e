--- Sections say where a model can be cut. They are listed in the order of the forward pass.
--
--     function MyModel:sections()
--       local list = { { modules = { self.tokens }, forward = function(x) return self.tokens(x) end } }
--       for i, block in self.blocks:each() do list[i + 1] = { modules = { block }, forward = block } end
--       return list
--     end
--
-- A class with `sections` needs no forward: Module:forward runs its sections one after the other, so the two cannot
-- differ. A section is { modules = list of the modules it reads, forward = function, close = function or nil, join =
-- function or nil, name = string or nil }. The first section receives what the model is called with; each other
-- receives what the one before it returned. If a part ends after a section, `close` is applied to the results of that
-- section, so that less crosses to the next stage. The next section must therefore also accept the results of `close`.
-- If sections run again in backward (ganymede.nn.region), the region keeps join(what its first section receives), if
-- there is a `join`; `forward` must give the same bits from that.
--
-- A section runs in a scope of its own, and what it returns is released when the next one has run, if that did not
-- return it, too. What a section leaves for a later one is kept by t:keep(), or in a field of a module.
--
-- A module belongs to one section, because parts live on several ranks. Sections share only parameters, by Module:tie.
-- The trap: random numbers depend on the path of the module that draws them. A section must therefore draw numbers
-- (dropout) inside its modules and never in its own function.
-- @module ganymede.nn.sections
local core = require "ganymede.core"
local region = require "ganymede.nn.region"
local tensor = require "ganymede.tensor"

local sections = {}

local function packed(...) return { n = select("#", ...), ... } end

-- Marks a value, and the tensors in a plain table, such as the outputs of a model.
local function mark(stays, value)
  if value ~= nil then stays[value] = true end
  if type(value) ~= "table" or getmetatable(value) then return end
  for _, entry in pairs(value) do
    if core.is_tensor(entry) then stays[entry] = true end
  end
end

-- Releases the values that the innermost scope holds, but for those that are in one of the other lists.
local function drop(values, ...)
  local stays = {}
  for _, list in ipairs { ... } do
    for i = 1, list.n do mark(stays, list[i]) end
  end
  for i = 1, values.n do
    if core.is_tensor(values[i]) and not stays[values[i]] then core.scope_drop(values[i]) end
  end
end

local function modules_of(list, r)
  local out = {}
  for i = r.first, r.last do
    for _, listed in ipairs(list[i].modules) do
      for _, m in ipairs(listed:modules()) do out[#out + 1] = m end
    end
  end
  return out
end

local function name_of(list, r)
  local first, last = sections.name(list, r.first), sections.name(list, r.last)
  return r.first == r.last and first or ("%s to %s"):format(first, last)
end

local run

-- The sections of r as a region. given: values, which are released before it runs, if what it keeps replaces them.
local function run_region(list, r, given, is_first)
  local join = list[r.first].join
  local values = join and packed(join(unpack(given, 1, given.n))) or given
  if not is_first then drop(given, values) end
  local function forward(...) return run(list, r.inside, r.first, r.last, ...) end
  local name, modules = name_of(list, r), modules_of(list, r)
  local results = packed(region.run_modules(name, modules, forward, unpack(values, 1, values.n)))
  drop(values, given, results)
  return results
end

-- Sections first to last; regions: those among them.
function run(list, regions, first, last, ...)
  local values, i, k = packed(...), first, 1
  local wanted = regions and region.is_wanted()
  while i <= last do
    while wanted and regions[k] and regions[k].first < i do k = k + 1 end
    local r, given = wanted and regions[k], values
    if r and r.first == i then
      values, i = run_region(list, r, given, i == first), r.last + 1
    else
      values, i = packed(tensor.scope(list[i].forward, unpack(given, 1, given.n))), i + 1
    end
    if given ~= values and i > first + 1 then drop(given, values) end
  end
  return unpack(values, 1, values.n)
end

--- Runs the sections `first` to `last` of a list on the given values and returns their results. is_border: another part
-- continues after them. list.regions: those that run again in backward (ganymede.nn.section_regions); none of them
-- crosses `first` or `last`.
function sections.run(list, first, last, is_border, ...)
  local close = is_border and list[last].close
  if close then return close(run(list, list.regions, first, last, ...)) end
  return run(list, list.regions, first, last, ...)
end

local function path_of(m) return m:path() == "" and "the model itself" or m:path() end

--- Returns how messages call section i: by its name, or by the paths of its modules.
function sections.name(list, i)
  local section, paths = list[i], {}
  if section.name then return section.name end
  for k, m in ipairs(section.modules) do paths[k] = path_of(m) end
  return #paths > 0 and table.concat(paths, ", ") or "section " .. i
end

--- Returns what is wrong with the form of what a method `sections` returned; nil: nothing.
function sections.problem_of_form(list)
  if type(list) ~= "table" or #list == 0 then return "its `sections` must return a list, not an empty one" end
  if list.is_sound then return nil end -- looked at before
  for i, section in ipairs(list) do
    if type(section) ~= "table" or type(section.modules) ~= "table" or section.forward == nil then
      return ("its section %d must be a table { modules = list, forward = function }"):format(i)
    end
    for k = 1, table.maxn(section.modules) do
      if section.modules[k] == nil then
        return ("the modules of its section %d have nothing at place %d; put what may be missing last"):format(i, k)
      end
    end
  end
  list.is_sound = true
end

-- Returns owner, in which owner[module] is the number of its section, for all modules that sections list and those
-- below them; or nil and what is wrong.
local function owners(list)
  local owner = {}
  for i, section in ipairs(list) do
    for _, listed in ipairs(section.modules) do
      for _, m in ipairs(listed:modules()) do
        if owner[m] and owner[m] ~= i then
          return nil, ("%s is read by two sections, '%s' and '%s'; give each a module of its own, and tie what "
            .. "they share (Module:tie)"):format(path_of(m), sections.name(list, owner[m]), sections.name(list, i))
        end
        owner[m] = i
      end
    end
  end
  return owner
end

-- A parameter or buffer outside of all sections would live on no stage.
local function unread(model, owner)
  for _, m in ipairs(model:modules()) do
    local held = not owner[m] and m:own_names()[1]
    if held then
      return ("no section reads %s of %s; put it into a module that a section lists"):format(held, path_of(m))
    end
  end
end

-- An example of the method, with the model's own children.
local function example(model)
  local rows = {}
  for _, part in ipairs(model._module.order) do
    local child = part.child and "self." .. part.child
    rows[#rows + 1] = child and ("    { modules = { %s }, forward = %s },"):format(child, child)
  end
  if #rows == 0 then rows[1] = "    { modules = { self.first }, forward = self.first }," end
  return ("; name them in order, in place of `forward` (ganymede.nn.sections):\n  function %s:sections()\n"
    .. "    return {\n  %s\n    }\n  end"):format(model.name, table.concat(rows, "\n  "))
end

--- Returns the list of a model's sections; or nil and the reason, if it has none or they cannot live on different
-- ranks.
function sections.of(model)
  local list, reason = model:section_list()
  if not list and not getmetatable(model).sections then reason = reason .. example(model) end
  if not list then return nil, reason end
  local owner, shared = owners(list)
  reason = shared or unread(model, owner)
  if reason then return nil, reason end
  return list
end

--- Returns, for each section, the number of elements of the parameters that it reads, tied ones included.
function sections.weights(list)
  local weights = {}
  for i, section in ipairs(list) do
    weights[i] = 0
    for _, m in ipairs(section.modules) do
      for _, p in ipairs(m:declared()) do weights[i] = weights[i] + p.count end
    end
  end
  return weights
end

return sections
