--- Llama trains in every mode as it does on one rank: rotary positions of cut sequences and heads, grouped key heads,
-- norms of queries and keys, gates between layers that are cut. How near: spec/parallel/equality.lua.
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
  })

  local others = {
    { "two stages", 2, "{pipeline=2}", { "num_microbatches=2" } },
    { "two stages, recomputed", 2, "{pipeline=2}", { "num_microbatches=2", "recompute=block" } },
    { "stage 3 of ZeRO", 2, "{data=2}", { "zero=3" } },
  }
  for _, case in ipairs(others) do
    it(("llama: %s in f64"):format(case[1]), function()
      local steps = job.steps(50)
      local many = equality.run("llama", { ranks = case[2], parallel = case[3] }, "f64", steps, case[4])
      local worst, at = job.largest_difference(equality.serial("llama", "f64"), many, steps)
      assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
    end)
  end
end)
