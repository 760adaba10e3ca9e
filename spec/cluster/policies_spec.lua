-- Policies and the simulator: results worked out by hand, rules that hold for every policy, the best sharing by trying
-- all of them.
-- sanitizers: no, it holds Lua alone
local nodes = require "ganymede.cluster.nodes"
local policies = require "ganymede.cluster.policies"
local simulator = require "ganymede.cluster.simulator"
local support = require "spec.cluster.support"

local function row(name, time, application, replicas, batch)
  return { name = name, time = time, application = application, num_replicas = replicas, batch_size = batch }
end

describe("a simulated job", function()
  -- 8 samples take 1 s on a replica, so two replicas do a batch of 16 in 1 s, worth 2 of 200 steps. The first decision
  -- is after 60 s, and a start takes 30.
  it("ends when its work is done", function()
    local apps = { app = support.application { seconds = 1 / 8 } }
    local r = simulator.run { jobs = { row("a", 0, "app", 2, 16) }, profiles = apps, policy = policies.new "fifo",
      nodes = { 4 } }
    assert.equal(60 + 30 + 100, r.mean)
    assert.equal(0, r.restarts)
  end)

  it("pays for a restart, and for replicas that are apart", function()
    local apps = { app = support.application { seconds = 1 / 8, sync = 1 } }
    local function alternates()
      local turn = 0
      return { name = "turns", allocate = function(_, jobs)
        turn = turn + 1
        return { [jobs[1].name] = turn == 1 and { 2, 0 } or { 1, 1 } }
      end }
    end
    local r = simulator.run { jobs = { row("a", 0, "app", 2, 16) }, profiles = apps, policy = alternates(),
      nodes = { 2, 2 } }
    -- 30 s of start and 30 s that do 60 of 200 steps; then a restart, and 140 steps in 140 s
    assert.equal(60 + 60 + 30 + 140, r.mean)
    assert.equal(1, r.restarts)
  end)

  it("gets no places that are not there", function()
    local function gives(counts)
      local policy = { name = "greedy", allocate = function() return { a = counts } end }
      return function()
        simulator.run { jobs = { row("a", 0, "app", 1, 8) }, profiles = { app = support.application { seconds = 1 } },
          policy = policy, nodes = { 2, 2 } }
      end
    end
    assert.error_matches(gives { 3, 0 }, "1 places more than node 1 has")
    assert.error_matches(gives { 1 }, "named 1 nodes of 2")
    assert.error_matches(function()
      simulator.run { jobs = { row("a", 0, "other", 1, 8) }, profiles = {}, policy = policies.new "fifo",
        nodes = { 1 } }
    end, "there is no profile of 'other'")
  end)
end)

