--- What of a training run rests outside of memory while not needed: the setting `offload` (docs/memory_offload.md).
--
--     gm.initialize { offload = { optimizer = "disk", disk = "/scratch" }, ... }
--
-- A rank has one tier (host/tier): a file, and a ring of memory through which all that rests in the file passes. The
-- tier is opened before the first parameter is made, so that no rank ever holds all parameters.
-- The trap: space for optimizer states is taken when it is settled which part of a parameter a rank owns (ZeRO).
-- @module ganymede.train.offload
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"
local log = require "ganymede.base.log"
local joined = require "ganymede.train.joined_tiers"
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"
local placement = require "ganymede.train.placement"
local setting = require "ganymede.optim.offload_setting"

local offload = {}

local MIB = 2 ^ 20

-- "64M" or a number -> bytes
local function bytes_of(name, given)
  local bytes, problem = machine.bytes_of(tostring(given))
  if not bytes then error(("gm.initialize: offload.%s: %s"):format(name, problem), 0) end
  return bytes
end

local function has(opt, tier)
  for _, kind in ipairs(setting.kinds) do
    if opt[kind] == tier then return true end
  end
  return false
end

-- What passes through the ring of the device's memory, beside states of the optimizer on a CPU.
local PASSING = { "gradients", "parameters", "activations" }

-- Where these rest: "disk", on a GPU also "host"; nil: all are in memory.
local function place_of(opt)
  local place
  for _, kind in ipairs(PASSING) do
    local own = opt[kind] ~= "none" and (opt.apart or opt[kind] == "disk") and opt[kind] or nil
    if own and place and own ~= place then
      error("gm.initialize: offload: on a GPU gradients, parameters and activations that are offloaded rest in one "
        .. "place, on the host or on the disk; optimizer states may rest in the other", 0)
    end
    place = own or place
  end
  return place
end

local function passes(opt, kind) return opt.place ~= nil and opt[kind] == opt.place end

local function refuse_on_cpu(opt, given)
  if opt.apart or has(opt, "disk") then return end
  for _, name in ipairs { "ring", "least" } do
    if type(given) == "table" and given[name] and given[name] ~= setting.fields[name].default then
      error(("gm.initialize: offload.%s: on a CPU nothing passes through a ring to the host's memory, where all is "
        .. "anyway; leave it out, or let something rest on a disk"):format(name), 0)
    end
  end
end

