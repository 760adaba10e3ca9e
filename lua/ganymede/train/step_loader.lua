--- The loader that gm.initialize returns: it reads the batches of one optimizer step together.
--
-- A step takes `gradient_accumulation` batches (the last of an epoch takes those that are left). They are read ahead,
-- because losses are divided by the number of targets of the whole step, which must be known before the first backward
-- pass; engine:announce tells the engine. Each batch of the loop has a scope of its own:
--
--     for x, y in train_loader:batches() do ... end      -- tensors of one turn are free in the next
--
-- Under a pipeline schedule x and y of a batch are lists of micro-batches (ganymede.data.micro_batches).
-- The trap: `break` leaves the scope of that turn open, and the collector must free what was made in it.
-- @module ganymede.train.step_loader
local at_path = require "ganymede.tensor.at_path"
local core = require "ganymede.core"
local criteria = require "ganymede.nn.criterion"
local failure = require "ganymede.base.failure"
local micro_batches = require "ganymede.data.micro_batches"
local ops = require "ganymede.tensor.ops"
local ranks = require "ganymede.job.ranks"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local StepLoader = {}
StepLoader.__index = StepLoader

--- Makes a step loader. loader: see ganymede.data; engine: the engine that is told (nil for evaluation); accumulation:
-- the number of batches in a step; pieces: the number of micro-batches in a batch; nil: batches are whole. Batches of a
-- loader without next_pieces are split.
function StepLoader.new(loader, engine, accumulation, pieces)
  return setmetatable({ loader = loader, engine = engine, accumulation = accumulation or 1, pieces = pieces,
                        epoch = 0 }, StepLoader)
end

--- Returns the loader itself if it is a step loader (gm.initialize returned it) or nil; otherwise makes one, as new
-- does.
function StepLoader.of(loader, engine, accumulation, pieces)
  if loader == nil or type(loader.next_step) == "function" then return loader end
  return StepLoader.new(loader, engine, accumulation, pieces)
end

--- Returns the number of steps in an epoch; nil for a loader without an end.
function StepLoader:length()
  if not self.loader.length then return nil end
  local batches = self.loader:length()
  return batches and math.ceil(batches / self.accumulation)
end

-- The place of a run in its epochs follows from its step, so all epochs must have as many steps. Without these two an
-- epoch that is too short would be read again and again, and of one that is too long the end would be left out.

--- Refuses an epoch whose loader says another number of steps than that of the first one. epoch: from 0.
function StepLoader.refuse_other(steps, of_first, epoch)
  if steps == of_first then return end
  error(("fit: epoch %d has %s steps, and the first one %s; a sampler or loader of your own must give all epochs as "
    .. "many"):format(epoch + 1, tostring(steps), tostring(of_first)), 0)
end

--- Refuses the end of an epoch before its last step. now: how many steps were made since the loader went to its place.
-- After some, the epoch is read again from the next step on: an evaluation may have moved a loader that both use.
function StepLoader.refuse_short(trainer, loader, now)
  local said, made = trainer.steps_per_epoch, trainer.step_of_epoch
  if not said and made > 0 then return end -- the end of a loader that does not know its length
  if now > 0 and (loader.loader or loader).seek then return end
  error(("fit: the training loader gave %d steps in epoch %d%s"):format(made, trainer.epoch + 1,
    said and (", and its length says %d"):format(said) or ""), 0)
end

--- Returns the number of samples of the dataset; nil for a loader that a program has written and that does not know it.
function StepLoader:samples_of_dataset()
  return self.loader.samples_of_dataset and self.loader:samples_of_dataset()
end

--- Returns the shapes of a sample as batches hold it; nil: they are not known before one is read.
function StepLoader:shapes() return self.loader.shapes and self.loader:shapes() end

-- Raises a failure on all ranks if a sampler of the user's own gave them different orders: each reads its part of a
-- batch, so that some samples would be read twice and others never.
local function refuse_orders(loader, epoch)
  local sum = loader.order_sum
  if not sum or core.world() == 1 then return end
  local most = ranks.max { sum, -sum }
  if most[1] == -most[2] then return end
  ranks.fail(1, "epoch %d: the sampler gave the ranks different orders of the samples; order(self, epoch, length) must "
    .. "be a function of the epoch and the length, with no math.random, no clock and no rank in it", epoch + 1)
end

--- Chooses the order of the samples; the next batch is the first of that epoch. Collective where a sampler is the
-- user's own.
function StepLoader:set_epoch(epoch)
  self.epoch, self.passed = epoch, false
  if self.loader.set_epoch then self.loader:set_epoch(epoch) end
  refuse_orders(self.loader, epoch)
end

--- Whether set_epoch goes back to the first batch: a loader that a program has written need not have it.
function StepLoader:can_return() return self.loader.set_epoch ~= nil end

--- Lets this epoch begin at a sample of its order, from 0: its steps count from there.
function StepLoader:begin_at(first) self.loader:begin_at(first) end

--- From now on batches have another size. Goes to the first batch of the epoch.
function StepLoader:set_batch(size) self.loader:set_batch(size) end

--- Whether begin_at and set_batch are possible: a loader that a program has written need not have them.
function StepLoader:can_change() return self.loader.set_batch ~= nil and self.loader.begin_at ~= nil end

--- Goes to a step of this epoch, from 0.
function StepLoader:seek(step)
  if not self.loader.seek then
    failure(2, "the run goes on after step %d of an epoch, and its training loader has no method seek(batch), which "
      .. "would go there: give it one, or begin a run of its own with init_from", step)
  end
  self.loader:seek(step * self.accumulation)
end

-- Calls fn(part) for a batch, or for each of its micro-batches.
local function each_piece(batch, fn)
  if not micro_batches.is_list(batch) then return fn(batch) end
  for _, piece in ipairs(batch) do fn(piece) end
