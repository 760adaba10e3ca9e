--- Options of optimizers that would have no effect beside others: they are refused, with what would be right.
--
--     idle.refuse(class, opt, given, items)         -- those of all classes, when an optimizer is made
--
-- What belongs to one class is refused where that class reads its options (SGD.attrs).
-- The trap: a weight decay of 0 that was given stays beside no_decay, because searches over weight decays contain it.
-- @module ganymede.optim.idle
local dtypes = require "ganymede.base.dtypes"

local idle = {}

local function refuse_masters(class, items)
  for _, item in ipairs(items) do
    if dtypes.narrow[item.tensor:dtype()] then return end
  end
  if #items == 0 then return end -- a stage may have none
  error(("%s: master_weights = false is for parameters of bf16 and f16; those of %s have no masters: leave it out")
    :format(class.name, items[1].tensor:dtype()), 0)
end

--- Raises an error if an option that was given changes nothing. opt: with defaults; given: without.
function idle.refuse(class, opt, given, items)
  if opt.no_decay ~= "none" and opt.weight_decay == 0 and given.weight_decay == nil then
    error(("%s: no_decay spares parameters from weight decay, and there is none: give weight_decay, or leave no_decay "
      .. "out"):format(class.name), 0)
  end
  if opt.master_weights == false then refuse_masters(class, items) end
end

return idle
