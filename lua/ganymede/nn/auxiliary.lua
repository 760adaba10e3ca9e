--- Losses that layers make besides their results: load balancing of experts, z-losses.
--
--     auxiliary.add(loss)                         -- in a layer, while it trains
--     total = auxiliary.add_to(loss, 1 / batches) -- before backward: adds all waiting losses, times a factor
--
-- In training, engine:criterion adds the waiting losses to the loss of a batch, divided by the number of batches of the
-- step, because each of them is a mean over the tokens of its batch on all ranks. Evaluation has none. When a batch
-- begins, the engine drops losses that still wait, because nobody asked for the loss of their batch.
-- The trap: a loop without an engine must call add_to or clear itself; otherwise it ends with an error after a while.
-- @module ganymede.nn.auxiliary
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"

local auxiliary = {}

local MOST = 4096 -- no model has more such layers; if more losses wait, nobody takes them
local waiting = {}

--- Adds a scalar tensor, a loss of the current batch, to the waiting ones. A loss that depends on no parameter (under
-- gm.no_grad) is left out.
function auxiliary.add(loss)
  if not loss:requires_grad() then return end
  if #waiting == MOST then
    error(("%d auxiliary losses wait and nothing adds them to a loss: without an engine, call auxiliary.add_to(loss) "
      .. "before loss:backward()"):format(MOST), 2)
  end
  waiting[#waiting + 1] = loss:keep()
end

--- Drops all waiting losses.
function auxiliary.clear()
  for i = #waiting, 1, -1 do core.release(table.remove(waiting, i)) end
end

local function given_back(before, ok, ...)
  local own = waiting
  waiting = before
  if not ok then error((...), 0) end
  return own, ...
end

--- Runs fn(...) with an empty list of waiting losses. Returns the list of the losses that it added, which do not wait
-- here, and what fn returned.
function auxiliary.collect(fn, ...)
  local before = waiting
  waiting = {}
  return given_back(before, pcall(fn, ...))
end

--- Returns the sum of all waiting losses, a scalar tensor, and drops them; nil if none waits. A schedule that has
-- several batches in flight calls it after the forward pass of each.
function auxiliary.take()
  local sum
  for _, term in ipairs(waiting) do sum = sum and ops.add(sum, term) or ops.mul(term, 1) end
  auxiliary.clear()
  return sum
end

--- Returns the loss plus factor (default 1) times the sum of all waiting losses, and drops them.
function auxiliary.add_to(loss, factor)
  local sum = auxiliary.take()
  return sum and ops.add(loss, ops.mul(sum, factor or 1)) or loss
end

return auxiliary
