--- Training in f16: gradients carry the loss scale and updates do not, overflows are left out, the scale grows and
-- backs off, and all of it goes through checkpoints.
--
-- Scales are powers of two, so that what a scale changes is underflow and overflow alone: everything between is exact.
local fit = require("ganymede.train.fit").fit
local gm = require "ganymede"
local numbers = require("spec.train.support").numbers
local resume = require "spec.resume.support"

local ops = gm.ops


local RATE = 2 ^ 20

local Vector = gm.nn.class("Vector", nil, false)
Vector.options = {}
function Vector:build() self:param("w", { 8 }, require("ganymede.nn.initializers").zeros()) end
function Vector:forward(x) return ops.sum(ops.mul(ops.cast(self.w, "f32"), x)) end

-- A model of one weight vector in f16, all 0.5; step(c) has the gradient c (0.5, 1, 0.5, 1 ...).
local function engine_of(fp16, options)
  local model = Vector {}
  model:materialize { dtype = "f16" }
  gm.no_grad(function() model.w:copy_(gm.full({ 8 }, 0.5, { dtype = "f16" })) end)
  local given = { model = model, fp16 = fp16, criterion = function(out) return out end,
                  optimizer = { type = "SGD", lr = RATE } }
  for key, value in pairs(options or {}) do given[key] = value end
  local engine = gm.initialize(given)
  local ramp = gm.tensor({ 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1 }, { dtype = "f32" }):keep()
  local function step(c)
    gm.scope(function()
      engine:zero_grad()
      engine:backward(engine(ops.mul(ramp, c)))
      engine:step()
    end)
    engine:settle() -- a GPU tells what it decided when the next step has been queued
  end
  return engine, step
end

-- What was taken off the weights, in units of the learning rate.
local function moved(engine)
  local out = {}
  for i, w in ipairs(numbers(engine.model)) do out[i] = (0.5 - w) / engine.optimizer.lr end
  return out
end

local function times(c) return { c / 2, c, c / 2, c, c / 2, c, c / 2, c } end

local tiny = 2 ^ -30 -- f16 ends at 2^-24

describe("gradients in f16", function()
  it("vanish without a loss scale", function()
    local engine, step = engine_of(false)
    step(tiny)
    assert.same(times(0), moved(engine))
    assert.is_nil(engine.loss_scaling)
  end)

  it("carry the scale, and updates do not", function()
    local engine, step = engine_of { initial_scale = 2 ^ 24 }
    step(tiny)
    assert.same(times(tiny * 2 ^ 24), engine.model.w:grad():totable())
    assert.same(times(tiny), moved(engine))
    assert.is_true(math.abs(engine.grad_norm / (tiny * math.sqrt(5)) - 1) < 1e-12)
    for _, p in ipairs { 1, 2, math.huge } do
      local want = p == 1 and 6 or p == 2 and math.sqrt(5) or 1
      assert.is_true(math.abs(engine:gradient_norm(p) / (want * tiny) - 1) < 1e-12, ("%g-norm"):format(p))
    end
  end)

  it("are clipped by what they are without it", function()
    for _, p in ipairs { 2, math.huge } do
      local engine, step = engine_of({ initial_scale = 2 ^ 10 }, { clip_grad_norm = 0.5, norm_type = p,
        optimizer = { type = "SGD", lr = 0.5 } })
      step(1)
      local norm = p == 2 and math.sqrt(5) or 1
      for i, v in ipairs(moved(engine)) do
        local want = times(1)[i] / 2 / norm
        assert.is_true(math.abs(v - want) < 2 ^ -11, v) -- weights are 2^-12 apart
      end
    end
  end)

  it("of a user's own backward pass carry it too, but for a given gradient; none once the engine is gone", function()
    local function gradient(seed)
      local w = gm.ones({ 2 }, { dtype = "f32" }):requires_grad(true)
      ops.sum(w):backward(seed)
      return w:grad():totable()
    end
    local engine = engine_of { initial_scale = 4 }
    assert.same({ 4, 4 }, gradient())
    assert.same({ 3, 3 }, gradient(gm.full({}, 3, { dtype = "f32" })))
    engine.control:close()
    assert.same({ 1, 1 }, gradient())
  end)

  it("of two engines in turn carry the scale of each", function()
    local one, step_one = engine_of { initial_scale = 2 ^ 10 }
    local other, step_other = engine_of(false)
    for _ = 1, 2 do
      step_one(2 ^ -10)
      step_other(2 ^ -10)
      assert.same(times(1), one.model.w:grad():totable())
      assert.same(times(2 ^ -10), other.model.w:grad():totable())
    end
    assert.same(moved(one), moved(other))
  end)
end)

