--- The parallel context: names of groups, what they mean, what is refused, groups of the user's own.
local context = require "ganymede.job.context"
local parallel = require "ganymede.job.parallel"
local registry = require "ganymede.base.registry"

local function new(given, world, rank) return context.new(assert(parallel.resolve(given, world)), rank or 0) end

local function with_initializer(name, fn, body)
  registry.group_initializers:register(name, fn)
  finally(function() registry.group_initializers.classes[name] = nil end)
  return body()
end

describe("ganymede.job.context", function()
  it("takes axes as well as the names of modes", function()
    local c = new({ tensor = { size = 4, mode = "2d" } }, 8, 5)
    assert.same(c:get_ranks_in_group "TENSOR", c:get_ranks_in_group "row.col")
    assert.same(c:get_ranks_in_group "TENSOR", c:get_ranks_in_group { "col", "row" })
    assert.same({ 4, 5 }, c:get_ranks_in_group "col")
    assert.same(c:get_ranks_in_group(context.ParallelMode.PARALLEL_2D_ROW), c:get_ranks_in_group "col")
    assert.same({ 1, 5 }, c:get_ranks_in_group "data")
    assert.same({ 5 }, c:get_ranks_in_group "sequence") -- of size 1: this rank alone
  end)

  it("names what it does not know", function()
    local c = new({ tensor = { size = 4, mode = "2d" } }, 4)
    local ok, message = pcall(function() c:get_local_rank "DATTA" end)
    assert.is_false(ok)
    assert.matches("^spec/context/context_spec.lua:%d+: context: there is no .*'DATTA' %(did you mean 'DATA'", message)
    assert.error_matches(function() c:get_local_rank "row.colum" end, "there is no .*'colum'")
    assert.error_matches(function() c:get_local_rank(3) end, "give a ParallelMode")
    assert.error_matches(function() return context.ParallelMode.DATTA end, "did you mean 'DATA'")
    assert.error_matches(function() c:get_local_rank "PARALLEL_3D_INPUT" end,
      "PARALLEL_3D_INPUT belongs to tensor.mode 3d; this job's is 2d")
    assert.error_matches(function() new({}, 4, 4) end, "there is no rank 4 in a world of 4")
  end)

  it("knows which modes a job has", function()
    local function initialized(c)
      local out = {}
      for _, mode in ipairs { "GLOBAL", "DATA", "MODEL", "TENSOR", "PIPELINE", "SEQUENCE", "SEQUENCE_DP", "PARALLEL_1D",
                              "PARALLEL_2D_COL", "MOE_EP", "PIPELINE_NEXT", "row.col" } do
        if c:is_initialized(mode) then out[#out + 1] = mode end
      end
      return table.concat(out, " ")
    end
    assert.equal("GLOBAL DATA MODEL", initialized(new({}, 4)))
    assert.equal("GLOBAL DATA MODEL TENSOR PARALLEL_1D", initialized(new({ tensor = { size = 2, mode = "1d" } }, 4)))
    assert.equal("GLOBAL DATA MODEL TENSOR PIPELINE PARALLEL_2D_COL PIPELINE_NEXT row.col",
      initialized(new({ pipeline = 2, tensor = { size = 4, mode = "2d" } }, 8)))
    assert.equal("GLOBAL DATA MODEL TENSOR SEQUENCE SEQUENCE_DP",
      initialized(new({ tensor = { size = 2, mode = "sequence" } }, 4)))
    assert.equal("GLOBAL DATA MODEL SEQUENCE SEQUENCE_DP", initialized(new({ sequence = 2 }, 4)))
    assert.equal("GLOBAL DATA MODEL MOE_EP", initialized(new({ expert = 2 }, 4)))
    assert.error_matches(function() new({}, 4):is_initialized "nothing" end, "there is no ParallelMode")
  end)

  it("knows the first and the last stage, chunks included", function()
    local given = { pipeline = 3, tensor = { size = 2, mode = "1d" } }
    for rank = 0, 5 do
      local c, stage = new(given, 6, rank), math.floor(rank / 2)
      assert.equal(stage == 0, c:is_pipeline_first_stage())
      assert.equal(stage == 2, c:is_pipeline_last_stage())
      assert.equal((rank + 2) % 6, c:get_next_global_rank "PIPELINE")
      assert.same({ rank, (rank + 2) % 6 }, c:get_ranks_in_group "PIPELINE_NEXT")
      assert.same({ (rank - 2) % 6, rank }, c:get_ranks_in_group "PIPELINE_PREV")
      assert.is_nil(c:virtual_pipeline_parallel_size())
      c:set_virtual_pipeline_parallel_size(2)
      c:set_virtual_pipeline_parallel_rank(1)
      assert.equal(1, c:virtual_pipeline_parallel_rank())
      assert.is_false(c:is_pipeline_first_stage())
      assert.equal(stage == 0, c:is_pipeline_first_stage(true))
      assert.equal(stage == 2, c:is_pipeline_last_stage())
      c:set_virtual_pipeline_parallel_rank(0)
      assert.equal(stage == 0, c:is_pipeline_first_stage())
      assert.is_false(c:is_pipeline_last_stage())
      assert.equal(stage == 2, c:is_pipeline_last_stage(true))
    end
    local alone = new({}, 2)
    assert.is_true(alone:is_pipeline_first_stage() and alone:is_pipeline_last_stage())
  end)

  it("knows who holds the first part and the last of a V: stage 0 both, as its two chunks", function()
    for rank = 0, 2 do
      local c = new({ pipeline = 3 }, 3, rank)
      c:set_pipeline_parts({ rank + 1, 6 - rank }, 6)
      c:set_virtual_pipeline_parallel_size(2)
      local is_both = rank == 0
      assert.same({ is_both, is_both }, { c:is_pipeline_first_stage(), c:is_pipeline_last_stage() })
      for chunk = 0, 1 do
        c:set_virtual_pipeline_parallel_rank(chunk)
        assert.same({ is_both and chunk == 0, is_both and chunk == 1 },
          { c:is_pipeline_first_stage(), c:is_pipeline_last_stage() })
        assert.same({ is_both, is_both }, { c:is_pipeline_first_stage(true), c:is_pipeline_last_stage(true) })
      end
    end
  end)

  it("counts a sequence as tensor ranks where it was asked for as a tensor mode", function()
    local c = new({ tensor = { size = 2, mode = "sequence" } }, 4)
    assert.equal(2, c.tensor_parallel_size)
    assert.same({ 0, 1 }, c:get_ranks_in_group "TENSOR")
    assert.equal(1, new({ sequence = 2 }, 4).tensor_parallel_size)
  end)

  describe("groups of the user's own", function()
    local function pairs_of(name)
      return function(c)
        local groups = {}
        for rank = 0, c:get_world_size "GLOBAL" - 2, 2 do groups[#groups + 1] = { rank + 1, rank } end
        return { name = name, groups = groups }
      end
    end

    it("are asked by name", function()
      with_initializer("test-pairs", pairs_of "PAIRS", function()
        local c = new({}, 6, 4)
        assert.same({ 5, 4 }, c:get_ranks_in_group "PAIRS")
        assert.equal(1, c:get_local_rank "PAIRS")
        assert.equal(5, c:get_next_global_rank "PAIRS")
        assert.same({ { 1, 0 }, { 3, 2 }, { 5, 4 } }, c:get_groups "PAIRS")
        assert.is_true(c:is_initialized "PAIRS")
        local odd = new({}, 5, 4)
        assert.is_false(odd:is_initialized "PAIRS")
        assert.error_matches(function() odd:get_local_rank "PAIRS" end, "rank 4 is in no group of 'PAIRS'")
      end)
    end)

    local bad = {
      { { { 0, 0 } }, "rank 0 is given twice" }, { { { 0 }, { 1, 0 } }, "rank 0 is given twice" },
      { { { 4 } }, "there is no rank 4 in a world of 4" }, { { 3 }, "a group is a list of ranks; got 3" },
    }
    for _, case in ipairs(bad) do
      it("are refused: " .. case[2], function()
        with_initializer("test-bad", function() return { name = "BAD", groups = case[1] } end, function()
          assert.error_matches(function() new({}, 4):get_local_rank "BAD" end, case[2])
        end)
      end)
    end

    it("may not take the name of a mode", function()
      with_initializer("test-name", pairs_of "DATA", function()
        assert.error_matches(function() new({}, 4):get_local_rank "OTHER" end, "the name 'DATA' is taken")
      end)
    end)
  end)

  it("answers for this process without an object", function()
    assert.equal(context.get_global_rank(), context:get_local_rank "GLOBAL")
    assert.equal(context.get_world_size "GLOBAL", context.current().plan.world)
    assert.is_true(context.check_sanity())
    assert.equal(context.get_world_size "GLOBAL", context.detect_num_processes_on_current_node())
    assert.error_matches(function() new({}, 1):get_group "DATA" end, "has no groups")
  end)
end)
