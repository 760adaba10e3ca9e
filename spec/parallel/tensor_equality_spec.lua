--- Tensor parallelism trains as one rank does: GPT, BERT and ViT, one source, in 1D, with Megatron's sequences, 2D,
-- 2.5D and 3D, with data parallelism on top. What is run and how near it must come: spec/parallel/equality.lua.
-- The rest of the matrix is tagged #slow.
-- sanitizers: no, numbers of several ranks are compared; spec/tensor and spec/unit look at the same code
local equality = require "spec.parallel.equality"
local job = require "spec.parallel.job"

local sixths = { "model.heads=6", "model.width=30" } -- heads and widths that 3 x 3 ranks can share

describe("training in tensor modes #ranks", function()
  equality.examples(it, {
    { "gpt", "1d on 4", "f64" }, { "gpt", "1d with sequences on 4", "f64" }, { "gpt", "2d on 4", "f64" },
    { "gpt", "2.5d on 8", "f64" }, { "gpt", "3d on 8", "f64" }, { "gpt", "2d on 4, data 2", "f64" },
    { "bert", "1d on 2", "f64" }, { "bert", "1d with sequences on 2", "f64" }, { "bert", "2d on 4", "f64" },
    { "bert", "2.5d on 8", "f64" }, { "bert", "3d on 8", "f64" }, { "bert", "1d on 2, data 2", "f64" },
    { "vit", "1d on 4", "f64" }, { "vit", "1d with sequences on 2", "f64" }, { "vit", "2d on 4", "f64" },
    { "vit", "2d on 9", "f64", nil, sixths }, { "vit", "2.5d on 8", "f64" }, { "vit", "3d on 8", "f64" },
    { "gpt", "1d on 4", "f32" }, { "gpt", "2d on 4", "f32" }, { "gpt", "3d on 8", "f32" },
    { "vit", "2.5d on 8", "f32" },
  })

  equality.examples(it, {
    { "gpt", "1d on 2", "f64", "slow" }, { "gpt", "1d with sequences on 2", "f64", "slow" },
    { "gpt", "2d on 9", "f64", "slow", sixths }, { "gpt", "1d on 2, data 2", "f64", "slow" },
    { "gpt", "1d with sequences on 2, data 2", "f64", "slow" },
    { "bert", "1d on 4", "f64", "slow" }, { "bert", "1d with sequences on 4", "f64", "slow" },
    { "bert", "2d on 9", "f64", "slow", sixths }, { "bert", "2d on 4, data 2", "f64", "slow" },
    { "vit", "1d on 2", "f64", "slow" }, { "vit", "1d with sequences on 4", "f64", "slow" },
    { "vit", "2d on 4, data 2", "f64", "slow" }, { "vit", "1d on 2, data 2", "f64", "slow" },
    { "gpt", "1d with sequences on 4", "f32", "slow" }, { "gpt", "2.5d on 8", "f32", "slow" },
    { "bert", "1d on 4", "f32", "slow" }, { "bert", "1d with sequences on 4", "f32", "slow" },
    { "bert", "2d on 4", "f32", "slow" }, { "bert", "2.5d on 8", "f32", "slow" }, { "bert", "3d on 8", "f32", "slow" },
    { "vit", "1d on 4", "f32", "slow" }, { "vit", "1d with sequences on 4", "f32", "slow" },
    { "vit", "2d on 4", "f32", "slow" }, { "vit", "3d on 8", "f32", "slow" },
  })

  -- A step of 2 batches; the losses are those of one rank.
  for _, name in ipairs { "2d on 4", "1d with sequences on 2" } do
    it("accumulates gradients: gpt, " .. name, function()
      local set, steps = { "dtype=f64", "gradient_accumulation=2" }, job.steps(20)
      local one = job.run(equality.recipes.gpt, 1, { steps = steps, set = set })
      local many = equality.run("gpt", equality[name], "f64", steps, { "gradient_accumulation=2" })
      local worst, at = job.largest_difference(one, many, steps)
      assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
    end)
  end

  -- parallel.tensor.keep_gathered changes what is kept and sent, not one bit of what is computed
  it("computes the same bits with gathered operands kept, and sends less", function()
    local function run(keep)
      local where = { ranks = 8, parallel = ('{tensor={size=8,mode="3d",keep_gathered=%s}}'):format(keep) }
      return equality.run("gpt", where, "f32", 4)
    end
    local kept, again = run "true", run "false"
    assert.same(again.loss, kept.loss)
    local match = { op = "all_gather", phase = "backward" }
    assert.is_true(job.traffic(kept, match) < job.traffic(again, match))
  end)

  for _, name in ipairs { "1d on 4", "1d with sequences on 2", "2d on 4", "2.5d on 8 #slow", "3d on 8 #slow" } do
    it("gives the same bits again: " .. name, function() equality.twice((name:gsub(" #slow", ""))) end)
  end
end)
