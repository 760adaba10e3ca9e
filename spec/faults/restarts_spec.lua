--- `run --max-restarts`: a job whose rank dies or hangs starts again and gives the losses of a run that nobody
-- disturbed, f64, to the bit where the mesh is the same. What ends a job for good ends it at once.
-- sanitizers: no, numbers of training on several ranks are compared, and jobs are timed
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- 12 steps of 2 ranks, a checkpoint after every third. wrong: Lua source that runs before each step, and may use
-- `trainer`, `rank`, `once()`, which is true in one attempt only, `second`, which is true in those after it, and
-- `fault()`.
local function recipe(wrong, changes)
  return ([[
local before = io.open "before"
local second = before ~= nil
if before then before:close() end
local function once()
  if second or io.open "before" then return false end
  assert(io.open("before", "w")):close()
  return true
end
require("ganymede.hooks.base").class("Fault", {}, { before_train_iter = function(_, trainer) %s end })
local config = {
  name = "points", seed = 3, steps = 12, dtype = "f64",
  model = { type = "MLP", inputs = 6, hidden = { 8 }, classes = 4, dropout = 0.2 },
  data = { train = { type = "Synthetic", length = 40, shape = { 6 }, classes = 4 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "Fault" } }, checkpoint = { interval = 3 },
}
%s
return config]]):format(wrong, changes or "")
end

local losses = support.losses

