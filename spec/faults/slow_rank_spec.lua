--- A rank that is slower than the others: they wait for it, and `ganymede top`, the end of the run, --stats and the
-- report say for whom they waited, and how long.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local slowest = require "ganymede.observe.slowest"
local support = require "spec.faults.support"

local STEPS, LATE = 30, 0.1 -- seconds that rank 2 comes late in each step: some twenty times what a step takes

-- In its last step the slow rank waits until the job was looked at.
local body = support.training(([[
  if core.rank() == 2 then
    core.sleep(%g)
    local seen = trainer.step < %d
    while not seen do
      local file = io.open "seen"
      seen = file ~= nil and file:close() or core.sleep(0.02)
    end
  end]]):format(LATE, STEPS - 1))

describe("a rank that is slower than the others", function()
  it("is named by top, by the end of the run and by the report", function()
    local job = support.start(body, { "--out", "run", "--steps", tostring(STEPS), "--stats", "stats.json" })
    local environment = { cwd = job.home, env = support.environment(job.home) }
    job:file "run/metrics.jsonl"
    local deadline, found = core.now() + shell.PATIENCE
    repeat
      local result = run_host({ "top", "--json" }, environment)
      found = result.code == 0 and json.decode(result.out, "top").slowest
    until found or core.now() > deadline
    assert.is_truthy(found, job:read "err")
    local shown = run_host({ "top", "--once" }, environment).out
    shell.write(job.home .. "/seen", "")
    assert.equal(2, found.rank)
    assert.is_true(found.others > found.waited + 0.1 and found.others <= 1.01, json.encode(found))
    assert.matches("the others wait for rank 2: %d+ %% of the last steps each, rank 2 itself %d+ %%\n", shown)

    local status = job:file "status"
    assert.equal("0", status:match "%d+", job:read "err")
    local document = json.decode(job:file "stats.json", "stats.json")
    local slow = document.slowest
    assert.equal(2, slow.rank)
    assert.is_true(slow.seconds > STEPS * LATE / 2, json.encode(slow)) -- half: other programs delay the others, too
    assert.is_true(slow.others <= document.seconds)
    assert.matches("the other ranks waited for rank 2: %d+%.%d s of %d+%.%d s each", job:read "err")
    assert.equal(0, run_host({ "report", "run", "--out", "report.html" }, environment).code)
    assert.matches("<p>the other ranks waited for rank 2: ", job:read "report.html")
    job:finish()
  end)

  it("is named only where that matters", function()
    assert.is_nil(slowest.of({ 5 }, 10)) -- alone
    assert.is_nil(slowest.of({ 1, 1.9, 1.5 }, 10))
    assert.same({ rank = 1, waited = 0.5, others = 3, seconds = 2.5 }, slowest.of({ 3.25, 0.5, 2.75 }, 9.5))
    local found = slowest.of({ 9, 4, 1, 3 }, 10) -- the median of 3, 4 and 9
    assert.same({ 2, 4, 3 }, { found.rank, found.others, found.seconds })
    assert.is_nil(slowest.of({ 9, 1, 1, 1 }, 10)) -- one rank waits, for three: the fast one is not the fault
    local function entry(phase, seconds) return { comm = { { phase = phase, seconds_exposed = seconds } } } end
    assert.equal(1, slowest.of_run({ entry("backward", 3), entry("backward", 1) }, 10).rank)
    assert.equal(1, slowest.of_run({ entry("backward", 1), entry("backward", 0.2) }, 1).rank)
    assert.is_nil(slowest.of_run({ entry("backward", 0.9), entry("backward", 0.1) }, 0.99)) -- too short to tell
    assert.is_nil(slowest.of_run({ entry("initialize", 3), entry("backward", 1) }, 100)) -- before the first step
  end)
end)
