--- Losses: criterion(output, target [, count]) returns a scalar, the sum of the terms divided by the count of targets.
--
-- criterion:count(target) returns the number of targets that contribute. An engine that accumulates gradients passes
-- the count of the whole optimizer step, so that pieces of a batch add up to the batch. Without a count, that of the
-- batch is used, and the loss is a mean, as in PyTorch. If no target contributes, the loss is 0. The count of a target
-- that is cut over ranks is that of the whole. Where this takes communication, criterion:count_part(target) returns
-- this rank's term without any, so that a step of several batches communicates once. On a GPU the host would wait for a
-- number, so the engine calls criterion:count_tensor(target), which returns the count as an f64 scalar tensor (partial
-- if the target is cut), and passes the count of the step as such a tensor. A criterion without it receives numbers.
--
-- A loss of several terms (BERTLoss) has a count for each term: count and count_part return lists, and the argument
-- count is a list. criterion:terms(output, target) returns the sums of the terms, and criterion:hits(output, target)
-- the numbers of right answers, as lists of scalar tensors; criterion.accuracy_names are the names of the latter.
-- @module ganymede.nn.losses
local brief = require("ganymede.base.options").brief
local tensors = require "ganymede.tensor"
local core = require "ganymede.core"
local metrics = require "ganymede.nn.metrics"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local precision = require "ganymede.tensor.precision"
local projection = require "ganymede.nn.projection"
local ranks = require "ganymede.job.ranks"

-- What a sum of this dtype is multiplied with, to be divided by the number of its targets. The number may be an f64
-- scalar tensor; the bits of the product are the same.
local function factor(count, dtype)
  if type(count) == "number" then return 1 / math.max(count, 1) end
  return ops.cast(ops.div(1, ops.maximum(count, 1)), dtype)
end

-- Divides a sum, a scalar tensor, by the number of its targets.
local function over(sum, count) return ops.mul(sum, factor(count, sum:dtype())) end

local CrossEntropyLoss = module.class("CrossEntropyLoss", nil, "losses")

CrossEntropyLoss.accuracy_names = { "accuracy" }
CrossEntropyLoss.options = {
  ignore_index    = { type = "integer", default = -100,
    doc = "the value of targets that add nothing to the loss and are not counted" },
  label_smoothing = { type = "number", default = 0, min = 0, below = 1,
                      doc = "the part of each target's weight that is spread evenly over all classes" },
}

-- The number of elements of an integer tensor that differ from value, as a scalar tensor, partial where t is cut.
local function differing(t, value)
  local is_other = ops.ne(ops.cast(t, "f64"), value) -- comparisons are of floats; targets are far below 2^53
  return ops.sum(ops.cast(is_other, "f64"))
end

local function counted(t, value, read) return tensors.no_grad(function() return read(differing(t, value)) end) end

local function item(t) return t:item() end

local function unread(t) return t end

-- The number of contributing targets, read by item (of all ranks) or ranks.part. The meta device makes the same ops. It
-- has no values, and all targets count there.
local function count_of(target, ignored, read)
  if core.device().backend == "meta" then
    tensors.scope(counted, target, ignored, function() end)
    return target:numel()
  end
  return tensors.scope(counted, target, ignored, read)
end

local is_integer = { i64 = true, i32 = true, u8 = true }

-- Are targets probabilities of classes, (..., classes), and not classes (...)?
local function is_soft(target)
  if core.is_tensor(target) then return not is_integer[target:dtype()] end
  error("CrossEntropyLoss: the target must be a tensor, of the numbers of the classes or of their probabilities; got "
    .. (target == nil and "nothing" or brief(target)), 0)
end

local function rows_of(target) return target:numel() / target:size(-1) end

-- Filled by a kernel, because bytes that the host writes cannot be part of a CPU's graph.
local function scalar(number) return tensors.full({}, number, { dtype = "f64" }) end

--- target (...) integers -> the number of targets that are not ignored; (..., classes) of floats -> the number of rows.
function CrossEntropyLoss:count(target)
  if is_soft(target) then return rows_of(target) end
  return count_of(target, self.opt.ignore_index, item)
end

--- Returns this rank's term of count(target).
function CrossEntropyLoss:count_part(target)
  if is_soft(target) then return ranks.share(rows_of(target)) end
  return count_of(target, self.opt.ignore_index, ranks.part)
end

