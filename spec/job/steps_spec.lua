--- `ganymede resize` of a job whose ranks srun has started: rank 0 starts the ranks that come as another step. Programs
-- in place of Slurm's stand on this machine (spec/job/srun.lua); spec/faults/slurm_spec.lua does it on Slurm itself.
--
-- In f64 the losses agree with those of one rank to 1e-9: the order of sums differs, 1e-16 an addition.
-- sanitizers: no, numbers of training on several ranks are compared
local core = require "ganymede.core"
local device = require "spec.support.device"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local srun = require "spec.job.srun"
local steps = require "ganymede.job.steps"
local support = require "spec.faults.support"

-- Steps of some 40 ms, none of that where a file `quick` is. Ranks that come do what is in the file `wrong` first.
-- Where a file `hold` is, ranks that leave take a second for it.
local recipe = [[
local function exists(name)
  local file = io.open(name)
  if file then file:close() end
  return file ~= nil
end
if exists "ready" and exists "wrong" then dofile "wrong" end
local launcher = require "ganymede.job.launcher"
local leave = launcher.leave
function launcher.leave(code)
  if exists "hold" then os.execute("echo yes >leaves" .. rank .. "; sleep 1") end
  leave(code)
end
require("ganymede.hooks.base").class("Slow", {}, { before_train_iter = function(_, trainer)
  if rank == 0 and trainer.step == 2 then io.open("ready", "w"):close() end
  if not exists "quick" then core.sleep(0.04) end
end })
return {
  name = "steps", seed = 3, dtype = "f64", clip_grad_norm = 1, epochs = 100000,
  model = { type = "MLP", inputs = 6, hidden = { 16, 12 }, classes = 4, dropout = 0.3 },
  data = { train = { type = "Synthetic", length = 90, shape = { 6 }, classes = 4 }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.02 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 12 },
  hooks = { { type = "Slow" }, { type = "EMA", decay = 0.9 } },
}
]]

local home
before_each(function()
  home = support.home(recipe)
  srun.install(home)
end)
after_each(function() shell.remove(home) end)

local function read(name)
  local file = io.open(home .. "/" .. name)
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

-- A file is there a moment before its text; `ready` has none.
local function wait_for(name)
  local deadline = core.now() + shell.PATIENCE
  while not read(name) or read(name) == "" and name ~= "ready" do
    assert(core.now() < deadline, ("no file %s; it wrote:\n%s"):format(name, read "err" or ""))
    core.sleep(0.02)
  end
  return read(name)
end

-- Starts the recipe by srun on so many ranks, on two machines of two cores each. more: flags of run.
local function start(ranks, cpus, more)
  local line = ("cd %s && env %s timeout -k 5 120 srun --ntasks=%d %s run recipe.lua --threads 1 --device %s --out run "
    .. "%s >>out 2>>err; echo $? >status"):format(shell.quote(home), support.environment_words(home,
    srun.environment(home, cpus or "2(x2)")), ranks, shell.quote(shell.executable()), device.name(), more or "")
  shell.write(home .. "/job.sh", line .. "\n")
  assert(os.execute(("PATH=%s/bin:$PATH setsid sh %s/job.sh </dev/null >/dev/null 2>&1 &"):format(home, home)) == 0)
  wait_for "ready"
end

local function resize(...)
  return run_host({ "resize", ... }, { cwd = home, env = support.environment(home) })
end

-- Sends SIGTERM to the first rank of the step that srun started first: what Slurm does to all steps.
local function stop()
  os.execute("kill -TERM $(cat " .. home .. "/step-0)")
  assert.equal("75\n", wait_for "status", read "err")
  assert.same({}, support.left(home))
  support.check_folder(home)
  assert.equal("", shell.run("ls -d " .. home .. "/run/resize-* 2>/dev/null").out)
end

