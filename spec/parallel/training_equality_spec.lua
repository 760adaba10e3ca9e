--- Data parallelism trains as one rank does: the same global batches, weights, dropout masks and learning rates.
--
-- Only the order of sums differs, so in f64 50 steps agree to 1e-9 (rounding is 1e-16 an addition; 50 steps of
-- AdamW multiply it by some 1e4 to 1e5), in f32 10 steps to 1e-5 and 50 to 1e-4. Batches of 22 divide by neither
-- 3, 4 nor 8. The GPT on 3 ranks reads 50 steps from 2 epochs of 45 batches, the last of each with fewer samples; the
-- others take as many steps as job.steps says.
-- sanitizers: no, numbers of several ranks are compared; data_parallel_spec.lua looks at that code
local job = require "spec.parallel.job"

local worlds = { 2, 3, 4, 8 }
local STEPS = job.steps(50)

-- Runs on one rank, once for each number of steps.
local function serial(recipe, dtype)
  local cache = {}
  return function(steps)
    cache[steps] = cache[steps] or job.run(recipe, 1, { steps = steps, set = { "dtype=" .. dtype } })
    return cache[steps]
  end
end

local function check_mesh(stats, ranks, reference)
  assert.equal(ranks, stats.world)
  assert.equal(ranks, stats.mesh.data)
  assert.equal(ranks, #stats.ranks)
  assert.equal(reference.global_batch, stats.global_batch)
  for i, rank in ipairs(stats.ranks) do
    assert.equal(i - 1, rank.rank)
    assert.equal(reference.ranks[1].parameter_bytes, rank.parameter_bytes) -- copies: data parallelism saves none
    assert.is_true(rank.flops < 0.75 * reference.ranks[1].flops)
  end
  assert.is_true(job.traffic(stats, { op = "all_reduce", phase = "backward" }) > 0)
end

describe("training on several ranks #ranks", function()
  for name, recipe in pairs { vit = job.vit, gpt = job.gpt } do
    local f64, f32 = serial(recipe, "f64"), serial(recipe, "f32")

    for _, ranks in ipairs(worlds) do
      it(("equals one rank: %s on %d in f64"):format(name, ranks), function()
        local steps = name == "gpt" and ranks == 3 and 50 or STEPS
        local stats = job.run(recipe, ranks, { steps = steps, set = { "dtype=f64" } })
        check_mesh(stats, ranks, f64(steps))
        local worst, at = job.largest_difference(f64(steps), stats, steps)
        assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
      end)
    end

    it(("equals one rank: %s on 4 in f32"):format(name), function()
      local stats = job.run(recipe, 4, { steps = STEPS, set = { "dtype=f32" } })
      assert.is_true(job.largest_difference(f32(STEPS), stats, math.min(10, STEPS)) <= 1e-5)
      assert.is_true(job.largest_difference(f32(STEPS), stats, STEPS) <= 1e-4)
    end)
  end

  it("equals one rank with gradients of three batches accumulated", function()
    local set = { "dtype=f64", "gradient_accumulation=3" }
    local options = { steps = STEPS, set = set }
    local one, four = job.run(job.gpt, 1, options), job.run(job.gpt, 4, options)
    assert.is_true(job.largest_difference(one, four, STEPS) <= 1e-9)
    local once = job.run(job.gpt, 4, { steps = STEPS, set = { "dtype=f64" } })
    local match = { op = "all_reduce", phase = "backward" }
    assert.equal(job.traffic(once, match), job.traffic(four, match)) -- one reduction a step, not three
  end)

  it("gives the same bits again", function()
    local one, two = job.run(job.vit, 3, { steps = 10 }), job.run(job.vit, 3, { steps = 10 })
    assert.same(one.loss, two.loss)
  end)
end)
