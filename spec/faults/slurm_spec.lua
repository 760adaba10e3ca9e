--- `ganymede slurm` on Slurm itself: three slurmd on this machine (spec/faults/slurm_cluster.lua). A job runs, is
-- preempted or warned, waits again, goes on, and computes the losses of a run that nobody disturbed.
-- sanitizers: no, numbers of training on several ranks are compared; spec/comm/tcp_spec.lua looks at the same code
local cluster = require "spec.faults.slurm_cluster"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

describe("a run on Slurm", function()
  local missing = cluster.missing()
  if missing then
    pending(missing)
    return
  end

  local c, home
  setup(function() c = cluster.start() end)
  teardown(function() c:stop() end)
  after_each(function() shell.remove(home) end)

  -- At step 20 rank 0 says so, and all wait until the file `go` is there.
  local body = support.training [[
    if trainer.step == 20 then
      if rank == 0 then io.open("ready", "w"):close() end
      while not io.open "go" do os.execute "sleep 0.05" end
    end]]

  local function submit(words, options, other)
    home = support.home(other or body)
    local result = c:run(("cd %s && %s slurm recipe.lua --out 'run 1' %s -- --threads 1 --stats stats.json %s"):format(
      shell.quote(home), shell.quote(shell.executable()), words, options or ""))
    assert.equal(0, result.code, result.err)
    return result.out:match "^(%d+)\n$"
  end

  local function read(name)
    local file = io.open(home .. "/" .. name)
    local text = file and file:read "*a"
    if file then file:close() end
    return text
  end
  local function log(job) return read("run 1/slurm-" .. job .. ".log") or "" end
  local function ready() c:wait_until("step 20", function() return read "ready" end) end
  local function go() shell.write(home .. "/go", "") end

  -- Of metrics.jsonl, which holds the steps of all starts of the run.
  local function losses(folder)
    local out = {}
    for line in io.lines(folder .. "/metrics.jsonl") do
      local event = json.decode(line, line)
      if event.step and event.loss then out[event.step] = event.loss end
    end
    return out
  end

  local function resize(words)
    return c:run(("cd %s && %s resize 'run 1' %s"):format(shell.quote(home), shell.quote(shell.executable()), words))
  end

  -- 1e-5: the order of sums in f32.
  local function like_undisturbed(tolerance)
    local alone = run_host({ "run", "recipe.lua", "--threads", "1", "--out", "alone" }, { cwd = home })
    assert.equal(0, alone.code, alone.err)
    local want, got = losses(home .. "/alone"), losses(home .. "/run 1")
    assert.equal(#want, #got)
    assert.is_true(#want > 0)
    for i, loss in pairs(want) do assert.near(loss, got[i], (tolerance or 1e-5) * math.max(1, loss)) end
  end

  it("that is preempted saves a checkpoint, waits, and goes on with the same losses", function()
    local job = submit "-N 2 --requeue"
    ready()
    local other = c:ask("sbatch --parsable -p high -N 3 --exclusive -o /dev/null --wrap 'sleep 0.1'")
    c:wait_until("the preemption", function() return log(job):find "DUE TO PREEMPTION" end)
    go()
    c:wait(other, "^COMPLETED")
    c:begin(job)
    c:wait(job, "^COMPLETED")
    local said = log(job)
    assert.is_truthy(said:find "2 ranks, started by srun, 1 on this machine: TCP through", said)
    local step = said:match "stopped after step (%d+); saved"
    assert.is_truthy(step, said)
    assert.is_truthy(said:find("at step " .. step .. "\n", 1, true), said)
    like_undisturbed()
  end)

  it("refuses more ranks than its machines hold, and says how to begin again with others", function()
    local job = submit "-N 2 --requeue"
    ready()
    os.execute(("(sleep 1; touch %s/go) &"):format(home)) -- it hears nothing while it waits at step 20
    local result = resize "-n 3"
    assert.equal(1, result.code, result.out .. result.err)
    assert.is_truthy(result.err:find("room for 2 ranks", 1, true), result.err)
    assert.is_truthy(result.err:find("scancel --signal=TERM " .. job, 1, true), result.err)
    c:wait(job, "^COMPLETED")
    like_undisturbed()
  end)

  -- In f64: 1e-16 an addition, in another order.
  it("changes its ranks inside of its allocation, is put back and goes on, with the losses of one", function()
    local body_f64 = support.training [[
      if trainer.step == 3 and rank == 0 then io.open("ready", "w"):close() end
      if not io.open "go" then core.sleep(0.05) end]]
    local job = submit("-N 2 --ntasks-per-node 2 --requeue", "", (body_f64:gsub('name = "points"', '%0, dtype = "f64"')
      :gsub("epochs = 4", "epochs = 40")))
    ready()
    local before = 4
    for _, count in ipairs { 2, 3 } do
      local result = resize(("-n %d --json"):format(count))
      assert.equal(0, result.code, result.err .. log(job))
      local answer = json.decode(result.out, "answer")
      assert.same({ before, count }, { answer.before, answer.ranks })
      before = count
      c:wait_until("a step of the new ranks", function() return #losses(home .. "/run 1") > answer.step end)
    end
    assert.is_truthy(c:ask("squeue -h -s -j " .. job .. " -o %i"):find(job .. ".2", 1, true))
    assert.equal(0, c:run("scancel --signal=TERM " .. job).code) -- it waits again with the machines that it had
    c:begin(job)
    go()
    c:wait(job, "^COMPLETED")
    assert.is_truthy(log(job):find "resumed from", log(job))
    for _, text in ipairs { "2 ranks took over from 4", "3 ranks took over from 2" } do
      assert.is_truthy(log(job):find(text, 1, true), log(job))
    end
    like_undisturbed(1e-9)
  end)

  it("of which a rank is killed starts its ranks again, and has the losses of one that nobody disturbed", function()
    local killed = support.training [[
      if trainer.step == 20 and rank == 1 and not io.open "killed" then
        io.open("killed", "w"):close()
        os.execute("kill -9 " .. core.process().pid)
      end]]
    local job = submit("-N 2 --max-restarts 2 --restart-delay 0.1", "--set checkpoint.interval=8", killed)
    c:wait(job, "^COMPLETED")
    local said = log(job)
    assert.is_truthy(said:find("they are started again in 0.1 s, from the newest checkpoint", 1, true), said)
    assert.is_truthy(said:find "resumed from", said)
    like_undisturbed()
  end)

  it("that is warned before its time is over puts itself back", function()
    local job = submit "-N 3 --requeue"
    ready()
    assert.equal(0, c:run("scancel --signal=TERM " .. job).code) -- what --signal does
    go()
    c:begin(job)
    c:wait(job, "^COMPLETED")
    assert.is_truthy(log(job):find "3 ranks, started by srun", log(job))
    assert.is_truthy(log(job):find "resumed from", log(job))
    like_undisturbed()
  end)

  it("that is warned without --requeue ends with status 75 and keeps its checkpoint", function()
    local job = submit "-N 1"
    ready()
    assert.equal(0, c:run("scancel --signal=TERM " .. job).code)
    go()
    c:wait(job, "^FAILED")
    assert.is_truthy(c:ask("scontrol -o show job " .. job):find "ExitCode=75:0")
    assert.is_truthy(log(job):find "stopped after step", log(job))
  end)

  it("starts -n on one machine of the allocation, and refuses it on several", function()
    home = support.home "print(core.world())"
    local program = shell.quote(shell.executable())
    local result = c:run(("cd %s && srun -N 1 -n 1 -c 2 %s run recipe.lua -n 2 --threads 1"):format(shell.quote(home),
      program))
    assert.equal(0, result.code, result.err)
    assert.equal("2\n2\n", result.out)
    result = c:run(("cd %s && srun -N 2 -n 2 %s run recipe.lua -n 4"):format(shell.quote(home), program))
    assert.equal(2, result.code, result.out)
    assert.is_truthy(result.err:find("-n 4, but srun started this as one of 2 ranks", 1, true), result.err)
    result = c:run(("cd %s && salloc -Q -N 2 %s run recipe.lua -n 4"):format(shell.quote(home), program))
    assert.equal(2, result.code, result.out)
    assert.is_truthy(result.err:find("this allocation of Slurm has 2 machines", 1, true), result.err)
    result = c:run(("cd %s && salloc -Q -N 2 %s run recipe.lua"):format(shell.quote(home), program))
    assert.equal("1\n", result.out, result.err)
    assert.is_truthy(result.err:find("has 2 machines, and this is one rank", 1, true), result.err)
  end)
end)
