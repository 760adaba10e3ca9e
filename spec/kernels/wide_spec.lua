-- sin, cos, pow and powers in f32 (kernels/cpu/wide.c) on every CPU table, and on GPUs.
--
-- The truth is `ref`, which calls the C library in double. A CPU's results are within 0.6 units in the last place, half
-- of which is rounding; those of a GPU within 5, as CUDA's documentation says of powf (1 of sinf and cosf).
local assert = require "luassert"
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local function units_of(backend) return backend == "cuda" and 5 or 0.6 end

-- How far y is from `exact`, in units in the last place of a float. Zeros with other signs, infinities and NaN where
-- others are expected are infinitely far.
local function off(y, exact)
  if exact ~= exact then return y ~= y and 0 or math.huge end
  local limit = 2 ^ 128 - 2 ^ 103 -- rounds to infinity
  if math.abs(exact) >= limit then return y == (exact > 0 and math.huge or -math.huge) and 0 or math.huge end
  if exact == 0 then return y == 0 and 1 / y == 1 / exact and 0 or math.huge end
  if y ~= y or math.abs(y) == math.huge then return math.huge end
  local _, exponent = math.frexp(exact)
  return math.abs(y - exact) / 2 ^ (math.max(exponent, -125) - 24)
end

local function run(backend, op, inputs, attrs)
  return core.run_op(backend, op, inputs, { n = 1, true }, attrs)[1]:totable()
end

