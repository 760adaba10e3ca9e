--- The noise of the gradient: how much gradients of parts of a batch differ from that of the whole batch.
--
--     engine.gradient_watch = GradientNoise.new(engine, 10)     -- measures every 10th step
--     local sums = engine.gradient_watch:sums()                 -- after such a step. COLLECTIVE
--     GradientNoise.estimate(sums, norm, samples)               -- -> { variance, square }
--
-- McCandlish et al., "An empirical model of large-batch training" (2018), appendix A.1. The samples of a step come in
-- groups: the rows of each data rank in each batch of gradient_accumulation. Group i has b_i samples and the mean
-- gradient G_i; all B samples have G = sum of b_i G_i / B. With the covariance S of one sample's gradient and the true
-- gradient g, the mean of |G_i|^2 is |g|^2 + tr S / b_i. So
--
--     variance = (sum of b_i |G_i|^2 - B |G|^2) / (n - 1)        has the mean tr S
--     square   = |G|^2 - variance / B                            has the mean |g|^2
--
-- for n groups of any sizes. For equal ones these are the estimates of the paper. The noise scale is variance / square,
-- of means over many steps, in samples: up to about that batch twice the samples make twice the progress.
--
-- What stages of a pipeline share (tied embeddings) is summed over them for each batch, and counts on the first one.
--
-- Costs of a measured step: a copy of the gradients for all batches of gradient_accumulation but the first one; sums
-- over the ranks begin after backward and not during it; where gradients are terms of a sum over other axes (sequence,
-- some tensor modes) or stages, one more sum of them for each batch; and one sum of two numbers. Nothing that is
-- trained changes.
-- The trap: a loss is divided by the targets of the step, so groups are weighted as if all samples had as many targets.
-- Batch norm makes samples depend on each other, and terms of the loss without samples count as part of each group.
-- @module ganymede.observe.gradient_noise
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local ranks = require "ganymede.job.ranks"
local tensors = require "ganymede.tensor"

local GradientNoise = {}
GradientNoise.__index = GradientNoise

local batch_axes = { data = true, shard = true, expert = true }

-- ---------------------------------------------------------------- what can be measured

-- The number of ranks that have rows of a batch of their own.
local function data_ranks()
  local n = 1
  for _, axis in ipairs(core.mesh()) do
    if batch_axes[axis.name] then n = n * axis.size end
  end
  return n
end

local function sizes()
  local size = {}
  for _, axis in ipairs(core.mesh()) do size[axis.name] = axis.size end
  return size
end

-- The axis of data ranks that cuts a parameter; nil: none.
local function batch_cut(t, size)
  for _, axes in ipairs(core.layout(t).cuts) do
    for _, name in ipairs(axes) do
      if batch_axes[name] and size[name] > 1 then return name end
    end
  end
end

-- Why the noise of an engine's gradient cannot be measured; nil: it can.
local function problem(engine)
  if data_ranks() * engine.accumulation < 2 then
    return "the gradients of a step have one batch size: there is one data rank, and gradient_accumulation is 1; "
      .. "train on two data ranks or more, or set gradient_accumulation = 2"
  end
  local size = sizes()
  for _, item in ipairs(engine.optimizer.items) do
    local axis = batch_cut(item.tensor, size)
    if axis then
      return ("%s lies in parts on the ranks of axis '%s', so its gradient on a rank is not that of the rank's own "
        .. "samples"):format(item.name, axis)
    end
  end
end

--- Why the noise cannot be measured, the same on all ranks; nil: it can. COLLECTIVE
function GradientNoise.missing(engine)
  for _, text in ipairs(ranks.texts(problem(engine) or "")) do
    if text ~= "" then return text end
  end
end

