--- Containers of layers (Sequential, ModuleList, ModelFromConfig), and the two smallest layers, Identity and Lambda.
--
--     nn.Sequential { nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2) }      -- also Sequential(a, b, c)
--     { type = "Sequential", layers = { { type = "Linear", inputs = 4, outputs = 8 }, { type = "ReLU" } } }
--
-- An element is a module, a function of tensors, or a config table, which registry.layers builds. Its position is a
-- part of its parameters' names: "2.weight". Positions may be left out (`list[5] = layer` alone), so that a recipe that
-- builds one stage of a pipeline keeps the names of the whole model.
-- The trap: `#list` and ipairs see no elements in Lua 5.1; use list:size() and `for i, layer in list:each() do`.
-- @module ganymede.nn.containers
local module = require "ganymede.nn.module"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local Identity = module.class "Identity"
Identity.options = {}
--- Returns x.
function Identity:forward(x) return x end -- luacheck: ignore self

local Lambda = module.class "Lambda"
Lambda.positional = { "fn" }
Lambda.options = { fn = { type = "function", doc = "the function that computes the results of the layer" } }
--- Returns fn(x, ...).
function Lambda:forward(...) return self.opt.fn(...) end

local List = module.class("ModuleList")

local spec = {
  layers = { type = "list", optional = true,
    doc = "the list of elements, in order: modules, functions of tensors, or tables { type = NAME, and its options }" },
}

local function as_module(entry, owner, position, level)
  if module.is_module(entry) then return entry end
  if type(entry) == "function" then return Lambda(entry) end
  if type(entry) == "table" and entry.type then return registry.layers:build(entry) end
  error(("%s: element %d must be a module, a function or a table with a type; got %s"):format(
    owner, position, tostring(entry)), level)
end

-- Elements given by position become the option `layers`.
local function takes_elements(class)
  class.options = spec
  local meta = getmetatable(class)
  local construct = meta.__call
  function meta.__call(cls, first, ...)
    if first == nil then return construct(cls, {}) end
    if module.is_module(first) or type(first) == "function" then return construct(cls, { layers = { first, ... } }) end
    if type(first) == "table" and first[1] ~= nil then return construct(cls, { layers = first }, ...) end
    return construct(cls, first, ...)
  end
end

takes_elements(List)

function List:build(opt)
  for i, entry in ipairs(opt.layers or {}) do self[i] = as_module(entry, self.name, i, 4) end
  opt.layers = nil -- from here on the children hold the elements
end

-- Returns { positions in ascending order, elements }.
local function elements_of(self)
  local positions, elements = {}, {}
  for key in pairs(self._module.children) do positions[#positions + 1] = tonumber(key) end
  table.sort(positions)
  for i, position in ipairs(positions) do elements[i] = self._module.children[tostring(position)] end
  return { positions, elements }
end

--- Returns the number of elements.
function List:size() return #module.once(self, "elements", elements_of)[2] end

--- Adds an element after the last one and returns the list.
function List:append(entry)
  local positions = module.once(self, "elements", elements_of)[1]
  local position = (positions[#positions] or 0) + 1
  self[position] = as_module(entry, self.name, position, 3)
  return self
end

--- Returns an iterator over positions and elements, in order: for i, layer in list:each() do.
function List:each()
  local positions, elements = unpack(module.once(self, "elements", elements_of))
  local i = 0
  return function()
    i = i + 1
    return positions[i], elements[i]
  end
end

function List:forward(...) -- luacheck: no unused args
  error(("%s holds layers and cannot be called; call its elements, or use nn.Sequential"):format(self.name), 0)
end

local Sequential = module.class("Sequential", List)
takes_elements(Sequential)
registry.models:register("Sequential", Sequential) -- a whole model, written in a config

--- The first layer receives the arguments; each other layer receives what the layer before it returned.
function Sequential:forward(...)
  local values, n = { ... }, select("#", ...)
  local function keep(...) values, n = { ... }, select("#", ...) end
  for _, layer in self:each() do keep(layer(unpack(values, 1, n))) end
  return unpack(values, 1, n)
end

--- Each element is a section. The elements of a Sequential inside are sections of their own.
function Sequential:sections()
  local list = {}
  for _, layer in self:each() do
    local inner = layer.runs_sections == layer.forward and layer:section_list()
    for _, section in ipairs(inner or { { modules = { layer }, forward = layer } }) do list[#list + 1] = section end
  end
  return list
end

Sequential.runs_sections = Sequential.forward

-- An element of a config's list: a layer, or a whole model.
local function from_config(entry, i)
  local name = type(entry) == "table" and entry.type
  local layers, models = registry.layers, registry.models
  if type(name) == "string" and models:has(name) and not layers:has(name) then return models:build(entry) end
  return as_module(entry, "ModelFromConfig", i, 5)
end

--- A model whose layers a config lists in order. Each layer receives what the one before it returned.
--
--     { type = "ModelFromConfig", layers_cfg = { { type = "Linear", inputs = 4, outputs = 8 }, { type = "ReLU" } } }
--
-- In a subclass: function Mine:build() self.layers_cfg = { { type = ... }, ... } end
local ModelFromConfig = module.class("ModelFromConfig", Sequential, "models")
ModelFromConfig.options = {
  layers_cfg = { type = "list", optional = true,
    doc = "the list of layers, in order: tables { type = NAME, and its options } of layers or models, modules, or "
      .. "functions; a subclass may set self.layers_cfg instead" },
}

function ModelFromConfig:build(opt)
  if not opt.layers_cfg then error("ModelFromConfig: option 'layers_cfg' is missing: a list of layers", 3) end
  self.layers_cfg, opt.layers_cfg = opt.layers_cfg, nil -- from here on the children hold the layers
end

ModelFromConfig.assigned = {
  layers_cfg = function(self, list)
    if type(list) ~= "table" or #list == 0 then
      error(("%s: layers_cfg must be a list of layers; it is %s"):format(self.name, type(list) == "table" and "empty"
        or "a " .. type(list)), 4)
    end
    for i, entry in ipairs(list) do self[i] = from_config(entry, i) end
  end,
}

local function must_have_layers(self)
  if self:size() > 0 then return end
  error(("%s has no layers: set self.layers_cfg = { { type = ... }, ... } in its build"):format(self.name), 0)
end

function ModelFromConfig:forward(...)
  must_have_layers(self)
  return Sequential.forward(self, ...)
end

ModelFromConfig.runs_sections = ModelFromConfig.forward

function ModelFromConfig:sections()
  must_have_layers(self)
  return Sequential.sections(self)
end

signature.export("list", List, ":", { "build", "forward" })
return { Identity = Identity, Lambda = Lambda, ModuleList = List, Sequential = Sequential,
  ModelFromConfig = ModelFromConfig }
