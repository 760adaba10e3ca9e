--- The losses of an engine: the criterion of a batch, and the number by which it is divided.
--
-- A loss is a sum over contributing targets, divided by their number in the whole step. That number is known before the
-- first backward pass: as numbers, or as f64 scalars on a GPU, where reading them would wait. The trap: without a step
-- loader that announces it (engine:announce), a batch is divided by the number of its own targets, which is right for
-- steps of one batch only.
-- @module ganymede.train.engine_loss
local auxiliary = require "ganymede.nn.auxiliary"
local criteria = require "ganymede.nn.criterion"
local ranks = require "ganymede.job.ranks"

-- The number of contributing targets of the coming step, by which losses are divided; nil: that of the batch is used.
local function divisor(self, level)
  if not self.training then return nil end
  if self.announced then return self.announced.targets end
  if self.accumulation > 1 then
    error(("gradient_accumulation = %d: take the batches from the loader that gm.initialize returns (pass it "
      .. "train_dataloader), or call engine:announce(targets, batches) before each step"):format(self.accumulation),
      level + 1)
  end
end

-- The criterion; an error without one.
local function criterion_of(self, level)
  if not self.loss_function then error("this engine has no criterion; pass one to gm.initialize", level + 1) end
  return self.loss_function
end

--- For the class Engine: criterion, and the counts behind it.
return function(Engine)

--- Returns the loss of one batch, a scalar tensor: the sum over its targets, divided by the number of targets of the
-- whole step. In training, what layers add to the loss (ganymede.nn.auxiliary) is divided by the number of batches of
-- the step and added.
function Engine:criterion(output, target)
  if self.regions_wanted and self.training then self.regions_wanted:note_label(target) end
  local loss = criteria.loss(criterion_of(self, 2), output, target, divisor(self, 2))
  return self.training and auxiliary.add_to(loss, 1 / self:batches_wanted()) or loss
end

--- Returns the number by which the losses of micro-batches are divided, from the list of their labels: the number of
-- targets of the step. If nobody has announced it, it is that of the batch; the call is then collective over all ranks.
function Engine:targets_of(labels)
  criterion_of(self, 2)
  local told, parts = divisor(self, 2), {}
  if told then return told end
  for _, label in ipairs(labels or {}) do
    for k, n in ipairs(self:targets_parts(label)) do parts[k] = (parts[k] or 0) + n end
  end
  local sums = ranks.sum(#parts > 0 and parts or { 0 })
  return #sums == 1 and sums[1] or sums
end

--- Returns this rank's terms of the numbers of targets in label, a list with one for each term of the criterion. There
-- is no communication if the criterion needs none (count_part).
function Engine:targets_parts(label)
  local criterion = self.loss_function
  if not criterion then return { ranks.share(label:numel()) } end
  local counted = criteria.counts(criterion, label)
  return criterion.count_part and counted or { ranks.share(counted[1]) }
end

--- Returns this rank's terms of the criterion's sums, not divided by counts: a list as long as that of targets_parts.
-- output nil: another stage has it, and the terms are zeros.
function Engine:loss_parts(output, label)
  local criterion, parts = self.loss_function, {}
  if output == nil then
    for k = 1, #self:targets_parts(label) do parts[k] = 0 end
    return parts
  end
  local sums = criterion.terms and criterion:terms(output, label) or { criteria.loss(criterion, output, label, 1) }
  for k, sum in ipairs(sums) do parts[k] = ranks.part(sum) end
  return parts
end

end
