--- A run that is stopped at the end of an epoch, before what comes there, makes up for it when it goes on: the points
-- after_train_epoch and evaluations come once each, as in a run that was never stopped, and end it where that ended.
--
-- A checkpoint of the last step of an epoch is saved before these. Files are what a user sees, so they are compared.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local checkpoint = require "ganymede.checkpoint"
local failure = require "ganymede.base.failure"
local fit = require("ganymede.train.fit").fit
local gm = require "ganymede"
local support = require "spec.resume.support"

-- Ends the run with an error at a step: "step" at once, "epoch" at the end of the epoch, "test" in its evaluation.
local Crash = gm.hooks.class("EndsCrash", { at = { type = "integer", default = 0 },
  where = { type = "string", default = "step" } }, { priority = 90, needs_output = false })

local function crash(hook, trainer, where)
  if trainer.step == hook.opt.at and hook.opt.where == where then error("a crash", 0) end
end

function Crash:after_train_iter(trainer) crash(self, trainer, "step") end
function Crash:after_train_epoch(trainer) crash(self, trainer, "epoch") end
function Crash:after_test(trainer) crash(self, trainer, "test") end

-- Counts the ends of epochs, as a schedule of one's own would: the count is a part of the state.
local Ends = gm.hooks.class("EndsCount", {}, { needs_output = false })

function Ends:build() self.ends = 0 end

function Ends:after_train_epoch(trainer)
  self.ends = self.ends + 1
  trainer.metrics.train.ends = self.ends
end

function Ends:state() return { ends = self.ends } end
function Ends:load_state(state) self.ends = state.ends end

-- Epochs of 4 steps. opt: at, where (of Crash), resume, patience, min_delta, test_interval, interval of checkpoints
-- (default: 4; false: at the ends of epochs), stop (the step after which it is asked to stop).
local function run(folder, opt)
  local events, stats = {}, {}
  local config = support.config { gradient_accumulation = 1, epochs = 3, lr_scheduler = false,
    test_interval = opt.test_interval, hooks = { { type = "LossHook" }, { type = "EndsCount" },
      { type = "EarlyStopHook", patience = opt.patience or 9, min_delta = opt.min_delta },
      { type = "CheckpointHook", interval = opt.interval == nil and 4 or opt.interval or nil, keep_last = 99 },
      { type = "EndsCrash", at = opt.at, where = opt.where } } }
  config.lr_scheduler = nil
  config.data.batch_size, config.data.train.length = 8, 30
  local ok, result = pcall(fit, config, { out = folder, resume = opt.resume, log = function() end, stats = stats,
    record = function(event) events[#events + 1] = event end,
    stop_requested = opt.stop and function() return stats.steps == opt.stop end })
  if not ok and not (opt.at or opt.stop) then error(result, 0) end
  return { trainer = ok and result, code = not ok and failure.code(result), events = events }
end

-- The evaluations among events, as texts.
local function tests(...)
  local out = {}
  for _, events in ipairs { ... } do
    for _, event in ipairs(events) do
      if event.test then out[#out + 1] = ("%d %.17g"):format(event.step, event.test.loss) end
    end
  end
  return out
end

local function last_step(folder)
  local list = checkpoint.list(folder .. "/checkpoints")
  return list[#list].step
end

describe("a run that stops at the end of an epoch", function()
  after_each(support.clean)

  local places = { { "before its points", "step" }, { "behind them, before its evaluation", "epoch", false },
    { "in its evaluation", "test" } }
  for _, place in ipairs(places) do
    it("evaluates there when it goes on: " .. place[1], function()
      local whole, folder = run(support.folder(), {}), support.folder()
      local first = run(folder, { at = 4, where = place[2], interval = place[3] })
      local second = run(folder, { resume = "auto", interval = place[3] })
      local expected, found = tests(whole.events), tests(first.events, second.events)
      assert.equal(3, #expected)
      assert.same(expected, found)
      assert.same(whole.trainer.metrics, second.trainer.metrics) -- as often after_train_epoch
      assert.equal(3, second.trainer.metrics.train.ends)
    end)
  end

  it("evaluates there only where it is due", function()
    local whole, folder = run(support.folder(), { test_interval = 2 }), support.folder()
    local first = run(folder, { at = 4, test_interval = 2 })
    local second = run(folder, { at = 8, resume = "auto", test_interval = 2 })
    local third = run(folder, { resume = "auto", test_interval = 2 })
    assert.equal(2, #tests(whole.events))
    assert.same({ {}, {}, tests(whole.events) }, { tests(first.events), tests(second.events), tests(third.events) })
    assert.same(whole.trainer.metrics, third.trainer.metrics)
  end)

  it("was asked to, and evaluates when it goes on", function()
    local whole, folder = run(support.folder(), {}), support.folder()
    local first = run(folder, { stop = 8 })
    assert.equal(75, first.code)
    local second = run(folder, { resume = "auto" })
    assert.same(tests(whole.events), tests(first.events, second.events))
    assert.same(whole.trainer.metrics, second.trainer.metrics)
  end)

  it("has not ended an epoch where it stops in the middle of it", function()
    local whole, folder = run(support.folder(), {}), support.folder()
    assert.equal(75, run(folder, { stop = 6 }).code)
    assert.same(whole.trainer.metrics, run(folder, { resume = "auto" }).trainer.metrics)
  end)

  it("ends early where it would have ended", function()
    local function early(folder, opt)
      opt.patience, opt.min_delta = 1, 100
      return run(folder, opt)
    end
    local whole, folder = early(support.folder(), {}), support.folder()
    assert.equal(8, whole.trainer.step) -- the second evaluation is no better
    for _, at in ipairs { 4, 8 } do
      early(folder, { at = at, resume = "auto" })
      assert.equal(at, last_step(folder))
    end
    local last = early(folder, { resume = "auto" })
    assert.same({ 8, 8 }, { last.trainer.step, last_step(folder) })
    assert.equal(whole.trainer.states.best_step, last.trainer.states.best_step)
  end)

  it("that has ended early is over, and goes on with more patience", function()
    local folder = support.folder()
    local opt = { patience = 1, min_delta = 100, interval = 99 } -- one checkpoint, behind the last evaluation
    assert.equal(8, run(folder, opt).trainer.step)
    opt.resume = "auto"
    assert.equal(8, run(folder, opt).trainer.step)
    opt.patience = 2
    local on = run(folder, opt).trainer
    assert.same({ 12, 4 }, { on.step, on.states.best_step })
  end)
end)
