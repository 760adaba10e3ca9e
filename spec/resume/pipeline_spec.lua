--- A pipelined run whose ranks are killed, whatever they were doing, goes on from a checkpoint that is whole: in stages
-- again or without, with the losses of a run that was never stopped.
--
-- In f64 they agree to 1e-9: only the order of sums differs, 1e-16 an addition, over 40 steps. Batches of 22, and one
-- of 2 an epoch, in four micro-batches.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

local recipe = [[
local gm = require "ganymede"
local core = require "ganymede.core"
local Kill = gm.hooks.class("KillHook", { step = { type = "integer", default = 0 },
  rank = { type = "integer", default = 0 } }, { priority = 90, needs_output = false })
function Kill:after_train_iter(trainer)
  if core.rank() == self.opt.rank and trainer.step == self.opt.step then
    os.execute("kill -9 " .. core.process().pid)
  end
end
return {
  name = "stages", seed = 3, clip_grad_norm = 1, dtype = "f64", num_microbatches = 4,
  model = { type = "MLP", inputs = 6, hidden = { 16, 12, 8 }, classes = 4, dropout = 0.3 },
  data = { train = { type = "Synthetic", length = 90, shape = { 6 }, classes = 4, split = "train" }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.02 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 12 },
  epochs = 8,
  hooks = { { type = "LossHook" }, { type = "AccuracyHook" }, { type = "KillHook" },
            { type = "CheckpointHook", interval = 1, keep_last = 99 } },
}
]]

describe("pipelined runs #ranks", function()
  local home, whole

  -- -> its --stats (nil where there are none), exit status, standard error
  local function run(ranks, parallel, rest)
    os.remove(home .. "/stats.json")
    local command = "cd %s && GANYMEDE_ROOT=%s %s recipe.lua --threads 1 --no-eval --stats stats.json %s "
      .. "--set parallel=%s %s"
    local result = shell.run(command:format(home, shell.quote(GANYMEDE_ROOT), shell.program "run",
      ranks > 1 and "-n " .. ranks or "", shell.quote(parallel), rest))
    local file = io.open(home .. "/stats.json")
    if not file then return nil, result.code, result.err end
    file:close()
    return json.decode(shell.read(home .. "/stats.json"), "stats.json"), result.code, result.err
  end

  setup(function()
    home = shell.temporary_folder()
    shell.write(home .. "/recipe.lua", recipe)
    local code, err
    whole, code, err = run(1, "{data=1}", "--out whole")
    assert.equal(0, code, err)
  end)
  teardown(function() shell.remove(home) end)

  local function dies(ranks, parallel, rest, rank)
    local _, code, err = run(ranks, parallel, rest .. " --set hooks.3.rank=" .. rank)
    assert.equal(6, code, err)
    assert.matches(("rank %d: killed by signal 9"):format(rank), err)
  end

  it("are whole when a rank of either stage is killed, again and again", function()
    dies(2, "{pipeline=2}", "--out run --set hooks.3.step=9", 1)
    dies(4, "{pipeline=2}", "--out run --resume auto --set hooks.3.step=17", 0)
    dies(3, "{pipeline=3}", "--out run --resume auto --set hooks.3.step=23", 1)
    local stats, code, err = run(1, "{data=1}", "--out run --resume auto")
    assert.equal(0, code, err)
    assert.equal(40, #whole.loss)
    assert.is_true(#stats.loss >= 40 - 23 and #stats.loss <= 40 - 20, #stats.loss .. " steps after three deaths")
    for i = 40 - #stats.loss + 1, 40 do
      local loss = stats.loss[i - 40 + #stats.loss]
      assert.is_true(math.abs(loss - whole.loss[i]) <= 1e-9 * whole.loss[i], "step " .. i)
    end
    assert.equal(whole.metrics.train.accuracy, stats.metrics.train.accuracy)
  end)

  it("refuse a checkpoint that has what no stage has, or lacks what one has; all ranks with one message", function()
    local deeper = "--set model.hidden={16,12,8,8} "
    local _, code, err = run(1, "{data=1}", "--out other --steps 1 " .. deeper)
    assert.equal(0, code, err)
    local function refused(rest, message)
      local _, status, said = run(2, "{pipeline=2}", rest)
      assert.equal(2, status, said)
      assert.equal(1, select(2, said:gsub(message, "")), said)
    end
    refused("--resume other/checkpoints/step-00000001", "this model has no '[^']*layers%.4%.[^']*'")
    refused(deeper .. "--resume whole/checkpoints/step-00000001", "it has no '[^']*layers%.4%.[^']*'")
  end)
end)
