--- `ganymede resize --batch`: a running job goes on with another batch, on its ranks or together with others, and gives
-- the losses of one rank that makes the recorded changes; what is refused costs it nothing.
--
-- In f64 the losses agree to 1e-9: the order of sums differs, 1e-16 an addition.
-- sanitizers: no, numbers of training on several ranks are compared
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- Steps of some 40 ms, none of that where a file `quick` is. Where there is a file `changes`, the run makes them
-- itself: lines "step batch". Ranks that come die while they read the state where there is a file `wrong`. Where there
-- is a file `full`, memory takes no state.
local recipe = [[
local changes, came, quick = {}, text_of "ready" ~= nil, text_of "quick" ~= nil
local snapshot = require "ganymede.checkpoint.snapshot"
local begin_save = snapshot.start
snapshot.start = function(trainer, folder, opt)
  return begin_save(trainer, opt.passing and text_of "full" and "/proc/full" or folder, opt)
end
for step, batch in (text_of "changes" or ""):gmatch "(%d+) (%d+)" do changes[tonumber(step)] = tonumber(batch) end
require("ganymede.hooks.base").class("Change", {}, {
  before_train_iter = function(_, trainer)
    local batch = changes[trainer.step]
    if batch then assert(trainer:set_batch(batch)) end
    if rank == 0 and trainer.step == 2 then assert(io.open("ready", "w")):close() end
    if not quick then core.sleep(0.04) end
  end,
  state = function() return {} end,
  load_state = function()
    if came and rank == 1 and text_of "wrong" then kill(9) end
  end })
return {
  name = "adaptive", seed = 3, dtype = "f64", epochs = 100000, adaptive_batch = { largest = 64, rate = "sqrt" },
  model = { type = "MLP", inputs = 6, hidden = { 16, 12 }, classes = 4, dropout = 0.3 },
  data = { train = { type = "Synthetic", length = 90, shape = { 6 }, classes = 4 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.004 },
  hooks = { { type = "Change" } },
}
]]

local function ask(job, ...)
  return run_host({ ... }, { cwd = job.home, env = support.environment(job.home) })
end

local function events(path)
  local list = {}
  for line in io.lines(path) do list[#list + 1] = json.decode(line, line) end
  return list
end

local function refused(job, text, ...)
  local result = ask(job, "resize", "run", ...)
  assert.equal(1, result.code, result.out)
  assert.is_truthy(result.err:find(text, 1, true), result.err)
end

-- One rank that makes the same changes gives these losses and batches.
local function check_repeated(list, changes)
  local home = support.home(recipe)
  finally(function() shell.remove(home) end)
  shell.write(home .. "/quick", "")
  shell.write(home .. "/changes", table.concat(changes, "\n"))
  local result = support.run_in(home, { "--out", "run", "--no-eval", "--steps", tostring(#list) }, 1)
  assert.equal(0, result.code, result.err)
  for i, want in ipairs(events(home .. "/run/metrics.jsonl")) do
    assert.same({ want.step, want.batch, want.samples }, { list[i].step, list[i].batch, list[i].samples })
    assert.near(want.loss, list[i].loss, 1e-9)
    assert.near(want.lr, list[i].lr, 1e-15)
  end
end

describe("ganymede resize --batch", function()
  it("changes the batch, alone and with ranks: the losses are those of one rank with the recorded changes", function()
    local job = support.start(recipe, { "--out", "run" }, "%s run recipe.lua -n 2")
    job:file "ready"
    local result = ask(job, "resize", "run", "--batch", "20")
    assert.equal(0, result.code, result.err)
    assert.matches("^%S+: batch 20 from step %d+ on\n$", result.out)
    job:goes_on()
    refused(job, "a batch of 65 samples: adaptive_batch allows 8 to 64", "--batch", "65")
    refused(job, "a batch of 7 samples: adaptive_batch allows 8 to 64", "-n", "3", "--batch", "7")
    shell.write(job.home .. "/wrong", "")
    refused(job, "rank 1: killed by signal 9", "-n", "3", "--batch", "50")
    shell.write(job.home .. "/full", "")
    refused(job, "rank 1: killed by signal 9", "-n", "3", "--batch", "50")
    os.remove(job.home .. "/full")
    os.remove(job.home .. "/wrong")
    job:goes_on()
    local saved = shell.lines("ls " .. job.home .. "/run/checkpoints/step-*/index.json") -- of the run as it goes on
    assert.is_true(#saved > 0)
    for _, path in ipairs(saved) do
      assert.equal(20, json.decode(shell.read(path), "index.json").meta.trainer.batching.batch)
    end
    assert.equal(20, json.decode(ask(job, "top", "--json", "run").out, "top").job.batch)
    result = ask(job, "resize", "run", "--json", "-n", "3", "--batch", "33")
    assert.equal(0, result.code, result.err)
    local answer = json.decode(result.out, "the answer")
    assert.same({ 2, 3, 33 }, { answer.before, answer.ranks, answer.batch })
    job:goes_on()
    assert.matches("3 ranks, batch 33, since", ask(job, "top", "run").out)
    job:signal("TERM", job:supervisor())
    assert.equal("75", job:file("status"):match "%d+", job:read "err")
    local list, changes, noted = events(job.home .. "/run/metrics.jsonl"), {}, {}
    for _, e in ipairs(events(job.home .. "/run/events.jsonl")) do
      if e.event == "batch" then
        changes[#changes + 1] = ("%d %d"):format(e.step, e.batch)
        noted[#noted + 1] = { e.before, e.batch }
      end
    end
    assert.same({ { 8, 20 }, { 20, 33 } }, noted)
    job:finish()
    check_repeated(list, changes)
  end)

  it("reaches a single process, and refuses what is for other ranks", function()
    local job = support.start(recipe, { "--out", "run" }, support.one_rank)
    job:file "ready"
    local result = ask(job, "resize", "run", "--batch", "20", "--limit", "3")
    assert.equal(2, result.code, result.out)
    assert.matches("%-%-limit is for other ranks: give it with %-n M", result.err)
    result = ask(job, "resize", "run", "--json", "--batch", "20")
    assert.equal(0, result.code, result.err)
    assert.equal(20, json.decode(result.out, "the answer").batch)
    job:goes_on()
    job:signal("TERM", job:supervisor())
    assert.equal("75", job:file("status"):match "%d+", job:read "err")
    job:finish()
  end)
end)
