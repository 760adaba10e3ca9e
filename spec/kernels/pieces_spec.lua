-- The polynomials of GELU (kernels/cpu/pieces.h) are those that pieces.lua makes; GELU is as exact as vector.c says.
local assert = require "luassert"
local core = require "ganymede.core"
local ffi = require "ffi"
local gm = require "ganymede"

pcall(ffi.cdef, "double erfc(double x);")

describe("polynomials of GELU:", function()
  it("the file is what its maker prints", function()
    local folder, lines = GANYMEDE_ROOT .. "/kernels/cpu/", {}
    local make = assert(loadfile(folder .. "pieces.lua"))
    setfenv(make, setmetatable({ print = function(line) lines[#lines + 1] = line end }, { __index = _G }))()
    local file = assert(io.open(folder .. "pieces.h"))
    local text = file:read "*a"
    file:close()
    assert.equal(text, table.concat(lines, "\n") .. "\n")
  end)

  -- Units in the last place of x Phi(x) = x erfc(-x / sqrt 2) / 2, which the C library computes in double. Down to -4.8
  -- they are what vector.c promises; below, AVX-512 promises no more than that the result is 1.5e-8 away.
  it("gelu is exact to 7 units in f32, also where it is small", function()
    gm.scope(function()
      local n, from, to = 40001, -4.8, 6
      local x = gm.tensor((function()
        local list = {}
        for i = 1, n do list[i] = from + (to - from) * (i - 1) / (n - 1) end
        return list
      end)(), { dtype = "f32" })
      local y = core.run_op("cpu", "unary", { n = 1, x }, { n = 1, true }, { ["function"] = "gelu" })[1]
      local given, got, worst = x:totable(), y:totable(), 0
      for i = 1, n do
        local exact = given[i] * 0.5 * ffi.C.erfc(-given[i] * math.sqrt(0.5))
        local _, exponent = math.frexp(exact)
        worst = math.max(worst, math.abs(got[i] - exact) / math.max(2 ^ (exponent - 24), 2 ^ -149))
      end
      assert.is_true(worst <= 7, "worst: " .. worst)
    end)
  end)

  it("gelu and its slope far out: 0 to the left, x and 1 to the right", function()
    gm.scope(function()
      local x, ones = gm.tensor({ -1e4, -20, -6, 6, 20, 1e4 }, { dtype = "f32" }), gm.full({ 6 }, 1)
      for _, f in ipairs { "gelu", "gelu_tanh" } do
        local y = core.run_op("cpu", "unary", { n = 1, x }, { n = 1, true }, { ["function"] = f })[1]:totable()
        local slope = core.run_op("cpu", "unary_grad", { n = 2, x, ones }, { n = 1, true }, { ["function"] = f })[1]
        slope = slope:totable()
        for i, right in ipairs { 0, 0, 0, 6, 20, 1e4 } do
          assert.is_true(math.abs(y[i] - right) <= 1.5e-8 + 1.2e-7 * right, ("%s(%g)"):format(f, right))
          assert.is_true(math.abs(slope[i] - (right > 0 and 1 or 0)) <= 2e-7, ("slope of %s, %d"):format(f, i))
        end
      end
    end)
  end)
end)
