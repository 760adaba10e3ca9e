--- Compares steps of a run with what a plan has predicted, and says once what came true.
--
--     hooks = { prediction.hook { seconds = 0.12, peak_bytes = 2^30 } }
--
-- The first 3 steps warm up; the median of the 8 that follow counts, from hook to hook, so that reading the batch is
-- not in it. The peak is that of tensors, the most of all ranks. Collective: every rank has the hook.
-- @module ganymede.observe.prediction
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local ranks = require "ganymede.job.ranks"

local prediction = {}

local WARM, STEPS = 3, 8

--- Returns the line that says what came true. plan: seconds, peak_bytes, as predicted; seconds, peak: as measured.
function prediction.said(plan, seconds, peak)
  return ("plan: a step takes %.4g ms (median of %d), %.4g ms were predicted (%.2f of it); at most %s a rank, %s were "
    .. "predicted"):format(1e3 * seconds, STEPS, 1e3 * plan.seconds, plan.seconds / seconds, machine.bytes(peak),
    machine.bytes(plan.peak_bytes))
end

--- Returns the hook.
function prediction.hook(plan)
  local hook = { name = "prediction", priority = -math.huge, needs_output = false }
  local times, steps, began = {}, 0, nil
  function hook.before_train_iter() began = core.now() end
  function hook.after_train_iter()
    steps = steps + 1
    if steps <= WARM or steps > WARM + STEPS then return end
    times[#times + 1] = core.now() - began
    if steps < WARM + STEPS then return end
    table.sort(times)
    local most = ranks.max { times[STEPS / 2], core.memory().peak }
    if ranks.is_first() then log.info("%s", prediction.said(plan, most[1], most[2])) end
  end
  return hook
end

return prediction
