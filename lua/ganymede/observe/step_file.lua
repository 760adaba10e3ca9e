--- Records one step of a rank as a file: every op, every operation between ranks, every allocation, in order.
--
--     hooks = { step_file.hook("step.txt") }          -- of the second step, as in a rehearsal
--
-- host/plan/step_file.h describes the format. On several ranks, each writes FILE.RANK. A run and a rehearsal record the
-- same ops, operations and bytes in the same order (spec/plan/step_file_spec.lua); a run adds the times. Allocations of
-- a run can differ, because a rehearsal runs no kernels. If the second step is the rest of an epoch, the third counts.
-- The trap: other hooks whose points come between those of this one are part of the step.
-- @module ganymede.observe.step_file
local core = require "ganymede.core"

local step_file = {}

--- Returns the name of the file that a rank writes.
function step_file.path(path, rank, world) return world > 1 and ("%s.%d"):format(path, rank) or path end

--- Returns a hook that writes the file.
function step_file.hook(path)
  local hook, written = { name = "step_file", priority = -math.huge, needs_output = false }, false
  function hook.before_train_iter(_, trainer)
    if not written and trainer.step > 0 then core.record_start() end
  end
  function hook.after_train_iter(_, trainer)
    local samples = trainer.last.samples
    hook.first = hook.first or samples
    if written or trainer.step < 2 or samples < hook.first then return end
    core.record_stop(step_file.path(path, core.rank(), core.world()))
    written = true
  end
  return hook
end

return step_file
