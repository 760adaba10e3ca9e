--- Pipelines together with every other axis: data, tensor, sequence and expert, on 4 and 8 ranks.
--
-- spec/parallel/pipelines.lua has models, limits, and what each run must show: its mesh, the parameters of its parts
-- and no others, messages along every axis. What crosses a border is one tensor (b, s, h): per micro-batch M h numbers
-- each way, of which each rank that has a slice sends that slice. The first message of each kind of micro-batch has a
-- header in front, of some hundred bytes; it is all that may be sent besides.
-- sanitizers: no, numbers of several ranks are compared; spec/unit and spec/pipeline look at the same code
local assert = require "luassert"
local job = require "spec.parallel.job"
local pipelines = require "spec.parallel.pipelines"

local WIDTH, SEQUENCE, TABLE = 24, 30, 261 * 24

local function tensor(mode, size, more) return ('tensor={size=%d,mode="%s"%s}'):format(size, mode, more or "") end

-- Two stages need four sections; 16 samples in 4 pieces of 4 leave nothing to pad, so that bytes are those of the
-- formula.
local short = { "model.depth=2" }
local even = { "model.depth=2", "data.batch_size=16", "data.drop_last=true" }

-- Bytes that all ranks together send over borders in a phase.
local function over_borders(stats, phase)
  return job.traffic(stats, { op = "send", axes = "pipeline", phase = phase })
end

-- Each border of `borders` is crossed by every sample of every step, `times` times each way, and by headers.
local function check_borders(stats, borders, times)
  local payload = stats.steps * stats.global_batch * SEQUENCE * WIDTH * 8 * borders * (times or 1)
  local forward, backward = over_borders(stats, "forward"), over_borders(stats, "backward")
  local headers = #stats.ranks * 2048
  assert.is_true(forward >= payload and forward <= payload + headers, ("%d and %d"):format(forward, payload))
  assert.is_true(backward >= payload and backward <= payload + headers, ("%d and %d"):format(backward, payload))
end

-- Sums of what is sent along an axis, by op, in both passes.
local function by_op(stats, axes)
  local sums = {}
  for _, rank in ipairs(stats.ranks) do
    for _, entry in ipairs(rank.comm) do
      local is_pass = entry.phase == "forward" or entry.phase == "backward"
      if is_pass and table.concat(entry.axes, ".") == axes and entry.bytes_logical > 0 then
        local key = entry.op .. " " .. entry.phase
        sums[key] = (sums[key] or 0) + entry.bytes_logical
      end
    end
  end
  return sums
end

-- Cut sequences cross borders as they are: along `sequence` is sent what the same training sends without stages.
local function crosses_as_it_is(stats)
  check_borders(stats, 1)
  local whole = pipelines.run({ model = "gpt", set = even }, #stats.loss,
    { parallel = "{data=2,sequence=2}", ranks = 4 })
  local sent = by_op(stats, "sequence")
  assert.is_true(next(sent) ~= nil)
  assert.same(by_op(whole, "sequence"), sent)
end

-- Parameters of a run in a tensor mode are compared with those of the mode alone.
local function beside(parallel, ranks) return { parallel = "{" .. parallel .. "}", ranks = ranks } end

local function on_all_ranks(stats, match)
  for _, rank in ipairs(stats.ranks) do assert.is_true(job.traffic({ ranks = { rank } }, match) > 0) end
end

