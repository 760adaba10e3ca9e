--- Training with delayed scales of floats of 8 bits on a GPU: scales live in its memory, so steps become graphs
-- (ganymede.train.graph), and a replayed step moves the histories as one that runs by itself does.
--
-- The truth is the same run with graph = false, to the bit. Without a GPU it is the emulation that runs.
-- sanitizers: no, bits of training are compared; spec/nn/float8_delayed_spec.lua looks at the same code
local emulation = require "spec.cuda.emulation"
local support = require "spec.cli.support"

if emulation.lacks(pending) then return end

local recipe = [[
return {
  name = "float8", seed = 6, steps = 9, float8 = { scaling = "delayed", history = 3 },
  model = { type = "MLP", inputs = 16, hidden = { 32, 16 }, classes = 4, dropout = 0.1 },
  data = { train = { type = "Synthetic", length = 160, shape = { 16 }, classes = 4, split = "train" }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.02 }, clip_grad_norm = 0.5,
  hooks = { { type = "CheckpointHook", interval = 6 } },
}
]]

describe("delayed scales on a GPU", function()
  local home

  before_each(function() home = support.home(recipe) end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  local function train(out, words)
    local all = { "run", "recipe.lua", "--no-eval", "--device", "cuda", "--threads", "1", "--stats", out .. ".json",
      "--out", out }
    for _, word in ipairs(words) do table.insert(all, word) end
    local result = support.run(home, all, { env = emulation.environment() })
    assert.equal(0, result.code, result.err)
    return support.json(home .. "/" .. out .. ".json"), result.out
  end

  it("give the same bits in graphs and without, and after a resume", function()
    local with = train("with", { "--set", "graph=true" })
    local without = train("without", { "--set", "graph=false" })
    assert.same(without.loss, with.loss)
    assert.equal(6, with.ranks[1].device_calls.graphs)
    assert.equal(0, without.ranks[1].device_calls.graphs)
    local rest = train("rest", { "--resume", home .. "/with/checkpoints/step-00000006" })
    for i = 1, 3 do assert.equal(with.loss[6 + i], rest.loss[i]) end
    local current = train("current", { "--set", "float8=true" })
    assert.equal(current.loss[1], with.loss[1])
  end)

  it("are counted in graphs as without, where they were too small (Float8Hook)", function()
    support.shell.write(home .. "/recipe.lua", (recipe:gsub("history = 3", "history = 1")
      :gsub('type = "CheckpointHook", interval = 6', 'type = "Float8Hook", interval = 3, named = 6')))
    local function said(name, graph)
      local stats, text = train(name, { "--set", "graph=" .. graph })
      local lines = {}
      for line in text:gmatch "float8  [^\n]+" do lines[#lines + 1] = line end
      return lines, stats.ranks[1].device_calls.graphs
    end
    local with, graphs = said("with", "true")
    assert.equal(6, graphs)
    assert.equal(3, #with)
    assert.matches("^float8  [1-6] of 6 tensors were clipped in the last 3 steps  %(.* in %d, up to %d+ times", with[3])
    assert.same(said("without", "false"), with)
  end)
end)
