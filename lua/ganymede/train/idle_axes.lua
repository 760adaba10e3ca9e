--- Warns of ranks that were to share layers, sequences or experts of a model and share nothing of it.
--
--     idle_axes.tell()                          -- behind the first step of a run
--     idle_axes.of(mesh, traffic)               -- { "sequence" }: of "tensor", "sequence" and "expert"
--
-- A perceptron has no sequence that ranks could share: with parallel.sequence = 2 both compute the same, and the run is
-- no faster than on half of its ranks. No setting is wrong then, and what the passes of the first step sent along an
-- axis tells. A loss sums the count of its targets over all axes, which is a number or two and counts as nothing.
-- The trap: on the stages of a pipeline rank 0 sees its own layers alone, so nothing is said there.
-- @module ganymede.train.idle_axes
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local parallel = require "ganymede.job.parallel"

local idle_axes = {}

local others = { data = true, shard = true, pipeline = true } -- all but these and two more are axes of tensor modes
local of_its_own = { sequence = true, expert = true }
local COUNTS = 16 -- bytes: at most two numbers

local function subject_of(axis)
  if others[axis] then return nil end
  return of_its_own[axis] and axis or "tensor"
end

-- Whether an entry of the traffic says that its ranks share something of the model.
local function is_of_model(entry, subject)
  if entry.phase ~= "forward" and entry.phase ~= "backward" then return false end
  if subject == "expert" then return entry.op:find "^all_to_all" ~= nil end -- gradients are summed in any case
  return entry.op ~= "all_reduce" or entry.bytes > COUNTS * entry.calls
end

--- Returns the keys of `parallel` whose ranks have shared nothing. mesh: a list of { name, size }; traffic: a list of
-- { axes, op, phase, calls, bytes }.
function idle_axes.of(mesh, traffic)
  local list, seen = {}, {}
  for _, axis in ipairs(mesh) do
    local subject = axis.size > 1 and subject_of(axis.name)
    if subject and not seen[subject] then list[#list + 1] = subject end
    if subject then seen[subject] = true end
  end
  for _, entry in ipairs(traffic) do
    for _, axis in ipairs(entry.axes) do
      local subject = subject_of(axis)
      if subject and is_of_model(entry, subject) then seen[subject] = "busy" end
    end
  end
  local out = {}
  for _, subject in ipairs(list) do
    if seen[subject] ~= "busy" then out[#out + 1] = subject end
  end
  return out
end

local said = {
  tensor = "no layer of the model is shared by these ranks, so that each of them computes the same; without it they "
    .. "share batches",
  sequence = "nothing of the model is cut along a sequence, so that each of these ranks computes the same; without it "
    .. "they share batches",
  expert = "the model has no experts that these ranks could share (docs/experts.md); they share batches alone",
}

--- Says what is idle, once for all ranks. Not collective.
function idle_axes.tell()
  local plan, traffic = context.current().plan, {}
  if core.world() == 1 or core.rank() > 0 or plan.pipeline > 1 then return end
  for i, e in ipairs(core.comm_traffic()) do
    traffic[i] = { axes = parallel.axis_names(e.group), op = e.op, phase = e.phase, calls = e.calls, bytes = e.bytes }
  end
  local sizes = { tensor = plan.tensor.size, sequence = plan.sequence.size, expert = plan.expert }
  for _, subject in ipairs(idle_axes.of(core.mesh(), traffic)) do
    log.warn("parallel.%s = %d: %s", subject, sizes[subject], said[subject])
  end
end

return idle_axes
