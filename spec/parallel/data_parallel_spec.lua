--- What data parallelism sends, and who reduces: buckets, handlers, parameters without a gradient, norms.
-- sanitizers: no, numbers of several ranks are compared; spec/unit and spec/train look at the same code
local job = require "spec.parallel.job"
local sums = require "spec.support.sums"

-- 784 -> 64 -> 10 in f32: 50,890 parameters, of which 2 and 4 ranks own equal slices in every bucket, or not.
local mlp = [[
return {
  name = "mlp", seed = 2,
  model = { type = "MLP", inputs = 784, hidden = { 64 }, classes = 10 },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 30 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9 },
  epochs = 1,
}
]]
local large, small = 4 * 784 * 64, 4 * (64 + 64 * 10 + 10)
local gradient_bytes = large + small

-- A recipe in code: two parameters that no loss touches, a norm of one's choice, handlers of one's choice.
local in_code = [[
local gm = require "ganymede"
local settings = gm.launch { steps = 6, seed = 4, dtype = "f64", parallel = { data = "auto" } }
local nn = gm.nn
local Model = gm.nn.class("Model", nil)
Model.options = {}
function Model:build()
  self.used = nn.Linear { inputs = 16, outputs = 10 }
  self.unused = nn.Linear { inputs = 16, outputs = 3 }
end
function Model:forward(x) return self.used(x) end
local points = { type = "Synthetic", length = 60, shape = { 16 } }
local train = gm.data.loader { dataset = points, batch_size = 10, seed = 4 }
local engine, loader = gm.initialize {
  model = Model {}, optimizer = { type = "SGD", lr = 0.5 }, criterion = { type = "CrossEntropyLoss" },
  train_dataloader = train, %s
}
for x, y in loader:batches() do
  engine:zero_grad()
  local loss = engine:criterion(engine(x), y)
  engine:backward(loss)
  engine:step()
end
]]

describe("data parallelism #ranks", function()
  it("sends 2 (p - 1) / p of the gradient's bytes a step and a rank, and small buckets in one round", function()
    for _, case in ipairs { { 2, 25 }, { 4, 0.01 }, { 3, 0.05 } } do
      local p, bucket_mb = case[1], case[2]
      local stats = job.run(mlp, p, { steps = 5, set = { "parallel.data.bucket_mb=" .. bucket_mb } })
      local sent = job.traffic(stats, { op = "all_reduce", phase = "backward", axes = "data" })
      local apart = bucket_mb < 1 and sums.sent(p, large) + sums.sent(p, small) -- a bucket of the large one alone
      assert.equal(5 * (apart or sums.sent(p, gradient_bytes)), sent)
      assert.equal(gradient_bytes, stats.ranks[1].gradient_bytes)
    end
  end)

  it("has the same bits with and without overlap", function()
    local overlapped = job.run(mlp, 2, { steps = 5, set = { "parallel.data.bucket_mb=0.05" } })
    local set = { "parallel.data.bucket_mb=0.05", "parallel.data.overlap=false" }
    assert.same(overlapped.loss, job.run(mlp, 2, { steps = 5, set = set }).loss)
  end)

  it("reduces unused parameters as zeros and says which they are", function()
    local one, three = job.run(in_code:format "", 1), job.run(in_code:format "", 3)
    assert.is_true(job.largest_difference(one, three, 6) <= 1e-12)
    assert.truthy(three.err:find("unused.weight", 1, true), three.err)
  end)

  it("clips by each norm as one rank does", function()
    for _, norm in ipairs { "1", "2", "3", "math.huge" } do
      local recipe = in_code:format(("clip_grad_norm = 0.01, norm_type = %s,"):format(norm))
      local one, three = job.run(recipe, 1), job.run(recipe, 3)
      assert.is_true(job.largest_difference(one, three, 6) <= 1e-12, "norm " .. norm)
    end
  end)

  it("leaves the reduction to the handlers that are given, and to them alone", function()
    local handled = in_code:format 'gradient_handler = { { type = "DataParallelGradientHandler" } },'
    local one, three = job.run(in_code:format "", 1), job.run(handled, 3)
    assert.is_true(job.largest_difference(one, three, 6) <= 1e-12)
    local p, bytes = 3, 8 * (16 * 10 + 10 + 16 * 3 + 3)
    local sent = job.traffic(three, { op = "all_reduce", axes = "data", phase = "update" })
      + job.traffic(three, { op = "all_reduce", axes = "data", phase = "backward" })
    local once = 6 * sums.sent(p, bytes)
    assert.is_true(sent >= once and sent < 1.2 * once, "reduced once: " .. sent)
    local none = job.run(in_code:format 'gradient_handler = { { handle_gradient = function() end } },', 3, { code = 1 })
    assert.truthy(none.err:find("still to be summed over data", 1, true), none.err) -- nobody else did it
  end)
end)
