--- `ganymede run` of pipelines: what is said, what the statistics and traces tell of stages, how models are cut.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local support = require "spec.cli.support"
local shell = support.shell

-- Tables of 512 tokens: the first takes no operations, the head a quarter more than a block; 2 micro-batches
local recipe = [[
return {
  name = "gpt", seed = 3, steps = 2,
  model = { type = "GPT", vocabulary = 512, sequence_length = 16, width = 32, depth = 4, heads = 4, tied = false },
  data = { train = { type = "Synthetic", kind = "tokens", length = 4000, sequence_length = 16, vocab_size = 64 },
    test = { type = "Synthetic", kind = "tokens", length = 400, sequence_length = 16, vocab_size = 64 },
    batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 }, num_microbatches = 2,
}
]]
local table_size, block_size = 512 * 32, 12 * 32 * 32 + 13 * 32

describe("ganymede run of a pipeline", function()
  local home
  before_each(function() home = support.home(recipe) end)
  after_each(function() shell.remove(home) end)

  local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

  it("cuts by measured operations, says so once, and tells of stages in statistics and trace", function()
    local result = support.run(home, { "run", "recipe.lua", "-n", "2", "--set", "parallel.pipeline.size=2", "--set",
      "parallel.pipeline.split=flops", "--stats", "s.json", "--trace", "t.json", "--out", "o" })
    assert.equal(0, result.code, result.err)
    has(result.err, "no schedule was given: pipeline stages work in the order 1f1b\n")
    has(result.err, "pipeline: 1f1b, 2 stages, 2 micro-batches; sections of each part, cut by flops: "
      .. "4 (tokens, positions to blocks.3), 2 (blocks.4 to norm, head)\n")
    local _, times = result.err:gsub("sections of each part", "")
    assert.equal(1, times)
    local stats = support.json(home .. "/s.json")
    assert.same({ pipeline = 2 }, stats.mesh)
    local sizes = { table_size + 16 * 32 + 3 * block_size, block_size + 64 + table_size } -- 64: the norm's
    for stage = 0, 1 do
      local rank = stats.ranks[stage + 1]
      assert.same({ stage, stage + 1, 4 * sizes[stage + 1] }, { rank.stage, rank.parts[1], rank.parameter_bytes })
    end
    local computed = { [0] = 0, 0 }
    for _, event in ipairs(json.decode(shell.read(home .. "/t.json"), "trace")) do
      if event.name == "backward" and event.args then computed[event.pid] = computed[event.pid] + 1 end
    end
    assert.same({ [0] = 4, 4 }, computed) -- 2 steps of 2 micro-batches, on both stages
  end)

  it("cuts by parameters otherwise, as check does", function()
    local function cut(split)
      local result = support.run(home, { "check", "recipe.lua", "--json", "-n", "2", "--set",
        "parallel.pipeline.size=2", "--set", "parallel.pipeline.split=" .. split })
      assert.equal(0, result.code, result.err)
      local parts = json.decode(result.out, "check").pipeline.parts
      return { parts[1].sections, parts[2].sections }
    end
    assert.same({ 3, 3 }, cut "parameters")
    assert.same({ 4, 2 }, cut "flops")
    assert.same({ 2, 4 }, cut "{2,4}")
  end)

  it("tells a program that operations are measured on recipes alone", function()
    shell.write(home .. "/code.lua", [[
      require("ganymede").launch { parallel = { pipeline = { size = 1, chunks = 2, split = "flops" } } }
    ]])
    local result = support.run(home, { "run", "code.lua" })
    assert.equal(2, result.code, result.err)
    has(result.err, "parallel.pipeline.split: \"flops\" needs a recipe that returns a table; in code use")
  end)
end)
