--- What all layers share: checked options, declared parameters, children, a path, and calls that run in a scope.
--
-- A class declares its parameters in `build` (name, shape, initializer). They are allocated later, when the tree is
-- materialised: by the engine, by `m:materialize{}`, or when `m.weight` is first read. The initial numbers depend on
-- (seed, path), so attach a module to its parent before you read its parameters.
-- A call opens a scope. Tensors made inside are released when the call returns, except those that it returns.
-- In a pipeline every rank builds the whole tree. The modules of other stages are absent (ganymede.nn.presence): their
-- parameters are declared and never allocated, and it is an error to read or call them.
-- @module ganymede.nn.module
local core = require "ganymede.core"
local given_options = require "ganymede.nn.given_options"
local options = require "ganymede.base.options"
local blamed = require("ganymede.base.own").blamed
local presence = require "ganymede.nn.presence"
local printed = require "ganymede.nn.printed"
local registry = require "ganymede.base.registry"
local sections = require "ganymede.nn.sections"
local signature = require "ganymede.base.signature"
local undeclared = require "ganymede.nn.undeclared"

local M = {}
local Module = { name = "Module", options = {} }
M.Module = Module

local function is_module(x) return type(x) == "table" and rawget(x, "_module") ~= nil end
M.is_module = is_module

local function shown(value)
  if not core.is_tensor(value) then return options.brief(value) end
  return ("a tensor (%s)"):format(table.concat(value:shape(), ", "))
end

-- With what a module was called, of `count` arguments that begin with a and b, where its code ended in an error of Lua
-- itself, such as "attempt to index local 't' (a nil value)": most often an argument is missing, or is no tensor.
local function said_of_call(err, count, a, b)
  if not err:find "^[^\n]-:%d+: attempt to [^\n]*$" then return "" end
  if count == 0 then return ", which was called with nothing" end
  return (", which was called with %s%s%s"):format(shown(a), count > 1 and ", " .. shown(b) or "",
    count > 2 and ", ..." or "")
end

--- Adds a line "in blocks.3.mlp: MLP { ... }" to an error; each level of the tree adds its own.
local function add_place(err, self, ...)
  if type(err) ~= "string" then return err end
  return ("%s\n  in %s: %s%s"):format(blamed(err), self:path() == "" and "the model" or self:path(),
    self:describe(), said_of_call(err, ...))
end

-- ---------------------------------------------------------------- the tree

local attached = 0 -- the number of attachments so far; what was computed from the tree is valid until it changes

--- Returns make(module), computed once and kept until a module is attached anywhere. `name` identifies the value.
function M.once(m, name, make)
  local cache = m._module.cache
  if not cache or cache.at ~= attached then
    cache = { at = attached }
    m._module.cache = cache
  end
  if cache[name] == nil then cache[name] = make(m) end
  return cache[name]
end

