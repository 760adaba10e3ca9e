--- What ZB-H1 and ZB-H2 share (Qi et al. 2023, arXiv:2401.10241): 1F1B with backward passes split in two. The gradient
-- of the input is sent to the stage before at once. The gradient of the weights waits until its memory is needed, and
-- so fills what would be idle time at the end of the step.
--
--     order(stages, micro_batches, ahead, room) -> actions
--
-- ahead(stage from 0): the number of forward passes before the first backward pass. room: the number of micro-batches
-- that a stage may hold, counted from forward until the weight gradients are done. A weight gradient is computed when
-- the next forward pass would have no room, and after each gradient of an input once no forward passes are left.
return function(stages, micro_batches, ahead, room)
  local actions = {}
  for stage = 0, stages - 1 do
    local list, forward, weight = {}, 0, 0
    local function add(kind, i) list[#list + 1] = { kind, i, 1 } end
    local function add_weight()
      weight = weight + 1
      add("backward_weight", weight)
    end
    local function add_forward()
      forward = forward + 1
      add("forward", forward)
    end
    for _ = 1, math.min(micro_batches, ahead(stage)) do add_forward() end
    for i = 1, micro_batches do
      add("backward_input", i)
      if forward == micro_batches or forward - weight == room then add_weight() end
      if forward < micro_batches then add_forward() end
    end
    while weight < micro_batches do add_weight() end
    actions[stage + 1] = list
  end
  return actions
end