--- Returns the options of the setting (a table, a tier of the optimizer's states, or nil), or nil: nothing rests
-- elsewhere.
function offload.options(given)
  if given == nil then return nil end
  local opt = options.check("gm.initialize: offload", setting.fields,
    type(given) == "table" and given or { optimizer = given }, 0)
  local problem = setting.problem(given)
  if problem then error("gm.initialize: offload " .. problem, 0) end
  if opt.memory then placement.refuse() end
  opt.apart = core.device().apart
  opt.place = place_of(opt)
  refuse_on_cpu(opt, given)
  opt.kind = has(opt, "disk") and "disk" or has(opt, "host") and "host" or nil
  if not opt.kind then return nil end
  opt.least_ring = opt.ring == "least"
  opt.ring = opt.ring and not opt.least_ring and bytes_of("ring", opt.ring) or nil
  opt.least = bytes_of("least", opt.least)
  return opt
end

-- ---------------------------------------------------------------- how large the ring is

-- Ranks that share out the gradients of a stage, and with stage 3 its parameters.
local function shared_over(divided)
  local plan = context.current().plan
  return divided.stage >= 2 and (plan.shard or plan.data or 1) or 1
end

-- Elements of a parameter that this rank holds, at most. p: of Module:declared(); owners: the ranks that share it out.
local function local_elements(p, owners)
  local sizes, parts = {}, owners
  for _, axis in ipairs(core.mesh()) do sizes[axis.name] = axis.size end
  for _, cut in ipairs(p.layout and p.layout.cuts or {}) do
    for _, axis in ipairs(type(cut) == "table" and cut or { cut or nil }) do parts = parts * (sizes[axis] or 1) end
  end
  return math.ceil(p.count / parts)
end

-- Bytes of the largest parameter, with the gradient and the optimizer states that rest on the disk beside it. states:
-- bytes of these; nil: not known yet. No optimizer has more than two, and a master of a parameter of 16 bits.
local function largest(opt, model, divided, states)
  local size, shared = dtypes.bytes[core.default_dtype()], shared_over(divided)
  local whole = passes(opt, "parameters") and size or 0
  local part = passes(opt, "gradients") and math.max(size, 4) or 0
  if opt.optimizer == "disk" and not states and not opt.apart then
    part = part + 2 * math.max(size, 4) + (size < 4 and 4 or 0)
  end
  local most = 0
  for _, p in ipairs(model:declared()) do
    if p.present and not p.tied then
      local own = local_elements(p, shared)
      most = math.max(most, (divided.stage == 3 and own or local_elements(p, 1)) * whole + own * part)
    end
  end
  return most + (states or 0)
end

-- An update holds all of a parameter in the ring at once. Twice as many bytes have a gap for the last of them wherever
-- the others lie.
local function check_ring(opt, engine, divided)
  if not opt.ring or not (passes(opt, "gradients") or passes(opt, "parameters")) then return end
  local _, states = engine.optimizer:room "disk"
  local most = largest(opt, engine.model, divided, opt.optimizer == "disk" and not opt.apart and states or 0)
  if opt.ring >= 2 * most then return end
  error(("gm.initialize: offload.ring is %d bytes, and the largest parameter with what belongs to it takes %d: give it "
    .. "at least twice as many"):format(opt.ring, most), 0)
end

-- The ring's default, or with ring = "least" what is enough at all. Optimizer states alone: four times those of the
-- largest parameter. Room for three units is needed (one comes, one is updated, one goes), and for the loss where the
-- ring begins anew.
local function ring_of(opt, model, optimizer, divided)
  if opt.ring then return opt.ring end
  if optimizer then
    local all, most = optimizer:room "disk"
    if opt.least_ring then return 2 * most end
    return math.max(4 * most, math.min(all * opt.fraction / 8, 64 * MIB))
  end
  local most = largest(opt, model, divided)
  return opt.least_ring and 2 * most + MIB or math.max(3 * most, 64 * MIB)
end

-- Bytes of gradients and parameters that go to the host together, of which three lots are under way.
local function unit_of(opt, ring)
  if opt.optimizer == "host" then ring = opt.ring or opt.least_ring and 4 or 64 * MIB end
  return math.max(1, math.floor(ring / 4))
end

-- ---------------------------------------------------------------- what rests

local function refuse_whole_sums(opt, divided, stages)
  if not passes(opt, "gradients") or divided.stage >= 2 or core.world() == stages then return end
  error("gm.initialize: offload.gradients needs zero = 2 or 3 if several ranks share the parameters: the ranks sum "
    .. "whole gradients in memory otherwise", 0)
end

-- Opens the tier of the rank's tensors.
local function open(opt, ring)
  local on = opt.place ~= nil
  local tier = core.tier(opt.place or opt.kind, opt.disk or "", (on or opt.kind == "disk") and ring or 0,
    opt.apart and "below" or nil)
  tier:rest(passes(opt, "gradients"), passes(opt, "activations"), opt.least)
  return tier
end

--- Begins what concerns parameters, gradients and activations, before a parameter of the model is made. opt: of
-- offload.options. Returns the tier; nil: only states of the optimizer rest elsewhere, see offload.start.
function offload.open(opt, model, divided, stages)
  if not opt then return nil end
  refuse_whole_sums(opt, divided, stages)
  if not opt.place then return nil end
  return open(opt, ring_of(opt, model, nil, divided))
end

--- A parameter rests in the tier from now on, if the options say so.
function offload.take(opt, tier, parameter)
  if tier and passes(opt, "parameters") then tier:rest_parameter(parameter, opt.least) end
end

-- What rests so, for messages.
local function named(opt, tier)
  local names = {}
  for _, kind in ipairs(setting.kinds) do
    if opt[kind] == tier then names[#names + 1] = kind == "optimizer" and "optimizer states" or kind end
  end
  return table.concat(names, ", ")
end

-- The same of a GPU.
local function say_below(opt, tier)
  if opt.optimizer ~= "none" then
    log.info("offload: optimizer states rest %s; the host makes their updates", opt.optimizer == "disk"
      and "on the disk" or "in page-locked memory of the host")
  end
  if not opt.place then return end
  local what = named({ gradients = opt.gradients, parameters = opt.parameters, activations = opt.activations },
    opt.place)
  log.info("offload: %s rest %s and pass through %s of the GPU's memory", what, opt.place == "disk" and "on the disk"
    or "in page-locked memory of the host", machine.bytes(tier:stats().ring_bytes))
end

local function say(opt, tier)
  for text in function() return core.device_note() end do log.info("%s", text) end
  if not core.device().has_data then return end
  if opt.apart then return say_below(opt, tier) end
  if has(opt, "host") then
    log.info("offload: the memory of the device %s is the host's memory, so %s on the host save nothing",
      core.device().name, named(opt, "host"))
  end
  if opt.kind == "disk" then
    log.info("offload: %s pass through %s of memory", named(opt, "disk"), machine.bytes(tier:stats().ring_bytes))
  end
end

-- Bytes of all gradients that will rest on the disk.
local function gradient_room(opt, engine, divided)
  local bytes, shared = 0, shared_over(divided)
  for _, p in ipairs(passes(opt, "gradients") and engine.parameters or {}) do
    if p:requires_grad() then
      bytes = bytes + math.ceil(p:numel() / shared) * math.max(4, dtypes.bytes[p:dtype()]) + 4096
    end
  end
  return bytes
end

-- On a GPU the optimizer's states have a tier of their own. Returns it; nil: they are in the GPU's memory.
local function start_states(engine, opt)
  if opt.optimizer == "none" then return nil end
  local ring = ring_of(opt, nil, engine.optimizer)
  local states = core.tier(opt.optimizer, opt.disk or "", opt.optimizer == "disk" and ring or 0, "beside")
  engine.optimizer:offload(states, opt.fraction, unit_of(opt, ring))
  return states
end

--- Begins what concerns the optimizer, and takes space for all. Sets engine.tier, and engine.ring_bytes: of the memory
-- of the device.
function offload.start(engine, opt, tier, divided)
  if not opt then return end
  if opt.apart then
    engine.tier = joined(tier, start_states(engine, opt))
  else
    tier = tier or open(opt, ring_of(opt, nil, engine.optimizer))
    engine.tier = tier
    if opt.optimizer ~= "none" and (opt.optimizer == "disk" or opt.kind == "host") then
      engine.optimizer:offload(tier, opt.fraction, 0)
    end
  end
  engine.ring_bytes = tier and tier:stats().ring_bytes or 0
  check_ring(opt, engine, divided)
  if tier then tier:prepare(gradient_room(opt, engine, divided)) end
  say(opt, tier)
end

return offload
