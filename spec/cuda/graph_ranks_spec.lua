--- Training steps of several ranks as CUDA graphs, with NCCL's operations in them: the same bits as steps that run one
-- by one, one launch a step on every rank; what one rank cannot record runs one by one on all of them, and a rank that
-- dies during a replay ends the run.
--
-- The truth is the same run with graph = false. It is the emulation that runs: its NCCL joins captures as NCCL
-- does, and refuses what NCCL refuses (fake_graph.c, fake_nccl.c).
-- sanitizers: no, bits of training are compared; graph_links_spec.lua looks at the same code
local emulation = require "spec.cuda.emulation"
local full = require "spec.support.full"
local graph_runs = require "spec.cuda.graph_runs"
local support = require "spec.cli.support"

if emulation.lacks(pending, "emulated") then return end

local has, check_equal = graph_runs.has, graph_runs.check_equal

-- Dropout, clipping, a schedule of rates, an epoch whose last batch is smaller and in shares of other sizes.
local gpt = [[
local core = require "ganymede.core"
require("ganymede.hooks.base").class("Fault", {}, { before_train_iter = function(_, trainer) FAULT end })
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 128, sequence_length = 8, width = 8, depth = 1, heads = 2, MODEL
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "text", split = "train", sequence_length = 8, stride = 8 },
           test = { type = "Text", path = "text", split = "test", sequence_length = 8, stride = 8 },
           batch_size = BATCH },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, weight_decay = 0.1, no_decay = "norm_and_bias" },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 3 },
  epochs = 2, clip_grad_norm = 0.5,
  hooks = { { type = "AccuracyHook" }, { type = "Fault" }, { type = "CheckpointHook", interval = 6 } },
}
]]

local text = {} -- 34 samples to train on: the last batch of an epoch is smaller
for i = 1, 38 * 8 do text[i] = string.char(97 + i * i % 23) end

