--- ZB-H1 (Qi et al. 2023, arXiv:2401.10241, section 2.1): 1F1B with delayed weight gradients, in the memory of 1F1B.
-- Every one of p stages holds at most p micro-batches. If m >= p, the bubble is (p - 1) (T_F + T_B - T_W), a third of
-- that of 1F1B if forward pass (T_F), input gradient (T_B) and weight gradient (T_W) take equal times.
local split_backward = require "ganymede.schedules.split_backward"

return {
  doc = "1F1B with delayed weight gradients; at equal costs a third of its bubble, in the same memory",
  chunks = { default = 1, min = 1, max = 1 },
  order = function(stages, micro_batches)
    return split_backward(stages, micro_batches, function(stage) return stages - stage end, stages)
  end,
}
