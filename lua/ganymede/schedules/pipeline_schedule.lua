--- PipelineSchedule and InterleavedPipelineSchedule run a batch in micro-batches through the parts of a model.
--
--     schedule = { type = "PipelineSchedule", num_microbatches = 8, order = "zb-h1" }
--     local output, label, loss = schedule:forward_backward_step(engine, iter)
--
-- A batch of n samples has min(num_microbatches, n) pieces. Each rank does the list of actions that the order has for
-- its stage (ganymede.schedules.pipeline); core.executor runs it. Without an axis `pipeline` there is one stage, which
-- takes one micro-batch after the other; a pipeline must give the same results.
-- Loss and gradients are those of the whole batch, because the loss of a piece is divided by the number of targets of
-- the step. Losses that layers add (ganymede.nn.auxiliary) are means over a micro-batch, and their mean is added.
-- The trap: `output` exists only on the ranks of the stage that holds the last part, and is nil on all others; `label`
-- and `loss` are on every rank.
-- @module ganymede.schedules.pipeline_schedule
local arrivals = require "ganymede.pipeline.arrivals"
local auxiliary = require "ganymede.nn.auxiliary"
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local criteria = require "ganymede.nn.criterion"
local failure = require "ganymede.base.failure"
local join = require "ganymede.data.join"
local micro_batches = require "ganymede.data.micro_batches"
local options = require "ganymede.base.options"
local ops = require "ganymede.tensor.ops"
local orders = require "ganymede.schedules.pipeline"
local packing = require "ganymede.pipeline.packing"
local projection = require "ganymede.nn.projection"
local ranks = require "ganymede.job.ranks"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local PipelineSchedule = { name = "PipelineSchedule" }
PipelineSchedule.__index = PipelineSchedule

local shared = {
  num_microbatches = { type = "integer", min = 1, max = 2 ^ 20, doc = "the number of micro-batches in a batch" },
  order_options = { type = "table", default = {}, doc = "the options of the order itself" },
  data_process_func = { type = "function", optional = true,
    doc = "a function(x, y) of a micro-batch, or of a batch that is not yet a list of them, that returns input and "
      .. "label" },
  scatter_gather = { type = "boolean", default = true,
    doc = "whether ranks that hold copies of what crosses a border send one slice each, which the receivers gather" },
  variable_shapes = { type = "boolean", default = false,
    doc = "whether every message carries its shapes; needed if inputs of equal shapes give different shapes at a "
      .. "border" },
}
local aliases = { num_micro_batches = "num_microbatches", scatter_gather_tensors = "scatter_gather" }

local function with(own)
  local all = {}
  for key, entry in pairs(shared) do all[key] = entry end
  for key, entry in pairs(own) do all[key] = entry end
  return all
end

-- Returns the number of chunks on a stage: the number asked for, otherwise that of the order.
local function chunks_of(order, asked, level)
  if type(order) == "string" then order = registry.pipeline_schedules:get(order, level + 1) end
  local allowed = order.chunks or { default = 1, min = 1 }
  return asked or allowed.default or allowed.min or 1
end

local construct = signature.constructor("options table?", function(class, given)
  local opt = options.check(class.name, class.options, given, 2, aliases)
  local self = setmetatable({ opt = opt, num_microbatches = opt.num_microbatches, built = {} }, class)
  self.order = opt.order or "interleaved"
  self.chunks = chunks_of(self.order, opt.chunks or opt.num_model_chunks, 2)
  return self
end)

PipelineSchedule.options = with {
  order = { type = { "string", "table" }, default = "1f1b",
    doc = "the name of a registered order (ganymede.schedules.pipeline), or a table like the registered ones, with a "
      .. "name" },
  chunks = { type = "integer", min = 1, optional = true,
    doc = "the number of parts of the model on each stage; default: that of the order" },
}
setmetatable(PipelineSchedule, { __call = construct })

