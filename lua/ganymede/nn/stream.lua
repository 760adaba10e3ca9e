--- How activations lie on the mesh between layers. The stream is (batch, sequence, width) or (batch, width).
--
-- The axis data cuts the batch (the loader does that), and inside of it the rows of the tensor mode do. If there are
-- three dimensions or more, `sequence` cuts the second one (in Megatron's sequence mode `tensor` does, too). The
-- columns of the tensor mode cut the width. A mode may have several forms of the stream (`stream` in
-- ganymede.job.tensor_modes). The first is what embeddings and pairs of Linears return; the last is the one inside a
-- pair. Embeddings lay out ids and patches (`enter`) and bring their results to the first form (`join`). Layers that a
-- mode cuts move their input (`to`) only if it does not lie as they need it.
-- Images enter by `space`: of (batch, channels, ...) these axes cut dimension 3, and layers of images keep it so. In 2D
-- channels are their width, which layers ask for by `channels`.
-- The trap: dimension 2 of what enters is taken for the sequence, as in ids (batch, sequence).
-- @module ganymede.nn.stream
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local parallel = require "ganymede.job.parallel"
local registry = require "ganymede.base.registry"
local tensor_modes = require "ganymede.job.tensor_modes"

local CHANNELS = 2 -- the dimension of images that is their width

local stream = {}

-- ---------------------------------------------------------------- facts about the mesh, kept until it changes

local now -- { context =, sizes = axis -> size, is_tensor = set of axes, sequence = list, forms = list, is_plain = }

-- Returns those axes of a text such as "row.col" that this mesh has.
local function present(sizes, text)
  local list = {}
  for _, name in ipairs(parallel.axis_names(text)) do
    if sizes[name] then list[#list + 1] = name end
  end
  return list
end

-- Returns a form of a mode as lists of axes, and the axes of both lists as a set.
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

-- Returns the names of list that are not in set, then those of more.
local function joined(list, set, more)
  local out = {}
  for _, name in ipairs(list) do
    if not set[name] then out[#out + 1] = name end
  end
  for _, name in ipairs(more) do out[#out + 1] = name end
  return out
end

-- Whether dimension d of x lies in the blocks that its size gives. A reshape may have left cuts between units of
-- several elements, and blocks of other sizes.
local function is_even(x, d, axes)
  local n = x:size(d)
  for _, name in ipairs(axes) do n = math.ceil(n / here().sizes[name]) end
  return x:local_tensor():size(d) == n
end

-- Whether x of this layout lies in this form, its width in dimension d. Only batch and width matter: what is between
-- may be cut or not.
local function lies(x, layout, d, form)
  local width = layout.cuts[d]
  return #layout.partial == 0 and #width == #form.width and ends_with(width, form.width)
    and ends_with(layout.cuts[1], form.rows) and is_even(x, d, width)
end

-- Returns x with these cuts. Rows stay cut between the units that a reshape has left, such as the windows of a sample;
-- the width, dimension d, lies in even blocks.
local function placed(x, layout, cuts, d)
  local units = layout.units
  if units then units[d] = 0 end
  return x:redistribute { cuts = cuts, units = units }
end

-- Returns x in the layout of the form. The cuts by data and sequence stay, and a cut of the sequence by tensor stays if
-- the form does not use tensor.
local function lay(x, layout, ndim, form, sequence)
  if ndim < 2 then
    error(("activations are (batch, ..., width); got (%s)"):format(table.concat(x:shape(), ", ")), 0)
  end
  local cuts = { joined(layout.cuts[1], here().is_tensor, form.rows) }
  for d = 2, ndim - 1 do cuts[d] = joined(d == 2 and sequence or layout.cuts[d], form.uses, {}) end
  cuts[ndim] = form.width
  return placed(x, layout, cuts, ndim)
end

-- ---------------------------------------------------------------- moving

--- Returns x (batch, ..., width) in form number `which` of the mode. It is redistributed if it lies otherwise; the call
-- is then collective. which = nil accepts any form and redistributes to the first. Differentiable.
function stream.to(x, which)
  local mesh = here()
  if mesh.is_plain then return x end
  local layout, ndim = core.layout(x), x:dim()
  local wanted = which and (mesh.forms[which] or mesh.forms[1]) -- a mesh without tensor axes has one form
  for _, form in ipairs(mesh.forms) do
    if (not wanted or form == wanted) and lies(x, layout, ndim, form) then return x end
  end
  return lay(x, layout, ndim, wanted or mesh.forms[1])
end

--- Lays out the input of an embedding: x is ids (batch, sequence) or patches (batch, sequence, features) from the
-- loader. The result is cut like the stream, except for the width. rows and sequence (default: those of the mode) name
-- the axes that cut the batch and the sequence. Nothing is sent if these axes do not cut x yet.
function stream.enter(x, rows, sequence)
  local mesh = here()
  if mesh.is_plain then return x end
  local layout, cuts = core.layout(x), {}
  for d = 1, x:dim() do cuts[d] = layout.cuts[d] end
  cuts[1] = joined(cuts[1], mesh.is_tensor, rows and present(mesh.sizes, rows) or mesh.forms[1].rows)
  if x:dim() > 1 then cuts[2] = sequence and present(mesh.sizes, sequence) or mesh.sequence end
  return x:redistribute { cuts = cuts }
end

--- Lays out images x (batch, channels, space...) from the loader: their first dimension of space is cut by the axes
-- that cut sequences. Convolutions, pooling, norms and interpolation take them so. Nothing is sent.
function stream.space(x)
  local mesh = here()
  if #mesh.sequence == 0 then return x end
  if x:dim() < 3 then
    error(("images are (batch, channels, ...); got (%s)"):format(table.concat(x:shape(), ", ")), 0)
  end
  local cuts = core.layout(x).cuts
  for d = 1, x:dim() do cuts[d] = cuts[d] or {} end
  cuts[3] = mesh.sequence
  return x:redistribute { cuts = cuts }
end

--- Returns images x (batch, channels, space...) in the first form of the mode, where channels are the width: its rows
-- cut the samples. Cuts of space stay. The call is collective where x lies otherwise. Differentiable.
function stream.channels(x)
  local mesh = here()
  if mesh.is_plain then return x end
  local layout, form = core.layout(x), mesh.forms[1]
  if lies(x, layout, CHANNELS, form) then return x end
  local cuts = { joined(layout.cuts[1], mesh.is_tensor, form.rows), form.width }
  for d = 3, x:dim() do cuts[d] = joined(layout.cuts[d], form.uses, {}) end
  return x:redistribute { cuts = cuts }
end

--- Returns images x in that form where they are a sum over ranks that nobody has made yet, as a convolution may leave
-- them, and as they are elsewhere. Differentiable.
function stream.summed(x)
  if here().is_plain or #core.layout(x).partial == 0 then return x end
  return stream.channels(x)
end

--- Runs fn(...) as if no axis cut sequences: what it enters stays whole, and all ranks of these axes do the same.
function stream.with_whole_sequences(fn, ...)
  local mesh = here()
  local sequence, is_plain = mesh.sequence, mesh.is_plain
  mesh.sequence, mesh.is_plain = {}, context.current().plan.tensor.size == 1
  local function back(ok, ...)
    mesh.sequence, mesh.is_plain = sequence, is_plain
    if not ok then error((...), 0) end
    return ...
  end
  return back(pcall(fn, ...))
end

--- Returns x (batch, sequence, width), in any layout or partial, in the first form of the stream. Collective,
-- differentiable.
function stream.join(x)
  local mesh = here()
  if mesh.is_plain then return x end
  return lay(x, core.layout(x), x:dim(), mesh.forms[1], mesh.sequence)
end

--- Returns x with dimension d (negative: from the end) whole on every rank, the batch too: a loss that compares each
-- sample with all others needs that. If ranks share that dimension, the call is collective. Differentiable.
function stream.whole(x, d)
  if core.world() == 1 then return x end
  local layout = core.layout(x)
  local cuts = layout.cuts
  d = d < 0 and #cuts + 1 + d or d
  if not cuts[d] or #cuts[d] == 0 then return x end
  cuts[d] = {}
  return placed(x, layout, cuts, d)
end

--- Returns x whose dimension d, where ranks share it, is cut between units of so many elements, such as the patches of
-- a row: a reshape to (..., units, unit, ...) then keeps the cut. Nothing is sent where it is cut so. Differentiable.
function stream.cut_between(x, d, unit)
  local layout, parts = core.layout(x), 1
  for _, name in ipairs(layout.cuts[d]) do parts = parts * here().sizes[name] end
  local units = layout.units or {}
  if parts == 1 or (units[d] or 0) == 0 and x:size(d) / unit % parts == 0 then return x end
  for i = 1, x:dim() do units[i] = i == d and unit or units[i] or 0 end
  return x:redistribute { cuts = layout.cuts, units = units }
end

-- Images with all their channels: the ranks that share channels share the samples out instead.
local function by_samples(x, form)
  local cuts = core.layout(x).cuts
  cuts[1], cuts[CHANNELS] = joined(joined(cuts[1], here().is_tensor, form.rows), {}, form.width), {}
  for d = 3, x:dim() do cuts[d] = joined(cuts[d], form.uses, {}) end
  return x:redistribute { cuts = cuts }
end

--- Returns images joined along their channels: those of a, then those of b, in the first form of the mode. Where ranks
-- share channels, blocks of the result are not blocks of a and b. So these ranks exchange channels for samples, join,
-- and exchange again: each sends (q-1)/q of its blocks, twice. Collective there; differentiable.
function stream.join_channels(a, b)
  local form = here().forms[1]
  if here().is_plain or #form.width == 0 then return ops.cat({ a, b }, CHANNELS) end
  return stream.channels(ops.cat({ by_samples(a, form), by_samples(b, form) }, CHANNELS))
end

--- Returns the number of parts into which the width of an activation is cut inside a pair of Linears.
function stream.parts()
  local mesh, parts = here(), 1
  for _, name in ipairs(mesh.forms[#mesh.forms].width) do parts = parts * mesh.sizes[name] end
  return parts
end

--- Returns a forward for a layer of class `base` that first brings x (and a residual, if one is given) to form `which`,
-- as `to` does.
function stream.forward(base, which)
  return function(self, x, residual)
    return base.forward(self, stream.to(x, which), residual and stream.to(residual, which))
  end
end

return stream
