-- CSVHook and PrometheusHook: what they write is what metrics.jsonl says, in the form that other programs read.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local CSVFile = require "ganymede.observe.csv_file"
local prometheus = require "ganymede.observe.prometheus"
local lfs = require "lfs"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local home
before_each(function() home = support.home() end)
after_each(function() shell.remove(home) end)

local function recipe(hooks)
  shell.write(home .. "/recipe.lua", (support.recipe:gsub("hooks = {", "hooks = { " .. hooks .. ",")))
end

local function run(words)
  local result = support.run(home, { "run", "recipe.lua", "--out", "o", unpack(words or {}) })
  assert.equal(0, result.code, result.err)
end

-- The rows of a CSV file -> list of lists of texts
local function rows_of(path)
  local rows = {}
  for line in shell.read(path):gmatch "([^\r\n]*)\r\n" do
    local row = {}
    for field in (line .. ","):gmatch "([^,]*)," do row[#row + 1] = field end
    rows[#rows + 1] = row
  end
  return rows
end

local function events()
  local steps, tests = {}, {}
  for line in io.lines(home .. "/o/metrics.jsonl") do
    local event = json.decode(line, "metrics.jsonl")
    table.insert(event.test and tests or steps, event)
  end
  return steps, tests
end

describe("CSVHook", function()
  it("writes every step and evaluation with all digits, also of a run that was resumed", function()
    recipe '{ type = "CSVHook" }, { type = "CheckpointHook", interval = 5 }'
    run { "--steps", "12", "--set", "epochs=2" }
    run { "--resume", "o/checkpoints/step-00000010", "--set", "epochs=2", "-n", "2" }
    local steps, tests = events()
    local rows = rows_of(home .. "/o/steps.csv")
    assert.equal("step epoch loss lr gradient_norm samples tokens targets", table.concat(rows[1], " "))
    assert.equal(33, #rows)
    for i, event in ipairs(steps) do
      local row = rows[i + 1]
      assert.same({ event.step, event.epoch, event.loss, event.lr, event.gradient_norm, event.samples },
        { tonumber(row[1]), tonumber(row[2]), tonumber(row[3]), tonumber(row[4]), tonumber(row[5]), tonumber(row[6]) })
    end
    rows = rows_of(home .. "/o/evaluations.csv")
    assert.equal("step accuracy loss", table.concat(rows[1], " "))
    assert.equal(#tests, #rows - 1)
    for i, event in ipairs(tests) do
      assert.same({ event.step, event.test.accuracy, event.test.loss },
        { tonumber(rows[i + 1][1]), tonumber(rows[i + 1][2]), tonumber(rows[i + 1][3]) })
    end
    run { "--resume", "auto", "--set", "epochs=2", "-n", "2" } -- no step is left: it evaluates once more
    assert.same(rows, rows_of(home .. "/o/evaluations.csv"))
  end)

  it("goes on where a run is resumed with other metrics", function()
    recipe '{ type = "CSVHook" }, { type = "CheckpointHook", interval = 16 }'
    run { "--set", "epochs=2" }
    run { "--resume", "auto", "--set", "epochs=3", "--set", "metrics={{type='F1',average='macro'}}" }
    local rows = rows_of(home .. "/o/evaluations.csv")
    assert.equal("step accuracy loss f1", table.concat(rows[1], " "))
    assert.same({ "16", "" }, { rows[2][1], rows[2][4] })
    assert.equal("48", rows[#rows][1])
    assert.is_truthy(tonumber(rows[#rows][4]))
  end)

  it("is refused before the run begins where its folder cannot be", function()
    shell.write(home .. "/file", "")
    for _, name in ipairs { "CSVHook", "TensorBoardHook" } do
      recipe(('{ type = %q, directory = "file/there" }'):format(name))
      local result = support.run(home, { "run", "recipe.lua", "--out", "none", "-n", "2" })
      assert.equal(2, result.code, result.err)
      assert.matches(name .. ": directory: cannot make the folder file: a file has this name", result.err, 1, true)
      assert.is_nil(lfs.attributes(home .. "/none"))
    end
  end)

  it("writes every n-th step where it is told to", function()
    recipe '{ type = "CSVHook", interval = 5, directory = "there" }'
    run()
    local rows = rows_of(home .. "/there/steps.csv")
    assert.same({ "5", "10", "15" }, { rows[2][1], rows[3][1], rows[4][1] })
    assert.is_nil(rows[5])
  end)
end)

describe("a CSV file", function()
  it("quotes texts, leaves out what is missing, keeps numbers exactly", function()
    local file = CSVFile(home .. "/a.csv", { "step", "x", 'a "b", c' }, 0)
    file:write { step = 1, x = 0.1 }
    file:write { step = 2, x = 1 / 3, ['a "b", c'] = "x\ny" }
    file:write { step = 3, x = 0 / 0 }
    file:write { step = 4, x = -1 / 0 }
    file:close()
    assert.equal('step,x,"a ""b"", c"\r\n1,0.1,\r\n2,0.33333333333333331,"x\ny"\r\n3,nan,\r\n4,-inf,\r\n',
      shell.read(home .. "/a.csv"))
  end)

  it("keeps the whole rows up to a step, and the columns that there were", function()
    shell.write(home .. "/a.csv", "step,x\r\n1,5\r\n2,6\r\n3,7\r\n4,")
    CSVFile(home .. "/a.csv", { "step", "x" }, 2):close()
    assert.equal("step,x\r\n1,5\r\n2,6\r\n", shell.read(home .. "/a.csv"))
    CSVFile(home .. "/a.csv", { "step", "y" }, 2):close()
    assert.equal("step,x,y\r\n1,5,\r\n2,6,\r\n", shell.read(home .. "/a.csv"))
    for _, text in ipairs { "a,b\r\n1,2\r\n", "step", 'step,"x\r\n1,2\r\n', 'step,"x"y\r\n' } do
      shell.write(home .. "/b.csv", text)
      assert.error_matches(function() CSVFile(home .. "/b.csv", { "step", "y" }, 2) end,
        "b.csv does not begin with the names of its columns, the first of them step; move it away")
      assert.equal(text, shell.read(home .. "/b.csv"))
    end
    CSVFile(home .. "/a.csv", { "step", "y" }, 0):close()
    assert.equal("step,y\r\n", shell.read(home .. "/a.csv"))
  end)

  it("has a column more for each value under a new name", function()
    local file = CSVFile(home .. "/a.csv", { "step", "x" }, 0)
    file:write { step = 1, x = 5 }
    file:write { step = 2, ['a "b", c'] = 7 }
    file:write { step = 3, x = 6, y = 8 }
    file:close()
    local text = 'step,x,"a ""b"", c",y\r\n1,5,,\r\n2,,7,\r\n3,6,,8\r\n'
    assert.equal(text, shell.read(home .. "/a.csv"))
    CSVFile(home .. "/a.csv", { "step", 'a "b", c' }, 3):close() -- names are read as they were written
    assert.equal(text, shell.read(home .. "/a.csv"))
  end)

  it("goes on without new columns where there is no room for them", function()
    shell.run("mkdir " .. home .. "/d")
    local file = CSVFile(home .. "/d/a.csv", { "step", "x" }, 0)
    shell.run("rm -r " .. home .. "/d")
    file:write { step = 1, x = 5, y = 1 }
    file:write { step = 2, x = 6, y = 1 }
    assert.same({ "step", "x" }, file.columns)
    file:close()
  end)
end)

describe("PrometheusHook", function()
  local function values(text)
    local out = {}
    for name, labels, value in text:gmatch "\n?([%w_]+){([^\n]*)} (%S+)\n" do out[name] = { value, labels } end
    return out
  end

  it("keeps a file with the state of the run", function()
    recipe '{ type = "PrometheusHook", seconds = 0, labels = { team = "a\\"b" } }'
    run()
    local steps, tests = events()
    local found = values(shell.read(home .. "/o/metrics.prom"))
    assert.equal('run="points",team="a\\"b"', found.ganymede_loss[2])
    for name, value in pairs { ganymede_running = 0, ganymede_steps_total = 16, ganymede_planned_steps = 16,
      ganymede_samples_total = 512, ganymede_loss = steps[16].loss, ganymede_learning_rate = 0.01,
      ganymede_gradient_norm = steps[16].gradient_norm, ganymede_evaluation_loss = tests[1].test.loss,
      ganymede_evaluation_accuracy = tests[1].test.accuracy } do
      assert.equal(value, tonumber(found[name][1]), name)
    end
    assert.near(os.time(), tonumber(found.ganymede_written_timestamp_seconds[1]), 60)
    assert.is_nil(support.names(home .. "/o"):find "tmp")
  end)

  it("refuses metrics that would become one, and says so once where it learns of them later", function()
    local function mine(name)
      return ('{ type = "MetricHook", name = "%s", measure = function(output) return output:sum() end }'):format(name)
    end
    recipe('{ type = "PrometheusHook" }, ' .. mine "a-b" .. ", " .. mine "a b")
    local result = support.run(home, { "run", "recipe.lua", "--out", "o" })
    assert.equal(2, result.code, result.err)
    assert.matches("PrometheusHook: the metrics 'a b' and 'a%-b' are both ganymede_evaluation_a_b to Prometheus",
      result.err)
    assert.not_matches("epoch 1", result.err)
    recipe [[{ type = "PrometheusHook", seconds = 0 }, { after_test_epoch = function(_, trainer)
      trainer.metrics.test["a-b"], trainer.metrics.test["a b"], trainer.metrics.test.c = 1, 2, 3 end }]]
    result = support.run(home, { "run", "recipe.lua", "--out", "o", "--set", "epochs=2" })
    assert.equal(0, result.code, result.err)
    assert.equal(1, select(2, result.err:gsub("are both ganymede_evaluation_a_b to Prometheus", "")))
    local found = values(shell.read(home .. "/o/metrics.prom"))
    assert.same({ 2, 3 }, { tonumber(found.ganymede_evaluation_a_b[1]), tonumber(found.ganymede_evaluation_c[1]) })
  end)

  it("pleases promtool", function()
    if shell.run("command -v promtool").code ~= 0 then return pending "there is no promtool; install prometheus" end
    recipe '{ type = "PrometheusHook" }'
    run()
    local result = shell.run("promtool check metrics <" .. home .. "/o/metrics.prom")
    assert.same({ 0, "", "" }, { result.code, result.out, result.err })
  end)

  it("says that the run does not go on where it has failed", function()
    recipe [[{ type = "PrometheusHook" }, { type = "TensorBoardHook" },
      { after_train_iter = function(_, trainer) if trainer.step == 5 then error "mine" end end,
        after_failure = function() error "also" end }]]
    local result = support.run(home, { "run", "recipe.lua", "--out", "o" })
    assert.equal(1, result.code, result.err)
    assert.matches("mine", result.err)
    assert.matches("hook %?: after_failure: [^\n]*also\n", result.err)
    local found = values(shell.read(home .. "/o/metrics.prom"))
    assert.same({ 0, 5 }, { tonumber(found.ganymede_running[1]), tonumber(found.ganymede_steps_total[1]) })
    local curves = shell.read(shell.lines("ls " .. home .. "/o/tensorboard/*")[1])
    assert.is_truthy(curves:find("_hparams_/session_end_info", 1, true))
  end)

  it("goes on without its file, and says so once", function()
    recipe [[{ type = "PrometheusHook", seconds = 0, file = "d/x.prom" },
      { before_train_iter = function() os.execute "rm -rf d" end }]]
    shell.run("mkdir " .. home .. "/d")
    local result = support.run(home, { "run", "recipe.lua", "--out", "o" })
    assert.equal(0, result.code, result.err)
    assert.equal(1, select(2, result.err:gsub("PrometheusHook: [^\n]*; training goes on", "")))
  end)

  for _, case in ipairs { { 'file = "x.txt"', "must end in .prom" },
    { 'labels = { ["a-b"] = "x" }', "a%-b is no name" },
    { 'labels = { run = "x" }', "run is no name of a label, or is taken" },
    { "labels = { a = 1 }", "must be a string" }, { 'file = "none/x.prom"', "none" },
    { "port = 0, seconds = 30", "seconds = 30 is for a file" } } do
    it("refuses " .. case[1], function()
      recipe('{ type = "PrometheusHook", ' .. case[1] .. " }")
      local result = support.run(home, { "run", "recipe.lua", "--out", "o" })
      assert.equal(2, result.code, result.err)
      assert.matches(case[2], result.err)
    end)
  end

  it("writes numbers and texts as the format wants them", function()
    assert.equal('# HELP a b c\n# TYPE a gauge\na{l="x\\\\y\\n"} NaN\n'
      .. '# HELP b d\n# TYPE b counter\nb{l="x\\\\y\\n"} +Inf\n',
      prometheus.text({ { name = "a", kind = "gauge", help = "b\nc", value = 0 / 0 },
        { name = "b", kind = "counter", help = "d", value = 1 / 0 }, { name = "c", kind = "gauge", help = "e" } },
        { l = "x\\y\n" }))
  end)
end)
