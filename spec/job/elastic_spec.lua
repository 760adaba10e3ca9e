--- `ganymede resize`: a job goes on with other ranks, in other modes, and gives the losses of one rank that nobody
-- disturbed; what is refused or dies in the middle of a change costs it nothing.
--
-- In f64 the losses agree to 1e-9: the order of sums differs, 1e-16 an addition, over some hundred steps. Batches of 22
-- rows divide by neither 4 nor 8; changes come inside of epochs.
-- sanitizers: no, numbers of training on several ranks are compared
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- Steps of some 40 ms, so that a job is there while it is asked, and makes few steps meanwhile; none of that where a
-- file `quick` is. The path of what is handed over is in the file `state`. A hook of its own has a state, and may do
-- what the file `wrong` says: "read" where ranks that came read it, "build" before they are built. Ranks that are built
-- wait as long as there is a file `hold`. Where there is a file `full`, memory takes no state, nor its rehearsal.
local recipe = [[
local snapshot = require "ganymede.checkpoint.snapshot"
local restore, came = snapshot.restore, io.open "ready" ~= nil
local function write(name, text)
  local file = assert(io.open(name .. ".new", "w"))
  file:write(text)
  file:close()
  assert(os.rename(name .. ".new", name))
end
local function exists(name)
  local file = io.open(name)
  if file then file:close() end
  return file ~= nil
end
local function go_wrong(place)
  local file = came and io.open "wrong"
  local what = file and file:read "*a"
  if file then file:close() end
  if not what or what:match "^%a+" ~= place then return end
  assert(loadstring("local rank, kill = ... " .. what:match " (.*)$"))(rank, kill)
end
local begin_save = snapshot.start
snapshot.start = function(trainer, folder, opt)
  return begin_save(trainer, opt.passing and exists "full" and "/proc/full" or folder, opt)
end
local rehearse = snapshot.rehearse
snapshot.rehearse = function(trainer, folder) return rehearse(trainer, exists "full" and "/proc/full" or folder) end
snapshot.restore = function(trainer, path)
  if rank == 0 then write("state", path) end
  return restore(trainer, path)
end
require("ganymede.hooks.base").class("Spy", {}, {
  before_train_iter = function(self, trainer)
    self.steps = (self.steps or 0) + 1
    assert(self.steps == trainer.step + 1, "the state of a hook was lost")
    if rank == 0 and trainer.step == 2 then write("ready", "") end
    if not exists "quick" then core.sleep(0.04) end
  end,
  state = function(self) return { steps = self.steps } end,
  load_state = function(self, state)
    self.steps = state.steps
    go_wrong "read"
  end })
if came and rank == 0 then write("building", "yes") end
while came and exists "hold" do core.sleep(0.01) end
go_wrong "build"
return {
  name = "elastic", seed = 3, dtype = "f64", clip_grad_norm = 1, epochs = 100000,
  model = { type = "MLP", inputs = 6, hidden = { 16, 12 }, classes = 4, dropout = 0.3 },
  data = { train = { type = "Synthetic", length = 90, shape = { 6 }, classes = 4, split = "train" },
    test = { type = "Synthetic", length = 8, shape = { 6 }, classes = 4, split = "test" }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.02 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 12 },
  hooks = { { type = "Spy" }, { type = "EMA", decay = 0.9 } },
}
]]

local EPOCH = 5 -- steps

