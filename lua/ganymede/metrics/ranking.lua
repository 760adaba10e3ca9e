--- AUC: the area under the curve of the true against the false positive rate (ROC), which is the probability that a
-- sample of class 1 has a larger score than one of class 0; equal scores count one half.
--
-- Without `bins` it is exact: one rank keeps the score and label of every sample (24 bytes each) and sorts them. With
-- `bins`, ranks count the samples of both classes in so many intervals of equal width of the probability; scores in one
-- interval count as equal. Then the value differs from the exact one by at most error_bound(), half the share of pairs
-- that lie in one interval.
--
-- The score is the log-odds of the class, which is the logit where an output is one number. It orders samples as the
-- probability does, but does not round to 1 where outputs are large.
-- @module ganymede.metrics.ranking
local answers = require "ganymede.metrics.answers"
local base = require "ganymede.metrics.base"
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local projection = require "ganymede.nn.projection"
local tensors = require "ganymede.tensor"

-- log(sum(exp(x))) along the last dimension, which it keeps.
local function log_sum_exp(x)
  return ops.sub(ops.narrow(x, -1, 1, 1), ops.narrow(ops.log_softmax(x, -1), -1, 1, 1))
end

-- The log-odds (n, 1) of a class of logits (n, classes).
local function log_odds(logits, class)
  local n, others = logits:size(-1), {}
  if class > 0 then others[1] = ops.narrow(logits, -1, 1, class) end
  if class < n - 1 then others[#others + 1] = ops.narrow(logits, -1, class + 2, n - class - 1) end
  return ops.sub(ops.narrow(logits, -1, class + 1, 1), log_sum_exp(#others > 1 and ops.cat(others, -1) or others[1]))
end

-- Scores and labels (1 or 0), f64 tensors of the shape of the labels.
local function scored(self, output, label)
  if projection.is(output) then output = output:logits() end
  output = ops.cast(output, "f64")
  local shape, class = label:shape(), self.opt.class
  if output:numel() == label:numel() then return ops.reshape(output, shape), ops.cast(label, "f64") end
  local classes = output:size(-1)
  if output:numel() ~= label:numel() * classes then
    error(("AUC: labels (%s) do not fit outputs (%s)"):format(table.concat(shape, ", "),
      table.concat(output:shape(), ", ")), 0)
  end
  if not class and classes > 2 then
    error(("AUC: outputs have %d classes; give the option class, the one that is told from all others"):format(
      classes), 0)
  end
  class = class or 1
  if class >= classes then error(("AUC: class is %d, and outputs have %d classes"):format(class, classes), 0) end
  local is = ops.cast(ops.eq(ops.cast(label, "f64"), class), "f64")
  return ops.reshape(log_odds(output, class), shape), is
end

local function flat(t) return t:dim() == 1 and t or ops.reshape(t, { -1 }) end

-- How often each sample counts, 1 or 0; NaN where it counts and its score is NaN: then the area is NaN, too.
local function counted(self, label, score)
  local counts = ops.cast(ops.ne(ops.cast(label, "f64"), self.opt.ignore_index), "f64")
  local score_is = ops.cast(ops.eq(score, score), "f64")
  return ops.where(ops.gt(counts, score_is), 0 / 0, counts)
end

-- The numbers of samples of both classes in each interval, (bins, 2).
local function histogram(self, output, label)
  local bins = self.opt.bins
  local score, is = scored(self, output, label)
  local counts = flat(counted(self, label, score))
  score, is = flat(score), flat(is)
  local at = ops.cast(ops.minimum(ops.mul(ops.sigmoid(score), bins), bins - 0.5), "i64")
  local n = at:numel()
  local places = {}
  for k = 1, bins do places[k] = k - 1 end
  local hot = ops.cast(ops.eq(ops.reshape(ops.cast(at, "f64"), { n, 1 }), core.tensor(places, "f64", { bins })), "f64")
  local ones, zeros = ops.mul(is, counts), ops.mul(ops.sub(1, is), counts)
  local both = ops.cat({ ops.reshape(zeros, { n, 1 }), ops.reshape(ones, { n, 1 }) }, 2)
  return ops.matmul(hot, both, { transpose_a = true })
end

-- The area, and half the share of pairs in one interval.
local function of_histogram(counts)
  local below, right, tied, zeros, ones = 0, 0, 0, 0, 0
  for k = 1, #counts, 2 do
    local zero, one = counts[k], counts[k + 1]
    right, tied = right + one * (below + zero / 2), tied + zero * one
    below, zeros, ones = below + zero, zeros + zero, ones + one
  end
  local all = zeros * ones
  if all == 0 then return nil end
  return right / all, tied / 2 / all
end

-- Groups of equal scores, in order, as a histogram of them.
local function of_rows(rows)
  local n = #rows.score
  if n == 0 then return nil end
  for _, counts in ipairs(rows.counted) do
    if counts ~= counts then return counts end
  end
  local score, place
  tensors.scope(tensors.no_grad, function()
    local sorted, index = ops.sort(tensors.tensor(rows.score, { dtype = "f64" }))
    score, place = sorted:totable(), index:totable()
  end)
  local groups, at = {}, -1
  for i = 1, n do
    if i == 1 or score[i] ~= score[i - 1] then
      at = at + 2
      groups[at], groups[at + 1] = 0, 0
    end
    local column = rows.label[place[i] + 1] > 0.5 and at + 1 or at
    if rows.counted[place[i] + 1] > 0 then groups[column] = groups[column] + 1 end
  end
  return (of_histogram(groups))
end

local AUC = base.class("AUC", {
  bins = { type = "integer", min = 2, max = 2 ^ 20, optional = true,
    doc = "the number of intervals of the probability in which samples are counted; left out: the exact value" },
  class = { type = "integer", min = 0, optional = true,
    doc = "the class that is told from all others; default: class 1 of two" },
  ignore_index = answers.options.ignore_index,
}, {
  key = "auc",
  build = function(self, opt)
    self.terms, self.rows = opt.bins and { "counts" } or {}, opt.bins and {} or { "score", "label", "counted" }
    self:reset()
  end,
  measure = function(self, output, label)
    if self.opt.bins then return { counts = histogram(self, output, label) } end
    local score, is = scored(self, output, label)
    return { score = score, label = is, counted = counted(self, label, score) }
  end,
  compute = function(self, totals, rows)
    if not self.opt.bins then return of_rows(rows) end
    local value, bound = of_histogram(totals.counts)
    self.bound = bound
    return value
  end,
  -- Returns by how much value() may differ from the exact area at most; 0 without bins.
  error_bound = function(self) return self.opt.bins and self.bound or 0 end,
})

return { AUC }
