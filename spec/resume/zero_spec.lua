--- A run under ZeRO 3 with recomputation and with optimizer states on a disk is killed in the middle of steps, and goes
-- on from its checkpoints in another stage, in another mode, on other ranks: the curve is that of one rank that nobody
-- disturbed.
--
-- In f64 losses agree to 1e-9: only the order of sums differs. A rank is killed by itself in forward or in backward, or
-- by strace in the middle of an update, when it writes states to the disk.
-- sanitizers: no, processes are killed
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

local recipe = [[
local gm = require "ganymede"
local core = require "ganymede.core"
local Truth = gm.nn.CrossEntropyLoss
local Deadly = gm.nn.class("DeadlyLoss", Truth, "losses")
Deadly.options = { place = { type = "string", default = "", doc = "forward or backward" },
  call = { type = "integer", default = 0, doc = "which call of this run" },
  rank = { type = "integer", default = 0, doc = "which rank dies" },
  ignore_index = Truth.options.ignore_index, label_smoothing = Truth.options.label_smoothing }
function Deadly:dies(place)
  if self.opt.place == place and self.calls == self.opt.call and core.rank() == self.opt.rank then
    os.execute("kill -9 " .. core.process().pid)
  end
end
function Deadly:forward(logits, target, count)
  self.calls = (self.calls or 0) + 1
  self:dies "forward"
  local pass = gm.custom { forward = function(x) return x * 1 end, backward = function(g)
    self:dies "backward"
    return g * 1
  end }
  return Truth.forward(self, pass(logits), target, count)
end
return gm.recipe {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 2,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 22 },
  loss = { type = "DeadlyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  epochs = 3, clip_grad_norm = 1.0, checkpoint = { interval = 1, keep_last = 3 },
}
]]
local STEPS = 20

local function run_of(home, out, ranks, steps, set, before)
  local command = "cd %s && GANYMEDE_ROOT=%s %s %s recipe.lua --threads 1 --no-eval --resume auto --out %s"
  local words = { command:format(home, shell.quote(GANYMEDE_ROOT), before or "", shell.program "run", out) }
  if ranks > 1 then words[#words + 1] = "-n " .. ranks end
  words[#words + 1] = "--steps " .. steps
  for _, word in ipairs(set) do words[#words + 1] = "--set " .. shell.quote(word) end
  return shell.run(table.concat(words, " "))
end

-- Losses of all steps that a run has noted, each step once.
local function losses(home, out)
  local list = {}
  for line in io.lines(home .. "/" .. out .. "/metrics.jsonl") do
    local event = json.decode(line, out)
    assert.equal(#list + 1, event.step)
    list[event.step] = event.loss
  end
  return { loss = list }
end

local disk, frugal = "offload={optimizer='disk',disk='.'}", "zero={stage=3,whole_below=0,keep=0,ahead=0}"
-- Kills a process that writes to the disk for the 150th time, some steps after the start.
local strace = "strace -f -o /dev/null -e trace=io_uring_setup,pwrite64 -e inject=io_uring_setup:error=EPERM "
  .. "-e inject=pwrite64:signal=KILL:when=150"

describe("a run under ZeRO that is killed in the middle of steps #ranks", function()
  local home
  before_each(function()
    home = shell.temporary_folder()
    shell.write(home .. "/recipe.lua", recipe)
  end)
  after_each(function() shell.remove(home) end)

  it("goes on in other stages and modes, on other ranks, with the curve of one rank", function()
    local whole = run_of(home, "whole", 1, STEPS, {})
    assert.equal(0, whole.code, whole.err)
    local reached = 0
    local function leg(ranks, set, before)
      local result = run_of(home, "run", ranks, STEPS, set, before)
      assert.are_not.equal(0, result.code, result.err)
      assert.matches("killed by signal 9", result.err)
      local step = #losses(home, "run").loss
      assert.is_true(step > reached and step < STEPS, ("step %d after step %d"):format(step, reached))
      reached = step
    end
    leg(3, { frugal, disk, "recompute=block", "loss.place=backward", "loss.call=5", "loss.rank=1" })
    leg(4, { "zero=2", disk, "recompute=attention", "parallel={data=2,tensor={size=2,mode='1d'}}",
      "loss.place=forward", "loss.call=4", "loss.rank=3" })
    leg(2, { frugal, disk, "recompute=block" }, strace)
    leg(4, { frugal, disk, "recompute=block", "parallel={data=2,pipeline=2}", "num_microbatches=2",
      "loss.place=backward", "loss.call=5", "loss.rank=3" })
    local last = run_of(home, "run", 3, STEPS, { "zero=1" })
    assert.equal(0, last.code, last.err)
    local mine = losses(home, "run")
    assert.equal(STEPS, #mine.loss)
    assert.is_true(job.largest_difference(losses(home, "whole"), mine, STEPS) <= 1e-9)
  end)
end)
