--- `ganymede check` of pipelines: what it says a rank sends is what a run sends, to the byte and by the formula; what a
-- split costs and loses; what cannot be is refused before anything is started.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local support = require "spec.cli.support"
local shell = support.shell

-- 8 samples a batch, 16 tokens of width 32: 4 micro-batches of 2 samples; 4 bytes an element
local recipe = [[
return {
  name = "gpt", seed = 3, steps = 3,
  model = { type = "GPT", vocabulary = 64, sequence_length = 16, width = 32, depth = 4, heads = 4 },
  data = { train = { type = "Synthetic", kind = "tokens", length = 4000, sequence_length = 16, vocab_size = 64 },
    batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 }, num_microbatches = 4,
}
]]
local activation = 2 * 16 * 32 * 4 -- bytes of one micro-batch at a border

describe("ganymede check of a pipeline", function()
  local home
  before_each(function() home = support.home(recipe) end)
  after_each(function() shell.remove(home) end)

  local function check(ranks, rank, ...)
    local result = support.run(home, { "check", "recipe.lua", "--json", "-n", tostring(ranks), "--rank",
      tostring(rank), ... })
    assert.equal(0, result.code, result.err)
    return json.decode(result.out, "check")
  end

  -- { ["axes op phase"] = { calls, bytes } } of a list of accounts
  local function accounts(list, bytes)
    local out = {}
    for _, e in ipairs(list) do
      if e.phase == "forward" or e.phase == "backward" or e.phase == "update" then
        out[("%s %s %s"):format(table.concat(e.axes, "."), e.op, e.phase)] = { calls = e.calls, bytes = e[bytes] }
      end
    end
    return out
  end

  -- What each rank of a run sent in `steps` steps.
  local function sent(ranks, steps, set)
    local result = support.run(home, { "run", "recipe.lua", "-n", tostring(ranks), "--steps", tostring(steps),
      "--no-eval", "--stats", "s.json", "--out", "o" .. steps, "--set", set })
    assert.equal(0, result.code, result.err)
    local out = {}
    local peaks = {}
    for i, rank in ipairs(support.json(home .. "/s.json").ranks) do
      out[i] = accounts(rank.comm, "bytes_logical")
      peaks[i] = { least = rank.peak_bytes - rank.scratch_peak_bytes, most = rank.peak_bytes }
    end
    return out, peaks
  end

  local layouts = {
    { name = "data", set = "parallel={pipeline=2}", stride = 1, share = 2 }, -- half the samples each
    { name = "tensor", set = "parallel={pipeline=2,tensor={size=2,mode='1d'}}", stride = 2, share = 2 }, -- scattered
  }
  for _, layout in ipairs(layouts) do
    it("says what a rank of every stage sends in a step, with " .. layout.name .. " ranks", function()
      local first = sent(4, 1, layout.set) -- headers go with the first step alone
      local third, peaks = sent(4, 3, layout.set)
      for stage = 0, 1 do
        local rank = stage * layout.stride
        local found = check(4, rank, "--set", layout.set)
        local planned = accounts(found.sent, "bytes")
        -- all messages of a step may be under way at once in a run, and none is in a rehearsal, which knows nothing of
        -- what kernels take for themselves, at the peak or at other times
        local peak, more = found.totals.peak_bytes, 2 * 4 * activation
        assert.is_true(peaks[rank + 1].least - more <= peak and peak <= peaks[rank + 1].most + more)
        local seen = 0
        for key, account in pairs(third[rank + 1]) do
          local before = first[rank + 1][key]
          assert.same({ calls = (account.calls - before.calls) / 2, bytes = (account.bytes - before.bytes) / 2 },
            planned[key], key)
          seen = seen + 1
        end
        assert.is_true(seen >= 4)
        local border = planned[stage == 0 and "pipeline send forward" or "pipeline send backward"]
        assert.same({ calls = 4, bytes = 4 * activation / layout.share }, border)
      end
    end)
  end

  it("draws the schedule, with its bubble and what stages hold", function()
    local found = check(2, 1, "--set", "parallel.pipeline=2").pipeline
    assert.same({ "1f1b", 2, 1, 4, 0.25 }, { found.order, found.stages, found.chunks, found.micro_batches,
      found.bubble })
    assert.matches("\nrank 0 | F1 F2       B1--- F3 B2--- F4 B3---    B4---\n", found.picture, 1, true)
    assert.same({ 2, 1 }, { found.by_stage[1].held, found.by_stage[2].held })
    -- of two stages whose passes take a < b the first waits for one of its own, there and back: of m of the second's
    local a, b = found.by_stage[1].flops, found.by_stage[2].flops
    assert.is_true(a < b)
    assert.is_true(math.abs(a / (4 * b) - found.bubble_of_split) < 1e-12)
    assert.is_true(math.abs(2 * b / (a + b) - found.busiest) < 1e-12)
  end)

  it("measures both halves of a backward pass and what is held for it", function()
    for rank, held in ipairs { 2, 1 } do
      local found = check(2, rank - 1, "--set", "parallel.pipeline=2")
      local part, stage, saved = found.pipeline.parts[rank], found.pipeline.by_stage[rank], 0
      assert.equal(part.flops + part.input_flops + part.weight_flops, stage.flops)
      -- a step is 4 such, AdamW with 15 operations an element, the norm with 2, of the shared table on one stage;
      -- products add to the gradients of earlier micro-batches as they go, other rules with an operation an element
      local update = 17 * stage.parameters - (rank == 2 and 2 * 64 * 32 or 0)
      local more = found.totals.flops_per_step - 4 * stage.flops - update
      assert.is_true(more >= 0 and more <= 3 * stage.parameters, more)
      for _, row in ipairs(found.modules) do saved = saved + row.saved_bytes end
      local loss = rank == 2 and part.saved_bytes - saved or 0 -- which the modules do not have
      assert.is_true(loss >= 0 and loss <= 3 * 2 * 16 * 64 * 4)
      assert.equal(part.saved_bytes, saved + loss)
      assert.equal(held * part.saved_bytes, stage.held_bytes)
    end
  end)

  it("measures what each part computes, and says what each stage has", function()
    local found = {}
    for rank = 0, 1 do found[rank + 1] = check(2, rank, "--set", "parallel.pipeline.size=2", "--set",
      "parallel.pipeline.split={1,5}") end
    local parts = found[1].pipeline.parts
    assert.same({ "tokens, positions", "blocks.1", "norm, head" }, { parts[1].first, parts[2].first, parts[2].last })
    -- models/gpt.lua says what the products of a sequence take, forward and backward, with half of the causal pairs;
    -- 16 queries see 8 keys more than half of 256 between them, at 4 operations an element of width, in 4 blocks
    local model = require("ganymede.models").GPT { vocabulary = 64, sequence_length = 16, width = 32, depth = 4,
      heads = 4 }
    assert.equal(0, parts[1].product_flops)
    assert.equal(2 * (model:flops_per_sample() / 3 + 4 * 4 * 32 * 8), parts[2].product_flops)
    for i, stage in ipairs(found[1].pipeline.by_stage) do
      assert.equal(found[i].totals.parameter_bytes, 4 * stage.parameters)
    end
    assert.equal(4 * (64 * 32 + 16 * 32), found[1].totals.parameter_bytes) -- both tables, and nothing else
    assert.same({ 2, 16, 32 }, { unpack(parts[1].gives[1].shape) })
    assert.equal(activation, parts[1].border_bytes)
  end)

  it("counts a step and not what it asks of other stages, also where shapes are told with every message", function()
    local found = {}
    for i, variable in ipairs { "false", "true" } do
      found[i] = check(2, 1, "--set", "parallel.pipeline=2", "--set",
        ("schedule={type='PipelineSchedule',order='zb-h1',variable_shapes=%s}"):format(variable)).totals
    end
    assert.same(found[1], found[2])
  end)

  it("counts what modules hold and send by stage", function()
    local found = check(2, 1, "--set", "parallel.pipeline=2")
    local by_path = {}
    for _, row in ipairs(found.modules) do by_path[row.path] = row end
    assert.is_nil(by_path["blocks.1.mlp.up"])
    local up = by_path["blocks.4.mlp.up"]
    assert.equal(4 * (32 * 128 + 128), up.parameter_bytes)
    assert.equal(2 * up.parameter_bytes, up.optimizer_bytes)
    assert.is_true(up.saved_bytes >= activation) -- at least its input
    local messages = accounts(by_path.pipeline.sent, "bytes")
    assert.same({ calls = 4, bytes = 4 * activation }, messages["pipeline send backward"])
    assert.same({ calls = 4, bytes = 0 }, messages["pipeline receive forward"])
    assert.equal(4 * 64 * 32, by_path.tokens.parameter_bytes) -- the head is tied to them
  end)

  it("knows which stages a rank meets", function()
    local function layers(order)
      local schedule = ("schedule={type='PipelineSchedule',order='%s'}"):format(order)
      local found = check(4, 0, "--set", "parallel.pipeline=4", "--set", schedule, "--set", "model.depth=8")
      return { found.peers.by[1].peers, unpack(found.pipeline.meets) }
    end
    assert.same({ 1, 1 }, layers "1f1b")
    assert.same({ 1, 1 }, layers "zb-v") -- the last part is on stage 0, whose neighbour is stage 1 both ways
    assert.same({ 2, 1, 3 }, layers "interleaved") -- stage 3 sends its first chunk on to stage 0
  end)

  it("writes the picture of the schedule", function()
    local result = support.run(home, { "check", "recipe.lua", "-n", "2", "--set", "parallel.pipeline=2", "--set",
      "schedule={type='PipelineSchedule',order='zb-v'}", "--schedule-svg", "s.svg" })
    assert.equal(0, result.code, result.err)
    assert.matches("zb-v, 2 stages, 4 micro-batches, 2 chunks a stage: bubble 0 %", result.out, 1, true)
    local svg = shell.read(home .. "/s.svg")
    assert.matches("^<svg ", svg)
    local _, blocks = svg:gsub("<title>", "")
    assert.equal(2 * 2 * 3 * 4, blocks) -- F, B and W of 4 micro-batches, of 2 chunks, on 2 ranks
  end)

  it("says where a model may be cut", function()
    local result = support.run(home, { "check", "recipe.lua", "--sections", "--json" })
    assert.equal(0, result.code, result.err)
    local names, flops = {}, {}
    for i, section in ipairs(json.decode(result.out, "check").sections) do
      names[i], flops[i] = section.name, section.flops
    end
    assert.same({ "tokens, positions", "blocks.1", "blocks.2", "blocks.3", "blocks.4", "norm, head" }, names)
    assert.is_true(flops[1] < flops[6] and flops[6] < flops[2] and flops[2] == flops[5])
  end)

  it("compares the calls of stages among themselves, and of all where all call", function()
    local result = support.run(home, { "check", "recipe.lua", "-n", "4", "--roles", "--json", "--set",
      "parallel.pipeline=2", "--set", "schedule={type='PipelineSchedule',order='zb-h1'}" })
    assert.equal(0, result.code, result.err)
    local found = json.decode(result.out, "check")
    assert.equal("data last, pipeline first", found.roles[3].role)
    assert.same({ "data", "data.pipeline", "pipeline", "pipeline stages 0, 1" }, { unpack(found.groups) })
  end)

  it("finds the largest batch that fits on every stage: one more does not on some", function()
    local limit, order = 1200 * 1024, "schedule={type='PipelineSchedule',order='gpipe'}"
    local result = support.run(home, { "check", "recipe.lua", "--json", "-n", "2", "--largest", "batch",
      "--limit-memory", "1200K", "--mode", "pipeline", "--set", order })
    assert.equal(0, result.code, result.err)
    local found = json.decode(result.out, "check").modes[1]
    local function peak(batch)
      local peaks = {}
      for rank = 0, 1 do
        peaks[rank + 1] = check(2, rank, "--set", "parallel.pipeline=2", "--set", order, "--set",
          "data.batch_size=" .. batch).totals.peak_bytes
      end
      assert.is_true(peaks[1] < peaks[2]) -- the logits
      return peaks[2]
    end
    assert.equal(found.peak_bytes, peak(found.largest))
    assert.is_true(found.peak_bytes <= limit)
    assert.is_true(peak(found.largest + 1) > limit)
  end)

  describe("refuses, before anything is started,", function()
    local function refused(what, sets, part)
      it(what, function()
        local words = { "check", "recipe.lua", "-n", "2" }
        for _, set in ipairs(sets) do
          words[#words + 1], words[#words + 2] = "--set", set
        end
        local result = support.run(home, words)
        assert.equal(2, result.code, result.out .. result.err)
        assert.matches(part, result.err, 1, true)
      end)
    end
    local pipeline, schedule = "parallel.pipeline.size=2", "schedule.type=PipelineSchedule"
    refused("an order that does not exist", { pipeline, schedule, "schedule.order=zbh1" }, "did you mean 'zb-h1'?")
    refused("chunks that the order cannot have", { pipeline, schedule, "schedule.order=zb-v",
      "parallel.pipeline.chunks=3" }, "zb-v: chunks must be an integer, at least 2, at most 2; got 3")
    refused("a list of too few sections", { pipeline, "parallel.pipeline.split={2,2}" },
      "parallel.pipeline: split: the sizes { 2, 2 } add up to 4 sections; the model has 6")
    refused("a list for other stages", { pipeline, "parallel.pipeline.split={2,2,2}" }, "sizes of 3 parts")
    refused("more parts than sections", { pipeline, "parallel.pipeline.chunks=4" }, "8 parts of 6 sections")
    refused("a schedule that knows no stages", { pipeline, "schedule.type=NonPipelineSchedule" },
      "NonPipelineSchedule cannot run a pipeline")
    refused("more micro-batches than samples", { pipeline, "num_microbatches=9" }, "data.batch_size is 8")
  end)

  it("refuses a pipeline whose micro-batches nobody counted", function()
    shell.write(home .. "/recipe.lua", (recipe:gsub(", num_microbatches = 4", "")))
    local result = support.run(home, { "check", "recipe.lua", "-n", "2", "--set", "parallel.pipeline=2" })
    assert.equal(2, result.code, result.out)
    assert.matches("num_microbatches = 4", result.err, 1, true)
  end)

  local uncut = [[
local gm = require "ganymede"
local Uncut = gm.nn.class("Uncut")
function Uncut:build() self.linear = gm.nn.Linear { inputs = 16, outputs = 10 } end
function Uncut:forward(x) return self.linear(x) end
return {
  model = function() return Uncut {} end, data = { train = { type = "Synthetic", shape = { 16 } }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 }, num_microbatches = 4,
}
]]

  it("rehearses micro-batches of a model that cannot be cut, on one stage", function()
    shell.write(home .. "/recipe.lua", uncut)
    local found = check(1, 0).pipeline
    assert.same({ 1, 1, 0, 0 }, { found.stages, #found.parts, found.bubble, found.bubble_of_split })
    assert.equal(2 * 2 * 16 * 10, found.parts[1].product_flops) -- 2 samples a piece
  end)

  it("says that a model cannot be cut", function()
    shell.write(home .. "/recipe.lua", uncut)
    for _, words in ipairs { { "-n", "2", "--set", "parallel.pipeline=2" }, { "--sections" } } do
      local result = support.run(home, { "check", "recipe.lua", unpack(words) })
      assert.equal(2, result.code, result.out)
      assert.matches("Uncut", result.err, 1, true)
    end
  end)

  -- Only data_process_func gives this model the classes that it needs beside the images.
  local several = [[
return {
  name = "images", seed = 3, steps = 3, num_microbatches = 2,
  model = { type = "Diffusion", denoiser = { type = "DiT", image_size = 8, patch_size = 4, channels = 1, width = 8,
    depth = 2, heads = 2, classes = 4 } },
  data = { train = { type = "Synthetic", length = 64, shape = { 1, 8, 8 }, classes = 4 }, batch_size = 8 },
  schedule = { type = "PipelineSchedule", data_process_func = function(x, y) return { x, y }, y end },
  loss = { type = "DiffusionLoss" }, optimizer = { type = "SGD", lr = 0.01 },
}
]]

  it("gives a model all inputs that data_process_func makes of a micro-batch", function()
    shell.write(home .. "/recipe.lua", several)
    local sections = support.run(home, { "check", "recipe.lua", "--sections", "--json" })
    assert.equal(0, sections.code, sections.err)
    local parts, flops = check(2, 0, "--set", "parallel.pipeline=2").pipeline.parts, 0
    for i, section in ipairs(json.decode(sections.out, "check").sections) do
      if i <= parts[1].sections then flops = flops + section.flops end
    end
    assert.equal(flops, parts[1].flops) -- of a micro-batch, without the loss
    local _, peaks = sent(2, 3, "parallel={pipeline=2}")
    for rank = 0, 1 do
      local peak = check(2, rank, "--set", "parallel.pipeline=2").totals.peak_bytes
      assert.is_true(peak >= peaks[rank + 1].least and peak <= peaks[rank + 1].most, peak)
    end
  end)

  it("refuses a picture of what has no schedule", function()
    local result = support.run(home, { "check", "recipe.lua", "--schedule-svg", "s.svg", "--set",
      "num_microbatches=1" })
    assert.equal(2, result.code, result.out)
    assert.matches("this recipe runs no pipeline schedule", result.err, 1, true)
  end)
end)
