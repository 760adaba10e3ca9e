--- Losses: criterion(output, target [, count]) -> a scalar, the sum of the terms over the count of targets.
--
-- criterion:count(target) says how many targets contribute. An engine that accumulates gradients passes the
-- count of the whole optimizer step, so that pieces of a batch add up to the batch. Without a count it is the
-- batch's own, which makes the loss a mean, as in PyTorch. When nothing contributes the loss is 0. A target that is
-- cut over ranks counts as a whole; where that takes communication, criterion:count_part(target) gives this
-- rank's term without any, so that a step of several batches asks once.
-- @module ganymede.nn.losses
local gm = require "ganymede"
local core = require "ganymede.core"
local module = require "ganymede.nn.module"
local ops = require "ganymede.ops"
local ranks = require "ganymede.ranks"

local function over(rows, count) return ops.mul(ops.sum(rows), 1 / math.max(count, 1)) end

local CrossEntropyLoss = module.class("CrossEntropyLoss", nil, "losses")

CrossEntropyLoss.options = {
  ignore_index    = { type = "integer", default = -100, doc = "targets of this value cost nothing and do not count" },
  label_smoothing = { type = "number", default = 0, min = 0, max = 1,
                      doc = "share of the target spread evenly over all classes" },
}

-- Number of elements of an integer tensor that differ from value, as a scalar tensor: partial where t is cut.
local function differing(t, value)
  local is_other = ops.ne(ops.cast(t, "f64"), value) -- comparisons are in f32 and f64; targets are far below 2^53
  return ops.sum(ops.cast(is_other, "f64"))
end

local function counted(t, value, read) return gm.no_grad(function() return read(differing(t, value)) end) end

local function item(t) return t:item() end

--- target (...) integers -> number of those that are not ignored. On the meta device, which has no values, all.
function CrossEntropyLoss:count(target)
  if core.device().backend == "meta" then return target:numel() end
  return gm.scope(counted, target, self.opt.ignore_index, item)
end

--- This rank's term of count(target).
function CrossEntropyLoss:count_part(target)
  if core.device().backend == "meta" then return target:numel() end
  return gm.scope(counted, target, self.opt.ignore_index, ranks.part)
end

--- logits (..., classes), target (...) i64 or i32 -> scalar; backward: dlogits is set.
function CrossEntropyLoss:forward(logits, target, count)
  local rows = ops.cross_entropy(logits, target, {
    ignore_index = self.opt.ignore_index, label_smoothing = self.opt.label_smoothing,
  })
  return over(rows, count or self:count(target))
end

local MSELoss = module.class("MSELoss", nil, "losses")

MSELoss.options = {}

--- Number of elements of target: MSELoss counts elements, not rows.
function MSELoss:count(target) return target:numel() end -- luacheck: ignore self

--- output and target of one shape -> scalar, the mean of (output - target)^2; backward: both are set.
function MSELoss:forward(output, target, count)
  local a, b = table.concat(output:shape(), ", "), table.concat(target:shape(), ", ")
  if a ~= b then error(("output (%s) and target (%s) differ in shape"):format(a, b), 0) end
  return over(ops.square(ops.sub(output, target)), count or self:count(target))
end

return { CrossEntropyLoss = CrossEntropyLoss, MSELoss = MSELoss }
