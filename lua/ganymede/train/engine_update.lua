--- The update of an engine: the decision about a step that has all its gradients, and what follows from it.
--
-- The device decides whether a step makes its update and how far its gradients are clipped
-- (host/optim/step_control.h). Where engine.late is true, as on a GPU and where steps are graphs, the update follows at
-- once; elsewhere the host looks at the numbers before anything changes. Where engine.ahead is true, as on a GPU, the
-- host queues a step and goes on, and knows the numbers of the step when it has queued the next one. So a step that
-- diverged ends the run one step late; the message has the numbers of that step, and the parameters have not changed
-- since.
-- The trap: the decision must be the same on every rank, so what one rank alone knows is summed with the loss (agree).
-- With it goes a number that is 0 where all ranks update with the same learning rate, momentum, weight decay and
-- clipping (host/optim/step_control.h). So a schedule that differs between ranks ends the run, and costs no message.
-- @module ganymede.train.engine_update
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local lent = require "ganymede.train.lent"
local live = require "ganymede.job.live"
local options = require "ganymede.base.options"
local products = require "ganymede.job.products"
local ranks = require "ganymede.job.ranks"
local rate = require "ganymede.optim.rate"
local stage_gradients = require "ganymede.train.stage_gradients"

local phase = ranks.phase

local function is_finite(x) return x == x and math.abs(x) < math.huge end

-- Whether all numbers of t are finite. 0 times a number is 0 if the number is finite, otherwise NaN, so one sum tells.
local function all_finite(t)
  core.scope_open()
  local ok, sum = pcall(function() return core.is_tensor(t) and (t:detach() * 0):sum():item() end)
  core.scope_close()
  if not ok then failure.let_stops_pass(sum) end
  return ok and sum == 0
end

-- Returns the names of this stage's first parameter that is not finite, and of the last one whose gradient is not
-- finite, which the backward pass reached first.
local function bad_ones(self)
  local parameter, gradient = "", ""
  for _, item in ipairs(self.optimizer.items or {}) do
    if parameter == "" and not all_finite(item.tensor) then parameter = item.name end
    if not is_finite(core.grad_norm({ item.tensor }, 2)) then gradient = item.name end
  end
  return parameter, gradient
end

-- Says what was not finite first, as far as this is known after the step: a parameter, else the loss, else a gradient.
-- All stages call it at the same time, because each communicates among its own ranks.
local function first_bad(self, loss)
  local parameter, gradient = bad_ones(self)
  if self.stage.stages > 1 then
    local parameters, gradients = ranks.texts(parameter), ranks.texts(gradient)
    parameter, gradient = "", ""
    for i, text in ipairs(parameters) do
      if parameter == "" then parameter = text end
      if gradients[i] ~= "" then gradient = gradients[i] end
    end
  end
  if parameter ~= "" then return parameter end
  if not is_finite(loss) then
    return "the loss; all parameters are finite, so an op of the model or of the loss made it (log or sqrt of a "
      .. "negative number, a division by 0, an overflow), or the data did"
  end
  return gradient ~= "" and "the gradient of " .. gradient or "the norm of the gradients"
end

-- Undoes the counting of entry's step and of the steps that were queued after it, which have changed nothing.
local function take_back(self, entry)
  self.steps_done, self.pending = entry.step - 1, {}
  if entry.late then self.optimizer:set_steps(entry.updates) end
  self.control:resume()
end

-- Ends the run because the step diverged. All ranks call it, because they have the same numbers.
local function diverged(self, entry, numbers)
  local queued, where = #self.pending, ""
  if entry.late then ranks.sum { 0 } end -- a rank whose kernel has reported an error fails here, with that message
  take_back(self, entry)
  if queued > 0 then
    where = (" (in the gradients of step %d, which have replaced them)"):format(entry.step + queued)
  end
  ranks.fail(8, "diverged: loss %g, gradient norm %g in step %d; first that is not finite: %s%s\n"
    .. "  if it grew from step to step: try a smaller learning rate (it was %g), a warm-up, or clip_grad_norm = 1\n"
    .. "  detect_anomaly = true ends the same run at the op that makes the first of them, and names it",
    numbers.loss, numbers.norm, entry.step, first_bad(self, numbers.loss), where, entry.lr)
end

-- With what the optimizer makes the coming update: names and numbers, which must be the same on every rank. Users can
-- change each of them between steps, by a schedule, a hook or a loop of their own.
local update_names = { "learning rate", "momentum", "weight decay", "clip_grad_norm" }

local function number(x) return type(x) == "number" and x or -1 end

-- Returns these numbers, and the list that is compared. What a schedule of ours sets is compared as that schedule and
-- its position before or behind the step, which do not change: so a GPU is sent nothing new in each step.
local function update_numbers(self)
  local optimizer, said = self.optimizer, self.optimizer.scheduled
  local lr, momentum = rate(optimizer), number(optimizer.momentum_set)
  local decay, clip = number(optimizer.opt and optimizer.opt.weight_decay), number(self.clip_grad_norm)
  local numbers = { lr, momentum, decay, clip }
  if not said or said.lr ~= lr or momentum ~= number(said.momentum) then return numbers, numbers end
  return numbers, { -1, said.identity, said.position - self.steps_done, decay, clip }
