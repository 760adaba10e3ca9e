--- Llama trains in every mode as it does on one rank: rotary positions of cut sequences and heads, grouped key heads,
-- norms of queries and keys, also over heads that ranks share, norms behind the branches alone, gates between layers
-- that are cut; biases of attention alone, a base that grows with rows, experts in some of the blocks.
-- How near: spec/parallel/equality.lua.
-- sanitizers: no, numbers of several ranks are compared; spec/kernels and spec/layout look at the same code
local equality = require "spec.parallel.equality"
local job = require "spec.parallel.job"

describe("training of Llama #ranks", function()
  equality.examples(it, {
    { "llama", "1d on 2", "f64" }, { "llama", "1d with sequences on 2", "f64" }, { "llama", "2d on 4", "f64" },
    { "llama", "2.5d on 8", "f64" }, { "llama", "3d on 8", "f64" }, { "llama", "ring on 3", "f64" },
    { "llama", "ulysses on 2", "f64" },
    { "llama", "1d on 2, data 2", "f64", "slow" }, { "llama", "ring on 2, 1d on 2", "f64", "slow" },
    { "llama", "1d on 2", "f32", "slow" },
    { "olmo", "1d with sequences on 2", "f64" }, { "olmo", "2d on 4", "f64" }, { "olmo", "3d on 8", "f64" },
    { "olmo", "ulysses on 2", "f64" },
    { "olmo", "1d on 2, data 2", "f64", "slow" }, { "olmo", "2.5d on 8", "f64", "slow" },
    { "olmo", "ring on 2, 1d on 2", "f64", "slow" },
    { "brought", "1d on 2", "f64" }, { "brought", "1d with sequences on 2", "f64" }, { "brought", "2d on 4", "f64" },
    { "brought", "ulysses on 2", "f64" }, { "brought", "ring on 3", "f64", "slow" },
    { "brought", "2.5d on 8", "f64", "slow" }, { "brought", "3d on 8", "f64", "slow" },
  })

  local others = {
    { "brought", "two stages, recomputed", 2, "{pipeline=2}", { "num_microbatches=2", "recompute=block" } },
    { "brought", "shared experts, stage 3 of ZeRO", 2, "{data=2,expert=2}", { "zero=3" } },
    { "llama", "two stages", 2, "{pipeline=2}", { "num_microbatches=2" } },
    { "llama", "two stages, recomputed", 2, "{pipeline=2}", { "num_microbatches=2", "recompute=block" } },
    { "llama", "stage 3 of ZeRO", 2, "{data=2}", { "zero=3" } },
    { "olmo", "two stages, recomputed, stage 1 of ZeRO", 4, "{pipeline=2,data=2}",
      { "num_microbatches=2", "recompute=block", "zero=1" } },
  }
  for _, case in ipairs(others) do
    it(("%s: %s in f64"):format(case[1], case[2]), function()
      local steps = job.steps(50)
      local many = equality.run(case[1], { ranks = case[3], parallel = case[4] }, "f64", steps, case[5])
      local worst, at = job.largest_difference(equality.serial(case[1], "f64"), many, steps)
      assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
    end)
  end
end)
