--- Where a model can be cut: its sections, in order of the forward pass.
--
--     function MyModel:sections()
--       local list = { { modules = { self.tokens }, forward = function(x) return self.tokens(x) end } }
--       for i, block in self.blocks:each() do list[i + 1] = { modules = { block }, forward = block } end
--       return list
--     end
--
-- A class with `sections` needs no forward: the module's is its sections one after the other, so that both are one
-- source. A section is { modules = list of the modules it reads, forward = function, close = function or nil, name =
-- string or nil }. The first gets what the model is called with, each other what the one before returned. `close` is
-- applied to what a section returned where a part ends behind it, so that less crosses to the next stage: its results
-- are what the next section must accept as well.
--
-- A module belongs to one section: parts live on several ranks. Only parameters are shared between sections, by
-- Module:tie. The trap: random numbers depend on the path of the module that draws them, so a section draws (drops
-- out) inside its modules and never in its function itself.
-- @module ganymede.nn.sections
local sections = {}

local function run(list, i, last, ...)
  if i > last then return ... end
  return run(list, i + 1, last, list[i].forward(...))
end

--- Sections first to last of a list, called with ... -> their results. is_border: another part goes on from there.
function sections.run(list, first, last, is_border, ...)
  local close = is_border and list[last].close
  if close then return close(run(list, first, last, ...)) end
  return run(list, first, last, ...)
end

local function path_of(m) return m:path() == "" and "the model itself" or m:path() end

--- What a section is called: its name, or the paths of its modules.
function sections.name(list, i)
  local section, paths = list[i], {}
  if section.name then return section.name end
  for k, m in ipairs(section.modules) do paths[k] = path_of(m) end
  return #paths > 0 and table.concat(paths, ", ") or "section " .. i
end

local function problem_of_form(list)
  if type(list) ~= "table" or #list == 0 then return "its `sections` must return a list, not an empty one" end
  for i, section in ipairs(list) do
    if type(section) ~= "table" or type(section.modules) ~= "table" or section.forward == nil then
      return ("its section %d must be a table { modules = list, forward = function }"):format(i)
    end
  end
end

-- owner[module] = its section, for all modules that sections list and those below; or what is wrong.
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

-- What the method could look like, with the model's own children.
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

--- The sections of a model -> list; nil and the reason where it has none, or none that can live apart.
function sections.of(model)
  local list, reason = model:section_list()
  if not list and not getmetatable(model).sections then reason = reason .. example(model) end
  if not list then return nil, reason end
  reason = problem_of_form(list)
  if reason then return nil, reason end
  local owner, shared = owners(list)
  reason = shared or unread(model, owner)
  if reason then return nil, reason end
  return list
end

--- Elements of the parameters that each section reads, tied ones included -> list of numbers.
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
