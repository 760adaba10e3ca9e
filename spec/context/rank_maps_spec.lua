--- Rank maps of every legal (data, pipeline, tensor mode, sequence) of worlds 1 to 64 against Colossal-AI's formulas.
-- sanitizers: no, it compares formulas, in Lua
local context = require "ganymede.job.context"
local formulas = require "spec.context.formulas"
local parallel = require "ganymede.job.parallel"

local function plan(given, world) return assert(parallel.resolve(given, world)) end

local function text(groups)
  local said = {}
  for i, ranks in ipairs(groups) do said[i] = table.concat(ranks, " ") end
  table.sort(said)
  return table.concat(said, "\n")
end

describe("rank maps", function()
  for first = 1, 64, 16 do
    it(("of worlds %d to %d are the formulas'"):format(first, first + 15), function()
      local compared = 0
      for world = first, first + 15 do
        for _, job in ipairs(formulas.jobs(world)) do
          local c = context.new(plan(job.parallel, world), world - 1)
          for _, mode in ipairs(job.modes) do
            local expected, found = text(formulas[mode](job.sizes)), text(c:get_groups(mode))
            if expected ~= found then
              local s = job.sizes
              error(("%s, world %d, dp %d pp %d tp %d %s depth %s: expected\n%s\ngot\n%s"):format(mode, world, s.dp,
                s.pp, s.tp, tostring(c.plan.tensor.mode), tostring(s.depth), expected, found))
            end
            compared = compared + 1
          end
        end
      end
      assert.is_true(compared > 300)
    end)
  end

  it("give every rank its place, neighbours, first and last", function()
    for _, world in ipairs { 1, 2, 3, 4, 6, 8, 12, 16, 27, 36 } do
      for _, job in ipairs(formulas.jobs(world)) do
        local given, contexts = plan(job.parallel, world), {}
        for rank = 0, world - 1 do contexts[rank] = context.new(given, rank) end
        for _, mode in ipairs(job.modes) do
          for _, ranks in ipairs(formulas[mode](job.sizes)) do
            for i, rank in ipairs(ranks) do
              local c = contexts[rank]
              assert(c:get_global_rank() == rank)
              assert(c:get_local_rank(mode) == i - 1)
              assert(c:get_world_size(mode) == #ranks)
              assert(table.concat(c:get_ranks_in_group(mode), " ") == table.concat(ranks, " "))
              assert(c:get_next_global_rank(mode) == ranks[i % #ranks + 1])
              assert(c:get_prev_global_rank(mode) == ranks[(i - 2) % #ranks + 1])
              assert(c:is_first_rank(mode) == (i == 1))
              assert(c:is_last_rank(mode) == (i == #ranks))
            end
          end
        end
      end
    end
  end)

  it("combine tensor and sequence: rank = ((d pp + p) sp + s) tp + t", function()
    local given = { pipeline = 2, sequence = { size = 3 }, tensor = { size = 4, mode = "2d" } }
    for rank = 0, 47 do
      local c = context.new(plan(given, 48), rank)
      assert.equal(rank % 2, c:get_local_rank "PARALLEL_2D_ROW")
      assert.equal(math.floor(rank / 2) % 2, c:get_local_rank "PARALLEL_2D_COL")
      assert.equal(rank % 4, c:get_local_rank "TENSOR")
      assert.equal(math.floor(rank / 4) % 3, c:get_local_rank "SEQUENCE")
      assert.equal(math.floor(rank / 12) % 2, c:get_local_rank "PIPELINE")
      assert.equal(math.floor(rank / 24), c:get_local_rank "DATA")
      assert.equal(rank % 24, c:get_local_rank "MODEL")
      assert.equal(6, c:get_world_size "SEQUENCE_DP")
      assert.equal(math.floor(rank / 24) * 3 + math.floor(rank / 4) % 3, c:get_local_rank "SEQUENCE_DP")
    end
  end)

  it("of the worked example: world 32, 2 stages, 8 tensor ranks, 2 replicas, 2.5D and 3D", function()
    for _, case in ipairs { { "2.5d", 2, "2P5D_ROW", "2P5D_COL", "2P5D_DEP" },
                            { "3d", nil, "3D_WEIGHT", "3D_INPUT", "3D_OUTPUT" } } do
      for rank = 0, 31 do
        local given = { pipeline = { size = 2 }, tensor = { size = 8, mode = case[1], depth = case[2] } }
        local c = context.new(plan(given, 32), rank)
        assert.equal(rank < 16 and 0 or 1, c:get_local_rank "DATA")
        assert.equal((rank < 8 or rank >= 16 and rank < 24) and 0 or 1, c:get_local_rank "PIPELINE")
        assert.equal(rank % 8, c:get_local_rank "TENSOR")
        assert.equal(rank % 2, c:get_local_rank("PARALLEL_" .. case[3]))
        assert.equal(math.floor(rank / 2) % 2, c:get_local_rank("PARALLEL_" .. case[4]))
        assert.equal(math.floor(rank / 4) % 2, c:get_local_rank("PARALLEL_" .. case[5]))
        assert.same({ 2, 2, 8 }, { c.data_parallel_size, c.pipeline_parallel_size, c.tensor_parallel_size })
      end
    end
  end)

  it("keep experts inside data: MoE groups of 8 ranks with 4 and with 2 experts", function()
    local c = context.new(plan({ expert = 4 }, 8), 6)
    assert.same({ { "data", 2 }, { "expert", 4 } }, c.plan.axes)
    assert.same({ { 0, 1, 2, 3 }, { 4, 5, 6, 7 } }, c:get_groups "MOE_EP")
    assert.same({ { 0, 4 }, { 1, 5 }, { 2, 6 }, { 3, 7 } }, c:get_groups "MOE_DP")
    assert.same({ { 0, 1, 2, 3, 4, 5, 6, 7 } }, c:get_groups "DATA")
    assert.equal(8, c.data_parallel_size)
    -- the table: num_experts, max_ep -> expert, data, local experts, for a world of 8
    for _, row in ipairs { { 4, 8, 4, 2, 1 }, { 8, 8, 8, 1, 1 }, { 16, 8, 8, 1, 2 }, { 8, 4, 4, 2, 2 },
                           { 2, 4, 2, 4, 1 }, { 1, 8, 1, 8, 1 } } do
      local sizes = c:expert_sizes(row[1], row[2])
      assert.same({ row[3], row[4], row[5] }, { sizes.expert, sizes.data, sizes.local_experts })
    end
    assert.error_matches(function() c:expert_sizes(3, 8) end, "3 experts and max_ep = 8: one must divide the other")
    assert.error_matches(function() c:expert_sizes(4, 3) end, "max_ep = 3 does not divide the 8 ranks")
  end)

  it("have experts inside data beside stages and tensor ranks", function()
    local given = { pipeline = 2, expert = 2, tensor = { size = 2, mode = "1d" } }
    for rank = 0, 15 do -- rank = (((d 2 + e) 2 + p) 2 + t
      local c = context.new(plan(given, 16), rank)
      assert.equal(math.floor(rank / 4) % 2, c:get_local_rank "MOE_EP")
      assert.equal(math.floor(rank / 8), c:get_local_rank "MOE_DP")
      assert.equal(math.floor(rank / 4), c:get_local_rank "DATA")
    end
  end)
end)
