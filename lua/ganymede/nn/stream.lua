--- How activations lie on the mesh between layers: the stream (batch, sequence, width), or (batch, width).
--
-- Its batch is cut by data (the loader does that) and inside of it by the rows of the tensor mode, its second
-- dimension, where there are three or more, by `sequence` (in Megatron's sequence mode by `tensor` besides), its width
-- by the columns of the tensor mode (`stream` in ganymede.tensor_modes). Embeddings bring ids and patches in (`enter`),
-- layers that a mode cuts take what they are given and move it only where it lies otherwise (`to`).
-- The trap: dimension 2 of what enters is taken for the sequence, as of ids (batch, sequence).
-- @module ganymede.nn.stream
local context = require "ganymede.context"
local core = require "ganymede.core"
local parallel = require "ganymede.parallel"
local registry = require "ganymede.registry"

local stream = {}

local NONE = { rows = "", width = "" }

--- The forms in which the stream may lie in this job's tensor mode, first that of embeddings: list of { rows, width }.
function stream.forms()
  local plan = context.current().plan
  local mode = plan.tensor.size > 1 and registry.tensor_modes:get(plan.tensor.mode)
  local forms = mode and mode.stream or NONE
  return forms[1] and forms or { forms }
end

--- The axes that cut a sequence, "sequence.tensor"; "" where none does.
function stream.sequence_axes()
  local plan = context.current().plan
  local axes = plan.sequence.size > 1 and "sequence" or ""
  if plan.tensor.size == 1 or not plan.tensor.sequence then return axes end
  return axes == "" and "tensor" or axes .. ".tensor"
end

local function is_alone() return core.world() == 1 end

-- Axes of a mode's tensor group that the mesh has, as a set.
local function tensor_axes()
  local set = {}
  for _, name in ipairs(require("ganymede.tensor_modes").axis_names()) do set[name] = true end
  return set
end

local function present(text)
  local list, on_mesh = {}, {}
  for _, axis in ipairs(core.mesh()) do on_mesh[axis.name] = true end
  for _, name in ipairs(parallel.axis_names(text)) do
    if on_mesh[name] then list[#list + 1] = name end
  end
  return list
end

local function ends_with(list, tail)
  local shift = #list - #tail
  if shift < 0 then return false end
  for i, name in ipairs(tail) do
    if list[shift + i] ~= name then return false end
  end
  return true
end

local function without(list, set)
  local out = {}
  for _, name in ipairs(list) do
    if not set[name] then out[#out + 1] = name end
  end
  return out
end

local function append(list, more)
  for _, name in ipairs(more) do list[#list + 1] = name end
  return list
end

-- Does a value of this layout lie in this form? (Of its batch and width: a sequence may be cut or not.)
local function lies(layout, ndim, form)
  local rows, width = present(form.rows), present(form.width)
  local last = layout.cuts[ndim]
  return #layout.partial == 0 and ends_with(layout.cuts[1], rows) and #last == #width and ends_with(last, width)
end

local function as_set(list, more)
  local set = {}
  for _, name in ipairs(append(append({}, list), more)) do set[name] = true end
  return set
end

-- The layout of the form. What data and sequence cut stays; so does a sequence cut by `tensor` unless the form uses it.
local function laid(layout, ndim, form)
  local rows, width, cuts = present(form.rows), present(form.width), {}
  local set, used = tensor_axes(), as_set(rows, width)
  for d = 1, ndim do cuts[d] = without(layout.cuts[d], d > 1 and d < ndim and used or set) end
  append(cuts[1], rows)
  append(cuts[ndim], width)
  return { cuts = cuts }
end

--- x (batch, ..., width) as one of the forms (default: those of the mode), redistributed to the first where it lies in
-- none of them. Collective then, differentiable.
function stream.to(x, forms)
  if is_alone() then return x end
  forms = forms or stream.forms()
  local layout, ndim = core.layout(x), x:dim()
  for _, form in ipairs(forms) do
    if lies(layout, ndim, form) then return x end
  end
  return x:redistribute(laid(layout, ndim, forms[1]))
end

--- What embeddings take: ids (batch, sequence) or patches (batch, sequence, features), as the loader gives them -> cut
-- as the stream is, but for the width. rows and sequence (default: the mode's) say which axes cut the batch, and the
-- sequence. Sends nothing where x is not cut by these axes yet.
function stream.enter(x, rows, sequence)
  if is_alone() then return x end
  local layout, set, cuts = core.layout(x), tensor_axes(), {}
  for d = 1, x:dim() do cuts[d] = layout.cuts[d] end
  cuts[1] = append(without(cuts[1], set), present(rows or stream.forms()[1].rows))
  if x:dim() > 1 then cuts[2] = present(sequence or stream.sequence_axes()) end
  return x:redistribute { cuts = cuts }
end

--- x (batch, sequence, width), laid out in any way or partial, as the stream lies. Collective, differentiable.
function stream.join(x)
  if is_alone() then return x end
  local layout = core.layout(x)
  layout.cuts[2] = x:dim() > 2 and present(stream.sequence_axes()) or layout.cuts[2]
  local to = laid(layout, x:dim(), stream.forms()[1])
  if x:dim() == 2 then to.cuts[2] = present(stream.forms()[1].width) end
  return x:redistribute(to)
end

return stream
