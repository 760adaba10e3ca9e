--- `ganymede resize`, `top` and `attach` find a run by its folder at any moment: while its ranks are being built again,
-- and while none of them is there. Where none comes, they say so after a bounded time.
-- sanitizers: no, ranks are killed and started anew
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local jobs = require "ganymede.job.jobs"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local runs_folder = require "ganymede.job.runs_folder"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- Rank 1 is killed once, at step 3. Ranks that are started later write `built` when they read the recipe, and wait
-- there as long as there is a file `hold`. Steps are slow enough for others to ask between two of them.
local recipe = [[
local function exists(name)
  local file = io.open(name)
  if file then file:close() end
  return file ~= nil
end
local again = exists "killed"
if again and rank == 0 then
  local file = assert(io.open("built.new", "w"))
  file:write "yes"
  file:close()
  assert(os.rename("built.new", "built"))
end
while again and exists "hold" do core.sleep(0.01) end
require("ganymede.hooks.base").class("Fault", {}, { before_train_iter = function(_, trainer)
  core.sleep(0.04)
  if again or trainer.step ~= 3 or rank == 0 then return end
  assert(io.open("killed", "w")):close()
  kill(9)
end })
return {
  name = "points", seed = 3, dtype = "f64", epochs = 100000,
  model = { type = "MLP", inputs = 6, hidden = { 8 }, classes = 4 },
  data = { train = { type = "Synthetic", length = 40, shape = { 6 }, classes = 4 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "Fault" } }, checkpoint = { interval = 1, keep_last = 2 },
}
]]

local function ask(job, ...)
  return run_host({ ... }, { cwd = job.home, env = support.environment(job.home) })
end

local function started(delay)
  return support.start(recipe, { "--out", "run", "--max-restarts", "1", "--restart-delay", tostring(delay) },
    "%s run recipe.lua -n 2")
end

local function wait_for(job, text)
  local deadline = core.now() + shell.PATIENCE
  while not (job:read "err" or ""):find(text, 1, true) do
    assert(core.now() < deadline, job:read "err")
    core.sleep(0.02)
  end
end

local function stop(job)
  job:goes_on()
  job:signal("TERM", job:supervisor())
  assert.equal("75", job:file("status"):match "%d+", job:read "err")
  assert.is_nil(runs_folder.supervisor(job.home .. "/run"))
  job:finish()
end

describe("a run whose ranks start again", function()
  it("is waited for between two attempts, and resized then", function()
    local job = started(3)
    wait_for(job, "attempt 2 begins in 3 s")
    local result = ask(job, "resize", "run", "-n", "3")
    assert.equal(0, result.code, result.err)
    assert.matches("3 ranks.* from step %d+ on, before it 2", result.out)
    local supervisor = job:supervisor()[1]
    assert.matches("the ranks of run are being started by process " .. supervisor .. " on %S+; waits for them, 90 s at "
      .. "most\n", result.err)
    stop(job)
  end)

  it("is found while they are built", function()
    local job = started(0.05)
    shell.write(job.home .. "/hold", "")
    job:file "built"
    local result = ask(job, "top", "--json", "run")
    assert.equal(0, result.code, result.err)
    assert.equal(core.real_path(job.home .. "/run"), json.decode(result.out, "top").job.folder)
    assert.equal(0, os.execute(("(sleep 1; rm %s/hold) &"):format(shell.quote(job.home))))
    result = ask(job, "resize", "run", "-n", "3") -- waits until they train
    assert.equal(0, result.code, result.err)
    stop(job)
  end)

  it("ends with status 75 by SIGTERM while they are built: it has checkpoints, and can be resumed", function()
    local job = started(0.05)
    shell.write(job.home .. "/hold", "")
    job:file "built"
    job:signal("TERM", job:supervisor())
    support.check(job:finish(), 75,
      "stopped by SIGTERM before the ranks trained again; the newest checkpoint is in run/checkpoints")
  end)
end)

describe("jobs.find", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  -- The status and the text of what it raises, and after how many seconds.
  local function find(patience)
    local began = core.now()
    local ok, err = pcall(jobs.find, home, patience)
    assert.is_false(ok)
    return failure.code(err), failure.text(err), core.now() - began
  end

  it("waits as long as it may where somebody starts ranks, and says who", function()
    local held = assert(runs_folder.supervise(home))
    finally(function() held:close() end)
    local code, text, seconds = find(0.3)
    assert.is_true(seconds >= 0.3)
    assert.equal(1, code)
    assert.matches(("did not come within 0.3 s; process %d on %%S+ still starts them"):format(core.process().pid), text)
    assert.equal(2, (find(nil)))
  end)

  it("waits two seconds where nobody does, or no longer: ranks may take over from others just now", function()
    runs_folder.supervise(home):close()
    local code, _, seconds = find(1000)
    assert.equal(2, code)
    assert.is_true(seconds >= 2)
  end)
end)

describe("the private folder of a job", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  -- Whether a process finds what one of the same environment has made.
  local program = [[
    local core = require "ganymede.core"
    local folder = core.folder_make(false)
    local requests = core.requests_open(folder:path() .. "/requests")
    local file = assert(io.open(folder:path() .. "/job", "w"))
    file:write '{"name": "mine", "world": 1}'
    file:close()
    local found = "lost"
    for _, job in ipairs(require("ganymede.job.jobs").running()) do
      if job.path == folder:path() then found = "found" end
    end
    print(folder:path():match "^(.*)/", found)
    requests:close()
    folder:close()
  ]]

  it("is found among more names than anybody expects", function()
    shell.write(home .. "/program.lua", program)
    assert(os.execute("cd " .. home .. " && seq -f %0240g 5000 | xargs touch") == 0)
    assert.equal(5001, #core.list_folder(home))
    local result = run_host({ "run", home .. "/program.lua" }, { env = { TMPDIR = home } })
    assert.equal(home .. "\tfound\n", result.out, result.err)
  end)

  it("is found wherever TMPDIR lets it lie", function()
    shell.write(home .. "/program.lua", program)
    shell.write(home .. "/file", "")
    local long = home .. "/" .. ("l"):rep(60)
    assert(os.execute("mkdir " .. long .. " '" .. home .. "/a b'") == 0)
    for given, place in pairs { [home] = home, [home .. "/a b"] = home .. "/a b", [long] = "/dev/shm",
      [home .. "/none"] = "/dev/shm", [home .. "/file"] = "/dev/shm", [""] = "/dev/shm" } do
      local result = run_host({ "run", home .. "/program.lua" }, { env = { TMPDIR = given } })
      assert.equal(place .. "\tfound\n", result.out, result.err)
    end
  end)
end)
