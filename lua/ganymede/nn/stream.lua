--- How activations lie on the mesh between layers: the stream (batch, sequence, width), or (batch, width).
--
-- Its batch is cut by data (the loader does that) and inside of it by the rows of the tensor mode, its second
-- dimension, where there are three or more, by `sequence` (in Megatron's sequence mode by `tensor` besides), its width
-- by the columns of the tensor mode. The first form of a mode (`stream` in ganymede.job.tensor_modes) is how embeddings
-- give it and pairs of Linears leave it, the last how it lies inside of a pair. Embeddings bring ids and patches in
-- (`enter`) and what they make of them to the first form (`join`); layers that a mode cuts move what they are given
-- only where it lies otherwise than they need (`to`).
-- The trap: dimension 2 of what enters is taken for the sequence, as of ids (batch, sequence).
-- @module ganymede.nn.stream
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local parallel = require "ganymede.job.parallel"
local registry = require "ganymede.base.registry"
local tensor_modes = require "ganymede.job.tensor_modes"

local stream = {}

-- ---------------------------------------------------------------- what the mesh says, kept until it is another

local now -- { context =, sizes = axis -> size, is_tensor = set of axes, sequence = list, forms = list, is_plain = }

-- Those axes of "row.col" that this mesh has.
local function present(sizes, text)
  local list = {}
  for _, name in ipairs(parallel.axis_names(text)) do
    if sizes[name] then list[#list + 1] = name end
  end
  return list
end

-- A form of a mode as lists of axes, and the axes of both as a set.
local function form_on_mesh(sizes, form)
  local made = { rows = present(sizes, form.rows or ""), width = present(sizes, form.width or ""), uses = {} }
  for _, part in ipairs { made.rows, made.width } do
    for _, name in ipairs(part) do made.uses[name] = true end
  end
  return made
end

local function look_around(live)
  local plan = live.plan
  local mode = plan.tensor.size > 1 and registry.tensor_modes:get(plan.tensor.mode)
  local given = mode and mode.stream or {}
  now = { context = live, sizes = {}, is_tensor = {}, forms = {} }
  for _, axis in ipairs(plan.axes) do now.sizes[axis[1]] = axis[2] end
  for _, name in ipairs(tensor_modes.axis_names()) do now.is_tensor[name] = true end
  for i, form in ipairs(given[1] and given or { given }) do now.forms[i] = form_on_mesh(now.sizes, form) end
  now.sequence = present(now.sizes, mode and plan.tensor.sequence and "sequence.tensor" or "sequence")
  now.is_plain = not mode and #now.sequence == 0
  return now
end

local function here()
  local live = context.current()
  return now and now.context == live and now or look_around(live)
end

-- ---------------------------------------------------------------- layouts

local function ends_with(list, tail)
  local shift = #list - #tail
  if shift < 0 then return false end
  for i, name in ipairs(tail) do
    if list[shift + i] ~= name then return false end
  end
  return true
end

-- The names of list that are not in set, then those of more.
local function joined(list, set, more)
  local out = {}
  for _, name in ipairs(list) do
    if not set[name] then out[#out + 1] = name end
  end
  for _, name in ipairs(more) do out[#out + 1] = name end
  return out
end

-- Does a value of this layout lie in this form? (Of its batch and width: a sequence may be cut or not.)
local function lies(layout, ndim, form)
  local last = layout.cuts[ndim]
  return #layout.partial == 0 and #last == #form.width and ends_with(last, form.width)
    and ends_with(layout.cuts[1], form.rows)
end

-- x laid out as the form says; what data and sequence cut stays cut, and what tensor cuts of a sequence where the form
-- does not need tensor.
local function lay(x, layout, ndim, form, sequence)
  if ndim < 2 then
    error(("activations are (batch, ..., width); got (%s)"):format(table.concat(x:shape(), ", ")), 0)
  end
  local cuts = { joined(layout.cuts[1], here().is_tensor, form.rows) }
  for d = 2, ndim - 1 do cuts[d] = joined(d == 2 and sequence or layout.cuts[d], form.uses, {}) end
  cuts[ndim] = form.width
  return x:redistribute { cuts = cuts }
end

-- ---------------------------------------------------------------- moving

--- x (batch, ..., width) in form number `which` of the mode (nil: in any of them), redistributed, to the first for nil,
-- where it lies otherwise. Collective then, differentiable.
function stream.to(x, which)
  local mesh = here()
  if mesh.is_plain then return x end
  local layout, ndim = core.layout(x), x:dim()
  local wanted = which and (mesh.forms[which] or mesh.forms[1]) -- a mesh without tensor axes has one form
  for _, form in ipairs(mesh.forms) do
    if (not wanted or form == wanted) and lies(layout, ndim, form) then return x end
  end
  return lay(x, layout, ndim, wanted or mesh.forms[1])
end

--- What embeddings take: ids (batch, sequence) or patches (batch, sequence, features), as the loader gives them -> cut
-- as the stream is, but for the width. rows and sequence (default: the mode's) say which axes cut the batch, and the
-- sequence. Sends nothing where x is not cut by these axes yet.
function stream.enter(x, rows, sequence)
  local mesh = here()
  if mesh.is_plain then return x end
  local layout, cuts = core.layout(x), {}
  for d = 1, x:dim() do cuts[d] = layout.cuts[d] end
  cuts[1] = joined(cuts[1], mesh.is_tensor, rows and present(mesh.sizes, rows) or mesh.forms[1].rows)
  if x:dim() > 1 then cuts[2] = sequence and present(mesh.sizes, sequence) or mesh.sequence end
  return x:redistribute { cuts = cuts }
end

--- x (batch, sequence, width), laid out in any way or partial, as the first form of the stream. Collective,
-- differentiable.
function stream.join(x)
  local mesh = here()
  if mesh.is_plain then return x end
  return lay(x, core.layout(x), x:dim(), mesh.forms[1], mesh.sequence)
end

--- x with dimension d (negative: from the end) whole on every rank that shares it. Collective then, differentiable.
function stream.whole(x, d)
  if here().is_plain then return x end
  local cuts = core.layout(x).cuts
  d = d < 0 and #cuts + 1 + d or d
  if not cuts[d] or #cuts[d] == 0 then return x end
  cuts[d] = {}
  return x:redistribute { cuts = cuts }
end

--- Parts that the width of an activation is cut into inside of a pair of Linears.
function stream.parts()
  local mesh, parts = here(), 1
  for _, name in ipairs(mesh.forms[#mesh.forms].width) do parts = parts * mesh.sizes[name] end
  return parts
end

--- The forward of a layer of class `base` that takes x (and a residual, if it is given one) in form `which`: see `to`.
function stream.forward(base, which)
  return function(self, x, residual)
    return base.forward(self, stream.to(x, which), residual and stream.to(residual, which))
  end
end

return stream
