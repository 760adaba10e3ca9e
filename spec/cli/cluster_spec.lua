--- `ganymede cluster`: jobs come to their ends under a policy, with the losses of runs alone, over changes of ranks,
-- checkpoints, Ctrl-C and the death of the scheduler; a job that fails is its own affair; wrong tables start nothing.
--
-- Losses in f64 agree to 1e-9: the order of sums differs with the ranks, 1e-16 an addition.
-- sanitizers: no, numbers of training on several ranks are compared
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local faults = require "spec.faults.support"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

-- Steps of some 20 ms, so that a job is there when another one arrives; none of that where a file `quick` is.
local recipe = [[
require("ganymede.hooks.base").class("Slow", {}, { before_train_iter = function(_, trainer)
  local quick = io.open "quick"
  if quick then return quick:close() end
  core.sleep(0.02)
end })
return {
  name = "points", seed = 3, epochs = 100, dtype = "f64",
  model = { type = "MLP", inputs = 6, hidden = { 8 }, classes = 4 },
  data = { train = { type = "Synthetic", length = 90, shape = { 6 }, classes = 4 }, batch_size = 18 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.02 }, hooks = { { type = "Slow" } },
}
]]

local home
local function open(jobs, files)
  home = faults.home(recipe)
  shell.write(home .. "/jobs.lua", jobs)
  for name, text in pairs(files or {}) do shell.write(home .. "/" .. name, text) end
end
after_each(function()
  if home then shell.remove(home) end
  home = nil
end)

local function cluster(words, env)
  return run_host({ "cluster", "jobs.lua", unpack(words) }, { cwd = home, env = faults.environment(home, env) })
end

