--- Muon on several ranks: each matrix is gathered by one of them, whatever cuts it.
--
-- Only the order of sums differs from one rank: in f64 1e-16 of the terms, which an iteration multiplies by up to 3.4^5
-- where singular values are small, and further steps by more. 1e-9 holds with room over 50 steps.
-- sanitizers: no, numbers of several ranks are compared; spec/unit looks at the same code
local alike = require "spec.parallel.alike"
local job = require "spec.parallel.job"

local runs = alike.of("bias = true",
  "type = 'Muon', lr = 0.02, weight_decay = 0.1, adamw = { lr = 3e-3, betas = { 0.9, 0.95 } }", job.steps(50))

local split = { "optimizer.split_qkv=true", "optimizer.adjust_lr_fn='match_rms_adamw'", "optimizer.lr=0.003" }

describe("Muon #ranks", function()
  runs.examples(it, {
    { "query, key and value apart, 1d on 4", 4, "parallel={tensor={size=4,mode='1d'}}", model = split },
    { "query, key and value apart, ZeRO 2 on 3", 3, "zero=2", model = split },
  })

  it("sends (p - 1) / p of the matrices a step where ranks hold copies, and nothing before", function()
    local p, steps = 2, 4
    local stats = runs.run(p, {}, steps)
    local matrices = 2 * (3 * 24 * 24 + 24 * 24 + 2 * 4 * 24 * 24) -- elements
    local sent = job.traffic(stats, { op = "all_gather", phase = "update" })
    assert.equal(0, job.traffic(stats, { op = "all_to_all", phase = "update" }))
    local least = steps * (p - 1) * 8 * matrices
    assert.is_true(sent >= least and sent < 1.1 * least, ("%d of %d"):format(sent, least)) -- buffers of equal size
  end)

  it("goes on from a checkpoint on other ranks, in another mode and stage", function() runs.resumed(2) end)
end)
