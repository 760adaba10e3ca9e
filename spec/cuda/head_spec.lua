--- A head in pieces with --device cuda: the losses of the whole head, without a wait more; dW of 16 bits is added up in
-- f32 by the products themselves.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local emulation = require "spec.cuda.emulation"
local support = require "spec.cli.support"

if emulation.lacks(pending) then return end

local recipe = [[
return {
  name = "head", seed = 7, hooks = {}, gradient_accumulation = 2,
  model = { type = "GPT", vocabulary = 256, sequence_length = 12, width = 16, depth = 1, heads = 2 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", sequence_length = 12, stride = 4 },
           batch_size = 4 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.01 },
}
]]

describe("a head in pieces with --device cuda", function()
  local home

  before_each(function() home = support.home(recipe) end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  local function train(dtype, chunk, record)
    local env = emulation.environment()
    env.GANYMEDE_CUDA_RECORD = record
    local result = support.run(home, { "run", "recipe.lua", "--steps", "4", "--device", "cuda", "--stats", "stats.json",
      "--no-eval", "--set", "dtype=" .. dtype, "--set", "model.head_chunk=" .. chunk, "--out", "out" .. chunk },
      { env = env })
    assert.equal(0, result.code, result.err)
    return support.json(home .. "/stats.json").loss
  end

  local function lines(path, pattern)
    local n = 0
    for line in io.lines(path) do n = n + (line:find(pattern) and 1 or 0) end
    return n
  end

  -- f32: sums in another order. bf16: gradients round another way in their last place, 2^-8, and updates of 0.01 follow
  -- their sign at first.
  for _, case in ipairs { { "f32", 1e-5 }, { "bf16", 2 ^ -9 } } do
    local dtype, limit = unpack(case)
    it("trains as the whole head does, without a wait more, " .. dtype, function()
      local records = { home .. "/whole", home .. "/pieces" }
      local want, got = train(dtype, 0, records[1]), train(dtype, 7, records[2])
      assert.equal(4, #want)
      for i, loss in ipairs(want) do assert.is_true(math.abs(got[i] - loss) <= limit * loss, got[i] .. " " .. loss) end
      if not emulation.is_on() then return end
      assert.is_true(lines(records[2], "^launch") > lines(records[1], "^launch"))
      assert.equal(lines(records[1], "^wait"), lines(records[2], "^wait"))
    end)
  end
end)
