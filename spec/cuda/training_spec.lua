--- Training with `--device cuda`: the losses of the CPU within rounding, the same bits each time, and steps that take
-- nothing from the system and all do the same. Without a GPU it is the emulation that runs.
local emulation = require "spec.cuda.emulation"
local support = require "spec.cli.support"

if not emulation.start() then return end

describe("training with --device cuda", function()
  local home

  before_each(function() home = support.home() end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  -- -> the losses of the steps
  local function train(device, options)
    options = options or {}
    local env = device == "cuda" and emulation.environment() or {}
    env.GANYMEDE_CUDA_RECORD = options.record
    local words = { "run", "recipe.lua", "--steps", options.steps or 6, "--device", device, "--stats", "stats.json",
      "--threads", "1", "--out", options.out or "out", "--no-eval" }
    for _, word in ipairs(options.words or {}) do table.insert(words, word) end
    local result = support.run(home, words, { env = env })
    assert.equal(0, result.code, result.err)
    return support.json(home .. "/stats.json").loss, result
  end

  it("has the losses of the CPU", function()
    local want, got = train "cpu", train "cuda"
    assert.equal(6, #want)
    assert.equal(#want, #got)
    -- Sums of 16 to 64 terms in another order, and Adam's first steps divide by gradients that may be near 0.
    for i = 1, #want do assert.is_true(math.abs(want[i] - got[i]) < 2e-5 * want[i], want[i] .. " " .. got[i]) end
  end)

  it("has the same bits each time", function()
    local once, again = train("cuda", { out = "a" }), train("cuda", { out = "b" })
    assert.same(once, again)
  end)

  if not emulation.is_on() then return end

  it("names the device and the driver in its first line", function()
    local _, result = train "cuda"
    local text = result.err .. result.out
    assert.is_truthy(text:find("emulated GPU 0, sm_90, 16 GiB, by the driver ", 1, true), text)
  end)

  -- Lines of the driver's record by their first word.
  local function recorded(steps)
    local counts = {}
    train("cuda", { steps = steps, record = home .. "/record", out = "steps" .. steps })
    for line in io.lines(home .. "/record") do
      local word = line:match "^%S+"
      counts[word] = (counts[word] or 0) + 1
    end
    os.remove(home .. "/record")
    return counts
  end

  it("takes nothing from the system in a steady step, and launches the same kernels each time", function()
    local four, eight, twelve = recorded(4), recorded(8), recorded(12)
    assert.is_true(four.launch > 4)
    assert.equal(eight.launch - four.launch, twelve.launch - eight.launch)
    assert.equal(four.allocate, eight.allocate)
    assert.equal(four.allocate, twelve.allocate)
    assert.equal(eight.wait - four.wait, twelve.wait - eight.wait)
  end)
end)
