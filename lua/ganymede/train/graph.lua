--- Training steps as graphs: a step that has run a few times is recorded, and from then on each step is one launch of
-- a CUDA graph, or on a CPU one walk down a list of kernels (kernels/graph_host.h).
--
--     engine:train_step(batches, keep_output, told)     -- what the trainer calls; the engine's `graph` decides
--
-- A graph is the whole step on the device: forward, loss, backward, the norm, the decision, the update. A replay copies
-- its batches into the recorded tensors, writes the step block (learning rate, step, the seed of random numbers) and
-- runs the graph; no Lua code of the model runs. So a step must do the same each time. A step is recorded after 3 steps
-- of one kind (ganymede.train.step_kind: shapes and dtypes of the batches, mode, clipping, parameters that train).
-- Others, such as the smaller last batch of an epoch, run without a graph. After 3 steps of another kind in a row, that
-- kind is recorded, and the old graph is dropped. The host counts steps, statistics and hooks as before, results have
-- the same bits, and a program finds between steps what it would find without graphs.
--
-- On several ranks whose tensors travel by NCCL, its operations are part of the graph. A step then is recorded on all
-- ranks or on none, and replayed by all or by none: before each step every rank tells the others, in a few bytes, the
-- kind of its step and whether it can be recorded (core.comm_tell), so that all draw the same conclusions. What one
-- rank cannot record runs one by one on all of them, and the reason names the rank.
--
-- `graph` is "auto", true or false. "auto" records on a GPU, if it can; otherwise it prints the reason once. It does
-- not record with messages through host memory, pipeline stages, offload, gradient handlers, norms other than the
-- 2-norm, and modules that do something after each update. It also does not record if forward, loss or optimizer are
-- not Ganymede's own, because they may not do the same each time; true records these, and is an error where recording
-- is impossible. On a CPU only true records, because a graph holds a copy of the batches, and memory that evaluation
-- cannot use. On meta (`check`) true holds that copy, so that peaks are those of a run, and is refused as there.
-- The trap: a graph does not see what a program changes in a module between steps (such as a probability of dropout).
-- After such a change call engine.graph:forget(): the next steps then run without a graph and are recorded again. On
-- several ranks all of them must call it at the same step.
-- @module ganymede.train.graph
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"
local own = require "ganymede.base.own"
local ranks = require "ganymede.job.ranks"
local sha256 = require "ganymede.base.sha256"
local StepLoader = require "ganymede.train.step_loader"
local step_kind = require "ganymede.train.step_kind"
local tensor = require "ganymede.tensor"

local no_grad, scope = tensor.no_grad, tensor.scope

local WARM_UP = 3 -- steps of a kind before it is recorded: buffers, plans of libraries and kernels are there then

local MOST_KINDS = 16 -- that are told apart while there is no graph

local LOOKED_AT = "detect_anomaly looks at the results of each op"

local THROUGH_HOST = "tensors travel between ranks through host memory, and the host has no part in a replay"

local Graph = {}
Graph.__index = Graph

-- ---------------------------------------------------------------- what can be recorded

-- Names what may do something else each time; nil: nothing.
local function foreign(engine)
  local what = own.foreign(engine.model)
  if what then return what end
  local loss, optimizer = engine.loss_function, engine.optimizer
  local computes = type(loss) == "table" and (loss.calls or loss.forward)
  if computes and not own.has(computes) then return "the loss" end
  if not own.has(optimizer.step) then return "the optimizer " .. tostring(optimizer.name) end
  if engine.schedule.data_process_func then return "the schedule's data_process_func" end
end

-- Says why no step of this engine can be recorded, whatever the setting is; nil: steps can be recorded.
local function obstacle(engine)
  if core.detect_anomaly() then return LOOKED_AT end
  if engine.stage.stages > 1 then
    return "the host decides about messages and norms of pipeline stages while a step runs"
  end
  if engine.executor then return "num_microbatches: the host adds up the losses of micro-batches while a step runs" end
  if engine.tier then return "the host takes part in steps with offload" end
  if engine.regions_wanted then return "recompute.memory changes what runs again after the first step" end
  if #engine.gradient_handlers > 0 then return "gradient handlers are called by the host in each step" end
  if engine.norm_type ~= 2 then
    return ("the %g-norm of gradients is worked out by the host"):format(engine.norm_type)
  end
  if not engine.optimizer.takes_control then
    return ("%s decides about updates on the host"):format(engine.optimizer.name)
  end
  for _, m in ipairs(engine.model:modules()) do
    if m.after_update then
      return ("%s (%s) has after_update, which needs what the host saw in the step"):format(m.name, m:path())
    end
  end
