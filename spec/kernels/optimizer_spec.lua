-- Optimizers over many tensors: every table against the reference, at the first step and a later one.
--
-- Parameters and gradients are in [-1, 1), second moments in [0.1, 1): an update is a sum of a few terms below 2, each
-- with some roundings.
local ffi = require "ffi"
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

-- A mean so small that its square is below every v, in which case a root would be of what rounding leaves.
local function small(shape, dtype, layout)
  local make = support.given(shape, dtype, layout)
  return function() return core.run_op("ref", "affine", { n = 1, (make()) }, { n = 1, true }, { alpha = 0.25 })[1] end
end

-- Blocks of 256 and less; rows that are longer than a block, and several dimensions that are one row.
local coded_shapes = { { 3 }, { 0 }, { 70, 33 }, { 5000 }, { 3, 300 }, { 4, 8, 5, 9 } }

local function zeros(shape, dtype, layout)
  return core.run_op("ref", "affine", { n = 1, support.input(shape, dtype, layout) }, { n = 1, true }, { alpha = 0 })[1]
end

-- A moment of this shape in 8 bits: any codes, scales in [0.5, 1).
local function states_in_8_bits(shape)
  local n, columns = 1, 1
  for d = #shape, 1, -1 do
    columns, n = columns < 256 and columns * shape[d] or columns, n * shape[d]
  end
  local blocks = n > 0 and n / columns * math.ceil(columns / 256) or 0
  local at = math.ceil(n / 4) * 4
  local codes = support.integers({ at + 4 * blocks }, "u8", 0, 255)
  local scales = support.input({ blocks }, "f32", nil, 0.5, 1)
  if blocks > 0 then ffi.copy(ffi.cast("char *", codes:data()) + at, scales:data(), 4 * blocks) end
  return function() return support.copy(codes) end
end

