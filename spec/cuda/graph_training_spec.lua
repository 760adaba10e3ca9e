--- Training steps as CUDA graphs (ganymede.train.graph): the same bits as without, one launch a step and nothing
-- else, and where steps cannot be recorded, or are of several kinds, that is said and they run as ever.
--
-- The truth is the same run with graph = false. Without a GPU it is the emulation that runs, whose graphs keep
-- what CUDA's keep.
-- sanitizers: no, bits of training are compared; graph_spec.lua looks at the same code
local emulation = require "spec.cuda.emulation"
local graph_runs = require "spec.cuda.graph_runs"
local support = require "spec.cli.support"

if emulation.lacks(pending) then return end

local has, check_equal = graph_runs.has, graph_runs.check_equal

local gpt, text = graph_runs.gpt, graph_runs.text

describe("training steps as graphs", function()
  local home

  before_each(function() home = support.home(gpt, { text = text }) end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  local function train(out, words, recipe) return graph_runs.run(home, out, words or {}, { recipe = recipe }) end

  local function has_not(result, part) assert.is_nil(result.err:find(part, 1, true), result.err) end

  local function calls(result) return result.stats.ranks[1].device_calls end

  for _, case in ipairs {
    { name = "f32" },
    { name = "bf16 with masters, two batches a step", set = { "dtype=bf16", "gradient_accumulation=2" } },
    { name = "f16, whose loss scale backs off and grows in between", overflows = true,
      set = { "dtype=f16", "fp16={initial_scale=67108864,growth_interval=3}" } },
    { name = "SGD with momentum", set = { [[optimizer={type="SGD", lr=0.05, momentum=0.9}]] } },
  } do
    it("have the bits of steps that run one by one: " .. case.name, function()
      local words = { "--set", "graph=false" }
      for _, set in ipairs(case.set or {}) do
        table.insert(words, "--set")
        table.insert(words, set)
      end
      local without = train("without", words)
      words[2] = "graph=true"
      local with = train("with", words)
      check_equal(with, without)
      assert.equal(graph_runs.tensors(home, "without"), graph_runs.tensors(home, "with"))
      assert.same(without.stats.loss_scaling, with.stats.loss_scaling)
      if case.overflows then assert.is_true(with.stats.loss_scaling.overflows > 4) end
      assert.is_true(#with.stats.loss >= 12 and calls(with).graphs >= #with.stats.loss / 2)
      assert.equal(0, calls(without).graphs)
      has(with, "was recorded: ")
      has_not(without, "graph: ")
      for _, name in ipairs { "flops", "product_flops" } do -- but for the copies of batches
        local a, b = with.stats.ranks[1][name], without.stats.ranks[1][name]
        assert.is_true(math.abs(a - b) < 1e-3 * b, name)
      end
    end)
  end

  it("go on from a checkpoint as if they had never stopped", function()
    local whole = train "whole"
    local rest = train("rest", { "--resume", home .. "/whole/checkpoints/step-00000012" })
    assert.equal(0, rest.code, rest.err)
    assert.is_true(#rest.stats.loss > 5 and calls(rest).graphs > 0)
    for i, loss in ipairs(rest.stats.loss) do assert.equal(whole.stats.loss[12 + i], loss) end
  end)

  it("are of the kinds that they are: a smaller batch runs by itself, one that stays is recorded", function()
    local one = train "one" -- 30 batches of 4, or less: the last has 2
    local _, others = one.err:gsub("is of another kind and runs by itself", "")
    assert.equal(1, others, one.err)
    assert.equal(#one.stats.loss - 3 - 3, calls(one).graphs)
    support.shell.write(home .. "/loop.lua", [[
      local gm = require "ganymede"
      gm.launch { seed = 1 }
      local engine = gm.initialize { model = gm.nn.Linear { inputs = 6, outputs = 3 }, criterion = { type = "MSELoss" },
        optimizer = { type = "AdamW", lr = 0.01 }, graph = FLAG }
      for step = 1, 24 do
        gm.scope(function()
          local n = step > 12 and 5 or step == 9 and 2 or 4
          local x = gm.uniform({ n, 6 }, { low = -1, high = 1 })
          engine:train_step({ { x, gm.zeros { n, 3 } }, samples = n, tokens = 0, pieces = 1 })
        end)
        if step == 10 then engine.model.weight:requires_grad(false) end
      end
      engine:settle()
      print(("%.17g"):format(engine.last_loss))
    ]])
    local function loop(flag)
      local file = support.shell.read(home .. "/loop.lua")
      support.shell.write(home .. "/" .. flag .. ".lua", (file:gsub("FLAG", flag)))
      local env = emulation.environment()
      local result = support.run(home, { "run", flag .. ".lua", "--device", "cuda" }, { env = env })
      assert.equal(0, result.code, result.err)
      return result
    end
    local with, without = loop "true", loop "false"
    assert.equal(without.out, with.out)
    local said = {}
    for step in with.err:gmatch "graph: step (%d+) was recorded" do said[#said + 1] = tonumber(step) end
    assert.same({ 4, 16 }, said, with.err)
  end)

  it("are run one by one, with the reason, where they cannot be recorded; asked for, that is an error", function()
    for set, reason in pairs {
      ["norm_type=1"] = "the 1-norm of gradients is worked out by the host",
      [ [[loss={type="CrossEntropyLoss"}]] ] = false,
    } do
      local without = train(reason and "one_by_one" or "recorded", { "--set", set, "--steps", "5", "--no-eval" })
      assert.equal(0, without.code, without.err)
      if reason then has(without, "graph: steps run one by one: " .. reason) end
      local asked = train(reason and "asked" or "asked_and_recorded",
        { "--set", set, "--steps", "5", "--no-eval", "--set", "graph=true" })
      assert.equal(reason and 2 or 0, asked.code, asked.err)
      if reason then has(asked, "graph = true: steps cannot be recorded: " .. reason) end
    end
  end)

  -- The model of a recipe's own: it says what it is, and reads a number in the middle of its forward if it is told to.
  local own = gpt:gsub('model = %b{}', [[model = function()
    local gm = require "ganymede"
    local Odd = gm.nn.class "Odd"
    Odd.options = {}
    function Odd:build()
      self.inner = gm.models.GPT { vocabulary = 128, sequence_length = 7, width = 8, depth = 1, heads = 2 }
    end
    function Odd:forward(x)
      local y = self.inner(x)
      if READS then y:sum():item() end
      return y
    end
    return Odd {}
  end]])

  it("of models that are not Ganymede's own are recorded when that is asked for", function()
    support.shell.write(home .. "/own.lua", (own:gsub("READS", "false")))
    local auto = train("auto", { "--steps", "7", "--no-eval" }, "own.lua")
    has(auto, "forward of Odd (the model) is not Ganymede's own")
    local asked = train("asked", { "--steps", "7", "--no-eval", "--set", "graph=true" }, "own.lua")
    check_equal(asked, auto)
    assert.equal(4, calls(asked).graphs)
  end)

  it("that read a number end with where it was, and leave nothing behind", function()
    support.shell.write(home .. "/own.lua", (own:gsub("READS", "true")))
    local asked = train("asked", { "--steps", "8", "--no-eval", "--set", "graph=true" }, "own.lua")
    assert.equal(2, asked.code, asked.err)
    has(asked, "graph = true: step 4 cannot be recorded: own.lua:12: reading 4 bytes cannot be part of a graph")
    has(asked, "\n  in the model: Odd")
  end)

  it("that find no memory for a graph run one by one, with the same bits", function()
    local without = train("without", { "--steps", "8", "--no-eval", "--set", "graph=false" })
    local most = without.stats.ranks[1].peak_bytes
    local found
    for share = 1.1, 1.9, 0.1 do -- where steps still fit and a graph does not depends on classes of blocks
      local limit = tostring(math.floor(share * most))
      local tight = train("tight", { "--steps", "8", "--no-eval", "--limit-memory", limit })
      if tight.code == 0 and tight.err:find("out of memory", 1, true) then
        check_equal(tight, without)
        has(tight, "graph: steps run one by one: ")
        assert.equal(0, calls(tight).graphs)
        found = true
      end
    end
    assert.is_true(found, "no limit between the steps and their graph was found")
  end)

  if not emulation.is_on() then return end

  it("ask for one launch, the batch and the step block, the numbers of the step, and nothing else", function()
    local function recorded(steps)
      local counts = {}
      local result = train("steps", { "--set", "hooks={}", "--steps", tostring(steps), "--no-eval" })
      assert.equal(0, result.code, result.err)
      for line in io.lines(home .. "/steps.record") do
        local word = line:match "^%S+"
        counts[word] = (counts[word] or 0) + 1
      end
      os.remove(home .. "/steps.record")
      return counts
    end
    local five, seven, less = recorded(5), recorded(7), {}
    for word, n in pairs(seven) do less[word] = n ~= five[word] and n - (five[word] or 0) or nil end
    assert.same({ graph = 2, to_device = 2 * 3, copy = 2 * 2, to_host = 2 }, less)
  end)
end)
