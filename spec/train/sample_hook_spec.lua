--- SampleHook draws by the averages of EMA where there are some, and writes a picture; gm.frechet_distance against a
-- closed form.
local gm = require "ganymede"
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"

local recipe = [[
local data = { type = "Synthetic", shape = { 1, 4, 4 }, length = 16 }
return {
  name = "samples", seed = 5,
  model = { type = "Diffusion", denoiser = { type = "DiT", image_size = 4, channels = 1, width = 8, depth = 1,
    heads = 2 } },
  data = { train = data, test = data, batch_size = 8 },
  loss = { type = "DiffusionLoss" },
  optimizer = { type = "SGD", lr = 0.5 },
  epochs = 1,
  hooks = { EMA { type = "SampleHook", shape = { 1, 4, 4 }, count = 6, columns = 3, steps = 3, size = 16,
    measure = function(x) return { mean = x:mean():item() } end } },
}
]]

describe("SampleHook", function()
  local home
  setup(function() home = shell.temporary_folder() end)
  teardown(function() shell.remove(home) end)

  local function mean_with(name, ema)
    local folder = home .. "/" .. name
    shell.run("mkdir " .. shell.quote(folder))
    job.run_in(folder, job.changed(recipe, { "EMA", ema }), 1, { flags = { "--out", "run" } })
    local picture = io.open(folder .. "/run/samples-00000002.png", "rb")
    assert.equal("\137PNG\r\n", picture:read(6))
    picture:seek("set", 16)
    local sides = { picture:read(8):byte(1, 8) } -- width and height, four bytes each
    picture:close()
    assert.is_true(sides[4] > 3 * 16 and sides[8] < sides[4]) -- three beside each other, two rows
    return shell.read(folder .. "/run/metrics.jsonl"):match '"mean":%s*([-%d.e+]+)'
  end

  it("writes what the averages draw, or without averages what the weights do", function()
    local own = mean_with("own", "")
    assert.is_not_nil(own)
    assert.equal(own, mean_with("same", [[{ type = "EMA", decay = 0 },]])) -- averages that are the weights
    assert.not_equal(own, mean_with("other", [[{ type = "EMA", decay = 0.99 },]]))
  end)

  it("refuses models that cannot draw", function()
    local engine = gm.Engine { model = gm.nn.Linear(1, 1), criterion = "MSELoss",
      optimizer = { type = "SGD", lr = 0.5 } }
    local hook = gm.hooks.SampleHook { shape = { 1, 4, 4 } }
    assert.error_matches(function() hook:after_hook_is_attached { engine = engine } end, "no method sample")
  end)

  it("refuses before training what would end the first evaluation", function()
    local function attached(opt, model)
      model.type = "UNet"
      local engine = gm.Engine { criterion = "DiffusionLoss", optimizer = { type = "SGD", lr = 0.5 },
        model = gm.models.Diffusion { process = { steps = 10 }, denoiser = model } }
      opt.shape, opt.steps = opt.shape or { 1, 4, 4 }, opt.steps or 10
      gm.hooks.SampleHook(opt):after_hook_is_attached { engine = engine }
    end
    local function unet(more)
      local model = { channels = 1, width = 4, multipliers = { 1 }, groups = 2, heads = 2 }
      for key, value in pairs(more or {}) do model[key] = value end
      return model
    end
    attached({}, unet())
    local wrong = {
      { "shape is { channels, height, width }", { shape = { 4, 4 } } },
      { "shape has 3 channels, and UNet 1", { shape = { 3, 4, 4 } } },
      { "pictures have 1 or 3 channels, not 2", { shape = { 2, 4, 4 } }, { channels = 2 } },
      { "needs a context", {}, { context = 4 } },
      { "guidance needs a model of classes", { guidance = 2 } },
      { "drop above 0", { guidance = 2 }, { classes = 3 } },
      { "steps = 20, and the process has 10 times", { steps = 20 } },
      { "low below high", { clip = { 1, 0 } } },
      { "at most 256", { columns = 300 } },
    }
    for _, case in ipairs(wrong) do
      assert.error_matches(function() attached(case[2], unet(case[3])) end, case[1])
    end
  end)
end)

describe("gm.frechet_distance", function()
  it("is the closed form of two dimensions", function()
    local a = gm.normal({ 50, 2 }, { dtype = "f64", seed = 1 })
    local b = gm.ops.matmul(gm.normal({ 40, 2 }, { dtype = "f64", seed = 2 }),
      gm.tensor({ { 2, 0.7 }, { -0.3, 0.5 } }, { dtype = "f64" })) + 0.4
    local function moments(x)
      local n, rows = x:size(1), x:totable()
      local m, c = { 0, 0 }, { 0, 0, 0 } -- c: the covariance (1,1), (1,2), (2,2)
      for _, row in ipairs(rows) do m[1], m[2] = m[1] + row[1] / n, m[2] + row[2] / n end
      for _, row in ipairs(rows) do
        local p, q = row[1] - m[1], row[2] - m[2]
        c[1], c[2], c[3] = c[1] + p * p / (n - 1), c[2] + p * q / (n - 1), c[3] + q * q / (n - 1)
      end
      return m, c
    end
    local m, c = moments(a)
    local k, d = moments(b)
    local trace = c[1] * d[1] + 2 * c[2] * d[2] + c[3] * d[3] -- of the product of both
    local det = (c[1] * c[3] - c[2] ^ 2) * (d[1] * d[3] - d[2] ^ 2)
    local wanted = (m[1] - k[1]) ^ 2 + (m[2] - k[2]) ^ 2 + c[1] + c[3] + d[1] + d[3]
      - 2 * math.sqrt(trace + 2 * math.sqrt(det))
    assert.near(wanted, gm.frechet_distance(a, b), 1e-9)
    assert.near(0, gm.frechet_distance(a, a), 1e-9)
    local flat = gm.ops.cat({ a, a }, 2) -- singular covariances
    assert.near(0, gm.frechet_distance(flat, flat), 1e-5)
    assert.error_matches(function() gm.frechet_distance(a, flat) end, "%(n, d%) and %(m, d%)")
  end)

  it("is right where there are fewer samples than features, or features that never change", function()
    local function normal(rows, columns, seed) return gm.normal({ rows, columns }, { dtype = "f64", seed = seed }) end
    for _, shape in ipairs { { 4, 30 }, { 50, 64 }, { 64, 64 }, { 100, 96 } } do
      local a = normal(shape[1], shape[2], 1)
      local mean = a:mean(1)
      local spread = ((a - mean):square():sum() / (shape[1] - 1)):item()
      local wanted = mean:square():sum():item() + spread -- of a and 2 a: deviations differ by those of a
      assert.near(wanted, gm.frechet_distance(a, a * 2), 1e-8 * wanted)
    end
    local still = gm.zeros({ 200, 8 }, { dtype = "f64" })
    local a, b, c = normal(200, 3, 1), normal(200, 3, 2), normal(200, 8, 3)
    local wanted = gm.frechet_distance(a, b)
    assert.near(wanted, gm.frechet_distance(gm.ops.cat({ a, still }, 2), gm.ops.cat({ b, still }, 2)), 1e-9)
    local more = gm.frechet_distance(gm.ops.cat({ a, c }, 2), gm.ops.cat({ a, still }, 2))
    assert.is_true(more > 7 and more < 9, more .. "") -- eight deviations of 1 besides, and what a and c have in common
  end)
end)
