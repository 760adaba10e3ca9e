-- What real jobs add to the policies: least and legal numbers of ranks, and measured steps in the place of a profile.
-- sanitizers: no, it holds Lua alone
local bounded = require "ganymede.cluster.bounded"
local measured = require "ganymede.cluster.measured"
local nodes = require "ganymede.cluster.nodes"
local policies = require "ganymede.cluster.policies"
local simulator = require "ganymede.cluster.simulator"

describe("a bounded policy", function()
  local function gives(allocations)
    return { name = "given", allocate = function() return allocations end }
  end
  local function legal(...)
    local out = {}
    for _, k in ipairs { ... } do out[k] = true end
    return out
  end
  local jobs = { { name = "a" }, { name = "b" }, { name = "c" } }
  local limits = { a = { least = 2, legal = legal(2, 4) }, b = { least = 2, legal = legal(2, 3) },
    c = { least = 1, legal = legal(1, 2, 3, 4) } }

  it("rounds down to what a mesh allows, from the last nodes", function()
    local got = bounded.new(gives { a = { 2, 1 }, c = { 1, 1 } }, limits):allocate(jobs, { 4, 4 }, 0)
    assert.same({ a = { 2, 0 }, c = { 1, 1 } }, got)
  end)

  it("gives the least from what is free, in order, or nothing", function()
    local got = bounded.new(gives { a = { 1 }, b = { 1 }, c = { 1 } }, limits):allocate(jobs, { 4 }, 0)
    assert.same({ a = { 2 }, c = { 1 } }, got) -- one place is left, and b needs two
    got = bounded.new(gives { a = { 1 }, b = { 1 }, c = { 1 } }, limits):allocate(jobs, { 5 }, 0)
    assert.same({ a = { 2 }, b = { 2 }, c = { 1 } }, got)
  end)

  it("leaves the batches that a policy chooses as they are", function()
    local chosen = { name = "given", allocate = function() return { a = { 3 } }, { a = 96 } end }
    local got, batches = bounded.new(chosen, limits):allocate(jobs, { 4 }, 0)
    assert.same({ { a = { 2 } }, { a = 96 } }, { got, batches })
  end)

  it("gives nothing to whom the policy gives nothing", function()
    assert.same({ c = { 1 } }, bounded.new(gives { c = { 1 } }, limits):allocate(jobs, { 8 }, 0))
  end)
end)

describe("a measured job", function()
  local function new(steps)
    return measured.new { name = "a", steps = steps or 100, batch = 24, most = 4, guess = 2 }
  end

  it("takes its guess before it was measured, and the mean after it", function()
    local app = new()
    assert.equal(2, (app:step({ 1 }, 24)))
    assert.equal(0.5, (app:step({ 4 }, 6)))
    app:observe(1, 1, 10, 4)
    app:observe(1, 1, 2, 4)
    assert.equal(1.5, (app:step({ 1 }, 24)))
    assert.equal(1.5, app:seconds(1, 1))
  end)

  it("is predicted by the fit where it was not measured: compute that halves with twice the ranks", function()
    local app = new()
    app:observe(1, 1, 2.4, 1) -- 0 + 0.1 s a sample
    app:observe(1, 2, 1.2, 1)
    assert.near(0.6, (app:step({ 4 }, 6)), 0.06) -- a fit of logarithms with a prior
    assert.near(1 / 0.6, app:known():best(1, 4) / 24, 0.2)
  end)

  it("is worth a step a step with any number of ranks, also where they do not divide the batch", function()
    local app = measured.new { name = "a", steps = 100, batch = 6, most = 5, guess = 2 }
    app:observe(1, 1, 1, 1)
    app:observe(1, 5, 1, 1) -- 2 on each: 4 of 10 are beyond the batch
    assert.near(6, app:known():best(1, 1), 0.4) -- samples of the batch a second, by the fit
    assert.near(6, app:known():best(1, 5), 0.4)
  end)

  -- 24 samples a batch: of their gradient the variance is 240 / 24, of twice as many half of that.
  it("computes with the noise that a run reports", function()
    local app = new()
    app:observe(1, 1, 1, 1)
    assert.is_nil(app:noise())
    app:learn(5, 240)
    assert.same({ 5, 10 }, { app:known().sqr, app:known().var })
    assert.same({ 48, 1.5 }, { app:noise() }) -- (10 + 5) / (5 + 5)
    app:learn(-1, 240) -- the square is not known yet
    assert.same({ math.huge, 2 }, { app:noise() })
  end)

  it("is worth a step a step with noise, too", function()
    local app = measured.new { name = "a", steps = 100, batch = 6, most = 5, guess = 2 }
    app:observe(1, 5, 1, 1) -- 2 on each: 4 of 10 are beyond the batch
    app:learn(1, 600)
    assert.near(6, app:known():best(1, 5), 0.4)
  end)

  -- Two steps a second with one rank, four with two. The simulator decides at 10 s first; 100 steps then take 25 s.
  it("is simulated with what was measured", function()
    local app = new()
    app:observe(1, 1, 50, 100)
    app:observe(1, 2, 25, 100)
    local function run(ranks)
      local rows = { { name = "a", time = 0, application = "a", num_replicas = ranks, batch_size = 24 } }
      return simulator.run { jobs = rows, profiles = { a = app }, policy = policies.new "fifo", nodes = { 4 },
        interval = 10, restart = 3 }.mean
    end
    assert.near(10 + 3 + 50, run(1), 1e-9)
    assert.near(10 + 3 + 25, run(2), 1e-9)
  end)

  it("is short for srtf if little remains, by its measured seconds", function()
    local a, b = new(1000), new(1000)
    a:observe(1, 1, 1, 1)
    b:observe(1, 1, 3, 1)
    local function job(name, index, app, done)
      return { name = name, index = index, application = app, wanted = 1, batch = 24, epoch = done, progress = done,
        total = 1000, known = app:known() }
    end
    local function first(done)
      local got = policies.new("srtf"):allocate({ job("a", 1, a, 0), job("b", 2, b, done) }, { 1 }, 0)
      return got.a and nodes.total(got.a) == 1 and "a" or "b"
    end
    assert.equal("a", first(600)) -- 1000 s against 1200
    assert.equal("b", first(700)) -- against 900
  end)
end)

describe("the settings of a policy", function()
  it("are checked by name", function()
    assert.error_matches(function() policies.new("tiresias", { treshold = 3 }) end, "did you mean 'threshold'")
    assert.error_matches(function() policies.new("elastic", { restart = -1 }) end, "at least 0")
    assert.error_matches(function() policies.new("fifo", { seed = 1 }) end, "has no option 'seed'")
  end)
end)