--- Returns count(target) as a scalar tensor, partial where target is cut.
function CrossEntropyLoss:count_tensor(target)
  if is_soft(target) then return scalar(rows_of(target)) end
  return count_of(target, self.opt.ignore_index, unread)
end

--- Returns the number of right answers. Ignored targets are never right.
function CrossEntropyLoss:hits(output, target)
  return { metrics.hits(output, target, not is_soft(target) and self.opt.ignore_index or nil) }
end

-- The sum over the rows of logits, or of a Projection.
local function sum_of_rows(output, target, options)
  if projection.is(output) then return output:cross_entropy(target, options) end
  return ops.sum(ops.cross_entropy(output, target, options))
end

local dtype_of_losses = { bf16 = "f32", f16 = "f32" }

-- The same, times what `factor` gives for the count. What backward will bring to each row is then known: the same
-- factor of what it begins with. So a GPU makes the gradient together with the losses (ops.cross_entropy, scale). A
-- loss that is multiplied once more is right, too, but costs a pass over the gradient. A CPU makes the gradient in
-- backward, where plans of memory (ganymede.recompute.chain) count it.
local function mean_of_rows(output, target, options, count)
  local dtype = (projection.is(output) and output.x or output):dtype()
  local by = factor(count, dtype_of_losses[dtype] or dtype)
  if core.device().name == "cuda" and core.no_grad(0) == 0 then
    options.scale = tensors.no_grad(ops.mul, core.loss_seed(dtype_of_losses[dtype] or dtype), by)
  end
  return ops.mul(sum_of_rows(output, target, options), by)
end

local function shape_of(t) return "(" .. table.concat(t:shape(), ", ") .. ")" end

-- Refuses the lists that some models return: a loss of their own takes them.
local function check_tensor(name, output)
  if core.is_tensor(output) then return end
  if output == nil then
    error(("%s: the model returned nothing; the forward of its class, or the last section, needs a return"):format(
      name), 0)
  end
  error(("%s: output must be a tensor; got %s. Models that return a list have a loss of their own, such as "
    .. "DiffusionLoss, VAELoss and BERTLoss"):format(name, brief(output)), 0)
end

local function check_same(name, output, target)
  check_tensor(name, output)
  if shape_of(output) == shape_of(target) then return end
  error(("%s: output %s and target %s differ in shape"):format(name, shape_of(output), shape_of(target)), 0)
end

-- Refuses what is no list of so many entries. The rows of a tensor would be taken for them.
local function check_list(name, output, n, text)
  if type(output) == "table" and not projection.is(output) and output[n] ~= nil then return end
  error(("%s: output must be a list { %s }; got %s"):format(name, text,
    core.is_tensor(output) and "a tensor " .. shape_of(output) or brief(output)), 0)
end

-- All classes of a row on each rank that has the row.
local function whole_rows(logits)
  local layout = core.layout(logits)
  if #(layout.cuts[logits:dim()] or {}) == 0 then return logits end
  layout.cuts[logits:dim()] = {}
  return core.redistribute(logits, layout)
end

-- The sum over the rows of -sum(target log(softmax(logits))), with targets of which a part is spread evenly.
local function sum_of_soft(logits, target, smoothing)
  if projection.is(logits) then logits = logits:logits() end
  if shape_of(logits) ~= shape_of(target) then
    error(("CrossEntropyLoss: targets of %s are probabilities of the classes, of the output's shape %s; got %s. "
      .. "Numbers of classes are i64 or i32: t:to(\"i64\"), or `classes` of CSV"):format(target:dtype(),
      shape_of(logits), shape_of(target)), 0)
  end
  local classes, wanted = logits:size(-1), whole_rows(target)
  logits = precision.wide(whole_rows(logits))
  wanted = ops.cast(wanted, logits:dtype())
  if smoothing > 0 then wanted = ops.add(ops.mul(wanted, 1 - smoothing), smoothing / classes) end
  return ops.neg(ops.sum(ops.mul(wanted, ops.log_softmax(logits, -1))))
end

--- logits (..., classes), a tensor or a Projection, and target (...) i64 or i32, or the probabilities of the classes,
-- (..., classes) of floats -> a scalar. Backward: dlogits is set.
function CrossEntropyLoss:forward(logits, target, count)
  if not projection.is(logits) then check_tensor("CrossEntropyLoss", logits) end
  if is_soft(target) then
    return over(sum_of_soft(logits, target, self.opt.label_smoothing), count or self:count(target))
  end
  return mean_of_rows(logits, target, {
    ignore_index = self.opt.ignore_index, label_smoothing = self.opt.label_smoothing,
  }, count or self:count(target))
