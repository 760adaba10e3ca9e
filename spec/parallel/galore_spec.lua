--- GaLore on several ranks: the directions of each matrix are those of its global gradient, whatever cuts it.
--
-- Only the order of sums differs from one rank: in f64 1e-16 of the terms, which the gaps between singular values
-- divide. 1e-9 holds with room over 12 steps, in which the directions are found three times.
-- sanitizers: no, numbers of several ranks are compared; spec/unit looks at the same code
local alike = require "spec.parallel.alike"

local runs = alike.of("bias = false",
  "type = 'GaLore', lr = 0.01, weight_decay = 0.1, rank = 6, update_proj_gap = 5", 12)

describe("GaLore #ranks", function()
  runs.examples(it)

  it("goes on from a checkpoint on other ranks, in another mode and stage", function() runs.resumed(4) end)
end)
