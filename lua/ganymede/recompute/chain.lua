--- What the sections of a model cost and hold: the chain that ganymede.recompute.solve chooses regions for.
--
--     local chain = measure(list, x, y, criterion)         -- list: of ganymede.nn.sections
--
-- A stage (see ganymede.recompute.operations) is a section of the model; the loss belongs to the last one. Its
-- passes are run on a batch x, y of this rank, from section to section. Times are floating point operations. Bytes are
-- what the device's pool holds more than before. What a section is given is made for it, and is let go as it is in a
-- step: by the caller when the section has run, and by the tape when its backward pass needs it no more. Gradients of
-- parameters exist before the pass that counts, so they are in none of these. A stage has `name`, that of its section.
-- It is fixed where a region cannot contain it: its results are tables, or it is the last one, which has the loss.
-- chain.beside are the bytes of the model's output and of the loss, which who calls the model holds, and of the batch.
-- On the meta device this takes no data; on another one it computes.
-- The trap: what one section leaves for the next is made from its results alone. A section that hands over a tensor of
-- its own state would be counted twice.
-- @module ganymede.recompute.chain
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local held = require "ganymede.tensor.held"
local micro_batches = require "ganymede.data.micro_batches"
local region = require "ganymede.nn.region"
local sections = require "ganymede.nn.sections"
local tensors = require "ganymede.tensor"

local function new_leaf() return tensors.zeros({ 1 }):requires_grad(true) end

local function packed(...) return { n = select("#", ...), ... } end

local function live() return core.memory().live end

local function each_tensor(values, fn)
  for i = 1, values.n do
    if core.is_tensor(values[i]) then fn(values[i], i) end
  end
end

-- ---------------------------------------------------------------- what a section is given