end

local BERTLoss = module.class("BERTLoss", nil, "losses")

BERTLoss.options = {
  ignore_index = { type = "integer", default = -100,
    doc = "the value of targets that add nothing to the loss and are not counted" },
}
BERTLoss.accuracy_names = { "accuracy", "pair_accuracy" }

-- target (b, s + 1) -> the targets of the tokens (b, s), those of the pairs (b)
local function split_target(target)
  if target:dim() ~= 2 or target:size(2) < 2 then
    error(("BERTLoss: targets must be (batch, sequence + 1): those of the tokens, then that of the pair; got (%s)")
      :format(table.concat(target:shape(), ", ")), 0)
  end
  local s = target:size(2) - 1
  return ops.narrow(target, 2, 1, s), ops.select(target, 2, s + 1)
end

-- The numbers of contributing tokens and pairs.
local function counts_of(target, ignored, read)
  return tensors.scope(function()
    local tokens, of_pairs = split_target(target)
    return { count_of(tokens, ignored, read), count_of(of_pairs, ignored, read) }
  end)
end

function BERTLoss:count(target) return counts_of(target, self.opt.ignore_index, item) end
function BERTLoss:count_part(target) return counts_of(target, self.opt.ignore_index, ranks.part) end
function BERTLoss:count_tensor(target) return counts_of(target, self.opt.ignore_index, unread) end

-- fn(output, target) of the tokens and of the pairs.
local function both(output, target, fn)
  check_list("BERTLoss", output, 2, "logits of the tokens, logits of the pairs")
  local tokens, of_pairs = split_target(target)
  return { fn(output[1], tokens), fn(output[2], of_pairs) }
end

--- Returns the sums of the cross entropies of the tokens and of the pairs.
function BERTLoss:terms(output, target)
  local ignored = { ignore_index = self.opt.ignore_index }
  return both(output, target, function(logits, wanted) return sum_of_rows(logits, wanted, ignored) end)
end

--- Returns the numbers of right answers among the tokens and among the pairs. Ignored targets are never right.
function BERTLoss:hits(output, target)
  return both(output, target, function(logits, wanted) return metrics.hits(logits, wanted, self.opt.ignore_index) end)
end

--- output { logits of the tokens (b, s, vocabulary), logits of the pairs (b, 2) }, target (b, s + 1) i64 -> a scalar:
-- the mean over the tokens that are not ignored plus the mean over the pairs (Devlin et al. 2019). A row of target
-- holds those of the tokens, most of them ignored, then that of the pair (0: the second text follows the first, 1: it
-- does not).
function BERTLoss:forward(output, target, count)
  check_list("BERTLoss", output, 2, "logits of the tokens, logits of the pairs")
  local tokens, of_pairs = split_target(target)
  count = count or self:count(target)
  local function mean(i, wanted)
    return mean_of_rows(output[i], wanted, { ignore_index = self.opt.ignore_index }, count[i])
  end
  return ops.add(mean(1, tokens), mean(2, of_pairs))
end

-- ---------------------------------------------------------------- differences of numbers

-- A new class, whose loss is the mean over elements of of(difference of output and target, options).
local function difference_loss(name, own_options, of)
  local class = module.class(name, nil, "losses")
  class.options = own_options

  --- Returns the number of elements of target; elements count, not rows.
  function class:count(target) return target:numel() end -- luacheck: ignore self

  --- output and target of the same shape -> a scalar. Backward: both gradients are set.
  function class:forward(output, target, count)
    check_same(name, output, target)
    local off = ops.sub(precision.wide(output), precision.wide(target)) -- a loss is of f32 or f64
    return over(ops.sum(of(off, self.opt)), count or self:count(target))
  end
  return class
end

-- x^2 / 2 up to |x| = bound, and the tangent beyond (Huber 1964).
local function huber(x, bound)
  local size = ops.abs(x)
  local bounded = ops.minimum(size, bound)
  return ops.mul(bounded, ops.sub(size, ops.mul(bounded, 0.5)))
end

local MSELoss = difference_loss("MSELoss", {}, function(off) return ops.square(off) end)
local L1Loss = difference_loss("L1Loss", {}, function(off) return ops.abs(off) end)

