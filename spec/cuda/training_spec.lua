--- Training with `--device cuda`: the losses of the CPU within rounding, the same bits each time, and steps that take
-- nothing from the system and all do the same. Without a GPU it is the emulation that runs.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local emulation = require "spec.cuda.emulation"
local support = require "spec.cli.support"

if emulation.lacks(pending) then return end

-- A steady step of what matters: attention, dropout, clipping, a rate that changes, two batches a step, a tied head.
local gpt = [[
return {
  name = "small-gpt", seed = 3, clip_grad_norm = 0.5, gradient_accumulation = 2,
  model = { type = "GPT", vocabulary = 300, sequence_length = 7, width = 8, depth = 2, heads = 2, dropout = 0.1,
            attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train", sequence_length = 7,
                     stride = 7 }, batch_size = 3 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.01, groups = { { match = "bias", weight_decay = 0, lr_scale = 0.5 } } },
  lr_scheduler = { type = "CosineAnnealingLR", total_steps = 20 },
  hooks = { { type = "LossHook", interval = 1 }, { type = "GradientNormHook" }, { type = "NaNWatchHook" } },
}
]]

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
  end)

  describe("whose hooks need no loss at once", function()
    before_each(function() support.shell.write(home .. "/recipe.lua", gpt) end)

    it("waits for the device in no step, and does the same in each", function()
      local four, eight, twelve = recorded(4), recorded(8), recorded(12)
      for _, what in ipairs { "launch", "copy", "to_host", "to_device", "set" } do
        assert.equal((eight[what] or 0) - (four[what] or 0), (twelve[what] or 0) - (eight[what] or 0), what)
      end
      assert.equal(four.to_host + 4, eight.to_host) -- a step's numbers, and nothing else
      assert.same({ four.wait, four.allocate }, { eight.wait, eight.allocate })
      assert.same({ four.wait, four.allocate }, { twelve.wait, twelve.allocate })
    end)

    it("has the losses of the CPU, each at its own step", function()
      local want, result = train("cpu", { steps = 5 })
      local got, late = train("cuda", { steps = 5, out = "late" })
      for i = 1, 5 do assert.is_true(math.abs(want[i] - got[i]) < 2e-5 * want[i], want[i] .. " " .. got[i]) end
      local function lines(text)
        local list = {}
        for line in text:gmatch "step %d+  loss [^\n]+" do list[#list + 1] = line end
        return list
      end
      assert.equal(5, #lines(result.out))
      assert.same(lines(result.out), lines(late.out)) -- to four digits, with the step's rate
    end)
  end)

  describe("a step that is not finite", function()
    -- A step whose targets cannot be learned from: the model's input is infinite in step 3.
    local recipe = [[
      local gm = require "ganymede"
      local seen = 0
      local Model = gm.nn.class("Spoiled")
      function Model:build() self.layer = gm.nn.Linear { inputs = 16, outputs = 10 } end
      function Model:forward(x)
        if self.training then seen = seen + 1 end
        return self.layer(self.training and seen == 3 and x * math.huge or x)
      end
      return {
        name = "spoiled", seed = 3, clip_grad_norm = 1, model = function() return Model {} end,
        data = { train = { type = "Synthetic", length = 512, shape = { 16 } }, batch_size = 32 },
        loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
        hooks = { { type = "NaNWatchHook", action = "%s" } },
      }
    ]]

    local function spoiled(action, device, out)
      support.shell.write(home .. "/recipe.lua", recipe:format(action))
      local env = device == "cuda" and emulation.environment() or {}
      local result = support.run(home, { "run", "recipe.lua", "--steps", 6, "--device", device, "--stats", "stats.json",
        "--threads", "1", "--out", out, "--no-eval" }, { env = env })
      return result, support.json(home .. "/stats.json")
    end

    it("ends the run with its own numbers, one step late", function()
      local want, got = spoiled("stop", "cpu", "a"), spoiled("stop", "cuda", "b")
      assert.equal(8, want.code, want.err)
      assert.equal(8, got.code, got.err)
      assert.is_truthy(got.err:find("diverged: loss .-nan, gradient norm .-nan in step 3;"), got.err)
      assert.is_truthy(got.err:find("in the gradients of step 4", 1, true), got.err)
    end)

    it("can be skipped", function()
      local _, want = spoiled("skip", "cpu", "a")
      local result, got = spoiled("skip", "cuda", "b")
      assert.equal(0, result.code, result.err)
      assert.is_truthy(result.out:find("step 3  loss .-nan.-the update was skipped"), result.out)
      for i = 4, 6 do assert.is_true(math.abs(want.loss[i] - got.loss[i]) < 2e-5 * want.loss[i]) end
    end)
  end)
end)
