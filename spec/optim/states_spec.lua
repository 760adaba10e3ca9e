--- Moments in bf16 and in blocks of 8 bits: the codes against the definition of Dettmers et al. 2021 in Lua numbers,
-- what resumes, what it takes, and what is refused.
local ffi = require "ffi"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local optim = require "ganymede.optim"

local BLOCK = 256

local function f32(x) return tonumber(ffi.cast("float", x)) end

-- The values of the codes by their definition: decade i of 7 has the middles of 2^i equal parts of [0.1, 1), or twice
-- as many without a sign; besides 0 and 1.
local function values_of(signed)
  local out = { 0 }
  for i = 0, 6 do
    local n = 2 ^ i * (signed and 1 or 2)
    for j = 0, n - 1 do out[#out + 1] = f32(10 ^ (i - 6) * (0.1 + 0.9 * (j + 0.5) / n)) end
  end
  out[#out + 1] = 1
  return out
end

-- The codes of either kind, and from which number on a code is the nearest: of two at the same distance the larger.
local codes = {}
for _, signed in ipairs { true, false } do
  local values = values_of(signed)
  local from = { 0 }
  for k = 2, #values do from[k] = f32(0.5 * f32(values[k - 1] + values[k])) end
  codes[signed] = { values = values, from = from }
end

local function nearest(kind, top, u)
  local best = 1
  while best < top and u >= kind.from[best + 1] do best = best + 1 end
  return kind.values[best]
end

-- What a block becomes, by the plain rule.
local function quantised(list, signed)
  local kind, scale = codes[signed], 0
  for _, x in ipairs(list) do
    if x ~= x or math.abs(x) == math.huge then return nil end
    if math.abs(x) > math.abs(scale) or math.abs(x) == math.abs(scale) and x > 0 then scale = x end
  end
  local out = {}
  for i, x in ipairs(list) do
    local ratio = scale ~= 0 and f32(x / scale) or 0
    local size = nearest(kind, ratio < 0 and #kind.values - 1 or #kind.values, math.abs(ratio))
    if not signed and ratio > 0 and size == 0 then size = kind.values[2] end
    out[i] = f32((ratio < 0 and -size or size) * scale)
  end
  return out
end

local function parameter(shape, dtype) return gm.zeros(shape, { dtype = dtype or "f32" }):keep():requires_grad(true) end

-- sum(p * g) has gradient g
local function set_gradient(p, g) gm.scope(function() (p * g):sum():backward() end) end

local ROWS, COLUMNS = 17, 300 -- blocks of 256 and 44 elements

-- Numbers over ten decades; a row of zeros, rows whose largest element is negative, one with NaN and one with infinity
-- in the first block.
local function numbers()
  local list, seed = {}, 12345
  local function random()
    seed = (seed * 16807) % 2147483647
    return seed / 2147483647
  end
  for r = 1, ROWS do
    for c = 1, COLUMNS do
      local x = (random() - 0.5) * 10 ^ (-10 * random())
      if r == 3 then x = 0 end
      if r % 4 == 0 and c % 100 == 0 then x = -1 - c end
      list[#list + 1] = f32(x)
    end
  end
  list[5 * COLUMNS + 7], list[7 * COLUMNS + 9] = 0 / 0, math.huge
  return list
end

local function check_blocks(list, found, signed)
  for r = 0, ROWS - 1 do
    for first = 1, COLUMNS, BLOCK do
      local block = {}
      for c = first, math.min(first + BLOCK - 1, COLUMNS) do block[#block + 1] = list[r * COLUMNS + c] end
      local wanted = quantised(block, signed)
      for i = 1, #block do
        local x = found[r * COLUMNS + first + i - 1]
        if wanted then assert.equal(wanted[i], x) else assert.is_true(x ~= x) end
      end
    end
  end
end

local function only_state(optimizer)
  local state = optimizer:state()
  assert.equal(1, #state)
  return state[1]
end

describe("states in 8 bits", function()
  it("are the nearest codes of the paper, with a sign", function()
    gm.scope(function()
      local list, p = numbers(), parameter { ROWS, COLUMNS }
      local optimizer = optim.SGD({ lr = 0, momentum = 0.9, state_dtype = "8bit" }, { p })
      set_gradient(p, gm.tensor(list, { shape = { ROWS, COLUMNS } }))
      optimizer:step() -- the first buffer is the gradient
      check_blocks(list, only_state(optimizer).tensor:reshape({ -1 }):totable(), true)
    end)
  end)

  it("are the nearest codes without a sign, and never 0 above 0", function()
    gm.scope(function()
      local list, p = numbers(), parameter { ROWS, COLUMNS }
      local optimizer = optim.Adagrad({ lr = 0, state_dtype = "8bit" }, { p })
      set_gradient(p, gm.tensor(list, { shape = { ROWS, COLUMNS } }))
      optimizer:step()
      local squares, found = {}, only_state(optimizer).tensor:reshape({ -1 }):totable()
      for i, x in ipairs(list) do squares[i] = f32(x * x) end
      check_blocks(squares, found, false)
    end)
  end)

  it("begin with the value that Adagrad is given", function()
    gm.scope(function()
      local optimizer = optim.Adagrad({ initial_accumulator_value = 0.3, state_dtype = "8bit" }, { parameter { 5000 } })
      local t = only_state(optimizer).tensor
      for _, x in ipairs(t:totable()) do assert.equal(f32(0.3), x) end
    end)
  end)
end)

local function gradient_at(shape, step) return gm.normal(shape, { seed = 100 + step }) end

local function run(optimizer, p, first, last)
  for step = first, last do
    gm.scope(function()
      optimizer:zero_grad()
      set_gradient(p, gradient_at(p:shape(), step):to(p:dtype()))
      optimizer:step()
    end)
  end
  return p
end

local function same_bits(a, b) return (a:detach() - b:detach()):abs():sum():item() == 0 end

describe("states in fewer bits", function()
  for _, kind in ipairs { "bf16", "8bit" } do
    it("resume with the same bits from numbers of f32: " .. kind, function()
      gm.scope(function()
        for _, make in ipairs { { "AdamW", { amsgrad = true } }, { "RMSprop", { momentum = 0.5, centered = true } },
                                { "Lion", {} }, { "LAMB", {} }, { "LARS", {} } } do
          local opt = { state_dtype = kind }
          for key, value in pairs(make[2]) do opt[key] = value end
          local function of(p) return optim[make[1]](opt, { { name = "w", tensor = p } }) end
          local shape = { 20, 300 }
          local p, first = gm.ones(shape):keep():requires_grad(true), gm.ones(shape):keep():requires_grad(true)
          run(of(p), p, 1, 8)
          local half = of(first)
          run(half, first, 1, 4)
          local second = first:detach():clone():keep():requires_grad(true)
          local resumed, from = of(second), half:state()
          for i, entry in ipairs(resumed:state()) do
            entry.tensor:copy_(from[i].tensor)
            entry.store()
          end
          resumed:set_steps(half:steps())
          run(resumed, second, 5, 8)
          assert.is_true(same_bits(p, second), make[1])
        end
      end)
    end)
  end

  it("take 2 bytes and 8/256 a parameter with Adam, 4 with bf16", function()
    gm.scope(function()
      local n = 64 * 512
      for kind, bytes in pairs { f32 = 8 * n, bf16 = 4 * n, ["8bit"] = 2 * n + 2 * 4 * n / BLOCK } do
        local p = gm.ones({ 64, 512 }):keep():requires_grad(true)
        local optimizer = optim.AdamW({ state_dtype = kind }, { p })
        run(optimizer, p, 1, 1)
        assert.equal(bytes, optimizer:bytes())
        local held = 0
        for _, entry in ipairs(optimizer:held()) do held = held + entry.bytes end
        assert.equal(bytes, held)
      end
    end)
  end)

  it("are f32 for fewer than 4096 elements", function()
    gm.scope(function()
      local p, q = gm.ones({ 4095 }):keep():requires_grad(true), gm.ones({ 4096 }):keep():requires_grad(true)
      local optimizer = optim.Lion({ state_dtype = "8bit" }, { p, q })
      set_gradient(p, gm.ones({ 4095 }))
      set_gradient(q, gm.ones({ 4096 }))
      optimizer:step()
      assert.equal(4 * 4095 + 4096 + 4 * 4096 / BLOCK, optimizer:bytes())
    end)
  end)

  -- v decays by 0.999 in each step, which is less than half a unit of bf16: rounded to the nearest it would not move. A
  -- step's rounding has the variance of a draw between two neighbours at most 2^-7 apart: after 200 steps the mean
  -- of 8,192 elements is off by at most sqrt(200 * 0.001 * 2^-7 / 8192) = 0.04 %; 1 % is more than 20 of these.
  it("in bf16 decay on the average as they should", function()
    gm.scope(function()
      local p = gm.ones({ 8192 }):keep():requires_grad(true)
      local optimizer = optim.Adam({ lr = 0, betas = { 0, 0.999 }, state_dtype = "bf16" }, { p })
      set_gradient(p, gm.ones({ 8192 }))
      optimizer:step()
      optimizer:zero_grad()
      set_gradient(p, gm.zeros({ 8192 }))
      for _ = 1, 200 do optimizer:step() end
      local v = optimizer:state()[2].tensor:mean():item()
      assert.is_true(math.abs(v / (0.001 * 0.999 ^ 200) - 1) < 0.01)
    end)
  end)

  it("are refused where they make no sense", function()
    gm.scope(function()
      local p = gm.ones({ 5000 }):keep():requires_grad(true)
      local wide = gm.ones({ 5000 }, { dtype = "f64" }):keep():requires_grad(true)
      assert.has_error(function() optim.SGD({ state_dtype = "8bit" }, { p }) end,
        "SGD: state_dtype = \"8bit\" is for moments, and without momentum there are none")
      assert.has_error(function() optim.Adam({ state_dtype = "bf16" }, { wide }) end,
        "Adam: state_dtype = \"bf16\", but '1' is f64, whose moments are f64")
      assert.error_matches(function() optim.Adam({ state_dtype = "4bit" }, { p }) end, "state_dtype")
      assert.error_matches(function() optim.Adafactor({ state_dtype = "8bit" }, { p }) end, "state_dtype")
    end)
  end)
end)

describe("what is rounded by chance", function()
  -- A weight of bf16 after three updates, in a model where it has this name.
  local function trained(name, share)
    return gm.scope(function()
      local Model = gm.nn.class("SpecNamed", nil, false)
      function Model:build() self:param(name, { 40, 40 }, gm.nn.init.ones {}) end
      local before = gm.default_dtype()
      gm.set_default_dtype "bf16"
      local model = Model {}
      local p = model:parameters()[1]
      gm.set_default_dtype(before)
      if share then model:declared()[1].entry.shared_at = { 1, 2 } end
      local optimizer = optim.AdamW({ lr = 1e-3, master_weights = false }, model)
      for step = 1, 3 do
        optimizer:zero_grad()
        set_gradient(p, gm.normal({ 40, 40 }, { seed = step, dtype = "bf16" }))
        optimizer:step()
      end
      return table.concat(numeric.flat(p), " ")
    end)
  end

  it("goes by the name of the parameter, or by the wrapper that shares it between stages", function()
    assert.equal(trained "a", trained "a")
    assert.is_true(trained "a" ~= trained "b")
    assert.equal(trained("a", true), trained("b", true))
  end)
end)

describe("options of groups", function()
  -- Two parameters in groups, and each alone in an optimizer with the group's options.
  local function compare(name, opt, first, second)
    gm.scope(function()
      local function leaf() return gm.ones({ 20, 300 }):keep():requires_grad(true) end
      local function with(more)
        local out = {}
        for key, value in pairs(opt) do out[key] = value end
        for key, value in pairs(more) do out[key] = value end
        return out
      end
      local a, b, alone_a, alone_b = leaf(), leaf(), leaf(), leaf()
      first.match, second.match = "^a$", "^b$"
      local named = { { name = "a", tensor = a }, { name = "b", tensor = b } }
      local both = optim[name](with { groups = { first, second } }, named)
      first.match, second.match = nil, nil
      local single_a, single_b = optim[name](with(first), { { name = "a", tensor = alone_a } }),
        optim[name](with(second), { { name = "b", tensor = alone_b } }) -- the names say what random words are drawn
      for step = 1, 4 do
        both:zero_grad()
        set_gradient(a, gradient_at({ 20, 300 }, step))
        set_gradient(b, gradient_at({ 20, 300 }, step))
        both:step()
        run(single_a, alone_a, step, step)
        run(single_b, alone_b, step, step)
      end
      assert.is_true(same_bits(a, alone_a))
      assert.is_true(same_bits(b, alone_b))
      assert.is_false(same_bits(a, b))
      assert.equal(single_a:bytes() + single_b:bytes(), both:bytes())
    end)
  end

  it("are those of an optimizer of its own", function()
    compare("AdamW", { lr = 0.01 }, { betas = { 0.8, 0.9 }, eps = 0.1, weight_decay = 0.5 },
      { amsgrad = true, state_dtype = "8bit" })
    compare("SGD", { lr = 0.5 }, { momentum = 0.9, nesterov = true },
      { lr = 0.25, weight_decay = 0.1, maximize = true })
    compare("RMSprop", {}, { alpha = 0.5, centered = true }, { momentum = 0.5, state_dtype = "bf16" })
    compare("Adagrad", {}, { lr_decay = 0.5, initial_accumulator_value = 0.5 }, { eps = 1 })
    compare("LARS", {}, { trust_coefficient = 0.5 }, { max_trust = 1e-4 })
  end)

  it("are refused by name", function()
    gm.scope(function()
      local p = gm.ones({ 10 }):keep():requires_grad(true)
      local function refused(name, group, text)
        group.match = "1"
        assert.error_matches(function() optim[name]({ groups = { group } }, { p }) end, text)
      end
      refused("AdamW", { momentum = 0.9 }, "AdamW: groups%[1%].*momentum")
      refused("AdamW", { no_decay = "none" }, "AdamW: groups%[1%].*no_decay")
      refused("AdamW", { lr = 1, lr_scale = 2 }, "AdamW: groups%[1%]: lr goes with no lr_scale")
      refused("AdamW", { betas = { 2, 0.9 } }, "AdamW: betas%[1%]")
      refused("AdamW", { trust = true }, "AdamW: groups%[1%] has trust")
      refused("Adafactor", { d = 2 }, "Adafactor: groups%[1%].*d")
      refused("SGD", { state_dtype = "8bit" }, "SGD: state_dtype")
    end)
  end)
end)
