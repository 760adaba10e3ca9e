--- What a run tells of its device: profiles of ops, calls of the driver, TF32. On the CPU by the clock, and on
-- --device cuda (a GPU, or the emulation) by events; the driver's own record is the judge of what is counted.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local profile = require "ganymede.observe.profile"
local support = require "spec.cli.support"

-- Calls of an op, of whatever shapes.
local function calls_of(lines, op)
  local n = 0
  for _, line in ipairs(lines) do n = n + (line.op == op and line.calls or 0) end
  return n
end

describe("a profile", function()
  it("counts and times the calls between start and stop, by op and shapes", function()
    gm.scope(function()
      local a, b = gm.ones({ 8, 16 }, { dtype = "f32" }), gm.ones({ 16, 4 }, { dtype = "f32" })
      local function work(n)
        for _ = 1, n do gm.ops.matmul(a, b) end
      end
      work(2)
      core.profile_start()
      work(3)
      gm.ops.matmul(b, a:narrow(1, 1, 4)) -- another kind
      a:sum()
      local lines = core.profile_stop()
      work(1)
      assert.equal(3, #lines)
      local kinds = {}
      for i, line in ipairs(lines) do
        kinds[line.op .. " " .. line.about] = line
        assert.is_true(line.seconds >= 0 and line.seconds <= (lines[i - 1] or line).seconds)
      end
      local line = kinds["matmul f32 (8, 16) (16, 4)"]
      assert.equal(3, line.calls)
      assert.equal(3 * 2 * 8 * 16 * 4, line.flops)
      assert.equal(3 * 4 * (8 * 16 + 16 * 4 + 8 * 4), line.bytes)
      assert.is_true(line.seconds > 0)
      assert.equal(1, kinds["matmul f32 (16, 4) (4, 16)"].calls)
      assert.equal(8 * 16, kinds["sum f32 (8, 16)"].flops)
      core.profile_start()
      work(1)
      assert.equal(1, calls_of(core.profile_stop(), "matmul"))
    end)
  end)

  -- A product of 96 x 96 takes far longer than what is around it, so most of the time is its own.
  it("has the time of many calls, more than may be under way", function()
    gm.scope(function()
      local a = gm.ones({ 96, 96 }, { dtype = "f32" })
      core.profile_start()
      local began = core.now()
      for _ = 1, 1500 do gm.scope(function() gm.ops.matmul(a, a) end) end
      local seconds, line = core.now() - began, core.profile_stop()[1]
      assert.equal(1500, line.calls)
      assert.is_true(line.seconds <= seconds and line.seconds > 0.5 * seconds, line.seconds .. " of " .. seconds)
    end)
  end)

  it("is a table whose columns follow from the numbers", function()
    local lines = profile.table { device = "d", dtype = "f32", steps = 2, seconds = 0.010,
      lines = { { op = "matmul", about = "f32 (2, 2)", calls = 4, seconds = 0.006, flops = 12e9, bytes = 3e6 } } }
    assert.equal("d, f32, 2 steps of 5.000 ms; 3.000 ms of each in ops, 2.000 ms other", lines[1])
    assert.equal("   3.0000 100.0%      2.0       0.5     2.000  matmul                 f32 (2, 2)", lines[3])
  end)

  it("of too short a run is a warning", function()
    local home = support.home()
    local result = support.run(home, { "run", "recipe.lua", "--steps", "3", "--no-eval", "--profile", "p.json" })
    assert.equal(0, result.code, result.err)
    assert.truthy(result.err:find("--profile: nothing was timed: the run made 3 steps", 1, true), result.err)
    support.shell.run("rm -rf " .. support.shell.quote(home))
  end)
end)

if emulation.lacks(pending) then return end

describe("a run on --device cuda", function()
  local home

  before_each(function() home = support.home() end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  -- -> what --stats says, and the lines of the driver's record by their first word
  local function train(words, steps)
    local env = emulation.environment()
    env.GANYMEDE_CUDA_RECORD = home .. "/record"
    os.remove(home .. "/record")
    local all = { "run", "recipe.lua", "--steps", tostring(steps or 12), "--device", "cuda", "--stats", "stats.json",
      "--threads", "1", "--out", "out", "--no-eval" }
    for _, word in ipairs(words or {}) do table.insert(all, word) end
    local result = support.run(home, all, { env = env })
    assert.equal(0, result.code, result.err)
    support.shell.run("rm -rf " .. support.shell.quote(home .. "/out"))
    local counts, tf32 = {}, 0
    for line in io.lines(emulation.is_on() and home .. "/record" or "/dev/null") do
      local word = line:match "^%S+"
      counts[word] = (counts[word] or 0) + 1
      if line:find " tf32$" then tf32 = tf32 + 1 end
    end
    return support.json(home .. "/stats.json"), counts, tf32, result
  end

  it("has the same losses when it is timed, and its ops take no longer than its steps", function()
    local plain, timed = train(), train { "--profile", "p.json" }
    assert.same(plain.loss, timed.loss)
    local document, total = support.json(home .. "/p.json"), 0
    assert.equal(12 - 3, document.steps)
    for _, line in ipairs(document.lines) do total = total + line.seconds end
    assert.is_true(total > 0 and total <= document.seconds, total .. " of " .. document.seconds)
    assert.equal(9 * 2, calls_of(document.lines, "linear"))
  end)

  if not emulation.is_on() then return end

  it("counts what it asks of the driver and of cuBLASLt, as the driver's record has it", function()
    local told, record = train()
    local calls = told.ranks[1].device_calls
    assert.equal(record.launch, calls.launches)
    assert.equal(record.cublasLtMatmul, calls.libraries)
    assert.equal(record.wait, calls.waits + 1) -- closing the device waits, after the statistics
    assert.equal(record.allocate, calls.allocations)
    assert.equal(record.to_device + record.to_host + (record.copy or 0) + (record.set or 0), calls.copies)
  end)

  it("uses TF32 where matmul_precision is \"high\", for every product, and nowhere else", function()
    local exact, record, none = train()
    local rounded, _, all = train { "--set", "matmul_precision=high" }
    assert.equal(0, none)
    assert.equal(record.cublasLtMatmul, all)
    local differs = false
    for i = 1, #exact.loss do
      differs = differs or exact.loss[i] ~= rounded.loss[i]
      -- a factor is off by 2^-11 at most; the losses of a dozen steps follow each other more closely than that
      assert.is_true(math.abs(exact.loss[i] - rounded.loss[i]) < 2e-3 * exact.loss[i])
    end
    assert.is_true(differs)
  end)
end)

describe("matmul_precision", function()
  it("\"high\" on the CPU says that it has no effect, and has none; other words are refused", function()
    local home = support.home()
    local function run(words)
      local all = { "run", "recipe.lua", "--steps", "2", "--stats", "stats.json", "--no-eval" }
      for _, word in ipairs(words) do table.insert(all, word) end
      local result = support.run(home, all)
      return result, result.code == 0 and support.json(home .. "/stats.json").loss
    end
    local said = "matmul_precision = \"high\" has no effect here"
    local plain, want = run {}
    local high, got = run { "--set", "matmul_precision=high" }
    assert.same(want, got)
    assert.is_nil(plain.err:find(said, 1, true))
    assert.truthy(high.err:find(said, 1, true), high.err)
    local wrong = run { "--set", "matmul_precision=medium" }
    assert.equal(2, wrong.code)
    assert.truthy(wrong.err:find("highest", 1, true), wrong.err)
    support.shell.run("rm -rf " .. support.shell.quote(home))
  end)
end)