describe("training steps of several ranks as graphs #ranks", function()
  local home

  before_each(function() home = support.home("", { text = table.concat(text) }) end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  -- case: { ranks, set, model, fault, batch, env } -> { code, out, err, stats } of a run into the folder `out`
  local function train(out, case, words)
    case = case or {}
    local recipe = gpt:gsub("FAULT", function() return case.fault or "" end):gsub("MODEL", case.model or "")
      :gsub("BATCH", case.batch or 4)
    support.shell.write(home .. "/recipe.lua", recipe)
    local all = { "-n", tostring(case.ranks or 2), "--comm-timeout", "120" }
    for _, set in ipairs(case.set or {}) do all[#all + 1], all[#all + 2] = "--set", set end
    for _, word in ipairs(words or {}) do all[#all + 1] = word end
    local env = { GANYMEDE_CUDA_DEVICES = tostring(case.ranks or 2) }
    for name, value in pairs(case.env or {}) do env[name] = value end
    return graph_runs.run(home, out, all, { env = env, timeout = 300 })
  end

  local function graphs(result)
    local list = {}
    for i, rank in ipairs(result.stats.ranks) do list[i] = rank.device_calls.graphs end
    return list
  end

  -- Calls and bytes of operations on tensors, by rank and operation: those of replays count as if they had been made.
  local function traffic(result)
    local list = {}
    for i, rank in ipairs(result.stats.ranks) do
      for _, e in ipairs(rank.comm) do
        if e.op ~= "exchange" and e.op ~= "replay" then
          local name = i .. " " .. e.op .. " " .. table.concat(e.axes, ".") .. " " .. e.phase
          list[name] = { calls = e.calls, bytes = e.bytes_logical }
        end
      end
    end
    return list
  end

  for _, case in ipairs {
    { name = "data on 2, a dozen buckets", set = { "parallel.data.bucket_mb=0.001", "gradient_accumulation=2" } },
    { name = "data on 2, bf16 with masters, shares of 3 and 2 samples", batch = 5, set = { "dtype=bf16" } },
    { name = "ZeRO 1", full = true, set = { "zero=1" } },
    { name = "ZeRO 2", full = true, set = { "zero=2", "parallel.data.bucket_mb=0.001" } },
    { name = "ZeRO 3", set = { "zero=3", "parallel.data.bucket_mb=0.001" } },
    { name = "1d on 2, data 2", ranks = 4,
      set = { 'parallel={tensor={size=2,mode="1d"}}', "parallel.data.bucket_mb=0.001" } },
    { name = "2d on 4", full = true, ranks = 4, set = { 'parallel={tensor={size=4,mode="2d"}}' } },
    { name = "all experts on each of 2, with a capacity for the tokens of both", set = {},
      model = 'moe = { experts = 4, capacity = 1.2, router = { type = "TopKRouter", k = 2, balance = 0.1 } },' },
    { name = "a ring of 2", set = { 'parallel={sequence={size=2,mode="ring"}}', "model.attention_dropout=0" } },
    { name = "Ulysses on 2", full = true, set = { 'parallel={sequence={size=2,mode="ulysses"}}' } },
  } do
    it("have the bits of steps that run one by one: " .. case.name, function()
      if case.full and not full then return pending "of .ci/run --full" end
      local set = case.set
      case.set = { "graph=false", unpack(set) }
      local without = train("without", case)
      case.set = { "graph=true", unpack(set) }
      local with = train("with", case)
      check_equal(with, without)
      assert.equal(graph_runs.tensors(home, "without"), graph_runs.tensors(home, "with"))
      assert.same(traffic(without), traffic(with))
      has(with, "was recorded: ")
      local launched = graphs(with)
      assert.is_true(launched[1] >= #with.stats.loss / 3, with.err)
      for _, n in ipairs(launched) do assert.equal(launched[1], n) end
    end)
  end

  it("ask each rank for one launch, the batch and the step block, the numbers of the step, and nothing else", function()
    local function recorded(steps)
      local counts = {}
      local case = { set = { "hooks={}", "parallel.data.bucket_mb=0.001" } }
      local result = train("steps", case, { "--steps", tostring(steps), "--no-eval" })
      assert.equal(0, result.code, result.err)
      for line in io.lines(home .. "/steps.record") do
        local word = line:match "^%S+"
        if word ~= "await" then counts[word] = (counts[word] or 0) + 1 end -- of steps before, where it had to wait
      end
      os.remove(home .. "/steps.record")
      return counts
    end
    local five, seven, less = recorded(5), recorded(7), {}
    for word, n in pairs(seven) do less[word] = n ~= five[word] and n - (five[word] or 0) or nil end
    assert.same({ graph = 4, to_device = 4 * 3, copy = 4 * 2, to_host = 4 }, less)
  end)

  it("go on from a checkpoint, on all ranks, as if they had never stopped", function()
    local whole = train("whole", { set = { "zero=1" } })
    local rest = train("rest", { set = { "zero=1" } }, { "--resume", home .. "/whole/checkpoints/step-00000012" })
    assert.equal(0, rest.code, rest.err)
    assert.is_true(#rest.stats.loss > 5 and graphs(rest)[1] > 0 and graphs(rest)[1] == graphs(rest)[2])
    for i, loss in ipairs(rest.stats.loss) do assert.equal(whole.stats.loss[12 + i], loss) end
  end)

  it("run one by one on all ranks, with the reason, where that of one cannot be recorded", function()
    local fault = [[
      if core.rank() == 1 and trainer.step == 3 then
        local record = core.graph_begin
        core.graph_begin = function()
          core.graph_begin = record
          error("no memory for it today", 0)
        end
      end]]
    local without = train("without", { set = { "graph=false" } }, { "--steps", "8" })
    local with = train("with", { fault = fault }, { "--steps", "8" })
    check_equal(with, without)
    has(with, "graph: steps run one by one: rank 1: no memory for it today")
    assert.same({ 0, 0 }, graphs(with))
    local asked = train("asked", { fault = fault, set = { "graph=true" } }, { "--steps", "8" })
    assert.equal(2, asked.code, asked.err)
    has(asked, "graph = true: step 4 cannot be recorded: rank 1: no memory for it today")
  end)

  it("run one by one on all ranks where that of one is of another kind", function()
    local with = train("with", { fault = [[
      if core.rank() == 0 then trainer.engine.on_not_finite = trainer.step == 5 and "skip" or nil end]] },
      { "--steps", "8" })
    check_equal(with, train("without", { set = { "graph=false" } }, { "--steps", "8" }))
    assert.same({ 4, 4 }, graphs(with)) -- steps 4, 5, 7 and 8
    has(with, "graph: step 6 is of another kind and runs by itself")
  end)

  it("run one by one where ranks have recorded different operations", function()
    local with = train("with", { fault = [[
      if core.rank() == 1 and trainer.step == 3 then
        local record = core.graph_begin
        core.graph_begin = function()
          core.graph_begin = record
          record()
          core.comm_all_reduce(require("ganymede").zeros { 2 }, nil, "sum")
        end
      end]] }, { "--steps", "8" })
    check_equal(with, train("without", { set = { "graph=false" } }, { "--steps", "8" }))
    has(with, "graph: steps run one by one: ranks 0 and 1 have recorded different operations between them")
    assert.same({ 0, 0 }, graphs(with))
  end)

  it("hear on all ranks what one of them was asked for", function()
    local fault = [[if core.rank() == 1 and trainer.step == 7 then os.execute("kill -TERM " .. core.process().pid) end]]
    local stopped = train("stopped", { fault = fault })
    assert.equal(75, stopped.code, stopped.err)
    has(stopped, "was recorded: ")
    local rest = train("rest", {}, { "--resume", home .. "/stopped/checkpoints/step-00000008" })
    assert.equal(0, rest.code, rest.err)
    local whole = train "whole"
    for i, loss in ipairs(rest.stats.loss) do assert.equal(whole.stats.loss[8 + i], loss) end
  end)

  it("run one by one on all ranks while one cannot record, and then again as graphs", function()
    local fault = [[
      if core.rank() == 1 and (trainer.step == 5 or trainer.step == 7) then
        local possible = core.graph_possible
        if trainer.step == 5 then
          Possible = possible
          core.graph_possible = function() return nil, "a profile is running" end
        else
          core.graph_possible = Possible
        end
      end]]
    local without = train("without", { set = { "graph=false" } }, { "--steps", "9" })
    local with = train("with", { fault = "local G = _G; " .. fault:gsub("Possible", "rawget(G, 'package').possible") },
      { "--steps", "9" })
    check_equal(with, without)
    has(with, "graph: steps run one by one meanwhile: rank 1: a profile is running")
    assert.same({ 3, 3 }, graphs(with)) -- steps 4, 5 and 8; step 9 is smaller
  end)

  it("are refused with the reason where the host has a part in them", function()
    for n, case in ipairs {
      { set = { "parallel={pipeline=2}", "num_microbatches=2" },
        why = "the host decides about messages and norms of pipeline stages while a step runs" },
      { set = { "parallel.transport=host" },
        why = "tensors travel between ranks through host memory, and the host has no part in a replay" },
      { set = { "parallel={expert=2}" }, model = 'moe = { experts = 4, router = { type = "TopKRouter", k = 1 } },',
        why = "step 4 cannot be recorded: rank 0: ", also = "cannot be part of a graph" },
    } do
      local set = case.set
      local auto = train("auto" .. n, case, { "--steps", "5", "--no-eval" })
      assert.equal(0, auto.code, auto.err)
      has(auto, "graph: steps run one by one: " .. (case.also and "" or case.why))
      has(auto, case.also or case.why)
      assert.same({ 0, 0 }, graphs(auto))
      case.set = { "graph=true", unpack(set) }
      local asked = train("asked", case, { "--steps", "5", "--no-eval" })
      assert.equal(2, asked.code, asked.err)
      has(asked, case.why)
      has(asked, case.also or case.why)
    end
  end)

  it("end with a rank that dies while the others wait in a replay, and name it", function()
    local died = train("died", { fault = [[
      if core.rank() == 1 and trainer.step == 6 then os.execute("kill -9 " .. core.process().pid) end]] })
    assert.equal(6, died.code, died.err)
    has(died, "rank 1")
    has(died, "was recorded: ")
  end)

  it("end with what NCCL says when it fails in a replay", function()
    local failed = train("failed", { set = { "hooks={}" }, env = { GANYMEDE_NCCL_FAIL = "1 20" } })
    assert.equal(1, failed.code, failed.err)
    has(failed, "was recorded: ")
    has(failed, "NCCL failed: remote process exited")
    has(failed, "replay (call")
  end)
end)
