--- Metrics: means over many batches, and the numbers of right answers.
--
--     local mean = metrics.Mean()
--     mean:update(sum, count)    mean:value()    mean:last()    mean:reset()
--     metrics.SumOfMeans()       the same for several terms: update({ sums }, { counts })
--
-- Sums and counts are kept, because a mean of means would give a small last batch too much weight.
-- @module ganymede.nn.metrics
local ops = require "ganymede.tensor.ops"
local projection = require "ganymede.nn.projection"
local ranks = require "ganymede.job.ranks"
local signature = require "ganymede.base.signature"

local metrics = {}

local Mean = {}
Mean.__index = Mean

--- Makes a mean that grows with each batch: a sum and a count.
function metrics.Mean() return setmetatable({ sum = 0, count = 0, last_sum = 0, last_count = 0 }, Mean) end

function Mean:reset() self.sum, self.count, self.last_sum, self.last_count = 0, 0, 0, 0 end

function Mean:update(sum, count)
  self.sum, self.count = self.sum + sum, self.count + count
  self.last_sum, self.last_count = sum, count
end

local function quotient(sum, count) return count > 0 and sum / count or nil end

--- Returns the mean over everything since the last reset; nil if there was nothing.
function Mean:value() return quotient(self.sum, self.count) end

--- Returns the mean of the last update alone.
function Mean:last() return quotient(self.last_sum, self.last_count) end

function Mean:state() return { sum = self.sum, count = self.count } end

function Mean:load_state(state)
  self:reset()
  self.sum, self.count = tonumber(state.sum), state.count -- "nan" and "inf" are texts in JSON
end

--- Updates a list of means, which grows as needed, by lists of sums and counts.
function metrics.update_each(means, sums, counts)
  for k, sum in ipairs(sums) do
    means[k] = means[k] or metrics.Mean()
    means[k]:update(sum, counts[k])
  end
end

local SumOfMeans = {}
SumOfMeans.__index = SumOfMeans

--- Makes the mean of a loss of several terms over many batches: each term is divided by its own count, then they are
-- added.
function metrics.SumOfMeans() return setmetatable({ means = {} }, SumOfMeans) end

function SumOfMeans:update(sums, counts) metrics.update_each(self.means, sums, counts) end

-- The sum of the terms' values; nil if no term has any.
local function total(self, which)
  local sum
  for _, mean in ipairs(self.means) do
    local value = mean[which](mean)
    sum = value and (sum or 0) + value or sum
  end
  return sum
end

function SumOfMeans:value() return total(self, "value") end
function SumOfMeans:last() return total(self, "last") end

--- Takes two lists of equal length, with this rank's terms, and returns their sums over all ranks, by one small
-- collective call.
function metrics.over_ranks(sums, counts)
  local n, both = #sums, {}
  for k = 1, n do both[k], both[n + k] = sums[k], counts[k] end
  both = ranks.sum(both)
  local all_sums, all_counts = {}, {}
  for k = 1, n do all_sums[k], all_counts[k] = both[k], both[n + k] end
  return all_sums, all_counts
end

local is_integer = { i64 = true, i32 = true, u8 = true }

local function check_places(places, label)
  local rows, labels = table.concat(places:shape(), ", "), table.concat(label:shape(), ", ")
  if rows == labels then return end
  error(("labels (%s) are not one for each of the outputs' rows (%s); a class is counted from 0 along the last "
    .. "dimension of an output"):format(labels, rows), 0)
end

--- Returns the number of rows of output (..., classes), a tensor or a Projection, whose largest entry is at label
-- (...), as a scalar tensor. Labels of floats are probabilities of the classes, (..., classes): the largest counts.
-- Labels that equal ignore_index, if it is given, are never right.
function metrics.hits(output, label, ignore_index)
  local places = projection.is(output) and output:argmax() or ops.argmax(output, -1)
  if not is_integer[label:dtype()] and label:dim() == places:dim() + 1 then label = ops.argmax(label, -1) end
  check_places(places, label)
  local right = ops.cast(label, "f64") -- comparisons are of floats
  local hits = ops.cast(ops.eq(ops.cast(places, "f64"), right), "f64")
  if ignore_index then hits = ops.mul(hits, ops.cast(ops.ne(right, ignore_index), "f64")) end
  return ops.sum(hits)
end

--- Returns the same as a number. If the rows lie on several ranks, it is that of all of them, and the call is
-- collective.
function metrics.correct(output, label) return metrics.hits(output, label):item() end

signature.export("Mean", Mean, ":")
signature.export("SumOfMeans", SumOfMeans, ":")
return signature.export("metrics", metrics)
