--- Losses that layers make beside their results: load balancing of experts, z-losses.
--
--     auxiliary.add(loss)                         -- in a layer, while it trains
--     total = auxiliary.add_to(loss, 1 / batches) -- whoever calls backward: all that waits, times a factor
--
-- engine:criterion adds what waits to the loss of a batch in training, divided by the number of batches of the step:
-- each such loss is a mean over the tokens of its batch, on all ranks. Evaluation has none. The engine forgets what
-- waits when a batch begins, so that one whose loss was never asked for leaves nothing behind. A loop without an engine
-- has to call add_to or clear itself; the trap of forgetting that is an error after a while.
-- @module ganymede.nn.auxiliary
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"

local auxiliary = {}

local MOST = 4096 -- more layers than that do not wait for one backward pass
local waiting = {}

--- Puts a scalar tensor, a loss of the batch that is under way, on the list. One that depends on no parameter (under
-- gm.no_grad) is not taken.
function auxiliary.add(loss)
  if not loss:requires_grad() then return end
  if #waiting == MOST then
    error(("%d auxiliary losses wait and nobody adds them: without an engine, call auxiliary.add_to(loss) before "
      .. "loss:backward()"):format(MOST), 2)
  end
  waiting[#waiting + 1] = loss:keep()
end

--- Forgets what waits.
function auxiliary.clear()
  for i = #waiting, 1, -1 do core.release(table.remove(waiting, i)) end
end

local function given_back(before, ok, ...)
  local own = waiting
  waiting = before
  if not ok then error((...), 0) end
  return own, ...
end

--- fn(...) -> the list of losses that it put aside, which do not wait here, and what it returned.
function auxiliary.collect(fn, ...)
  local before = waiting
  waiting = {}
  return given_back(before, pcall(fn, ...))
end

--- The sum of all that waits, a scalar tensor, which is forgotten; nil for nothing. For who keeps several batches in
-- flight, and asks after the forward of each.
function auxiliary.take()
  local sum
  for _, term in ipairs(waiting) do sum = sum and ops.add(sum, term) or ops.mul(term, 1) end
  auxiliary.clear()
  return sum
end

--- loss and factor (default 1) times all that waits, which is forgotten.
function auxiliary.add_to(loss, factor)
  local sum = auxiliary.take()
  return sum and ops.add(loss, ops.mul(sum, factor or 1)) or loss
end

return auxiliary
