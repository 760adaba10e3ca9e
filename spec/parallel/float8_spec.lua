-- Models whose dense layers multiply floats of 8 bits train on every mesh as on one rank: scales are those of whole
-- tensors, so all meshes compute with the same codes. A pipeline's tensors are micro-batches, and so are those of the
-- rank that it is compared with.
--
-- Only the order of sums differs: in f64 10 steps agree to 1e-12, unless such a difference moves a number over the
-- border between two codes, which 1e5 numbers a step, each within 1e-15 of a border with a chance of 1e-13, do not do.
-- sanitizers: no, numbers of several ranks are compared; spec/layout/float8_spec.lua looks at the same code
local job = require "spec.parallel.job"

local recipe = [[
return {
  name = "float8", seed = 6, dtype = "f64", float8 = true,
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 32, depth = 2, heads = 4,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 12 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]
local STEPS = job.steps(10)

local function tensor(mode, size, more)
  return ("parallel={tensor={size=%d,mode='%s'%s}}"):format(size, mode, more or "")
end

-- ranks, settings, those of the one rank
local meshes = {
  { "data 3", 3, {} },
  { "data 2, ZeRO 3, recomputed", 2, { "zero={stage=3,whole_below=0}", "recompute=block" } },
  { "two stages", 2, { "parallel={pipeline=2}", "num_microbatches=2" },
    { "gradient_accumulation=2", "data.batch_size=6" } },
  { "two stages, backward in two halves", 2,
    { "parallel={pipeline=2}", "num_microbatches=2", "schedule={type='PipelineSchedule',order='zb-h1'}" },
    { "gradient_accumulation=2", "data.batch_size=6" } },
  { "1d on 2", 2, { tensor("1d", 2) } },
  { "1d on 2, sequence", 2, { tensor("1d", 2, ",sequence=true") } },
  { "ring on 2", 2, { "parallel={sequence=2}" } },
  { "1d on 2, data 2, ZeRO 2 #slow", 4, { "parallel={data=2,tensor={size=2,mode='1d'}}", "zero=2" } },
}

-- Scales of the last 3 steps: all but those of the first step come from histories. With this margin they are 64 times
-- as large as they must be, so those of a tensor itself give other codes.
local DELAYED = "float8={scaling='delayed',history=3,margin=6}"

-- The settings with this one behind them, unless it is nil.
local function with(set, one)
  local all = { unpack(set or {}) }
  all[#all + 1] = one
  return all
end

describe("floats of 8 bits #ranks", function()
  local serial = job.serial(recipe, STEPS)

  it("change what is computed", function()
    local plain = job.run(recipe, 1, { steps = STEPS, set = { "float8=false" } })
    local apart = job.largest_difference(serial(), plain, STEPS)
    assert.is_true(apart > 1e-5 and apart < 0.02, tostring(apart))
  end)

  for _, mesh in ipairs(meshes) do
    it("train as on one rank: " .. mesh[1], function()
      local many = job.run(recipe, mesh[2], { steps = STEPS, set = mesh[3] })
      local apart = job.largest_difference(serial(mesh[4]), many, STEPS)
      assert.is_true(apart <= 1e-12, tostring(apart))
    end)

    it("train with delayed scales as on one rank: " .. mesh[1], function()
      local many = job.run(recipe, mesh[2], { steps = STEPS, set = with(mesh[3], DELAYED) })
      local apart = job.largest_difference(serial(with(mesh[4], DELAYED)), many, STEPS)
      assert.is_true(apart <= 1e-12, tostring(apart))
    end)
  end

  it("delayed scales change what is computed from the second step on", function()
    local now, late = serial(), serial { DELAYED }
    local apart = job.largest_difference(now, late, STEPS)
    assert.is_true(apart > 1e-7 and apart < 0.05, tostring(apart)) -- f64 alone is 1e-12 apart
    assert.equal(now.loss[1], late.loss[1])
  end)

  -- two blocks have 8 layers, and each of them has x and dy cut over `data`, and w whole
  it("delayed scales travel in one message a step, after the first", function()
    local function calls(steps, set)
      local n = 0
      for _, row in ipairs(job.run(recipe, 2, { steps = steps, set = set }).ranks[1].comm) do
        if row.op == "all_reduce" and row.phase ~= "initialize" then n = n + row.calls end
      end
      return n
    end
    local function in_a_step(set) return (calls(6, set) - calls(3, set)) / 3 end
    local plain = in_a_step { "float8=false" }
    assert.equal(plain + 16, in_a_step {})
    assert.equal(plain + 1, in_a_step { DELAYED })
  end)

  it("delayed scales are refused where stages are built apart, and number their layers for themselves", function()
    local run = job.run([[
      local gm = require "ganymede"
      gm.launch { seed = 1, parallel = { pipeline = 2 } }
      local first = require("ganymede.core").rank() == 0
      local Part = gm.nn.class "Part"
      function Part:build()
        if first then self.a = gm.nn.Linear(16, 32) else self.b = gm.nn.Linear(32, 16) end
      end
      function Part:forward(x) return first and self.a(x) or self.b(x) end
      local model = Part {}
      gm.float8(model, { scaling = "delayed" })
      gm.initialize { model = model, criterion = { type = "MSELoss" }, optimizer = { type = "SGD", lr = 0.1 },
        schedule = gm.PipelineSchedule { num_microbatches = 2 } }
    ]], 2, { code = 2 })
    assert.matches("needs the same model on all stages: call gm.float8 before", run.err)
  end)

  it("are refused where products travel in blocks", function()
    local run = job.run(recipe, 4, { code = 2, set = { tensor("2d", 4) } })
    assert.matches("float8: .* lies on ranks in mode 2d, whose products travel in blocks; 1d is possible", run.err)
  end)
end)
