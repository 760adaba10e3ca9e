--- Finds out, in a rehearsal, what the other stages of a pipeline would send and compute, because nothing arrives
-- there.
--
--     borders.open(build)                                    -- build() -> the model, as the run builds it
--     borders.describe(stage, pieces, micro_batch, part)     -- what `part` returns -> list of tensors, text
--     borders.costs(stage, x, y, criterion)                  -- of one micro-batch, by part
--     borders.sections(x)                                    -- of one micro-batch, by section
--     borders.chain(x, y, criterion)                         -- the same with memory (ganymede.recompute.chain)
--
-- A rank has only its own parts, so a second model is built whole, on the meta device, and run from its first section.
-- It is built at the first call. What it holds, computes and sends counts with everything else, so these functions are
-- called before counting begins, and then the model is released (ganymede.plan.rehearse). Results are kept for
-- schedules that ask again (variable_shapes). The trap: if stages have built their own parts (stage.own), there is no
-- model whose earlier parts could be run.
-- @module ganymede.plan.borders
local core = require "ganymede.core"
local held = require "ganymede.tensor.held"
local arrivals = require "ganymede.pipeline.arrivals"
local auxiliary = require "ganymede.nn.auxiliary"
local called = require "ganymede.recompute.called"
local chain = require "ganymede.recompute.chain"
local float8_history = require "ganymede.nn.float8_history"
local micro_batches = require "ganymede.data.micro_batches"
local modules = require "ganymede.plan.modules"
local packing = require "ganymede.pipeline.packing"
local sections = require "ganymede.nn.sections"
local tensors = require "ganymede.tensor"

local borders = {}

local build, whole -- the function that builds the second model, and { model, list of sections }
local known = {} -- by border and kind of micro-batch: { list of tensors, text }, so that nothing is asked twice

--- Sets the function that builds the second model. There is one for the process, because a rehearsal has one model.
function borders.open(fn)
  build, whole = fn, nil
  arrivals.describe = borders.describe
end

--- Releases the second model at once, without the collector; the next call builds another.
function borders.release()
  for _, entry in ipairs(whole and whole.model:state() or {}) do entry.tensor:release() end
  whole = nil
end

--- Forgets the second model, how it is built, and its results.
function borders.close()
  borders.release()
  for _, said in pairs(known) do
    for _, t in ipairs(said.list) do t:release() end
  end
  build, known, arrivals.describe = nil, {}, nil
end

local function check(stage)
  if not stage.own or stage.n_parts == 1 then return end
  local list, reason = sections.of(stage.model)
  error(("check cannot tell what crosses between the stages, because it runs their parts on a second model, and what "
    .. "the recipe built is a stage's own part, or cannot be cut (%s). Rehearse the model whole, with --set "
    .. "parallel={}"):format(list and "it has sections of its own" or reason), 0)
end

-- Returns the sections of the second model; for a model that is not cut, one section with all of it.
local function list_of(model, stage)
  local list, reason = sections.of(model)
  if list then return list end
  if stage and stage.n_parts == 1 then return { { modules = { model }, forward = model } } end
  error(("check runs a model part by part, and this one has no sections: %s"):format(reason), 0)
end

local function second(stage)
  if whole then return whole end
  if not build then
    error("a rehearsal cannot tell what another stage sends: borders.open must say how its model is built", 0)
  end
  local model = build()
  local list = list_of(model, stage)
  whole = { model = model:materialize(), list = list }
  return whole
end

-- Runs fn(...) as a call of the second model: with its path and mode and its own auxiliary losses. Only the results
-- remain.
local function apart(stage, fn, training, ...)
  local own = second(stage)
  if training then own.model:train() else own.model:eval() end
  local before = core.set_path ""
  local function finish(ok, ...)
    core.set_path(before)
    auxiliary.clear()
    if not ok then error((...), 0) end
    return ...
  end
  return finish(pcall(fn, own, ...))
end

local function packed(...) return { n = select("#", ...), ... } end

-- Runs fn(...) and returns its results in a table, and its floating point operations: all of them, and those of
-- products.
local function counted(fn, ...)
  local before = core.counters()
  local results = packed(fn(...))
  local after = core.counters()
  return results, after.flops - before.flops, after.product_flops - before.product_flops
end

