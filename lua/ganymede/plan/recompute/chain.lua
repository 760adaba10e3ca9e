--- What the sections of a model cost and hold: the chain that ganymede.plan.recompute.solve chooses regions for.
--
--     local chain = measure(list, x, y, criterion)         -- list: of ganymede.nn.sections
--
-- A stage (see ganymede.plan.recompute.operations) is a section of the model; the loss belongs to the last one. Its
-- passes are run on a batch x, y of this rank, from section to section. Times are floating point operations. Bytes are
-- what the device's pool holds more than before: without recording (output, forward_extra), recorded (kept, kept_extra)
-- and in backward (backward_extra). Gradients of parameters exist before the pass that counts, so they are in none of
-- these. A stage has `path`, the module that it is. It is fixed where its section is not one module, for regions are
-- modules.
-- On the meta device this takes no data; on another one it computes.
-- The trap: what one section leaves for the next is made from its results alone. A section that hands over a tensor of
-- its own state would be counted twice.
-- @module ganymede.plan.recompute.chain
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local held = require "ganymede.tensor.held"
local micro_batches = require "ganymede.data.micro_batches"
local tensors = require "ganymede.tensor"

local MOST_ROOTS = 8 -- of core.tape_run

local function packed(...) return { n = select("#", ...), ... } end

-- Tensors in place of a section's results, which have no past; others as they are.
local function cut_off(values)
  local out = { n = values.n }
  for i = 1, values.n do
    local v = values[i]
    out[i] = v
    if core.is_tensor(v) then
      out[i] = v:detach()
      if v:requires_grad() then out[i]:requires_grad(true) end
    end
  end
  return out
end

local function that_require(values)
  local out = {}
  for i = 1, values.n do
    if core.is_tensor(values[i]) and values[i]:requires_grad() then out[#out + 1] = values[i] end
  end
  return out
end

-- fn(...) -> its results; bytes held at most, and now, beyond those before; floating point operations. The collector
-- frees what earlier sections dropped before counting begins, and nothing while it goes on.
local function counted(fn, ...)
  collectgarbage()
  collectgarbage "stop"
  core.memory_reset_peak()
  local bytes, flops = core.memory().live, core.counters().flops
  local results = packed(failure.protect(function() collectgarbage "restart" end, fn, ...))
  local after = core.memory()
  return results, after.peak - bytes, after.live - bytes, core.counters().flops - flops
end

-- The forward pass of a section; of the last one with the loss.
local function pass_of(list, i, loss)
  local forward = list[i].forward
  if i < #list or not loss then return forward end
  return function(...) return loss((forward(...))) end
end

-- Backward through what was just recorded -> bytes at most beyond those before, gradients of results included;
-- bytes of these; operations.
local function backward(results, inputs)
  local outputs, seeds, bytes = that_require(results), {}, 0
  for i, t in ipairs(outputs) do seeds[i] = core.settle(t:detach()) end
  for _, t in ipairs(outputs) do bytes = bytes + held.bytes(t) end
  local scalar = auxiliary.take()
  if scalar then outputs[#outputs + 1], seeds[#seeds + 1] = scalar, false end
  local tape = core.tape_take()
  if not tape then return 0, 0, 0 end
  if #outputs > MOST_ROOTS then
    core.tape_free(tape)
    error(("a section gives %d tensors that need gradients; %d are the most here"):format(#outputs, MOST_ROOTS), 0)
  end
  local _, peak, _, flops = counted(core.tape_run, tape, { pass = "whole", outputs = outputs, seeds = seeds,
    inputs = that_require(inputs) })
  core.tape_free(tape)
  return peak, bytes, flops
end

local function unrecorded(fn, inputs)
  return tensors.scope(function()
    local _, most, now, flops = tensors.no_grad(counted, fn, unpack(inputs, 1, inputs.n))
    return { output = now, forward_extra = most - now, forward = flops }
  end)
end

local function recorded(fn, inputs)
  return tensors.scope(function()
    local results, most, now = counted(fn, unpack(inputs, 1, inputs.n))
    local peak, gradient, flops = backward(results, inputs)
    return { kept = now, kept_extra = most - now, backward_extra = peak, gradient = gradient, backward = flops }
  end)
end

-- One section on its inputs -> its stage.
local function measure_stage(section, fn, inputs)
  recorded(fn, inputs) -- makes parameters and their gradients
  local stage = unrecorded(fn, inputs)
  for name, value in pairs(recorded(fn, inputs)) do stage[name] = value end
  stage.kept = math.max(stage.kept, stage.output)
  stage.fixed = #section.modules ~= 1
  stage.path = not stage.fixed and section.modules[1]:path() or nil
  return stage
end

--- list: the sections of a model in training mode; x: what it is called with; y and criterion (output, y) -> loss, or
-- nil. -> the chain.
return function(list, x, y, criterion)
  local loss = criterion and y ~= nil and function(output) return criterion(output, y) end or nil
  local chain, inputs = {}, packed(x)
  core.set_batch(0, micro_batches.count(x))
  for i, section in ipairs(list) do
    local fn = pass_of(list, i, loss)
    chain[i] = measure_stage(section, fn, inputs)
    inputs = cut_off(packed(fn(unpack(inputs, 1, inputs.n))))
    core.tape_drop()
  end
  auxiliary.clear()
  return chain
end