end

-- Returns the sum of a list of f64 scalars as f64 (1); zero for an empty list.
local function added(list)
  local sum = list[1] or tensors.zeros({}, { dtype = "f64" })
  for i = 2, #list do sum = ops.add(sum, list[i]) end
  return ops.reshape(sum, { 1 })
end

-- Returns this rank's terms of the counts of a step: for each term of the criterion a list of f64 scalars.
local function terms_on_device(criterion, step)
  local terms = { {} }
  local function count(label)
    local counted = label ~= nil and criterion:count_tensor(label) or {}
    for k, t in ipairs(core.is_tensor(counted) and { counted } or counted) do
      terms[k] = terms[k] or {}
      table.insert(terms[k], ranks.part_tensor(t))
    end
  end
  for _, batch in ipairs(step) do each_piece(batch[2], count) end
  return terms
end

-- Returns the numbers of contributing targets of a whole step, an f64 scalar for each term of the criterion. The host
-- does not read them.
local function count_on_device(engine, step)
  local sums, counts = {}, {}
  for k, list in ipairs(terms_on_device(engine.loss_function, step)) do sums[k] = added(list) end
  sums = ops.cat(sums, 1) -- not the memory of a part
  if core.world() > 1 then core.comm_all_reduce(sums, core.comm_group(), "sum") end
  for k = 1, sums:size(1) do counts[k] = ops.select(sums, 1, k) end
  engine.control:targets(sums)
  return counts
end

-- Returns the same as numbers, by at most one small sum over the ranks. A criterion without count_part returns a count
-- that all ranks know.
local function count_step(engine, step)
  ranks.phase "forward"
  local criterion, totals = engine.loss_function, {}
  if not criterion then return { 0 } end
  local function count(label)
    local counted = label == nil and { 0 } or criteria.counts(criterion, label)
    for k, n in ipairs(counted) do totals[k] = (totals[k] or 0) + n end
  end
  for _, batch in ipairs(step) do each_piece(batch[2], count) end
  return criterion.count_part and ranks.sum(totals) or totals
end

-- Returns the counts for the engine, and sets step.targets to their sum, or to nil if only the device knows it.
local function tell_targets(engine, step)
  local criterion = engine.loss_function
  if engine.late and criterion and criterion.count_tensor then
    step.targets = nil
    ranks.phase "forward"
    return tensors.no_grad(count_on_device, engine, step)
  end
  local counts = count_step(engine, step)
  step.targets = 0
  for _, n in ipairs(counts) do step.targets = step.targets + n end
  return counts
end

-- Returns the number of tokens in x: integers are tokens, one at each position of the last dimension; other x have
-- none.
local function tokens_of(x)
  if not core.is_tensor(x) then return 0 end
  local dtype = x:dtype()
  return (dtype == "i64" or dtype == "i32") and x:size(1) * (x:dim() > 1 and x:size(-1) or 1) or 0
end

-- Returns the next batch, in pieces if the step loader was made for them.
local function read(self)
  local loader, m = self.loader, self.pieces
  if not m then return loader:next() end
  if loader.next_pieces then return loader:next_pieces(m) end
  local x, y = loader:next()
  if x == nil or y == nil then return x ~= nil and micro_batches.split(x, m) or nil end
  return micro_batches.split_both(x, y, m)
end

local function add_batch(step, x, y)
  step[#step + 1] = { x, y }
  each_piece(x, function(piece)
    step.samples, step.tokens = step.samples + micro_batches.count(piece), step.tokens + tokens_of(piece)
    step.pieces = step.pieces + 1
  end)
end

--- Returns the batches of the next step, or nil at the end of the epoch: a list of { x, y }, which the caller's scope
-- holds. Its fields targets (of all terms of the criterion), samples, tokens and pieces (micro-batches; a whole batch
-- is one) count the whole step. targets is nil if only the device knows it (the numbers of the step have it later), and
-- with `deferred`, which leaves the counting to announce.
function StepLoader:next_step(deferred)
  local step = { samples = 0, tokens = 0, pieces = 0 }
  for _ = 1, self.accumulation do
    local x, y = at_path("data", read, self) -- what transforms draw there are other numbers than those of the model
    if x == nil then break end
    add_batch(step, x, y)
  end
  if #step == 0 then return nil end
  if self.engine and not deferred then StepLoader.announce(self.engine, step) end
  return step
end

--- Counts the targets of a step and announces them to the engine.
function StepLoader.announce(engine, step)
  local counts = tell_targets(engine, step)
  engine:announce(#counts == 1 and counts[1] or counts, #step, step.pieces)
end

-- Goes to the first batch: that of the next epoch if this loader trains and has reached the end of this one.
local function rewind(self)
  if self.engine and self.passed then
    self:set_epoch(self.epoch + 1)
  elseif self.loader.seek then
    self.loader:seek(0)
  end
end

--- Returns an iterator over the x, y of one epoch: the one that set_epoch chose, otherwise the one after the last.
function StepLoader:batches()
  local step, at, depth = nil, 0, core.scope_depth()
  rewind(self)
  local function read_step()
    core.scope_unwind(depth) -- of the last step
    core.scope_open()
    step, at = self:next_step(), 1
    if step then return true end
    core.scope_unwind(depth)
    self.passed = true
    return false
  end
  return function()
    at = at + 1
    if (not step or at > #step) and not read_step() then return nil end
    core.scope_unwind(depth + 1) -- of the last batch
    core.scope_open()
    return step[at][1], step[at][2]
  end
end

--- Stops reading ahead.
function StepLoader:close()
  if self.loader.close then self.loader:close() end
end

return signature.export("loader", StepLoader, ":")
