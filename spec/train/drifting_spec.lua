--- Ranks that would make different updates: a schedule, a hook or a loop that gives each rank another learning rate,
-- momentum, weight decay or clipping. The step ends the run before it changes anything, and names them.
-- ranks: 3
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"

local rank, world = core.rank(), core.world()

-- opt.scheduler: of gm.initialize. opt.late: the numbers of a step come late, as on a GPU.
local function build(opt)
  gm.context.load_config {}
  core.set_seed(5)
  local engine, _, _, scheduler = gm.initialize {
    model = gm.nn.Linear(4, 3), criterion = { type = "CrossEntropyLoss" }, lr_scheduler = opt.scheduler,
    optimizer = opt.optimizer or { type = "SGD", lr = 0.5, momentum = 0.9 }, clip_grad_norm = opt.clip,
  }
  engine.late, engine.ahead = opt.late or engine.late, opt.late or engine.ahead
  return engine, scheduler
end

local function step(engine, scheduler)
  gm.scope(function()
    engine:zero_grad()
    local x = gm.uniform({ 6, 4 }, { seed = engine.steps_done })
    engine:backward(engine:criterion(engine(x), gm.tensor({ 0, 1, 2, 0, 1, 2 }, { dtype = "i64" })))
    engine:step()
  end)
  if scheduler then scheduler:step() end
end

local function weights(engine) return engine.parameters[1]:detach():clone():totable() end

-- What ends the run after `good` steps that do not. between(engine): what a loop does before each step.
local function ends(opt, good)
  local engine, scheduler = build(opt)
  local before
  local ok, err = pcall(function()
    for s = 1, good + 3 do
      if opt.between then opt.between(engine, s) end
      if s == good + 1 then before = weights(engine) end
      step(engine, scheduler)
    end
  end)
  assert.is_false(ok, "no step ended the run")
  assert.is_true(failure.is(err), tostring(err))
  assert.equal(1, err.exit_code)
  assert.is_true(err.agreed)
  assert.equal(good, engine.steps_done)
  assert.same(before, weights(engine))
  return failure.text(err)
end

describe("ranks that would make different updates", function()
  for _, late in ipairs { false, true } do
    local when = late and ", one step late" or ""

    it("are refused where a schedule's function differs" .. when, function()
      local text = ends({ late = late, scheduler = { type = "LambdaLR", lr_lambda = function(s)
        return s == 2 and rank == 1 and 0.5 or 1
      end } }, 2)
      assert.matches("^step 3: the ranks would make different updates", text)
      assert.matches("learning rate is 0.5 on ranks 0, 2; 0.25 on rank 1", text, 1, true)
      assert.not_matches("momentum", text)
      assert.matches("math.random", text, 1, true)
    end)

    it("are refused where a loop sets the rate on one rank" .. when, function()
      local text = ends({ late = late, between = function(engine, s)
        if s == 2 and rank == world - 1 then engine.optimizer.lr = 0.5 * (1 + 2 ^ -52) end
      end }, 1)
      assert.matches("^step 2: ", text)
      assert.matches("learning rate is 0.5 on ranks 0, 1; 0.5000000000000001 on rank 2", text, 1, true)
    end)
  end

  it("are refused where each rank has another rate, of which one is the mean of the others", function()
    local text = ends({ between = function(engine, s) engine.optimizer.lr = s == 1 and 1 or 1 + rank / 4 end }, 1)
    assert.matches("learning rate is 1 on rank 0; 1.25 on rank 1; 1.5 on rank 2", text, 1, true)
  end)

  it("are refused where momentum, weight decay or clipping differ", function()
    local text = ends({ between = function(engine) engine.optimizer:set_momentum(rank == 0 and 0.5 or 0.75) end }, 0)
    assert.matches("momentum is 0.5 on rank 0; 0.75 on ranks 1, 2", text, 1, true)
    text = ends({ optimizer = { type = "CAME", lr = 0.1 }, between = function(engine, s)
      engine.optimizer.opt.weight_decay = s * (rank == 1 and 1e-3 or 1e-4)
    end }, 0)
    assert.matches("weight decay is 0.0001 on ranks 0, 2; 0.001 on rank 1", text, 1, true)
    text = ends({ clip = 1, between = function(engine, s)
      engine.clip_grad_norm = s > 1 and rank == 2 and 2 or 1
    end }, 1)
    assert.matches("clip_grad_norm is 1 on ranks 0, 1; 2 on rank 2", text, 1, true)
  end)

  it("are refused where a schedule of ours is moved, or differs, on one rank", function()
    local text = ends({ scheduler = { type = "StepLR", step_size = 2, gamma = 0.5 }, between = function(engine, s)
      if s == 4 and rank == 1 then engine.lr_scheduler:step() end
    end }, 3)
    assert.matches("learning rate is 0.25 on ranks 0, 2; 0.125 on rank 1", text, 1, true)
    text = ends({ scheduler = { type = "StepLR", step_size = 1, gamma = rank == 0 and 0.5 or 0.25 } }, 0)
    assert.matches("^step 1: ", text)
    assert.matches("schedule is .*gamma = 0.5.*, moved 0 times.* on rank 0; .*gamma = 0.25.* on ranks 1, 2", text)
    text = ends({ scheduler = { type = "StepLR", step_size = 1, gamma = 0.5 }, between = function(engine, s)
      if s == 2 and rank == 2 then engine.optimizer.lr = 0.5 end -- the schedule's base
    end }, 1)
    assert.matches("learning rate is 0.25 on ranks 0, 1; 0.5 on rank 2", text, 1, true)
  end)

  it("can go on after the error", function()
    local engine = build {}
    step(engine)
    engine.optimizer.lr = 0.5 + rank
    assert.is_false((pcall(step, engine)))
    engine.optimizer.lr = 0.25
    step(engine)
    assert.equal(2, engine.steps_done)
  end)
end)

describe("ranks that make the same updates", function()
  -- The messages of a step, by operation and size, from the second step on.
  local function messages(opt)
    local engine, scheduler = build(opt)
    step(engine, scheduler)
    core.comm_reset_traffic()
    for _ = 1, 3 do step(engine, scheduler) end
    local n = 0
    for _, entry in ipairs(core.comm_traffic()) do n = n + entry.calls end
    return n
  end

  it("pay no message for it, whatever the schedule", function()
    local none = messages {}
    assert.is_true(none > 0)
    assert.equal(none, messages { scheduler = { type = "OneCycleLR", total_steps = 10 } })
    assert.equal(none, messages { scheduler = { type = "LambdaLR", lr_lambda = function(s) return 1 / (1 + s) end } })
  end)
end)
