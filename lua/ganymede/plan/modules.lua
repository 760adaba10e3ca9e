--- Collects the figures of a rehearsal by module: layouts, bytes held, bytes sent.
--
--     local watch = modules.watch()
--     watch:attach(engine)        -- before the first batch: notes the input and output of each module
--     local rows = watch:rows(engine)         -- after a step; counts what was sent since core.comm_trace(true)
--
-- A row has path, class, parameters (name, shape, local_shape, layout, use, bytes, tied), x and y (the first tensors
-- that go in and come out in the first call: shape, local_shape, layout), parameter_bytes, gradient_bytes,
-- optimizer_bytes, saved_bytes, sent (axes, op, phase, calls, bytes). A tensor that is held for backward counts for the
-- first module that holds it. The path "" is the model itself with the loss and the update, "gradients" what the
-- reducer sends, "pipeline" what crosses to other stages, "float8" the scales of all layers that stay from step to
-- step. In a pipeline saved_bytes is that of one micro-batch, without the loss.
-- The trap: while the watch is attached, it replaces the call of the model's classes; detach restores them.
-- @module ganymede.plan.modules
local core = require "ganymede.core"
local held = require "ganymede.tensor.held"
local json = require "ganymede.base.json"
local parallel = require "ganymede.job.parallel"
local scope = require("ganymede.tensor").scope

local modules = {}

local Watch = {}
Watch.__index = Watch

function modules.watch() return setmetatable({ calls = {}, classes = {}, saved = {} }, Watch) end

-- ---------------------------------------------------------------- layouts as text

local function axes_text(axes)
  if type(axes) == "table" then axes = table.concat(axes, ".") end
  return axes and axes ~= "" and axes or "-"
end

--- Returns the cuts of ndim dimensions as text: "cut (data, -)", or "replicated".
function modules.cuts(cuts, ndim)
  local out, is_cut = {}, false
  for i = 1, ndim do
    out[i] = axes_text(cuts[i])
    is_cut = is_cut or out[i] ~= "-"
  end
  return is_cut and "cut (" .. table.concat(out, ", ") .. ")" or "replicated"
end

