--- EMA of weights: its formula, evaluation with averages, checkpoints, ZeRO.
--
-- The truth is the formula in f64 numbers, from the weights after each step.
local core = require "ganymede.core"
local gm = require "ganymede"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local numeric = require "spec.support.numeric"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.train.support"

local function leaf(seed, dtype)
  return gm.uniform({ 5, 3 }, { seed = seed, dtype = dtype }):requires_grad(true)
end

-- Some parameters that change by themselves, followed by an EMA -> the hook, the parameters, change(step).
local function moving(options, dtype)
  local params = { leaf(1, dtype), leaf(2, dtype) }
  local engine = { optimizer = { items = { { name = "a", tensor = params[1] }, { name = "b", tensor = params[2] } } } }
  local ema = gm.hooks.EMA(options):follow(engine)
  return ema, params, function(step)
    gm.no_grad(function()
      for i, p in ipairs(params) do p:copy_(gm.uniform({ 5, 3 }, { seed = 10 * step + i, dtype = dtype })) end
    end)
  end
end

-- The averages of `steps` updates by the formula, in f64.
local function truth(params, change, ema, steps, decay_of)
  local averages
  for n = 0, steps - 1 do
    change(n + 1)
    ema:update()
    local now, decay = {}, decay_of(n)
    for i, p in ipairs(params) do
      now[i] = p:detach():to "f64":clone()
      if averages then now[i] = averages[i] * decay + now[i] * (1 - decay) end
    end
    averages = now
  end
  return averages
end

