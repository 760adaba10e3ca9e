-- short_rows.lua - ops whose last dimension is short, timed on demand by short_rows.py, which says what they are.
local gm = require "ganymede"

gm.set_default_dtype(gm.launch({ dtype = "f32" }).dtype)

local function normal(...) return gm.normal({ ... }, { seed = 1 }):keep() end

local cases = {}

local function rows(n)
  local count = math.floor(300000 / n)
  local x, z, row, column = normal(count, n), normal(count, 2 * n), normal(n), normal(count, 1)
  cases["row " .. n] = function() return x + row end
  cases["column " .. n] = function() return x * column end
  cases["window " .. n] = function() return z:narrow(2, 1, n):contiguous() end
  cases["exp " .. n] = function() return z:narrow(2, 1, n):exp() end
  cases["repeat " .. n] = function() return column:expand({ count, n }):contiguous() end
  cases["sum " .. n] = function() return x:sum(2) end
  cases["columns " .. n] = function() return x:sum(1) end
end

local function images(factor)
  local x, y = normal(8, 128, 16, 1, 16, 1), normal(8, 128, 16, factor, 16, factor)
  cases["larger " .. factor] = function() return x:expand({ 8, 128, 16, factor, 16, factor }):contiguous() end
  cases["smaller " .. factor] = function() return y:sum { 4, 6 } end
end

for _, n in ipairs { 2, 3, 8, 16, 31, 64, 128, 768 } do rows(n) end
for _, factor in ipairs { 2, 3, 4 } do images(factor) end

dofile(GANYMEDE_ROOT .. "/spec/bench/timed_cases.lua")(cases)
