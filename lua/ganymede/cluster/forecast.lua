--- How long a job still takes with the replicas and the batch that it asked for, by its measured profile.
-- @module ganymede.cluster.forecast
local nodes = require "ganymede.cluster.nodes"

local forecast = {}

--- Seconds of a step of a fixed batch with k replicas, laid out on as few nodes as they fit on.
-- The batch is cut into gradients of at most max_local samples; a single replica takes two at least, unless the limits
-- say one_gradient.
function forecast.step(job, k, places)
  local app = job.application
  local l, own = app.limits, math.ceil(job.batch / k - 1e-8)
  local more = math.ceil(own / l.max_local - 1e-8) - 1
  if k == 1 and not l.one_gradient then more = math.max(more, 1) end
  local b = math.min(math.ceil(own / (more + 1) - 1e-8), math.floor(l.max_batch / (k * (more + 1))))
  local step, sync = app:step(nodes.packed(k, places), b)
  return step + (step - sync) * more
end

--- Steps of a fixed batch that a job still takes, counted from the epoch that it is in; at least 1.
function forecast.steps(job)
  local app = job.application
  if job.epoch + 1 >= app.epochs then return 1 end
  return app:steps(job.batch, app.epochs) - app:steps(job.batch, job.epoch + 1)
end

--- Seconds to the end with the replicas that it asked for.
function forecast.wanted(job, places) return forecast.step(job, job.wanted, places) * forecast.steps(job) end

return forecast