-- roles: "p" and "m", "v", "mean", "master" after it; false: absent. control: the control tensor, or nil; missed:
-- another
local function update(op, dtypes, layout, roles, attrs, control, missed)
  local inputs, outputs = { control or false, missed or false }, { n = 0 }
  for _, dtype in ipairs(dtypes) do
    for _, shape in ipairs(shapes) do
      inputs[#inputs + 1] = support.input(shape, dtype, layout)
      for k = 1, #roles + 1 do -- the last is trust
        local role = roles[k]
        local wide = role ~= "p" and support.wide(dtype) or dtype
        local absent = not role or role == "master" and wide == dtype
        outputs.n = outputs.n + 1
        local given = role == "mean" and small or support.given
        outputs[outputs.n] = not absent and given(shape, wide, layout, role == "v" and 0.1 or nil) or false
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
            update("adam", support.dtypes, layout, { "p", "m", "v", false, "master" }, attrs)
            attrs.stochastic, attrs.stream = true, { key = 2 ^ 40 + 77, step = 0 }
            update("adam", { "bf16", "f16" }, layout, { "p", "m", "v", false, false }, attrs)
          end
          local control = support.numbers({ 0, 0, 0.3, 1, 4, 0, 1, 0, 0, 0, 0 }, layout)
          update("adam", support.dtypes, layout, { "p", "m", "v", false, "master" },
            { lr_scale = 0.5, weight_decay = 0.1 }, t > 1 and control or nil)
          update("sgd", support.dtypes, layout, { "p", "m", "master" }, { momentum = 0.9, lr_scale = 3 }, control)
          local missed = support.numbers { t - 1 } -- so that these tensors' first update is this one
          update("adam", support.dtypes, layout, { "p", "m", "v", false, "master" }, { beta1 = 0.8 }, nil, missed)
          update("sgd", support.dtypes, layout, { "p", "m", "master" }, { momentum = 0.9, dampening = 0.5 }, nil,
            missed)
        end)
      end)
    end
  end

  -- The roots of RMSprop are near 0 where a gradient is about its mean: an eps of 0.1 bounds what a rounding does.
  for _, t in ipairs { 1, 3 } do
    for _, layout in ipairs { "contiguous", "window", "turned" } do
      it(("rmsprop, adagrad and amsgrad, step %d, %s"):format(t, layout), function()
        gm.scope(function()
          at_step(t, 0.01, 0.5, 4)
          update("rmsprop", support.dtypes, layout, { "p", "v", false, false, "master" }, { beta2 = 0.9, eps = 0.1 })
          update("rmsprop", support.dtypes, layout, { "p", "v", "m", "mean", "master" },
            { beta2 = 0.9, eps = 0.1, momentum = 0.8, centered = true, weight_decay = 0.1, maximize = true })
          update("adagrad", support.dtypes, layout, { "p", "v", "master" },
            { eps = 0.01, lr_decay = 0.5, weight_decay = 0.1, decoupled = true })
          update("adam", support.dtypes, layout, { "p", "m", "v", "v", "master" },
            { eps = 1e-3, amsgrad = true, bias_correction = t == 1, maximize = true })
        end)
      end)
    end
  end

  -- A sign leaps where the reference rounds another way, so that moments, gradients and betas are whole numbers and
  -- powers of 2, with which nothing is rounded: the sign's argument is 0 now and then.
  it("lion", function()
    gm.scope(function()
      at_step(3, 2 ^ -6, 1, 2)
      for _, dtype in ipairs(support.dtypes) do
        for _, layout in ipairs { "contiguous", "window", "turned" } do
          local wide = support.wide(dtype)
          local function whole(to, low, high) return support.integers({ 70, 33 }, "i64", low, high, layout):to(to) end
          local m = whole(wide, -2, 2)
          local outputs = { n = 4, support.given({ 70, 33 }, dtype, layout), function() return support.copy(m) end,
                            dtype ~= wide and support.given({ 70, 33 }, wide, layout) or false, false }
          support.agree { op = "lion", inputs = { false, false, whole(dtype, -4, 4) }, outputs = outputs,
                          attrs = { beta1 = 0.5, beta2 = 0.75, decoupled = true, weight_decay = 0.5 },
                          within = within }
        end
      end
    end)
  end)

  -- A code leaps where the reference rounds another way. So gradients are 0 or there are no moments yet, and decays are
  -- powers of 2: what is encoded is then exact, and codes and scales are the same bits. Weights are rounded as always.
  for _, t in ipairs { 1, 3 } do
    for _, layout in ipairs { "contiguous", "window", "turned" } do
      it(("states in 8 bits, step %d, %s"):format(t, layout), function()
        gm.scope(function()
          at_step(t, 0.01, 0.5, 4)
          for _, dtype in ipairs { "f32", "bf16", "f16" } do
            for _, shape in ipairs(coded_shapes) do
              local function g() return (t == 1 and support.input or zeros)(shape, dtype, layout) end
              local p, master = support.given(shape, dtype, layout), false
              if dtype ~= "f32" then master = support.given(shape, "f32", layout) end
              local function agree(op, outputs, attrs, control)
                attrs.states = 2
                support.agree { op = op, inputs = { control or false, false, g() }, outputs = outputs, attrs = attrs,
                                within = within, aligned = true }
              end
              local function coded(fresh) return states_in_8_bits(shape, fresh) end
              agree("sgd", { n = 4, p, coded(), master, false }, { momentum = 0.5 })
              if t == 3 then
                agree("adam", { n = 6, p, coded(), coded(), coded(), master, false },
                  { beta1 = 0.5, beta2 = 0.5, eps = 0.1, amsgrad = true })
                agree("rmsprop", { n = 6, p, coded(), coded(), false, master, false },
                  { beta2 = 0.25, momentum = 0.5, eps = 0.1 })
                local skipped = support.numbers({ 0, 0, 0.3, 0, 4, 0, 1, 0, 0, 0, 0 }, layout)
                agree("adam", { n = 6, p, coded(), coded(), false, master, false }, {}, skipped)
              end
            end
          end
        end)
      end)

      it(("states in bf16, step %d, %s"):format(t, layout), function()
        gm.scope(function()
          at_step(t, 0.01, 0.5, 4)
          local attrs = { beta1 = 0.9, beta2 = 0.99, eps = 1e-3, states = 1, stream = { key = 2 ^ 40 + 77, step = 0 } }
          for _, dtype in ipairs { "f32", "bf16" } do
            for _, shape in ipairs(coded_shapes) do
              local function kept(low) return support.given(shape, "bf16", layout, low) end
              support.agree { op = "adam", inputs = { false, false, support.input(shape, dtype, layout) },
                outputs = { n = 6, support.given(shape, dtype, layout), kept(), kept(0.1), false,
                            dtype ~= "f32" and support.given(shape, "f32", layout) or false, false },
                attrs = attrs, within = within }
            end
          end
        end)
      end)
    end
  end

  it("a moment in 8 bits whose scales would begin at no multiple of 4 bytes is refused, and one with gaps", function()
    gm.scope(function()
      at_step(1, 0.01, 0.5, 4)
      local shape = { 300 }
      local moment, p = states_in_8_bits(shape)(), support.input(shape, "f32")
      local n, g = moment:numel(), support.input(shape, "f32")
      local function sgd(backend, m)
        core.run_op(backend, "sgd", { n = 3, false, false, g }, { n = 4, p, m, false, false },
          { momentum = 0.5, states = 2 })
      end
      for _, backend in ipairs { "ref", unpack(support.backends) } do
        local room = gm.zeros({ 2 * n + 4 }, { dtype = "u8" })
        sgd(backend, room:narrow(1, 5, n))
        local gaps = room:narrow(1, 1, 2 * n):reshape { n, 2 }:select(2, 1)
        for _, m in ipairs { room:narrow(1, 2, n), room:narrow(1, 3, n), gaps } do
          local ok, why = pcall(sgd, backend, m)
          assert.is_false(ok, backend)
          assert.is_truthy(tostring(why):find("without gaps, from a multiple of 4 bytes", 1, true), why)
        end
      end
    end)
  end)

  it("trust ratios with states in fewer bits", function()
    gm.scope(function()
      at_step(2, 0.01, 0.5, 4)
      for states = 1, 2 do
        for _, shape in ipairs(coded_shapes) do
          local function kept() return states == 1 and support.given(shape, "bf16", "contiguous", 0.1)
            or states_in_8_bits(shape) end
          local lamb = { eps = 1e-3, trust = 1, decoupled = true, weight_decay = 0.1, states = states, measure = true }
          support.agree { op = "adam", inputs = { false, false, support.input(shape, "f32") }, attrs = lamb,
            aligned = states == 2, outputs = { n = 6, support.given(shape, "f32"), kept(), kept(), false, false,
                        function() return gm.zeros({ 2 }, { dtype = "f64" }) end },
            within = { within, within, within, within, within, support.relative(2 ^ 34) } }
        end
      end
    end)
  end)

  -- Squares are f64 sums of numbers that were rounded some times each, of f32: 2^-20 of them. All else stays as it was.
  for _, layout in ipairs { "contiguous", "window", "turned" } do
    it("trust ratios, measured and applied, " .. layout, function()
      gm.scope(function()
        at_step(2, 0.01, 0.5, 4)
        local lamb = { eps = 1e-3, trust = 1, decoupled = true, weight_decay = 0.1, trust_max = 1.5 }
        local lars = { momentum = 0.9, trust = 2, trust_coefficient = 0.5, eps = 0.1, weight_decay = 0.1 }
        for _, dtype in ipairs(support.dtypes) do
          local wide = support.wide(dtype)
          for _, shape in ipairs { { 70, 33 }, { 5000 }, { 0 } } do
            local function same(low) return support.given(shape, wide, layout, low) end
            local master = wide ~= dtype and same() or false
            for _, case in ipairs { { "adam", lamb, { same(), same(0.1), false } }, { "sgd", lars, { same() } } } do
              local op, attrs, moments = unpack(case, 1, 3)
              for _, measure in ipairs { true, false } do
                local outputs = { support.given(shape, dtype, layout) }
                for _, m in ipairs(moments) do outputs[#outputs + 1] = m end
                outputs[#outputs + 1] = master
                local function squares() return support.numbers(measure and { 0, 0 } or { 2.25, 3 }, "window") end
                outputs[#outputs + 1] = squares
                outputs.n = #outputs
                attrs.measure = measure
                local bounds = {}
                for k = 1, outputs.n - 1 do bounds[k] = support.exact end
                bounds[outputs.n] = support.relative(wide == "f64" and 4096 or 2 ^ 33)
                support.agree { op = op, inputs = { false, false, support.input(shape, dtype, layout) },
                                outputs = outputs, attrs = attrs,
                                within = measure and bounds or within }
              end
            end
          end
        end
      end)
    end)
  end

  it("and change nothing where the control tensor says so", function()
    gm.scope(function()
      at_step(3, 0.01, 1, 1)
      local control = support.numbers { 0 / 0, 0 / 0, 0 / 0, 0, 4, 0, 1, 1, 0, 0, 0 }
      for op, roles in pairs { adam = { "p", "m", "v", false, "master" }, sgd = { "p", "m", "master" } } do
        local bits = core.run_op("ref", "fill", {}, { gm.empty { 70 } }, { value = 0.3 })[1]
        local outputs = { n = #roles + 1 }
        for k in ipairs(roles) do outputs[k] = roles[k] and roles[k] ~= "master" and support.copy(bits) or false end
        outputs[#roles + 1] = false
        for _, backend in ipairs { "ref", unpack(support.backends) } do
          core.run_op(backend, op, { control, false, gm.ones { 70 } }, outputs, { momentum = 0.9 })
          for k = 1, #roles do
            if outputs[k] then
              support.compare(outputs[k], bits, support.exact, ("%s on %s, output %d"):format(op, backend, k))
            end
          end
        end
      end
    end)
  end)

  it("rounding by chance draws the words of an element's place in the global tensor", function()
    gm.scope(function()
      at_step(3, 0.01, 1, 1)
      local whole = { shape = { 5, 6, 37 }, offset = { 0, 0, 0 } }
      local function given(box, seed, dtype)
        local t = gm.normal(whole.shape, { seed = seed }):to(dtype)
        for d = 1, 3 do t = t:narrow(d, box.offset[d] + 1, box.size[d]) end
        return t:contiguous()
      end
      local function attrs_of(box, more)
        local attrs = { stream = { key = 2 ^ 40 + 79, step = 0 } }
        for key, value in pairs(more) do attrs[key] = value end
        if box.size ~= whole.shape then attrs.box = { shape = whole.shape, offset = box.offset } end
        return attrs
      end
      local boxes = { { size = whole.shape, offset = whole.offset }, { size = { 2, 6, 37 }, offset = { 3, 0, 0 } },
        { size = { 5, 3, 37 }, offset = { 0, 2, 0 } }, { size = { 5, 6, 18 }, offset = { 0, 0, 19 } },
        { size = { 1, 2, 3 }, offset = { 4, 3, 33 } } }
      for _, case in ipairs { { "sgd", 4, { stochastic = true }, "bf16" }, { "sgd", 4, { stochastic = true }, "f16" },
                              { "adam", 6, { states = 1 }, "f32" },
                              { "adam", 6, { states = 1, stochastic = true }, "bf16" } } do
        local op, n, more, dtype = unpack(case)
        local function outputs(box)
          local out = { n = n }
          for k = 1, n do out[k] = false end
          out[1] = given(box, 2, dtype)
          for k = 2, op == "adam" and 3 or 1 do out[k] = given(box, 1 + k, "bf16"):abs() end
          return out
        end
        for _, backend in ipairs { "ref", unpack(support.backends) } do
          local all
          for i, box in ipairs(boxes) do
            local inputs = { false, false, given(box, 1, dtype) }
            local got = core.run_op(backend, op, inputs, outputs(box), attrs_of(box, more))
            all = all or got
            for k = 1, op == "adam" and 3 or 1 do
              local part = all[k]
              for d = 1, 3 do part = part:narrow(d, box.offset[d] + 1, box.size[d]) end
              assert.equal(0, (part:to "f32" - got[k]:to "f32"):abs():sum():item(), backend .. ": " .. op .. i)
            end
          end
        end
      end
    end)
  end)

  it("refuses the place of one parameter for several", function()
    gm.scope(function()
      local function ones() return gm.ones({ 4 }, { dtype = "bf16" }) end
      local attrs = { stochastic = true, stream = { key = 1, step = 0 }, box = { shape = { 8 }, offset = { 4 } } }
      assert.error_matches(function()
        core.run_op("ref", "sgd", { false, false, ones(), ones() }, { n = 8, ones(), false, false, false, ones(), false,
          false, false }, attrs)
      end, "the place of one parameter; there are 2")
      attrs.box = { shape = { 8, 8 }, offset = { 4, 0 } }
      assert.error_matches(function()
        core.run_op("ref", "sgd", { false, false, ones() }, { n = 4, ones(), false, false, false }, attrs)
      end, "box has 2 dimensions, the parameter 1")
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
        support.agree { op = "sgd", inputs = { false, false, ones() }, outputs = { n = 4, ones, false, false, false },
                        attrs = attrs, within = support.exact }
        local inputs, outputs = { false, false, ones() }, { n = 4, ones(), false, false, false }
        local p = core.run_op("ref", "sgd", inputs, outputs, attrs)[1]:to "f64"
        local moved = n - (p:eq(1)):to("f64"):sum():item()
        local share = 2 ^ -14 / -- of the distance between 1 and the number below it
          (dtype == "bf16" and 2 ^ -8 or 2 ^ -11)
        assert.is_true(math.abs(moved - n * share) < 6 * math.sqrt(n * share))
      end
    end)
  end)
end)
