--- The context of a running job: its groups communicate, and are the ones that the sizes say.
-- ranks: 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local comm = require "ganymede.core"
local context = require "ganymede.job.context"
local gm = require "ganymede"
local registry = require "ganymede.base.registry"

-- The sum of the members' ranks, by a collective over a group.
local function summed(group)
  local t = gm.tensor({ comm.rank() }, { dtype = "f64" })
  comm.comm_all_reduce(t, group, "sum")
  return t:get(1)
end

local function sum_of(list)
  local sum = 0
  for _, rank in ipairs(list) do sum = sum + rank end
  return sum
end

describe("the live context", function()
  it("has groups that reach their ranks and nobody else", function()
    for _, given in ipairs {
      { parallel = {} }, { parallel = { tensor = { size = 4, mode = "2d" } } },
      { parallel = { pipeline = 2, tensor = { size = 2, mode = "1d" } } }, { parallel = { expert = 2 } },
    } do
      context.load_config(given)
      assert.is_true(context.check_sanity())
      assert.equal(given, context.config)
      for _, mode in ipairs { "GLOBAL", "DATA", "MODEL", "TENSOR", "PIPELINE", "MOE_EP", "data", "col" } do
        local ranks = context.get_ranks_in_group(mode)
        assert.equal(sum_of(ranks), summed(context.get_group(mode)), mode)
        assert.equal(comm.rank(), ranks[context.get_local_rank(mode) + 1])
        assert.same(ranks, comm.comm_group_info(context.get_group(mode)).ranks)
      end
    end
  end)

  it("has groups of the user's own", function()
    registry.group_initializers:register("spec-ends", function(c)
      local last = c:get_world_size "GLOBAL" - 1
      return { name = "ENDS", groups = { { last, 0 }, { 1, 2 } } }
    end)
    finally(function() registry.group_initializers.classes["spec-ends"] = nil end)
    context.load_config { parallel = {} }
    assert.equal(3, summed(context.get_group "ENDS"))
    assert.equal(({ [0] = 1, 0, 1, 0 })[comm.rank()], context.get_local_rank "ENDS")
  end)

  it("counts the ranks of this machine", function()
    context.load_config { parallel = {} }
    assert.equal(4, context.detect_num_processes_on_current_node())
    assert.equal(comm.device().name, context.set_device(0))
    assert.error_matches(function() context.set_device(1) end, "there is no device 1")
  end)

  it("seeds all modes with one seed", function()
    context.set_seed(77)
    assert.same({ seed = 77 }, context.get_seeds())
  end)
end)
