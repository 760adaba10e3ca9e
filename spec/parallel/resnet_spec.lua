--- Small residual networks on several ranks train as on one: data, ZeRO, 1D tensor parallelism, stages, and blocks
-- that run again. In f64 only the order of sums differs; 4 steps of SGD make 1e-9 of that.
-- sanitizers: no, numbers of several ranks are compared; spec/golden/layers_spec.lua runs the same code on one
local gm = require "ganymede"
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"

local recipe = [[
return {
  name = "resnet", seed = 5, dtype = "f64",
  model = { type = "ResNet", depth = 18, blocks = { 1, 1 }, stem = "cifar", width = 4, channels = 1, classes = 10 },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9 },
  epochs = 1,
}
]]
local STEPS = 4

-- The eight blocks of ResNet-18, as a config's list of layers.
local listed = recipe:gsub('{ type = "ResNet".-} },', [[{ type = "ModelFromConfig", layers_cfg = {
    { type = "Conv2d", in_channels = 1, out_channels = 4, kernel_size = 3, stride = 2, padding = 1, bias = false },
    { type = "BatchNorm2d", channels = 4 }, { type = "ReLU" },
    { type = "ResidualBlock", inputs = 4, width = 4 }, { type = "ResidualBlock", inputs = 4, width = 4 },
    { type = "ResidualBlock", inputs = 4, width = 8, stride = 2 }, { type = "ResidualBlock", inputs = 8, width = 8 },
    { type = "ResidualBlock", inputs = 8, width = 8, stride = 2 }, { type = "ResidualBlock", inputs = 8, width = 8 },
    { type = "ResidualBlock", inputs = 8, width = 8, stride = 2 }, { type = "ResidualBlock", inputs = 8, width = 8 },
    { type = "AdaptiveAvgPool2d", size = 1 }, { type = "Flatten" }, { type = "Classifier", inputs = 8, classes = 10 },
  } },]])

-- A model whose code asks which stage it is on, and builds that one alone.
local asked = [[
local gm = require "ganymede"
local nn = gm.nn
local Part = nn.class "ResNetPart"
function Part:build()
  self.layers = nn.ModuleList()
  if gm.context.is_first_rank "PIPELINE" then
    self.layers:append(nn.Conv2d { in_channels = 1, out_channels = 4, kernel_size = 3, stride = 2, padding = 1 })
    self.layers:append(nn.ResidualBlock { inputs = 4, width = 4 })
  end
  if gm.context.is_last_rank "PIPELINE" then
    self.layers:append(nn.ResidualBlock { inputs = 4, width = 8, stride = 2 })
    self.layers:append(nn.AdaptiveAvgPool2d(1))
    self.layers:append(nn.Flatten())
    self.layers:append(nn.Classifier { inputs = 8, classes = 10 })
  end
end
function Part:forward(x)
  for _, layer in self.layers:each() do x = layer(x) end
  return x
end
]] .. recipe:gsub('{ type = "ResNet".-} },', "function() return Part {} end,")

describe("a residual network #ranks", function()
  local home, runs, one
  local function run(ranks, set, given)
    runs = runs + 1
    local folder = ("%s/%d"):format(home, runs)
    shell.run("mkdir " .. shell.quote(folder))
    return job.run_in(folder, given or recipe, ranks, { steps = STEPS, set = set, flags = { "--no-eval" } })
  end
  setup(function()
    home, runs = shell.temporary_folder(), 0
    one = run(1)
  end)
  teardown(function() shell.remove(home) end)

  for what, given in pairs {
    ["3 data ranks"] = { 3, {} }, ["2 ranks with ZeRO 3"] = { 2, { "zero=3" } },
    ["2 tensor ranks"] = { 2, { "parallel.tensor={size=2,mode='1d'}" } },
    ["one rank whose blocks run again"] = { 1, { "recompute={sections='2-3'}" } },
  } do
    it("trains on " .. what .. " as on one", function()
      assert.is_true(job.largest_difference(one, run(unpack(given)), STEPS) <= 1e-9)
    end)
  end

  it("trains in two stages as on one rank, with the same micro-batches", function()
    local pieces = { "num_microbatches=2", "schedule={type='PipelineSchedule',order='1f1b'}" }
    local alone = run(1, pieces)
    assert.is_true(job.largest_difference(alone, run(2, { "parallel={pipeline=2}", unpack(pieces) }), STEPS) <= 1e-9)
  end)

  for what, given in pairs { ["whose layers a config lists, in 2 and 4 stages"] = { listed, 2, 4 },
                             ["that asks for its stage"] = { asked, 2 } } do
    it("trains " .. what .. ", as on one rank with the same micro-batches", function()
      local alone = run(1, { "num_microbatches=2" }, given[1])
      for i = 2, #given do
        local stages = run(given[i], { ("parallel={pipeline=%d}"):format(given[i]), "num_microbatches=2" }, given[1])
        assert.is_true(job.largest_difference(alone, stages, STEPS) <= 1e-9)
        assert.is_true(stages.ranks[1].parameter_bytes < alone.ranks[1].parameter_bytes)
      end
    end)
  end
end)

describe("ResNet", function()
  local function parameters(options)
    local n = 0
    for _, p in ipairs(gm.models.ResNet(options):named_parameters()) do n = n + p.tensor:numel() end
    return n
  end

  it("has as many parameters as torchvision says", function()
    assert.equal(11689512, parameters { depth = 18 })
    assert.equal(25557032, parameters { depth = 50 })
  end)

  it("refuses stages without blocks", function()
    for _, blocks in ipairs { {}, { 2, 0 }, { 1.5 }, { "two" } } do
      assert.has_error(function() gm.models.ResNet { depth = 18, blocks = blocks } end)
    end
  end)
end)
