--- Training on rows that hold several documents (packed = true) is in every kind of mesh what it is on one rank, goes
-- on after a stop with the same bits, and is rehearsed by check. Lines of a text are the documents; dropout is on. How
-- near losses must be: spec/parallel/equality.lua.
-- sanitizers: no, numbers of several ranks are compared; spec/models/packed_spec.lua looks at the same code
local equality = require "spec.parallel.equality"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local windows = { "stride = 31", "stride = 31, packed = true, end_token = 10" }
local gpt = job.changed(equality.recipes.gpt, { "vocabulary = 2051", "vocabulary = 261" }, windows)
local llama = job.changed(equality.recipes.llama, { "vocabulary = 2051", "vocabulary = 261" }, windows)

local STEPS = job.steps(10)

local function run(recipe, ranks, set, dtype)
  local all = { "dtype=" .. (dtype or "f64") }
  for _, word in ipairs(set or {}) do all[#all + 1] = word end
  return job.run(recipe, ranks, { steps = STEPS, set = all, flags = { "--no-eval" } })
end

local pipeline = { "parallel={pipeline=2}", "num_microbatches=3" }
local cases = {
  { "gpt: ring on 2, data 2", gpt, 4, { "parallel={data=2,sequence=2}" } },
  { "gpt: 1d with sequences on 2, data 2", gpt, 4,
    { "parallel={data=2,tensor={size=2,mode='1d',sequence=true}}" } },
  { "gpt: two stages, recomputed", gpt, 2, { "recompute=block", unpack(pipeline) } },
  { "llama: two stages", llama, 2, pipeline },
  { "llama: stage 3 of ZeRO, recomputed", llama, 2, { "zero=3", "recompute={'attention'}" } },
  { "llama: ulysses on 2, data 2", llama, 4, { "parallel={data=2,sequence={size=2,mode='ulysses'}}" }, "slow" },
  { "llama: 2d on 4, data 2", llama, 8, { "parallel={data=2,tensor={size=4,mode='2d'}}" }, "slow" },
  { "gpt: 3d on 8", gpt, 8, { "parallel={tensor={size=8,mode='3d'}}" }, "slow" },
  { "gpt: 2.5d on 8", gpt, 8, { "parallel={tensor={size=8,mode='2.5d',depth=2}}" }, "slow" },
}

describe("training on packed rows #ranks", function()
  local serial = {}
  for _, case in ipairs(cases) do
    local name, recipe, ranks, set, tag = unpack(case, 1, 5)
    it(name .. (tag and " #" .. tag or ""), function()
      serial[recipe] = serial[recipe] or run(recipe, 1)
      local worst, at = job.largest_difference(serial[recipe], run(recipe, ranks, set), STEPS)
      assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
    end)
  end

  it("sees no other document: a model that forgets where they end has other losses", function()
    local plain = job.changed(llama, { "packed = true, end_token = 10", "packed = false" })
    serial[llama] = serial[llama] or run(llama, 1)
    assert.is_true((job.largest_difference(serial[llama], run(plain, 1), STEPS)) > 1e-4)
  end)

  it("goes on after a stop with the same bits", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    local function part(steps, ...)
      return job.run_in(folder, gpt, 1, { steps = steps, set = { "checkpoint={interval=2}" },
        flags = { "--no-eval", "--out", "run", ... } }).loss
    end
    local whole = job.run(gpt, 1, { steps = 4, flags = { "--no-eval" } }).loss
    part(2)
    local rest = part(4, "--resume", "auto")
    assert.same({ whole[3], whole[4] }, { rest[#rest - 1], rest[#rest] })
  end)

  it("is rehearsed by check, conversations as well", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    shell.write(folder .. "/talks.jsonl", '{ "prompt": "one two", "completion": " three" }\n'
      .. '{ "prompt": "four", "completion": " five six" }\n')
    shell.write(folder .. "/chat.lua", ([[return {
      model = { type = "Llama", vocabulary = 32000, sequence_length = 24, width = 16, depth = 1, heads = 2,
                kv_heads = 1, hidden = 24 },
      data = { train = { type = "Chat", path = "talks.jsonl", tokenizer = %q, sequence_length = 24, packed = true,
                         end_token = "</s>" }, batch_size = 1 },
      loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 }, epochs = 1,
    }]]):format(GANYMEDE_ROOT .. "/spec/golden/tokenizers/llama2.json"))
    local checked = run_host({ "check", "chat.lua", "--json" }, { cwd = folder })
    assert.equal(0, checked.code, checked.err)
    assert.is_true(json.decode(checked.out, "check").totals.peak_bytes > 0)
    local trained = run_host({ "run", "chat.lua", "--stats", "stats.json" }, { cwd = folder })
    assert.equal(0, trained.code, trained.err)
    assert.equal(1, #json.decode(shell.read(folder .. "/stats.json"), "stats").loss) -- both are in one row
    job.write(folder, gpt)
    checked = run_host({ "check", "recipe.lua", "-n", "2", "--json" }, { cwd = folder })
    assert.equal(0, checked.code, checked.err)
  end)
end)
