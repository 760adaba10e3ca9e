-- How fast jobs learn: the fitted model of a step, batches that follow the noise of the gradient, measured profiles.
-- sanitizers: no, it holds Lua alone
local goodput = require "ganymede.cluster.goodput"
local profile = require "ganymede.cluster.profile"
local shell = require "spec.support.shell"

local limits = { first_batch = 16, max_batch = 4096, min_local = 4, max_local = 64 }

-- Seconds of a step by the model with these parameters.
local truth = { ac = 0.02, bc = 0.003, an = 0.08, bn = 0.004, ar = 0.03, br = 0.002, g = 1.5 }

local function seconds(nodes, replicas, b)
  local compute = truth.ac + truth.bc * b
  local network = replicas == 1 and 1e-8 or nodes > 1 and truth.an + truth.bn * (replicas - 2)
    or truth.ar + truth.br * (replicas - 2)
  return (compute ^ truth.g + network ^ truth.g) ^ (1 / truth.g), compute
end

local function observed(sqr, var)
  local known = goodput.new(limits)
  for _, case in ipairs { { 1, 1 }, { 1, 2 }, { 1, 4 }, { 2, 8 }, { 4, 16 }, { 8, 32 } } do
    for _, b in ipairs { 4, 16, 64 } do
      local step, compute = seconds(case[1], case[2], b)
      known:observe(case[1], case[2], b, step, step - compute, sqr, var)
    end
  end
  return known
end

describe("goodput", function()
  it("of a step that was made by the model comes back from its measurements, and in between", function()
    local known = observed(1, 1)
    for _, case in ipairs { { 1, 1, 8 }, { 1, 3, 32 }, { 2, 6, 16 }, { 6, 24, 64 } } do
      local nodes, replicas, b = unpack(case)
      local want = replicas * b / (seconds(nodes, replicas, b))
      local got = known:throughput(nodes, replicas, b, 0)
      -- the fit also holds g and the slopes of networks small, so it is not exact
      assert.is_true(math.abs(got / want - 1) < 0.05, ("%s: %g for %g"):format(table.concat(case, " "), got, want))
    end
  end)

  it("takes networks for free that were not measured, and no faster between nodes than within", function()
    local known = goodput.new(limits)
    local step, compute = seconds(1, 1, 16)
    known:observe(1, 1, 16, step, step - compute, 1, 1)
    assert.is_true(known:throughput(1, 4, 16, 0) > 0.99 * 4 * known:throughput(1, 1, 16, 0))
    known:observe(1, 2, 16, 0.2, 0.13, 1, 1)
    local m = known:parameters()
    assert.is_true(m.an >= 1.1 * m.ar - 1e-12)
  end)

  it("has gains between 1 and the batch", function()
    assert.equal(8, goodput.gain(0, 1, 8)) -- noise alone: a batch of 8 times as many is worth 8 steps
    assert.equal(1, goodput.gain(1, 0, 8)) -- no noise: it is worth one
    assert.equal(1.6, goodput.gain(1, 3, 2))
  end)

  it("finds larger batches where the gradient is noisy", function()
    local _, b, more = observed(1, 0):best(1, 4)
    assert.same({ 4, 0 }, { b, more }) -- the first batch
    _, b, more = observed(0, 1):best(1, 4)
    assert.is_true(4 * b * (more + 1) > 2000)
  end)

  it("cuts batches into gradients that fit, of a single replica at least two", function()
    assert.same({ 64, 1 }, { goodput.cut(limits, 512, 4) })
    assert.same({ 10, 1 }, { goodput.cut(limits, 20, 1) })
    assert.same({ 16, 0 }, { goodput.cut(limits, 16, 1) })
  end)
end)

describe("a measured profile", function()
  local folder = shell.temporary_folder()

  setup(function()
    shell.write(folder .. "/placements.csv", "placement,local_bsz,step_time,sync_time\n" ..
      "1,2,1,0\n1,4,2,0\n4,2,1.5,0.5\n4,4,2.5,0.5\n13,2,3,1\n13,4,4,1\n22,2,2,1\n22,4,3,1\n44,2,5,3\n44,4,6,3\n")
    shell.write(folder .. "/scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n" ..
      "4,16,2,9,7\n4,16,4,10,7\n")
    shell.write(folder .. "/validation-8.csv", "progress,iteration,grad_sqr,grad_var\n10,10,1,2\n20,20,1,4\n")
    shell.write(folder .. "/validation-16.csv", "progress,iteration,grad_sqr,grad_var\n11,6,3,2\n21,12,3,6\n")
  end)

  it("is linear between what was measured", function()
    local p = profile.read(folder, {})
    assert.same({ 1.5, 0 }, { p:step({ 1 }, 3) })
    assert.same({ 3.5, 1 }, { p:step({ 3, 1 }, 3) }) -- a rotation of 1, 3
    assert.same({ 7.5, 5 }, { p:step({ 4, 4, 4 }, 3) }) -- half way from 2 nodes of 4 to 4 nodes of 4
    assert.same({ 2, 5 }, { p:gradient(12, 2) })
    assert.same({ 0, 10, 20 }, { p:progress(0), p:progress(1), p:progress(2) })
    assert.same({ 8, 16, 2, 4, 2 }, { p.limits.first_batch, p.limits.max_batch, p.limits.min_local,
      p.limits.max_local, p.epochs })
    assert.equal(8, p:steps(12, 1))
  end)

  it("that lacks cells, columns or files is refused", function()
    local function broken(file, text, words)
      local was = shell.read(folder .. "/" .. file)
      shell.write(folder .. "/" .. file, text)
      assert.error_matches(function() profile.read(folder, {}) end, words)
      shell.write(folder .. "/" .. file, was)
    end
    broken("placements.csv", "placement,local_bsz\n1,2\n", "has no column 'step_time'")
    broken("scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n1,2\n", "line 2 has 2 cells")
    assert.error_matches(function() profile.read(folder .. "/none", {}) end, "no table to read")
  end)
end)
