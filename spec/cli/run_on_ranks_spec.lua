--- `ganymede run -n N` when all goes well: what several ranks write and say is what one would, once.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local support = require "spec.cli.support"
local shell = support.shell

describe("ganymede run on several ranks", function()
  local home
  before_each(function() home = support.home() end)
  after_each(function() shell.remove(home) end)

  local function run(...)
    local result = support.run(home, { "run", "recipe.lua", "--threads", "1", ... })
    assert.equal(0, result.code, result.err)
    return result
  end

  local function times(text, part) return select(2, text:gsub(part:gsub("%p", "%%%0"), "")) end

  it("makes one folder, with a line of metrics a step, and says everything once", function()
    local result = run("-n", "3", "--stats", "stats.json")
    assert.equal("latest " .. support.names(home .. "/runs"):match "points%-[%w-]+",
      support.names(home .. "/runs"))
    local lines = shell.lines("cat " .. home .. "/runs/latest/metrics.jsonl")
    assert.equal(16 + 1, #lines) -- 512 samples in batches of 32, and an evaluation
    for _, part in ipairs { "run folder ", "points: 3 ranks", "3 ranks on " } do
      assert.equal(1, times(result.err, part), part .. " in " .. result.err)
    end
    assert.equal(1, times(result.out, "test  accuracy"), result.out)
    assert.equal(1, times(result.out, "step 16/16") + times(result.out, "step 16 "), result.out)
    local stats = support.json(home .. "/stats.json")
    assert.equal(3, stats.world)
    assert.equal(3, #stats.ranks)
    assert.equal(16, #stats.loss)
    assert.equal(3, support.json(home .. "/runs/latest/env.json").world)
  end)

  it("saves checkpoints of all ranks in the one folder that rank 0 chose", function()
    run("-n", "3", "--steps", "4", "--no-eval", "--set", "hooks={{type='CheckpointHook',interval=4}}")
    local name = support.names(home .. "/runs"):match "points%-[%w-]+"
    assert.equal("latest " .. name, support.names(home .. "/runs"))
    local again = run("-n", "2", "--resume", "runs/" .. name, "--steps", "5", "--no-eval", "--out", "more")
    assert.equal(1, times(again.out, "at step 4"), again.out .. again.err)
  end)

  it("writes where it is told, and resumes there", function()
    run("-n", "2", "--out", "here", "--steps", "8", "--no-eval", "--set", "hooks={{type='CheckpointHook',interval=8}}")
    local again = run("-n", "3", "--out", "here", "--resume", "auto", "--steps", "12", "--no-eval")
    assert.equal(1, times(again.out, "at step 8"), again.out .. again.err)
    assert.equal(12, #shell.lines("cat " .. home .. "/here/metrics.jsonl"))
  end)

  it("gives each rank its cores where there are enough, and the threads that it is told", function()
    shell.write(home .. "/recipe.lua", [[
      local status = io.open("/proc/self/status"):read "*a"
      print(status:match "Cpus_allowed_list:%s*(%S+)", require("ganymede.core").device().threads)]])
    local allowed = require("ganymede.base.machine").cores()
    local lines = {}
    for line in run("-n", "2").out:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.equal(2, #lines)
    if allowed >= 2 then assert.not_equal(lines[1], lines[2]) else assert.equal(lines[1], lines[2]) end
    for _, line in ipairs(lines) do assert.equal("1", line:match "\t(%d+)$") end
  end)

  it("says once that a recipe is not there, and starts nothing", function()
    local result = support.run(home, { "run", "none.lua", "-n", "3" })
    assert.equal(2, result.code)
    assert.equal(1, times(result.err, "cannot read the recipe"), result.err)
    assert.equal(0, times(result.err, "ranks on"), result.err)
  end)

  it("says once that a recipe is wrong, on whatever rank", function()
    shell.write(home .. "/recipe.lua", support.recipe:gsub("optimizer =", "optimiser ="))
    local result = support.run(home, { "run", "recipe.lua", "-n", "3", "--threads", "1" })
    assert.equal(2, result.code, result.err)
    assert.equal(1, times(result.err, "did you mean 'optimizer'?"), result.err)
    assert.equal("recipe.lua", support.names(home))
  end)
end)
