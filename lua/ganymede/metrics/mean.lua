--- Perplexity: e to the mean of the cross entropy over all labels that count.
-- @module ganymede.metrics.mean
local answers = require "ganymede.metrics.answers"
local base = require "ganymede.metrics.base"
local ops = require "ganymede.tensor.ops"
local projection = require "ganymede.nn.projection"

local Perplexity = base.class("Perplexity", { ignore_index = answers.options.ignore_index }, {
  key = "perplexity", terms = { "sum", "count" },
  measure = function(self, output, label)
    local options = { ignore_index = self.opt.ignore_index }
    local sum = projection.is(output) and output:cross_entropy(label, options)
      or ops.sum(ops.cast(ops.cross_entropy(output, label, options), "f64"))
    local counted = ops.ne(ops.cast(label, "f64"), self.opt.ignore_index)
    return { sum = sum, count = ops.sum(ops.cast(counted, "f64")) }
  end,
  compute = function(_, totals)
    local count = totals.count[1] or 0
    return count > 0 and math.exp(totals.sum[1] / count) or nil
  end,
})

return { Perplexity }
