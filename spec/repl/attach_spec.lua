-- `ganymede attach`, through the program: lines in running jobs, what they change, what they cannot harm. Jobs are
-- compared with undisturbed runs of the same recipe.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"
local tmux = require "spec.repl.tmux"

-- Steps of some milliseconds, so that the job is there while it is asked, and takes little of the machine.
local recipe = support.training [[
  if trainer.step == 2 then
    local file = assert(io.open("ready", "w"))
    file:close()
  end
  core.sleep(0.01)
]]

-- `ganymede attach` beside a job, which no other job of this machine is.
local function attach(job, ...)
  return run_host({ "attach", ... }, { cwd = job.home, env = support.environment(job.home) })
end

local function says(job, line, expected, ...)
  local result = attach(job, "--run", line, ...)
  assert.equal(expected == "" and "" or expected .. "\n", result.out, result.err)
  return result
end

local function read_lines(path)
  local list = {}
  for line in io.lines(path) do list[#list + 1] = json.decode(line, path) end
  return list
end

-- The step that the job is at.
local function step_of(job) return tonumber(attach(job, "--run", "@0 trainer.step").out:match "(%d+)%s*$") end

local function wait_for(is_there)
  local deadline = core.now() + shell.PATIENCE
  while not is_there() do
    assert.is_true(core.now() < deadline)
    core.sleep(0.05)
  end
end

describe("attach to a job of two ranks", function()
  local job
  setup(function()
    -- with zero, parameters are being gathered while lines run and fail
    job = support.start(recipe, { "--out", "run", "--set", "epochs=100000", "--set", "zero.level=1" },
      "%s run recipe.lua -n 2")
    job:file "ready"
  end)

  it("runs a line on all ranks, or on those that are named, and shows equal answers once", function()
    says(job, "optimizer.lr", "[0-1] 0.01")
    says(job, "@1 rank * 10", "[1] 10")
    says(job, "rank, world", "[0] 0\n    2\n[1] 1\n    2")
    says(job, "print('a', rank == 0) kept = rank + 5", "[0] a\ttrue\n[1] a\tfalse")
    says(job, "kept", "[0] 5\n[1] 6") -- later lines see it, the recipe's globals do not
    says(job, "rawget(_G, 'kept')", "[0-1] nil")
    says(job, "model == engine.model, trainer.engine == engine", "[0-1] true\n      true")
    local wrong = attach(job, "--run", "@2 rank")
    assert.equal(1, wrong.code)
    assert.equal("there is no rank 2; they are 0 to 1\n", wrong.out)
  end)

  it("loads a file, whatever folder the job is in", function()
    local folder = shell.temporary_folder()
    shell.write(folder .. "/tools.lua", "#!/usr/bin/env ganymede\nfunction twice(x) return 2 * x end\nreturn rank")
    says(job, ":load " .. folder .. "/tools.lua", "[0] 0\n[1] 1")
    says(job, "twice(rank + 4)", "[0] 8\n[1] 10")
    for _, name in ipairs { "two words", "it's" } do -- in quotes, and beside the prompt, not beside the job
      assert(os.execute(("cp %s/tools.lua %s"):format(folder, shell.quote(folder .. "/" .. name))) == 0)
      local result = run_host({ "attach", "--run", (':load "%s"'):format(name) }, { cwd = folder,
        env = support.environment(job.home) })
      assert.equal("[0] 0\n[1] 1\n", result.out, result.err)
    end
    local wrong = attach(job, "--run", ":load " .. folder .. "/none.lua")
    assert.equal(1, wrong.code)
    assert.matches("cannot read ", wrong.out)
    wrong = attach(job, "--run", ":run recipe.lua")
    assert.equal(1, wrong.code)
    assert.matches("trains a recipe already", wrong.out)
    shell.remove(folder)
  end)

  it("shows bytes that are no text, and the beginning of what is longer than an answer", function()
    says(job, [[@0 print('\255 \195\188 \195(')]], "[0] \\xff \195\188 \\xc3(")
    local long = attach(job, "--run", "for i = 1, 20000 do print('\195\188') end") -- more bytes of JSON than of text
    assert.equal(0, long.code, long.err)
    assert.matches("^%[0%-1%] \195\188\n      \195\188\n", long.out)
    assert.matches("\n      %(the rest is left out%)\n$", long.out)
    says(job, "rank", "[0] 0\n[1] 1")
  end)

  it("survives mistakes, also in the middle of collectives, and a line that never ends", function()
    local before = step_of(job)
    for line, said in pairs {
      ["error 'mine'"] = "[0-1] mine",
      ["return undefined_name.x"] = "undefined_name",
      ["if rank == 1 then error 'mine' end gm.comm.all_reduce(gm.ones { 3 })"] = "[1] line:1: mine",
      ["if rank == 0 then gm.comm.all_reduce(gm.ones { 3 }) end"] = "rank 1 makes no such call",
      ["@0 gm.comm.all_reduce(gm.ones { 3 })"] = "only this rank runs this",
      ["1 +"] = "unexpected symbol",
      ["optimizer.lr = -1"] = "[0-1] optimizer.lr must be a number, at least 0; got -1; it stays 0.0",
      ["optimizer.lr = 0 / 0"] = "optimizer.lr must be a number, at least 0; got nan; it stays 0.0",
      ["optimizer.lr = nil"] = "optimizer.lr must be a number, at least 0; got nil; it stays 0.0",
    } do
      local result = attach(job, "--run", line)
      assert.equal(1, result.code, line .. result.out .. result.err)
      assert.is_truthy(result.out:find(said, 1, true), line .. ": " .. result.out)
    end
    local endless = attach(job, "--limit", "0.3", "--run", "while true do end")
    assert.equal(1, endless.code)
    assert.is_truthy(endless.out:find("[0-1] the line was stopped", 1, true), endless.out)
    local waits = attach(job, "--limit", "0.3", "--run", "if rank == 0 then while true do end end "
      .. "gm.comm.all_reduce(gm.ones { 3 })")
    -- rank 1 hears of it, or has waited as long
    assert.is_truthy(waits.out:find("^%[0%S*%] the line was stopped"), waits.out)
    says(job, "gm.comm.all_reduce(gm.ones { 2 }):totable()[1]", "[0-1] 2")
    assert.is_true(step_of(job) > before)
  end)

  it("leaves what is trained as it was: losses are those of a run that nobody asked", function()
    attach(job, "--run", "model(gm.randn { 4, 16 }):sum()") -- random numbers, an op, a tensor that stays
    local seen = step_of(job)
    local alone = support.home(recipe)
    finally(function() shell.remove(alone) end)
    local result = support.run_in(alone, { "--out", "run", "--set", "zero.level=1", "--steps",
      tostring(math.min(seen, 60)) }, 2)
    assert.equal(0, result.code, result.err)
    local asked, quiet = read_lines(job.home .. "/run/metrics.jsonl"), read_lines(alone .. "/run/metrics.jsonl")
    local compared = 0
    for i, event in ipairs(quiet) do
      if event.loss then
        assert.equal(event.loss, asked[i].loss)
        compared = compared + 1
      end
    end
    assert.is_true(compared >= 30, tostring(compared))
  end)

  it("changes rates and hooks, and notes each line with its step", function()
    says(job, "optimizer.lr = 0.0025", "")
    local after = step_of(job)
    repeat until step_of(job) > after + 1
    says(job, "trainer:add_hook({ type = 'LossHook' }).name", '[0-1] "LossHook"')
    says(job, "trainer:remove_hook 'LossHook'", "[0-1] 1")
    local changed
    for _, entry in ipairs(read_lines(job.home .. "/run/requests.jsonl")) do
      if entry.line == "optimizer.lr = 0.0025" then changed = entry end
    end
    assert.equal(false, changed.failed)
    assert.is_truthy(changed.time:find "^%d%d%d%d%-%d%d%-%d%dT")
    for _, event in ipairs(read_lines(job.home .. "/run/metrics.jsonl")) do
      if event.loss then assert.equal(event.step > changed.step and 0.0025 or 0.01, event.lr) end
    end
  end)

  it("refuses what is no request, and goes on", function()
    local folder = shell.lines("ls -d " .. job.home .. "/ganymede-*")[1]
    for text, why in pairs {
      ["GET / HTTP/1.1\r\n\r\n"] = "no request", ["{}"] = "no request", ['{"kind": "line"}'] = "a line is a text",
      ['{"kind": "line", "line": "1", "ranks": [7]}'] = "ranks of this job", ["[1, 2"] = "no request",
      ['{"kind": "line", "line": "1", "limit": 1e9}'] = "limit", ['{"kind": "line", "line": "1", "ranks": null}'] =
        "ranks of this job",
    } do
      local connection = assert(core.request_connect(folder .. "/requests"))
      assert.is_true(connection:send(text))
      local answer = connection:receive(20)
      assert.is_truthy(answer and json.decode(answer, "answer").refused:find(why, 1, true), text .. tostring(answer))
      connection:close()
    end
    says(job, "@0 1 + 1", "[0] 2")
  end)

  it("sends no line that is too long for a request, says so, and stays attached", function()
    local file = job.home .. "/lines"
    for _, bytes in ipairs { 16384, 1000000 } do -- a job hangs up on the one, a socket does not take the other
      shell.write(file, "@0 #'" .. ("x"):rep(bytes) .. "'\n@0 1 + 1\n")
      local result = run_host({ "attach" }, { cwd = job.home, env = support.environment(job.home), stdin = file })
      assert.equal(0, result.code, result.err)
      assert.matches("^not sent: a request has at most 16384 bytes, and this line makes one of %d+; write it to a "
        .. "file, and :load FILE\n%[0%] 2\n$", result.out)
    end
    says(job, "@0 #'" .. ("x"):rep(16000) .. "'", "[0] 16000")
  end)

  it("says which process is stopped, and waits for it", function()
    local pid = attach(job, "--run", "@1 require('ganymede.core').process().pid").out:match "^%[1%] (%d+)"
    local script = ("cd %s && TMPDIR=%s %s --run '@0 1 + 1' >asked 2>asked.err; echo $? >asked.status"):format(
      shell.quote(job.home), shell.quote(job.home), shell.program "attach")
    assert.equal(0, os.execute(("kill -STOP %s; GANYMEDE_ROOT=%s sh -c %s &"):format(pid, shell.quote(GANYMEDE_ROOT),
      shell.quote(script))))
    wait_for(function() return (job:read "asked.err" or ""):find("is stopped", 1, true) end)
    assert.equal(0, os.execute("kill -CONT " .. pid))
    wait_for(function() return (job:read "asked.status" or "") ~= "" end)
    assert.equal("[0] 2\n", job:read "asked", job:read "asked.err")
    local said = job:read "asked.err"
    assert.matches(("points does not answer: rank 1 %%(process %s%%) is stopped; `kill %%-CONT %s`"):format(pid, pid),
      said)
    assert.equal(1, select(2, said:gsub("is stopped", ""))) -- once
    local long = says(job, "@0 require('ganymede.core').sleep(5)", "")
    assert.matches("points does not answer yet: its rank 0 has been in this step for %d+ s", long.err)
  end)

  it("has a prompt with completion, on a terminal", function()
    if not shell.run("command -v tmux").out:find "tmux" then pending "tmux: install the Debian package tmux" end
    local terminal = tmux.open(job.home, { GANYMEDE_ROOT = GANYMEDE_ROOT, TMPDIR = job.home, TERM = "xterm",
      GANYMEDE_HISTORY = "" })
    finally(function() terminal:close() end)
    terminal:type(shell.quote(shell.executable()) .. " attach run --limit 600")
    terminal:key "Enter"
    terminal:wait "Ctrl-D leaves.\n> "
    terminal:type "optimizer.l"
    terminal:key_until("Tab", "> optimizer.lr") -- a job that does not answer in time completes nothing
    terminal:key "Enter"
    local shown = terminal:wait "[0-1] 0.0025\n> "
    terminal:type "repeat require('ganymede.core').sleep(0.02) until io.open 'let_go'"
    terminal:key "Enter"
    terminal:wait_for("(waits for the end of a step", shown)
    terminal:key "C-c"
    terminal:wait_for("interrupted: a line that runs already goes on until its limit", shown)
    shell.write(job.home .. "/let_go", "")
  end)

  it("goes on where a checkpoint cannot be saved, and says why", function()
    shell.write(job.home .. "/run/checkpoints", "") -- a file in place of the folder
    for _ = 1, 2 do -- the second one finds all ranks as the first one did
      local result = attach(job, "--run", ":checkpoint")
      assert.equal(1, result.code, result.out .. result.err)
      assert.matches("^%[0%-1%] .*checkpoints", result.out)
    end
    os.remove(job.home .. "/run/checkpoints")
    local before = step_of(job)
    repeat until step_of(job) > before
    says(job, "gm.comm.all_reduce(gm.ones { 2 }):totable()[1]", "[0-1] 2")
  end)

  it("saves a checkpoint that a run resumes from, and stops the job as Ctrl-C does", function()
    local saved = attach(job, "--run", ":checkpoint")
    assert.equal(0, saved.code, saved.err)
    local path, step = saved.out:match "saved (%S+/step%-0*(%d+))"
    assert.is_truthy(path, saved.out)
    assert.equal(0, attach(job, "--run", ":stop").code)
    local result = job:read "status"
    local deadline = core.now() + shell.PATIENCE
    while not (result and result ~= "") and core.now() < deadline do
      core.sleep(0.05)
      result = job:read "status"
    end
    assert.equal("130", result and result:match "%d+", support.read(job.home .. "/err"))
    local again = support.run_in(job.home, { "--out", "again", "--set", "zero.level=1", "--resume", path, "--steps",
      tostring(step + 2) }, 2)
    assert.equal(0, again.code, again.err)
    assert.is_truthy(again.out:find("at step " .. step, 1, true), again.out)
    local nobody = attach(job)
    assert.equal(2, nobody.code)
    assert.is_truthy(nobody.err:find("no job of this user runs", 1, true), nobody.err)
    support.check(job:finish(), 130, "stopped by `ganymede attach` after step")
  end)
end)

describe("a prompt", function()
  it("attaches again when the job goes on in other ranks, and ends with it", function()
    if not shell.run("command -v tmux").out:find "tmux" then pending "tmux: install the Debian package tmux" end
    local job = support.start(recipe, { "--out", "run", "--set", "epochs=100000", "--set", "checkpoint.interval=5",
      "--max-restarts", "3", "--restart-delay", "0.05" }, "%s run recipe.lua -n 2")
    job:file "ready"
    local terminal = tmux.open(job.home, { GANYMEDE_ROOT = GANYMEDE_ROOT, TMPDIR = job.home, TERM = "xterm",
      GANYMEDE_HISTORY = "" })
    finally(function() terminal:close() end)
    local function line(text, expected)
      terminal:type(text)
      terminal:key "Enter"
      terminal:wait(expected)
    end
    line(shell.quote(shell.executable()) .. " attach run", "Ctrl-D leaves.\n> ")
    line("world", "[0-1] 2\n> ")
    local resized = run_host({ "resize", "run", "-n", "1" }, { cwd = job.home, env = support.environment(job.home) })
    assert.equal(0, resized.code, resized.err)
    line("world + 10", "(the job goes on with 1 rank; attached again)\n11\n> ") -- the line was not lost
    job:signal("KILL", job:pids "^%S*ganymede run .*%-%-takes%-over")
    local shown = terminal:screen()
    terminal:type "world + 20" -- whether it is lost depends on when they die
    terminal:key "Enter"
    terminal:wait_for("attached again)", shown)
    terminal:wait("> ", shown)
    line("world + 30", "31\n> ")
    job:signal("TERM", job:supervisor())
    job:file "status"
    shown = terminal:screen()
    terminal:type "world"
    terminal:key "Enter"
    terminal:wait_for("the job has ended", shown)
    assert.equal(75, job:finish().code)
  end)
end)

describe("attach to a loop of a recipe's own", function()
  local loop = [[
local config = gm.launch { batch = 4 }
local engine = gm.initialize { model = gm.nn.Linear { inputs = 4, outputs = 2 }, optimizer = { type = "SGD", lr = 0.1 },
  criterion = gm.nn.CrossEntropyLoss {} }
engine:train()
for step = 1, 100000 do
  engine:zero_grad()
  engine:backward(engine:criterion(engine(gm.ones { config.batch, 4 }), gm.zeros({ 4 }, { dtype = "i64" })))
  engine:step()
  if step == 2 then ready() end
  core.sleep(0.01)
end
]]

  it("lets Ctrl-C stop the job while a line runs", function()
    local job = support.start(loop, {}, support.one_rank)
    job:file "ready"
    local env = ("env TMPDIR=%s GANYMEDE_ROOT=%s"):format(shell.quote(job.home), shell.quote(GANYMEDE_ROOT))
    local line = "io.open('in_line', 'w'):close() require 'ganymede.core'.sleep(60)"
    assert(os.execute(("cd %s; %s timeout 60 %s attach --run %s >attached 2>&1 &"):format(shell.quote(job.home), env,
      shell.quote(shell.executable()), shell.quote(line))) == 0)
    local deadline = core.now() + shell.PATIENCE
    while not io.open(job.home .. "/in_line") and core.now() < deadline do core.sleep(0.02) end
    job:signal("INT", job:supervisor())
    support.check(job:finish(), 130, "ganymede: stopped by Ctrl-C")
  end)

  it("has the engine, and says what only a trainer can do", function()
    local job = support.start(loop, {}, "%s run recipe.lua")
    job:file "ready"
    says(job, "optimizer.lr = optimizer.lr / 2", "")
    says(job, "optimizer.lr, rawget(_G, 'trainer'), engine.steps_done > 2", "0.05\nnil\ntrue")
    local saved = attach(job, "--run", ":checkpoint")
    assert.equal(1, saved.code)
    assert.is_truthy(saved.out:find("needs a trainer", 1, true), saved.out)
    assert.equal(0, attach(job, "recipe.lua", "--run", ":stop").code)
    support.check(job:finish(), 130, "stopped by `ganymede attach` after step")
  end)
end)

describe("jobs", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  local function ask(...) return run_host({ "attach", ... }, { env = { TMPDIR = home } }) end

  -- What a job leaves of which every process was killed, the sweeper too.
  local function dead(name, mode)
    local folder = home .. "/" .. name
    assert(os.execute(("mkdir -m %s %s"):format(mode, folder)) == 0)
    shell.write(folder .. "/job", '{"name": "dead", "world": 1}\n')
    shell.write(folder .. "/requests", "")
    shell.write(folder .. "/rank-0", "")
    return folder
  end

  it("that were killed are not found, and what they left is removed, but nothing else", function()
    local folder, open, busy = dead("ganymede-abc123", "0700"), dead("ganymede-abc124", "0755"),
      dead("ganymede-abc125", "0700")
    shell.write(busy .. "/supervisor", "")
    local result = ask()
    assert.equal(2, result.code)
    assert.is_truthy(result.err:find("no job of this user runs", 1, true), result.err)
    assert.is_nil(io.open(folder .. "/job"))
    assert.equal(2, #shell.lines("ls -d " .. home .. "/ganymede-*"))
    assert.is_truthy(io.open(open .. "/job")) -- others may write there: not ours to judge
    assert.is_truthy(io.open(busy .. "/supervisor")) -- its supervisor removes it
  end)

  it("are listed where more than one is meant, and found by name, folder and process", function()
    local listening = {}
    finally(function()
      for _, requests in ipairs(listening) do requests:close() end
    end)
    for i, about in ipairs { '{"name": "one", "world": 1, "pid": 41, "folder": "%s/runs/a"}',
      '{"name": "one", "world": 2, "pid": 42, "folder": "%s/runs/b"}', '{"name": "other", "world": 3, "pid": 43}',
      "no JSON" } do
      local folder = ("%s/ganymede-live0%d"):format(home, i)
      assert(os.execute(("mkdir -m 0700 %s; mkdir -p %s/runs/a %s/runs/b"):format(folder, home, home)) == 0)
      shell.write(folder .. "/job", (about:gsub("%%s", home)))
      listening[i] = core.requests_open(folder .. "/requests")
    end
    local function top(...) return run_host({ "top", "--once", ... }, { env = { TMPDIR = home }, cwd = home }) end
    local all = top()
    assert.equal(2, all.code)
    assert.is_truthy(all.err:find "3 jobs run here; name the folder or the process of one:\n  one%s+1 rank, process 41")
    assert.is_truthy(top("one").err:find("2 jobs run here that 'one' may mean", 1, true))
    assert.is_truthy(top("nobody").err:find("no job 'nobody' runs here; those that do:", 1, true))
    for wanted, world in pairs { other = 3, ["runs/b"] = 2, b = 2, ["41"] = 1 } do
      local found = top(wanted)
      assert.equal(0, found.code, found.err)
      assert.is_truthy(found.out:find(", " .. world .. " rank", 1, true), found.out)
    end
  end)
end)
