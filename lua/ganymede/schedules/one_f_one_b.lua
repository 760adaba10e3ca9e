--- 1F1B (Narayanan et al. 2019 and 2021, arXiv:2104.04473): a stage runs ahead by the number of stages after it, then
-- does one forward pass and one backward pass in turn. On p stages with m micro-batches, the bubble is (p - 1) / m of
-- the ideal time, as in GPipe. Stage s (from 0) holds at most p - s micro-batches, whatever m is.
return {
  doc = "one forward pass and one backward pass in turn; a stage holds at most as many micro-batches as there are "
    .. "stages",
  chunks = { default = 1, min = 1, max = 1 },
  order = function(stages, micro_batches)
    local actions = {}
    for stage = 1, stages do
      local list, ahead = {}, math.min(micro_batches, stages - stage)
      for i = 1, ahead do list[#list + 1] = { "forward", i, 1 } end
      for i = 1, micro_batches do
        if ahead + i <= micro_batches then list[#list + 1] = { "forward", ahead + i, 1 } end
        list[#list + 1] = { "backward", i, 1 }
      end
      actions[stage] = list
    end
    return actions
  end,
}
