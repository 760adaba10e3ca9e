--- What measured steps and noise say of the batch that a real job should have (ganymede.cluster.measured).
local measured = require "ganymede.cluster.measured"

-- A job of batches of 32 to 512 samples, whose step with k ranks and a batch takes seconds(k, batch).
local function job(seconds, given)
  local app = measured.new { name = "a", steps = 100, batch = 32, largest = 512, most = 4, guess = 1 }
  for _, batch in ipairs(given or { 32, 64 }) do
    for k = 1, 2 do app:observe(1, k, 10 * seconds(k, batch), 10, batch) end
  end
  return app
end

local function by_samples(k, batch) return batch / k end
local function by_steps() return 1 end

describe("the batch of a job", function()
  it("grows where a step takes as long with more samples, up to twice what was measured", function()
    local app = job(by_steps)
    app:learn(1, 1e6) -- nearly noise alone: twice the samples are worth twice the steps
    assert.equal(128, app:batch_for(1, 1, 32, 1))
    assert.equal(128, app:batch_for(1, 2, 64, 1))
    app:observe(1, 1, 10, 10, 512)
    assert.equal(512, app:batch_for(1, 1, 32, 1))
    assert.equal(510, app:batch_for(1, 1, 32, 30)) -- a multiple of the batches of a step
  end)

  it("stays where more samples take longer, or where gradients have little noise", function()
    local app = job(by_samples)
    app:learn(1, 1e6)
    assert.equal(32, app:batch_for(1, 1, 32, 1))
    app = job(by_steps)
    app:learn(1, 0.32) -- a noise scale of 0.32 samples: twice the batch is worth 1.005 steps
    assert.equal(32, app:batch_for(1, 2, 32, 1))
  end)

  it("shrinks where its noise has become small and steps take longer with it", function()
    local app = job(by_samples)
    app:learn(1, 0.32)
    assert.equal(32, app:batch_for(1, 1, 64, 1))
  end)

  it("is that which a policy has chosen, in the range, where that is worth more", function()
    local app = job(by_steps)
    app:learn(1, 1e6)
    assert.equal(80, app:batch_for(1, 1, 32, 1, 80))
    assert.equal(128, app:batch_for(1, 1, 32, 1, 4000))
    assert.equal(64, app:batch_for(1, 1, 64, 1, 32)) -- worth half
  end)

  it("stays until noise was measured, and where the recipe has no range", function()
    assert.equal(32, job(by_steps):batch_for(1, 1, 32, 1))
    local app = measured.new { name = "a", steps = 100, batch = 32, most = 4, guess = 1 }
    app:observe(1, 1, 10, 10)
    app:learn(1, 1e6)
    assert.equal(32, app:batch_for(1, 1, 32, 1))
    assert.equal(32, app.batch)
  end)

  it("counts in what is measured: seconds and noise of each batch for itself", function()
    local app = job(function(_, batch) return batch end)
    assert.same({ 32, 64 }, { app:seconds(1, 1), app:seconds(1, 1, 64) })
    app:learn(1, 64)
    local scale, worth = app:noise()
    assert.equal(64, scale)
    assert.near((2 + 1) / (1 + 1), worth, 1e-15) -- var = 64 / 32
    scale, worth = app:noise(64)
    assert.equal(64, scale)
    assert.near((1 + 1) / (0.5 + 1), worth, 1e-15) -- var = 64 / 64
    assert.same({ 32 }, { app:with_first_batch():seconds(1, 1) })
    assert.is_nil(app:with_first_batch():seconds(1, 1, 64))
  end)
end)