end

-- Ends the run because ranks would make different updates, so that their copies of the model would drift apart. All
-- ranks call it, because the sum over ranks told all of them.
local function drifting(self, entry)
  if entry.late then ranks.sum { 0 } end -- as in diverged
  take_back(self, entry)
  local given = {}
  for i, name in ipairs(update_names) do given[name] = entry.numbers[i] ~= -1 and entry.numbers[i] or nil end
  local schedule = self.lr_scheduler
  given.schedule = schedule and ("%s, moved %d times"):format(tostring(schedule), schedule.position or -1)
  ranks.fail(1, "step %d: the ranks would make different updates, and their copies of the model would drift apart:\n%s"
    .. "\n  what sets it (a schedule, a hook, a loop of your own) must give every rank the same: a function of the "
    .. "step, with no math.random, no clock and no rank in it", entry.step, ranks.differing(given))
end

local function end_step(self)
  self.steps_done = self.steps_done + 1
  for _, m in ipairs(self.model:modules()) do
    if m.after_update and m:is_present() then m:after_update() end
  end
  if self.tier then self.tier:end_step() end
  self.batch, self.announced, self.fresh, self.has_passes = 0, nil, true, false
  phase "other"
end

-- What one rank was asked for, in the sum over all: 1 is a stop, this a request of another process, which rank 0 alone
-- hears (ganymede.job.live). A job has fewer ranks.
local REQUEST = 2 ^ 20

-- A rank has timed kinds of products, about which all must agree (ganymede.job.products).
local TIMED = 2 ^ 21

-- Takes in what ranks were asked for.
local function hear(self, asked)
  self.stop_asked = self.stop_asked or asked % REQUEST > 0
  self.requests_wait = self.requests_wait or asked % TIMED >= REQUEST
  self.products_wait = self.products_wait or asked >= TIMED
end

-- Tells the step that comes next what this rank was asked for. Its numbers travel with that, in the sum of the loss.
local function ask(self)
  local asked = (self.stop_requested and self.stop_requested() and 1 or 0) + (live.waiting() and REQUEST or 0)
    + (products.waiting() and TIMED or 0)
  if core.world() > 1 then
    local compared
    self.update_numbers, compared = update_numbers(self)
    return self.control:ask(asked, compared)
  end
  self.stop_asked = false
  hear(self, asked)
end

-- Sums over the ranks what all must know before the decision: the loss, what ranks were asked for, and whether their
-- numbers differ.
local function agree(self)
  if core.world() > 1 then core.comm_all_reduce(self.control:loss(), core.comm_group(), "sum") end
end

-- The values of engine.on_not_finite as attributes of step_control.
local on_not_finite = { skip = 1, warn = 2 }

-- The device decides whether there is an update, from the loss of all ranks and the norm of the gradients. It also
-- computes the norm if that is the 2-norm and one stage has the whole model. Any other norm passes through the host,
-- which waits.
local function decide(self)
  agree(self)
  local measured = self.counted
  local rule = { max_norm = self.clip_grad_norm or 0, not_finite = on_not_finite[self.on_not_finite] or 0 }
  if self.norm_type ~= 2 or self.stage.stages > 1 then measured = stage_gradients.norm(measured, self.norm_type) end
  if self.loss_scaling then self.loss_scaling:fill(rule) end
  self.control:decide(measured, rule)
end

-- Counts what the device decided in a step, or ends the run.
local function judge(self, entry, numbers)
  hear(self, numbers.asked)
  if self.optimizer.set_skipped then self.optimizer:set_skipped(numbers.skipped) end
  if numbers.cause == 1 then self.known.not_finite = self.known.not_finite + 1 end
  if numbers.halted == 0 then return end
  if numbers.cause == 1 then diverged(self, entry, numbers) end
  if numbers.cause == 4 then drifting(self, entry) end
  take_back(self, entry) -- raises the error that a kernel has reported
  error(("step %d: a kernel reported an error on the device, and its message is missing"):format(entry.step), 0)
end

local function tell(self, entry, numbers)
  entry.loss, entry.gradient_norm, entry.targets = numbers.loss, numbers.norm, numbers.targets
  entry.not_finite = numbers.cause == 1
  self.known.last_loss, self.known.grad_norm = numbers.loss, numbers.norm
  if self.loss_scaling then self.loss_scaling:tell(entry.step, numbers) end
  if self.on_update then self.on_update(self, entry) end
  if entry.told then entry.told(entry) end
end

-- Makes the update. The optimizer reads the decision on the device; one that cannot is called with the clipping factor.
local function update(self, numbers)
  local optimizer, has_data = self.optimizer, core.device().has_data
  if self.float8 then self.float8:update() end
  if optimizer.takes_control then
    optimizer:step { lr = optimizer.lr, control = self.control }
  elseif numbers.go ~= 0 or not has_data then
    optimizer:step { lr = optimizer.lr, clip = has_data and numbers.factor or 1 }
  else
    return
  end
  if self.gathers then core.reducer_gather(self.reducer) end
