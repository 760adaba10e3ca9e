--- Checkpoints as numbers, for specs: what two of them hold, tensor by tensor, whatever layouts wrote them.
local assert = require "luassert"
local checkpoint = require "ganymede.checkpoint"
local gm = require "ganymede"

local stored = {}

--- A stored tensor as a list of numbers, and the bytes of these (f64, f32 as the biases of routers, and so on).
function stored.numbers(ck, name)
  local info = ck:info(name)
  return gm.scope(function()
    local t = ck:read_into(name, gm.zeros(info.shape, { dtype = info.dtype }))
    local wide = t:reshape(t:numel()):to "f64"
    return wide:totable(), t:numel() * (({ f64 = 8, f32 = 4, bf16 = 2, f16 = 2 })[info.dtype])
  end)
end

--- The largest difference of a tensor in the checkpoint at `mine` from the same in the one at `truth`, as a share of
-- the largest number of that tensor -> share, name of the tensor, number of tensors. Both must hold the same names. A
-- tensor that is zero throughout says nothing, so it is an error, unless some may be (such as frozen biases).
function stored.difference(mine, truth, may_be_zero)
  local a, b = checkpoint.open(mine), checkpoint.open(truth)
  assert.same(b:names(), a:names())
  local most, at, count = 0, nil, 0
  for _, name in ipairs(b:names()) do
    local x, y = stored.numbers(a, name), stored.numbers(b, name)
    local worst, largest = 0, 0
    for i = 1, #y do
      local difference = math.abs(x[i] - y[i])
      if difference > worst or difference ~= difference then worst = difference end
      largest = math.max(largest, math.abs(y[i]))
    end
    assert.is_true(largest > 0 or may_be_zero or false, name .. " is all zeros")
    local share = worst == 0 and 0 or worst / largest
    if share > most or share ~= share then most, at = share, name end
    count = count + 1
  end
  a:close()
  b:close()
  return most, at, count
end

return stored
