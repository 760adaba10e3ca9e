--- `ganymede check --regions`: what runs again for recompute = { memory = BYTES }. What it says is compared with a
-- rehearsal and a run of the setting that it names, on one rank, on every stage of a pipeline, and under --largest.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local support = require "spec.cli.support"
local shell = support.shell

local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f32",
  model = { type = "GPT", vocabulary = 260, sequence_length = 32, width = 32, depth = 8, heads = 4 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 32, stride = 32 }, batch_size = 16 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3 },
  steps = 3,
}
]]

-- A model whose forward is code, and one that calls a module twice.
local own = [[
local gm = require "ganymede"
local nn = gm.nn
local Mine = nn.class "Mine"
Mine.options = { twice = { type = "boolean", default = false, doc = "calls one again" } }
function Mine:build()
  self.first, self.list = nn.Linear { inputs = 16, outputs = 64 }, nn.ModuleList()
  for _ = 1, 6 do self.list:append(nn.MLP { width = 64, hidden = 512 }) end
  self.last = nn.Linear { inputs = 64, outputs = 10 }
end
function Mine:forward(x)
  x = gm.ops.relu(self.first(x))
  for _, block in self.list:each() do x = x + block(x) end
  if self.opt.twice then x = self.list[1](x) end
  return self.last(x)
end
gm.registry.models:register("Mine", Mine)
return { model = { type = "Mine" },
  data = { train = { type = "Synthetic", length = 2048, shape = { 16 } }, batch_size = 512 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 1e-3 }, steps = 3 }
]]

-- The collector has come to the finalizers of much garbage when the model has been built. LuaJIT goes on with such a
-- cycle where it leaves compiled code, though it was stopped. Blocks fail where they are measured and it runs.
local finalizing = own:gsub("local Mine = ", [[
local Block = nn.class "Block"
function Block:build() self.mlp = nn.MLP { width = 64, hidden = 512 } end
function Block:forward(x)
  local measured = debug.traceback():find("recompute/chain.lua", 1, true)
  if measured and collectgarbage "isrunning" then error "the collector runs" end
  return self.mlp(x)
end
%0]]):gsub("append%(nn%.MLP {[^}]*}%)", "append(Block())"):gsub("  self%.last = [^\n]*\n", [[%0
  local marked, finalized = newproxy(true), false
  getmetatable(marked).__gc = function() finalized = true end
  collectgarbage "stop"
  for _ = 1, 300000 do newproxy(marked) end
  collectgarbage "restart"
  while not finalized do collectgarbage("step", 0) end
]])

local home
after_each(function() shell.remove(home) end)

local function check(...)
  local result = support.run(home, { "check", "recipe.lua", "--json", ... })
  assert.equal(0, result.code, result.err)
  return json.decode(result.out:match "{\n.*$", "check --json")
end

local function regions(memory, ...)
  return check("--regions", "--set", ("recompute.memory=%d"):format(memory), ...).regions
end

local function said_for(memory, ...)
  return support.run(home, { "check", "recipe.lua", "--regions", "--set", ("recompute.memory=%d"):format(memory), ... })
end

-- The bytes between what a rank holds anyway and its peak: so much of it.
local function memory_of(totals, share)
  local state = totals.parameter_bytes + totals.gradient_bytes + totals.optimizer_bytes
  return math.floor(state + share * (totals.peak_bytes - state))
end

local function text_of(setting) return ("recompute={sections='%s'}"):format(setting.sections) end

