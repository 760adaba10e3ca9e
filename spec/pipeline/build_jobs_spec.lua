--- Jobs of two stages whose models are written as parts with a tie made by hand, and as a config's list of layers.
-- Losses are those of one rank: in f64 only the order of sums differs, 1e-9 over 20 steps as everywhere.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local assert = require "luassert"
local job = require "spec.parallel.job"

-- A table of 256 tokens at both ends, on stages 0 and 1: PATH is the name of the head's table, or nil for its own.
local tied = [[
local gm = require "ganymede"
local nn = gm.nn
local Part = nn.class "TiedPart"
function Part:build()
  local tie = nn.PipelineSharedModuleWrapper { 0, -1 }
  self.layers = nn.Sequential()
  if gm.context.is_first_rank "PIPELINE" then
    self.layers[1], self.layers[2] = nn.Embedding(256, 16), nn.Linear(16, 16)
    tie:register_module(self.layers[1])
  end
  if gm.context.is_last_rank "PIPELINE" then
    self.layers[3], self.layers[4] = nn.Tanh(), nn.Linear(16, 16)
    self.layers[5] = nn.Classifier { inputs = 16, classes = 256, bias = false }
    tie:register_module(self.layers[5], PATH)
  end
end
function Part:forward(x) return self.layers(x) end
]]

local layers = [[
local layers = {
  { type = "Embedding", count = 256, width = 16 }, { type = "Linear", inputs = 16, outputs = 24 }, { type = "GELU" },
  { type = "Dropout", p = 0.2 }, { type = "Linear", inputs = 24, outputs = 16 },
  { type = "Classifier", inputs = 16, classes = 256 },
}
]]

local rest = [[
return {
  name = "parts", seed = 3, model = MODEL, num_microbatches = 4,
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 16, stride = 16 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1, momentum = 0.9 },
  epochs = 1, clip_grad_norm = 0.5,
}
]]

local STEPS = 20

local function run(recipe, ranks, parallel)
  return job.run(recipe, ranks, { steps = STEPS, flags = { "--no-eval" },
    set = { "dtype=f64", "parallel=" .. parallel } })
end

local function with(head, model) return head .. rest:gsub("MODEL", model) end

local function check(stats, serial)
  local worst, at = job.largest_difference(serial, stats, STEPS)
  assert.is_true(worst <= 1e-9, ("relative difference %g in step %d"):format(worst, at))
  assert.is_true(stats.loss[STEPS] < stats.loss[1])
  assert.same({ pipeline = 2 }, stats.mesh)
  for _, rank in ipairs(stats.ranks) do assert.is_true(rank.parameter_bytes < serial.ranks[1].parameter_bytes) end
end

describe("a pipeline of two #ranks", function()
  local made = "function() return Part {} end"

  it("ties by hand what its stages built, under one name or two", function()
    local serial = run(with(tied:gsub("PATH", "nil"), made), 1, "{}")
    assert.equal(8 * (256 * 16 + 2 * (16 * 16 + 16)), serial.ranks[1].parameter_bytes)
    for _, path in ipairs { "nil", '"layers.1"' } do
      check(run(with(tied:gsub("PATH", path), made), 2, "{pipeline=2}"), serial)
    end
  end)

  it("takes a config's list of layers, in chunks too", function()
    local recipe = with(layers, '{ type = "ModelFromConfig", layers_cfg = layers }')
    local serial = run(recipe, 1, "{}")
    check(run(recipe, 2, '{pipeline={size=2,chunks=2,split="uniform"}}'), serial)
  end)
end)