--- Colossal-AI's name of the order "interleaved": each stage holds num_model_chunks parts.
local Interleaved = setmetatable({ name = "InterleavedPipelineSchedule" },
  { __index = PipelineSchedule, __call = construct })
Interleaved.__index = Interleaved
Interleaved.options = with {
  num_model_chunks = { type = "integer", min = 2, default = 2, doc = "the number of parts of the model on each stage" },
}

-- ---------------------------------------------------------------- orders

-- The chunks of a rank in the order of the forward pass.
local function by_part(parts)
  local chunks = {}
  for chunk in ipairs(parts) do chunks[chunk] = chunk end
  table.sort(chunks, function(a, b) return parts[a] < parts[b] end)
  return chunks
end

-- The forward passes of a rank: rounds of as many micro-batches as there are stages, each through all parts.
local function in_rounds(parts, stages, count)
  local list, chunks = {}, by_part(parts)
  for first = 1, count, stages do
    for _, chunk in ipairs(chunks) do
      for m = first, math.min(first + stages - 1, count) do list[#list + 1] = { "forward", m, chunk } end
    end
  end
  return list
end

-- The order for evaluating a batch that the schedule's own order cannot take. The checker needs the backward passes,
-- too.
local rounds = {
  name = "rounds", options = { parts = { type = "list",
    doc = "the part of the model that each rank holds as each chunk: parts[rank + 1][chunk]" } },
  order = function(stages, count, _, opt)
    local actions = {}
    for i, parts in ipairs(opt.parts) do
      actions[i] = in_rounds(parts, stages, count)
      for k = #actions[i], 1, -1 do table.insert(actions[i], { "backward", actions[i][k][2], actions[i][k][3] }) end
    end
    return actions, opt.parts
  end,
}

local function shape_of(self, stages, count, forward_only)
  return { stages = stages, micro_batches = count, chunks = self.chunks, forward_only = forward_only,
           options = self.opt.order_options }
end

local function build_whole(self, stages, count, forward_only)
  return orders.build(self.order, shape_of(self, stages, count, forward_only), 0)
end

-- Builds the order for another number of micro-batches than it was chosen for, which a short batch has.
local function build_short(self, stages, count, forward_only)
  local ok, result = failure.try(build_whole, self, stages, count, forward_only)
  if ok then return result end
  if not forward_only then
    error(("a batch with samples for %d of %d micro-batches cannot go through the pipeline: %s\n  set data.drop_last = "
      .. "true, or a batch size without such a last batch"):format(count, self.num_microbatches, tostring(result)), 0)
  end
  local shape = shape_of(self, stages, count, true)
  shape.options = { parts = self:parts(stages) }
  return orders.build(rounds, shape, 0)
end

--- Returns the schedule (ganymede.schedules.pipeline) for so many stages and micro-batches; it is built once.
function PipelineSchedule:order_for(stages, count, forward_only)
  local key = ("%d %d %s"):format(stages, count, forward_only and "forward" or "both")
  if not self.built[key] then
    local build = count == self.num_microbatches and build_whole or build_short
    self.built[key] = build(self, stages, count, forward_only or false)
  end
  return self.built[key]
end

--- Returns parts[rank + 1][chunk], the parts of the model (from 1) on so many stages.
function PipelineSchedule:parts(stages) return self:order_for(stages, self.num_microbatches).parts end

--- Returns the stage, from 0, that holds the last part, and so has output and loss.
function PipelineSchedule:output_stage(stages)
  for i, parts in ipairs(self:parts(stages)) do
    for _, part in ipairs(parts) do
      if part == stages * self.chunks then return i - 1 end
    end
  end
end

-- Ranks along the axes of tensor modes hold copies of what crosses a border and share the sending. The other axes:
local not_tensor = { data = true, shard = true, expert = true, pipeline = true, sequence = true }

--- Returns a new executor, which runs the lists of actions on this rank's mesh.
function PipelineSchedule:new_executor()
  local axes = {}
  for _, axis in ipairs(core.mesh()) do
    if not not_tensor[axis.name] then axes[#axes + 1] = axis.name end
  end
  return core.executor_new { scatter = self.opt.scatter_gather and #axes > 0 and axes or nil,
    variable_shapes = self.opt.variable_shapes }
end

-- ---------------------------------------------------------------- batches

local function each_processed(self, x, y)
  local process, inputs, labels = self.opt.data_process_func, {}, {}
  for k, piece in ipairs(x) do inputs[k], labels[k] = process(piece, y and y[k]) end
  return micro_batches.List(inputs), #labels > 0 and micro_batches.List(labels) or nil
end

--- Returns the next batch of iter as lists of micro-batches of input and label (nil: the iterator returns none); nil at
-- the end. Lists stay as they are; anything else is split (micro_batches.split). inputs_only: data_process_func is not
-- called.
function PipelineSchedule:load_batch(iter, inputs_only)
  local x, y = iter()
  if x == nil then return nil end
  local process = not inputs_only and self.opt.data_process_func
  if process and micro_batches.is_list(x) then return each_processed(self, x, y) end
  if process then x, y = process(x, y) end
  if micro_batches.is_list(x) then return x, y end
  local m = self.num_microbatches
  return micro_batches.split(x, m), y ~= nil and micro_batches.split(y, m) or nil
end

-- ---------------------------------------------------------------- one batch

-- Returns the number of micro-batches of the step, over which losses of layers are averaged. If nobody has announced
-- it, all batches of the step count as having equally many.
local function pieces_of_step(engine, x)
  local told = engine.training and engine.announced
  return told and (told.pieces or told.batches * #x) or #x
end

-- Makes the state of one batch while it runs.
local function new_run(self, engine, x, y, opt)
  if y and #y ~= #x then
    error(("the inputs of a batch have %d micro-batches, and the labels %d: both need the same number of samples")
      :format(#x, #y), 0)
  end
  local coordinate, stages = ranks.stage()
  local sizes, total = x:samples()
  local run = {
    engine = engine, stage = engine.stage, x = x, y = y, outputs = {}, loss_part = 0, samples = total, sizes = sizes,
    before = {}, phase = engine.training and "forward" or "evaluate", forward_only = opt.forward_only,
    wants_loss = opt.return_loss or not opt.forward_only, wants_output = opt.return_output_label,
    count = pieces_of_step(engine, x),
  }
  for k = 1, #sizes do run.before[k] = k == 1 and 0 or run.before[k - 1] + sizes[k - 1] end
  run.built = self:order_for(stages, #x, opt.forward_only)
  run.actions, run.parts = run.built.actions[coordinate + 1], run.built.parts[coordinate + 1]
  run.n_parts = stages * self.chunks
  if run.wants_loss then run.targets = engine:targets_of(y) end
  return run
end

-- Keeps the output of the last part, without its tape and beyond the scope of the call, until all can be joined.
local function keep_output(run, m, output)
  local list, text = packing.pack(projection.to_plain(output))
  for i, t in ipairs(list) do list[i] = t:detach():keep() end
  run.outputs[m] = { list = list, text = text }
end

-- Returns the kept outputs, as tensors of the current scope.
local function taken(run)
  local pieces = {}
  for m, held in ipairs(run.outputs) do
    for i, t in ipairs(held.list) do
      held.list[i] = t:detach()
      t:release()
    end
    pieces[m] = projection.from_plain((packing.unpack(held.list, held.text)))
  end
  return #pieces > 0 and micro_batches.List(pieces) or nil
end

-- Returns what this part adds to the loss of the step: the loss of the criterion if it is the last part, and what its
-- layers add.
local function loss_of(run, m, is_last, output)
  local loss
  if is_last and run.wants_loss then
    loss = criteria.loss(run.engine.loss_function, output, run.y and run.y[m], run.targets)
  end
  local extra = auxiliary.take()
  if extra then
    extra = ops.mul(extra, 1 / run.count)
    loss = loss and ops.add(loss, extra) or extra
  end
  if loss and core.device().has_data then run.loss_part = run.loss_part + ranks.part(loss, true) end
  return loss and not run.forward_only and loss:requires_grad() and loss or nil
end

-- Returns the tensors and the text for the next part, and the loss. The results of the last part are kept instead.
local function handed_on(run, m, is_last, ...)
  if is_last and run.wants_output then projection.keep_places((...)) end
  local loss = loss_of(run, m, is_last, (...))
  if is_last and run.wants_output then keep_output(run, m, (...)) end
  if not run.forward_only then ranks.phase "backward" end
  if is_last then return {}, "", loss end
  local border, text = packing.pack(...)
  return border, text, loss
end

-- Makes one forward pass, as core.executor_run asks for it. list, text: what the part before returned.
local function forward(run, m, chunk, list, text)
  local part, stage = run.parts[chunk], run.stage
  ranks.phase(run.phase)
  if #run.parts > 1 then context.current():set_virtual_pipeline_parallel_rank(chunk - 1) end
  run.engine:begin_batch(run.before[m], run.sizes[m])
  if part == 1 then return handed_on(run, m, run.n_parts == 1, stage:forward(chunk, run.x[m])) end
  return handed_on(run, m, part == run.n_parts, stage:forward(chunk, packing.unpack(list, text)))
end

-- Returns the function that tells the shapes of what would arrive, on devices without data, where nothing is received.
local function describe(run)
  if core.device().has_data then return nil end
  local tell = arrivals.describe or error("on a device without data nothing arrives from other stages: only a "
    .. "rehearsal (ganymede check) knows what would arrive", 0)
  return function(m, part) return tell(run.stage, run.x, m, part) end
end

-- Runs the actions of a batch and returns its loss. final: it is the last batch of the step.
local function execute(self, run, final)
  local signatures = {}
  for k, piece in ipairs(run.x) do signatures[k] = micro_batches.signature(piece) end
  core.executor_run(run.engine.executor, {
    actions = run.actions, parts = run.parts, n_parts = run.n_parts, micro_batches = #run.x, chunks = self.chunks,
    signatures = signatures, forward_only = run.forward_only, final = final, describe = describe(run),
    forward = function(...) return forward(run, ...) end,
  })
  return run.loss_part
end

-- Releases the kept outputs of a batch that an error has ended.
local function let_go(run)
  for _, held in pairs(run.outputs) do
    for _, t in ipairs(held.list) do t:release() end
  end
end

local function run_batch(self, run)
  if run.forward_only then return tensors.no_grad(execute, self, run, false) end
  run.engine:run_batch(run.samples, function(final) return execute(self, run, final) end)
end

-- Returns the loss of the whole batch, on every rank. Collective.
local function whole_loss(run)
  local sum = ranks.sum { run.loss_part }[1]
  return core.device().has_data and tensors.tensor(sum) or tensors.empty {}
end

--- Runs one batch of iter through the pipeline, as engine:execute_schedule describes. Returns output, label, loss and
-- the number of micro-batches. Collective.
function PipelineSchedule:forward_backward_step(engine, iter, opt)
  opt = options.check("forward_backward_step", engine.run_options, opt, 2)
  local x, y = self:load_batch(iter, opt.inputs_only)
  if x == nil then return nil end
  engine:set_counting()
  local run = new_run(self, engine, x, y, opt)
  local ok, why = xpcall(function() run_batch(self, run) end, failure.handler)
  context.current():set_virtual_pipeline_parallel_rank(nil)
  if not ok then
    let_go(run)
    error(why, 0)
  end
  local loss = opt.return_loss and whole_loss(run) or nil
  if not opt.return_output_label then return nil, nil, loss, #x end
  local output = taken(run)
  if opt.pieces then return output, y, loss, #x end
  return output and join(output), y and join(y), loss, #x
end

registry.schedules:register("PipelineSchedule", PipelineSchedule)
registry.schedules:register("InterleavedPipelineSchedule", Interleaved)

return { PipelineSchedule = PipelineSchedule, InterleavedPipelineSchedule = Interleaved }