local function attach(parent, key, child)
  local state = child._module
  if state.parent and state.parent ~= parent then
    error(("'%s' is already a part of '%s'; build another one, or tie its parameters"):format(
      tostring(key), state.parent:path()), 3)
  end
  state.parent, state.key = parent, tostring(key)
  local own = parent._module
  if not own.children[state.key] then own.order[#own.order + 1] = { child = state.key } end
  own.children[state.key] = child
  attached = attached + 1
end

--- Attaches child under a key that does not appear in paths and names, as a container of whole trees needs it.
function M.attach_unnamed(parent, key, child)
  attach(parent, key, child)
  child._module.key = ""
end

--- Takes a child out of its module. Its tensors are released when nothing holds them.
function M.detach(parent, key)
  local own = parent._module
  own.children[key]._module.parent = nil
  own.children[key] = nil
  for i, entry in ipairs(own.order) do
    if entry.child == key then
      table.remove(own.order, i)
      break
    end
  end
  attached = attached + 1
end

local function path_of(m)
  local state = m._module
  local up = state.parent and state.parent:path() or ""
  if not state.parent or state.key == "" then return up end
  return up == "" and state.key or up .. "." .. state.key
end

--- Returns the keys that lead from the root of the tree to the module: "blocks.3.mlp"; "" for the root itself.
function Module:path() return M.once(self, "path", path_of) end

--- Returns the list of the module's children, in the order in which they were attached.
function Module:children()
  local out = {}
  for _, entry in ipairs(self._module.order) do
    if entry.child then out[#out + 1] = self._module.children[entry.child] end
  end
  return out
end

--- Returns the list of this module and all modules below it, parents first.
function Module:modules()
  local out = { self }
  for _, child in ipairs(self:children()) do
    for _, m in ipairs(child:modules()) do out[#out + 1] = m end
  end
  return out
end

local function root_of(m)
  while m._module.parent do m = m._module.parent end
  return m
end

local running -- the module whose call is running, the innermost of them; nil: none

-- Whether the tree that m belongs to is being called.
local function is_called(m) return running ~= nil and root_of(m) == root_of(running) end

-- ---------------------------------------------------------------- parameters

-- How a parameter of this layer lies on the mesh: { store = axes of each dimension, use = the same or nil }, or nil.
-- A class says it in its field `placement`: a table with an entry for each parameter, or a function(self) that returns
-- such a table.
local function placement_of(self, name)
  local placement = self.placement
  if type(placement) == "function" then placement = placement(self) end
  return placement and placement[name]
end

--- Declares a parameter. The class's `placement` says how it lies on the mesh; without an entry it is replicated.
-- initializer: a table made by ganymede.nn.initializers. Its function `finish`, if there is one, is called with the
-- new tensor (an embedding sets its padding row to zero there).
function Module:param(name, shape, initializer)
  local own = self._module
  if own.parameters[name] then error(("%s already has a parameter '%s'"):format(self.name, name), 2) end
  undeclared.refuse_parameter(self, name, shape, initializer, 2)
  if is_called(self) then undeclared.refuse_late(("the parameter '%s'"):format(name), 2) end
  local place = placement_of(self, name)
  own.parameters[name] = { name = name, shape = shape, initializer = initializer,
    layout = place and { cuts = place.store }, use = place and place.use and { cuts = place.use } }
  own.order[#own.order + 1] = { parameter = name }
end

--- Adds a tensor that belongs to the module and its checkpoints but has no gradient. The module keeps it.
function Module:buffer(name, tensor)
  local own = self._module
  own.buffers[name] = tensor:keep()
  own.order[#own.order + 1] = { buffer = name }
end

--- Returns parameter `name` in the layout in which the class's placement uses it: redistributed (collective over the
-- axes that differ), or the parameter itself; nil if the layer was built without it.
function Module:use(name)
  local p = self._module.parameters[name]
  if not p then return nil end
  return p.use and self[name]:redistribute(p.use) or self[name]
end

--- Makes parameter `name` the same tensor as parameter `other_name` of module `other`.
function Module:tie(name, other, other_name)
  local mine, theirs = self._module.parameters[name], other._module.parameters[other_name or name]
  if not mine or not theirs then
    error(("%s: tie needs declared parameters; '%s' or '%s' is not declared"):format(self.name, name,
      other_name or name), 2)
  end
  mine.tied = { module = other, name = other_name or name }
  theirs.ties = theirs.ties or {}
  table.insert(theirs.ties, { module = self, entry = mine })
end

-- Calls visit(module, entry, prefix of its names) for every parameter and buffer of m and the modules below, in order.
local function each_entry(m, prefix, visit)
  for _, entry in ipairs(m._module.order) do
    if entry.child then
      local child = m._module.children[entry.child]
      local key = child._module.key
      each_entry(child, key == "" and prefix or prefix .. key .. ".", visit)
    else
      visit(m, entry, prefix)
    end
  end
end

--- Returns the number of elements of a tensor of this shape.
function M.elements(shape)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return n
end

--- Returns the declared parameters of the whole tree: a list of { name, shape, count (elements), initializer, layout,
-- tied = true|nil, present }. layout nil: replicated. present: this rank holds it, for its module or for a tied one.
function Module:declared()
  local out = {}
  each_entry(self, "", function(m, entry, prefix)
    local p = entry.parameter and m._module.parameters[entry.parameter]
    if not p then return end
    out[#out + 1] = { name = p.alias or prefix .. p.name, shape = p.shape, count = M.elements(p.shape),
                      initializer = p.initializer, tied = p.tied and true or nil, layout = p.layout, module = m,
                      entry = p, present = presence.is_held(m, p) }
  end)
  return out
end

--- Returns the number of elements of all parameters of the whole tree. Tied parameters count once.
function Module:count()
  local n = 0
  for _, p in ipairs(self:declared()) do n = n + (p.tied and 0 or p.count) end
  return n
end

-- The declared parameters that this rank holds. Tied parameters are listed once.
local function own_parameters(self)
  local out = {}
  for _, p in ipairs(self:declared()) do
    if p.present and not p.tied then out[#out + 1] = p end
  end
  return out
end

--- Freezes a declared parameter, or lets it be trained again: from now on it has (no) gradient, allocated or not.
function M.freeze(entry, frozen)
  if entry.few and not frozen then error(entry.name .. ": a weight of few bits has no gradient (gm.quantize)", 0) end
  entry.frozen = frozen or nil
  if entry.tensor then entry.tensor:requires_grad(not frozen) end
end

M.made_parameter = nil --- A function(tensor), called with each new parameter; ganymede.train.initialize sets it.

-- Allocates and initialises the parameters that are present and not allocated yet. The random numbers of a parameter
-- depend on its path from the root of the tree.
Module.materialize = signature.declare("module:materialize", "module table, options options?", {
  dtype = { type = "string", optional = true, doc = "the element type of the parameters; default: gm.default_dtype()" },
}, function(self, opt)
  for _, p in ipairs(own_parameters(root_of(self))) do
    if not p.entry.tensor then
      local t = core.parameter(p.name, p.shape, opt.dtype or core.default_dtype(), p.initializer, p.layout)
      if p.initializer.finish then p.initializer.finish(t) end
      if p.entry.sparse and not p.entry.few then core.sparse_gradient(t, true) end
      if p.entry.few then t = p.entry.few:make(t) elseif p.entry.frozen then t:requires_grad(false) end
      p.entry.tensor = t:keep()
      if M.made_parameter then M.made_parameter(t) end
    end
  end
  return self
end)

--- Returns the list of { name, tensor } of the parameters that are present. Tied parameters have their first name only.
function Module:named_parameters()
  self:materialize()
  local out = {}
  for i, p in ipairs(own_parameters(self)) do out[i] = { name = p.name, tensor = p.entry.tensor } end
  return out
end

--- Returns the list of the parameters that are present, as tensors, in the order of declaration.
function Module:parameters()
  local out = {}
  for i, p in ipairs(self:named_parameters()) do out[i] = p.tensor end
  return out
end

--- Returns the list of { name, tensor } of parameters and buffers that are present: what a checkpoint holds of this
-- rank.
-- @param only_buffers whether parameters are left out, so that none is allocated
Module.state = signature.declare("module:state", "module table, only_buffers boolean?", nil, function(self,
    only_buffers)
  local out = only_buffers and {} or self:named_parameters()
  each_entry(self, "", function(m, entry, prefix)
    if not entry.buffer or m._module.absent then return end
    out[#out + 1] = { name = prefix .. entry.buffer, tensor = m._module.buffers[entry.buffer] }
  end)
  return out
end)

--- Calls fn(name, tensor) for every entry of state(), so that fn fills the tensor in place.
function Module:load(fn)
  core.no_grad(1) -- fn writes into parameters
  local ok, why = pcall(function()
    for _, e in ipairs(self:state()) do fn(e.name, e.tensor) end
  end)
  core.no_grad(-1)
  if not ok then error(why, 0) end
end

--- Returns the list of the names of the parameters and buffers of this module itself, in order.
function Module:own_names()
  local out = {}
  for _, entry in ipairs(self._module.order) do out[#out + 1] = entry.parameter or entry.buffer end
  return out
end

-- ---------------------------------------------------------------- presence

--- Sets whether this rank holds the module and all modules below it (ganymede.nn.presence): on = false,
-- where = "stage 1".
Module.set_present = presence.set

function Module:is_present() return not self._module.absent end

-- ---------------------------------------------------------------- modes

local function set_mode(self, on)
  for _, m in ipairs(self:modules()) do m._module.training = on end
  return self
end

--- Sets training mode, in which dropout drops. A new module is in this mode.
function Module:train() return set_mode(self, true) end
--- Sets evaluation mode, in which dropout does nothing.
function Module:eval() return set_mode(self, false) end

-- ---------------------------------------------------------------- calls

local function finish(self, before, outer, count, a, b, ok, ...)
  core.set_path(before)
  running = outer
  if ok then
    core.scope_close(...)
    return ...
  end
  core.scope_close()
  error(add_place((...), self, count, a, b), 0)
end

--- Runs fn(object, ...) as a call of module m: under its path and in a scope of its own. An error says that it comes
-- from m.
function M.call_as(m, fn, object, ...)
  local before, outer, a, b = core.set_path(m:path()), running, ...
  core.scope_open()
  running = m
  return finish(m, before, outer, select("#", ...), a, b, pcall(fn, object, ...))
end

local takes = setmetatable({}, { __mode = "k" }) -- forward -> the number of its arguments

local function most_arguments(forward)
  local most = takes[forward]
  if not most then
    local about = debug.getinfo(forward, "u")
    most = about.isvararg and math.huge or about.nparams - 1
    takes[forward] = most
  end
  return most
end

-- An argument too many that is not nil is an error, because forward would not see it.
local function refuse_surplus(self, most, ...)
  for i = most + 1, select("#", ...) do
    local extra = select(i, ...)
    if extra ~= nil then
      error(("%s is called with %d argument%s; got one more: %s"):format(self:describe(), most, most == 1 and "" or "s",
        options.brief(extra)), 3)
    end
  end
end

local function run_forward(self, ...) return M.call_as(self, self.forward, self, ...) end

local function call(self, ...)
  if self._module.absent then presence.refuse(self) end
  local most = most_arguments(self.forward)
  if select("#", ...) > most then refuse_surplus(self, most, ...) end
  if self._module.recompute then return require("ganymede.nn.region").run_module(self, run_forward, ...) end
  return M.call_as(self, self._module.regions and Module.forward or self.forward, self, ...)
end

--- Returns the list of the sections that the class names (ganymede.nn.sections), made once; or nil and the reason, if
-- the class names none or its forward runs something else.
function Module:section_list()
  local class = getmetatable(self)
  if not class.sections then return nil, ("%s names no sections (a method `sections`)"):format(self.name) end
  if self.forward ~= (class.runs_sections or Module.forward) then -- runs_sections: another forward that does just that
    return nil, ("%s has both sections and a forward of its own, which may do something else"):format(self.name)
  end
  local list = M.once(self, "sections", class.sections)
  if list == nil then return nil, "its method `sections` returned nothing" end
  local problem = sections.problem_of_form(list)
  if problem then return nil, problem end
  list.regions = self._module.regions
  return list
end

--- Runs the sections of the class, one after the other. A class without sections defines its own forward.
function Module:forward(...)
  local list, reason = self:section_list()
  if not list then
    error(("%s has no forward: write %s:forward(x), or sections; %s"):format(self.name, self.name, reason), 2)
  end
  return sections.run(list, 1, #list, false, ...)
end

--- "Linear { inputs = 3, outputs = 2 }"
function Module:describe() return self.name .. options.show(getmetatable(self).options, self.opt) end

-- ---------------------------------------------------------------- classes

-- A field is looked up in the class, then as the mode, then among parameters, buffers and children.
local function index(class)
  return function(self, key)
    local v = class[key]
    if v ~= nil then return v end
    local own = rawget(self, "_module")
    if key == "training" then return own.training end
    local p = own.parameters[key]
    if p then
      local owner, entry = presence.owner_of(self, p)
      if entry.tensor then return entry.tensor end
      if not presence.is_held(owner, entry) then presence.refuse(owner, entry.name) end
      owner:materialize()
      return entry.tensor
    end
    v = own.buffers[key]
    if v ~= nil then return v end
    if own.absent and presence.is_buffer(own, key) then presence.refuse(self, key) end
    return own.children[tostring(key)]
  end
end

-- Tensors and modules are kept outside the table, so that every assignment to their names calls this function.
local function newindex(self, key, value)
  local own = rawget(self, "_module")
  local p = own.parameters[key]
  if p then
    if not core.is_tensor(value) then error(("parameter '%s' of %s must be a tensor"):format(key, self.name), 2) end
    if not presence.is_held(self, p) then presence.refuse(self, key) end
    p.tensor, p.tied = value:keep():requires_grad(not p.frozen), nil
  elseif is_module(value) then
    if is_called(self) and #value:declared() > 0 then undeclared.refuse_late(value:describe(), 2) end
    attach(self, key, value)
  elseif core.is_tensor(value) then
    if own.buffers[key] == nil then own.order[#own.order + 1] = { buffer = key } end
    own.buffers[key] = value:keep()
  else
    rawset(self, key, value)
    local take = self.assigned and self.assigned[key]
    if take then take(self, value) end
  end
end

--- A function(class, options) that returns the class to build in its place on this mesh. ganymede.nn.tensor_parallel
-- sets it.
M.dispatch = nil

local function construct(class, ...)
  if class.build == Module.build then undeclared.refuse_other_build(class, 2) end
  local given = given_options(class, is_module, ...)
  if M.dispatch then class = M.dispatch(class, given) end
  local opt = options.check(class.name, class.options, given, 2)
  local self = setmetatable({
    _module = { parameters = {}, buffers = {}, children = {}, order = {}, training = true },
    opt = opt,
  }, class)
  self:build(opt)
  if running and next(self._module.parameters) then undeclared.refuse_late(self:describe(), 2) end
  undeclared.refuse_lists(self, 2)
  return self
end

function Module:build() end

--- Makes a new class of modules; nn/linear.lua is an example.
-- The class may have these fields: options; positional (the names of options that may be given by position, in
-- PyTorch's order); aliases (another spelling -> option); assigned (plain field -> a function(self, value) that is
-- called when it is first set). The class is registered in registry[where]. The default of where is "layers", whose
-- classes also serve as models; false registers it nowhere.
function M.class(name, base, where)
  base = base or Module
  options.refuse_class("nn.class " .. tostring(name), "modules", base, Module)
  local class = setmetatable({ name = name, options = base.options }, { __index = base, __call = construct })
  class.__index = index(class)
  class.__newindex = newindex
  class.__call = call
  class.__tostring = printed
  if where ~= false then registry[where or "layers"]:register(name, class) end
  return class
end

signature.export("module", Module, ":", { "build", "forward" })
return M
