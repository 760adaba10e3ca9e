--- Counts right answers: rows of logits whose largest entry stands at the label. Works on logits of any layout.
-- @module ganymede.nn.accuracy
local metrics = require "ganymede.nn.metrics"
local module = require "ganymede.nn.module"

local Accuracy = module.class "Accuracy"

Accuracy.options = {}

--- logits (..., classes), label (...) i64 or i32 -> scalar f64 tensor: rows that are right, of all ranks. No gradient.
function Accuracy:forward(logits, label) return metrics.hits(logits, label) end -- luacheck: ignore self

return Accuracy