local function events(path)
  local list = {}
  local file = io.open(home .. "/" .. (path or "out/events.jsonl"))
  if not file then return list end
  for line in file:lines() do list[#list + 1] = json.decode(line, line) end
  file:close()
  return list
end

-- The first event of a kind and job; nil: there is none.
local function find(event, job)
  for _, e in ipairs(events()) do
    if e.event == event and e.job == job then return e end
  end
end

-- The losses of a job by step; fails where a step is missing or is there twice.
local function losses(folder)
  local list = {}
  for _, event in ipairs(events(folder .. "/metrics.jsonl")) do
    if event.loss then
      assert.equal(#list + 1, event.step)
      list[event.step] = event.loss
    end
  end
  return list
end

-- Compares with a run of one rank that nobody disturbed.
local function like_undisturbed(folder, steps)
  shell.write(home .. "/quick", "")
  local result = faults.run_in(home, { "--out", "alone", "--steps", tostring(steps) }, 1)
  os.remove(home .. "/quick")
  assert.equal(0, result.code, result.err)
  local want, got = losses "alone", losses(folder)
  assert.equal(steps, #want)
  assert.equal(steps, #got)
  for i, loss in ipairs(want) do assert.near(loss, got[i], 1e-9) end
end

-- Starts the scheduler in the background, and waits until fn() holds -> its number.
local function start(words, fn, more)
  shell.write(home .. "/line", ("echo $$ >pid; exec env --default-signal=INT %s cluster jobs.lua --out out %s\n")
    :format(shell.quote(shell.executable()), words))
  local env = {}
  for name, value in pairs(faults.environment(home, more)) do env[#env + 1] = shell.quote(name .. "=" .. value) end
  assert(os.execute(("cd %s && env %s setsid sh -c 'timeout -k 5 90 sh line >o 2>e; echo $? >status' </dev/null &")
    :format(shell.quote(home), table.concat(env, " "))) == 0)
  local deadline = core.now() + shell.PATIENCE
  while not fn() do
    assert(core.now() < deadline and not io.open(home .. "/status"), "it did not come so far:\n"
      .. shell.run("cat " .. home .. "/e").out)
    core.sleep(0.05)
  end
  return shell.read(home .. "/pid"):match "%d+"
end

local function nothing_left() assert.same({}, faults.left(home)) end

local two = [[
return { nodes = { 2 }, interval = 1, policy = %s, jobs = {
  { name = "late", recipe = "recipe.lua", arrive = 2, steps = 20, step_seconds = 0.02 },
  { name = "long", recipe = "recipe.lua", %s step_seconds = 0.02 },
  %s
} }
]]

describe("ganymede cluster", function()
  it("changes the ranks of a running job for one that arrives, and gives the losses of a run alone", function()
    open(two:format("'optimus'", "most = 2, steps = 300,", ""))
    local result = cluster { "--out", "out", "--json" }
    assert.equal(0, result.code, result.err)
    local found = json.decode(result.out, "cluster --json")
    local long, late = found.jobs[1], found.jobs[2]
    assert.same({ "long", "late", "done", "done" }, { long.name, late.name, long.state, late.state })
    assert.same({ 1, 1 }, { long.starts, late.starts }) -- the long one was never stopped
    assert.same({ 1, 2, 300 }, { long.least, long.most, long.steps })
    local change = find("resized", "long")
    assert.same({ 2, 1 }, { change.before, change.ranks })
    assert.is_true(change.t <= find("start", "late").t) -- places are free before they are taken
    assert.is_true(long.predicted > 0 and long.predicted < 60, tostring(long.predicted))
    assert.near(found.mean, (long.seconds + late.seconds) / 2, 0.002)
    like_undisturbed("out/long", 300)
    nothing_left()
    local again = cluster { "--out", "out" } -- nothing is left to do
    assert.equal(0, again.code, again.err)
    local starts = 0
    for _, e in ipairs(events()) do starts = starts + (e.event == "start" and 1 or 0) end
    assert.equal(2, starts)
    assert.matches("long +1%-2 +300 ", again.out)
    shell.write(home .. "/jobs.lua", two:format("'fifo'", "steps = 30,", ""))
    local other = cluster { "--out", "out" }
    assert.equal(2, other.code)
    assert.matches("holds other jobs", other.err)
  end)

  it("stops a job for a shorter one, with a checkpoint; Ctrl-C ends all of them with theirs; it goes on", function()
    open(two:format("'srtf'", "ranks = 2, steps = 150,", '{ name = "bad", recipe = "bad.lua", arrive = 1 },'), {
      ["bad.lua"] = "local core = require 'ganymede.core'\n" .. recipe:gsub("local quick", "if trainer.step == 2 then "
        .. "error 'mine' end local quick", 1) })
    local pid = start("", function() return find("stopped", "long") and find("trains", "late") end)
    os.execute("kill -INT " .. pid)
    nothing_left()
    assert.equal("130\n", shell.read(home .. "/status"), shell.read(home .. "/e"))
    local runs = {}
    for _, e in ipairs(events()) do
      if e.event == "start" then runs[e.job] = true end
      if e.event == "stopped" or e.event == "done" or e.event == "failed" then runs[e.job] = nil end
    end
    assert.same({}, runs) -- the end of each was waited for
    local result = cluster { "--out", "out" }
    assert.equal(1, result.code, result.err) -- because of the bad one
    assert.matches("long +2 +150 .* done\n", result.out)
    assert.matches("late +1 +20 .* done\n", result.out)
    assert.matches("bad +1 .* failed\n", result.out)
    assert.matches("\nbad: bad.lua:%d+: mine", result.out)
    local stopped, began = {}, {}
    for _, e in ipairs(events()) do
      if e.job == "long" and e.event == "stopped" then stopped[#stopped + 1] = e.step end
      if e.job == "long" and e.event == "start" then began[#began + 1] = e.step end
    end
    assert.same({ 0, unpack(stopped) }, began) -- each start goes on where the one before has stopped
    like_undisturbed("out/long", 150)
    nothing_left()
  end)

  it("that is killed has its jobs save and end, and the next one goes on", function()
    open "return { nodes = { 1 }, policy = 'fifo', jobs = { { name = 'long', recipe = 'recipe.lua', steps = 200 } } }"
    local pid = start("", function() return #losses "out/long" > 5 end)
    os.execute("kill -KILL " .. pid)
    nothing_left()
    local before = #losses "out/long"
    local result = cluster { "--out", "out", "--json" }
    assert.equal(0, result.code, result.err)
    assert.equal(2, json.decode(result.out, "cluster --json").jobs[1].starts)
    local second
    for _, e in ipairs(events()) do
      if e.event == "start" and e.job == "long" then second = e end
    end
    assert.equal(before, second.step)
    like_undisturbed("out/long", 200)
  end)

  it("says what is wrong with a table, and starts nothing", function()
    open "return 1"
    for text, said in pairs {
      ["return 1"] = "jobs.lua: it returns no table of jobs",
      ["return {}"] = "'jobs'",
      ["return { jobs = {} }"] = "jobs is no list of jobs",
      ["return { job = {} }"] = "did you mean 'jobs'",
      ["return { jobs = { { recipe = 'recipe.lua', rank = 2 } } }"] = "jobs%[1%] has no option 'rank' %(did you mean",
      ["return { jobs = { { recipe = 'none.lua' } } }"] = "job 'job1': .*none.lua",
      ["return { jobs = { { recipe = 'recipe.lua', set = { 'epoch=3' } } } }"] = "job 'job1': .*did you mean 'epochs'",
      ["return { jobs = { { recipe = 'r', ranks = 2, most = 1 } } }"] = "least <= ranks <= most must hold; got 1, 2, 1",
      ["return { jobs = { { name = '../x', recipe = 'r' } } }"] = "name '../x' is no word",
      ["return { jobs = { { recipe = 'r', name = 'a' }, { recipe = 'r', name = 'a' } } }"] = "is a job 'a' before",
      ["return { policy = 'best', jobs = { { recipe = 'r' } } }"] = "there is no policy 'best'",
      ["return { policy = { type = 'elastic', restat = 1 }, jobs = { { recipe = 'r' } } }"] = "did you mean 'restart'",
      ["return { nodes = { 2, 2 }, jobs = { { recipe = 'r' } } }"] = "2 nodes, and this is one machine",
      ["return { nodes = { 0 }, jobs = { { recipe = 'r' } } }"] = "nodes%[1%] must be an integer from 1",
      ["return { sbatch = { '-p x' }, jobs = { { recipe = 'r' } } }"] = "sbatch belongs to %-%-slurm",
      ["return { nodes = { 1 }, jobs = { { recipe = 'recipe.lua', ranks = 2 } } }"] = "asks for 2 ranks, and there are",
      ["return { jobs = { { recipe = 'recipe.lua', steps = 501 } } }"] = "steps 501, and its recipe ends after 500",
    } do
      shell.write(home .. "/jobs.lua", text)
      local result = cluster {}
      assert.equal(2, result.code, text .. result.err)
      assert.matches(said, result.err)
    end
    assert.equal("", shell.run("ls -d " .. home .. "/runs 2>/dev/null").out)
  end)
end)

describe("the folder of a cluster", function()
  local Record = require "ganymede.cli.cluster.record"

  it("is refused where it holds anything else, and known as ours before anything happens in it", function()
    open ""
    local function refused(name)
      local ok, err = failure.try(Record, home .. "/" .. name, { id = "mine" })
      assert.is_false(ok)
      return failure.text(err)
    end
    assert(os.execute("cd " .. home .. " && mkdir notes && touch notes/one") == 0)
    assert.matches("notes is not empty and holds no cluster; give another %-%-out", refused "notes")
    Record(home .. "/new", { id = "mine" }):close()
    os.remove(home .. "/new/events.jsonl") -- it was killed before
    Record(home .. "/new", { id = "mine" }):close()
    assert.same({ "cluster.json", "events.jsonl" }, shell.lines("ls " .. home .. "/new"))
    Record(home .. "/other", { id = "other" }):close()
    assert.matches("other holds other jobs", refused "other")
  end)
end)

-- In place of Slurm's programs: each adds its words to `calls`. A script that is submitted runs at once; its number is
-- that of its start, and the files state.N, code.N and comment.N say what Slurm would.
local fakes = {
  sbatch = [[n=$(($(cat number 2>/dev/null || echo 0) + 1)); echo $n >number; echo RUNNING >state.$n; echo 0 >code.$n
for script in "$@"; do :; done
sed -n 's/^#SBATCH --comment=//p' "$script" >comment.$n
(cd .. && SLURM_JOB_ID=$n sh "$script"; code=$?; cd slurm && echo $code >code.$n
 if [ $code = 0 ]; then echo COMPLETED >state.$n; else echo FAILED >state.$n; fi) >log.$n 2>&1 </dev/null &
echo $n]],
  srun = [[echo $$ >pid.$SLURM_JOB_ID; cd ..; exec "$@"]],
  scontrol = [[for id in "$@"; do :; done; echo "JobId=$id JobState=$(cat state.$id) ExitCode=$(cat code.$id):0"]],
  scancel = [[for id in "$@"; do :; done; kill -TERM $(cat pid.$id)]],
  squeue = [[for file in $(grep -l RUNNING state.*); do id=${file#state.}; echo "$id $(cat comment.$id)"; done]],
}

describe("ganymede cluster --slurm, with programs in place of Slurm's", function()
  local function install(jobs)
    open(("return { nodes = { 1 }, interval = 1, policy = 'srtf', sbatch = { '--partition=low' },\njobs = { %s } }")
      :format(jobs))
    os.execute("mkdir -p " .. home .. "/bin " .. home .. "/slurm")
    for name, text in pairs(fakes) do
      shell.write(home .. "/bin/" .. name, ("#!/bin/sh\ncd %s/slurm\necho %s \"$@\" >>calls\n%s\n"):format(
        shell.quote(home), name, text))
    end
    os.execute("chmod +x " .. home .. "/bin/*")
    return { PATH = home .. "/bin:" .. os.getenv "PATH" }
  end

  -- What was called but for questions, without the folder.
  local function calls()
    local list = {}
    for line in io.lines(home .. "/slurm/calls") do
      if not line:find "^scontrol" then
        line = line:gsub(home:gsub("%p", "%%%0"), "")
        list[#list + 1] = line:gsub("^srun %S+", "srun")
      end
    end
    return list
  end

  local function run(name, steps)
    return ("srun run recipe.lua --out /out/%s --resume auto --threads 1 --steps %d"):format(name, steps)
  end

  it("submits each start, stops by a signal that saves, and submits again", function()
    local env = install [[ { name = "long", recipe = "recipe.lua", steps = 300, step_seconds = 0.02 },
      { name = "late", recipe = "recipe.lua", arrive = 4, steps = 10, step_seconds = 0.02 } ]]
    local result = cluster({ "--slurm", "--out", "out" }, env)
    assert.equal(0, result.code, result.err)
    assert.same({ "sbatch --parsable /out/long/slurm.sh", run("long", 300), "scancel --signal=TERM 1",
      "sbatch --parsable /out/late/slurm.sh", run("late", 10), "sbatch --parsable /out/long/slurm.sh",
      run("long", 300) }, calls())
    assert.matches("\n#SBATCH %-%-partition=low\n", shell.read(home .. "/out/long/slurm.sh"))
    assert.equal("75\n0\n0\n", shell.run("cd " .. home .. "/slurm && cat code.*").out)
    like_undisturbed("out/long", 300)
    nothing_left()
  end)

  it("takes up what lives on when it is killed, also a start that it did not come to write down", function()
    local env = install [[ { name = "long", recipe = "recipe.lua", steps = 200 } ]]
    local pid = start("--slurm", function() return #losses "out/long" > 5 end, env)
    os.execute("kill -KILL " .. pid)
    local text = shell.read(home .. "/out/events.jsonl"):gsub('[^\n]*"start"[^\n]*\n', "")
    shell.write(home .. "/out/events.jsonl", text)
    local result = cluster({ "--slurm", "--out", "out" }, env)
    assert.equal(0, result.code, result.err)
    assert.matches("long: job 1 of Slurm was submitted before", result.err)
    assert.same({ "sbatch --parsable /out/long/slurm.sh", run("long", 200), "squeue -h -o %i %k" }, calls())
    like_undisturbed("out/long", 200)
    nothing_left()
  end)

  it("says what is missing", function()
    open "return { jobs = { { recipe = 'recipe.lua' } } }"
    shell.run(("mkdir -p %s/bin; ln -s $(command -v timeout) $(command -v sh) %s/bin/"):format(home, home))
    local result = cluster({ "--slurm" }, { PATH = home .. "/bin" })
    assert.equal(2, result.code, result.err)
    assert.matches("there is no sbatch in PATH", result.err)
  end)
end)
