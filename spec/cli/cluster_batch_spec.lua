--- `ganymede cluster` with a job whose recipe has adaptive_batch: its batch grows with the measured noise of the
-- gradient, alone and together with its ranks, each epoch has every sample once, and the losses are those of one rank
-- that makes the recorded changes.
--
-- Losses in f64 agree to 1e-9: the order of sums differs with the ranks, 1e-16 an addition.
-- sanitizers: no, numbers of training on several ranks are compared
local faults = require "spec.faults.support"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

-- Labels have nothing to do with the inputs, so gradients are noise, and a step takes some 20 ms whatever its batch is:
-- larger batches pay. The run ends with the first epoch that has batches of 90, however fast the machine is. Where
-- there is a file `changes`, the run makes them itself, without these 20 ms.
local recipe = [[
local changes, quick = {}, io.open "changes"
for step, batch in (quick and quick:read "*a" or ""):gmatch "(%d+) (%d+)" do
  changes[tonumber(step)] = tonumber(batch)
end
require("ganymede.hooks.base").class("Slow", {}, { before_train_iter = function(_, trainer)
  local batch = changes[trainer.step]
  if batch then assert(trainer:set_batch(batch)) end
  if not quick then core.sleep(0.02) end
end, after_train_loss = function(self, _, step) self.batch = step.samples end,
after_train_epoch = function(self, trainer) if self.batch == 90 then trainer:stop() end end })
local random = require("ganymede.cluster.random").new(5)
local rows = {}
for i = 1, 180 do rows[i] = { { random(), random(), random(), random() }, random(3) } end
return {
  name = "noise", seed = 3, epochs = 600, dtype = "f64", gradient_accumulation = 2,
  adaptive_batch = { largest = 45, rate = "sqrt", every = 2 },
  model = { type = "MLP", inputs = 4, hidden = { 8 }, classes = 3 },
  data = { train = { length = #rows, get = function(i) return rows[i][1], rows[i][2] - 1 end }, batch_size = 9 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.01 }, hooks = { { type = "Slow" } },
}
]]

local home
before_each(function() home = faults.home(recipe) end)
after_each(function() shell.remove(home) end)

local function cluster(jobs)
  shell.write(home .. "/jobs.lua", jobs)
  return run_host({ "cluster", "jobs.lua", "--out", "out", "--json" }, { cwd = home, env = faults.environment(home) })
end

local function events(path)
  local list = {}
  for line in io.lines(home .. "/" .. path) do list[#list + 1] = json.decode(line, line) end
  return list
end

local function steps_of(folder)
  local list = {}
  for _, event in ipairs(events(folder .. "/metrics.jsonl")) do
    if event.loss then
      assert.equal(#list + 1, event.step)
      list[event.step] = event
    end
  end
  return list
end

local function check_repeated(list, changes)
  shell.write(home .. "/changes", table.concat(changes, "\n"))
  local result = faults.run_in(home, { "--out", "alone", "--no-eval" }, 1)
  assert.equal(0, result.code, result.err)
  local want = steps_of "alone"
  assert.equal(#want, #list)
  for i, step in ipairs(want) do
    assert.near(step.loss, list[i].loss, 1e-9)
    assert.same({ step.batch, step.samples }, { list[i].batch, list[i].samples })
  end
end

describe("ganymede cluster with adaptive_batch", function()
  it("lets the batch of a job grow with its noise, and its ranks beside it", function()
    local result = cluster [[return { nodes = { 2 }, interval = 1, policy = { type = "elastic", restart = 0.1 },
      jobs = { { name = "big", recipe = "recipe.lua", most = 2, step_seconds = 0.02 } } }]]
    assert.equal(0, result.code, result.err)
    local found = json.decode(result.out, "cluster --json").jobs[1]
    assert.same({ "done", 18, 90 }, { found.state, found.first_batch, found.batch })
    assert.is_true(found.batch_changes >= 2) -- it is tried up to twice what was measured
    assert.is_nil(found.predicted)
    local list, changes, seen = steps_of "out/big", {}, {}
    assert.equal(0, list[#list].samples % 180)
    for _, e in ipairs(events "out/big/events.jsonl") do
      if e.event == "batch" then changes[#changes + 1] = ("%d %d"):format(e.step, e.batch) end
    end
    for _, e in ipairs(events "out/events.jsonl") do
      if e.event == "batch" then seen[#seen + 1] = { e.before, e.batch } end
    end
    assert.equal(found.batch_changes, #changes)
    assert.equal(found.batch_changes, #seen)
    assert.equal(18, seen[1][1])
    assert.is_true(seen[1][2] <= 36)
    assert.equal(90, seen[#seen][2])
    check_repeated(list, changes)
  end)

  it("refuses a number of steps for such a job", function()
    local result = cluster [[return { jobs = { { name = "big", recipe = "recipe.lua", steps = 3 } } }]]
    assert.equal(2, result.code, result.out)
    assert.matches("job 'big': steps 3, and its recipe has adaptive_batch", result.err)
  end)
end)