local function check_losses()
  local list = support.losses(home)
  shell.write(home .. "/quick", "")
  local alone = support.run_in(home, { "--out", "alone", "--no-eval", "--steps", tostring(#list) }, 1)
  assert.equal(0, alone.code, alone.err)
  for step, loss in ipairs(support.losses(home, "alone")) do assert.near(loss, list[step], 1e-9) end
end

describe("ganymede resize of ranks of srun", function()
  it("goes from 2 ranks to 4, 3, 1 and 2, each a step of the same job: the losses are those of one", function()
    start(2)
    local before = 2
    for i, count in ipairs { 4, 3, 1, 2 } do
      local result = resize("-n", tostring(count), "--json")
      assert.equal(0, result.code, result.err .. read "err")
      local answer = json.decode(result.out, "answer")
      assert.same({ before, count, "disk" }, { answer.before, answer.ranks, answer.place })
      assert.is_truthy(read("srun-" .. i):find("--overlap --jobid=" .. 100000 + core.process().pid, 1, true))
      before = count
      os.execute "sleep 0.3"
    end
    stop()
    for _, text in ipairs { "4 ranks took over from 2", "3 ranks took over from 4", "1 ranks took over from 3",
      "2 ranks took over from 1" } do
      assert.is_truthy((read "err" .. read "out"):find(text, 1, true), read "err")
    end
    check_losses()
  end)

  it("goes on with checkpoints in memory, of which one rank alone keeps none and the end leaves none", function()
    start(2, nil, "--memory-checkpoint 2")
    for _, count in ipairs { 3, 1, 2 } do
      local result = resize("-n", tostring(count), "--json")
      assert.equal(0, result.code, result.err .. read "err")
      os.execute "sleep 0.3"
    end
    local id = json.decode(read "run/memory.json", "memory.json").id
    assert.not_equal("", shell.run("ls -d /dev/shm/ganymede-memory-" .. id .. "-*").out)
    stop()
    assert.equal("", shell.run("ls -d /dev/shm/ganymede-memory-" .. id .. "-* 2>/dev/null").out)
    assert.is_truthy(read("err"):find("one rank alone keeps no checkpoints in memory", 1, true), read "err")
    check_losses()
  end)

  it("refuses what the allocation does not hold, and goes on", function()
    start(2, "1(x2),1")
    local result = resize("-n", "4")
    assert.equal(1, result.code)
    assert.matches("have room for 3 ranks %(SLURM_JOB_CPUS_PER_NODE=1%(x2%),1, 1 core each%): ask for at most 3",
      result.err)
    assert.matches("scancel %-%-signal=TERM %d+\n", result.err)
    result = resize("-n", "2")
    assert.equal(1, result.code)
    assert.matches("refused: it has 2 ranks", result.err)
    result = resize("-n", "3", "--set", "optimizer.lr=1")
    assert.matches("only how ranks share the work can change", result.err)
    stop()
    check_losses()
  end)

  it("costs the job nothing where the ranks that come fail, or do not come", function()
    start(2)
    shell.write(home .. "/wrong", 'error("no luck", 0)')
    local result = resize("-n", "3")
    assert.equal(1, result.code)
    assert.matches("refused: .*no luck", result.err)
    shell.write(home .. "/no-srun", "")
    assert.matches("ended with status 1; what they printed is in the output", resize("-n", "3").err)
    assert.is_truthy(read("err"):find("Unable to create step", 1, true))
    os.remove(home .. "/no-srun")
    shell.write(home .. "/wrong", 'os.execute "sleep 4"')
    assert.matches("not done within 1 seconds", resize("-n", "3", "--limit", "1").err)
    stop()
    check_losses()
  end)
end)

describe("a change of ranks of srun", function()
  it("loses no SIGTERM that comes while the ranks before leave: those that came save, with status 75", function()
    start(2)
    shell.write(home .. "/hold", "")
    local result = resize("-n", "3", "--json")
    assert.equal(0, result.code, result.err .. read "err")
    wait_for "leaves0"
    os.execute("kill -TERM " .. read("step-0"):match "%d+")
    os.remove(home .. "/hold")
    assert.equal("75\n", wait_for "status", read "err")
    assert.matches("stopped after step %d+; saved run/checkpoints/", read "err")
    assert.same({}, support.left(home))
  end)

  it("hears no words of a change that another process of this number has begun in the folder", function()
    start(2)
    local folder = ("%s/run/resize-%d"):format(home, read("step-0"):match "%d+" * 1000 + 1)
    assert(os.execute("mkdir " .. folder) == 0)
    shell.write(folder .. "/stay", "{}\n")
    local result = resize("-n", "3", "--json")
    assert.equal(0, result.code, result.err .. read "err")
    assert.same({ "stay" }, core.list_folder(folder))
    os.execute("kill -TERM " .. read("step-0"):match "%d+") -- the others may be leaving
    assert.equal("75\n", wait_for "status", read "err")
    assert.same({}, support.left(home))
  end)
end)

describe("a job of srun that is put back", function()
  -- What its script asks, with so many cores on its machines -> the words of srun, and what is said.
  local function last(cpus, job)
    local env = support.environment(home, srun.environment(home, cpus))
    env.SLURM_JOB_ID = job or env.SLURM_JOB_ID
    local result = run_host({ "resize", "run", "--last" }, { cwd = home, env = env })
    assert.equal(0, result.code, result.err)
    return result.out:gsub("\n$", ""), result.err
  end

  it("goes on with the ranks and the mesh of its last change, where the allocation holds them", function()
    start(2)
    assert.equal("srun", (last "2(x2)"))
    for _, words in ipairs { { "-n", "3", "--set", "zero=1" },
      { "-n", "4", "--set", "parallel.tensor.size=2", "--set", "parallel.tensor.mode=1d", "--set", "zero=0" } } do
      local result = resize(unpack(words))
      assert.equal(0, result.code, result.err .. read "err")
    end
    os.execute "sleep 0.3"
    stop()
    local words, said = last "2(x2)"
    assert.matches("^env .* srun %-%-overlap %-%-jobid=%d+ %-%-nodes=2 %-%-relative=0 %-%-ntasks=4$", words)
    assert.equal("", said)
    assert.equal("srun", (last("2(x2)", "17"))) -- another job of the same folder
    words, said = last "3"
    assert.equal("srun", words)
    assert.matches("the run had 4 ranks in job %d+ of Slurm, whose machines have room for 3 ranks "
      .. "%(SLURM_JOB_CPUS_PER_NODE=3, 1 core each%): it goes on with those of its script", said)
    local steps_before = #support.losses(home)
    for _, name in ipairs { "status", "ready", "step-0" } do os.remove(home .. "/" .. name) end
    os.execute("rm -r " .. home .. "/taken-*")
    shell.write(home .. "/job.sh", shell.read(home .. "/job.sh"):gsub("srun %-%-ntasks=2", (last "2(x2)"))
      :gsub("%-%-out run", "--out run --resume auto"))
    for _, name in ipairs { "out", "err" } do shell.write(home .. "/" .. name, "") end
    assert(os.execute(("PATH=%s/bin:$PATH setsid sh %s/job.sh </dev/null >/dev/null 2>&1 &"):format(home, home)) == 0)
    local deadline = core.now() + shell.PATIENCE
    while #support.losses(home) < steps_before + 3 do
      assert(core.now() < deadline, read "err")
      core.sleep(0.05)
    end
    stop()
    assert.matches("4 ranks, as `ganymede resize` left them in this job of Slurm: parallel.tensor.size=2, "
      .. "parallel.tensor.mode=1d, zero=0\n", read "err")
    assert.matches("steps: 4 ranks %(data 2, tensor 2%)", read "err")
    check_losses()
  end)
end)

describe("the places of an allocation", function()
  it("are counted from what Slurm says", function()
    assert.same({ 5, 3 }, { steps.places("2(x2),1", 1) })
    assert.same({ 4, 3 }, { steps.places("5(x2),1", 2) })
    assert.is_nil((steps.places("many", 1)))
  end)
end)
