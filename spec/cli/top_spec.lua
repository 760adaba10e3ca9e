-- `ganymede top`, through the program: ranks that train, that hang, that end.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"
local tmux = require "spec.repl.tmux"

local function top(job, ...)
  return run_host({ "top", ... }, { cwd = job.home, env = support.environment(job.home) })
end

local function document(job)
  local result = top(job, "--json")
  assert.equal(0, result.code, result.err)
  return json.decode(result.out, "top")
end

-- Waits until test(document) holds -> the document. 60 s: nothing here takes that long.
local function wait_for(job, test)
  local deadline, found = core.now() + shell.PATIENCE
  repeat
    found = document(job)
    if test(found) then return found end
  until core.now() > deadline
  error("it never came to that: " .. json.encode(found, { indent = true }), 2)
end

describe("top of a job of two ranks", function()
  local job
  setup(function()
    -- rank 1 leaves the step when somebody makes the file `hang`, and rank 0 waits for it
    job = support.start(support.training [[
      core.sleep(0.01)
      if core.rank() == 1 and io.open "hang" then core.sleep(1000) end
      if trainer.step == 20 and core.rank() == 0 then assert(io.open("ready", "w")):close() end
    ]], { "--out", "run", "--set", "epochs=100000" }, "%s run recipe.lua -n 2")
    job:file "ready"
  end)

  it("shows steps, rates and memory of each rank", function()
    local first = document(job)
    -- far enough that all samples of the run in the time of the last 16 steps would be too many
    local later = wait_for(job, function(d) return d.ranks[1].step > math.max(first.ranks[1].step, 100) end)
    assert.equal(2, #later.ranks)
    assert.equal(core.real_path(job.home .. "/run"), later.job.folder)
    local peak = run_host({ "attach", "--run", "require 'ganymede.core'.memory().peak" },
      { cwd = job.home, env = support.environment(job.home) }).out:match "%d+%s*$"
    for i, row in ipairs(later.ranks) do
      assert.equal(i - 1, row.rank)
      assert.is_true(row.alive)
      assert.is_true(row.samples_per_second > 0 and row.samples_per_second < 32 / 0.01) -- each step sleeps so long
      assert.is_nil(row.tokens_per_second)
      assert.is_true(row.live > 0 and row.live <= row.peak)
    end
    assert.is_true(math.abs(later.ranks[1].peak - tonumber(peak)) < 0.5 * later.ranks[1].peak, peak)
    local table_of = top(job, "--once")
    assert.equal(0, table_of.code)
    assert.is_truthy(table_of.out:find "^points in %S+/run, 2 ranks, batch 32, since ")
    assert.is_truthy(table_of.out:find "\n   0 +%d+ +%d+ +%d+%.%d s +%d+ +%d")
    local rows = table_of.out:gsub("the others wait for rank [^\n]*\n", "") -- where something else takes the cores
    assert.equal(4, select(2, rows:gsub("\n", "\n")))
  end)

  local function open_terminal()
    if not shell.run("command -v tmux").out:find "tmux" then pending "tmux: install the Debian package tmux" end
    return tmux.open(job.home, { GANYMEDE_ROOT = GANYMEDE_ROOT, TMPDIR = job.home, TERM = "xterm" })
  end

  it("is refreshed on a terminal, until Ctrl-C", function()
    local terminal = open_terminal()
    finally(function() terminal:close() end)
    terminal:type(shell.quote(shell.executable()) .. " top run; echo status $?")
    terminal:key "Enter"
    local function step()
      local deadline = core.now() + shell.PATIENCE
      repeat
        local at = terminal:screen():match ".*\n   0 +%d+ +(%d+)"
        if at then return tonumber(at) end
        core.sleep(0.03)
      until core.now() > deadline
    end
    local first, deadline = step(), core.now() + shell.PATIENCE
    assert.is_truthy(first, terminal:screen())
    while step() == first and core.now() < deadline do core.sleep(0.05) end
    assert.is_true(step() > first)
    terminal:key "C-c"
    terminal:wait "status 0\n$ "
  end)

  it("tells who waits for whom, in which call, while the job hangs", function()
    shell.write(job.home .. "/hang", "")
    local hangs = wait_for(job, function(d)
      local waiting = d.ranks[1].waiting
      return waiting and waiting.seconds > 2.5 and d.ranks[2].process ~= nil
    end)
    assert.same({ 1 }, { unpack(hangs.ranks[1].waiting.ranks) })
    assert.is_truthy(hangs.ranks[1].waiting.call:find("of data)", 1, true), hangs.ranks[1].waiting.call)
    assert.is_nil(hangs.ranks[2].waiting)
    assert.is_truthy(hangs.ranks[2].process:find "sleeps", hangs.ranks[2].process)
    assert.equal(hangs.ranks[1].step, hangs.ranks[2].step)
    assert.is_truthy(top(job, "run").out:find("waits %d+%.%d s for rank 1 in [%w_]+ "), top(job).out)
  end)

  it("is what a line of attach that hangs with the job does not keep from answering", function()
    local terminal = open_terminal()
    finally(function() terminal:close() end)
    terminal:type(shell.quote(shell.executable()) .. " attach run")
    terminal:key "Enter"
    terminal:wait "> "
    terminal:type "1 + 1"
    terminal:key "Enter"
    terminal:wait_for("(waits for the end of a step; Ctrl-C gives the line up)", "$ ")
    assert.is_truthy(document(job).ranks[1].waiting)
    terminal:key "C-c"
    terminal:wait_for("a line that runs already goes on until its limit", "$ ")
    terminal:wait "> "
    terminal:type ":q"
    terminal:key "Enter"
    terminal:wait "$ "
  end)

  it("says nothing any more when the job has ended", function()
    job:signal("KILL", { document(job).ranks[2].pid })
    support.check(job:finish(), 6, "killed by signal 9")
  end)
end)

describe("the rows of top", function()
  local rows = require "ganymede.observe.top"

  -- A page of this very process.
  local function page(rank, more)
    local p = { rank = rank, world = 5, pid = core.process().pid, phase = "forward", age = 9, step = 3,
      since_step = 0.1, live = 1, peak = 2 }
    for key, value in pairs(more) do p[key] = value end
    return p
  end

  local function call(group, number, more)
    local c = { text = "all_reduce", seconds = 4, group = group, number = number, members = { 0, 1, 2, 3 } }
    for key, value in pairs(more or {}) do c[key] = value end
    return c
  end

  it("name the members of a group that have not come to a call, and no others", function()
    local pages = {
      [0] = page(0, { waiting = call("g", 5), last = call("g", 5) }),
      [1] = page(1, { waiting = call("h", 9), last = call("h", 9) }), -- elsewhere
      [2] = page(2, { last = call("g", 4) }),
      [3] = page(3, { last = call("g", 6) }), -- further
      [4] = page(4, { waiting = call("p", 1, { peer = 2, members = { 4, 2 } }) }),
    }
    local got = rows.rows({ world = 5 }, pages)
    assert.same({ 1, 2 }, { unpack(got[1].waiting.ranks) })
    assert.same({ 2 }, { unpack(got[5].waiting.ranks) })
    assert.is_nil(got[3].waiting)
    pages[1], pages[2] = page(1, { waiting = call("g", 5) }), nil
    local lines = rows.lines({ name = "n", world = 5 }, rows.rows({ world = 5 }, pages))
    assert.is_truthy(lines[3]:find("waits 4.0 s for rank 2 in all_reduce", 1, true), lines[3])
    assert.is_truthy(lines[5]:find("another machine", 1, true), lines[5])
  end)

  it("compute rates over the steps that the page has, tell dead processes, and fit a terminal", function()
    local pages = { [0] = page(0, { world = 1, lately = { steps = 4, samples = 128, tokens = 4096, seconds = 2 } }),
      [1] = page(1, { pid = 2 ^ 22 + 1 }) }
    local got = rows.rows({ world = 2 }, pages)
    assert.equal(64, got[1].samples_per_second)
    assert.equal(2048, got[1].tokens_per_second)
    assert.is_true(got[1].alive)
    assert.is_false(got[2].alive)
    local lines = rows.lines({ name = "n", world = 2 }, got, 60)
    assert.is_truthy(lines[2]:find("tokens/s", 1, true))
    for _, line in ipairs(lines) do assert.is_true(#line <= 60) end
    assert.is_truthy(rows.lines({ name = "n", world = 2 }, got)[4]:find "has ended$")
  end)
end)

it("top says that no job runs", function()
  local home = shell.temporary_folder()
  finally(function() shell.remove(home) end)
  local result = run_host({ "top" }, { env = { TMPDIR = home } })
  assert.equal(2, result.code)
  assert.is_truthy(result.err:find("no job of this user runs", 1, true), result.err)
end)
