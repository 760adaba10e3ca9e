--- Diffusion processes and samplers against closed forms. If images are of one normal distribution, of mean m and
-- deviation s, the best prediction is known, and so is what samplers must draw.
-- luacheck: globals finally
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local sections = require "ganymede.nn.sections"

local MEAN, DEVIATION = 0.7, 0.3

-- The best prediction for x at time t, where images are so distributed.
local function best(process)
  return function(x, t)
    local a, b = process:parts(t:get(1))
    local share = a * DEVIATION ^ 2 / (a * a * DEVIATION ^ 2 + b * b)
    local image = (x - a * MEAN) * share + MEAN
    local eps = (x - image * a) * (1 / b)
    if process.opt.prediction == "noise" then return eps end
    return process.opt.prediction == "image" and image or eps * a - image * b
  end
end

local function moments(x)
  local mean = x:mean():item()
  return mean, math.sqrt((x - mean):square():mean():item())
end

describe("gm.diffusion_process", function()
  local before
  setup(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
  end)
  teardown(function() gm.set_default_dtype(before) end)

  it("keeps of the image what the schedules say", function()
    local linear = gm.diffusion_process { steps = 4, beta_first = 0.1, beta_last = 0.4 }
    local scaled = gm.diffusion_process { steps = 3, schedule = "scaled_linear", beta_first = 0.01, beta_last = 0.09 }
    local a, b = linear:parts(3)
    assert.near(0.9 * 0.8 * 0.7 * 0.6, a * a, 1e-14)
    assert.near(1, a * a + b * b, 1e-14)
    assert.near(0.99 * 0.96 * 0.91, scaled:parts(2) ^ 2, 1e-14)
    local cosine = gm.diffusion_process { steps = 100, schedule = "cosine" }
    local function f(t) return math.cos((t / 100 + 0.008) / 1.008 * math.pi / 2) ^ 2 end
    for _, t in ipairs { 0, 30, 80 } do assert.near(f(t + 1) / f(0), cosine:parts(t) ^ 2, 1e-12) end
    assert.same({ 1, 0 }, { cosine:parts(-1) })
  end)

  it("is what diffusers and the papers have at the ends of 1000 steps", function()
    assert.near(4.0358e-5, gm.diffusion_process({}):parts(999) ^ 2, 1e-9)
    assert.near(0.0046600, gm.diffusion_process({ schedule = "scaled_linear" }):parts(999) ^ 2, 1e-6)
  end)

  it("understands each kind of prediction as the image and the noise that made it", function()
    local image, eps = gm.normal({ 3, 2, 2 }, { seed = 1 }), gm.normal({ 3, 2, 2 }, { seed = 2 })
    local t = gm.tensor({ 300, 300, 300 }, { dtype = "i64" })
    for _, prediction in ipairs { "noise", "v", "image" } do
      local process = gm.diffusion_process { prediction = prediction }
      local x = process:noised(image, eps, t)
      local a, b = process:parts(300)
      numeric.agree(x, image * a + eps * b, 1e-13)
      local image_again, eps_again = process:understood(process:target(image, eps, t), x, 300)
      numeric.agree(image_again, image, 1e-12)
      numeric.agree(eps_again, eps, 1e-12)
    end
  end)

  it("refuses what has no meaning", function()
    assert.error_matches(function() gm.diffusion_process { schedule = "cosine", beta_last = 0.1 } end, "no beta_first")
    assert.error_matches(function() gm.diffusion_process { beta_first = 0.1 } end, "noise must grow")
    assert.error_matches(function() gm.diffusion_process({}):parts(1000) end, "no time 1000")
    local process = gm.diffusion_process {}
    local function sample(options) gm.diffusion_sample(process, function(x) return x end, options) end
    assert.error_matches(function() sample { shape = { 1 }, steps = 1001 } end, "has 1000 times")
    assert.error_matches(function() sample { shape = { 1 }, eta = 1 } end, "sampler ddim")
    assert.error_matches(function() sample { shape = { 1 }, clip = { 1, 0 } } end, "low below high")
    assert.error_matches(function() sample { shape = {} } end, "begins with the number of images")
    for _, wrong in ipairs { function() return gm.ones { 1, 1 } end, function(x) return { x } end, function() end } do
      assert.error_matches(function() gm.diffusion_sample(process, wrong, { shape = { 1, 2 } }) end,
        "must return a tensor of the shape of x, %(1, 2%); it returned")
    end
  end)

  it("is gone back along without holding the images of all steps", function()
    local process = gm.diffusion_process { steps = 60, prediction = "image" }
    local own, kept = { gm.ones { 1, 10000 }, gm.ones { 1, 10000 } }, {}
    for _, sampler in ipairs { "ddpm", "ddim", "dpm" } do
      local function sample(predict)
        return gm.diffusion_sample(process, predict, { shape = { 1, 10000 }, sampler = sampler, steps = 60 })
      end
      gm.scope(function()
        gm.memory_reset_peak()
        local held = gm.memory().live
        sample(function(x) return x * 0.5 end)
        local most = (gm.memory().peak - held) / (10000 * 8)
        assert.is_true(most < 20, most .. " images") -- of 60 steps, and what a step makes
        assert.near(1, sample(function(x, t) -- what belongs to the caller stays
          if #kept < 3 then kept[#kept + 1] = x:keep() end
          return own[t:item() % 2 + 1]
        end):mean():item(), 1e-12)
        for _, x in ipairs(own) do assert.equal(10000, x:sum():item()) end
        for i, x in ipairs(kept) do
          assert.is_true(x:square():mean():item() > 0)
          x:release()
          kept[i] = nil
        end
      end)
    end
  end)

  local function draw(options, prediction)
    local process = gm.diffusion_process { prediction = prediction }
    options.shape, options.seed = { 1, 4000 }, 3
    return gm.diffusion_sample(process, best(process), options), process
  end

  -- What the flow of probability makes of the noise of the beginning: both ends are normal, so it is linear.
  local function flowed(process)
    local a, b = process:parts(999)
    local x = require("ganymede.core").random("normal", { 1, 4000 }, nil, {}, 3 * 2 ^ 16 + 1)
    return (x - a * MEAN) * (DEVIATION / math.sqrt(a * a * DEVIATION ^ 2 + b * b)) + MEAN
  end

  local function error_of(options, prediction)
    local x, process = draw(options, prediction)
    return (x - flowed(process)):abs():max(2):item()
  end

  it("is gone back along by ddim exactly, in the limit, for each kind of prediction", function()
    for _, prediction in ipairs { "noise", "v", "image" } do
      local coarse = error_of({ sampler = "ddim", steps = 100 }, prediction)
      local fine = error_of({ sampler = "ddim", steps = 400 }, prediction)
      assert.is_true(fine < 0.02 and coarse < 0.07, ("%g, %g"):format(coarse, fine))
      assert.near(4, coarse / fine, 1) -- first order
    end
  end)

  it("is gone back along by dpm to second order", function()
    local first = error_of { sampler = "ddim", steps = 40 }
    local second = error_of { sampler = "dpm", steps = 40 }
    assert.is_true(second < first / 3, ("%g, %g"):format(first, second))
  end)

  it("gives the mean and deviation of the images with ddpm, and with ddim of noise", function()
    for _, options in ipairs { { sampler = "ddpm" }, { sampler = "ddim", steps = 500, eta = 1 } } do
      local mean, deviation = moments((draw(options)))
      assert.near(MEAN, mean, 4 * DEVIATION / math.sqrt(4000)) -- four standard errors
      assert.near(DEVIATION, deviation, 4 * DEVIATION / math.sqrt(8000) + 0.005)
    end
  end)

  it("is gone back along in f32 where images and predictions are of 16 bits", function()
    finally(function() gm.set_default_dtype "f64" end)
    local process = gm.diffusion_process { prediction = "image" }
    local ideal, drawn = best(process), {}
    for _, dtype in ipairs { "f32", "bf16" } do
      gm.set_default_dtype(dtype)
      local function predict(x, t)
        assert.equal(dtype, x:dtype())
        return ideal(x:to "f32", t):to(dtype)
      end
      local x = gm.diffusion_sample(process, predict, { shape = { 1, 4000 }, seed = 3, sampler = "ddim", steps = 1000 })
      assert.equal(dtype, x:dtype())
      drawn[#drawn + 1] = x:to "f32"
    end
    local off = math.sqrt((drawn[1] - drawn[2]):square():mean():item())
    assert.is_true(off < 0.004, off .. "") -- bf16 rounds numbers near 0.7 by 0.001; with x of bf16 it is 0.16
  end)

  it("draws the same again, and something else with another seed", function()
    local process = gm.diffusion_process {}
    local function once(seed)
      return gm.diffusion_sample(process, best(process), { shape = { 2, 2 }, steps = 3, seed = seed }):totable()
    end
    assert.same(once(5), once(5))
    assert.not_same(once(5), once(6))
  end)
end)

describe("models of diffusion", function()
  local function count(model)
    local n = 0
    for _, p in ipairs(model:declared()) do n = n + p.count end
    return n
  end

  it("have as many parameters as was published", function()
    assert.equal(859520964, count(gm.models.UNet { context = 768 })) -- Stable Diffusion 1.5
    assert.equal(83653863, count(gm.models.AutoencoderKL {}))
    local dit = gm.models.DiT { image_size = 32, width = 1152, depth = 28, heads = 16, classes = 1001, outputs = 8 }
    assert.equal(675129632 - 256 * 1152, count(dit)) -- the positions are no parameters here
  end)

  local small = { type = "UNet", channels = 2, width = 4, multipliers = { 1, 2 }, blocks = 1, groups = 2, heads = 2,
    context = 3 }

  it("can be cut, with classes, with a context and with neither: each parameter is in a section", function()
    for _, condition in ipairs { {}, { classes = 2 }, { context = 4 } } do
      local list, why = sections.of(gm.models.UNet { channels = 1, width = 4, multipliers = { 1, 2 }, groups = 2,
        heads = 2, classes = condition.classes, context = condition.context })
      assert.is_truthy(list, why)
    end
  end)

  it("refuse what they cannot take", function()
    local unet = gm.models.UNet { channels = 1, width = 4, multipliers = { 1, 2 }, groups = 2, heads = 2 }
    local t = gm.tensor { 3 }
    assert.error_matches(function() unet(gm.zeros { 1, 1, 5, 4 }, t) end, "multiples of 2")
    assert.error_matches(function() unet(gm.zeros { 1, 1, 4, 4 }, t, t) end, "neither context nor classes")
    assert.error_matches(function() gm.models.UNet { attention = { 5 } } end, "attention%[1%] must be a whole number")
    assert.error_matches(function() gm.models.UNet { context = 4, classes = 2 } end, "context or classes")
    assert.error_matches(function() gm.models.Diffusion { denoiser = { width = 4 } } end, "type = ")
    assert.error_matches(function()
      gm.models.Diffusion { drop = 0.1, denoiser = { type = "UNet", width = 4, groups = 2, heads = 2 } }
    end, "neither classes nor a context")
    local conditions = { ["{ images, classes }"] = { classes = 3 }, ["{ images, context }"] = { context = 4 } }
    for needs, option in pairs(conditions) do
      local model = gm.models.Diffusion { denoiser = { type = "UNet", channels = 1, width = 4, multipliers = { 1, 2 },
        groups = 2, heads = 2, classes = option.classes, context = option.context } }
      local ok, err = pcall(model, gm.zeros { 1, 1, 4, 4 })
      assert.is_false(ok)
      assert.matches("images alone: call the model with " .. needs, tostring(err), 1, true)
      assert.matches("data_process_func", tostring(err), 1, true)
    end
  end)

  for _, dtype in ipairs { "bf16", "f16" } do
    it("draw all times for images of " .. dtype, function()
      local before = gm.default_dtype()
      finally(function() gm.set_default_dtype(before) end)
      gm.set_default_dtype(dtype)
      local model = gm.models.Diffusion { denoiser = small }
      local drawn, n = {}, 0
      for seed = 1, 8 do
        local _, t = model.corruption(gm.normal({ 512, 2, 1, 1 }, { seed = seed }))
        for _, time in ipairs(t:totable()) do
          assert.is_true(time >= 0 and time <= 999 and time % 1 == 0)
          if not drawn[time] then drawn[time], n = true, n + 1 end
        end
      end
      assert.is_true(n > 950, n .. " times") -- 1000 (1 - e^-4.096) = 983 are expected
    end)
  end

  it("train a U-Net on latent images of a frozen autoencoder, with a context", function()
    local model = gm.models.Diffusion { denoiser = small, drop = 0.5, process = { prediction = "v" },
      autoencoder = { type = "AutoencoderKL", latent = 2, width = 4, multipliers = { 1, 2 }, blocks = 1, groups = 2 } }
    local engine = gm.Engine { model = model, optimizer = { type = "SGD", lr = 0.1 }, criterion = "DiffusionLoss" }
    local input = { gm.normal({ 2, 3, 8, 8 }, { seed = 1 }), gm.normal({ 2, 5, 3 }, { seed = 2 }) }
    local frozen = model.autoencoder.moments.weight:totable()
    local moved = model.denoiser.leave.weight:totable()
    engine:train()
    engine:zero_grad()
    local loss = engine:criterion(engine(input), gm.zeros({ 2 }, { dtype = "i64" }))
    engine:backward(loss)
    engine:step()
    assert.is_true(loss:item() > 0)
    assert.same(frozen, model.autoencoder.moments.weight:totable())
    assert.not_same(moved, model.denoiser.leave.weight:totable())
    local drawn = model:sample { shape = { 2, 2, 4, 4 }, sampler = "dpm", steps = 3, condition = input[2],
      guidance = 3 }
    assert.same({ 2, 3, 8, 8 }, drawn:shape())
    assert.is_true(model.training)
  end)

  it("go with guidance from the prediction without condition through that with it", function()
    local model = gm.models.Diffusion { drop = 0.1, denoiser = small }
    for i, p in ipairs(model:parameters()) do p:detach():copy_(gm.normal(p:shape(), { seed = i, std = 0.3 })) end
    local context = gm.normal({ 1, 2, 3 }, { seed = 2 })
    local function draw(condition, guidance)
      return model:sample { shape = { 1, 2, 4, 4 }, sampler = "ddim", steps = 1, condition = condition,
        guidance = guidance }
    end
    local without, with = draw(context * 0), draw(context)
    numeric.agree(draw(context, 3), without + (with - without) * 3, 1e-4) -- one step is linear in the prediction
    numeric.agree(draw(context, 0), without, 1e-5)
  end)
end)