end

-- Between two steps of a loop without a trainer: what others see of the run, and what they ask.
local function at_border(self)
  if self.has_trainer then return end
  self.samples_made = (self.samples_made or 0) + self.samples
  live.step(self.steps_done, self.samples_made, 0)
  self:serve_requests { engine = self }
end

local function new_entry(self, told)
  return { step = self.steps_done + 1, lr = rate(self.optimizer), samples = self.samples, told = told,
           numbers = self.update_numbers, updates = self.optimizer:steps() }
end

-- Where the numbers are known at once (not on a GPU), the host reads them before anything changes.
local function step_at_once(self, entry)
  self.control:send()
  local numbers = self.control:take(true)
  judge(self, entry, numbers)
  update(self, numbers)
  end_step(self)
  tell(self, entry, numbers)
end

-- The update has been made, if the device decided so. On a GPU it has been queued only, and the host settles the step
-- before while the device works.
local function step_late(self, entry)
  self.control:send()
  end_step(self)
  entry.late = true
  table.insert(self.pending, entry)
  self:settle(self.ahead and 1 or 0)
end

--- Adds to the class Engine: the norm of gradients, step, and what waits for the numbers of a step.
return function(Engine)

--- Returns the p-norm of all gradients of all stages, without the loss scale; the same bits on every rank. Collective.
function Engine:gradient_norm(p)
  if p ~= nil and type(p) ~= "number" then
    error("engine:gradient_norm(p): p must be a number; got " .. options.brief(p), 2)
  end
  local norm = stage_gradients.norm(self.counted, p)
  if not self.loss_scaling then return norm end
  self:settle()
  return norm / (self.batch > 0 and self.loss_scaling.scale or self.loss_scaling.carried)
end

--- A function that is called after every update, in the order of steps, with the engine and the numbers of the step
-- ({ step, loss, gradient_norm, lr, samples }); nil: none. Programs without a trainer use it for their statistics.
Engine.on_update = nil

--- Waits until the numbers of all steps are known, except those of the last `keep` steps, oldest first. Raises the
-- error of a step that diverged.
function Engine:settle(keep)
  local pending = self.pending
  while #pending > (keep or 0) do
    local numbers = self.control:take(true)
    local entry = table.remove(pending, 1)
    judge(self, entry, numbers)
    tell(self, entry, numbers)
  end
end

--- Makes one update and returns true, if all batches of the step have been through backward; otherwise it does nothing
-- and returns false. If told is given, told(numbers) is called when the numbers of the step are known ({ step, loss,
-- gradient_norm, lr, samples, targets, not_finite }): on a GPU at the latest when the next step has been queued,
-- elsewhere at once.
-- A loss or gradient that is not finite changes no parameter and ends the run with exit status 8, unless
-- engine.on_not_finite is "skip" (no parameter changes, the step counts) or "warn" (nothing special happens).
function Engine:step(told)
  if self.batch == 0 then error("engine:step() without engine:backward(loss)", 2) end
  if self.launched and not self.has_trainer then lent.refuse_untaken(self.launched, self) end
  self.updated = self.batch >= self:batches_wanted()
  if not self.updated then return false end
  phase "update"
  for _, handler in ipairs(self.gradient_handlers) do handler:handle_gradient(self) end
  ask(self)
  local entry = new_entry(self, told)
  if self.late then
    self:queue_update()
    step_late(self, entry)
  else
    decide(self)
    step_at_once(self, entry)
  end
  at_border(self)
  return true
end

--- For trainers: agrees on the ways to make products, and serves the requests of other processes, if the last agreement
-- of the ranks said that there are some. subject: that of live.serve. Collective.
function Engine:serve_requests(subject)
  if self.products_wait then
    products.join()
    if self.graph then self.graph:outdate() end -- it multiplies in the ways of before
  end
  self.products_wait = false
  products.keep()
  if not self.requests_wait then return end
  self.requests_wait = false
  live.serve(subject)
end

--- For ganymede.train.graph: queues the decision and the update of a step that has all its gradients, and does not
-- count the step.
function Engine:queue_update()
  phase "update"
  decide(self)
  update(self)
end

--- For ganymede.train.graph: what a step does about requests to this rank before it is queued.
function Engine:ask() ask(self) end

--- For ganymede.train.graph: counts a step of so many samples that a graph has queued, and does what else step() does.
function Engine:count_step(samples, told)
  self.samples, self.updated = samples, true
  local entry = new_entry(self, told)
  self.optimizer:set_steps(entry.updates + 1)
  step_late(self, entry)
  at_border(self)
end

--- Sets the number of steps made so far, when a run resumes; and the number of updates, if some steps made none.
function Engine:set_steps(n, updates)
  if type(n) ~= "number" or n < 0 or n ~= math.floor(n) then
    error("engine:set_steps(n): n must be a number of steps, a whole number from 0; got " .. options.brief(n), 2)
  end
  self.steps_done = n
  self.optimizer:set_steps(updates or n)
end

end
