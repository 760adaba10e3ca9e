--- `ganymede cluster --slurm` on Slurm itself: three slurmd on this machine (spec/faults/slurm_cluster.lua). Jobs that
-- share six places arrive, give places away, get them back and end; the scheduler is killed and goes on.
-- spec/cli/cluster_spec.lua runs the driver with programs in place of Slurm's.
-- sanitizers: no, it holds Lua alone
local cluster = require "spec.faults.slurm_cluster"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

describe("jobs on Slurm #slow", function()
  local missing = cluster.missing()
  if missing then
    pending(missing)
    return
  end

  local c, home
  setup(function() c = cluster.start() end)
  teardown(function() c:stop() end)
  after_each(function() shell.remove(home) end)

  -- Steps of some 0.1 s, so that a job is there when the next one arrives.
  local body = support.training "core.sleep(0.1)"

  local function events()
    local list = {}
    local file = io.open(home .. "/out/events.jsonl")
    for line in file and file:lines() or function() end do list[#list + 1] = json.decode(line, line) end
    return list
  end

  local function has(event, job)
    for _, e in ipairs(events()) do
      if e.event == event and e.job == job then return true end
    end
    return false
  end

  -- 12 jobs of 64 steps, of which the first takes all places while it is alone.
  local function jobs(policy)
    local rows = {}
    for i = 1, 12 do
      rows[i] = ('{ name = "j%d", recipe = "recipe.lua", ranks = %d, most = %d, arrive = %d, steps = %d },'):format(i,
        i == 1 and 2 or 1, i == 1 and 6 or 2, i == 1 and 0 or 16 + i, i == 1 and 400 or 48)
    end
    return ("return { nodes = { 2, 2, 2 }, interval = 5, policy = %s, jobs = {\n%s } }"):format(policy,
      table.concat(rows, "\n"))
  end

  it("twelve come to their ends; the first one gives places away; a killed scheduler goes on", function()
    home = support.home((body:gsub("epochs = 4", "epochs = 25")))
    shell.write(home .. "/jobs.lua", jobs "{ type = 'elastic', restart = 5 }")
    shell.write(home .. "/line", ("cd %s && echo $$ >pid && exec %s cluster jobs.lua --slurm --out out $*\n"):format(
      shell.quote(home), shell.quote(shell.executable())))
    c:run(("setsid sh %s/line >%s/first 2>&1 </dev/null &"):format(home, home))
    c:wait_until("a second job", function() return has("start", "j2") end)
    assert.equal(0, os.execute("kill -KILL $(cat " .. home .. "/pid)"))
    local result = c:run("sh " .. home .. "/line --json")
    assert.equal(0, result.code, result.out .. result.err)
    local found, changed = json.decode(result.out, "cluster --json"), false
    assert.equal(12, #found.jobs)
    for _, job in ipairs(found.jobs) do
      assert.equal("done", job.state)
      assert.equal(job.of, job.steps)
      changed = changed or job.starts > 1
    end
    assert.is_true(changed, result.err)
    local steps = 0
    for text in io.lines(home .. "/out/j1/metrics.jsonl") do
      local event = json.decode(text, text)
      if event.loss then
        steps = steps + 1
        assert.equal(steps, event.step) -- each once, over all starts
      end
    end
    assert.equal(400, steps)
  end)
end)
