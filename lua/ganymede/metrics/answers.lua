--- Answers: which class an output says, beside which class the label says. Shared by the metrics that count them.
--
-- Without `multilabel`, outputs are the logits of classes along the dimension `dim`, and the answer is the largest.
-- Labels are classes, counted from 0, or probabilities of the classes (then the largest counts). An output of one
-- number for each label (its shape, or one more dimension of size 1) is the logit of class 1 against class 0. With
-- `multilabel` each output is such a logit of a question of its own, and labels, 0 or 1, have the shape of the outputs.
-- @module ganymede.metrics.answers
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local projection = require "ganymede.nn.projection"

local answers = {}

--- Options of metrics that compare answers.
answers.options = {
  dim = { type = "integer", default = -1, doc = "the dimension of the outputs along which the classes lie, from 1" },
  ignore_index = { type = "integer", default = -100, doc = "the value of labels that are not counted" },
  threshold = { type = "number", default = 0.5, above = 0, below = 1,
    doc = "the probability above which the answer is class 1, where an output is one logit" },
  multilabel = { type = "boolean", default = false,
    doc = "whether each output is the logit of a question of its own, which the label answers with 0 or 1" },
}

--- Returns a table of options that has these, and more.
function answers.with(more)
  local all = {}
  for key, entry in pairs(answers.options) do all[key] = entry end
  for key, entry in pairs(more) do all[key] = entry end
  return all
end

local function text(shape) return "(" .. table.concat(shape, ", ") .. ")" end

local function refuse(metric, output, label)
  error(("%s: labels %s do not fit outputs %s"):format(metric.class_name, text(label:shape()), text(output:shape())), 0)
end

local function same(a, b)
  if #a ~= #b then return false end
  for i, size in ipairs(a) do
    if size ~= b[i] then return false end
  end
  return true
end

-- The shape without dimension d.
local function without(shape, d)
  local out = { unpack(shape) }
  table.remove(out, d)
  return out
end

local function place_of(metric, output)
  local dim, n = metric.opt.dim, output:dim()
  local d = dim < 0 and dim + n + 1 or dim
  if d < 1 or d > n then
    error(("%s: outputs %s have no dimension %d"):format(metric.class_name, text(output:shape()), dim), 0)
  end
  return d
end

-- The answer, 1 or 0, of each logit.
local function yes_or_no(metric, output, label)
  local p = metric.opt.threshold
  local yes = ops.gt(ops.cast(output, "f64"), math.log(p / (1 - p)))
  return ops.cast(ops.reshape(yes, label:shape()), "f64"), ops.cast(label, "f64"), 2
end

local function of_classes(metric, output, label)
  local d, shape = place_of(metric, output), output:shape()
  local classes, rest = shape[d], without(shape, d)
  local given = label:shape()
  if same(given, shape) then return ops.argmax(output, d), ops.argmax(label, d), classes end
  if not same(given, rest) then refuse(metric, output, label) end
  return ops.argmax(output, d), label, classes
end

--- Returns the answers and the right ones, f64 tensors of one shape, and the number of classes.
function answers.of(metric, output, label)
  if projection.is(output) then
    return ops.cast(output:argmax(), "f64"), ops.cast(label, "f64"), output.weight:size(1)
  end
  local shape, given = output:shape(), label:shape()
  if metric.opt.multilabel then
    if not same(shape, given) then refuse(metric, output, label) end
    return yes_or_no(metric, output, label)
  end
  local single = { unpack(given) }
  single[#single + 1] = 1
  local is_float = label:dtype() ~= "i64" and label:dtype() ~= "i32" and label:dtype() ~= "u8"
  if same(shape, single) or same(shape, given) and (not is_float or #shape == 1 or shape[#shape] == 1) then
    return yes_or_no(metric, output, label)
  end
  local places, right, classes = of_classes(metric, output, label)
  return ops.cast(places, "f64"), ops.cast(right, "f64"), classes
end

--- Returns how many of the labels (f64) that count are no class from 0 to classes - 1, as a tensor.
function answers.outside(metric, right, classes)
  local rounded = ops.cast(ops.cast(right, "i64"), "f64")
  local wrong = ops.maximum(ops.cast(ops.ne(rounded, right), "f64"),
    ops.maximum(ops.cast(ops.lt(right, 0), "f64"), ops.cast(ops.gt(right, classes - 1), "f64")))
  return ops.sum(ops.mul(wrong, ops.cast(ops.ne(right, metric.opt.ignore_index), "f64")))
end

--- Raises an error if labels were no classes. totals: what was added up, with the term `outside`.
function answers.refuse_outside(metric, totals)
  local count = totals.outside[1] or 0
  if count <= 0 or count ~= count then return end -- NaN: on meta
  error(("%s: %d label%s no class: classes are whole numbers from 0, fewer than the outputs have; labels that do not "
    .. "count are all ignore_index (%d)"):format(metric.class_name, count, count == 1 and " is" or "s are",
    metric.opt.ignore_index), 0)
end

--- Returns f64 tensors with one more dimension of the size `classes`: 1 where the answer, and where the label, is that
-- class, then the number of classes and that of labels outside of them. Where a label is not counted all are 0.
function answers.one_hot(metric, output, label)
  local said, right, classes = answers.of(metric, output, label)
  right = core.redistribute(right, core.layout(said)) -- tensor modes may cut outputs further than labels
  local shape, places = right:shape(), {}
  shape[#shape + 1] = 1
  for k = 1, classes do places[k] = k - 1 end
  local each = core.tensor(places, "f64", { classes })
  local counted = ops.cast(ops.ne(ops.reshape(right, shape), metric.opt.ignore_index), "f64")
  local function spread(t) return ops.mul(ops.cast(ops.eq(ops.reshape(t, shape), each), "f64"), counted) end
  return spread(said), spread(right), classes, answers.outside(metric, right, classes)
end

return answers
