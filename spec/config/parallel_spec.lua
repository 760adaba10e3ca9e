--- The table `parallel` against a number of ranks; sizes are compared with rank maps written out by hand.
local parallel = require "ganymede.job.parallel"

local function sizes(given, world)
  local plan = assert(parallel.resolve(given, world))
  local axes = {}
  for _, axis in ipairs(plan.axes) do axes[#axes + 1] = axis[1] .. "=" .. axis[2] end
  return table.concat(axes, " "), plan
end

describe("parallel.resolve", function()
  local good = {
    { nil, 1, "" }, { {}, 1, "" }, { {}, 4, "data=4" }, { { data = "auto" }, 6, "data=6" },
    { { data = { size = "auto" }, pipeline = 2 }, 6, "data=3 pipeline=2" },
    { { data = 2, pipeline = { size = 2 }, tensor = { size = 4, mode = "2d" } }, 16, "data=2 pipeline=2 row=2 col=2" },
    { { tensor = { size = 3, mode = "1d" } }, 6, "data=2 tensor=3" },
    { { tensor = { size = 9, mode = "2d" } }, 9, "row=3 col=3" },
    { { tensor = { size = 8, mode = "2.5d", depth = 2 } }, 8, "depth=2 row=2 col=2" },
    { { tensor = { size = 27, mode = "2.5d", depth = 3 } }, 27, "depth=3 row=3 col=3" },
    { { tensor = { size = 27, mode = "3d" } }, 27, "output=3 input=3 weight=3" },
    { { sequence = { size = 4, mode = "ulysses" } }, 8, "data=2 sequence=4" },
    { { tensor = { size = 4, mode = "sequence" } }, 8, "data=2 sequence=4" },
    { { expert = 2 }, 4, "data=2 expert=2" }, { { expert = { size = 4 }, data = 4 }, 4, "expert=4" },
    { { expert = 2, pipeline = 2, tensor = { size = 2, mode = "1d" } }, 16, "data=2 expert=2 pipeline=2 tensor=2" },
    { { tensor = 1 }, 2, "data=2" }, { { tensor = { size = 1, mode = "2d" } }, 1, "" },
  }
  for _, case in ipairs(good) do
    it(("gives %d ranks the axes '%s'"):format(case[2], case[3]), function()
      assert.equal(case[3], (sizes(case[1], case[2])))
    end)
  end

  it("makes tensor mode sequence a ring", function()
    local _, plan = sizes({ tensor = { size = 2, mode = "sequence" } }, 2)
    assert.same({ size = 2, mode = "ring" }, plan.sequence)
    assert.equal(1, plan.tensor.size)
  end)

  local bad = {
    { "auto", 2, "parallel: 'auto' is planned for recipes" }, { 4, 4, "parallel: must be a table" },
    { { tensor = 4 }, 4, "parallel.tensor: size 4 needs a mode: one of 1d, 2d, 2.5d, 3d, sequence" },
    { { tensor = { size = 6, mode = "2d" } }, 6, "needs a square size (q * q), got 6; legal sizes: 1, 4, 9, 16" },
    { { tensor = { size = 9, mode = "3d" } }, 9, "legal sizes: 1, 8, 27, 64" },
    { { tensor = { size = 8, mode = "2.5d" } }, 8, "mode 2.5d needs a depth: size = depth * q * q; "
      .. "legal depths for size 8: 2 (q = 2), 8 (q = 1)" },
    { { tensor = { size = 8, mode = "2.5d", depth = 1 } }, 8, "8 with depth 1 is not" },
    { { tensor = { size = 8, mode = "2.5d", depth = 2.5 } }, 8, "parallel.tensor.depth: must be an integer" },
    { { tensor = { size = 4, mode = "2d", depth = 2 } }, 4, "depth: belongs to mode 2.5d" },
    { { tensor = { size = 4, mode = "2D" } }, 4, "did you mean '2d'?" },
    { { tensor = { sise = 4 } }, 4, "did you mean 'size'?" }, { { tenser = 4 }, 4, "did you mean 'tensor'?" },
    { { data = 3 }, 4, "parallel.data: size 3 times 1" }, { { pipeline = 3 }, 4, "do not divide the 4 ranks of this "
      .. "job; start 3 ranks, or a multiple of that, or choose sizes whose product is one of 1, 2, 4" },
    { { pipeline = 7 }, 2 ^ 6 * 9, "product is one of 1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, ..." },
    { { pipeline = 2 }, 1, "do not divide the 1 rank of this job; start 2 ranks" },
    { { expert = 3 }, 4, "does not divide the 4 data ranks" },
    { { expert = 2, pipeline = 2 }, 2, "does not divide the 1 data rank it is a part of (the job has 2 ranks, and "
      .. "pipeline * sequence * tensor = 2); start 4 ranks, or a multiple of that" },
    { { data = 0 }, 1, "at most 1048576; got 0" },
    { { pipeline = -1 }, 1, "parallel.pipeline: size must be an integer" }, { { tensor = 0 / 0 }, 1, "got nan" },
    { { sequence = 1e300 }, 1, "parallel.sequence: size must be" },
    { { pipeline = { chunks = 0 } }, 1, "parallel.pipeline.chunks: must be an integer, at least 1" },
    { { pipeline = { split = "uniforn" } }, 1, "did you mean 'uniform'?" },
    { { pipeline = { split = { 2, 0 } } }, 1, "[2] must be a number of sections, at least 1; got 0" },
    { { pipeline = { split = {} } }, 1, "must be a list with the number of sections" },
    { { pipeline = { split = { first = 2 } } }, 1, "must be a list with the number of sections" },
    { { pipeline = { size = 2, chunks = 2, split = { 3, 4 } } }, 2, "has 2 numbers for 4 parts (2 stages of 2 " },
    { { pipeline = "auto" }, 1, "cannot be 'auto' alone" },
    { { sequence = { size = 2, mode = "rings" } }, 2, "did you mean 'ring'?" }, { { tensor = 2.5 }, 5, "got 2.5" },
    { { sequence = 2, tensor = { size = 2, mode = "sequence" } }, 4, "parallel.sequence is given too" },
  }
  for i, case in ipairs(bad) do
    it(("refuses %d: %s"):format(i, case[3]), function()
      local plan, message = parallel.resolve(case[1], case[2])
      assert.is_nil(plan)
      assert.is_truthy(message:find(case[3], 1, true), message)
    end)
  end

  it("settles how a model is cut into stages", function()
    local function cut(given)
      local _, plan = sizes({ pipeline = given }, 4)
      return { plan.pipeline, plan.chunks or "schedule's", plan.split }
    end
    assert.same({ 1, "schedule's", "parameters" }, cut(nil))
    assert.same({ 2, "schedule's", "parameters" }, cut(2))
    assert.same({ 2, 3, "flops" }, cut { size = 2, chunks = 3, split = "flops" })
    assert.same({ 4, "schedule's", { 2, 1, 1, 7 } }, cut { size = 4, split = { 2, 1, 1, 7 } })
    for word, ours in pairs { balanced = "parameters", parameter = "parameters", layer = "uniform" } do
      assert.equal(ours, cut({ split = word })[3]) -- Colossal-AI's words
    end
  end)

  it("leaves the given table alone", function()
    local given = { tensor = { size = 2, mode = "sequence" }, data = "auto" }
    parallel.resolve(given, 2)
    assert.same({ tensor = { size = 2, mode = "sequence" }, data = "auto" }, given)
  end)
end)