end

--- Returns why "auto" does not record the steps of this engine on a GPU; nil: it does. Whether ranks talk through NCCL
-- is not asked.
function Graph.reason(engine)
  local why = obstacle(engine)
  local what = not why and foreign(engine)
  return why or what and what .. " is not Ganymede's own and may do something else each time; graph = true records it"
    or nil
end

-- Returns the reason of the first rank that has one, by name where others have none or another; nil: nobody has one.
-- reason: that of this rank, or nil. Collective.
local function common_reason(reason)
  local said, first, same = ranks.texts(reason or ""), nil, true
  for i, text in ipairs(said) do
    if text ~= "" and not first then first = i end
    same = same and text == said[1]
  end
  if not first then return nil end
  return same and said[first] or ("rank %d: %s"):format(first - 1, said[first])
end

-- Ends the run on all ranks, which have found the same. On meta there is one rank, which speaks for itself.
local function refuse(fmt, ...)
  if core.world() > 1 and core.device().has_data then ranks.fail(2, fmt, ...) end
  failure(2, fmt, ...)
end

local function new(engine, wanted)
  return setmetatable({ engine = engine, wanted = wanted, kinds_of = step_kind.new(), seen = {}, kinds = 0,
                        hashes = {}, n_hashes = 0 }, Graph)
end

--- Whether steps of this device are recorded at all with such a setting `graph`.
function Graph.is_wanted(wanted)
  local device = core.device()
  return wanted == true or (wanted == "auto" and device.has_data and not device.on_host)
end

local IMPOSSIBLE = "graph = true: steps cannot be recorded: %s"

-- On meta, which stands for the device of a run: returns the object that holds what a graph would hold, or refuses as
-- that device does. Whether GPUs talk through NCCL is not known here.
local function rehearsed(engine, wanted)
  local of_a_cpu = core.world() > 1 and not core.device().apart
  local why = of_a_cpu and THROUGH_HOST or obstacle(engine)
  if why then refuse(IMPOSSIBLE, why) end
  return new(engine, wanted)
end

--- Returns the object that records an engine's steps, or nil if they are not recorded. wanted: the setting `graph`. If
-- it is true and steps cannot be recorded, the run ends with status 2. Collective, if it is wanted.
function Graph.new(engine, wanted)
  if not Graph.is_wanted(wanted) then return nil end
  if not core.device().has_data then return rehearsed(engine, wanted) end
  local possible, why = core.graph_possible()
  if possible then why = wanted == "auto" and Graph.reason(engine) or obstacle(engine) end
  why = common_reason(why)
  if not why then return new(engine, wanted) end
  if wanted == true then refuse(IMPOSSIBLE, why) end
  log.info("graph: steps run one by one: %s", why)
end

-- ---------------------------------------------------------------- batches

-- Calls fn(tensor) for each tensor of a batch, in order. A batch is a tensor or a table of batches.
local function each_tensor(x, fn)
  if core.is_tensor(x) then return fn(x) end
  if type(x) ~= "table" then return end
  for _, key in ipairs(options.sorted_keys(x)) do each_tensor(x[key], fn) end
end

-- Returns the batch with fn(tensor) in place of every tensor.
local function mapped(x, fn)
  if core.is_tensor(x) then return fn(x) end
  if type(x) ~= "table" then return x end
  local out = setmetatable({}, getmetatable(x))
  for key, value in pairs(x) do out[key] = mapped(value, fn) end
  return out
end

-- ---------------------------------------------------------------- recording

local function keep(x) each_tensor(x, function(t) t:keep() end) return x end
local function release(x) each_tensor(x, core.release) end

-- Returns tensors that belong to the graph in place of a step's batches.
local function fixed_batches(batches)
  local fixed = { samples = batches.samples, tokens = batches.tokens, pieces = batches.pieces }
  for i, batch in ipairs(batches) do
    fixed[i] = { keep(mapped(batch[1], function(t) return t:clone() end)),
                 keep(mapped(batch[2], function(t) return t:clone() end)) }
  end
  return fixed
end

