--- Twins: two arrays of a file that are one parameter here, such as a table of tokens that is also the head.
--
-- Files need one of them only. Some store both, with the same numbers; then the second is left out. Others have learnt
-- two tables, and still say that they are one. transformers 5 then keeps both. Here the second belongs to nothing.
-- @module ganymede.hub.twins
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local tensors = require "ganymede.tensor"

local twins = {}

local ROWS = 4096 -- of two arrays that are compared at a time

local function same_shape(a, b) return table.concat(a, " ") == table.concat(b, " ") end

--- Do two arrays of a file have other shapes or numbers?
function twins.differ(file, a, b)
  local shape = file:info(a).shape
  if not same_shape(shape, file:info(b).shape) then return true end
  for first = 1, shape[1] or 0, ROWS do
    local size = { unpack(shape) }
    size[1] = math.min(ROWS, shape[1] - first + 1)
    local offset = { first }
    for d = 2, #shape do offset[d] = 1 end
    local same = tensors.scope(function()
      local x, y = core.empty(size, "f64"), core.empty(size, "f64")
      file:read_into(a, x, { offset = offset })
      file:read_into(b, y, { offset = offset })
      return tensors.no_grad(function() return (x - y):abs():sum():item() end) == 0
    end)
    file:forget()
    if not same then return true end
  end
  return false
end

--- Twins of a file with other numbers than the arrays that they should repeat -> { [twin] = that array }. On the meta
-- device, which has no numbers, there are none.
function twins.apart(file, family, opt)
  local out = {}
  if core.device().backend == "meta" then return out end
  local tied = family.tied and family.tied(opt) or {}
  for _, name in ipairs(options.sorted_keys(tied)) do
    local twin = tied[name]
    if file:has(name) and file:has(twin) and twins.differ(file, name, twin) then out[twin] = name end
  end
  return out
end

return twins
