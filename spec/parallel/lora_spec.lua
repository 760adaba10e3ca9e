-- Adapters train on every mesh as on one rank, and they alone have gradients and optimizer states there.
--
-- Only the order of sums differs: in f64 10 steps agree to 1e-12. A large rate makes the adapters matter: b begins with
-- zeros, and a gets its first gradient in the second step.
-- sanitizers: no, numbers of several ranks are compared; spec/nn/lora_spec.lua looks at the same code
local job = require "spec.parallel.job"

local recipe = [[
return {
  name = "lora", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 4,
            dropout = 0.1, attention_dropout = 0.1 },
  lora = { rank = 3, dropout = 0.1, train = "norm%.weight$" },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-2, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]
local STEPS = job.steps(10)
local BYTES = 8 -- of f64
-- a and b of qkv, output, up and down in each block; the final norm
local TRAINED = 2 * 3 * ((24 + 72) + (24 + 24) + (24 + 96) + (96 + 24)) + 24

local function tensor(mode, size, more)
  return ("parallel={tensor={size=%d,mode='%s'%s}}"):format(size, mode, more or "")
end

-- ranks, settings, the share of the moments that the first rank holds; nil: what the mode's padding makes of it
local meshes = {
  { "data 3", 3, {}, 1 },
  { "data 2, ZeRO 3, recomputed", 2, { "zero={stage=3,whole_below=0}", "recompute=block" }, 1 / 2 },
  { "two stages", 2, { "parallel={pipeline=2}", "num_microbatches=2" } },
  { "1d on 2, sequence", 2, { tensor("1d", 2, ",sequence=true") } },
  { "2d on 4", 4, { tensor("2d", 4) } },
  { "1d on 2 #slow", 2, { tensor("1d", 2) } },
  { "2.5d on 8 #slow", 8, { tensor("2.5d", 8, ",depth=2") } },
  { "3d on 8 #slow", 8, { tensor("3d", 8) } },
  { "ring on 2 #slow", 2, { "parallel={sequence=2}" }, 1 },
  { "two stages of 1d on 2, data 2, ZeRO 2 #slow", 8,
    { "parallel={pipeline=2,data=2,tensor={size=2,mode='1d'}}", "num_microbatches=2", "zero=2" } },
}

describe("adapters #ranks", function()
  local one
  local function serial()
    one = one or job.run(recipe, 1, { steps = STEPS })
    return one
  end

  it("alone have gradients and states", function()
    assert.equal(2 * TRAINED * BYTES, serial().ranks[1].optimizer_bytes)
    assert.is_true(serial().loss[STEPS] < serial().loss[1] - 0.05)
  end)

  for _, mesh in ipairs(meshes) do
    it("train as on one rank: " .. mesh[1], function()
      local many = job.run(recipe, mesh[2], { steps = STEPS, set = mesh[3] })
      assert.is_true(job.largest_difference(serial(), many, STEPS) <= 1e-12)
      local held = many.ranks[1].optimizer_bytes
      if mesh[4] then assert.equal(2 * TRAINED * BYTES * mesh[4], held)
      else assert.is_true(held < 0.85 * 2 * TRAINED * BYTES) end
    end)
  end

  -- Magnitudes, and adapters of queries and values alone: norms of rows are sums over what cuts them.
  local with_magnitudes = recipe:gsub("rank = 3,", 'rank = 3, dora = true, split_qkv = { "query", "value" },')
  local one_with
  for i, mesh in ipairs(meshes) do
    local quick = i == 2 or i == 4 or i == 5 or mesh[1]:find "slow"
    it("with magnitudes train as on one rank: " .. mesh[1] .. (quick and "" or " #slow"), function()
      one_with = one_with or job.run(with_magnitudes, 1, { steps = STEPS })
      assert.is_true(job.largest_difference(serial(), one_with, STEPS) > 1e-6)
      local many = job.run(with_magnitudes, mesh[2], { steps = STEPS, set = mesh[3] })
      assert.is_true(job.largest_difference(one_with, many, STEPS) <= 1e-12)
    end)
  end

  it("are refused where the recipe names what the model does not have", function()
    local run = job.run(recipe, 1, { code = 2, set = { "lora.match=zz" } })
    assert.matches('lora: match%[1%] = "zz" matches nothing; there is blocks%.1%.attention%.qkv', run.err)
  end)
end)
