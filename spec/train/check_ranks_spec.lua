--- `ganymede check -n N`: what one rank of N would hold and send, without starting any; the same as a run sends.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local sums = require "spec.support.sums"

-- 16 -> 32 -> 10: 874 parameters
local recipe = [[
return {
  name = "points", seed = 3, steps = 1,
  model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 10 },
  data = { train = { type = "Synthetic", length = 512, shape = { 16 } }, batch_size = 30 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 }, gradient_accumulation = 2,
}
]]
local parameters = 16 * 32 + 32 + 32 * 10 + 10

describe("ganymede check -n", function()
  local home
  before_each(function()
    home = shell.temporary_folder()
    shell.write(home .. "/recipe.lua", recipe)
  end)
  after_each(function() shell.remove(home) end)

  local function run(...)
    local result = run_host({ ... }, { cwd = home })
    assert.equal(0, result.code, result.err)
    return result
  end

  local function check(ranks, rank, ...)
    local result = run("check", "recipe.lua", "--json", "-n", tostring(ranks), "--rank", tostring(rank), ...)
    return json.decode(result.out, "check")
  end

  local function sent(entries, phase, bytes)
    local sum = 0
    for _, e in ipairs(entries) do
      if e.op == "all_reduce" and e.phase == phase then sum = sum + e[bytes] end
    end
    return sum
  end

  it("counts 2 (p - 1) / p of the gradient's bytes for each rank", function()
    for _, p in ipairs { 2, 23, 46 } do -- divisors of the parameters: each rank owns the same share
      assert.equal(0, parameters % p)
      for _, rank in ipairs { 0, p - 1 } do
        assert.equal(2 * (p - 1) * 4 * parameters / p, sent(check(p, rank).sent, "backward", "bytes"))
      end
    end
    local p, sum = 3, 0
    for rank = 0, p - 1 do sum = sum + sent(check(p, rank, "--set", "dtype=f64").sent, "backward", "bytes") end
    assert.equal(sums.sent(p, 8 * parameters), sum) -- a small sum, in one round
  end)

  it("knows the mesh, the layouts and this rank's part of a batch", function()
    local found = check(4, 3)
    assert.same({ 4, 3 }, { found.world, found.rank })
    assert.same({ { name = "data", size = 4, coordinate = 3 } }, { (function(axis)
      return { name = axis.name, size = axis.size, coordinate = axis.coordinate }
    end)(found.mesh[1]) })
    assert.same("cut (data, -)", found.batch.x.layout)
    assert.same({ 30, 16, 8, 16 }, { found.batch.x.shape[1], found.batch.x.shape[2], found.batch.x.local_shape[1],
      found.batch.x.local_shape[2] })
    assert.equal(60, found.totals.samples_per_step)
    for _, p in ipairs(found.parameters) do assert.equal("replicated", p.layout) end
    assert.equal(4 * parameters, found.totals.parameter_bytes)
  end)

  it("agrees with what a run sends, in every phase of a step", function()
    run("run", "recipe.lua", "-n", "2", "--steps", "1", "--no-eval", "--stats", "s.json", "--out", "o")
    local stats = json.decode(shell.read(home .. "/s.json"), "stats")
    for rank = 0, 1 do
      local planned = check(2, rank).sent
      for _, phase in ipairs { "forward", "backward", "update" } do
        local real = sent(stats.ranks[rank + 1].comm, phase, "bytes_logical")
        assert.is_true(real > 0)
        assert.equal(real, sent(planned, phase, "bytes"), phase)
      end
    end
  end)
end)
