--- Runs of recipes on a CPU with graph = true: losses, metrics and checkpoints to the bit, the peak that `check`
-- promises, and who is refused. spec/train/graph_spec.lua has what a program sees.
--
-- The truth is the same run with graph = false.
-- sanitizers: no, bits of training are compared; spec/kernels/graph_spec.lua runs the same lines of C
local graph_runs = require "spec.cuda.graph_runs"
local json = require "ganymede.base.json"
local support = require "spec.cli.support"

local has = graph_runs.has

describe("runs with graphs of a CPU", function()
  local home

  before_each(function() home = support.home(graph_runs.gpt, { text = graph_runs.text }) end)
  after_each(function() support.shell.remove(home) end)

  local function train(out, words) return graph_runs.run(home, out, words, { device = "cpu" }) end

  -- Rows of { name, settings }.
  for _, case in ipairs {
    { "f32", {} },
    { "bf16, two batches a step", { "dtype=bf16", "gradient_accumulation=2" } },
    { "experts, whose rows nobody counts on the host", { "model.moe={experts=4,every=1,k=2}" } },
  } do
    it("leave the same losses, metrics and checkpoints: " .. case[1], function()
      local words = { "--set", "graph=false" }
      for _, set in ipairs(case[2]) do
        words[#words + 1], words[#words + 2] = "--set", set
      end
      local without = train("without", words)
      words[2] = "graph=true"
      local with = train("with", words)
      graph_runs.check_equal(with, without)
      assert.equal(graph_runs.tensors(home, "without"), graph_runs.tensors(home, "with"))
      assert.is_true(#with.stats.loss >= 12)
      assert.matches("graph: step %d was recorded: ", with.err)
      has(with, "is of another kind and runs by itself")
      assert.is_nil(without.err:find("graph: ", 1, true), without.err)
    end)
  end

  it("hold at their peak what check promises", function()
    support.shell.write(home .. "/points.lua", (support.recipe:gsub("%f[%d]16%f[%D]", "4096")))
    local words = { "--no-eval", "--set", "graph=true", "--set", "hooks={}" }
    local peaks = {}
    for _, graph in ipairs { "true", "false" } do
      words[3] = "graph=" .. graph
      local result = graph_runs.run(home, graph, words, { device = "cpu", recipe = "points.lua" })
      assert.equal(0, result.code, result.err)
      local check = { "check", "points.lua", "--json" }
      for i = 2, #words do check[#check + 1] = words[i] end
      local checked = support.run(home, check)
      assert.equal(0, checked.code, checked.err)
      local total, rank = json.decode(checked.out, "check").totals, result.stats.ranks[1]
      local more = rank.peak_bytes - total.peak_bytes -- check knows nothing of scratch and of counts on the device
      assert.is_true(more >= 0 and more <= rank.scratch_peak_bytes + 64, ("%s: %d more"):format(graph, more))
      peaks[graph] = total.peak_bytes
    end
    assert.equal(32 * (4 * 4096 + 8), peaks["true"] - peaks["false"]) -- a batch and its targets
  end)

  -- Rows of { what cannot be recorded, words of the message, settings }.
  for _, case in ipairs {
    { "several ranks", "tensors travel between ranks through host memory", {}, ranks = "2" },
    { "micro-batches", "num_microbatches: the host adds up", { "num_microbatches=2" } },
    { "a norm of the host", "the 1-norm of gradients", { "norm_type=1", "clip_grad_norm=1" } },
  } do
    it("are refused by check as by run: " .. case[1], function()
      local words = { "recipe.lua", "-n", case.ranks or "1", "--set", "graph=true" }
      for _, set in ipairs(case[3]) do
        words[#words + 1], words[#words + 2] = "--set", set
      end
      for _, verb in ipairs { "check", "run" } do
        local others = verb == "check" and case.ranks and { "--rank", "1", unpack(words) } or words
        local result = support.run(home, { verb, unpack(others) })
        assert.equal(2, result.code, verb .. ": " .. result.out .. result.err)
        has(result, "graph = true: steps cannot be recorded: " .. case[2])
      end
      if not case.ranks then return end
      local other = support.run(home, { "check", "--device", "cuda", "--rank", "1", unpack(words) }) -- or by NCCL
      assert.equal(0, other.code, other.err)
    end)
  end

  it("are refused under the name of before", function()
    local renamed = support.run(home, { "run", "recipe.lua", "--set", "cuda_graph=true" })
    assert.equal(2, renamed.code, renamed.err)
    has(renamed, "cuda_graph is called graph now, and graph = true serves CPUs too")
  end)
end)