-- Tensors that a section could have received: those that require a gradient are new ones, results of a node that keeps
-- nothing, computed from a leaf; reached() is called when their gradients have been computed. -> values, bytes of the
-- new ones.
local function given(values, leaf, reached)
  local out, places = { n = values.n }, {}
  for i = 1, values.n do out[i] = values[i] end
  each_tensor(values, function(t, i)
    if t:requires_grad() then places[#places + 1] = i end
  end)
  if #places == 0 then return out, 0 end
  local before = live()
  local source = tensors.custom {
    forward = function()
      local list = {}
      for k, i in ipairs(places) do list[k] = values[i]:detach():clone() end
      return unpack(list)
    end,
    backward = function()
      if reached then reached() end
      return tensors.zeros { 1 }
    end }
  local made = packed(tensors.scope(source, leaf))
  for k, i in ipairs(places) do out[i] = made[k] end
  return out, live() - before
end

-- What a section gave, cut off from how it was computed.
local function cut_off(values)
  local out = { n = values.n }
  for i = 1, values.n do out[i] = values[i] end
  each_tensor(values, function(t, i)
    out[i] = t:detach()
    if t:requires_grad() then out[i]:requires_grad(true) end
  end)
  return out
end

local function has_table(values)
  for i = 1, values.n do
    if type(values[i]) == "table" and not core.is_tensor(values[i]) then return true end
  end
  return false
end

-- ---------------------------------------------------------------- passes

-- The collector frees nothing from here on: bytes are counted from those that are held when a pass begins. A cycle of
-- the collector ends first. One that has come to its finalizers would go on although it is stopped, and start the
-- collector again: LuaJIT takes such a cycle a step further at each exit of a trace.
local function stop_collector()
  collectgarbage() -- once: it runs what frees tensors; a second one would free their handles
  collectgarbage "stop"
end

-- fn() in a scope. Where bytes are real or limited, what earlier sections dropped is freed before.
local function pass(fn)
  if core.device().backend ~= "meta" or core.memory().limit > 0 then stop_collector() end
  return tensors.scope(fn)
end

-- fn(...) -> its results; bytes held at most beyond those before; floating point operations.
local function counted(fn, ...)
  core.memory_reset_peak()
  local bytes, flops = live(), core.counters().flops
  local results = packed(fn(...))
  return results, core.memory().peak - bytes, core.counters().flops - flops
end

-- A forward pass that keeps nothing.
local function passing(fn, values)
  return pass(function()
    local inputs, bytes = given(values, new_leaf())
    local _, most, flops = counted(region.run, fn, unpack(inputs, 1, inputs.n))
    auxiliary.clear()
    core.tape_drop()
    return bytes + most, flops
  end)
end

-- Gives the tape the gradients of the results. joined: one gradient is that of all of them, as a sum gives it.
-- scalar: the losses that layers put aside, or nil.
local function seed(tape, results, scalar, joined)
  local one
  each_tensor(results, function(t)
    if not t:requires_grad() then return end
    if t:numel() == 1 and t:dim() == 0 then return core.tape_seed(tape, t) end
    local own = joined and one or tensors.scope(function() return core.settle(t:detach()):clone() end)
    core.tape_seed(tape, t, own)
    if joined then one = own else own:release() end
  end)
  if scalar then core.tape_seed(tape, scalar) end
  if scalar then scalar:release() end
  if one then one:release() end
end

local function release(values, but)
  local stays = {}
  each_tensor(but, function(t) stays[t] = true end)
  each_tensor(values, function(t)
    if not stays[t] then core.scope_drop(t) end
  end)
end

-- Both passes, with everything kept. -> figures of the stage, and input_gradient: bytes of the gradients that it gives.
-- The output of the last section is held by who called the model, also in backward: its bytes are `output`.
local function keeping(fn, values, joined, is_last)
  return pass(function()
    local leaf = new_leaf()
    local start = live()
    local out = { kept = 0, backward_extra = 0, backward = 0, seeds = 0, input_gradient = 0, output = 0 }
    local inputs, bytes = given(values, leaf, function() out.input_gradient = live() - start - out.output end)
    local results, most, flops = counted(fn, unpack(inputs, 1, inputs.n))
    out.keeping, out.forward = bytes + most, flops
    out.is_table = has_table(results)
    if is_last and results.n > 1 then
      out.output, results.n = core.is_tensor(results[2]) and held.bytes(results[2]) or 0, 1
      out.keeping, out.loss = out.keeping - out.output, held.bytes(results[1])
    end
    local scalar = auxiliary.take()
    local tape = core.tape_take()
    if not tape then return out end
    release(inputs, values)
    release(inputs, results)
    local before = live()
    seed(tape, results, scalar, joined)
    out.seeds = live() - before
    release(results, values)
    out.kept = math.max(0, live() - start - out.seeds - out.output)
    local _
    _, out.backward_extra, out.backward = counted(core.tape_run, tape, { pass = "whole" })
    core.tape_free(tape)
    return out
  end)
end

-- ---------------------------------------------------------------- the chain

-- The forward pass of a section; of the last one the loss, and the output of the model.
local function pass_of(list, i, loss)
  local forward = list[i].forward
  if i < #list or not loss then return function(...) return tensors.scope(forward, ...) end end
  return function(...)
    return tensors.scope(function(...)
      local output = forward(...)
      return loss(output), output
    end, ...)
  end
end

-- Bytes that a region keeps which begins at section i and is given these.
local function region_keeps(list, i, values)
  return tensors.no_grad(tensors.scope, function()
    local kept, bytes = values, 0
    if list[i].join then kept = packed(list[i].join(unpack(values, 1, values.n))) end
    each_tensor(kept, function(t) bytes = bytes + held.bytes(t) end)
    return bytes
  end)
end

-- Whether one gradient is that of all that a section gives: the next one, `after`, has given less than one for each.
local function shares_gradient(results, after)
  local bytes = 0
  each_tensor(results, function(t)
    if t:requires_grad() then bytes = bytes + held.bytes(t) end
  end)
  return after ~= nil and after.input_gradient < bytes
end

-- Runs all sections: fn(i, forward, values, results) for each, with the loss in the last forward. arguments: what each
-- is given; nil: what the one before gave.
local function walk(list, loss, x, arguments, fn)
  local values = packed(x)
  for i, section in ipairs(list) do
    values = arguments and arguments[i] or values
    local results = cut_off(packed(section.forward(unpack(values, 1, values.n))))
    core.tape_drop()
    auxiliary.clear()
    fn(i, pass_of(list, i, loss), values, results)
    values = results
  end
end

-- One section on its inputs -> its stage.
local function measure_stage(list, i, fn, values, joined)
  local stage = keeping(fn, values, joined, i == #list)
  stage.name, stage.fixed = sections.name(list, i), stage.is_table or i == #list
  stage.input = i > 1 and region_keeps(list, i, values) or 0
  stage.passing = stage.keeping
  if not stage.fixed then stage.passing, stage.forward = passing(fn, values) end
  return stage
end

-- Of what is no tensor: 0.
local function batch_bytes(x) return core.is_tensor(x) and held.bytes(x) or 0 end

-- The gradient of what a stage gives is what the next one says that it gives. A seed may have been something else.
local function join_gradients(chain, batch)
  chain.beside = chain[#chain].output + (chain[#chain].loss or 0) + batch
  for i, stage in ipairs(chain) do
    stage.gradient = chain[i + 1] and chain[i + 1].input_gradient or stage.seeds
    stage.backward_extra = math.max(0, stage.backward_extra + stage.seeds - stage.gradient)
  end
  return chain
end

-- The first round says what gradients sections give.
local function measure(list, x, y, criterion, arguments)
  local loss = criterion and y ~= nil and function(output) return (criterion(output, y)) end or nil
  local first, chain = {}, {}
  core.set_batch(0, micro_batches.count(x))
  walk(list, loss, x, arguments, function(i, fn, values)
    keeping(fn, values, false, i == #list) -- makes parameters and their gradients
    first[i] = keeping(fn, values, false, i == #list)
  end)
  walk(list, loss, x, arguments, function(i, fn, values, results)
    chain[i] = measure_stage(list, i, fn, values, shares_gradient(results, first[i + 1]))
  end)
  return join_gradients(chain, batch_bytes(x) + batch_bytes(y))
end

--- list: the sections of a model in training mode; x: what it is called with; y and criterion (output, y) -> loss, or
-- nil; arguments: see walk. -> the chain.
return function(list, x, y, criterion, arguments)
  stop_collector()
  return failure.protect(function() collectgarbage "restart" end, measure, list, x, y, criterion, arguments)
end