describe("every policy", function()
  local apps = { quick = support.application { name = "quick", seconds = 1 / 64 },
    noisy = support.application { name = "noisy", seconds = 1 / 16, sync = 0.02, sqr = 0.1, var = 2, epochs = 4 },
    fixed = support.application { name = "fixed", seconds = 1 / 8, max_replicas = 1 } }
  local jobs, names = {}, { "quick", "noisy", "fixed" }
  for i = 1, 18 do jobs[i] = row("job" .. i, 40 * i, names[i % 3 + 1], i % 3 == 2 and 1 or i % 4 + 1, 32) end

  for _, name in ipairs(policies.names) do
    it(name .. " ends all jobs and repeats itself", function()
      local function run()
        local searches = name == "pollux" or name == "ones"
        local settings = searches and { population = 16, generations = 8 } or {}
        local r = simulator.run { jobs = jobs, profiles = apps, policy = policies.new(name, settings),
          nodes = { 4, 4 } }
        local ends = {}
        for i, job in ipairs(r.jobs) do ends[i] = job.ended end
        assert.equal(#jobs, #ends)
        return ends
      end
      assert.same(run(), run())
    end)
  end

  it("is known by its name", function()
    assert.error_matches(function() policies.new "best" end, "there is no policy 'best'; there are fifo, srtf")
  end)
end)

describe("tiresias", function()
  it("stops a job that has had much for one that has had nothing", function()
    local app = support.application { seconds = 1 }
    local policy = policies.new("tiresias", { threshold = 100 })
    local old, new = support.job("old", 1, app, 1000), support.job("new", 2, app, 1000)
    old.wanted, new.wanted = 4, 4
    assert.same({ old = { 4 } }, policy:allocate({ old }, { 4 }, 60))
    old.counts = { 4 }
    assert.same({ old = { 4 } }, policy:allocate({ old, new }, { 4 }, 80)) -- 4 x 20 s: below the threshold
    assert.same({ new = { 4 } }, policy:allocate({ old, new }, { 4 }, 120))
  end)
end)

describe("optimus", function()
  it("gives more to whom it shortens more", function()
    local short, long = support.application { seconds = 1, epochs = 2 }, support.application { seconds = 1, epochs = 9 }
    local a, b = support.job("a", 1, short, 200), support.job("b", 2, long, 900)
    local got = policies.new("optimus"):allocate({ a, b }, { 4 }, 60)
    assert.same({ { 1 }, { 3 } }, { got.a, got.b })
  end)
end)

describe("ones", function()
  local app = support.application { seconds = 1, name = "one" }
  local function new() return policies.new("ones", { population = 16, generations = 10, restart = 0 }) end

  it("begins with the first batch, and doubles its limit with each epoch", function()
    local policy, job, got = new(), support.job("a", 1, app, 800), {}
    for epoch = 0, 6 do
      job.epoch = epoch
      local counts, batches = policy:allocate({ job }, { 16 }, 60 * epoch)
      got[epoch + 1] = { nodes.total(counts.a), batches.a }
      job.counts = counts.a
    end
    assert.same({ { 8, 8 }, { 16, 16 } }, { got[1], got[2] }) -- a sample for each GPU at least
    assert.equal(16, got[7][1])
    assert.is_true(got[7][2] > 16 and got[7][2] <= 256)
  end)

  it("gives the GPUs to jobs of which little remains", function()
    local policy = new()
    local short, long = support.job("short", 1, app, 10), support.job("long", 2, app, 10)
    -- Jobs of this application have had 20 epochs: it is told by one that ends.
    local before = support.job("before", 3, app, 10)
    policy:allocate({ before }, { 2 }, 0)
    before.epoch, short.epoch, long.epoch = 20, 19, 1
    local more = 0
    for i = 1, 20 do
      local got = policy:allocate({ short, long }, { 8 }, 60 * i)
      more = more + nodes.total(got.short or { 0 }) - nodes.total(got.long or { 0 })
    end
    assert.is_true(more > 40, more) -- of 160
  end)

  it("stays on its GPUs where a change costs more than it gains", function()
    local policy = policies.new("ones", { population = 16, generations = 10, restart = 1e9 })
    local a, b = support.job("a", 1, app, 800, { 4, 0 }), support.job("b", 2, app, 800, { 0, 4 })
    assert.same({ a = { 4, 0 }, b = { 0, 4 } }, (policy:allocate({ a, b }, { 4, 4 }, 60)))
  end)
end)

describe("a batch that a policy chooses", function()
  -- 8 samples take 1 s on a replica, and the sum between two nodes 1 s. A batch of 16 is one gradient of 8 on each, in
  -- 2 s, worth 2 of 200 steps; 32 are two gradients in 3 s, worth 4.
  it("is what a simulated job trains with", function()
    local apps = { app = support.application { seconds = 1 / 8, sync = 1 } }
    local function run(batch)
      local policy = { name = "given", adapts_batch = true,
        allocate = function() return { a = { 1, 1 } }, { a = batch } end }
      return simulator.run { jobs = { row("a", 0, "app", 2, 8) }, profiles = apps, policy = policy,
        nodes = { 1, 1 } }.mean
    end
    assert.near(60 + 30 + 200, run(16), 1e-6)
    assert.near(60 + 30 + 150, run(32), 1e-6)
  end)
end)

describe("elastic", function()
  local app = support.application { seconds = 1, sync = 0.5 }

  -- What a sharing is worth, as the policy's head says.
  local function worth(job, k)
    if k == 0 then return 0 end
    local seconds = job.total * 8 / job.known:best(math.ceil(k / 4), k)
    if k ~= (job.counts and nodes.total(job.counts) or 0) then seconds = seconds + 30 end
    return seconds ^ -0.5
  end

  it("finds the best of all sharings", function()
    local jobs = { support.job("a", 1, app, 90, { 2, 0 }), support.job("b", 2, app, 700),
      support.job("c", 3, app, 4000, { 2, 4 }) }
    local best, sizes = 0, { 0, 1, 2, 3, 4, 8 }
    for _, i in ipairs(sizes) do
      for _, j in ipairs(sizes) do
        for _, k in ipairs(sizes) do
          if i + j + k <= 8 then best = math.max(best, worth(jobs[1], i) + worth(jobs[2], j) + worth(jobs[3], k)) end
        end
      end
    end
    local got, sum = policies.new("elastic"):allocate(jobs, { 4, 4 }, 60), 0
    for _, job in ipairs(jobs) do sum = sum + worth(job, nodes.total(got[job.name] or {})) end
    assert.is_true(math.abs(sum - best) < 1e-12, ("%g for %g"):format(sum, best))
  end)

  it("moves small jobs together where free places lie apart", function()
    local one = support.application { seconds = 1, max_replicas = 1 }
    local jobs = { support.job("a", 1, one, 100, { 1, 0 }), support.job("b", 2, one, 100, { 0, 1 }),
      support.job("c", 3, app, 4000) }
    local got = policies.new("elastic"):allocate(jobs, { 4, 4 }, 60)
    assert.equal(1, nodes.total(got.a))
    assert.equal(1, nodes.total(got.b))
    assert.equal(4, nodes.total(got.c))
    assert.equal(1, #nodes.used(got.c))
  end)
end)