-- Compares op(inputs) of every backend with that of ref in f64. inputs: tensors of f32; cpus: not on GPUs
local function compare(op, inputs, attrs, label, cpus)
  local wide, first = { n = #inputs }, inputs[1]:totable()
  for i, x in ipairs(inputs) do wide[i] = support.copy(x, "f64") end
  local exact = run("ref", op, wide, attrs)
  for _, backend in ipairs(support.backends) do
    local given, skipped = { n = #inputs, unpack(inputs) }, cpus and backend == "cuda"
    for i, y in ipairs(skipped and {} or run(backend, op, given, attrs)) do
      local units = off(y, exact[i])
      if units > units_of(backend) then
        assert(false, ("%s: %s of %.9g%s is %.9g, should be %.17g: %g units"):format(backend, label, first[i],
          inputs[2] and (" and %.9g"):format(inputs[2]:totable()[i]) or "", y, exact[i], units))
      end
    end
  end
end

local function f32(list) return gm.tensor(list, { dtype = "f32" }) end

-- Floats with every exponent, both signs, and 23 bits that follow from the place.
local function all_sizes(each)
  local list = {}
  for exponent = -149, 127 do
    for k = 1, each do
      local x = 2 ^ exponent * (1 + ((exponent + 150) * 7919 + k * 104729) % 8388608 / 8388608)
      list[#list + 1] = k % 2 == 0 and x or -x
    end
  end
  return f32(list)
end

local function range(from, to, count)
  local list = {}
  for i = 1, count do list[i] = from + (to - from) * (i - 1) / (count - 1) end
  return f32(list)
end

local special = { 0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, -2.5, 1 / 0, -1 / 0, 0 / 0, 3.4028234e38, -3.4028234e38,
                  2 ^ -126, 2 ^ -149, -2 ^ -149, 2 ^ 24 - 1, 1 - 2 ^ 24, 2 ^ 24, 2 ^ 23 - 1, 2 ^ 22 + 0.5, -2 ^ 23 - 1,
                  2 ^ 23 + 1, 2 ^ 25, 1e30, -1e30, 1 - 2 ^ -24, 1 + 2 ^ -23, 2 ^ -24 - 1, -1 - 2 ^ -23, 7, -127 }

describe("functions of floats worked out in double:", function()
  for _, name in ipairs { "sin", "cos" } do
    it(name .. " of floats of all sizes", function()
      gm.scope(function() compare("unary", { all_sizes(40) }, { ["function"] = name }, name) end)
    end)

    it(name .. " between its zeros, near them, and where libm takes over", function()
      gm.scope(function()
        for _, ends in ipairs { { -20, 20 }, { -1e6, 1e6 }, { 1048000, 1049000 }, { -1049000, -1048000 } } do
          compare("unary", { range(ends[1], ends[2], 20011) }, { ["function"] = name }, name)
        end
        local list = {}
        for k = 1, 4001 do list[k] = (k - 2001) * math.pi / 2 end
        compare("unary", { f32(list) }, { ["function"] = name }, name)
        compare("unary", { f32 { 0, -0.0, 1 / 0, -1 / 0, 0 / 0, 2 ^ -149, -2 ^ -149, 3.4028234e38 } },
          { ["function"] = name }, name)
      end)
    end)

    it(name .. " of a number does not depend on its neighbours", function()
      gm.scope(function()
        local list = { 1, 1e30, -2, 0 / 0, 1e7, 3, -1e20, 0.5, 1 / 0, 4, 1048576, -1048575, 2, 5, 6, 7, 8 }
        for _, backend in ipairs(support.backends) do
          local all = run(backend, "unary", { n = 1, f32(list) }, { ["function"] = name })
          for i, x in ipairs(list) do
            local one = run(backend, "unary", { n = 1, f32 { x } }, { ["function"] = name })[1]
            assert.is_true(one == all[i] or one ~= one and all[i] ~= all[i], ("%s: %g"):format(backend, x))
          end
        end
      end)
    end)
  end

  it("powers of a number do not depend on its place", function()
    gm.scope(function()
      local list, exponents = {}, {}
      for i = 1, 300 do list[i], exponents[i] = (i * 7919 % 601 - 300) / 97, i * 104729 % 11 - 5 end
      for _, backend in ipairs(support.backends) do
        local all = run(backend, "binary", { n = 2, f32(list), f32(exponents) }, { ["function"] = "pow" })
        local scaled = run(backend, "unary", { n = 1, f32(list) }, { ["function"] = "power", value = 7 })
        for i = 1, 300, 7 do
          local x = f32 { list[i] }
          assert.same({ all[i] }, run(backend, "binary", { n = 2, x, f32 { exponents[i] } }, { ["function"] = "pow" }))
          assert.same({ scaled[i] }, run(backend, "unary", { n = 1, x }, { ["function"] = "power", value = 7 }))
        end
      end
    end)
  end)

  it("pow of special numbers, and powers of them", function()
    gm.scope(function()
      local x, y = {}, {}
      for _, a in ipairs(special) do
        for _, b in ipairs(special) do x[#x + 1], y[#y + 1] = a, b end
      end
      compare("binary", { f32(x), f32(y) }, { ["function"] = "pow" }, "pow")
      for _, b in ipairs(special) do
        compare("unary", { f32(special) }, { ["function"] = "power", value = b }, "power " .. b)
      end
      compare("unary", { f32(special) }, { ["function"] = "power", value = 1e-60 }, "power 1e-60", true)
      compare("unary", { f32(special) }, { ["function"] = "power", value = 2 ^ 53 + 2 }, "power 2^53 + 2")
    end)
  end)

  it("pow of floats of all sizes, and near 1", function()
    gm.scope(function()
      local x, y = {}, {}
      for exponent = -149, 127 do
        for k = 1, 40 do
          local a = 2 ^ exponent * (1 + ((exponent + 150) * 7919 + k * 104729) % 8388608 / 8388608)
          -- exponents that bring results to all sizes, below the normal range too, and some that are whole
          local b = (k - 20.5) * 7.31 / math.max(0.5, math.abs(exponent + 0.5))
          x[#x + 1], y[#y + 1] = k % 4 == 0 and -a or a, k % 4 < 2 and math.floor(b) or b
        end
      end
      for k = 1, 2000 do x[#x + 1], y[#y + 1] = 1 + (k - 1000) * 2 ^ -23, (k % 41 - 20) * 123456.7 end
      compare("binary", { f32(x), f32(y) }, { ["function"] = "pow" }, "pow")
    end)
  end)

  -- Exponents that products, quotients and roots make have up to three roundings; bounds are those of ref's results.
  it("powers that are numbers, and their gradients", function()
    local near, list = {}, {}
    for i = 1, 67 do near[i] = (i - 34) / 7 end
    for i, number in ipairs(near) do list[i] = number end
    for _, extreme in ipairs { -0.0, 1e12, -1e12, 1e-12, -1e-12, 1 / 0, -1 / 0, 0 / 0 } do list[#list + 1] = extreme end
    gm.scope(function()
      for _, dtype in ipairs(support.dtypes) do
        for _, value in ipairs { 0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, -3, 1.5, 2.75, 2.7, 1 / 3 } do
          -- GPUs round an exponent to a float, which shows in powers of large and small numbers
          local numbers = (value == 2.7 or value == 1 / 3) and near or list
          local x, g = gm.tensor(numbers, { dtype = dtype }), support.input({ #numbers }, dtype)
          local attrs = { ["function"] = "power", value = value }
          support.agree { op = "unary", inputs = { x }, outputs = { true }, attrs = attrs, label = "power " .. value,
                          within = support.relative(6) }
          support.agree { op = "unary_grad", inputs = { x, g }, outputs = { true }, attrs = attrs,
                          label = "gradient of power " .. value, within = support.relative(10) }
        end
      end
    end)
  end)
end)
