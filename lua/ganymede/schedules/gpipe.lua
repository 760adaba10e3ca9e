--- GPipe (Huang et al. 2019, arXiv:1811.06965): all forward passes of a step, then all backward passes.
-- On p stages with m micro-batches, the bubble is (p - 1) / m of the ideal time, and a stage holds all m micro-batches.
return {
  doc = "all forward passes come before all backward passes; a stage holds every micro-batch",
  chunks = { default = 1, min = 1, max = 1 },
  order = function(stages, micro_batches)
    local actions = {}
    for stage = 1, stages do
      local list = {}
      for i = 1, micro_batches do list[i] = { "forward", i, 1 } end
      for i = 1, micro_batches do list[micro_batches + i] = { "backward", i, 1 } end
      actions[stage] = list
    end
    return actions
  end,
}
