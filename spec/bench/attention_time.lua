--- CPU time of attention and of its gradient, for benches: measure(x, attrs, limits, backend) -> seconds forward,
-- seconds backward, the best of six runs each. x (b, s, h, d): queries, keys, values and gradient. backend: a table of
-- kernels, "cpu" if nil.
local core = require "ganymede.core"

local function best(fn)
  local least = math.huge
  for _ = 1, 6 do
    local start = os.clock()
    fn()
    least = math.min(least, os.clock() - start)
  end
  return least
end

return function(x, attrs, limits, backend)
  local saved
  backend = backend or "cpu"
  local forward = best(function()
    saved = core.run_op(backend, "attention", { x, x, x, nil, limits, n = 6 }, { true, true, n = 2 }, attrs)
  end)
  local backward = best(function()
    core.run_op(backend, "attention_grad", { x, x, x, nil, saved[1], saved[2], x, limits, n = 9 },
      { true, true, true, n = 4 }, attrs)
  end)
  return forward, backward
end