-- The losses by step; fails where a step is missing or is there twice, or an epoch was not evaluated. epoch: its steps.
local function losses(path, epoch)
  local list, evaluated = {}, 0
  for line in io.lines(path) do
    local event = json.decode(line, path)
    if event.test then
      evaluated = evaluated + 1
      assert.equal(evaluated * epoch, event.step)
    else
      assert.equal(math.floor(#list / epoch), evaluated)
      assert.equal(#list + 1, event.step) -- each step once, in order
      list[event.step] = event.loss
    end
  end
  return list
end

-- The losses of one rank that makes so many steps.
local function undisturbed(steps)
  local home = support.home(recipe)
  finally(function() shell.remove(home) end)
  shell.write(home .. "/quick", "")
  local result = support.run_in(home, { "--out", "run", "--no-eval", "--steps", tostring(steps) }, 1)
  assert.equal(0, result.code, result.err)
  local list = {}
  for line in io.lines(home .. "/run/metrics.jsonl") do list[#list + 1] = json.decode(line, "metrics.jsonl").loss end
  return list
end

local function start(words, ranks)
  local job = support.start(recipe, { "--out", "run", unpack(words or {}) }, "%s run recipe.lua -n " .. (ranks or 2))
  job:file "ready"
  return job
end

local function resize(job, ...)
  return run_host({ "resize", ... }, { cwd = job.home, env = support.environment(job.home) })
end

-- Begins to resize a job to n ranks; what is said goes to the file asked, and at its end the status to asked.status.
local function ask(job, n)
  local script = ("cd %s && TMPDIR=%s %s -n %d >asked 2>&1; echo $? >asked.status"):format(shell.quote(job.home),
    shell.quote(job.home), shell.program "resize", n)
  assert.equal(0, os.execute(("GANYMEDE_ROOT=%s sh -c %s &"):format(shell.quote(GANYMEDE_ROOT), shell.quote(script))))
end

-- Waits until the words stand in what was said.
local function wait_for_words(job, words)
  local deadline = core.now() + shell.PATIENCE
  while not job:read("asked"):find(words, 1, true) do
    assert.is_true(core.now() < deadline, job:read "asked")
    core.sleep(0.05)
  end
end

local function state_folder(job) return job:read("state"):match "^(.*)/checkpoints/step%-%d+$" end

-- Ends a job with SIGTERM -> what Job:finish gives, and the losses until then. epoch: the steps of one, default EPOCH.
local function stop(job, epoch)
  job:signal("TERM", job:supervisor())
  local code = job:file("status"):match "%d+"
  assert.equal("75", code, job:read "err")
  local list = losses(job.home .. "/run/metrics.jsonl", epoch or EPOCH)
  return job:finish(), list
end

local function attach(job, line)
  return run_host({ "attach", "--run", line }, { cwd = job.home, env = support.environment(job.home) })
end

local function check_losses(list)
  local whole = undisturbed(#list)
  for step, loss in ipairs(list) do assert.near(whole[step], loss, 1e-9) end
end

describe("ganymede resize", function()
  it("goes from 4 ranks to 8, 3 and 6, through ZeRO, tensor, data and pipeline: the losses are those of one", function()
    local job = start({ "--set", "zero.level=3" }, 4)
    local changes = {
      { 8, "--set", "parallel.tensor.size=2", "--set", "parallel.tensor.mode=1d", "--set", "zero.level=0" },
      { 3, "--set", "parallel.tensor.size=1" },
      { 6, "--set", "parallel.pipeline.size=2", "--set", "num_microbatches=2", "--set", "zero.level=1" },
    }
    local before, answers = 4, {}
    for _, change in ipairs(changes) do
      local ranks, from = change[1], job:last_step()
      local result = resize(job, "--json", "-n", unpack(change))
      assert.equal(0, result.code, result.err .. job:read "err")
      local answer = json.decode(result.out, "the answer")
      answers[#answers + 1] = answer
      assert.same({ before, ranks, "memory" }, { answer.before, answer.ranks, answer.place })
      assert.is_true(answer.step > from and answer.paused > 0)
      assert.is_false(core.is_own_folder(state_folder(job)))
      assert.matches(("step %d"):format(answer.step), job:read "out")
      job:goes_on()
      before = ranks
    end
    assert.equal("[0-5] 6\n", attach(job, "world").out)
    local noted = shell.lines("grep -c '\"kind\":\"resize\"' " .. job.home .. "/run/requests.jsonl")
    assert.equal("3", noted[1])
    local timed = 0
    for line in io.lines(job.home .. "/run/events.jsonl") do -- what report shows
      local event, answer = json.decode(line, line), answers[timed + 1]
      timed = timed + 1
      assert.same({ "resize", answer.step, answer.before, answer.ranks, answer.paused, answer.built },
        { event.event, event.step, event.before, event.ranks, event.seconds, event.built })
    end
    assert.equal(3, timed)
    local result, list = stop(job)
    assert.matches("stopped after step", result.err)
    check_losses(list)
  end)

  it("refuses what cannot be, and costs the job nothing, also where ranks that come are killed", function()
    local job = start()
    for _, case in ipairs {
      { "it has 2 ranks", "-n", "2" },
      { "optimizer.lr=1: only how ranks share the work", "-n", "3", "--set", "optimizer.lr=1" },
      { "600 ranks: 1 to 512", "-n", "600" },
      { "parallel.tensor size 2 needs a mode", "-n", "3", "--set", "parallel.tensor.size=2" },
    } do
      local result = resize(job, unpack(case, 2))
      assert.equal(1, result.code, result.out)
      assert.is_truthy(result.err:find(case[1], 1, true), result.err)
    end
    for _, place in ipairs { "build", "read" } do
      shell.write(job.home .. "/wrong", place .. " if rank == 1 then kill(9) end")
      local result = resize(job, "-n", "3")
      assert.equal(1, result.code, result.out)
      assert.matches("rank 1: killed by signal 9", result.err)
      job:goes_on()
    end
    shell.write(job.home .. "/wrong", [[build error "\255 mine"]])
    local words = resize(job, "-n", "3") -- of a rank, which are no UTF-8
    assert.equal(1, words.code, words.out)
    assert.is_truthy(words.err:find(":1: \\xff mine", 1, true), words.err)
    job:goes_on()
    os.remove(job.home .. "/wrong")
    shell.write(job.home .. "/full", "")
    local over_disk = resize(job, "-n", "1")
    assert.equal(0, over_disk.code, over_disk.err)
    assert.matches("; the state went over the disk\n", over_disk.out)
    assert.matches("memory does not take the state", job:read "err")
    assert.matches("how the state is taken up is not rehearsed", job:read "err")
    assert.matches("^run/checkpoints/step%-%d+$", job:read "state")
    job:goes_on()
    assert.is_nil((job:read "err"):find("ganymede: rank 1", 1, true)) -- who asked was told, as a warning
    local _, list = stop(job)
    check_losses(list)
  end)

  it("goes on with the ranks that come where those that trained die once their state lies in memory", function()
    local job = start()
    shell.write(job.home .. "/wrong", ("read if rank == 0 then os.execute 'kill -9 %s 2>/dev/null' end"):format(
      table.concat(job:keepers(), " ")))
    local result = resize(job, "-n", "3")
    assert.equal(0, result.code, result.err)
    job:goes_on()
    local _, list = stop(job)
    check_losses(list)
  end)

  it("is one job while others are built, and ends as a job does where one of its ranks dies then", function()
    local job = start { "--set", "checkpoint.interval=1" }
    local trains = job:keepers() -- once others are built, they have keepers, too
    shell.write(job.home .. "/hold", "")
    ask(job, 3)
    job:file "building"
    assert.equal("[0-1] 2\n", attach(job, "world").out)
    job:signal("KILL", { trains[1] })
    local status = job:file "status"
    assert.equal("6", status:match "%d+", job:read "err")
    assert.matches("refused: the job has ended: ", job:read "asked")
    local checkpoint = require "ganymede.checkpoint"
    assert.is_string(checkpoint.latest(job.home .. "/run/checkpoints"))
    job:finish()
  end)

  it("waits for a supervisor that is stopped, and says so", function()
    local job = start()
    local pid = job:supervisor()[1]
    job:signal("STOP", { pid })
    shell.write(job.home .. "/asked", "")
    ask(job, 1)
    wait_for_words(job, ("elastic does not answer: its supervisor (process %s) is stopped"):format(pid))
    job:signal("CONT", { pid })
    assert.equal("0", job:file("asked.status"):match "%d+", job:read "asked")
    local _, list = stop(job)
    check_losses(list)
  end)

  it("leaves nothing where the supervisor is killed in the middle", function()
    local job = start()
    shell.write(job.home .. "/wrong", "read if rank == 0 then os.execute 'kill -9 $(cat pid)' end")
    assert.equal(1, resize(job, "-n", "3").code)
    local folder = state_folder(job)
    assert.same({}, support.left(job.home))
    local deadline = core.now() + shell.PATIENCE
    while core.is_own_folder(folder) and core.now() < deadline do core.sleep(0.05) end
    assert.is_false(core.is_own_folder(folder))
    job:finish()
  end)

  it("changes at the end of an epoch, too, whose evaluation the new ranks make", function()
    local job = start { "--set", "data.batch_size=90" } -- each step ends an epoch
    local result = resize(job, "-n", "3")
    assert.equal(0, result.code, result.err)
    local _, list = stop(job, 1)
    assert.is_true(#list > 3)
  end)

  it("says that nobody can start ranks for a job without a supervisor", function()
    local job = support.start(recipe, { "--out", "run" }, "%s run recipe.lua")
    job:file "ready"
    local result = resize(job, "-n", "2")
    assert.equal(1, result.code, result.err)
    assert.matches("nobody can start ranks for this job", result.err)
    stop(job)
  end)
end)
