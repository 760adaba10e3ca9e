-- SGD and Adam over many tensors: every table against the reference, at the first step and a later one.
--
-- Parameters and gradients are in [-1, 1), second moments in [0.1, 1): an update is a sum of a few terms below 2, each
-- with some roundings.
local gm = require "ganymede"
local core = require "ganymede.core"
local support = require "spec.kernels.support"

local within = support.absolute(16, 2)
local shapes = { { 3 }, { 0 }, { 70, 33 }, { 5000 } }

-- What kernels read from the step block: that of an optimizer which has just made update number t.
local function at_step(t, lr, clip, loss_scale)
  local p = gm.zeros({ 1 }):requires_grad(true)
  local o = core.optimizer("sgd", { p }, {})
  o:set_steps(t - 1)
  o:step { lr = lr, clip = clip, loss_scale = loss_scale }
end

-- roles: "p" and "m", "v", "master" after it; false: absent. control: the control tensor, or nil; missed: another
local function update(op, dtypes, layout, roles, attrs, control, missed)
  local inputs, outputs = { control or false, missed or false }, { n = 0 }
  for _, dtype in ipairs(dtypes) do
    for _, shape in ipairs(shapes) do
      inputs[#inputs + 1] = support.input(shape, dtype, layout)
      for _, role in ipairs(roles) do
        local wide = role ~= "p" and support.wide(dtype) or dtype
        local absent = not role or role == "master" and wide == dtype
        outputs.n = outputs.n + 1
        outputs[outputs.n] = not absent and support.given(shape, wide, layout, role == "v" and 0.1 or nil) or false
      end
    end
  end
  support.agree { op = op, inputs = inputs, outputs = outputs, attrs = attrs, within = within }
end

describe("optimizers agree with ref:", function()
  for _, t in ipairs { 1, 3 } do
    for _, layout in ipairs { "contiguous", "window", "turned" } do
      it(("sgd and adam, step %d, %s"):format(t, layout), function()
        gm.scope(function()
          at_step(t, 0.01, 0.5, 4)
          update("sgd", support.dtypes, layout, { "p", false, false }, { weight_decay = 0.1 })
          update("sgd", support.dtypes, layout, { "p", "m", "master" },
            { momentum = 0.9, dampening = 0.25, weight_decay = 0.1 })
          update("sgd", support.dtypes, layout, { "p", "m", "master" }, { momentum = 0.9, nesterov = true })
          for _, decoupled in ipairs { false, true } do
            local attrs = { beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1, decoupled = decoupled }
            update("adam", support.dtypes, layout, { "p", "m", "v", "master" }, attrs)
            attrs.stochastic, attrs.stream = true, { key = 2 ^ 40 + 77, step = 0 }
            update("adam", { "bf16", "f16" }, layout, { "p", "m", "v", false }, attrs)
          end
          local control = support.numbers({ 0, 0, 0.3, 1, 4, 0, 1, 0, 0, 0, 0 }, layout)
          update("adam", support.dtypes, layout, { "p", "m", "v", "master" }, { lr_scale = 0.5, weight_decay = 0.1 },
            t > 1 and control or nil)
          update("sgd", support.dtypes, layout, { "p", "m", "master" }, { momentum = 0.9, lr_scale = 3 }, control)
          local missed = support.numbers { t - 1 } -- so that these tensors' first update is this one
          update("adam", support.dtypes, layout, { "p", "m", "v", "master" }, { beta1 = 0.8 }, nil, missed)
          update("sgd", support.dtypes, layout, { "p", "m", "master" }, { momentum = 0.9, dampening = 0.5 }, nil,
            missed)
        end)
      end)
    end
  end

  it("and change nothing where the control tensor says so", function()
    gm.scope(function()
      at_step(3, 0.01, 1, 1)
      local control = support.numbers { 0 / 0, 0 / 0, 0 / 0, 0, 4, 0, 1, 1, 0, 0, 0 }
      for op, roles in pairs { adam = { "p", "m", "v", "master" }, sgd = { "p", "m", "master" } } do
        local bits = core.run_op("ref", "fill", {}, { gm.empty { 70 } }, { value = 0.3 })[1]
        local outputs = { n = #roles }
        for k in ipairs(roles) do outputs[k] = k < #roles and support.copy(bits) or false end
        for _, backend in ipairs { "ref", unpack(support.backends) } do
          core.run_op(backend, op, { control, false, gm.ones { 70 } }, outputs, { momentum = 0.9 })
          for k = 1, #roles - 1 do
            support.compare(outputs[k], bits, support.exact, ("%s on %s, output %d"):format(op, backend, k))
          end
        end
      end
    end)
  end)

  -- 1 - 2^-14 is exact in f32 and between two numbers of 16 bits: which of them comes out is the word's choice alone.
  it("rounding by chance draws the same words", function()
    gm.scope(function()
      at_step(3, 2 ^ -14, 1, 1)
      for _, dtype in ipairs { "bf16", "f16" } do
        local n = 4099
        local function ones() return gm.ones({ n }, { dtype = dtype }) end
        local attrs = { stochastic = true, stream = { key = 2 ^ 40 + 78, step = 0 } }
        support.agree { op = "sgd", inputs = { false, false, ones() }, outputs = { n = 3, ones, false, false },
                        attrs = attrs, within = support.exact }
        local inputs, outputs = { false, false, ones() }, { n = 3, ones(), false, false }
        local p = core.run_op("ref", "sgd", inputs, outputs, attrs)[1]:to "f64"
        local moved = n - (p:eq(1)):to("f64"):sum():item()
        local share = 2 ^ -14 / -- of the distance between 1 and the number below it
          (dtype == "bf16" and 2 ^ -8 or 2 ^ -11)
        assert.is_true(math.abs(moved - n * share) < 6 * math.sqrt(n * share))
      end
    end)
  end)
end)
