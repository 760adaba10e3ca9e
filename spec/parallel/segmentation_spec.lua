--- Segmentation U-Nets whose volumes ranks share train as on one rank: 2 to 4 ranks, uneven depths, data ranks beside,
-- ZeRO 3, levels that run again in backward, stages; IoU is that of whole volumes, and check knows what is sent.
--
-- In f64 only the order of sums differs; 3 steps of SGD make 1e-9 of that. A depth of 12 has 3 rows on the third level:
-- of 4 ranks one has none there. Batch norms take the whole batch.
-- sanitizers: no, numbers of several ranks are compared; spec/layout/halo_spec.lua looks at the same code
local gm = require "ganymede"
local job = require "spec.parallel.job"
local full = require "spec.support.full"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local recipe = [[
local gm = require "ganymede"
local function volume(i)
  local x = gm.uniform({ 12, 8, 4 }, { low = -1, high = 1, seed = i, dtype = "f64" })
  return x:reshape(1, 12, 8, 4), gm.ops.cast(gm.ops.gt(x, 0.3), "i64")
end
return {
  name = "volumes", seed = 3, dtype = "f64",
  model = { type = "SegmentationUNet", width = 2, levels = 3, classes = 3 },
  data = { train = { length = 9, get = volume }, test = { length = 3, get = volume }, batch_size = 3 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.2, momentum = 0.9 }, epochs = 1,
  metrics = { { type = "IoU", average = "none" }, { type = "IoU", name = "mean_iou" } },
}
]]
local STEPS, LIMIT = 3, 1e-9

local ways = {
  { "2 ranks", 2, { "parallel.sequence=2" }, full = true },
  { "4 ranks", 4, { "parallel.sequence=4" } },
  { "3 ranks, norms of each image", 3, { "parallel.sequence=3", "model.norm=instance" }, { "model.norm=instance" } },
  { "2 ranks beside 2 of data, the overlap of classes as loss", 4,
    { "parallel={sequence=2,data=2}", "loss={type='DiceLoss',background=false}", "gradient_accumulation=2" },
    { "loss={type='DiceLoss',background=false}", "gradient_accumulation=2" } },
  { "2 ranks beside 2 of data, ZeRO 3, levels that run again", 4,
    { "parallel={sequence=2,data=2}", "zero={stage=3,whole_below=0}", "recompute={sections='1-2, 4'}" } },
  { "2 stages of 2 ranks", 4,
    { "parallel={sequence=2,pipeline=2}", "num_microbatches=3", "model.norm=instance",
      "schedule={type='PipelineSchedule',order='1f1b'}" }, { "model.norm=instance" }, full = true },
  { "2 ranks of 1D, which share sequences", 2, { "parallel={tensor={size=2,mode='1d',sequence=true}}" }, full = true },
}

describe("segmentation #ranks", function()
  local function run(ranks, set)
    return job.run(recipe, ranks, { steps = STEPS, set = set })
  end

  for _, way in ipairs(ways) do
    local name = "of volumes that ranks share is that of one rank: " .. way[1]
    if full or not way.full then
      it(name, function()
        local one, many = run(1, way[4]), run(way[2], way[3])
        assert.is_true(job.largest_difference(one, many, STEPS) <= LIMIT)
        assert.near(one.metrics.test.mean_iou, many.metrics.test.mean_iou, LIMIT)
        assert.is_true(job.traffic(many, { op = "send", phase = "forward" }) > 0)
      end)
    end
  end
end)

-- What one rank sent of halos in a phase: a sum of the entries of a list.
local function halos(entries, phase, field)
  local sum = 0
  for _, entry in ipairs(entries) do
    if entry.op == "send" and entry.phase == phase then sum = sum + entry[field] end
  end
  return sum
end

describe("check and simulate #ranks", function()
  local home
  setup(function() home = shell.temporary_folder() end)
  teardown(function() shell.remove(home) end)

  it("know what each rank sends of volumes that ranks share", function()
    local set = { "--set", "parallel.sequence=3", "-n", "3" }
    local stats = job.run_in(home, recipe, 3, { steps = 1, set = { "parallel.sequence=3" }, flags = { "--no-eval" } })
    for rank = 0, 2 do
      local words = { "check", "recipe.lua", "--json", "--rank", tostring(rank), unpack(set) }
      local result = run_host(words, { cwd = home })
      assert.equal(0, result.code, result.err)
      local checked = json.decode(result.out)
      for _, phase in ipairs { "forward", "backward" } do
        local counted = halos(stats.ranks[rank + 1].comm, phase, "bytes_logical")
        assert.is_true(counted > 0)
        assert.equal(counted, halos(checked.sent, phase, "bytes"), phase .. " of rank " .. rank)
      end
    end
    local result = run_host({ "simulate", "recipe.lua", "--set", "dtype=f32", "--machine", "dgx_h100", unpack(set) },
      { cwd = home })
    assert.equal(0, result.code, result.err)
  end)
end)

describe("SegmentationUNet", function()
  it("has the parameters of its convolutions and norms", function()
    local function level(i, o, k) return k * (i * o + o * o) + 4 * o end
    local model = gm.models.SegmentationUNet { dimensions = 2, channels = 3, classes = 5, width = 4, levels = 2 }
    local larger, head = 8 * 4 * 4 + 4, 4 * 5 + 5
    assert.equal(level(3, 4, 9) + level(4, 8, 9) + larger + level(8, 4, 9) + head, model:count())
  end)

  it("refuses sizes that it cannot halve", function()
    local model = gm.models.SegmentationUNet { width = 2, levels = 3 }
    assert.error_matches(function() model(gm.zeros { 1, 1, 4, 6, 4 }) end,
      "x must be (batch, 1, depth, height, width), sizes multiples of 4; got (1, 1, 4, 6, 4)", 1, true)
  end)
end)
