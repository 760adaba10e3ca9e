-- ganymede sweep: results are those of runs alone, a sweep that is stopped or killed goes on where it was, failures of
-- one run stay its own, and wrong values start nothing.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local support = require "spec.cli.support"
local shell = support.shell

local home
before_each(function() home = support.home() end)
after_each(function() shell.remove(home) end)

local function sweep(words, options) return support.run(home, { "sweep", "recipe.lua", unpack(words) }, options) end

local function folder() return home .. "/" .. shell.lines("cd " .. home .. " && ls -d runs/*-sweep-*")[1] end

-- The losses and the evaluation in a run's metrics.jsonl, by step.
local function told(path)
  local losses, test = {}, nil
  for _, line in ipairs(shell.lines("cat " .. path .. "/metrics.jsonl")) do
    local event = require("ganymede.base.json").decode(line, path)
    if event.test then
      test = event.test
    else
      assert.equal(#losses + 1, event.step)
      losses[event.step] = event.loss
    end
  end
  return losses, test
end

-- What a run of its own gives.
local function alone(words, out)
  local result = support.run(home, { "run", "recipe.lua", "--out", out, unpack(words) })
  assert.equal(0, result.code, result.err)
  return told(home .. "/" .. out)
end

describe("ganymede sweep", function()
  it("runs every setting as run would, orders them, and runs nothing twice", function()
    local words = { "--set", "optimizer.lr=0.001,0.02", "--set", "data.batch_size=32,64", "--jobs", "2" }
    local result = sweep(words)
    assert.equal(0, result.code, result.err)
    local order, at = {}, folder()
    for place, run, lr, batch, loss in result.out:gmatch "\n(%d)  (%d%d%d)%s+(%S+)%s+(%d+)%s+(%S+)%s+%d+%s+%S+  done" do
      order[tonumber(place)] = { run = run, lr = lr, batch = batch, loss = tonumber(loss) }
    end
    assert.equal(4, #order, result.out)
    for i, row in ipairs(order) do
      assert(i == 1 or order[i - 1].loss <= row.loss)
      local losses, test = alone({ "--set", "optimizer.lr=" .. row.lr, "--set", "data.batch_size=" .. row.batch },
        "alone" .. i)
      local swept, evaluated = told(at .. "/" .. row.run)
      assert.same(losses, swept)
      assert.same(test, evaluated)
      assert(math.abs(test.loss - row.loss) < 1e-5 * test.loss)
    end
    assert.matches("%-%-set optimizer.lr=" .. order[1].lr .. " %-%-set data.batch_size=" .. order[1].batch, result.out)
    local before = shell.run("cd " .. at .. " && stat -c '%n %Y %s %i' */*").out
    local again = sweep(words)
    assert.equal(result.out, again.out)
    assert.matches("continues", again.err)
    assert.equal(before, shell.run("cd " .. at .. " && stat -c '%n %Y %s %i' */*").out)
  end)

  it("tells failures and goes on; what diverged is not repeated", function()
    local words = { "--set", "optimizer.lr=1e9,0.01,0.02", "--metric", "accuracy" }
    local result = sweep(words)
    assert.equal(0, result.code, result.err)
    assert.matches("3  001 +1e9 +%- +%- +%S+  diverged", result.out)
    assert.matches("\nrun 001: diverged: loss", result.out)
    local document = support.json(folder() .. "/sweep.json")
    assert.equal("max", document.best_is)
    assert(document.runs[1].value >= document.runs[2].value)
    local log = shell.read(folder() .. "/001/log.txt")
    sweep(words)
    assert.equal(log, shell.read(folder() .. "/001/log.txt"))
  end)

  it("ends with status 1 if no run came to its end", function()
    local result = sweep { "--set", "optimizer.lr=1e9,1e10" }
    assert.equal(1, result.code)
    assert.matches("no run of the sweep in runs/points%-sweep%-%x+ came to its end", result.err)
  end)

  it("halves: the better half goes on from its checkpoint to twice the steps", function()
    local result = sweep { "--set", "optimizer.lr=0.01,1e-5,0.001,1e-4", "--set", "epochs=4", "--halving" }
    assert.equal(0, result.code, result.err)
    local lines = {}
    for run, steps in result.out:gmatch "\n%d  (%d%d%d) +%S+ +%S+ +(%d+)" do lines[#lines + 1] = run .. " " .. steps end
    assert.same({ "001 64", "003 32", "004 16", "002 16" }, lines)
    local losses, test = alone({ "--set", "optimizer.lr=0.01", "--set", "epochs=4" }, "alone")
    local swept, evaluated = told(folder() .. "/001")
    assert.same(losses, swept)
    assert.same(test, evaluated)
    local log = shell.read(folder() .. "/001/log.txt")
    assert.equal(2, select(2, log:gsub("resumed from", "")))
  end)

  for _, case in ipairs {
    { "an option that there is not", { "--set", "optimizer.lrr=1,2" }, "did you mean 'lr'" },
    { "a value that an option refuses", { "--set", "optimizer.lr=1e-3,fast" }, "must be a number" },
    { "a value that check refuses", { "--set", "model.inputs=16,17" }, "must have 17 elements.*model.inputs=17" },
    { "seeds beside --seed", { "--set", "seed=1,2", "--seed", "5" }, "%-%-seed and %-%-set seed=%.%.%. were given" },
    { "one value", { "--set", "optimizer.lr=1e-3" }, "nothing to try" },
    { "a metric without evaluation", { "--set", "optimizer.lr=1,2", "--set", "data.test=nil", "--metric", "test.loss" },
      "no data.test" },
    { "a metric without a direction", { "--set", "optimizer.lr=1,2", "--metric", "train.lr" }, "%-%-max" },
    { "a metric that is misspelt", { "--set", "optimizer.lr=1,2", "--metric", "test.acuracy", "--min" },
      "test.acuracy: an evaluation has no 'acuracy'; there are accuracy, loss %(did you mean 'accuracy'%?%)" },
    { "a number of steps that is misspelt", { "--set", "optimizer.lr=1,2", "--metric", "train.los", "--min" },
      "train.los: a step has no 'los'; there are loss, lr, .* %(did you mean 'loss'%?%)" },
    { "more steps than the schedule has", { "--set", "optimizer.lr=1,2", "--halving", "--steps", "17" },
      "ends after 16 steps" },
    { "a recipe in code", { "--set", "optimizer.lr=1,2" }, "trains in code", 'print "code"' },
  } do
    it("refuses " .. case[1] .. " before anything begins", function()
      if case[4] then shell.write(home .. "/recipe.lua", case[4]) end
      local result = sweep(case[2])
      assert.equal(2, result.code, result.out .. result.err)
      assert.matches(case[3], result.err)
      assert.equal("recipe.lua", support.names(home))
    end)
  end

  it("says which metrics there are if the one asked for is missing, and takes another without new runs", function()
    local own = support.recipe:gsub('{ type = "AccuracyHook" }', "%0, { after_test = function() end }") -- may add some
    shell.write(home .. "/recipe.lua", own)
    local words = { "--set", "optimizer.lr=0.01,0.02", "--metric", "test.speed", "--max" }
    local result = sweep(words)
    assert.equal(2, result.code)
    assert.matches("train%.gradient_norm.*test%.accuracy, test%.loss", result.err)
    assert.equal(0, sweep { "--set", "optimizer.lr=0.01,0.02" }.code)
    assert.equal(16, #told(folder() .. "/001"))
  end)

  it("keeps to its folder: another sweep, another recipe and a folder with files are refused", function()
    assert.equal(0, sweep({ "--set", "optimizer.lr=0.01,0.02", "--out", "mine" }).code)
    local other = sweep { "--set", "optimizer.lr=0.01,0.03", "--out", "mine" }
    assert.equal(2, other.code)
    assert.matches("mine holds another sweep: `ganymede sweep recipe.lua %-%-set optimizer.lr=0.01,0.02", other.err)
    local full = sweep { "--set", "optimizer.lr=0.01,0.02", "--out", "." }
    assert.equal(2, full.code)
    assert.matches("is not empty and holds no sweep", full.err)
    assert(os.execute("mkdir " .. home .. "/notes && touch " .. home .. "/notes/one") == 0)
    local one = sweep { "--set", "optimizer.lr=0.01,0.02", "--out", "notes" }
    assert.equal(2, one.code)
    assert.matches("notes is not empty and holds no sweep", one.err)
    assert.equal("one", support.names(home .. "/notes"))
  end)

  it("has its folder alone: another process's is refused, with who has it and what to do", function()
    assert(os.execute("mkdir " .. home .. "/mine") == 0)
    local held = assert(require("ganymede.core").lock_take(home .. "/mine/.lock", "process 123 on vega", 0))
    local words = { "--set", "optimizer.lr=0.01,0.02", "--set", "epochs=1", "--out", "mine" }
    local result = sweep(words)
    assert.equal(2, result.code, result.out .. result.err)
    assert.matches("the folder mine is in use by process 123 on vega; wait for its end, or give another --out",
      result.err, 1, true)
    assert.equal("", support.names(home .. "/mine"))
    held:close()
    assert.equal(0, sweep(words).code)
  end)
end)

-- A recipe whose runs wait behind step 5 until there is a file; waiting says so.
local slow = support.recipe:gsub("hooks = {", [[hooks = { {
    after_train_loss = function(_, trainer, step)
      if step.step ~= 5 or io.open "go" then return end
      io.open("waiting" .. trainer.engine.optimizer.lr, "w"):close()
      while not io.open "go" do os.execute "sleep 0.02" end
    end },]]):gsub("seed = 3", "seed = 3, epochs = 2")

local function begin(words)
  local run = "cd %s; env --default-signal=INT GANYMEDE_ROOT=%s %s recipe.lua --threads 1 %s >out 2>err & sweep=$!; "
  return run:format(
    shell.quote(home), shell.quote(GANYMEDE_ROOT), shell.program "sweep", words)
end

describe("a sweep that is", function()
  local words = "--set optimizer.lr=0.01,0.02,0.03 --jobs 2"
  local listed = { "--threads", "1", "--set", "optimizer.lr=0.01,0.02,0.03", "--jobs", "2" }
  before_each(function() shell.write(home .. "/recipe.lua", slow) end)

  -- Waits until two runs are under way, stops the sweep, lets the runs go on, and continues.
  local function stopped(how, then_)
    local result = shell.run(begin(words) .. shell.wait_until "test -e waiting0.01 -a -e waiting0.02"
      .. "; " .. how .. "; sleep 0.2; touch go; wait $sweep; echo status $?; " .. (then_ or "true"))
    assert.equal(0, result.code, "what was waited for did not come")
    return tonumber(result.out:match "status (%d+)")
  end

  local function ends_as_undisturbed()
    local result = sweep(listed)
    assert.equal(0, result.code, result.err)
    assert.equal(3, select(2, result.out:gsub("  done", "")), result.out)
    for i, lr in ipairs { "0.01", "0.02", "0.03" } do
      assert.same({ alone({ "--threads", "1", "--set", "optimizer.lr=" .. lr }, "alone" .. i) },
        { told(("%s/%03d"):format(folder(), i)) })
    end
  end

  it("stopped by Ctrl-C has its runs save and end, and continues", function()
    local status = stopped "kill -INT $sweep"
    assert.equal(130, status, shell.read(home .. "/err"))
    assert.matches("stopped by Ctrl%-C", shell.read(home .. "/err"))
    for _, run in ipairs { "001", "002" } do
      assert.equal(75, support.json(folder() .. "/" .. run .. "/sweep-all.json").exit_code)
      assert.equal("step-00000005", support.names(folder() .. "/" .. run .. "/checkpoints"))
    end
    ends_as_undisturbed()
    assert.matches("resumed from .* at step 5", shell.read(folder() .. "/001/log.txt"))
  end)

  it("stopped where sweep.json cannot be written waits for all of its runs nevertheless", function()
    local status = stopped "f=$(ls -d runs/*-sweep-*)/sweep.json; mv $f kept; mkdir $f; kill -INT $sweep"
    local said = shell.read(home .. "/err")
    assert.equal(130, status, said)
    assert.matches("run 001 %S+ stopped %(status 75%)", said)
    assert.matches("run 002 %S+ stopped %(status 75%)", said)
    assert.matches("warning: .*sweep.json", said)
  end)

  it("killed has its runs save and end all the same, and continues", function()
    local gone = shell.wait_until(([[test "$(grep -c '"exit_code": 75' %s/runs/*/00[12]/*-all.json | grep -c :1)" = 2]])
      :format(shell.quote(home)))
    assert.equal(137, stopped("kill -KILL $sweep", gone))
    ends_as_undisturbed()
  end)

  it("asked twice ends its runs at once", function()
    local status = stopped "kill -INT $sweep; sleep 0.3; kill -INT $sweep; sleep 0.3"
    assert.equal(130, status, shell.read(home .. "/err"))
    ends_as_undisturbed()
  end)
end)