describe("EMA", function()
  for dtype, tolerance in pairs { f64 = 1e-14, f32 = 1e-6, bf16 = 1e-6 } do
    it("is the formula, after a first copy, in " .. dtype, function()
      local ema, params, change = moving({ decay = 0.9 }, dtype)
      local want = truth(params, change, ema, 6, function() return 0.9 end)
      for i, entry in ipairs(ema:averages()) do
        assert.equal(dtype == "f64" and "f64" or "f32", entry.tensor:dtype())
        numeric.agree(entry.tensor, want[i], tolerance)
      end
    end)
  end

  it("follows faster at first with warmup", function()
    local ema, params, change = moving({ decay = 0.5, warmup = true }, "f64")
    local want = truth(params, change, ema, 12, function(n) return math.min(0.5, (1 + n) / (10 + n)) end)
    numeric.agree(ema:averages()[1].tensor, want[1], 1e-14)
  end)

  for _, dtype in ipairs { "f64", "bf16" } do
    it("swaps, and swaps back bit for bit, in " .. dtype, function()
      local ema, params, change = moving({ decay = 0.9 }, dtype)
      truth(params, change, ema, 3, function() return 0.9 end)
      local before, average = params[1]:detach():clone(), ema:averages()[1].tensor:clone()
      ema:swap()
      assert.is_true(ema:is_swapped())
      assert.same(average:to(dtype):totable(), params[1]:detach():totable())
      assert.error_matches(function() ema:update() end, "hold their averages")
      ema:swap()
      assert.same(before:totable(), params[1]:detach():totable())
      assert.same(average:totable(), ema:averages()[1].tensor:totable())
    end)
  end

  it("refuses to be trained and saved while the model holds the averages", function()
    local ema = moving({}, "f32")
    ema:swap()
    assert.error_matches(function() ema:before_train_iter() end, "call ema:swap%(%) before it is trained")
    assert.error_matches(function() ema:tensors() end, "call ema:swap%(%) before it is saved")
    assert.error_matches(function() gm.hooks.EMA {}:update() end, "whose weights")
  end)

  it("goes on where a trainer is called once more, and begins anew with another model", function()
    local function trained(...)
      core.set_seed(7)
      local engine, train = gm.initialize { model = support.model { width = 5, classes = 4 },
        criterion = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
        train_dataloader = support.loader { batches = 8, size = 2, width = 5, classes = 4 } }
      local trainer, ema = gm.trainer(engine), gm.hooks.EMA { decay = 0.9 }
      for _, steps in ipairs { ... } do
        trainer:fit { train_dataloader = train, max_steps = steps, hooks = { ema } }
      end
      return ema, ema:averages()[1].tensor:totable()
    end
    local _, want = trained(8)
    local ema, got = trained(3, 5, 8)
    assert.same(want, got)
    assert.equal(8, ema:state().updates)
    local other = { optimizer = { items = { { name = "a", tensor = leaf(1) } } } }
    ema:after_hook_is_attached { engine = other }
    assert.equal(0, ema:state().updates)
    assert.equal(1, #ema:averages())
    core.set_seed(1024)
  end)

  it("updates every so many steps, and evaluates with the averages", function()
    local model = gm.nn.Linear(6, 3)
    local set = { type = "Synthetic", length = 40, shape = { 6 }, classes = 3 }
    local engine, train, test = gm.initialize { model = model, optimizer = { type = "SGD", lr = 0.5 },
      criterion = { type = "CrossEntropyLoss" }, train_dataloader = gm.data.loader { dataset = set, batch_size = 8 },
      test_dataloader = gm.data.loader { dataset = set, batch_size = 40 } }
    local ema = gm.hooks.EMA { decay = 0.8, every = 2 }
    local trainer = gm.trainer(engine)
    trainer:fit { train_dataloader = train, test_dataloader = test, max_steps = 10, hooks = { ema } }
    local with = trainer.metrics.test.loss
    assert.equal(5, ema.updates)
    assert.is_false(ema:is_swapped())
    ema:swap()
    assert.equal(with, trainer:evaluate(test).loss)
    ema:swap()
    ema.opt = { evaluate = false }
    assert.is_true(math.abs(with - trainer:evaluate(test).loss) > 1e-6)
  end)
end)

local recipe = [[
return {
  name = "mlp", seed = 2, dtype = "f64",
  model = { type = "MLP", inputs = 24, hidden = { 13 }, classes = 12 },
  data = { train = { type = "Synthetic", length = 240, shape = { 24 }, classes = 12 },
           test = { type = "Synthetic", length = 24, shape = { 24 }, classes = 12, seed = 1 }, batch_size = 12 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.02 },
  epochs = 1, checkpoint = { interval = 4 },
  hooks = { { type = "EMA", decay = 0.9 } },
}
]]

describe("EMA on ranks #ranks", function()
  local function leg(folder, ranks, steps, set, more)
    local flags = { "--out", "out" }
    for _, word in ipairs(more or {}) do flags[#flags + 1] = word end
    return job.run_in(folder, recipe, ranks, { steps = steps, set = set, flags = flags })
  end

  local function tested(stats) return stats.metrics.test.loss end

  it("holds parts with ZeRO, and is resumed on other ranks in another stage as if never stopped", function()
    local whole = shell.temporary_folder()
    local want = leg(whole, 1, 12)
    shell.remove(whole)
    for _, legs in ipairs {
      { { 3, "zero=1" }, { 2, "zero=2" }, { 1, "zero=0" } },
      { { 2, "zero={stage=3,whole_below=0}" }, { 2, "parallel={tensor={size=2,mode='1d'}}" }, { 3, "zero=2" } },
    } do
      local folder, last = shell.temporary_folder(), nil
      for i, l in ipairs(legs) do
        last = leg(folder, l[1], 4 * i, { l[2] }, i > 1 and { "--resume", "auto" } or nil)
      end
      shell.remove(folder)
      assert.is_true(math.abs(tested(last) - tested(want)) <= 1e-11 * math.abs(tested(want)), json.encode(legs))
    end
  end)

  it("begins with the weights of a checkpoint that has no averages, and says so", function()
    local folder = shell.temporary_folder()
    leg(folder, 1, 4, { "hooks={}" })
    local resumed = leg(folder, 1, 8, {}, { "--resume", "auto" })
    assert.truthy((resumed.out .. resumed.err):find("has no tensors of EMA", 1, true), resumed.out .. resumed.err)
    shell.write(folder .. "/plain.lua", (recipe:gsub("hooks = [^\n]*", "")))
    local words = { "run", "plain.lua", "--steps", "12", "--out", "out", "--resume", "auto" }
    local result = run_host(words, { cwd = folder })
    assert.equal(2, result.code)
    assert.truthy(result.err:find("was saved with the hook EMA", 1, true), result.err)
    shell.remove(folder)
  end)
end)
