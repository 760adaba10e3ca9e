--- The padding of blocks in specs: fills it with garbage, as a user can, and looks whether it is zero.
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"

local padding = {}

local garbage = { u8 = 255, i32 = 1e9, i64 = 1e9 } -- no place in any table

-- fn(part) for what of t's block lies beyond the end of the tensor, dimension by dimension.
local function each_part(t, fn)
  local block, inside = t:detach():local_tensor(), core.inside(t)
  for d, size in ipairs(block:shape()) do
    if inside[d] < size then fn(block:narrow(d, inside[d] + 1, size - inside[d])) end
  end
end

--- Writes NaN (of integers: a number that is no index) into t's padding on this rank; returns t.
function padding.poison(t)
  each_part(t, function(part) part:fill_(garbage[t:dtype()] or 0 / 0) end)
  return t
end

--- Is the padding of t zero on this rank?
function padding.is_zero(t)
  local zero = true
  each_part(t, function(part)
    for _, v in ipairs(numeric.flat(part:totable())) do zero = zero and v == 0 end
  end)
  return zero
end

--- fn() while all that is computed finds NaN wherever zeros are not promised (host/autograd/padding.h).
function padding.poisoned(fn)
  core.poison_padding(true)
  local ok, result = pcall(fn)
  core.poison_padding(false)
  if not ok then error(result, 0) end
  return result
end

return padding
