--- Sequence parallelism trains as one rank does: GPT (causal), BERT (key masks) and ViT with sequences cut over a ring
-- or exchanged for heads (Ulysses), alone, with data and with tensor parallelism. What is run, how near it must come:
-- spec/parallel/equality.lua. The rest of the matrix is tagged #slow.
-- sanitizers: no, numbers of several ranks are compared; spec/sequence and spec/unit look at that code
local equality = require "spec.parallel.equality"

local sixths = { "model.heads=6", "model.width=30" } -- heads that 3 ranks can share

describe("training with sequences cut #ranks", function()
  equality.examples(it, {
    { "gpt", "ring on 2", "f64" }, { "gpt", "ring on 3", "f64" }, { "gpt", "ulysses on 4", "f64" },
    { "gpt", "ring on 2, data 2", "f64" }, { "gpt", "ring on 2, 1d on 2", "f64" },
    { "bert", "ring on 4", "f64" }, { "bert", "ulysses on 2", "f64" },
    { "vit", "ring on 3", "f64" }, { "vit", "ulysses on 2, data 2", "f64" },
    { "gpt", "ring on 4", "f32" }, { "gpt", "ulysses on 2", "f32" },
  })

  equality.examples(it, {
    { "gpt", "ring on 4", "f64", "slow" }, { "gpt", "ulysses on 2", "f64", "slow" },
    { "gpt", "ulysses on 3", "f64", "slow", sixths }, { "gpt", "ulysses on 2, data 2", "f64", "slow" },
    { "gpt", "ulysses on 2, 1d on 2", "f64", "slow" }, { "gpt", "ring on 2, 2d on 4", "f64", "slow" },
    { "gpt", "ulysses on 2, 2d on 4", "f64", "slow" },
    { "bert", "ring on 2", "f64", "slow" }, { "bert", "ring on 3", "f64", "slow" },
    { "bert", "ulysses on 4", "f64", "slow" }, { "bert", "ring on 2, 1d on 2", "f64", "slow" },
    { "bert", "ring on 2, data 2", "f64", "slow" }, { "bert", "ring on 2, 2d on 4", "f64", "slow" },
    { "vit", "ring on 2", "f64", "slow" }, { "vit", "ring on 4", "f64", "slow" },
    { "vit", "ulysses on 4", "f64", "slow" }, { "vit", "ring on 2, 1d on 2", "f64", "slow" },
    { "vit", "ring on 2, 2d on 4", "f64", "slow" },
    { "bert", "ring on 4", "f32", "slow" }, { "bert", "ulysses on 2", "f32", "slow" },
    { "vit", "ring on 4", "f32", "slow" }, { "vit", "ulysses on 2", "f32", "slow" },
  })

  for _, name in ipairs { "ring on 3", "ulysses on 2" } do
    it("gives the same bits again: " .. name, function() equality.twice(name) end)
  end
end)
