--- Applications of round numbers, for simulations whose results can be worked out by hand.
local goodput = require "ganymede.cluster.goodput"

local support = {}

--- A gradient of b samples takes b * given.seconds; the sum over r replicas given.sync * (nodes - 1). given.sqr,
-- given.var: of its gradient; 0 and 1 by default: steps are worth as much as their batch. An epoch is 100 steps of the
-- first batch, which is 8 samples; batches go up to 256, replicas take 1 to 8 samples at once.
function support.application(given)
  local app = { name = given.name or "app", epochs = given.epochs or 2, limits = { first_batch = 8, max_batch = 256,
    min_local = 1, max_local = 8 }, max_replicas = given.max_replicas }
  function app.step(_, counts, b)
    local sync = (given.sync or 0) * (#counts - 1)
    return b * given.seconds + sync, sync
  end
  function app.gradient() return given.sqr or 0, given.var or 1 end
  function app.progress(_, epochs) return 100 * epochs end
  function app.steps(_, batch, epochs) return 100 * epochs * 8 / batch end
  return app
end

--- A job that runs, as a policy sees it: measured with 1, 2 and 4 replicas on a node and 8 on two.
function support.job(name, index, app, left, counts)
  local known = goodput.new(app.limits)
  for _, case in ipairs { { 1, 1 }, { 1, 2 }, { 1, 4 }, { 2, 8 } } do
    for _, b in ipairs { 1, 8 } do
      local step, sync = app:step(case[1] == 1 and { case[2] } or { 4, 4 }, b)
      known:observe(case[1], case[2], b, step, sync, app:gradient())
    end
  end
  return { name = name, index = index, application = app, submitted = 0, wanted = 2, batch = 16, epoch = 0,
    progress = 0, total = left, attained = 0, restarts = 0, counts = counts, used = counts and counts, known = known }
end

return support