describe("ganymede check --regions", function()
  it("predicts the peak to the byte, and a run has it, but for the scratch of kernels", function()
    home = support.home(gpt)
    local whole = check().totals
    local before = 0
    for _, share in ipairs { 0.7, 0.4, 0.27 } do
      local memory = memory_of(whole, share)
      local found = regions(memory)
      local row = found.stages[1]
      assert.equal(row.peak_bytes, row.predicted_bytes)
      assert.is_true(row.peak_bytes <= memory)
      local again = check("--set", text_of(found.setting)).totals
      assert.same({ row.peak_bytes, row.flops_per_step }, { again.peak_bytes, again.flops_per_step })
      assert.equal(whole.flops_per_step, row.whole_flops_per_step)
      assert.is_true(row.flops_per_step > whole.flops_per_step + before, "less memory costs more")
      before = row.flops_per_step - whole.flops_per_step
      local rank = job.run(gpt, 1, { steps = 3, set = { "recompute.memory=" .. memory } }).ranks[1]
      local more = rank.peak_bytes - row.peak_bytes
      assert.is_true(more >= 0 and more <= rank.scratch_peak_bytes, ("%d more"):format(more))
    end
  end)

  it("measures with the collector at rest, also where a cycle of it had begun", function()
    home = support.home(finalizing)
    assert.equal(1, #regions(memory_of(check().totals, 0.5)).stages)
  end)

  it("takes fewer operations than each block by itself does, in the same memory, and goes below it", function()
    home = support.home(gpt)
    local blocks = check("--set", "recompute=block").totals
    local row = regions(blocks.peak_bytes).stages[1]
    assert.is_true(row.peak_bytes <= blocks.peak_bytes and row.flops_per_step <= blocks.flops_per_step)
    -- A region of several blocks, and regions inside of it, need less than one for each block.
    local found = regions(math.floor(0.97 * blocks.peak_bytes))
    assert.is_true(found.stages[1].peak_bytes < blocks.peak_bytes)
    assert.truthy(found.setting.sections:find("%d%-%d"))
  end)

  it("says what it chose in one line, and what would do where nothing does", function()
    home = support.home(gpt)
    local memory = memory_of(check().totals, 0.5)
    local result = said_for(memory)
    assert.matches("^blocks%.[%d%-]+ .*run again in backward %(sections = \"[%d, %-]+\"%): a step needs [%d.]+ [KM]iB "
      .. "of [%d.]+ [KM]iB, and [%d.]+ %% more operations\n$", result.out)
    assert.matches("^nothing runs again: a step needs ", said_for(2 ^ 30).out)
    result = said_for(100000)
    assert.equal(2, result.code)
    assert.truthy(result.err:find("recompute.memory is too little: 97.7 KiB lacks ", 1, true), result.err)
    assert.equal(2, support.run(home, { "check", "recipe.lua", "--regions" }).code)
  end)

  -- How far the prediction may be from the rehearsal: the chain knows no messages, and nothing of what a block holds
  -- between the two halves of its backward pass.
  for _, pipeline in ipairs {
    { "1f1b", "", 0.03 }, { "zb-h1", "", 0.2, "slow" }, { "interleaved", ",chunks=2", 0.15, "slow" },
  } do
    local order, chunks, off = unpack(pipeline)
    local tag = pipeline[4] and " #" .. pipeline[4] or ""
    it("chooses for each stage of a pipeline, by the micro-batches that it holds: " .. order .. tag, function()
      home = support.home(gpt)
      local sets = { "parallel={pipeline={size=2" .. chunks .. "}}", "num_microbatches=4",
        ("schedule={type='PipelineSchedule',order='%s'}"):format(order) }
      local words = { "-n", "2", "--set", sets[1], "--set", sets[2], "--set", sets[3] }
      local memory = memory_of(check(unpack(words)).totals, 0.5)
      local found = regions(memory, unpack(words))
      assert.equal(2, #found.stages)
      assert.matches("^stage 0: .*again in backward", found.said[1])
      assert.matches("^stage 1: ", found.said[2])
      local plain = job.run(gpt, 2, { steps = 3, set = sets })
      sets[#sets + 1] = "recompute.memory=" .. memory
      local run = job.run(gpt, 2, { steps = 3, set = sets })
      assert.equal(0, (job.largest_difference(plain, run, 3)))
      for stage, row in ipairs(found.stages) do
        assert.is_true(row.peak_bytes <= memory)
        local rank = run.ranks[stage]
        -- Messages are on their way, which arrive at once in a rehearsal: some of (4, 32, 32) in f32.
        local more, in_flight = rank.peak_bytes - row.peak_bytes, 4 * (4 * 32 * 32 * 4)
        assert.is_true(math.abs(more) <= rank.scratch_peak_bytes + in_flight,
          ("stage %d: %d more"):format(stage - 1, more))
        local missed = row.predicted_bytes and math.abs(row.predicted_bytes / row.peak_bytes - 1) or 0
        assert.is_true(missed < off, ("stage %d: %.3f"):format(stage - 1, missed))
      end
      -- One stage is asked by its rank.
      local alone = regions(memory, "--rank", "1", unpack(words))
      assert.same({ found.stages[2] }, alone.stages)
    end)
  end

  it("is counted in what stages hold and compute", function()
    home = support.home(gpt)
    local words = { "-n", "2", "--set", "parallel={pipeline=2}", "--set", "num_microbatches=4" }
    local function first_stage(...)
      for i, word in ipairs { ... } do words[6 + i] = word end
      return check(unpack(words)).pipeline.by_stage[1]
    end
    local plain, again = first_stage(), first_stage("--set", "recompute=block")
    -- Two micro-batches of (4, 32) tokens in i64 and of inputs of four blocks, (4, 32, 32) in f32.
    assert.equal(2 * (4 * 32 * 8 + 4 * (4 * 32 * 32 * 4)), again.held_bytes)
    assert.is_true(plain.held_bytes > 8 * again.held_bytes)
    assert.is_true(again.flops > 1.2 * plain.flops)
  end)

  it("makes regions of single modules where a model has no sections", function()
    home = support.home(own)
    local whole = check().totals
    local memory = memory_of(whole, 0.6)
    local row = regions(memory).stages[1]
    assert.is_true(row.peak_bytes <= memory)
    assert.is_true(#row.setting >= 1 and #row.setting <= 6)
    for _, pattern in ipairs(row.setting) do assert.matches("^%^list%%%.%d%$$", pattern) end
    local rank = job.run(own, 1, { steps = 3, set = { "recompute.memory=" .. memory } }).ranks[1]
    local more = rank.peak_bytes - row.peak_bytes
    assert.is_true(more >= 0 and more <= rank.scratch_peak_bytes, ("%d more"):format(more))
  end)

  it("says what to do where a model calls a module twice", function()
    home = support.home(own)
    local result = said_for(1000000, "--set", "model.twice=true")
    assert.equal(2, result.code)
    for _, words in ipairs { "list.1 is called twice in a forward pass", "function Mine:sections()" } do
      assert.truthy(result.err:find(words, 1, true), result.err)
    end
  end)
end)

describe("ganymede check --largest with recompute.memory", function()
  it("finds a larger batch than without, which the run holds in the limit; one more does not fit", function()
    home = support.home(gpt)
    local limit = memory_of(check().totals, 0.8)
    local function largest(...)
      return check("--largest", "batch", "--limit-memory", tostring(limit), "--mode", "data", ...).modes[1]
    end
    local plain, again = largest(), largest("--set", "recompute.memory=" .. limit)
    assert.is_true(again.largest > 2 * plain.largest, ("%d and %d"):format(plain.largest, again.largest))
    assert.is_true(again.peak_bytes <= limit)
    -- The search goes down, too, from a size that nothing makes fit.
    assert.equal(again.largest, largest("--set", "recompute.memory=" .. limit, "--set",
      "data.batch_size=" .. 2 * again.largest).largest)
    local size = "data.batch_size=%d"
    assert.equal(again.peak_bytes, regions(limit, "--set", size:format(again.largest)).stages[1].peak_bytes)
    local result = said_for(limit, "--set", size:format(again.largest + 1))
    assert.equal(2, result.code)
    assert.truthy(result.err:find("is too little", 1, true), result.err)
  end)
end)
