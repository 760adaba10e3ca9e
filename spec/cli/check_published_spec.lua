--- Published shapes under 16 GiB a rank, as `ganymede check` counts them: f32, Adam, no ZeRO, no offload, batch 16.
--
-- Parameters, gradients and Adam's two moments alone take 16 bytes a parameter, shared out by 2D: 9.9 of 16 GiB for
-- 2.65 billion parameters on 4 ranks, 12.0 for 12.8 billion on 16. What is left holds the f32 activations of
-- sequences of 256 tokens, not of 1,024 (32.1 and 25.6 GiB): a block keeps 16 times its input (64 bytes an element of
-- the stream) for backward. Blocks that run again keep 1 time, and one block all: 13.3 and 13.9 GiB. 1D holds whole
-- activations between its pairs: 19.2 and 27.3 GiB at 256 tokens (32 heads in place of 40 there, which 16 ranks can
-- share).
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"

local GiB = 2 ^ 30

describe("a published shape", function()
  local function totals(recipe, ranks, mode, length, ...)
    local path = ("%s/spec/cli/published/%s.lua"):format(GANYMEDE_ROOT, recipe)
    local result = run_host({ "check", path, "--json", "-n", tostring(ranks), "--set",
      ('parallel={ tensor = { size = %d, mode = "%s" } }'):format(ranks, mode), "--set",
      "model.sequence_length=" .. length, "--set", "data.train.sequence_length=" .. length, ... })
    assert.equal(0, result.code, result.err)
    return json.decode(result.out, "check").totals
  end

  -- What a GPT-2 of this shape has: blocks of 12 width^2 + 13 width, tables, the last norm.
  local function parameters(depth, width, length)
    return depth * (12 * width ^ 2 + 13 * width) + (50257 + length) * width + 2 * width
  end

  for _, shape in ipairs {
    { recipe = "gpt_2_7b", ranks = 4, depth = 32, width = 2560, heads = 32 },
    { recipe = "gpt_12b", ranks = 16, depth = 40, width = 5120, heads = 32 },
  } do
    it(("%s in 2D on %d ranks holds 256 tokens under 16 GiB, 1D does not"):format(shape.recipe, shape.ranks), function()
      local flat = totals(shape.recipe, shape.ranks, "2d", 256)
      local n = parameters(shape.depth, shape.width, 256)
      assert.equal(n, flat.parameters)
      local state = flat.parameter_bytes + flat.gradient_bytes + flat.optimizer_bytes
      local share = 16 * n / shape.ranks
      assert.is_true(state >= share and state < 1.001 * share, ("%g of %g"):format(state, share)) -- rows of padding
      assert.equal(16, flat.samples_per_step)
      assert.is_true(flat.peak_bytes < 16 * GiB, ("%g GiB"):format(flat.peak_bytes / GiB))
      local lines = totals(shape.recipe, shape.ranks, "1d", 256, "--set", "model.heads=" .. shape.heads)
      assert.is_true(lines.peak_bytes > 16 * GiB and lines.activation_peak_bytes > 1.5 * flat.activation_peak_bytes)
      assert.is_true(totals(shape.recipe, shape.ranks, "2d", 1024).peak_bytes > 16 * GiB)
      local again = totals(shape.recipe, shape.ranks, "2d", 1024, "--set", "recompute=block")
      assert.is_true(again.peak_bytes < 14 * GiB, ("%g GiB"):format(again.peak_bytes / GiB))
    end)
  end
end)