describe("the loss scale", function()
  it("backs off when gradients overflow, and those steps change nothing", function()
    local engine, step = engine_of({ initial_scale = 2 ^ 20, backoff_factor = 0.25 },
      { optimizer = { type = "SGD", lr = 0.5 } })
    local scales = {}
    for i = 1, 4 do
      step(1 / 4) -- at 2^20 and 2^18 more than 65504, at 2^16 less
      scales[i] = engine.loss_scaling.scale
      if i < 3 then assert.same(times(0), moved(engine)) end
    end
    assert.same({ 2 ^ 18, 2 ^ 16, 2 ^ 16, 2 ^ 16 }, scales)
    assert.same({ 4, 2, 2 }, { engine.steps_done, engine.optimizer:steps(), engine.loss_scaling.overflows })
    assert.equal(0, engine.not_finite)
  end)

  it("backs off after a NaN loss too, as GradScaler's, and training goes on", function()
    local engine, step = engine_of({ initial_scale = 2 ^ 10 }, { optimizer = { type = "SGD", lr = 0.5 } })
    local scales = {}
    for i, c in ipairs { 2 ^ -4, 0 / 0, 1 / 0, 2 ^ -4 } do
      step(c)
      scales[i] = engine.loss_scaling.scale
    end
    assert.same({ 2 ^ 10, 2 ^ 9, 2 ^ 8, 2 ^ 8 }, scales)
    assert.same({ 4, 2, 2, 0 },
      { engine.steps_done, engine.optimizer:steps(), engine.loss_scaling.overflows, engine.not_finite })
    assert.same(times(2 ^ -3), moved(engine)) -- of the two steps that were made
  end)

  it("grows after updates in a row", function()
    local engine, step = engine_of { initial_scale = 2, growth_factor = 8, growth_interval = 3 }
    local scales = {}
    for i = 1, 7 do
      step(2 ^ -20)
      scales[i] = engine.loss_scaling.scale
    end
    assert.same({ 2, 2, 16, 16, 16, 128, 128 }, scales)
  end)

  it("of 1 is the end: what overflows then has diverged", function()
    local _, step = engine_of { initial_scale = 2 }
    step(2 ^ 17)
    local ok, why = pcall(step, 2 ^ 17)
    assert.is_false(ok)
    assert.equal(8, require("ganymede.base.failure").code(why))
    local other, nan = engine_of { initial_scale = 1 }
    assert.equal(8, require("ganymede.base.failure").code(select(2, pcall(nan, 0 / 0))))
    assert.equal(0, other.steps_done)
  end)

  it("reaches an optimizer that does not read the device, as the factor of its gradients", function()
    local engine, step = engine_of { initial_scale = 2 ^ 24, growth_interval = 1 }
    local given = {}
    engine.late = false
    engine.optimizer = setmetatable({ takes_control = false, step = function(_, settings)
      given[#given + 1] = settings.clip
    end }, { __index = engine.optimizer })
    for _ = 1, 2 do step(tiny) end
    step(1)
    assert.same({ 2 ^ -24, 2 ^ -25 }, given) -- and nothing for the step that overflowed
  end)

  it("is refused where it makes no sense", function()
    assert.error_matches(function() engine_of { initial_scale = 0 } end, "initial_scale")
    assert.error_matches(function() engine_of { growth = 2 } end, "growth")
  end)
end)

describe("a run in f16", function()
  after_each(resume.clean)

  local function run(folder, steps, from, changes)
    local all = { dtype = "f16", fp16 = { initial_scale = 2 ^ 28, growth_interval = 4 } }
    for key, value in pairs(changes or {}) do all[key] = value end
    finally(function() gm.set_default_dtype "f32" end)
    return fit(resume.config(all), { steps = steps, out = folder, resume = from, log = function() end })
  end

  it("is that in f32, within what f16 rounds", function()
    local narrow = run(resume.folder(), 20, nil, { fp16 = { init_scale = 64 } })
    local wide = run(resume.folder(), 20, nil, { dtype = "f32", fp16 = false })
    for i, loss in ipairs(wide.losses) do
      -- 2^-11 a rounding, some ten of them on the way
      assert.is_true(math.abs(narrow.losses[i] / loss - 1) < 10 * 2 ^ -11, ("step %d"):format(i))
    end
    assert.is_true(narrow.losses[20] < 0.95 * narrow.losses[1])
    assert.equal("f16", narrow.engine.parameters[1]:dtype())
  end)

  it("resumes with the same bits, scale and all, behind overflows and growth", function()
    local whole, folder = run(resume.folder(), 20), resume.folder()
    local first = run(folder, 10)
    local second = run(folder, 20, "auto")
    assert.is_true(first.engine.loss_scaling.overflows > 3)
    assert.same(whole.losses, resume.joined(first.losses, second.losses))
    assert.same(numbers(whole.engine.model), numbers(second.engine.model))
    assert.same(whole.engine.loss_scaling:state(), second.engine.loss_scaling:state())
    assert.is_true(whole.losses[20] < whole.losses[5])
  end)
end)
