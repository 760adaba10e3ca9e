--- ZB-V (Qi et al. 2024, arXiv:2405.15362): each of p ranks has two chunks, which lie along a V, so that rank 0 holds
-- the first and the last part of the model; weight gradients are delayed. At equal costs there is no bubble if m >= 2 p
-- - 1 and steps need no barrier (as in ZB-H2). It needs the memory of 1F1B: at most p micro-batches of all chunks. Each
-- border is crossed twice.
--
-- The phases of rank r; F1, B2, W1 are the forward pass, the gradient of the input and that of the weights of a chunk:
--   1. 2 (p - r) - 1 times F1: until the first micro-batch has gone down the V and has come back up to this rank
--   2. r times F2 F1: both ways, while the ranks before still wait for their first F2
--   3. p - r times F2 B2 W2: backward has come from the last part, on rank 0
--   4. in turn F1 B1 W1 F2 B2 W2, without F1 once all micro-batches have gone in
--   5. r times B1 B2, without weight gradients, because the ranks before wait for B1; p - r times B1 W1; the remaining
-- W2
--      and W1
-- The orders are made for at least 2 p - 1 micro-batches. With fewer, the actions of the missing ones are left out. The
-- others keep their order, so nothing can wait in a circle.
local geometry = require "ganymede.job.geometry"

-- Returns a list, a function that adds steps to it, and one that counts them. Steps of micro-batches beyond
-- `micro_batches` are counted but not added.
local function counting(micro_batches)
  local list, count = {}, {}
  local kinds = { F = "forward", B = "backward_input", W = "backward_weight" }
  local function add(steps)
    for kind, chunk in steps:gmatch "(%u)(%d)" do
      local step = kind .. chunk
      count[step] = (count[step] or 0) + 1
      if count[step] <= micro_batches then list[#list + 1] = { kinds[kind], count[step], tonumber(chunk) } end
    end
  end
  return list, add, function(step) return count[step] or 0 end
end

local function order_of(rank, stages, micro_batches)
  local list, add, count = counting(micro_batches)
  local m = math.max(micro_batches, 2 * stages - 1)
  for _ = 1, 2 * (stages - rank) - 1 do add "F1" end
  for _ = 1, rank do add "F2 F1" end
  for _ = 1, stages - rank do add "F2 B2 W2" end
  while count "F2" < m do add(count "F1" < m and "F1 B1 W1 F2 B2 W2" or "B1 W1 F2 B2 W2") end
  for _ = 1, rank do add "B1 B2" end
  for _ = 1, stages - rank do add "B1 W1" end
  while count "W2" < m do add "W2" end
  while count "W1" < m do add "W1" end
  return list
end

return {
  doc = "two chunks on each rank along a V; no bubble at equal costs, in the memory of 1F1B",
  chunks = { default = 2, min = 2, max = 2 },
  order = function(stages, micro_batches, chunks)
    local actions = {}
    for rank = 0, stages - 1 do actions[rank + 1] = order_of(rank, stages, micro_batches) end
    return actions, geometry.v_shaped(stages, chunks)
  end,
}
