--- Training holds its memory constant without the collector, and says who holds what when it does not fit.
-- luacheck: globals finally
local gm = require "ganymede"
local support = require "spec.train.support"

local shape = { width = 6, classes = 4, dropout = 0.1 }

local function build()
  local model = support.model(shape)
  local loader = support.loader { batches = 10, size = 8, width = 6, classes = 4 }
  local engine, train = gm.initialize {
    model = model, criterion = { type = "CrossEntropyLoss" }, train_dataloader = loader,
    optimizer = { type = "AdamW", lr = 1e-3 }, clip_grad_norm = 1,
  }
  return engine, train
end

-- Tables that live as long as the result does: a tokenizer, an index of a data set.
local function pad_lua_heap(megabytes)
  local before, pad = collectgarbage "count", {}
  while collectgarbage "count" - before < megabytes * 1024 do pad[#pad + 1] = { #pad, #pad } end
  return pad
end

local function canonical_epoch(engine, train, seen)
  for x, y in train:batches() do
    engine:zero_grad()
    engine:backward(engine:criterion(engine(x), y))
    engine:step()
    local memory = gm.memory()
    seen.live, seen.peak = memory.live, memory.peak
  end
end

describe("the memory of training", function()
  it("is constant over 1,000 steps with 50 MB of Lua objects and a stopped collector", function()
    collectgarbage()
    local engine, train = build()
    local pad = pad_lua_heap(50)
    collectgarbage "stop"
    finally(function() collectgarbage "restart" end)
    local early, late = {}, {}
    canonical_epoch(engine, train, early) -- moments and gradients are there now
    gm.memory_reset_peak()
    canonical_epoch(engine, train, early)
    for _ = 1, 98 do canonical_epoch(engine, train, late) end
    assert.equal(1000, engine.steps_done)
    assert.is_true(early.live > 0 and early.peak > early.live)
    assert.same(early, late)
    assert.is_true(#pad > 1000)
  end)

  it("is constant in the trainer too, evaluations and hooks included", function()
    collectgarbage()
    local engine, train = build()
    local pad = pad_lua_heap(50)
    local seen = {}
    local trainer = gm.trainer(engine)
    trainer.sink = function() end
    trainer:fit { train_dataloader = train, epochs = 100, test_dataloader = train, hooks = {
      { type = "AccuracyHook" }, { before_train_epoch = function()
        if trainer.epoch == 1 then gm.memory_reset_peak() end
        local memory = gm.memory()
        if trainer.epoch >= 2 then seen[#seen + 1] = memory.live .. " " .. memory.peak end
      end } } }
    assert.equal(98, #seen)
    for i = 2, #seen do assert.equal(seen[1], seen[i]) end
    assert.is_true(#pad > 1000)
  end)

  it("that does not suffice is an error with wanted, in use, limit and the largest holders", function()
    local held = gm.zeros { 10 }
    collectgarbage()
    local live = gm.memory().live
    gm.memory_limit(live + 300000)
    finally(function() gm.memory_limit(0) end)
    local ok, err = pcall(function()
      local model = support.model { width = 64, hidden = 64, classes = 4 }
      local loader = support.loader { batches = 1, size = 2000, width = 64, classes = 4 }
      local engine, train = gm.initialize { model = model, criterion = { type = "CrossEntropyLoss" },
                                            train_dataloader = loader, optimizer = { type = "AdamW" } }
      gm.trainer(engine):fit { train_dataloader = train, epochs = 1 }
    end)
    assert.is_false(ok)
    local text = tostring(err)
    assert.matches("out of memory", text)
    assert.matches("wanted", text)
    assert.matches("in use", text)
    assert.matches("limit", text)
    assert.matches("largest", text)
    gm.memory_limit(0)
    collectgarbage()
    assert.equal(live, gm.memory().live) -- and nothing is lost
    assert.equal(10, held:numel())
  end)
end)