local function run_part(own, bounds, part, ...)
  return sections.run(own.list, bounds[part][1], bounds[part][2], part < #bounds, ...)
end

-- Returns tensors that are the result of no op, like those that a receiver gets.
local function received(list)
  local out = {}
  for i, t in ipairs(list) do
    local own = t:detach()
    out[i] = t:requires_grad() and own:requires_grad(true) or own
  end
  return out
end

-- Returns what a part returns, and keeps it for the next call of its kind.
local function learn(own, stage, part, piece)
  local x = packed(piece)
  core.set_batch(0, micro_batches.count(piece))
  for p = 1, part do x = packed(run_part(own, stage.bounds, p, unpack(x, 1, x.n))) end
  local list, text = stage:pack(unpack(x, 1, x.n))
  list = received(list)
  for _, t in ipairs(list) do t:keep() end
  return { list = list, text = text }
end

--- Returns what `part` (from 1) returns for one of the pieces of a batch, as list of tensors and text, like stage:pack.
-- This module owns the tensors.
function borders.describe(stage, pieces, micro_batch, part)
  check(stage)
  local piece, training = pieces[micro_batch], stage.model.training
  local key = ("%d %s %d %s"):format(part, tostring(training), core.no_grad(0), micro_batches.signature(piece))
  known[key] = known[key] or tensors.scope(apart, stage, learn, training, stage, part, piece)
  return known[key].list, known[key].text
end

-- Returns what crosses a border, tensor by tensor: shape and layout as in modules.placed, and bytes of this rank's
-- block.
local function crossing(list)
  local out = {}
  for i, t in ipairs(list) do
    out[i] = modules.placed(t)
    out[i].dtype, out[i].bytes = t:dtype(), held.bytes(t)
  end
  return out
end

local function saved_bytes(own)
  local bytes, scales = 0, float8_history.of(own.model)
  for _, node in ipairs(core.tape_saved(scales and scales:kept())) do bytes = bytes + node.bytes end
  return bytes
end

local function that_require(list)
  local out = {}
  for _, t in ipairs(list) do
    if t:requires_grad() then out[#out + 1] = t end
  end
  return out
end

local MOST_ROOTS = 8 -- of core.tape_run

-- Measures both halves of the backward pass of what was just recorded, and adds them to the row. given: the results of
-- the part; loss: the loss, or nil, besides those that layers add; inputs: the tensors whose gradients are computed.
local function measure_backward(own, row, given, loss, inputs)
  local outputs, seeds = that_require(given), {}
  for i, t in ipairs(outputs) do seeds[i] = core.settle(t:detach()) end
  for _, scalar in ipairs { loss or auxiliary.take(), loss and auxiliary.take() } do
    outputs[#outputs + 1], seeds[#seeds + 1] = scalar, false
  end
  row.saved_bytes = saved_bytes(own)
  local tape = core.tape_take()
  if not tape then return end
  if #outputs > 0 and #outputs <= MOST_ROOTS then
    local _
    _, row.input_flops = counted(core.tape_run, tape, { pass = "input", outputs = outputs, seeds = seeds,
      inputs = that_require(inputs) })
    _, row.weight_flops = counted(core.tape_run, tape, { pass = "weight" })
  end
  core.tape_free(tape)
end

-- Measures one part, given the list and text of the part before. Returns its row and its results.
local function measure_part(own, about, part, list, text)
  local stage = about.stage
  local x = part == 1 and packed(about.x) or packed(packing.unpack(list, text))
  local results, passed, products = counted(run_part, own, stage.bounds, part, unpack(x, 1, x.n))
  local row = { flops = passed, product_flops = products, gives = {} }
  if part < stage.n_parts then
    local given, said = stage:pack(unpack(results, 1, results.n))
    row.gives = crossing(given)
    measure_backward(own, row, given, nil, list)
    return row, received(given), said
  end
  local loss
  if about.criterion and about.y ~= nil then
    local scalar, flops, of_products = counted(about.criterion, results[1], about.y)
    row.flops, row.product_flops, loss = passed + flops, products + of_products, scalar[1]
  end
  measure_backward(own, row, loss and {} or packing.pack(results[1]), loss, list)
  return row
end

-- What runs again in backward in the model does so in the second one.
local function take_regions(own, model)
  local marked = own.model:modules()
  for i, m in ipairs(model:modules()) do marked[i]._module.recompute = m._module.recompute end
  own.list.regions = model._module.regions
end

--- Measures the passes of one micro-batch, x and its labels y, as in training. Returns a list by part: flops and
-- product_flops (of the forward pass on this rank; the loss counts in the last part), input_flops and weight_flops (of
-- the two halves of the backward pass; nil if there is none, or more than 8 tensors cross), saved_bytes (held for
-- backward), gives (what crosses the border after the part). criterion: nil if there is no loss.
function borders.costs(stage, x, y, criterion)
  check(stage)
  local about = { stage = stage, x = x, y = y, criterion = criterion }
  local function costs(own)
    local out, list, text = {}, {}, ""
    take_regions(own, stage.model)
    core.set_batch(0, micro_batches.count(x))
    for part = 1, stage.n_parts do
      out[part], list, text = tensors.scope(measure_part, own, about, part, list, text)
    end
    return out
  end
  return tensors.scope(apart, stage, costs, true)
end

--- Runs one micro-batch forward through each section of the second model. Returns a list of { name, flops, parameters
-- }.
function borders.sections(x)
  local function costs(own)
    local out, at, weights = {}, packed(x), sections.weights(own.list)
    core.set_batch(0, micro_batches.count(x))
    for i = 1, #own.list do
      local flops
      at, flops = counted(own.list[i].forward, unpack(at, 1, at.n))
      out[i] = { name = sections.name(own.list, i), flops = flops, parameters = weights[i] }
    end
    return out
  end
  return tensors.scope(tensors.no_grad, apart, nil, costs, true)
end

-- The chain of a model without sections: of the modules that it calls.
local function chain_of_calls(model, x, y, criterion)
  core.set_batch(0, micro_batches.count(x))
  local list, arguments = called(model, x)
  local out = chain(list, x, y, criterion, arguments)
  for _, values in ipairs(arguments) do
    for i = 1, values.n do
      if core.is_tensor(values[i]) then values[i]:release() end
    end
  end
  out.modules = true
  return out
end

--- Costs and memory of each section of the second model -> a chain. criterion: nil where there is no loss. A model
-- without sections gives the chain of its modules, which is marked (ganymede.recompute).
function borders.chain(x, y, criterion)
  return tensors.scope(apart, { n_parts = 1 }, function(own)
    if not sections.of(own.model) then return chain_of_calls(own.model, x, y, criterion) end
    return chain(own.list, x, y, criterion)
  end, true)
end

return borders