--- Returns the layout of a tensor as text: "replicated", "cut (data, -)", "cut (-, row.col) partial depth".
function modules.layout(t)
  local layout = core.layout(t)
  local said = modules.cuts(layout.cuts, #layout.cuts)
  return #layout.partial > 0 and said .. " partial " .. table.concat(layout.partial, ".") or said
end

--- Returns the shape, the shape on this rank, and the layout of a tensor, as plain values.
function modules.placed(t)
  return scope(function()
    return { shape = json.array(t:shape()), local_shape = json.array(t:detach():local_tensor():shape()),
      layout = modules.layout(t) }
  end)
end

-- ---------------------------------------------------------------- watching

local function first_tensor(...)
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    if core.is_tensor(v) then return v end
  end
end

local function note(watch, self, x, ...)
  local y = first_tensor(...)
  watch.calls[self] = { x = x, y = y and modules.placed(y) }
  return ...
end

local function watched(watch, call)
  return function(self, ...)
    if watch.calls[self] then return call(self, ...) end
    local x = first_tensor(...)
    return note(watch, self, x and modules.placed(x), call(self, ...))
  end
end

-- Notes what the tape holds now, by path. Of several backward passes of one part of the model (chunk), the largest is
-- kept.
local function note_saved(watch, chunk)
  local saved, total = {}, 0
  for _, node in ipairs(core.tape_saved(watch.engine.float8 and watch.engine.float8:kept())) do
    saved[node.path] = (saved[node.path] or 0) + node.bytes
    total = total + node.bytes
  end
  local most = watch.saved[chunk]
  if not most or total > most.total then watch.saved[chunk] = { by_path = saved, total = total } end
end

-- Returns what one batch, or one micro-batch, holds in all chunks, by path.
local function saved_by_path(watch)
  local by = {}
  for _, saved in pairs(watch.saved) do
    for path, bytes in pairs(saved.by_path) do by[path] = (by[path] or 0) + bytes end
  end
  return by
end

-- Watches the forward passes of a stage, because the executor takes each tape as soon as a pass has ended.
local function watch_stage(watch, stage)
  local forward = stage.forward
  local function noted(chunk, ...)
    note_saved(watch, chunk)
    return ...
  end
  watch.stage = stage
  function stage.forward(self, chunk, ...) return noted(chunk, forward(self, chunk, ...)) end
end

--- Watches the modules of an engine's model and its backward passes.
function Watch:attach(engine)
  for _, m in ipairs(engine.model:modules()) do
    local class = getmetatable(m)
    if not self.classes[class] then
      self.classes[class] = class.__call
      class.__call = watched(self, class.__call)
    end
  end
  self.engine = engine
  if engine.stage and engine.executor then return watch_stage(self, engine.stage) end
  local backward = engine.backward
  function engine.backward(...)
    note_saved(self, 1)
    return backward(...)
  end
end

--- Restores the functions of classes, engine and stage.
function Watch:detach()
  for class, call in pairs(self.classes) do class.__call = call end
  if self.engine then self.engine.backward = nil end
  if self.stage then self.stage.forward = nil end
  self.classes, self.engine, self.stage = {}, nil, nil
end

-- ---------------------------------------------------------------- accounts

local function sent_by_path()
  local by = {}
  for _, e in ipairs(core.world() > 1 and core.comm_traced() or {}) do
    local list = by[e.path] or {}
    by[e.path] = list
    list[#list + 1] = { axes = json.array(parallel.axis_names(e.group)), op = e.op, phase = e.phase, calls = e.calls,
      bytes = e.bytes }
  end
  return by
end

-- Returns the bytes of optimizer state in memory by the name of the parameter; states are named "kind/parameter".
local function state_by_parameter(optimizer)
  local by = {}
  for _, entry in ipairs(optimizer:held()) do
    local name = entry.name:match "^[^/]*/(.*)$" or entry.name
    if not entry.resting then by[name] = (by[name] or 0) + entry.bytes end
  end
  return by
end

local function parameter_row(p, name, t)
  local row = { name = name, shape = json.array { unpack(p.shape) }, tied = p.tied or nil }
  if t then
    row.local_shape = json.array(scope(function() return t:detach():local_tensor():shape() end))
    row.layout, row.bytes = modules.layout(t), p.tied and 0 or held.bytes(t)
    row.use = p.entry.use and modules.cuts(p.entry.use.cuts, #p.shape) or nil
  end
  return row
end

local function add_parameter(row, p, states)
  local name = p.name:match "[^.]*$"
  local t = p.tied and p.module[name] or p.entry.tensor -- of an absent module, too: another one here is tied to it
  local entry = parameter_row(p, name, t)
  row.parameters[#row.parameters + 1] = entry
  if not t or p.tied then return end
  row.parameter_bytes = row.parameter_bytes + entry.bytes
  row.gradient_bytes = row.gradient_bytes + held.gradient_bytes(t)
  row.optimizer_bytes = row.optimizer_bytes + (states[p.name] or 0)
end

-- Adds the parameters that this rank holds to the rows of their modules.
local function add_parameters(rows, engine)
  local states = state_by_parameter(engine.optimizer)
  for _, p in ipairs(engine.model:declared()) do
    if p.present then add_parameter(rows[p.module], p, states) end
  end
end

local function new_row(path, class)
  return { path = path, class = class, parameters = {}, parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0,
    saved_bytes = 0, sent = {} }
end

local function is_empty(row)
  return #row.parameters == 0 and row.saved_bytes == 0 and #row.sent == 0 and not row.y
end

local said_of = { gradients = "their sums over ranks", pipeline = "what crosses to other stages",
  float8 = "scales of all layers, kept from step to step" }

local function scales_row(scales)
  local row = new_row("float8", said_of.float8)
  row.optimizer_bytes, row.parameters, row.sent = scales:bytes(), json.array {}, json.array {}
  return row
end

--- Returns the rows of the modules, in the order of the model, then the rows that belong to no module.
function Watch:rows(engine)
  local by_module, list, seen, sent, saved = {}, {}, {}, sent_by_path(), saved_by_path(self)
  for i, m in ipairs(engine.model:modules()) do
    local row, call = new_row(m:path(), m.name), self.calls[m] or {}
    row.x, row.y = call.x, call.y
    by_module[m], list[i], seen[row.path] = row, row, row
  end
  add_parameters(by_module, engine)
  for _, path in ipairs { "pipeline", "gradients", unpack(require("ganymede.base.options").sorted_keys(sent)) } do
    if not seen[path] and sent[path] then
      list[#list + 1] = new_row(path, said_of[path] or "no module")
      seen[path] = list[#list]
    end
  end
  local out = {}
  for _, row in ipairs(list) do
    row.saved_bytes, row.sent = saved[row.path] or 0, json.array(sent[row.path] or {})
    row.parameters = json.array(row.parameters)
    if not is_empty(row) then out[#out + 1] = row end
  end
  if engine.float8 then out[#out + 1] = scales_row(engine.float8) end
  return out
end

return modules