-- In 1D the table is cut along its width, on sequence and expert ranks it is whole: `copies` numbers more on the last
-- stage, which has it for its head.
describe("pipelines and other axes #ranks", function()
  pipelines.examples(it, {
    { model = "gpt", order = "1f1b", parallel = "{data=2,pipeline=2," .. tensor("1d", 2) .. "}", set = short,
      mesh = { data = 2, pipeline = 2, tensor = 2 }, without = beside(tensor("1d", 2), 2) },
    { model = "vit", order = "1f1b", parallel = "{pipeline=2," .. tensor("2d", 4) .. "}", set = short,
      mesh = { pipeline = 2, row = 2, col = 2 }, without = beside(tensor("2d", 4), 4) },
    { model = "moe", order = "1f1b", parallel = "{data=4,expert=2,pipeline=2}", copies = 2 * TABLE,
      mesh = { data = 2, expert = 2, pipeline = 2 }, without = beside("expert=2", 2),
      set = { "model.depth=4", "data.batch_size=16", "data.drop_last=true" },
      looks = function(stats)
        check_borders(stats, 1)
        -- there are experts on both stages
        on_all_ranks(stats, { op = "all_to_all_rows", phase = "forward", axes = "expert" })
        on_all_ranks(stats, { op = "all_to_all_rows", phase = "backward", axes = "expert" })
      end },
    { model = "gpt", order = "1f1b", parallel = "{data=2,pipeline=2,sequence=2}", set = even,
      mesh = { data = 2, pipeline = 2, sequence = 2 }, copies = 2 * TABLE, without = beside("sequence=2", 2),
      looks = crosses_as_it_is },
    { model = "gpt", order = "zb-h1", parallel = "{data=2,pipeline=2}", mesh = { data = 2, pipeline = 2 },
      set = short },
    -- many small buckets: gradients are summed while other tapes still run
    { model = "gpt", order = "zb-v", parallel = "{data={size=2,bucket_mb=0.01},pipeline={size=2,chunks=2}}",
      mesh = { data = 2, pipeline = 2 }, set = even, looks = function(stats) check_borders(stats, 2) end },
    { model = "gpt", order = "interleaved", parallel = "{pipeline={size=2,chunks=2}," .. tensor("1d", 2) .. "}",
      mesh = { pipeline = 2, tensor = 2 }, set = short, without = beside(tensor("1d", 2), 2) },
    { model = "gpt", order = "1f1b", parallel = "{pipeline=2," .. tensor("1d", 2, ",sequence=true") .. "}",
      mesh = { pipeline = 2, tensor = 2 }, set = even, without = beside(tensor("1d", 2, ",sequence=true"), 2),
      looks = function(stats) check_borders(stats, 1) end },
    { model = "gpt", order = "zb-h1", parallel = "{pipeline=2}", mesh = { pipeline = 2 },
      set = { "model.depth=2", "gradient_accumulation=2" } },
    { model = "moe", order = "zb-h1", parallel = "{data=2,expert=2,pipeline=2}", copies = 2 * TABLE,
      mesh = { expert = 2, pipeline = 2 }, without = beside("expert=2", 2),
      set = { "model.depth=4",
              'model.moe={experts=4,every=2,router={type="SigmoidRouter",k=2,bias_step=0.01,z=0.02}}' } },
  })

  -- On 1D ranks what crosses is a copy on each: with scatter each sends half, without each sends all.
  it("borders in slices or whole give the same bits: half the bytes cross, the halves are gathered", function()
    local case = { model = "gpt", parallel = "{pipeline=2," .. tensor("1d", 2) .. "}",
                   mesh = { pipeline = 2, tensor = 2 }, set = even }
    local function run(scatter)
      local given = { set = { ('schedule={type="PipelineSchedule",scatter_gather=%s}'):format(scatter), unpack(even) } }
      for key, value in pairs(case) do given[key] = given[key] or value end
      return pipelines.run(given, 5)
    end
    local slices, whole = run "true", run "false"
    assert.same(whole.loss, slices.loss)
    assert.equal(5, #slices.loss)
    check_borders(slices, 1)
    check_borders(whole, 1, 2)
    -- each of a pair gathers the other's half: as much again as crossed, forward and backward
    local function gathered(stats, phase)
      return job.traffic(stats, { op = "all_gather", axes = "tensor", phase = phase })
    end
    local payload = 5 * 16 * SEQUENCE * WIDTH * 8
    for _, phase in ipairs { "forward", "backward" } do
      assert.equal(payload, gathered(slices, phase) - gathered(whole, phase))
    end
  end)

  it("evaluates as one rank does, a piece at a time", function()
    local set = { "dtype=f64", "test_interval=1", "model.depth=2", 'hooks={{type="LossHook"},{type="AccuracyHook"}}',
      ('data.test={type="Text",path="/usr/share/common-licenses/GPL-3",split="test",sequence_length=%d}')
        :format(SEQUENCE) }
    local function metrics(ranks, ...)
      local stats = job.run(pipelines.recipes.gpt, ranks, { steps = 3, set = { ..., unpack(set) } })
      return assert(stats.metrics.test), assert(stats.metrics.train)
    end
    local want_test, want_train = metrics(1, "parallel={}", "num_microbatches=1", "schedule=NonPipelineSchedule")
    for _, parallel in ipairs { "{data=2,pipeline=2}", "{pipeline=2," .. tensor("1d", 2) .. "}" } do
      local test, train = metrics(4, "parallel=" .. parallel)
      assert.equal(want_test.accuracy, test.accuracy)
      assert.equal(want_train.accuracy, train.accuracy)
      assert.is_true(math.abs(test.loss - want_test.loss) <= 1e-12 * want_test.loss)
      assert.is_true(test.accuracy > 0 and test.accuracy < 1)
    end
  end)

  pipelines.examples(it, {
    { model = "gpt", order = "zb-v", parallel = "{data=2,pipeline={size=4,chunks=2}}",
      mesh = { data = 2, pipeline = 4 } },
    { model = "gpt", order = "zb-h2", parallel = "{data=2,pipeline=4}", mesh = { data = 2, pipeline = 4 } },
    { model = "gpt", order = "zb-h1", parallel = "{pipeline=2," .. tensor("2d", 4) .. "}", set = short,
      mesh = { pipeline = 2, row = 2, col = 2 }, without = beside(tensor("2d", 4), 4) },
    { model = "gpt", order = "1f1b", parallel = '{data=2,pipeline=2,sequence={size=2,mode="ulysses"}}', set = even,
      mesh = { data = 2, pipeline = 2, sequence = 2 }, copies = 2 * TABLE,
      without = beside('sequence={size=2,mode="ulysses"}', 2), looks = function(stats) check_borders(stats, 1) end },
    { model = "moe", order = "interleaved",
      parallel = "{expert=2,pipeline={size=2,chunks=2}," .. tensor("1d", 2) .. "}",
      mesh = { expert = 2, pipeline = 2, tensor = 2 }, copies = 2 * TABLE,
      without = beside("expert=2," .. tensor("1d", 2), 4) },
    { model = "bert", order = "1f1b", parallel = "{data=2,pipeline=2,sequence=2}", copies = 2 * TABLE,
      mesh = { data = 2, pipeline = 2, sequence = 2 }, without = beside("sequence=2", 2) },
    { model = "bert", order = "zb-v", parallel = "{pipeline={size=2,chunks=2}," .. tensor("1d", 2) .. "}",
      mesh = { pipeline = 2, tensor = 2 }, without = beside(tensor("1d", 2), 2) },
    { model = "moe", order = "zb-v", parallel = "{data=4,expert=2,pipeline={size=2,chunks=2}}",
      mesh = { data = 2, expert = 2, pipeline = 2 }, without = beside("expert=2", 2) },
    { model = "vit", order = "interleaved", parallel = "{pipeline={size=2,chunks=2},"
      .. tensor("2.5d", 4, ",depth=1") .. "}", mesh = { pipeline = 2, row = 2, col = 2 },
      without = beside(tensor("2.5d", 4, ",depth=1"), 4) },
  }, "slow")
end)
