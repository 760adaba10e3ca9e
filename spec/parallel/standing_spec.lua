--- Ranks that stay for several runs give what a job of its own gives: losses, counts of work, bytes that were sent.
-- sanitizers: no, numbers of several ranks are compared; spec/cli/run_on_ranks_spec.lua runs the same code
local job = require "spec.parallel.job"

-- A recipe that leaves something behind in a process: a class of its own, a mesh, accounts, a seed.
local recipe = [[
local gm = require "ganymede"
local Mine = gm.hooks.class "MineHook"
function Mine:after_train_iter(trainer) if FAILS and trainer.step == 2 then error "it breaks here" end end
return {
  name = "points", seed = 3, dtype = "DTYPE",
  model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 10, dropout = 0.1 },
  data = { train = { type = "Synthetic", length = 64, shape = { 16 } }, batch_size = 16 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "MineHook" } }, epochs = 1,
}
]]
local plain = job.changed(recipe, { "FAILS", "false" }, { "DTYPE", "f64" })

local function run(text, options) return job.run(text, 2, options) end

-- What does not depend on clocks.
local function counts_of(stats)
  local out = { loss = stats.loss, mesh = stats.mesh, dtype = stats.dtype }
  for i, rank in ipairs(stats.ranks) do
    out[i] = { rank.flops, rank.kernels, rank.parameter_bytes, rank.optimizer_bytes }
    for _, entry in ipairs(rank.comm) do
      table.insert(out[i], { entry.op, entry.phase, entry.calls, entry.bytes_logical, table.concat(entry.axes, ".") })
    end
  end
  return out
end

describe("ranks that stay #ranks", function()
  it("run each recipe as a job of its own does, whatever they ran before", function()
    local other = { set = { "parallel={tensor={size=2,mode='1d'}}", "seed=9", "optimizer=SGD" }, steps = 3 }
    local alone = counts_of(run(plain, { alone = true }))
    assert.equal(4, #alone.loss)
    run(job.changed(plain, { "f64", "f32" }), other)
    assert.same(alone, counts_of(run(plain)))
    assert.same(alone, counts_of(run(plain)))
  end)

  it("are gone when a run fails, which says why, and others take their place", function()
    local before = run(plain)
    local ok, why = pcall(run, job.changed(recipe, { "FAILS", "true" }, { "DTYPE", "f64" }))
    assert.is_false(ok)
    assert.matches("it breaks here", why)
    assert.same(before.loss, run(plain).loss)
  end)
end)
