--- ZeRO trains as plain data parallelism does, in every mode: losses, the gradients of the last step, the weights and
-- the moments after it.
--
-- The truth is plain data parallelism. An owner adds up the same terms in the same order, so its sums have the same
-- bits. The norm of all gradients is added up owner by owner, so that with clipping the last bits may differ: of losses
-- by 1e-12 in f64 over 10 steps, by 1e-9 over 50, and 1e-9 of the largest number of a tensor. Without clipping the bits
-- are those of plain data parallelism, and all stages have the same, with two exceptions. In a step of several batches
-- plain data parallelism and stage 1 add up the batches first and then the ranks, stages 2 and 3 the other way round.
-- Groups of ranks (shard) are summed first, and then the groups.
-- In 16 bits a last bit that differs soon makes others: at most 10 steps are compared.
-- sanitizers: no, numbers of several ranks are compared; spec/unit looks at the same code
local job = require "spec.parallel.job"
local tables = require "spec.support.tables"
local zero = require "spec.parallel.zero_runs"

local LIMIT = { losses = zero.steps > 10 and 1e-9 or 1e-12, gradients = 1e-9, weights = 1e-9 }

local experts = "model.moe={experts=4,every=2,router={type='TopKRouter',k=2,balance=0.1}}"
local pieces = "num_microbatches=2"
local meshes = {
  { "data 2", 2, nil, "slow" }, { "data 3", 3 }, { "data 4", 4, nil, "slow" },
  { "data 5", 5, nil, "slow" }, { "data 8", 8, nil, "slow" },
  { "data 2 and 1d on 2", 4, { "parallel={data=2,tensor={size=2,mode='1d'}}" } },
  { "data 2 and 2d on 4", 8, { "parallel={data=2,tensor={size=4,mode='2d'}}" }, "slow" },
  { "data 2 and 2.5d on 8", 16, { "parallel={data=2,tensor={size=8,mode='2.5d',depth=2}}" }, "slow" },
  { "data 2 and 3d on 8", 16, { "parallel={data=2,tensor={size=8,mode='3d'}}" }, "slow" },
  { "two stages, data 2", 4, { "parallel={data=2,pipeline=2}", pieces } },
  { "experts on 2 of data 2", 2, { "parallel={data=2,expert=2}", experts }, "slow" },
  { "experts, a rank without tokens, data 3", 3, { "data.batch_size=2", experts } },
  { "experts on 2 of data 4", 4, { "parallel={data=4,expert=2}", experts }, "slow" },
  { "experts on 2 of data 4, two stages", 8, { "parallel={data=4,expert=2,pipeline=2}", experts, pieces }, "slow" },
  { "ring on 2, data 2", 4, { "parallel={data=2,sequence=2}" } },
  { "data 4 in halves", 4, { "parallel={data={size=4,shard=2}}" } },
  { "data 8 in fours", 8, { "parallel={data={size=8,shard=4}}" }, "slow" },
  { "data 4 in halves, 1d on 2", 8, { "parallel={data={size=4,shard=2},tensor={size=2,mode='1d'}}" }, "slow" },
  { "data 2 in twos, two stages", 4, { "parallel={data={size=2,shard=2},pipeline=2}", pieces } },
  { "data 4 in halves, two stages", 8, { "parallel={data={size=4,shard=2},pipeline=2}", pieces }, "slow" },
  { "experts on 2 of data 4, in fours", 4, { "parallel={data={size=4,shard=4},expert=2}", experts }, "slow" },
  { "SGD, data 3", 3, { "optimizer={type='SGD',lr=0.1,momentum=0.9,nesterov=true}" } },
  { "small buckets, data 3", 3, { "parallel={data={size=3,bucket_mb=0.01}}" } },
  { "no overlap, data 2", 2, { "parallel={data={size=2,overlap=false}}" } },
  { "two batches a step, data 3", 3, { "gradient_accumulation=2" } },
}

local stages = { 1, 2, 3, "greedy" }
-- Where every stage runs. Elsewhere 2 and 3 do, which have all that 1 divides; `.ci/run --full` runs all of them.
local all_stages = { ["data 3"] = true, ["data 2 and 1d on 2"] = true, ["two batches a step, data 3"] = true }

local function stages_of(name) return (job.full or all_stages[name]) and stages or { 2, 3 } end

local function check_limits(found, stage)
  for what, limit in pairs(LIMIT) do
    assert.is_true(found[what] <= limit, ("stage %s: %s differ by %g"):format(stage, what, found[what]))
  end
end

local function check_bytes(mine, plain, stage)
  local rank, all = mine.ranks[1], plain.ranks[1]
  if stage == 3 or stage == "greedy" then assert.is_true(rank.parameter_bytes < 0.72 * all.parameter_bytes) end
  assert.is_true(rank.optimizer_bytes < 0.72 * all.optimizer_bytes)
end

local same = { losses = 0, gradients = 0, weights = 0 }

describe("ZeRO #ranks", function()
  local home
  before_each(function() home = zero.home() end)
  after_each(function() home:remove() end)

  for _, mesh in ipairs(meshes) do
    local case = { ranks = mesh[2], set = mesh[3] }
    it("trains as plain data parallelism: " .. mesh[1] .. (mesh[4] and " #" .. mesh[4] or ""), function()
      local plain, before = home:run(case, 0), nil
      for _, stage in ipairs(stages_of(mesh[1])) do
        local mine = home:run(case, stage)
        local found = zero.difference(mine, plain)
        if os.getenv "GANYMEDE_SPEC_DIFFERENCES" then
          print(("  %-36s stage %-6s losses %.2g gradients %.2g weights %.2g%s"):format(mesh[1], stage, found.losses,
            found.gradients, found.weights, before and (", from the stage before %g %g %g"):format(
            zero.difference(mine, before).losses, zero.difference(mine, before).gradients,
            zero.difference(mine, before).weights) or ""))
        end
        check_limits(found, stage)
        check_bytes(mine, plain, stage)
        if before and not (stage == 2 and mesh[1]:find "two batches") then
          assert.same(same, zero.difference(mine, before))
        end
        before = mine
      end
    end)
  end

  for _, mesh in ipairs { { "data 3", 3 }, { "data 2 and 1d on 2", 4, meshes[6][3] },
    { "two stages, data 2", 4, meshes[10][3] }, { "two batches a step, data 3", 3, meshes[#meshes][3], { 1 } } } do
    it("has the bits of plain data parallelism where nothing is clipped: " .. mesh[1], function()
      local case = { ranks = mesh[2], set = tables.joined({ "clip_grad_norm=0" }, mesh[3]) }
      local plain = home:run(case, 0)
      for _, stage in ipairs(mesh[4] or stages_of(mesh[1])) do
        assert.same(same, zero.difference(home:run(case, stage), plain))
      end
    end)
  end

  for dtype, ranks in pairs { bf16 = 3, f16 = 2 } do
    it(("trains as plain data parallelism: %s, data %d"):format(dtype, ranks), function()
      local case = { ranks = ranks, set = { "dtype=" .. dtype } }
      local plain = home:run(case, 0)
      for _, stage in ipairs(stages_of(dtype)) do
        local mine = home:run(case, stage)
        assert.is_true(job.largest_difference(plain, mine, math.min(10, zero.steps)) <= 1e-12, "stage " .. stage)
        check_bytes(mine, plain, stage)
      end
    end)
  end
end)