--- Makes what an engine takes as gradient_watch. every: it measures the steps whose number that divides. Fails with
-- status 2 on all ranks where nothing gives two sizes of batches. COLLECTIVE
function GradientNoise.new(engine, every)
  local missing = GradientNoise.missing(engine)
  if missing then ranks.fail(2, "GradientNoise: %s", missing) end
  local others = {}
  for _, axis in ipairs(core.mesh()) do
    if not batch_axes[axis.name] then others[#others + 1] = axis end
  end
  local shared = {}
  for _, message in ipairs(engine.shared) do
    for _, t in ipairs(message.tensors) do shared[t] = message end
  end
  return setmetatable({ every = every, others = others, size = sizes(), shared = shared, term = 0, groups = 0 },
    GradientNoise)
end

--- Whether a step is measured. All ranks answer alike.
function GradientNoise:wants(step) return step % self.every == 0 end

-- ---------------------------------------------------------------- a pass

local function each_parameter(engine, fn)
  for i, item in ipairs(engine.optimizer.items) do fn(i, item) end
end

-- Whether this rank is the first along all axes but those of data and those in `cut`: its numbers count there.
local function counts(self, cut)
  local cuts = {}
  for _, name in ipairs(cut) do cuts[name] = true end
  for _, axis in ipairs(self.others) do
    if axis.name ~= "pipeline" and not cuts[axis.name] and axis.coordinate > 0 then return false end
  end
  return true
end

local function is_first_of_data_rank(self)
  for _, axis in ipairs(self.others) do
    if axis.coordinate > 0 then return false end
  end
  return true
end

-- Gradients of 16 bits are compared in f32.
local function wide(t)
  local dtype = t:dtype()
  return (dtype == "bf16" or dtype == "f16") and t:to "f32" or t
end

--- Before a backward pass: keeps what the passes before it have left.
function GradientNoise:begin_pass(engine)
  if engine.batch == 0 then self.term, self.groups = 0, 0 end
  self.before = tensors.scope(tensors.no_grad, function()
    local list = {}
    each_parameter(engine, function(i, item)
      local g = core.own_gradient(item.tensor)
      list[i] = g and g:clone() or false
    end)
    return list
  end)
end

-- The axes over which a gradient is a term of a sum, but those of data. The gradient of a parameter that every data
-- rank has whole is refused: it is no gradient of the rank's own samples.
local function other_axes(self, name, partial)
  local rest, has = {}, {}
  for _, axis in ipairs(partial) do
    has[axis] = true
    if not batch_axes[axis] then rest[#rest + 1] = axis end
  end
  for axis in pairs(batch_axes) do
    if (self.size[axis] or 1) > 1 and not has[axis] then
      failure(2, "GradientNoise: the gradient of %s is the same on all ranks of axis '%s': the model does not see rows "
        .. "of a batch that is cut there", name, axis)
    end
  end
  return rest
end

-- What a pass has added to a gradient, summed over the axes over which it is a term of a sum, but those of data; and
-- the axes that cut it. nil: it has no gradient.
local function added(self, item, before)
  local g, cut, partial = core.own_gradient(item.tensor)
  if not g then return nil end
  local rest = other_axes(self, item.name, partial)
  local own = wide(g)
  if before then own = own - wide(before) end
  if #rest > 0 then
    if own == g then own = g:clone() end
    core.comm_all_reduce(own, core.comm_group(rest), "sum")
  end
  return own, cut
end

-- Whether any of the stages that share a parameter has a gradient of it. On the meta device it counts as having one.
local function is_touched(message, t)
  if not core.device().has_data then return true end
  local flag = tensors.tensor({ core.own_gradient(t) and 1 or 0 }, { dtype = "f64" })
  core.comm_all_reduce(flag, message.comm, "max")
  return flag:item() > 0
end

-- The same of a parameter that other stages hold, too, summed over them.
local function added_by_stages(self, message, item, before)
  if not is_touched(message, item.tensor) then return nil end
  local own, cut = added(self, item, before)
  if not own then -- what the sum over the stages after the last pass does as well
    core.grad_clear(item.tensor)
    own, cut = core.own_gradient(item.tensor)
    own = wide(own)
  end
  own = own:clone()
  core.comm_all_reduce(own, message.comm, "sum")
  return own, cut
end

-- The squares of what a pass has added to a gradient, f64 (1), where this rank's block counts; nil elsewhere.
local function squares_of(self, item, before)
  local message = self.shared[item.tensor]
  local own, cut
  if message then own, cut = added_by_stages(self, message, item, before)
  else own, cut = added(self, item, before) end
  if not own or not counts(self, cut) or (message and message.stages[1] ~= ranks.stage()) then return nil end
  own = own:reshape { own:numel() }
  return (own * own):sum():to "f64"
end

-- This rank's part of the squares of what a pass has added. Stages meet in what they share, in the order in which all
-- of them name it.
local function squares(self, engine, before)
  local sum
  local function add(i, item)
    local one = squares_of(self, item, before[i])
    if one then sum = sum and sum + one or one end
  end
  each_parameter(engine, function(i, item)
    if not self.shared[item.tensor] then add(i, item) end
  end)
  for _, message in ipairs(engine.shared) do
    for _, t in ipairs(message.tensors) do
      each_parameter(engine, function(i, item)
        if item.tensor == t then add(i, item) end
      end)
    end
  end
  return sum and core.device().has_data and sum:item() or 0
end

-- The rows of this rank in a batch of so many samples, which goes through the schedule in micro-batches.
local function own_rows(engine, samples)
  local pieces, rows = math.min(engine.schedule.num_microbatches or 1, samples), 0
  for k = 0, pieces - 1 do
    local _, n = core.batch_piece(samples, pieces, k)
    local _, own = core.batch_rows(n)
    rows = rows + own
  end
  return rows
end

--- After a backward pass of a batch of so many samples, before its gradients are summed over the data ranks.
function GradientNoise:end_pass(engine, samples)
  local before, scale = self.before, 1
  self.before = nil
  if engine.loss_scaling then
    engine:settle()
    scale = engine.loss_scaling.scale
  end
  local found = tensors.scope(tensors.no_grad, squares, self, engine, before)
  for _, t in ipairs(before) do
    if t then core.release(t) end
  end
  local rows = own_rows(engine, samples)
  if rows == 0 then return end
  self.term = self.term + found / (scale * scale) / rows
  if is_first_of_data_rank(self) then self.groups = self.groups + 1 end
end

-- ---------------------------------------------------------------- a step

--- What the passes of the step have shown, over all ranks: { of |c_i|^2 / b_i, where c_i is the part of group i in the
-- gradient of the step; groups }. COLLECTIVE
function GradientNoise:sums() return ranks.sum { self.term, self.groups } end

--- The estimates of a step. sums: of sums(); norm: that of the step's gradient; samples: of the step -> { variance,
-- square }, or nil: a number is not finite, or all rows of the step were those of one group.
function GradientNoise.estimate(sums, norm, samples)
  local term, groups = sums[1], sums[2]
  if groups < 2 or not (term < math.huge and norm < math.huge) then return nil end -- also NaN
  local variance = (samples * samples * term - samples * norm * norm) / (groups - 1)
  return { variance = variance, square = norm * norm - variance / samples }
end

return GradientNoise
