--- What the sections of a model cost and hold: the chain that ganymede.plan.recompute.solve chooses regions for.
--
--     local chain = measure(list, x, y, criterion)         -- list: of ganymede.nn.sections
--
-- A stage (see ganymede.plan.recompute.operations) is a section of the model; the loss belongs to the last one. Its
-- passes are run on a batch x, y of this rank, from section to section. Times are floating point operations. Bytes are
-- what the device's pool holds more than before. What a section is given is made for it, and is let go as it is in a
-- step: by the caller when the section has run, and by the tape when its backward pass needs it no more. Gradients of
-- parameters exist before the pass that counts, so they are in none of these. A stage has `name`, that of its section.
-- It is fixed where a region cannot contain it: its results are tables, or it is the last one, which has the loss.
-- On the meta device this takes no data; on another one it computes.
-- The trap: what one section leaves for the next is made from its results alone. A section that hands over a tensor of
-- its own state would be counted twice.
-- @module ganymede.plan.recompute.chain
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local held = require "ganymede.tensor.held"
local micro_batches = require "ganymede.data.micro_batches"
local region = require "ganymede.nn.region"
local sections = require "ganymede.nn.sections"
local tensors = require "ganymede.tensor"

local function packed(...) return { n = select("#", ...), ... } end

local function live() return core.memory().live end

local function each_tensor(values, fn)
  for i = 1, values.n do
    if core.is_tensor(values[i]) then fn(values[i], i) end
  end
end

-- ---------------------------------------------------------------- what a section is given

-- Tensors that a section could have received: those that require a gradient are new ones, results of a node that keeps
-- nothing; reached() is called when their gradients have been computed. -> values, bytes of the new ones.
local function given(values, reached)
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
  local made = packed(source(tensors.zeros({ 1 }):requires_grad(true)))
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

-- fn(...) -> its results; bytes held at most beyond those before; floating point operations. The collector frees what
-- earlier sections dropped before counting begins, and nothing while it goes on.
local function counted(fn, ...)
  collectgarbage()
  collectgarbage "stop"
  core.memory_reset_peak()
  local bytes, flops = live(), core.counters().flops
  local results = packed(failure.protect(function() collectgarbage "restart" end, fn, ...))
  return results, core.memory().peak - bytes, core.counters().flops - flops
end

-- A forward pass that keeps nothing.
local function passing(fn, values)
  return tensors.scope(function()
    local inputs, bytes = given(values)
    local _, most, flops = counted(region.run, fn, unpack(inputs, 1, inputs.n))
    auxiliary.clear()
    core.tape_drop()
    return bytes + most, flops
  end)
end

-- Gives the tape the gradients of the results. joined: the next section gives one gradient for all of them.
local function seed(tape, results, joined)
  local one
  each_tensor(results, function(t)
    if not t:requires_grad() then return end
    if t:numel() == 1 and t:dim() == 0 then return core.tape_seed(tape, t) end
    local own = joined and one or core.settle(t:detach()):clone()
    one = one or own
    core.tape_seed(tape, t, own)
  end)
  local scalar = auxiliary.take()
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
local function keeping(fn, values, joined)
  return tensors.scope(function()
    local start, out = live(), { kept = 0, backward_extra = 0, backward = 0, seeds = 0, input_gradient = 0 }
    local inputs, bytes = given(values, function() out.input_gradient = live() - start end)
    local results, most, flops = counted(fn, unpack(inputs, 1, inputs.n))
    out.keeping, out.forward = bytes + most, flops
    out.is_table = has_table(results)
    local tape = core.tape_take()
    if not tape then return out end
    release(inputs, values)
    release(inputs, results)
    local before = live()
    seed(tape, results, joined)
    out.seeds = live() - before
    release(results, values)
    out.kept = math.max(0, live() - start - out.seeds)
    local _
    _, out.backward_extra, out.backward = counted(core.tape_run, tape, { pass = "whole" })
    core.tape_free(tape)
    return out
  end)
end

-- ---------------------------------------------------------------- the chain

-- The forward pass of a section; of the last one with the loss.
local function pass_of(list, i, loss)
  local forward = list[i].forward
  if i < #list or not loss then return forward end
  return function(...) return loss((forward(...))) end
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

-- One section on its inputs -> its stage.
local function measure_stage(list, i, fn, values)
  local joined = list[i + 1] and list[i + 1].join ~= nil
  keeping(fn, values, joined) -- makes parameters and their gradients
  local stage = keeping(fn, values, joined)
  stage.name, stage.fixed = sections.name(list, i), stage.is_table or i == #list
  stage.input = i > 1 and region_keeps(list, i, values) or 0
  stage.passing = stage.keeping
  if not stage.fixed then stage.passing, stage.forward = passing(fn, values) end
  return stage
end

-- The gradient of what a stage gives is what the next one says that it gives. A seed may have been something else.
local function join_gradients(chain)
  for i, stage in ipairs(chain) do
    stage.gradient = chain[i + 1] and chain[i + 1].input_gradient or stage.seeds
    stage.backward_extra = math.max(0, stage.backward_extra + stage.seeds - stage.gradient)
  end
  return chain
end

--- list: the sections of a model in training mode; x: what it is called with; y and criterion (output, y) -> loss, or
-- nil. -> the chain.
return function(list, x, y, criterion)
  local loss = criterion and y ~= nil and function(output) return (criterion(output, y)) end or nil
  local chain, values = {}, packed(x)
  core.set_batch(0, micro_batches.count(x))
  for i, section in ipairs(list) do
    chain[i] = measure_stage(list, i, pass_of(list, i, loss), values)
    values = cut_off(packed(section.forward(unpack(values, 1, values.n))))
    core.tape_drop()
  end
  auxiliary.clear()
  return join_gradients(chain)
end