local HuberLoss = difference_loss("HuberLoss", {
  delta = { type = "number", above = 0, default = 1, doc = "up to which difference the loss is a square" },
}, function(off, opt) return huber(off, opt.delta) end)

local SmoothL1Loss = difference_loss("SmoothL1Loss", {
  beta = { type = "number", above = 0, default = 1, doc = "up to which difference the loss is a square" },
}, function(off, opt) return ops.div(huber(off, opt.beta), opt.beta) end)

local BCEWithLogitsLoss = module.class("BCEWithLogitsLoss", nil, "losses")

BCEWithLogitsLoss.accuracy_names = { "accuracy" }
BCEWithLogitsLoss.options = {
  positive_weight = { type = "number", above = 0, default = 1,
    doc = "by what the losses of targets that are 1 are multiplied" },
}
BCEWithLogitsLoss.aliases = { pos_weight = "positive_weight" }

--- Returns the number of elements of target.
function BCEWithLogitsLoss:count(target) return target:numel() end -- luacheck: ignore self

--- Returns the number of elements whose logit and target are on the same side of one half.
function BCEWithLogitsLoss:hits(output, target) -- luacheck: ignore self
  local yes, is = ops.gt(ops.cast(output, "f64"), 0), ops.gt(ops.cast(target, "f64"), 0.5)
  return { ops.sum(ops.cast(ops.eq(ops.cast(yes, "f64"), ops.cast(is, "f64")), "f64")) }
end

--- output (...), logits of yes against no, and target (...), probabilities of yes or the integers 0 and 1 -> a scalar,
-- the mean over the elements. Backward: the gradient of output is set.
function BCEWithLogitsLoss:forward(output, target, count)
  check_same("BCEWithLogitsLoss", output, target)
  local x = precision.wide(output)
  local is = ops.cast(target, x:dtype())
  -- minus the logarithms of both probabilities: softplus keeps its digits on either side, which x - softplus would not
  local yes, no = ops.softplus(ops.neg(x)), ops.softplus(x)
  if self.opt.positive_weight ~= 1 then yes = ops.mul(yes, self.opt.positive_weight) end
  local terms = ops.add(ops.mul(is, yes), ops.mul(ops.sub(1, is), no))
  return over(ops.sum(terms), count or self:count(target))
end

-- ---------------------------------------------------------------- segmentation: overlap of classes

local DiceLoss = module.class("DiceLoss", nil, "losses")

DiceLoss.options = {
  ignore_index = { type = "integer", default = -100,
    doc = "the value of targets whose places belong to no class and add nothing to any sum" },
  background = { type = "boolean", default = true,
    doc = "whether class 0 counts; otherwise the mean is over the others" },
  smooth = { type = "number", above = 0, default = 1,
    doc = "what is added to both parts of the quotient, so that a class that nobody has or finds has a loss of 0" },
}

--- Returns the number of samples of target.
function DiceLoss:count(target) return target:size(1) end -- luacheck: ignore self

local function check_places(logits, target)
  check_tensor("DiceLoss", logits)
  local fits = logits:dim() == target:dim() + 1 and target:dim() >= 2 and is_integer[target:dtype()]
  for d = 1, target:dim() do fits = fits and logits:size(d) == target:size(d) end
  if fits and logits:size(-1) == 1 then
    error(("DiceLoss: output %s has 1 class, whose probability is 1 everywhere; give the background a class, too")
      :format(shape_of(logits)), 0)
  end
  if fits then return end
  error(("DiceLoss: output must be (batch, space..., classes) and target whole numbers (batch, space...); got %s and "
    .. "%s of %s"):format(shape_of(logits), shape_of(target), target:dtype()), 0)
end

