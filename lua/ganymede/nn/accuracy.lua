--- Counts right answers: rows of logits whose largest entry is at the place of the label. Logits may have any layout.
-- @module ganymede.nn.accuracy
local metrics = require "ganymede.nn.metrics"
local module = require "ganymede.nn.module"

local Accuracy = module.class "Accuracy"

Accuracy.options = {}

--- logits (..., classes), label (...) i64 or i32 -> the number of rows of all ranks that are right, a scalar f64 tensor
-- without a gradient.
function Accuracy:forward(logits, label) return metrics.hits(logits, label) end -- luacheck: ignore self

return Accuracy
