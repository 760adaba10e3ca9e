--- ZB-H2 (Qi et al. 2023, arXiv:2401.10241, section 2.2): stages run further ahead than in ZB-H1, so that none waits
-- between its first action and its last. Every one of p stages holds at most 2 p - 1 micro-batches. The bubble is
-- (p - 1) (T_F + T_B - 2 T_W). At equal costs there is none if m >= 2 p - 1 and steps need no barrier: stage s begins
-- and ends s forward passes after stage 0.
local split_backward = require "ganymede.schedules.split_backward"

return {
  doc = "no bubble at equal costs, in about twice the memory of 1F1B",
  chunks = { default = 1, min = 1, max = 1 },
  order = function(stages, micro_batches)
    return split_backward(stages, micro_batches, function(stage) return 2 * (stages - stage) - 1 end, 2 * stages - 1)
  end,
}