local function with_one_more(t)
  local shape = t:shape()
  shape[#shape + 1] = 1
  return ops.reshape(t, shape)
end

-- Whether a place counts, 1 or 0, and the class of each that does, as zeros and a one, of this dtype.
local function of_classes(target, classes, ignored, dtype)
  return tensors.no_grad(function()
    local wide = ops.cast(target, "f64")
    local counts = ops.cast(ops.ne(wide, ignored), "f64")
    local hot = ops.one_hot(ops.cast(ops.mul(wide, counts), "i64"), classes, dtype)
    counts = with_one_more(ops.cast(counts, dtype))
    return counts, ops.mul(hot, counts)
  end)
end

-- (b, space..., classes) -> (b, classes), a sum of terms where ranks share space.
local function over_space(x)
  local dims = {}
  for d = 2, x:dim() - 1 do dims[#dims + 1] = d end
  return ops.sum(x, dims)
end

--- output (b, space..., classes), logits, and target (b, space...) whole numbers -> a scalar: the mean over samples and
-- classes of 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth), the sums over the space of a sample, with p the
-- softmax of its logits and t 1 where a place is of the class (Milletari et al. 2016). Ranks that share space complete
-- the sums before they divide. Backward: the gradient of output is set.
function DiceLoss:forward(output, target, count)
  local opt, logits = self.opt, projection.is(output) and output:logits() or output
  check_places(logits, target)
  logits = precision.wide(whole_rows(logits))
  local counts, is = of_classes(target, logits:size(-1), opt.ignore_index, logits:dtype())
  local p = ops.mul(ops.softmax(logits, -1), counts)
  local sums = ops.stack({ over_space(ops.mul(p, is)), over_space(ops.add(p, is)) }, 1):settle()
  if not opt.background then sums = ops.narrow(sums, 3, 2, sums:size(3) - 1) end
  local shared, all = ops.select(sums, 1, 1), ops.select(sums, 1, 2)
  local quotient = ops.div(ops.add(ops.mul(shared, 2), opt.smooth), ops.add(all, opt.smooth))
  return over(ops.mul(ops.sum(ops.sub(1, quotient)), 1 / sums:size(3)), count or self:count(target))
end

-- ---------------------------------------------------------------- diffusion: means over samples

-- (b, ...) -> the sum over samples of the mean over the elements of each, of f32 or f64
local function of_samples(x) return ops.mul(ops.sum(x), x:size(1) / math.max(x:numel(), 1)) end

local function squares_between(a, b)
  local left, right = table.concat(a:shape(), ", "), table.concat(b:shape(), ", ")
  if left ~= right then error(("output (%s) and target (%s) differ in shape"):format(left, right), 0) end
  return ops.square(ops.sub(precision.wide(a), precision.wide(b)))
end

local DiffusionLoss = module.class("DiffusionLoss", nil, "losses")

DiffusionLoss.options = {}

--- Returns the number of samples of target, the labels of the batch.
function DiffusionLoss:count(target) return target:size(1) end -- luacheck: ignore self

--- output { prediction, what it should be }, each (b, ...), of models.Diffusion; the label of the batch, of which only
-- the number counts -> a scalar: the mean over samples of the mean square of the difference.
function DiffusionLoss:forward(output, target, count)
  check_list("DiffusionLoss", output, 2, "prediction, what it should be")
  return over(of_samples(squares_between(output[1], output[2])), count or self:count(target))
end

local VAELoss = module.class("VAELoss", nil, "losses")

VAELoss.options = {
  kl = { type = "number", min = 0, default = 1e-6,
    doc = "the weight of the divergence of the latent distribution from the standard normal one" },
}

--- Returns the number of samples of target.
function VAELoss:count(target) return target:size(1) end -- luacheck: ignore self

--- output { image, mean, logarithm of the variance } of models.AutoencoderKL, target (b, ...) of the shape of the image
-- -> a scalar: the mean over samples of the mean square of the difference, plus kl times the divergence, which is a sum
-- over the latent numbers of a sample.
function VAELoss:forward(output, target, count)
  check_list("VAELoss", output, 3, "image, mean, logarithm of the variance")
  local mean, log_variance = precision.wide(output[2]), precision.wide(output[3])
  local divergence = ops.sum(ops.sub(ops.add(ops.square(mean), ops.exp(log_variance)), ops.add(log_variance, 1)))
  local sum = ops.add(of_samples(squares_between(output[1], target)), ops.mul(divergence, 0.5 * self.opt.kl))
  return over(sum, count or self:count(target))
end

return { CrossEntropyLoss = CrossEntropyLoss, BERTLoss = BERTLoss, MSELoss = MSELoss, L1Loss = L1Loss,
  HuberLoss = HuberLoss, SmoothL1Loss = SmoothL1Loss, BCEWithLogitsLoss = BCEWithLogitsLoss, DiceLoss = DiceLoss,
  DiffusionLoss = DiffusionLoss, VAELoss = VAELoss }
