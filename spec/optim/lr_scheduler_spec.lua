--- Learning rates against PyTorch's (golden_lr.json, written by golden_lr.py), position and state.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local lr_scheduler = require "ganymede.lr_scheduler"

local folder = debug.getinfo(1, "S").source:match "^@(.*)lr_scheduler_spec%.lua$"

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

local golden = json.decode(read(folder .. "golden_lr.json"), "golden_lr.json")

-- the function that golden_lr.py calls decay
local function decay(s) return s % 3 ~= 0 and 0.97 or 1.01 end

local function options_of(case)
  local opt = {}
  for name, value in pairs(case.options) do opt[name] = value == "decay" and decay or value end
  return opt
end

local function optimizer(lr)
  return { lr = lr, set_momentum = function(self, value) self.momentum = value end }
end

-- f64 rounding of at most 50 recursive updates, all rates below 1: 50 * 2^-53 is 6e-15
local allowed = 1e-12

describe("learning-rate schedules", function()
  local level = log.level
  setup(function() log.level = 1 end) -- some golden tables have milestones inside the warm-up, which is said
  teardown(function() log.level = level end)

  it("are all there", function()
    local expected = { "CosineAnnealingLR", "CosineAnnealingWarmupLR", "ExponentialLR", "FlatAnnealingLR",
      "FlatAnnealingWarmupLR", "LambdaLR", "LinearWarmupLR", "MultiStepLR", "MultiStepWarmupLR", "MultiplicativeLR",
      "OneCycleLR", "PolynomialLR", "PolynomialWarmupLR", "StepLR" }
    local seen = {}
    for _, case in ipairs(golden) do seen[case.type] = true end
    for _, name in ipairs(expected) do
      assert.is_true(require("ganymede.base.registry").lr_schedulers:has(name), name)
      assert.is_true(seen[name], name .. " has no golden table")
    end
  end)

  for index, case in ipairs(golden) do
    it(("%s equals PyTorch (case %d)"):format(case.type, index), function()
      local opt = optimizer(case.base)
      local s = lr_scheduler[case.type](options_of(case), opt)
      assert.is_true(#case.lr >= 40)
      for step, want in ipairs(case.lr) do
        assert.near(want, opt.lr, allowed, ("step %d"):format(step - 1))
        if case.momentum then assert.near(case.momentum[step], opt.momentum, allowed) end
        s:step()
      end
    end)

    it(("%s asked out of order gives the same bits (case %d)"):format(case.type, index), function()
      local s = lr_scheduler[case.type](options_of(case), optimizer(case.base))
      local in_order = {}
      for step = 0, 39 do in_order[step] = s:lr(step) end
      local other = lr_scheduler[case.type](options_of(case), optimizer(case.base))
      for step = 39, 0, -1 do assert.equal(in_order[step], other:lr(step)) end
    end)

    for _, at in ipairs { 0, 4, 5, 6, 39 } do
      it(("%s resumes at step %d with the identical tail (case %d)"):format(case.type, at, index), function()
        local first = optimizer(case.base)
        local s = lr_scheduler[case.type](options_of(case), first)
        for _ = 1, at do s:step() end
        local stored = json.decode(json.encode(s:state())) -- what a checkpoint does to it
        local second = optimizer(123)
        local changed = options_of(case)
        if changed.total_steps then changed.total_steps = 77 end
        local resumed = lr_scheduler[case.type](changed, second)
        resumed:load_state(stored)
        for _ = at, 45 do
          assert.equal(first.lr, second.lr)
          assert.equal(first.momentum, second.momentum)
          s:step()
          resumed:step()
        end
        assert.same(s:state(), resumed:state())
      end)
    end
  end

  it("keep the last rate beyond the end", function()
    for _, name in ipairs { "CosineAnnealingLR", "FlatAnnealingLR", "PolynomialLR", "LinearWarmupLR", "OneCycleLR" } do
      local s = lr_scheduler[name]({ total_steps = 10 }, optimizer(1))
      assert.equal(s:lr(10), s:lr(25), name)
    end
  end)

  it("refuse an end above the optimizer's rate, to which it would rise", function()
    local cases = { CosineAnnealingLR = { total_steps = 9, eta_min = 0.2 }, PolynomialLR = { total_steps = 9,
      end_lr = 0.2 }, FlatAnnealingWarmupLR = { total_steps = 9, warmup_steps = 2, eta_min = 0.2 },
      PolynomialWarmupLR = { total_steps = 9, warmup_steps = 2, end_lr = 0.2 },
      DelayerScheduler = { total_steps = 9, delay_steps = 2, after = { type = "CosineAnnealingLR", eta_min = 0.2 } } }
    for name, given in pairs(cases) do
      lr_scheduler[name](given, optimizer(0.2)) -- at most is good
      assert.error_matches(function() lr_scheduler[name](given, optimizer(0.1)) end,
        "is 0.2, above the optimizer's rate of 0.1, so that the rate would rise", nil, name)
    end
    local s = lr_scheduler.PolynomialLR({ total_steps = 9 }, optimizer(1e-5)) -- ends at 0, as PyTorch's
    assert.equal(0, s:lr(9))
  end)

  it("refuse a state of another type and stay as they are", function()
    local opt = optimizer(1)
    local s = lr_scheduler.CosineAnnealingWarmupLR({ total_steps = 10, warmup_steps = 2 }, opt)
    s:step()
    local before = s:state()
    local foreign = lr_scheduler.StepLR({}, optimizer(1)):state()
    assert.error_matches(function() s:load_state(foreign) end, "CosineAnnealingWarmupLR: the state belongs to StepLR")
    local broken = s:state()
    broken.after.type = "StepLR"
    broken.position = 7
    assert.error_matches(function() s:load_state(broken) end, "CosineAnnealingLR: the state belongs to StepLR")
    local nonsense = s:state()
    nonsense.options.total_steps = 0
    assert.error_matches(function() s:load_state(nonsense) end, "total_steps")
    assert.same(before, s:state())
  end)

  it("are cut off inside their warm-up by a run that is too short for it", function()
    for _, name in ipairs { "CosineAnnealingWarmupLR", "FlatAnnealingWarmupLR", "PolynomialWarmupLR" } do
      local s = lr_scheduler[name]({ total_steps = 4, warmup_steps = 8 }, optimizer(1))
      for step = 0, 4 do assert.equal((step + 1) / 8, s:lr(step)) end
    end
    local s = lr_scheduler.LinearWarmupLR({ total_steps = 4, warmup_steps = 4 }, optimizer(1))
    for step = 0, 3 do assert.equal((step + 1) / 5, s:lr(step)) end
    assert.equal(0, s:lr(4))
  end)

  -- As PyTorch's MultiStepLR, begun where the warm-up ends, takes a milestone of 0.
  it("drop at a milestone that is the end of the warm-up, and not at one inside", function()
    local function rates(milestones)
      local s = lr_scheduler.MultiStepWarmupLR({ total_steps = 9, warmup_steps = 4, milestones = milestones,
        gamma = 0.5 }, optimizer(1))
      return { s:lr(3), s:lr(4), s:lr(5), s:lr(6) }
    end
    assert.same({ 1, 0.5, 0.5, 0.25 }, rates { 4, 6 })
    assert.same({ 1, 1, 1, 0.5 }, rates { 3, 6 })
  end)

  it("say which milestones the warm-up swallows, once", function()
    local info, said = log.info, {}
    finally(function() log.info = info end)
    log.info = function(...) said[#said + 1] = (...):format(select(2, ...)) end
    local function make(milestones)
      local opt = { total_steps = 9, warmup_steps = 4, milestones = milestones }
      return lr_scheduler.MultiStepWarmupLR(opt, optimizer(1))
    end
    make { 4, 6 }
    assert.same({}, said)
    local s = make { 1, 3, 6 }
    s:load_state(s:state())
    assert.equal(1, #said)
    assert.matches("does not drop at 1, 3, inside the warm-up of 4 steps", said[1], 1, true)
    assert.error_matches(function() make { 5, "six" } end, "MultiStepWarmupLR: milestones%[2%] must be a step")
  end)

  it("take total_steps and warmup_epochs from the run", function()
    local run = { total_steps = 30, steps_per_epoch = 10 }
    local s = lr_scheduler.LinearWarmupLR({ warmup_epochs = 0.5 }, optimizer(1), run)
    assert.equal(5, s.opt.warmup_steps)
    assert.equal(30, s.opt.total_steps)
  end)

  it("say what is wrong with their options", function()
    assert.error_matches(function() lr_scheduler.CosineAnnealingLR({}, optimizer(1)) end, "total_steps' is missing")
    assert.error_matches(function() lr_scheduler.StepLR({ stepsize = 3 }, optimizer(1)) end, "did you mean 'step_size'")
    assert.error_matches(function() lr_scheduler.MultiStepLR({ milestones = { 1.5 } }, optimizer(1)) end,
      "milestones%[1%] must be a step")
    assert.error_matches(function()
      lr_scheduler.MultiStepWarmupLR({ total_steps = 9, warmup_steps = 4, milestones = { 1, "a" } }, optimizer(1))
    end, "milestones%[2%] must be a step, a whole number from 0; got a")
    for _, name in ipairs { "base_momentum", "max_momentum" } do
      assert.error_matches(function()
        lr_scheduler.OneCycleLR({ total_steps = 9, cycle_momentum = false, [name] = 0.5 }, optimizer(1))
      end, "OneCycleLR: " .. name .. " has no effect with cycle_momentum = false")
    end
    assert.error_matches(function() lr_scheduler.OneCycleLR({ total_steps = 10, pct_start = 0.1 }, optimizer(1)) end,
      "is one step, in which the rate cannot rise")
  end)

  -- warm-up (s + 1) / W, D steps at the full rate, then the other schedule from its own step 0, written out here
  local function around(step, warmup, delay, after)
    if step < warmup then return (step + 1) / warmup * 0.2 end
    if step < warmup + delay then return 0.2 end
    return after(step - warmup - delay)
  end

  for name, given in pairs { WarmupScheduler = { 4, 0 }, DelayerScheduler = { 0, 3 },
                             WarmupDelayerScheduler = { 4, 3 } } do
    local warmup, delay = given[1], given[2]
    local function options_with(after)
      return { warmup_steps = warmup > 0 and warmup or nil, delay_steps = delay > 0 and delay or nil, after = after }
    end

    it(name .. " runs another schedule after it, which counts from 0", function()
      local opt = optimizer(0.2)
      local after = { type = "CosineAnnealingLR", eta_min = 0.01 }
      local s = lr_scheduler[name](options_with(after), opt, { total_steps = 30 })
      local left = 30 - warmup - delay
      for step = 0, 30 do
        assert.near(around(step, warmup, delay, function(n)
          return 0.01 + 0.19 * (1 + math.cos(math.pi * n / left)) / 2
        end), opt.lr, allowed, ("step %d"):format(step))
        s:step()
      end
    end)

    it(name .. " resumes in each of its parts, functions included", function()
      local function new(opt)
        return lr_scheduler[name](options_with { type = "LambdaLR", lr_lambda = function(n) return 0.5 ^ n end }, opt)
      end
      for _, at in ipairs { 0, 2, 5, 9 } do
        local first, second = optimizer(0.2), optimizer(7)
        local s, resumed = new(first), new(second)
        s:seek(at)
        resumed:load_state(json.decode(json.encode(s:state()), "state"))
        for step = at, at + 10 do
          assert.equal(first.lr, second.lr)
          assert.near(around(step, warmup, delay, function(n) return 0.2 * 0.5 ^ n end), second.lr, allowed)
          s:step()
          resumed:step()
        end
      end
    end)
  end

  it("refuse a factor that is no rate: of LambdaLR and MultiplicativeLR", function()
    local wrong = { ["nothing"] = "nil", ["-0.5"] = -0.5, ["nan"] = 0 / 0, ["inf"] = math.huge, ['"a"'] = "a" }
    for _, name in ipairs { "LambdaLR", "MultiplicativeLR" } do
      for said, value in pairs(wrong) do
        local function factor(step)
          if step < 2 then return 1 end
          if said ~= "nothing" then return value end
        end
        local s = lr_scheduler[name]({ lr_lambda = factor }, optimizer(0.2))
        local got = said == "nothing" and value or said
        assert.error_matches(function() s:seek(2) end,
          name .. ": lr_lambda(2) must return a number from 0; it returned " .. got, 1, true)
      end
    end
  end)

  it("around another name one that exists", function()
    local given = { delay_steps = 1, after = { type = "CosinLR" } }
    assert.error_matches(function() lr_scheduler.DelayerScheduler(given, optimizer(1)) end, "no type 'CosinLR'")
    given.after = { eta_min = 0 }
    assert.error_matches(function() lr_scheduler.DelayerScheduler(given, optimizer(1)) end,
      "option 'after' must be a table { type")
  end)

  it("can be the user's own", function()
    local Halving = lr_scheduler.class("SpecHalvingLR", { every = { type = "integer", min = 1 } })
    function Halving:at(step, lr) return lr * 0.5 ^ math.floor(step / self.opt.every) end
    local opt = optimizer(8)
    local s = require("ganymede.base.registry").lr_schedulers:build({ type = "SpecHalvingLR", every = 2 }, opt)
    s:step()
    assert.equal(8, opt.lr)
    s:step()
    assert.equal(4, opt.lr)
    local Derived = lr_scheduler.class("SpecDerivedLR", { steps = { type = "integer" } })
    function Derived:build(options) self.slope = 1 / options.steps end
    function Derived:at(step, lr) return lr * (1 - step * self.slope) end
    local derived = Derived({ steps = 10 }, optimizer(1))
    derived:load_state(Derived({ steps = 4 }, optimizer(1)):seek(1):state())
    assert.equal(0.75, derived:lr())
  end)
end)
