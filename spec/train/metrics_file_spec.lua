--- metrics.jsonl: whole lines, each step once, after crashes, on full disks, and never through a link.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local MetricsFile = require "ganymede.observe.metrics_file"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

describe("metrics.jsonl", function()
  local folder, path
  before_each(function()
    folder = shell.temporary_folder()
    path = folder .. "/metrics.jsonl"
  end)
  after_each(function() shell.remove(folder) end)

  local function steps()
    local out = {}
    for line in io.lines(path) do
      local event = json.decode(line, path)
      out[#out + 1] = event.test and "test " .. event.step or event.step
    end
    return out
  end

  local function noted(from, to)
    local lines = {}
    for step = from, to do lines[#lines + 1] = json.encode { step = step, loss = 1 / step } .. "\n" end
    return table.concat(lines)
  end

  it("goes on behind the step that is resumed: no later ones, no torn line", function()
    shell.write(path, noted(1, 9) .. '{"step":10,"lo')
    local file = MetricsFile(path, 7)
    file:write { step = 8, loss = 2 }
    file:close()
    assert.same({ 1, 2, 3, 4, 5, 6, 7, 8 }, steps())
  end)

  it("keeps a last line that lacks only its end", function()
    shell.write(path, (noted(1, 3):gsub("\n$", "")))
    local file = MetricsFile(path, 3)
    file:write { step = 4 }
    file:close()
    assert.same({ 1, 2, 3, 4 }, steps())
  end)

  it("begins anew where nothing is resumed", function()
    shell.write(path, noted(1, 9))
    MetricsFile(path, 0):close()
    assert.equal("", shell.read(path))
  end)

  it("notes the evaluation of a resumed step once", function()
    shell.write(path, noted(1, 2))
    for _ = 1, 2 do
      local file = MetricsFile(path, 2)
      file:write { step = 2, test = { loss = 0.5 } }
      file:close()
    end
    assert.same({ 1, 2, "test 2" }, steps())
  end)

  it("has every line at once, for a run that is killed", function()
    local file = MetricsFile(path, 0)
    file:write { step = 1 }
    assert.same({ 1 }, steps())
    file:close()
  end)

  it("does not follow a link that waits there", function()
    local victim = shell.write(folder .. "/victim", "dear")
    assert.equal(0, os.execute(("ln -s victim %s"):format(path)))
    MetricsFile(path, 0):close() -- the link is replaced
    assert.equal("dear", shell.read(victim))
    assert.equal(0, os.execute(("test ! -L %s"):format(path)))
    os.execute(("ln -sf victim %s/other"):format(folder))
    assert.error_matches(function() core.append_open(folder .. "/other") end, "is a link, which is not followed")
  end)

  it("survives a limit on the size of files: said once, the run goes on, whole lines only", function()
    local result = shell.run(([[cd %s && cat >recipe.lua <<'END'
local MetricsFile = require "ganymede.observe.metrics_file"
local file = MetricsFile("metrics.jsonl", 0)
for step = 1, 100 do file:write { step = step, filler = ("x"):rep(100) } end
file:close()
print "to the end"
END
ulimit -f 8; env --default-signal=XFSZ GANYMEDE_ROOT=%s %s recipe.lua]]):format(
      folder, shell.quote(GANYMEDE_ROOT), shell.program "run"))
    assert.equal(0, result.code, result.err)
    assert.matches("to the end", result.out)
    assert.matches("metrics.jsonl: cannot be written: File too large[^\n]*; training goes on", result.err)
    local got = steps() -- each line can be read
    assert.equal(got[#got], #got)
    assert.matches(("%d lines of metrics were lost"):format(100 - #got), result.err)
    local _, said = result.err:gsub("warning", "")
    assert.equal(2, said, result.err)
  end)

  it("gets what a full disk has refused when there is room again", function()
    local file = MetricsFile(path, 0)
    local waiting, full = file.file, true
    local append = waiting.file
    waiting.file = { write = function(_, line)
      if full then return nil, "full" end
      return append:write(line)
    end, close = function() append:close() end }
    for step = 1, 5 do
      full = step < 4
      file:write { step = step }
    end
    assert.same({ 1, 2, 3, 4, 5 }, steps())
    file:close()
  end)
end)

describe("a folder that vanishes while the run goes on", function()
  -- Runs the recipe; a shell changes the folder o after its third step.
  local function run(change)
    local home = support.home((support.recipe:gsub("hooks = {", ([[hooks = { { type = "CSVHook" },
      { type = "CheckpointHook", interval = 8 }, { before_train_iter = function(_, trainer)
        if trainer.step == 3 then os.execute "%s" end end },]]):format(change))))
    finally(function() shell.remove(home) end)
    return support.run(home, { "run", "recipe.lua", "-q", "--no-eval", "--out", "o" })
  end

  it("costs what was in it, and both files that grow say so at once and at the end", function()
    local result = run "rm -r o"
    for _, name in ipairs { "metrics.jsonl", "steps.csv" } do
      assert.matches("o/" .. name .. ": cannot be written: somebody has removed it, and what it had is lost",
        result.err, 1, true)
    end
    assert.matches("13 lines of metrics were lost", result.err, 1, true)
    assert.matches("13 rows of o/steps.csv were lost", result.err, 1, true)
  end)

  it("costs checkpoints where a file has its name, for the reason that there is, and the exit status", function()
    local result = run "rm -r o; touch o"
    assert.equal(1, result.code, result.err)
    assert.matches("the checkpoint of step 8 could not be saved, training goes on: o/checkpoints: cannot be made: Not "
      .. "a directory", result.err, 1, true)
    assert.not_matches("no memory", result.err, 1, true)
    assert.not_matches("%.lua:%d", result.err)
  end)
end)

describe("a step", function()
  it("is in metrics.jsonl before its checkpoint is there", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    shell.write(folder .. "/recipe.lua", [[
      require("ganymede.hooks.base").class("Look", {}, { priority = 30, after_train_iter = function(_, trainer)
        local last
        for line in io.lines "out/metrics.jsonl" do last = line end
        assert(last:find('"step":' .. trainer.step .. "[,}]"), "checkpoint " .. trainer.step .. ", metrics " .. last)
      end })
      return { name = "told", seed = 3, steps = 3,
        model = { type = "MLP", inputs = 4, hidden = { 4 }, classes = 3 },
        data = { train = { type = "Synthetic", length = 40, shape = { 4 }, classes = 3 }, batch_size = 16 },
        loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
        hooks = { { type = "Look" }, { type = "CheckpointHook", interval = 1, background = false } } }]])
    local result = run_host({ "run", "recipe.lua", "--threads", "1", "--out", "out" }, { cwd = folder,
      env = { GANYMEDE_ROOT = GANYMEDE_ROOT } })
    assert.equal(0, result.code, result.err)
  end)
end)

describe("the samples of a resumed run", function()
  it("are counted from its beginning", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    shell.write(folder .. "/recipe.lua", [[return { name = "counted", seed = 3, epochs = 2,
      model = { type = "MLP", inputs = 4, hidden = { 4 }, classes = 3 },
      data = { train = { type = "Synthetic", length = 40, shape = { 4 }, classes = 3 }, batch_size = 16 },
      loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
      hooks = { { type = "CheckpointHook", interval = 1 } } }]])
    for _, last in ipairs { 4, 6 } do
      local result = run_host({ "run", "recipe.lua", "--threads", "1", "--out", "out", "--resume", "auto", "--steps",
        last }, { cwd = folder, env = { GANYMEDE_ROOT = GANYMEDE_ROOT } })
      assert.equal(0, result.code, result.err)
    end
    local samples = {}
    for line in io.lines(folder .. "/out/metrics.jsonl") do
      samples[#samples + 1] = json.decode(line, "metrics").samples
    end
    assert.same({ 16, 32, 40, 56, 72, 80 }, samples) -- three batches an epoch, the last of 8
  end)
end)