describe("a job with --max-restarts", function()
  local home
  after_each(function()
    if home then shell.remove(home) end
    home = nil
  end)

  -- Runs a recipe in a new home, into home/run, with so many ranks -> { code, out, err }.
  local function run(body, words, ranks)
    home = support.home(body)
    local line = { "--out", "run", "--restart-delay", "0.05", unpack(words) }
    local result = support.run_in(home, line, ranks or 2)
    local left = support.left(home)
    assert.same({}, left)
    support.check_folder(home)
    return result
  end

  local undisturbed
  local function expected()
    if undisturbed then return undisturbed end
    local result = run(recipe "", { "--max-restarts", "1" })
    assert.equal(0, result.code, result.err)
    assert.is_nil(result.err:find("attempt", 1, true), result.err)
    undisturbed = losses(home)
    assert.equal(12, #undisturbed)
    shell.remove(home)
    return undisturbed
  end

  local function count(text, pattern) return (select(2, text:gsub(pattern, ""))) end

  it("goes on from its newest checkpoint after a rank was killed: the losses are the same to the bit", function()
    local whole = expected()
    local result = run(recipe "if rank == 1 and trainer.step == 8 and once() then kill(9) end",
      { "--max-restarts", "1", "--stats", "stats.json" })
    assert.equal(0, result.code, result.err)
    assert.matches("ganymede: rank 1: killed by signal 9", result.err)
    assert.matches("attempt 2 begins in 0.05 s: 2 ranks, from the checkpoint of step [36]\n", result.err)
    assert.matches("resumed from run/checkpoints/step%-0000000[36] at step", result.out)
    assert.same(whole, losses(home))
    local saved, restarts = 0, {}
    for line in io.lines(home .. "/run/events.jsonl") do
      local event = json.decode(line, line)
      if event.event == "restart" then restarts[#restarts + 1] = event end
      if event.event == "checkpoint" then saved = saved + 1 end
      assert.is_true(event.seconds >= 0 and event.seconds < 60)
    end
    assert.is_true(saved >= 3) -- the one under way at the death has no end to tell
    assert.equal(1, #restarts)
    assert.equal(tonumber(result.err:match "from the checkpoint of step (%d+)"), restarts[1].step)
    assert.equal(2, restarts[1].ranks)
    assert.is_true(restarts[1].seconds > 0.05, "the delay is a part of it")
    assert.matches("^killed by signal 9", restarts[1].why)
    local stats = json.decode(shell.read(home .. "/stats.json"), "stats.json")
    assert.equal(0, stats.exit_code)
  end)

  it("begins anew where the recipe saves nothing, in the same folder, and says at its start that it would", function()
    local whole = expected()
    home = support.home(recipe("if rank == 0 and trainer.step == 5 and once() then kill(9) end",
      "config.checkpoint = nil"))
    local result = support.run_in(home, { "--max-restarts", "1", "--restart-delay", "0.05" }, 2)
    assert.equal(0, result.code, result.err)
    local folders = shell.lines("cd " .. home .. "/runs && ls -d points-*") -- the run has chosen its name
    assert.equal(1, #folders)
    assert.equal(0, os.execute(("mv %s/runs/%s %s/run"):format(home, folders[1], home)))
    local warned = result.err:find("saves no checkpoints: after a failure the run begins anew at step 1", 1, true)
    assert.is_true(warned and warned < result.err:find("killed by signal 9", 1, true), result.err)
    assert.matches("attempt 2 begins in 0.05 s: 2 ranks, anew, because there is no checkpoint", result.err)
    assert.same(whole, losses(home))
  end)

  it("ends with the last status after K restarts without progress, and says what each attempt did", function()
    local result = run(recipe "if rank == 1 and trainer.step == 2 then kill(9) end", { "--max-restarts", "1" })
    assert.equal(6, result.code, result.err)
    assert.equal(2, count(result.err, "ganymede: rank 1: killed by signal 9"))
    assert.matches("not started again: 2 attempts in a row left no newer checkpoint %(%-%-max%-restarts 1%)\n"
      .. "  attempt 1, 2 ranks, from step 0: rank 1: killed by signal 9[^\n]*; newest checkpoint: none\n"
      .. "  attempt 2, [^\n]*none\n", result.err)
  end)

  it("keeps to checkpoint.directory, and to what it resumed from until it has saved something", function()
    local whole = expected()
    local wrong = [[
      if rank == 1 and trainer.step == (second and 8 or 4) and not io.open "third" then
        if second then
          repeat local saved = io.open "kept/step-00000006/index.json" until saved
          assert(io.open("third", "w")):close()
        else
          once()
        end
        kill(9)
      end]]
    home = support.home(recipe(wrong, "config.checkpoint.directory = 'kept'"))
    shell.write(home .. "/third", "")
    assert.equal(0, support.run_in(home, { "--out", "first", "--steps", "3" }, 2).code)
    assert.equal(0, os.execute(("mv %s/kept %s/old && rm %s/third"):format(home, home, home)))
    local result = support.run_in(home, { "--out", "run", "--resume", "old", "--max-restarts", "2",
      "--restart-delay", "0.05" }, 2)
    assert.equal(0, result.code, result.err)
    assert.matches("attempt 2 begins in 0.05 s: 2 ranks, from old again, because it has saved nothing\n", result.err)
    assert.matches("attempt 3 begins in 0.05 s: 2 ranks, from the checkpoint of step 6\n", result.err)
    assert.matches("resumed from kept/step%-00000006 at step 6", result.out)
    local last = {}
    for line in io.lines(home .. "/run/metrics.jsonl") do
      local event = json.decode(line, "metrics.jsonl")
      last[#last + 1] = event.loss
      assert.equal(whole[event.step], event.loss)
    end
    assert.equal(9, #last) -- steps 4 to 12
  end)

  it("starts a job of one rank again, too", function()
    local whole = expected()
    local result = run(recipe "if trainer.step == 8 and once() then kill(11) end", { "--max-restarts", "1" }, 1)
    assert.equal(0, result.code, result.err)
    assert.matches("attempt 2 begins in 0.05 s: 1 rank, from the checkpoint", result.err)
    local list = losses(home)
    assert.equal(12, #list)
    for step, loss in ipairs(list) do assert.near(whole[step], loss, 1e-9) end
  end)

  -- Two of three ranks die at once; then the first rank while the second attempt starts.
  it("goes on after several deaths, also while an attempt starts", function()
    local whole = expected()
    local result = run(recipe("if not second and trainer.step == 8 and rank > 0 then once() kill(9) end", [[
      local third = io.open "third"
      if second and not third and rank == 0 then
        assert(io.open("third", "w")):close()
        kill(9)
      end]]), { "--max-restarts", "2" }, 3)
    assert.equal(0, result.code, result.err)
    assert.matches("attempt 3 begins in 0.05 s: 3 ranks, from the checkpoint of step [36]\n", result.err)
    local list = losses(home)
    assert.equal(12, #list)
    for step, loss in ipairs(list) do assert.near(whole[step], loss, 1e-9) end
  end)

  it("leaves no --stats of an attempt before the last one", function()
    local wrong = "if trainer.step == 2 and (second and rank == 0 or rank == 1 and once()) then kill(9) end"
    local result = run(recipe(wrong, "config.checkpoint = nil"), { "--max-restarts", "1", "--stats", "stats.json" })
    assert.equal(6, result.code, result.err)
    assert.matches("\nganymede: rank 1: killed.*\nganymede: rank 0: killed", result.err)
    assert.is_nil((io.open(home .. "/stats.json")))
  end)

  it("of one rank saves on SIGTERM, as others do", function()
    local body = recipe("if trainer.step == 5 then ready() repeat local go = io.open 'go' until go end")
    local job = support.start(body, { "--out", "run" }, "%s run recipe.lua --max-restarts 3")
    job:file "ready"
    job:signal("TERM", job:supervisor())
    os.execute "sleep 0.3"
    shell.write(job.home .. "/go", "")
    support.check(job:finish(), 75, "stopped after step")
  end)

  -- 2 s until the others miss it, 5 at most until those are gone, 4 for mpirun, and a start.
  it("finds a rank that was stopped within --comm-timeout, and starts again", function()
    local whole = expected()
    local result = run(recipe([[
      if rank == 1 and trainer.step == 8 and once() then fault() kill "STOP" end
      if rank == 0 and trainer.step == 11 then
        local file = assert(io.open("again", "w"))
        file:write(("%.6f"):format(core.wall()))
        file:close()
      end]]), { "--max-restarts", "1", "--comm-timeout", "2" })
    assert.equal(0, result.code, result.err)
    assert.matches("rank 1 was stopped by signal 19", result.err)
    assert.same(whole, losses(home))
    local seconds = tonumber(shell.read(home .. "/again")) - support.fault_of(home)
    assert.is_true(seconds < 15, seconds)
  end)

  it("ends at once where the recipe is wrong", function()
    local result = run(recipe("", "config.optimizer.lr = 'fast'"), { "--max-restarts", "3" })
    assert.equal(2, result.code, result.err)
    assert.is_nil(result.err:find("attempt", 1, true), result.err)
  end)

  it("ends where the same error comes again: ranks that make different calls", function()
    local result = run(recipe "if rank == 1 and trainer.step == 8 then sum(gm.ones { 4 }) end",
      { "--max-restarts", "5" })
    assert.equal(1, result.code, result.err)
    assert.matches("not started again: the same error came twice in a row", result.err)
    assert.is_true(count(result.err, "\nganymede: rank %d: [^\n]*ranks differ") >= 2, result.err)
  end)

  it("ends at --timeout, which counts all attempts and the time between them", function()
    local began = core.now()
    local result = run(recipe "if rank == 1 and trainer.step == 2 then kill(9) end",
      { "--max-restarts", "5", "--restart-delay", "50", "--timeout", "2" })
    assert.equal(7, result.code, result.err)
    assert.matches("the run did not end within 2 seconds %(%-%-timeout%)", result.err)
    assert.is_true(core.now() - began < 30)
  end)

  -- A launcher that starts nothing: before all ranks have joined, the limit ends it.
  it("is given what is left of --timeout", function()
    local stop = require("ganymede.base.failure").new(130, "stopped")
    core.signals_open({ stop, stop, stop }, true, false)
    finally(core.signals_close)
    local job = core.job_start { ranks = 2, argv = { "sleep", "50" }, environment = {}, folders = {}, timeout = 100,
      spent = 99.9 }
    finally(function() job:close() end)
    local began = core.now()
    assert.equal("failed", job:wait())
    assert.equal("deadline", job:asked())
    assert.equal(7, job:first().code)
    assert.is_true(core.now() - began < 30)
  end)

  describe("and --min-ranks", function()
    local function check_fewer(wrong, changes, from)
      local whole = expected()
      local result = run(recipe(wrong, changes), { "--max-restarts", "2", "--min-ranks", "1" })
      assert.equal(0, result.code, result.err)
      assert.matches(from .. "[^\n]*; a place for a rank is gone", result.err)
      local list = losses(home)
      assert.equal(12, #list)
      for step, loss in ipairs(list) do assert.near(whole[step], loss, 1e-9) end
      return result
    end

    it("goes on with fewer ranks where the same rank fails twice: the batch and the losses stay", function()
      check_fewer("if rank == 1 and trainer.step == 2 then kill(9) end", "config.parallel = { data = 2 }",
        "attempt 3 begins in 0.1 s: 1 rank, anew, ")
    end)

    it("plans anew where parallel is auto", function()
      local result = check_fewer([[
        if rank == 1 and trainer.step == 5 then
          repeat local saved = io.open "run/checkpoints/step-00000003/index.json" until saved
          kill(9)
        end]],
        "config.parallel, config.machine = 'auto', 'cpu_ethernet'", "1 rank, from the checkpoint of step 3")
      assert.matches("is for 2 ranks, and there are 1: planned anew", result.err)
    end)

    it("is refused where no mesh of fewer ranks fits", function()
      local result = run(recipe("", "config.parallel = { pipeline = 2 }"),
        { "--max-restarts", "2", "--min-ranks", "1" })
      assert.equal(2, result.code, result.err)
      assert.matches("%-%-min%-ranks 1: no smaller number of ranks fits; 1 ranks: data of the mesh cannot", result.err)
    end)
  end)

  it("refuses a folder whose checkpoints a restart would take for its own", function()
    home = support.home(recipe "")
    assert.equal(0, os.execute("mkdir -p " .. home .. "/run/checkpoints/step-00000099"))
    local result = support.run_in(home, { "--out", "run", "--max-restarts", "1" }, 2)
    assert.equal(2, result.code, result.err)
    assert.matches("run/checkpoints holds checkpoints of an earlier run", result.err)
    result = support.run_in(home, { "--out", "new", "--max-restarts", "1", "--set",
      "checkpoint.directory=run/checkpoints" }, 2)
    assert.equal(2, result.code, result.err)
    assert.matches("run/checkpoints holds checkpoints of an earlier run", result.err)
  end)

  it("refuses flags that would have no effect", function()
    home = support.home(recipe "")
    local function refused(words, text)
      local result = support.run_in(home, words, 2)
      assert.equal(2, result.code, result.err)
      assert.is_truthy(result.err:find(text, 1, true), result.err)
    end
    refused({ "--min-ranks", "1" }, "--min-ranks belongs to --max-restarts")
    refused({ "--restart-delay", "1" }, "--restart-delay belongs to --max-restarts")
    refused({ "--max-restarts", "1", "--min-ranks", "2" }, "--min-ranks 2: must be less than the 2 ranks of -n")
  end)
end)

-- More kills: GANYMEDE_SPEC_KILLS=100 ./ganymede spec --slow spec/faults/restarts_spec.lua -f 'random moments'
describe("a job with --max-restarts whose processes are killed at random moments", function()
  local kills = tonumber(os.getenv "GANYMEDE_SPEC_KILLS") or 4
  local modes = {
    data = "", zero = "config.zero = 3", tensor = "config.parallel = { tensor = { size = 2, mode = '1d' } }",
    pipeline = "config.parallel, config.num_microbatches = { pipeline = 2 }, 4",
  }

  local function children(pid)
    local path = ("/proc/%s/task/%s/children"):format(pid, pid)
    return shell.lines("cat " .. path .. " 2>/dev/null | tr ' ' '\\n' || true")
  end

  -- The mpirun, the keepers or the ranks of a job, by turns; an empty list where there are none just now.
  local function victims(job, turn)
    local launcher = job:pids("^mpirun ")[1]
    if not launcher or turn % 3 == 0 then return { launcher } end
    local keepers = children(launcher)
    if turn % 3 == 1 then return keepers end
    local ranks = {}
    for _, keeper in ipairs(keepers) do ranks[#ranks + 1] = children(keeper)[1] end
    return ranks
  end

  for mode, changes in pairs(modes) do
    it(("ends with the same losses, and nothing is left: %s #slow"):format(mode), function()
      local body = recipe("core.sleep(0.02)", "config.steps = 120 " .. changes)
      local home = support.home(body)
      assert.equal(0, support.run_in(home, { "--out", "run" }, 2).code)
      local whole, hit = losses(home), 0
      shell.remove(home)
      local job = support.start(body, { "--out", "run", "--restart-delay", "0.05" },
        "%s run recipe.lua -n 2 --max-restarts 100")
      for turn = 1, kills do
        os.execute(("sleep %.3f"):format(0.2 + 2.5 * ((turn * 0.61803398875) % 1)))
        local list = victims(job, turn)
        if #list > 0 then
          os.execute("kill -9 " .. list[1 + turn % #list] .. " 2>/dev/null")
          hit = hit + 1
        end
      end
      assert.equal("0", job:file("status"):match "%d+", job:read "err")
      local list = losses(job.home)
      job:finish()
      assert.is_true(hit > 0)
      assert.same(whole, list)
    end)
  end
end)

describe("a stop between two attempts", function()
  -- Starts a job that waits long before its second attempt, and sends it a signal then.
  local function stopped_by(signal, changes, code, text)
    local body = recipe("if rank == 1 and trainer.step == 8 then kill(9) end", changes)
    local job = support.start(body, { "--out", "run", "--restart-delay", "60" },
      "env --default-signal=INT %s run recipe.lua -n 2 --max-restarts 3")
    assert.equal(0, os.execute(shell.wait_until("grep -qs 'attempt 2 begins' " .. job.home .. "/err")))
    job:signal(signal, job:supervisor())
    support.check(job:finish(), code, text)
  end

  it("ends the job for good: Ctrl-C", function()
    stopped_by("INT", "", 130, "ganymede: stopped by Ctrl-C")
  end)
  it("by SIGTERM says that the run can be resumed, if it saved anything", function()
    stopped_by("TERM", "", 75, "the newest checkpoint is in run/checkpoints (continue with --resume)")
  end)
  it("by SIGTERM does not say so otherwise", function()
    stopped_by("TERM", "config.checkpoint = nil", 143, "ganymede: stopped by SIGTERM")
  end)
end)

describe("ranks that another launcher has started", function()
  it("are told that they have no supervisor", function()
    local job = support.start("", { "--max-restarts", "1" },
      "mpirun -n 2 --oversubscribe --allow-run-as-root %s run recipe.lua")
    local result = job:finish()
    assert.equal(2, result.code, result.err)
    assert.matches("%-%-max%-restarts: this is one of 2 ranks that another launcher has started", result.err)
  end)
end)

-- The first attempt fails while its output waits for a reader, and is dropped after a second; the second one's waits.
describe("output that nobody reads when an attempt fails", function()
  it("is read again from the next attempt on", function()
    local home = support.home(recipe [[
      if rank == 0 and trainer.step == 2 then
        local first = once()
        for i = 1, 4000 do print((first and "first " or "second ") .. i .. (" "):rep(60)) end
        if first then kill(9) end
      end]])
    local result = shell.run(("cd %s && env %s timeout -k 5 60 %s recipe.lua -n 2 --threads 1 --max-restarts 1 "
      .. "--restart-delay 0.1 --out run 2>err | (%s; cat)"):format(home, support.environment_words(home),
      shell.program "run", shell.wait_until("grep -qs 'attempt 2 begins' err && sleep 1")))
    local err = shell.read(home .. "/err")
    shell.remove(home)
    local second = 0
    for number in result.out:gmatch "second (%d+)" do second = math.max(second, tonumber(number)) end
    assert.equal(4000, second, err)
  end)
end)
