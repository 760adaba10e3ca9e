--- Training with floats of 8 bits with scales of blocks on a GPU: by cuBLASLt, which reads scales of rows and of
-- squares; as CUDA graphs; and refused where there are no such products.
--
-- The truth is the same run with graph = false, to the bit, and a run on the CPU. Without a GPU it is the
-- emulation that runs; what it refuses of scales is what NVIDIA documents (spec/cuda/fake_products.h).
-- sanitizers: no, bits of training are compared; spec/nn/float8_blocks_spec.lua looks at the same code
local emulation = require "spec.cuda.emulation"
local support = require "spec.cli.support"

if emulation.lacks(pending) then return end

local recipe = [[
return {
  name = "float8", seed = 6, steps = 5, dtype = "bf16", float8 = { scaling = "blocks" },
  model = { type = "MLP", inputs = 144, hidden = { 32, 16 }, classes = 4, dropout = 0.1 },
  data = { train = { type = "Synthetic", length = 320, shape = { 144 }, classes = 4, split = "train" },
           batch_size = 16 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.02 }, clip_grad_norm = 0.5,
}
]]

describe("scales of blocks on a GPU", function()
  local home

  before_each(function() home = support.home(recipe) end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  local function run(out, device, words, env)
    local all = { "run", "recipe.lua", "--no-eval", "--device", device, "--threads", "1", "--stats", out .. ".json" }
    for _, word in ipairs(words or {}) do table.insert(all, word) end
    local environment = emulation.environment()
    for name, value in pairs(env or {}) do environment[name] = value end
    return support.run(home, all, { env = environment })
  end

  local function train(out, ...)
    local result = run(out, ...)
    assert.equal(0, result.code, result.err)
    return support.json(home .. "/" .. out .. ".json"), result
  end

  it("give the same bits in graphs and without, and what a CPU computes", function()
    local with = train("with", "cuda", { "--set", "graph=true" })
    local without = train("without", "cuda", { "--set", "graph=false" })
    assert.same(without.loss, with.loss)
    assert.is_true(with.ranks[1].device_calls.graphs > 0)
    local cpu = train("cpu", "cpu")
    -- products of 16 bits are rounded alike but for sums whose rounding differs: 2^-8 of a logit of about 1
    for i, loss in ipairs(cpu.loss) do assert.is_true(math.abs(loss - with.loss[i]) < 0.02, ("step %d"):format(i)) end
    assert.not_same(train("current", "cpu", { "--set", "float8=true" }).loss, cpu.loss)
  end)

  it("are read by cuBLASLt: of a step's five products none is made another way", function()
    if not emulation.is_on() then return end
    local record = home .. "/record"
    local _, result = train("run", "cuda", { "--steps", "1", "--set", "graph=false" },
      { GANYMEDE_CUDA_RECORD = record })
    local found = { squares = 0, rows = 0 }
    for line in io.lines(record) do
      if line:find("squares of A", 1, true) then found.squares = found.squares + 1 end
      if line:find("rows of A and B", 1, true) then found.rows = found.rows + 1 end
    end
    -- two layers: two products forward, and one gradient of an input; two gradients of weights
    assert.same({ squares = 3, rows = 2 }, found)
    assert.is_nil(result.err:find("cuBLASLt takes no floats", 1, true), result.err)
  end)

  it("say where cuBLASLt does not take a size", function()
    local result = run("odd", "cuda", { "--steps", "1", "--set", "data.batch_size=10" })
    assert.equal(0, result.code, result.err)
    assert.matches("cuBLASLt takes no floats of 8 bits with scales of blocks of", result.err .. result.out, 1, true)
  end)

  it("are refused on other GPUs, with what can be used instead", function()
    if not emulation.is_on() then return end
    for _, capability in ipairs { "80", "89", "100" } do
      local result = run("other", "cuda", { "--steps", "1" }, { GANYMEDE_FAKE_CUDA_CAPABILITY = capability })
      assert.not_equal(0, result.code)
      local said = ("9.0 alone (H100, H200), and this one has %d.%d: use scaling = \"current\" or \"delayed\"")
        :format(math.floor(tonumber(capability) / 10), tonumber(capability) % 10)
      assert.matches(said, result.err, 1, true)
    end
  end)
end)
