--- Metrics of classes: accuracy, top-k, precision, recall, F1, intersection over union, the confusion matrix.
--
-- All but the first two are functions of three counts for each class: answers that are right (hits), answers (said),
-- and labels (right). A class that neither an answer nor a label has is left out of means over classes, as scikit-learn
-- does. A quotient whose divisor is 0 counts as 0. A label that is no class is refused where the value is computed.
-- @module ganymede.metrics.classes
local answers = require "ganymede.metrics.answers"
local base = require "ganymede.metrics.base"
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local projection = require "ganymede.nn.projection"

-- sums.a / sums.b, nil where nothing was counted
local function share(totals)
  local count = totals.count[1] or 0
  return count > 0 and totals.hits[1] / count or nil
end

local Accuracy = base.class("Accuracy", answers.options, {
  key = "accuracy", terms = { "hits", "count", "outside" },
  compute = function(self, totals)
    answers.refuse_outside(self, totals)
    return share(totals)
  end,
  measure = function(self, output, label)
    local said, right, classes = answers.of(self, output, label)
    local counted = ops.cast(ops.ne(right, self.opt.ignore_index), "f64")
    return { hits = ops.sum(ops.mul(ops.cast(ops.eq(said, right), "f64"), counted)), count = ops.sum(counted),
      outside = answers.outside(self, right, classes) }
  end,
})

-- The logits with all classes on every rank that has their row.
local function whole_rows(output)
  if projection.is(output) then return output:logits() end
  local layout = core.layout(output)
  if #(layout.cuts[output:dim()] or {}) == 0 then return output end
  layout.cuts[output:dim()] = {}
  return core.redistribute(output, layout)
end

-- The right class of each row (...) of outputs (..., classes), f64: the label, or the largest of its probabilities.
local function right_of(output, label)
  local wanted, given = output:shape(), table.concat(label:shape(), ", ")
  if given == table.concat(wanted, ", ") then return ops.cast(ops.argmax(label, -1), "f64") end
  wanted[#wanted] = nil
  if given == table.concat(wanted, ", ") then return ops.cast(label, "f64") end
  error(("TopK: labels (%s) do not fit outputs (%s)"):format(given, table.concat(output:shape(), ", ")), 0)
end

local TopK = base.class("TopK", {
  k = { type = "integer", min = 1, default = 5, doc = "among how many of the largest outputs the label must be" },
  ignore_index = answers.options.ignore_index,
}, {
  key = "top_k", terms = { "hits", "count", "outside" },
  compute = function(self, totals)
    answers.refuse_outside(self, totals)
    return share(totals)
  end,
  build = function(self, opt) self.name = opt.name or "top_" .. opt.k end,
  measure = function(self, output, label)
    output = whole_rows(output)
    local classes, right = output:size(-1), right_of(output, label)
    local shape = right:shape()
    if self.opt.k > classes then
      error(("TopK: k is %d, and outputs have %d classes"):format(self.opt.k, classes), 0)
    end
    local _, places = ops.top_k(output, self.opt.k)
    shape[#shape + 1] = 1
    local counted = ops.cast(ops.ne(right, self.opt.ignore_index), "f64")
    local found = ops.cast(ops.eq(ops.cast(places, "f64"), ops.reshape(right, shape)), "f64")
    return { hits = ops.sum(ops.mul(found, ops.reshape(counted, shape))), count = ops.sum(counted),
      outside = answers.outside(self, right, classes) }
  end,
})

-- ---------------------------------------------------------------- counts of each class

local terms = { "hits", "said", "right", "outside" }

local function count_classes(self, output, label)
  local said, right, _, outside = answers.one_hot(self, output, label)
  local rows = {}
  for d = 1, right:dim() - 1 do rows[d] = d end
  return { hits = ops.sum(ops.mul(said, right), rows), said = ops.sum(said, rows), right = ops.sum(right, rows),
    outside = outside }
end

local function quotient(a, b) return b > 0 and a / b or 0 end

local function precision_of(hits, said) return quotient(hits, said) end
local function recall_of(hits, _, right) return quotient(hits, right) end
local function f1_of(hits, said, right) return quotient(2 * hits, said + right) end
local function iou_of(hits, said, right) return quotient(hits, said + right - hits) end

local function sum(list)
  local s = 0
  for _, number in ipairs(list) do s = s + number end
  return s
end

-- fn of each class, by average.
local averages = {}

function averages.micro(fn, t) return fn(sum(t.hits), sum(t.said), sum(t.right)) end

function averages.macro(fn, t)
  local s, n = 0, 0
  for k, hits in ipairs(t.hits) do
    if t.said[k] + t.right[k] > 0 then s, n = s + fn(hits, t.said[k], t.right[k]), n + 1 end
  end
  return quotient(s, n)
end

function averages.weighted(fn, t)
  local s = 0
  for k, hits in ipairs(t.hits) do s = s + t.right[k] * fn(hits, t.said[k], t.right[k]) end
  return quotient(s, sum(t.right))
end

function averages.binary(fn, t)
  if #t.hits ~= 2 then
    error(("average = \"binary\" is for 2 classes; there are %d: macro, micro, weighted and none are for more"):format(
      #t.hits), 0)
  end
  return fn(t.hits[2], t.said[2], t.right[2])
end

function averages.none(fn, t)
  local out = {}
  for k, hits in ipairs(t.hits) do out[k] = fn(hits, t.said[k], t.right[k]) end
  return out
end

local function per_class(name, key, fn, default)
  return base.class(name, answers.with {
    average = { type = "string", one_of = { "macro", "micro", "weighted", "binary", "none" }, default = default,
      doc = "macro: the mean over the classes; micro: of the counts of all classes together; weighted: the mean over "
        .. "the labels; binary: that of class 1, of two; none: the list of all classes" },
  }, {
    key = key, terms = terms, measure = count_classes,
    compute = function(self, totals)
      answers.refuse_outside(self, totals)
      if sum(totals.right) + sum(totals.said) == 0 then return nil end
      return averages[self.opt.average](fn, totals)
    end,
  })
end

local Precision = per_class("Precision", "precision", precision_of, "macro")
local Recall = per_class("Recall", "recall", recall_of, "macro")
local F1 = per_class("F1", "f1", f1_of, "macro")
local IoU = per_class("IoU", "iou", iou_of, "macro")

local ConfusionMatrix = base.class("ConfusionMatrix", {
  dim = answers.options.dim, ignore_index = answers.options.ignore_index, threshold = answers.options.threshold,
}, {
  key = "confusion_matrix", terms = { "pairs", "outside" },
  measure = function(self, output, label)
    local said, right, classes, outside = answers.one_hot(self, output, label)
    if right:dim() > 3 then
      said, right = ops.reshape(said, { said:size(1), -1, classes }), ops.reshape(right, { right:size(1), -1, classes })
    end
    local pairs_of = ops.matmul(right, said, { transpose_a = true })
    return { pairs = right:dim() > 2 and ops.sum(pairs_of, 1) or pairs_of, outside = outside }
  end,
  compute = function(self, totals)
    answers.refuse_outside(self, totals)
    local n, rows = math.sqrt(#totals.pairs), {}
    if n == 0 then return nil end
    for i = 1, n do
      rows[i] = {}
      for j = 1, n do rows[i][j] = totals.pairs[(i - 1) * n + j] end
    end
    return rows
  end,
})

return { Accuracy, TopK, Precision, Recall, F1, IoU, ConfusionMatrix }
