--- recompute = { memory = ... } of gm.initialize: chosen before the second step of a program's own loop. The truth is
-- the same loop that keeps everything: equal losses to the bit, and a peak within the memory.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local support = require "spec.cli.support"
local shell = support.shell

-- Prints the loss and the peak of each step. `more` is put into the table of gm.initialize.
local program = [[
local gm = require "ganymede"
local core = require "ganymede.core"
gm.launch { seed = 3, parallel = { data = core.world() } }
local model = MODEL
local engine = gm.initialize { model = model, optimizer = { type = "AdamW", lr = 1e-3 },
  criterion = { type = "CrossEntropyLoss" }, MORE }
for step = 1, 3 do
  gm.scope(function()
    local x = gm.uniform({ 8, 64 }, { seed = step, low = 0, high = 259 }):to "i64"
    engine:zero_grad()
    core.memory_reset_peak()
    local loss = engine:criterion(engine(x), x)
    engine:backward(loss)
    engine:step()
    if core.rank() == 0 then print(("%d %.17g %d"):format(step, loss:item(), core.memory().peak)) end
  end)
end
for _, e in ipairs(model:state(true)) do
  if e.name:find "num_batches" then print("batches " .. e.tensor:item()) end
end
]]

local gpt = [[gm.registry.models:build { type = "GPT", vocabulary = 260, sequence_length = 64, width = 64, depth = 8,
  heads = 4, dropout = 0.1 }]]

local home
after_each(function() shell.remove(home) end)

local function run(more, ranks, model)
  local words = { MORE = more or "", MODEL = model or gpt }
  home = support.home((program:gsub("%u%u%u%u+", words)))
  words = { "run", "recipe.lua", "--threads", "1" }
  if ranks then words[#words + 1], words[#words + 2] = "-n", tostring(ranks) end
  local result = support.run(home, words)
  local steps = {}
  for step, loss, peak in result.out:gmatch "(%d+) ([%d.]+) (%d+)\n" do
    steps[tonumber(step)] = { loss = loss, peak = tonumber(peak) }
  end
  shell.remove(home)
  return steps, result
end

-- What keeps everything, on one rank.
local whole
local function plain_run()
  whole = whole or run()
  return whole
end

local function losses(steps)
  local out = {}
  for i, step in ipairs(steps) do out[i] = step.loss end
  return out
end

local SCRATCH = 600 * 1024 -- of kernels, on top of what tensors take

describe("recompute.memory in a program", function()
  for _, ranks in ipairs { 1, 2 } do
    it(("is chosen before the second step, and changes no number, on %d rank%s"):format(ranks, ranks > 1 and "s #ranks"
      or ""), function()
      local n = ranks > 1 and ranks or nil
      local plain = n and run(nil, n) or plain_run()
      assert.equal(3, #plain)
      local before = math.huge
      for _, share in ipairs { 0.62, 0.5 } do
        local memory = math.floor(share * plain[2].peak)
        local steps, result = run(("recompute = { memory = %d }"):format(memory), n)
        assert.same(losses(plain), losses(steps))
        assert.matches("recompute: blocks%..* again in backward %(sections = \"[%d, %-]+\"%): a step needs", result.err)
        for i, step in ipairs(steps) do
          assert.is_true(step.peak <= memory + SCRATCH, ("step %d: %d of %d"):format(i, step.peak, memory))
        end
        assert.is_true(steps[1].peak < 0.5 * plain[1].peak)
        assert.is_true(steps[3].peak < before)
        before = steps[3].peak
      end
    end)
  end

  it("moves running statistics once a step", function()
    local model = "gm.nn.Sequential { gm.nn.Embedding(260, 16), gm.nn.BatchNorm1d(64), gm.nn.Classifier(16, 260) }"
    local _, result = run("recompute = { memory = '1G' }", nil, model)
    assert.matches("batches 3\n", result.out)
  end)

  it("runs nothing again where all fits", function()
    local plain = plain_run()
    local steps, result = run "recompute = { memory = '1G' }"
    assert.same(losses(plain), losses(steps))
    assert.matches("recompute: nothing runs again", result.err)
    assert.is_true(math.abs(steps[3].peak - plain[3].peak) < 65536)
  end)

  it("ends the program where no choice fits", function()
    local steps, result = run "recompute = { memory = '2M' }"
    assert.equal(1, #steps)
    assert.equal(2, result.code)
    assert.truthy(result.err:find("recompute.memory is too little: 2.0 MiB lacks", 1, true), result.err)
  end)

  it("is refused with a sentence where it cannot be measured", function()
    local function refused(words, more, model)
      local _, result = run("recompute = { memory = '1G' }" .. (more or ""), nil, model)
      assert.is_true(result.code ~= 0)
      assert.truthy(result.err:find(words, 1, true), result.err)
    end
    refused("this has one", "", "gm.nn.Sequential { layers = { gm.nn.Linear { inputs = 4, outputs = 4 } } }")
    refused("needs the sections of the model", "", "gm.nn.Linear { inputs = 4, outputs = 4 }")
    refused("would count twice what SigmoidRouter", "",
      (gpt:gsub("dropout = 0.1", "moe = { experts = 4, router = { type = 'SigmoidRouter', k = 1 } }")))
    local _, result = run "recompute = { memory = '1G', sections = '2' }"
    assert.truthy(result.err:find("has memory and sections", 1, true), result.err)
  end)
end)
