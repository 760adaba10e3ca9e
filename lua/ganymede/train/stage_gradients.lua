--- Communication between the stages of a pipeline about gradients: sums for parameters that several stages hold, and
-- norms.
--
--     local shared = stage_gradients.shared(stage)      -- once
--     stage_gradients.sum(shared)                       -- after the gradients were summed over data
--     stage_gradients.norm(stage_gradients.counted(parameters, shared), 2)
--
-- A stage is a set of ranks, and layouts say how a parameter lies on them. The communication here is between ranks with
-- equal coordinates on all other axes, block by block. A shared parameter keeps the same bits on all its stages,
-- because sums are made in the order of ranks. The update waits for the norm of all stages, so a step ends with a
-- barrier, also in zero-bubble orders: no stage updates first and undoes it later (the post-validation of Qi et al.
-- 2023, arXiv:2401.10241). The trap: all stages that share a parameter must call these functions together.
-- @module ganymede.train.stage_gradients
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local ranks = require "ganymede.job.ranks"
local tensors = require "ganymede.tensor"

local stage_gradients = {}

-- "0 3 f32": what all entries of one message have in common.
local function key_of(entry) return table.concat(entry.stages, " ") .. " " .. entry.tensor:dtype() end

local function group_of(stages)
  local along, members = context.current():get_ranks_in_group "PIPELINE", {}
  for i, stage in ipairs(stages) do members[i] = along[stage + 1] end
  return core.comm_group_of("pipeline stages " .. table.concat(stages, ", "), members)
end

--- Returns the parameters of this stage that others also hold, in messages: a list of { stages, comm = group, tensors,
-- names, broadcast = list of tensors whose first values differ between stages }, in the same order on all stages.
function stage_gradients.shared(stage)
  local messages, by_key, keys = {}, {}, {}
  for _, entry in ipairs(stage:shared()) do
    local key = key_of(entry)
    if not by_key[key] then
      by_key[key] = { stages = entry.stages, comm = group_of(entry.stages), tensors = {}, names = {}, broadcast = {} }
      keys[#keys + 1] = key
    end
    local message = by_key[key]
    message.tensors[#message.tensors + 1] = entry.tensor
    message.names[#message.names + 1] = entry.name
    if entry.broadcast then message.broadcast[#message.broadcast + 1] = entry.tensor end
  end
  table.sort(keys)
  for i, key in ipairs(keys) do messages[i] = by_key[key] end
  return messages
end

--- Gives parameters that a PipelineSharedModuleWrapper shares the values of the first of their stages.
function stage_gradients.make_equal(shared)
  for _, message in ipairs(shared) do
    for _, t in ipairs(message.broadcast) do
      tensors.scope(function() core.comm_broadcast(t:detach():local_tensor(), message.comm, 0) end)
    end
  end
end

-- ---------------------------------------------------------------- sums

-- Returns, for each parameter, whether it has a gradient on some stage. On the meta device all count as having one.
local function touched(message)
  local flags, has_data = {}, core.device().has_data
  for i, t in ipairs(message.tensors) do flags[i] = core.grad_part(t) and 1 or 0 end
  local list = has_data and tensors.tensor(flags, { dtype = "f64" }) or tensors.empty({ #flags }, { dtype = "f64" })
  core.comm_all_reduce(list, message.comm, "max")
  local found = has_data and list:totable() or {}
  for i = 1, #flags do flags[i] = found[i] ~= 0 end
  return flags
end

-- Returns this rank's part of the gradient of t; zeros if no loss of this stage depends on it.
local function gradient_of(t)
  if not core.grad_part(t) then core.grad_clear(t) end
  return core.grad_part(t)
end

-- Sums all gradients in one flat message.
local function sum_together(gradients, group)
  local flat, at = {}, 1
  for i, g in ipairs(gradients) do flat[i] = ops.reshape(g, { g:numel() }) end
  local all = core.comm_all_reduce(ops.cat(flat, 1), group, "sum")
  for i, g in ipairs(gradients) do
    local n = flat[i]:size(1)
    g:copy_(ops.reshape(all:narrow(1, at, n), g:shape()))
    at = at + n
  end
end

local function sum_message(message)
  local has, gradients = touched(message), {}
  for i, t in ipairs(message.tensors) do
    if has[i] then gradients[#gradients + 1] = gradient_of(t) end
  end
  if #gradients == 1 then core.comm_all_reduce(gradients[1], message.comm, "sum") end
  if #gradients > 1 then sum_together(gradients, message.comm) end
end

--- Sums the gradients of shared parameters over the stages that hold them. A parameter without a gradient on any stage
-- stays without one.
function stage_gradients.sum(shared)
  for _, message in ipairs(shared) do tensors.scope(tensors.no_grad, sum_message, message) end
end

-- ---------------------------------------------------------------- norms

--- Returns the parameters that count on this stage; shared ones count on the first of their stages only.
function stage_gradients.counted(parameters, shared)
  local elsewhere, own = {}, {}
  local here = ranks.stage()
  for _, message in ipairs(shared) do
    for _, t in ipairs(message.tensors) do elsewhere[t] = message.stages[1] ~= here end
  end
  for _, t in ipairs(parameters) do
    if not elsewhere[t] then own[#own + 1] = t end
  end
  return own
end

-- Returns the p-norm of numbers that are p-norms of parts, without overflow; NaN if one of them is NaN.
local function combined(norms, p)
  local largest = 0
  for _, x in ipairs(norms) do
    if x ~= x then return x end
    largest = math.max(largest, x)
  end
  if p == math.huge or largest == 0 or largest == math.huge then return largest end
  local sum = 0
  for _, x in ipairs(norms) do sum = sum + (x / largest) ^ p end
  return largest * sum ^ (1 / p)
end

--- Returns the p-norm of the gradients of all stages, the same bits on every rank. parameters: those that count on this
-- stage. Collective. Without a pipeline it is core.grad_norm.
function stage_gradients.norm(parameters, p)
  local norms = ranks.of_stages(core.grad_norm(parameters, p))
  return #norms == 1 and norms[1] or combined(norms, p)
end

return stage_gradients
