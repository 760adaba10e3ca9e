-- ganymede plan and parallel = "auto", from the command line.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local support = require "spec.cli.support"
local shell = support.shell

local home = support.home([[
return {
  name = "small", seed = 1, steps = 12,
  model = { type = "GPT", vocabulary = 256, sequence_length = 7, width = 8, depth = 2, heads = 2 },
  data = { train = { type = "Text", path = "text.txt", split = "train", sequence_length = 7, stride = 7 },
           batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
}
]], { ["text.txt"] = ("Of shoes and ships and sealing wax. "):rep(40) })

-- Few settings are left, so that a search takes seconds.
local few = { "--keep", "parallel.pipeline=1", "--keep", "parallel.sequence=1", "--keep", "recompute=none", "--keep",
  "gradient_accumulation=1", "--keep", "parallel.tensor.sequence=false" }
local machine = { "--machine", "cpu_ethernet" }
-- The same through auto, which keeps what the recipe says. SGD has no states, so ZeRO is no gain.
local auto = { "--set", "parallel=auto", "--set", "zero=0", "--set", "recompute=none", "--set", "num_microbatches=1",
  "--set", "gradient_accumulation=1" }

local function run(...)
  local words = {}
  for _, part in ipairs { ... } do
    for _, word in ipairs(type(part) == "table" and part or { part }) do words[#words + 1] = word end
  end
  return support.run(home, words)
end

local function losses(path) return support.json(home .. "/" .. path).loss end

describe("ganymede plan", function()
  it("prints the best, why others lose, what was left out, and a setting to paste that makes it", function()
    local found = run("plan", "recipe.lua", "-n", "2", machine, few, "--top", "2", "--json", "plan.json")
    assert.equal(0, found.code, found.err)
    local plan = support.json(home .. "/plan.json")
    for _, text in ipairs { "left out:", "there are no data ranks that ZeRO could divide over", "the setting:",
      "time against memory", plan.rows[1].words, plan.rows[2].why, plan.rows[1].lua[1] } do
      assert.is_truthy(found.out:find(text, 1, true), text .. "\n" .. found.out)
    end
    assert.is_true(plan.rows[1].seconds < plan.rows[2].seconds)
    local counted = #plan.rows
    for _, row in ipairs(plan.left_out) do counted = counted + row.count end
    assert.equal(plan.settings, counted)
    local sets = {}
    for _, set in ipairs(plan.rows[1].sets) do sets[#sets + 1], sets[#sets + 2] = "--set", set end
    local simulated = run("simulate", "recipe.lua", "-n", "2", machine, sets, "--json")
    assert.equal(plan.rows[1].seconds, json.decode(simulated.out, "simulate").seconds)
    shell.write(home .. "/pasted.lua", (shell.read(home .. "/recipe.lua"):gsub("loss =",
      table.concat(plan.rows[1].lua, "\n") .. "\n loss =")))
    local pasted = run("simulate", "pasted.lua", "-n", "2", machine, "--json")
    assert.equal(plan.rows[1].seconds, json.decode(pasted.out, "simulate").seconds)
  end)

  it("shows the best so far where Ctrl-C ends it, and what is left", function()
    local script = ([[
      GM_LOG=3 env --default-signal=INT %s plan recipe.lua -n 2 --machine cpu_ethernet --front --json stopped.json \
        >stopped.out 2>stopped.err &
      pid=$!
      %s
      kill -INT $pid; wait $pid; echo status $?]]):format(shell.quote(shell.executable()),
      shell.wait_until "grep -q 'best so far' stopped.err")
    local result = shell.run("cd " .. shell.quote(home) .. " || exit\n" .. script)
    local out, err = shell.read(home .. "/stopped.out"), shell.read(home .. "/stopped.err")
    assert.matches("status 130", result.out, 1, true)
    assert.matches("ganymede: stopped by Ctrl-C\n", err, 1, true)
    assert.matches("the setting:", out, 1, true)
    assert.matches("%d+  not looked at: the search ended after %d+ looks", out)
    assert.is_false(support.json(home .. "/stopped.json").complete)
  end)

  it("refuses a --set that it would choose, and says what left nothing", function()
    local set = run("plan", "recipe.lua", "-n", "2", machine, "--set", "parallel.pipeline=2")
    assert.equal(2, set.code)
    assert.is_truthy(set.err:find("--keep parallel.pipeline=2", 1, true), set.err)
    local none = run("plan", "recipe.lua", "-n", "2", machine, few, "--keep", "parallel.tensor=2", "--keep", "zero=1")
    assert.equal(2, none.code)
    assert.is_truthy(none.err:find("no data ranks that ZeRO could divide over", 1, true), none.err)
  end)

  it("leaves what a schedule makes of each batch, with and without a pipeline", function()
    shell.write(home .. "/several.lua", [[
return {
  name = "images", seed = 3, steps = 3, num_microbatches = 2,
  model = { type = "Diffusion", denoiser = { type = "DiT", image_size = 8, patch_size = 4, channels = 1, width = 8,
    depth = 2, heads = 2, classes = 4 } },
  data = { train = { type = "Synthetic", length = 64, shape = { 1, 8, 8 }, classes = 4 }, batch_size = 8 },
  schedule = { type = "PipelineSchedule", data_process_func = function(x, y) return { x, y }, y end },
  loss = { type = "DiffusionLoss" }, optimizer = { type = "SGD", lr = 0.01 },
}
]])
    for stages, kind in ipairs { "NonPipelineSchedule", "PipelineSchedule" } do
      local found = run("plan", "several.lua", "-n", "2", machine, "--keep", "parallel.pipeline=" .. stages, "--top",
        "1", "--json", "several.json")
      assert.equal(0, found.code, found.err)
      assert.is_truthy(found.out:find(('\n  schedule = { type = "%s",'):format(kind), 1, true), found.out)
      local sets = {}
      for _, set in ipairs(support.json(home .. "/several.json").rows[1].sets) do
        sets[#sets + 1], sets[#sets + 2] = "--set", set
      end
      local trained = run("run", "several.lua", "-n", "2", sets, "--no-eval")
      assert.equal(0, trained.code, trained.err)
    end
  end)

  it("prints its table also where the document cannot be written any more", function()
    local full = run("plan", "recipe.lua", "-n", "2", machine, few, "--looks", "1", "--json", "/dev/full")
    assert.equal(1, full.code)
    assert.matches("\nthe setting:\n", full.out)
    -- behind the lines that say how far the search is, if it has taken a second or more
    assert.matches("\nganymede: %-%-json: /dev/full: cannot be written", "\n" .. full.err)
  end)

  it("has no machine with a disk that cannot be written", function()
    local bench = run("bench", "machine", "--disk", "/nowhere", "--out", "bench.json")
    assert.equal(2, bench.code)
    assert.matches("^ganymede: %-%-disk: cannot write /nowhere/", bench.err)
  end)
end)

describe("parallel = \"auto\"", function()
  it("trains as the plan says, to the bit, says what came true, and is kept by a run that resumes", function()
    local first = run("run", "recipe.lua", "-n", "2", auto, "--set", "machine=cpu_ethernet", "--no-eval", "--out",
      "one", "--stats", "one.json", "--set", "checkpoint.interval=6")
    assert.equal(0, first.code, first.err)
    assert.is_truthy(first.err:find("plan: ", 1, true) and first.err:find("were predicted", 1, true), first.err)
    local plan = support.json(home .. "/one/plan.json")
    local same = run("run", "recipe.lua", "-n", "2", "--set", plan.sets[1], "--no-eval", "--out", "two", "--stats",
      "two.json")
    assert.equal(0, same.code, same.err)
    assert.same(losses "two.json", losses "one.json")
    -- another plan in its place is what a run that resumes takes
    plan.sets[1] = "parallel={ tensor = { size = 2, mode = \"1d\" } }"
    shell.write(home .. "/one/plan.json", json.encode(plan))
    local resumed = run("run", "recipe.lua", "-n", "2", auto, "--set", "machine=cpu_ethernet", "--no-eval", "--resume",
      "one/checkpoints/step-00000006", "--out", "three", "--stats", "three.json")
    assert.equal(0, resumed.code, resumed.err)
    assert.is_truthy(resumed.err:find("plan of the run that is resumed", 1, true), resumed.err)
    assert.same({ tensor = 2 }, support.json(home .. "/three.json").mesh)
  end)

  it("is planned for check and simulate, too #slow", function()
    local check = run("check", "recipe.lua", "-n", "2", auto, "--set", "machine=cpu_ethernet")
    assert.equal(0, check.code, check.err)
    assert.is_truthy(check.out:find("the plan", 1, true), check.out)
    local simulated = run("simulate", "recipe.lua", "-n", "2", machine, auto)
    assert.equal(0, simulated.code, simulated.err)
  end)

  it("needs a machine in check, is for all of parallel, and leaves no machine unused", function()
    local options = { cwd = home, env = { GANYMEDE_ROOT = GANYMEDE_ROOT, GANYMEDE_CACHE = home .. "/nothing" } }
    local none = require "spec.support.run_host"({ "check", "recipe.lua", "-n", "2", unpack(auto) }, options)
    assert.equal(2, none.code)
    assert.is_truthy(none.err:find("bench machine -n 2", 1, true), none.err)
    local name = require("ganymede.plan.auto").machine_file(2, require("ganymede.job.launcher").threads(2))
    shell.run("mkdir -p " .. home .. "/nothing/machines")
    shell.write(home .. "/nothing/machines/" .. name:match "[^/]*$", '{"version": 1')
    local damaged = require "spec.support.run_host"({ "check", "recipe.lua", "-n", "2", unpack(auto) }, options)
    assert.equal(2, damaged.code)
    assert.matches("machines/[^ ]*%.json.*; what was measured is not used", damaged.err)
    assert.is_truthy(damaged.err:find("bench machine -n 2", 1, true), damaged.err)
    options.env.GANYMEDE_CACHE = "/proc/nothing"
    local nowhere = require "spec.support.run_host"({ "run", "recipe.lua", unpack(auto) }, options)
    assert.equal(2, nowhere.code)
    assert.is_truthy(nowhere.err:find("this machine cannot be measured into a file", 1, true), nowhere.err)
    local alone = run("check", "recipe.lua", "--set", "parallel.tensor=auto")
    assert.is_truthy(alone.err:find("cannot be 'auto' alone", 1, true), alone.err)
    local unused = run("check", "recipe.lua", "--set", "machine=cpu_ethernet")
    assert.is_truthy(unused.err:find("belongs to parallel = \"auto\"", 1, true), unused.err)
    local number = run("check", "recipe.lua", "-n", "2", auto, "--set", "machine=5")
    assert.equal(2, number.code)
    assert.is_truthy(number.err:find("machine must be a string, the path of a file", 1, true), number.err)
  end)

  it("plans anew where the plan of the run that is resumed is damaged", function()
    shell.run("mkdir -p " .. home .. "/damaged/checkpoints")
    for _, text in ipairs { "5", '{"ranks":1}', '{"ranks":1,"seconds":"soon"}', "{" } do
      shell.write(home .. "/damaged/plan.json", text)
      local result = run("run", "recipe.lua", auto, "--set", "machine=cpu_ethernet", "--resume", "damaged")
      assert.is_truthy(result.err:find("damaged/plan.json is damaged: planned anew", 1, true), result.err)
      assert.is_truthy(result.err:find("there is no checkpoint in damaged", 1, true), result.err)
    end
  end)
end)