-- Copies the numbers of the batches into the tensors of the graph.
local function fill(fixed, batches)
  for i, batch in ipairs(fixed) do
    for k = 1, 2 do
      local from, at = {}, 0
      each_tensor(batches[i][k], function(t) from[#from + 1] = t end)
      each_tensor(batch[k], function(t)
        at = at + 1
        t:copy_(from[at])
      end)
    end
  end
end

local function queue(self, keep_output)
  local engine = self.engine
  StepLoader.announce(engine, self.fixed)
  local outputs, labels = engine:forward_backward(self.fixed, keep_output)
  engine:queue_update()
  keep(outputs)
  keep(labels)
  return outputs, labels
end

-- Writes what kernels read about the next step.
local function prepare(engine)
  engine:drop_passes()
  core.set_rng_step(engine.steps_done)
  engine.optimizer:prepare()
end

-- Undoes the counting of the step that was recorded. updates: optimizer:steps() before it.
local function unqueue(engine, updates)
  engine.batch, engine.samples, engine.announced, engine.fresh, engine.has_passes = 0, 0, nil, true, false
  engine.optimizer:set_steps(updates)
  engine.control:forget()
end

-- "12.3 MiB"
local function human(bytes) return ("%.1f MiB"):format(bytes / 2 ^ 20) end

--- Drops the graph: the next steps run one by one, and are recorded again when 3 of a kind have.
function Graph:forget()
  if self.graph then self.graph:close() end
  if self.ended then self.ended:close() end
  for _, held in ipairs { self.fixed or {}, self.outputs or {}, self.labels or {} } do release(held) end
  self.graph, self.ended, self.kind, self.last = nil, nil, nil, nil
  self.fixed, self.outputs, self.labels = nil, nil, nil
  self.seen, self.kinds = {}, 0
end

--- Says that ops are computed in another way from the next step on: the graph then is dropped, as forget does.
function Graph:outdate() self.stale = true end

-- Gives up recording: with graph = true this is an error; otherwise it prints the reason and does not try again.
local function give_up(self, why)
  self:forget()
  self.off = true
  if self.wanted == true then
    refuse("graph = true: step %d cannot be recorded: %s", self.engine.steps_done + 1, why)
  end
  log.info("graph: steps run one by one: %s", why)
end

-- Returns the reason if two ranks that share a group have recorded different operations on it; nil: none have.
-- said: what each rank has recorded, by rank, as about().operations.
local function difference(said)
  local by = {} -- group -> { hash, rank }
  for i, text in ipairs(said) do
    for group, hash in text:gmatch "(%x+):(%x+)" do
      local first = by[group]
      if first and first[1] ~= hash then
        return ("ranks %d and %d have recorded different operations between them"):format(first[2] - 1, i - 1)
      end
      by[group] = first or { hash, i }
    end
  end
end

-- Compares what the ranks have recorded. reason: why this rank has no graph, or nil; operations: those of its graph.
-- Returns why there is none on any rank, the same on all of them; nil: all have one. Collective.
local function agree(reason, operations)
  if core.world() == 1 then return reason end
  local said, none = ranks.texts((reason and "-" or "+") .. (reason or operations)), nil
  for i, text in ipairs(said) do
    if text:sub(1, 1) == "-" and not none then none = ("rank %d: %s"):format(i - 1, text:sub(2)) end
  end
  return none or difference(said)
end

-- Records a step without running it. Returns whether there is a graph, the same on all ranks.
local function record(self, batches, keep_output, kind)
  local engine, again = self.engine, self.graph ~= nil
  self:forget()
  local updates = engine.optimizer:steps()
  local ok, graph = pcall(function()
    self.fixed = fixed_batches(batches)
    prepare(engine)
    core.graph_begin()
    self.outputs, self.labels = scope(queue, self, keep_output)
    self.ended = core.step_end(engine.parameters)
    return core.graph_end()
  end)
  core.graph_drop() -- does nothing if the recording has ended
  unqueue(engine, updates)
  if not ok then failure.let_stops_pass(graph) end
  local why = agree(not ok and failure.text(graph) or nil, ok and graph:about().operations)
  if why then
    if ok then graph:close() end
    if core.world() > 1 then core.graph_renew_links() end
    give_up(self, why)
    return false
  end
  self.graph, self.kind = graph, kind
  local about = graph:about()
  log.info("graph: step %d was recorded%s: %d pieces of work, %s; steps like it are replayed",
    engine.steps_done + 1, again and " again, in place of the one before" or "", about.nodes, human(about.bytes))
  return true
end

-- ---------------------------------------------------------------- running

local function one_by_one(self, batches, keep_output, told)
  local engine = self.engine
  StepLoader.announce(engine, batches)
  local outputs, labels = engine:forward_backward(batches, keep_output)
  engine:step(told)
  return outputs, labels
end

-- On meta, where nothing is recorded: the step runs one by one beside what a graph would hold.
local function rehearse(self, batches, keep_output, told)
  local kind = step_kind.of_batches(batches)
  if kind ~= self.kind then
    if self.fixed then release(self.fixed) end
    self.fixed, self.kind = fixed_batches(batches), kind
  end
  return one_by_one(self, batches, keep_output, told)
end

local function replay(self, batches, told)
  local engine = self.engine
  fill(self.fixed, batches)
  batches.targets = self.fixed.targets -- nil: only the device knows
  prepare(engine)
  engine:ask()
  engine.has_passes = true -- until it is counted
  self.graph:replay()
  self.ended:put_back()
  engine:count_step(batches.samples, told)
end

-- Returns a batch's tensors as the caller's own: the next replay overwrites those of the graph.
local function copied(x) return no_grad(mapped, x, function(t) return t:clone() end) end

-- Adds the place to an error in a step.
local function in_graph(step, ok, ...)
  if ok then return ... end
  local err = ...
  error(type(err) == "string" and ("%s\n  in step %d, replayed from a graph"):format(err, step) or err, 0)
end

-- Whether this kind of step should be recorded now. The first graph is of the first kind that has run often enough,
-- also with others between. Another kind replaces it when it has come often enough in a row.
local function is_due(self, kind)
  local seen = (kind == self.last or not self.graph) and self.seen[kind] or 0
  if not self.graph and seen == 0 then self.kinds = self.kinds + 1 end
  if self.graph or self.kinds > MOST_KINDS then self.seen, self.kinds = {}, 1 end
  self.last, self.seen[kind] = kind, seen + 1
  return seen >= WARM_UP
end

-- Prints once that a step is not of the recorded kind, and once that no kind comes often enough to be recorded.
local function say_other(self, step, batches)
  if self.graph and not self.said_other then
    self.said_other = true
    log.info("graph: step %d is of another kind and runs by itself (%s)", step, step_kind.of_batches(batches))
  elseif not self.graph and self.kinds == MOST_KINDS and not self.said_many then
    self.said_many = true
    log.info("graph: steps run one by one: their batches differ, and none has come %d times (%s)", WARM_UP,
      step_kind.of_batches(batches))
  end
end

-- ---------------------------------------------------------------- what all ranks know

-- Fifteen hexadecimal digits of the kind of a step.
local function hash_of(self, kind)
  local hash = self.hashes[kind]
  if hash then return hash end
  if self.n_hashes == MOST_KINDS then self.hashes, self.n_hashes = {}, 0 end
  hash = sha256(kind):sub(1, 15)
  self.hashes[kind], self.n_hashes = hash, self.n_hashes + 1
  return hash
end

-- Whether a step can be recorded or replayed now; nil and why not: while a profile is running, a program looks at ops.
local function possible_now()
  if core.detect_anomaly() then return nil, LOOKED_AT end
  return core.graph_possible()
end

-- Returns whether the step can be recorded or replayed on all ranks, and its kind on all of them together.
local function together(self, kind)
  local possible, why = possible_now()
  local all = kind
  if core.world() > 1 then
    all = core.comm_tell(launcher.world(), (possible and "+" or "-") .. hash_of(self, kind))
    possible = not all:find("-", 1, true)
  end
  if possible then return true, all end
  local blocked = all:gsub("%+%x+", "+"):gsub("%-%x+", "-") -- who cannot, which all ranks know
  if self.blocked ~= blocked then
    self.blocked = blocked
    why = common_reason(why)
    log.info("graph: steps run one by one meanwhile: %s", why)
  end
  return false
end

--- Runs one step of the trainer; engine:train_step describes it.
function Graph:run(batches, keep_output, told)
  if not core.device().has_data then return rehearse(self, batches, keep_output, told) end
  if self.off then return one_by_one(self, batches, keep_output, told) end
  if self.stale or (self.graph and self.graph:has_ended()) then -- on all ranks: an error has closed their links
    self.stale = nil
    self:forget()
  end
  local step = self.engine.steps_done + 1
  local possible, kind = together(self, self.kinds_of:of(self.engine, batches, keep_output))
  if not possible then return one_by_one(self, batches, keep_output, told) end
  if kind ~= self.kind and not (is_due(self, kind) and record(self, batches, keep_output, kind)) then
    say_other(self, step, batches)
    return one_by_one(self, batches, keep_output, told)
  end
  self.last = kind
  in_graph(step, pcall(replay, self, batches, told))
  return copied(self.outputs), copied(self.labels)
end

return Graph
