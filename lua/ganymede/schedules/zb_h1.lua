--- ZB-H1 (Qi et al. 2023, arXiv:2401.10241, section 2.1): 1F1B with delayed weight gradients, in the memory of 1F1B.
-- Every stage holds at most p micro-batches. Bubble (p - 1) (T_F + T_B - T_W), a third of 1F1B's at equal costs, from
-- m = p on.
local split_backward = require "ganymede.schedules.split_backward"

return {
  doc = "1F1B with delayed weight gradients: a third of its bubble in its memory",
  chunks = { default = 1, min = 1, max = 1 },
  order = function(stages, micro_batches)
    return split_backward(stages, micro_batches, function(stage) return stages - stage end, stages)
  end,
}
