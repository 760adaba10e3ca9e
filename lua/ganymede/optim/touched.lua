--- Which optimizers take tables with sparse = true, whose gradient is the rows that a batch touched
-- (host/optim/touched.c): those for which an update of these rows alone is meant.
--
-- A class says so in takes_rows(opt, tensor) -> nil, or the reason against these options.
-- @module ganymede.optim.touched
local core = require "ganymede.core"

local touched = {}

--- Why the options of a class over host/optim do not go with a table: a reason, or nil.
function touched.reason(opt, tensor)
  local dtype = tensor:dtype()
  if opt.state_dtype ~= "f32" then return ("moments of touched rows are f32, not %s"):format(opt.state_dtype) end
  if not opt.master_weights and (dtype == "bf16" or dtype == "f16") then
    return "rows of 16 bits are updated through a copy in f32 (master_weights = true)"
  end
end

--- Refuses the tables among the items of an optimizer that it cannot update by rows.
function touched.check(class, opt, items)
  for _, item in ipairs(items) do
    if core.sparse_gradient(item.tensor) then
      local all = {}
      for key, value in pairs(opt) do all[key] = value end
      for key, value in pairs(item.own or {}) do all[key] = value end
      local why = not class.takes_rows and "its update changes all rows"
        or item.weight_decay ~= 0 and "weight decay changes all rows" or class.takes_rows and class.takes_rows(all,
        item.tensor)
      if why then
        error(("%s: '%s' has a sparse gradient (sparse = true), but %s; SparseAdam, Adagrad and SGD without momentum "
          .. "take it, all without weight decay"):format(class.name, item.name, why), 0)
      end
    end
  end
end

--- Offloads the states of an optimizer over host/optim. With such a table it is refused: the rows that a batch touches
--- lie anywhere in the table's states.
function touched.offload(optimizer, tier, fraction, unit)
  for _, item in ipairs(optimizer.items) do
    if core.sparse_gradient(item.tensor) then
      error(("gm.initialize: offload.optimizer cannot move the states of '%s', which has a sparse gradient (sparse = "
        .. "true): a step touches rows anywhere in them; leave one of the two away"):format(item.name), 0)
    end
  end
  optimizer.core:offload(tier, fraction, unit)
end

return touched
