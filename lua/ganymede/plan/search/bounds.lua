--- Lower bounds of the time and the memory of a setting: nothing that a simulation finds is below them.
--
--     local seconds = bounds.of_share(facts, ranks)                 -- by formula: of all settings of a share,
--     local seconds = bounds.of_bunch(bunch, facts, machine, ranks)    -- of a bunch (ganymede.plan.search.space),
--     local seconds = bounds.of_family(family, facts, machine, ranks)  -- of a family,
--     local seconds = bounds.time(setting, facts, machine, ranks)   -- of a setting
--     local bytes = bounds.memory(setting, facts)
--
-- What rehearsals of single pieces say beyond formulas: ganymede.plan.search.refine; what the record of a rank says:
-- ganymede.plan.search.record.
-- By formula: products and bytes of ops are shared by all ranks at best, at the best rates of the machine; each piece
-- of a batch has as many ops as one sample, which take at least what the host of a rank takes to launch them. In a
-- pipeline whose passes are whole, stage s cannot begin before the stages before it have passed a micro-batch, and
-- these end after it: w_s + sum_{j<s} w_j / m <= T for all stages, therefore T >= W / (m (1 - (1 - 1/m)^p)) whatever
-- the split (Narayanan et al. 2021 count (p - 1)/m more for equal stages). Where a rank has several parts, a
-- micro-batch must at least go through all parts, one after the other. Layers send what their mode needs at least.
-- Gradients must be summed over the data ranks. Where ranks share cores, these do the work of all. Where the host
-- moves bytes, nothing overlaps, and what a mean rank sends adds to what it computes; elsewhere the larger counts.
-- @module ganymede.plan.search.bounds
local parallel = require "ganymede.job.parallel"
local passes = require "ganymede.plan.search.passes"
local rates = require "ganymede.plan.search.rates"
local setting = require "ganymede.plan.search.setting"

local bounds = {}

-- ---------------------------------------------------------------- groups

local groups = {} -- sizes and strides of axes, and a first member -> members. Many meshes have such a group

local function members_from(axes, first)
  local list = { first }
  for _, axis in ipairs(axes) do
    local more = {}
    for at = 0, axis.size - 1 do
      for _, rank in ipairs(list) do more[#more + 1] = rank + at * axis.stride end
    end
    list = more
  end
  return list
end

--- Returns the members of the group of a rank (0) along some axes of a mesh (a list of { name, size }), from 0. Groups
-- of equal members are one table.
function bounds.members(mesh, names, of)
  local wanted, axes, words, first, stride = {}, {}, {}, of or 0, 1
  for _, name in ipairs(names) do wanted[name] = true end
  for i = #mesh, 1, -1 do
    local axis = mesh[i]
    if wanted[axis.name] and axis.size > 1 then
      first = first - math.floor(first / stride) % axis.size * stride
      axes[#axes + 1], words[#words + 1] = { size = axis.size, stride = stride }, axis.size .. "x" .. stride
    end
    stride = stride * axis.size
  end
  local key = table.concat(words, " ") .. " " .. first
  groups[key] = groups[key] or members_from(axes, first)
  return groups[key]
end

local meshes = setmetatable({}, { __mode = "v" }) -- names and sizes -> mesh. Many shares have one

local function mesh_of(key, axes)
  local out = meshes[key] or {}
  for i, axis in ipairs(axes) do out[i] = out[i] or { name = axis[1], size = axis[2] } end
  meshes[key] = out
  return out
end

--- Returns the mesh of a setting: a list of { name, size }. Equal meshes are one table.
function bounds.mesh(s, ranks)
  local known, key = s.home and s.home.meshes or {}, s.order and table.concat(s.order, ".") or ""
  if s.home then s.home.meshes = known end
  if known[key] then return known[key] end
  local plan, words = assert(parallel.resolve(setting.parallel(s, {}), ranks)), {}
  for i, axis in ipairs(plan.axes) do words[i] = axis[1] .. " " .. axis[2] end
  known[key] = mesh_of(table.concat(words, " "), plan.axes)
  return known[key]
end

-- ---------------------------------------------------------------- by formula

-- The data ranks of the group of the first rank.
local function data_ranks(mesh)
  local copies = {}
  for _, axis in ipairs(mesh) do
    if axis.name == "data" or axis.name == "shard" or axis.name == "expert" then copies[#copies + 1] = axis.name end
  end
  return bounds.members(mesh, copies)
end

--- Returns the seconds of the sums of gradients over the data ranks at least: of a mean rank, or of this part of all
-- parameters.
function bounds.gradients(s, facts, m, ranks, part)
  if s.data == 1 then return 0 end
  local members = data_ranks(bounds.mesh(s, ranks))
  local bytes = facts.weights.gradients / setting.weight_ways(s) * (part or 1 / s.pipeline.size)
  if s.zero == 0 then return rates.least(m, "all_reduce", members, bytes) end
  return rates.least(m, "reduce_scatter", members, bytes)
end

local WHOLE_BELOW, KEPT = 65536, 4 -- the defaults of stage 3: elements of a part; kept and fetched, of the largest one

local known_divided = setmetatable({}, { __mode = "k" }) -- facts -> { total, largest } by ways

-- The elements of all parameters that stage 3 divides where weights are cut so many ways, and of the largest one.
local function divided_in_three(facts, ways)
  local known = known_divided[facts] or {}
  known_divided[facts] = known
  if not known[ways] then
    local total, largest = 0, 0
    for _, count in ipairs(facts.weights.each or {}) do
      if count / ways >= WHOLE_BELOW then total, largest = total + count, math.max(largest, count) end
    end
    known[ways] = { total, largest }
  end
  return known[ways][1], known[ways][2]
end

-- The bytes of parameters that a rank must gather for each pass at least: those that are divided, without what it may
-- have kept.
local function gathered(s, facts)
  local ways = setting.weight_ways(s)
  local total, largest = divided_in_three(facts, ways)
  return math.max(0, total / s.pipeline.size - KEPT * largest) / ways * facts.weights.bytes_of_element
end

--- Returns the seconds in which data ranks send at least for ZeRO: stage 2 sums gradients in each batch, and stage 3
-- also gathers parameters for each piece (docs/memory.md). Where the host moves the bytes, so that nothing overlaps,
-- stages 1 and 2 gather what was updated besides. told: whether something else is said of stage 3 (keep).
function bounds.data_sent(s, facts, m, ranks, told)
  local sums = bounds.gradients(s, facts, m, ranks)
  if s.data == 1 or s.zero == 0 or s.zero == "own" then return sums end
  local times, bytes = 1, 0
  if s.zero == 3 then
    times, bytes = s.micro * s.accumulation, not told and gathered(s, facts) or 0
  elseif m.host_moves then
    bytes = facts.weights.parameters / setting.weight_ways(s) / s.pipeline.size
  end
  local seconds = s.zero == 1 and sums or s.accumulation * sums
  if bytes == 0 then return seconds end
  return seconds + times * rates.least(m, "all_gather", data_ranks(bounds.mesh(s, ranks)), bytes)
end

--- Returns the seconds of a mean rank that its stage receives messages, at least: each costs the latency of a link.
function bounds.messages(s, m)
  local p, latency = s.pipeline, rates.least_latency(m)
  if p.size == 1 then return 0 end
  local borders = p.schedule == "zb-v" and 2 * (p.size - 1) or p.size * p.chunks - 1 -- both ends of a V are one rank
  return 2 * s.micro * s.accumulation * borders * latency / p.size
end

local function fastest(m)
  local most = 0
  for _, level in ipairs(m.links) do most = math.max(most, level.bandwidth) end
  return most
end

-- Elements that a rank sends for a transformer block and a piece of `rows` tokens of the group, at least (Optimus,
-- Tesseract, 3D: docs/tensor_parallelism.md; fewer where causal, and of the cheapest choice of operands).
local function sent_in_grid(t, rows, width)
  local q = math.floor((t.size / (t.depth or 1)) ^ (t.mode == "3d" and 1 / 3 or 1 / 2) + 0.5)
  if t.mode == "3d" then return 2 * (q - 1) / q ^ 3 * (10 * rows * width + 8 * width ^ 2) end
  return 2 * (q - 1) / q ^ 2 * (4 * rows * width / (t.depth or 1) + 8 * width ^ 2)
end

local function sent_along_sequence(s, rows, b)
  local n = s.sequence.size
  local _, ways = setting.weight_ways(s)
  local elements = rows * b.width / ways
  if s.sequence.mode == "ring" then return (n - 1) * elements * b.keys end
  return 4 * (n - 1) / n * elements
end

--- Returns the least time of a mean rank in the operations that layers need on a mesh, of all pieces of a step. Of
-- models with experts only attention is sure to need them.
function bounds.layers(s, facts, m, mesh)
  local b, t, total = facts.blocks, s.tensor, 0
  if not b or #m.links == 0 then return 0 end
  local k = s.micro * s.accumulation
  local rows = facts.samples / k / s.data * b.tokens / s.sequence.size
  if t.size > 1 and t.mode == "1d" then
    local members, n = bounds.members(mesh, { "tensor" }), rows * b.width * b.bytes
    local once = t.sequence and rates.least(m, "all_gather", members, n) + rates.least(m, "reduce_scatter", members, n)
      or rates.least(m, "all_reduce", members, n)
    total = (facts.experts and 2 or 4) * once
  elseif t.size > 1 and not facts.experts then
    total = sent_in_grid(t, rows, b.width) * b.bytes / fastest(m)
  end
  if s.sequence.size > 1 then total = total + sent_along_sequence(s, rows, b) * b.bytes / fastest(m) end
  return total * k * b.count / s.pipeline.size
end

-- Of orders that split backward passes, forward and the gradients of inputs are two thirds of the products. The rest of
-- what stays together (norms, attention) only adds to it; the first product of a model needs no gradient of its input.
local TOGETHER, TOGETHER_IN_BLOCKS = 0.5, 0.6

-- work: seconds of all passes of all stages.
local function pipelined(s, facts, work)
  local p, micro = s.pipeline.size, s.micro
  if p == 1 then return work end
  local part = passes.whole(s) and 1 or facts.blocks and TOGETHER_IN_BLOCKS or TOGETHER
  if s.pipeline.chunks > 1 then return math.max(work / p, part * work / micro) end -- the way of one micro-batch
  return math.max(work / p, part * work / (micro * (1 - (1 - 1 / micro) ^ p)))
end

local function seconds_of(section, kind, share, launch) return section[kind] / share + launch * section.ops[kind] end

-- What a section takes in a pass at least: with recomputation, what it takes without, too, which may run elsewhere.
local function cost_of(own, none, kind, share, launch)
  return math.max(seconds_of(own, kind, share, launch), none and seconds_of(none, kind, share, launch) or 0)
end

-- How many times as many samples as its share a rank computes with: where they are uneven, the rest is padding.
local function padded(s, facts)
  local samples = facts.samples / (s.micro * s.accumulation * setting.batch_ways(s))
  return math.ceil(samples) / samples
end

--- Returns the seconds of the passes of each section for a micro-batch, at least, as ganymede.plan.search.passes takes
-- them; nil: unknown. Where a backward pass is one action, the gradients of weights are in it, wherever recomputation
-- puts them.
function bounds.sections(s, facts, m, ranks)
  local sections = facts.floors[s.recompute].sections
  if not sections then return nil end
  local none = facts.floors.none and facts.floors.none.sections
  local share = s.micro * s.accumulation * ranks / s.pipeline.size / padded(s, facts)
  local out, host = { forward = {}, input = {}, weight = {} }, { forward = {}, input = {}, weight = {}, before = 0 }
  local op
  op, host.between = rates.launches(m)
  for i, own in ipairs(sections) do
    for kind, list in pairs(out) do
      local other = (passes.whole(s) or kind ~= "weight") and none and none[i]
      list[i] = cost_of(own, other, kind, share, m.launch)
      host[kind][i] = cost_of(own, other, kind, math.huge, op)
    end
  end
  out.host, out.latency = m.host_launch and host or nil, rates.least_latency(m)
  return out
end

local known_stages = setmetatable({}, { __mode = "k" }) -- facts -> { seconds, stage } by key

-- What a step takes by its longest stages, and the stage that works longest; 0 and the last one: unknown. It is a
-- function of the pipeline and its pieces, and of what runs again.
local function staged(s, facts, m, ranks)
  local p, known = s.pipeline, known_stages[facts] or {}
  local split = type(p.split) == "table" and table.concat(p.split, "+") or p.split
  local key = table.concat({ p.size, p.schedule, p.chunks, split, s.micro, s.accumulation, s.recompute,
    padded(s, facts) }, " ")
  known_stages[facts] = known
  if not known[key] then
    local sections = bounds.sections(s, facts, m, ranks)
    local costs = sections and passes.of_parts(sections, s, facts)
    known[key] = costs and { passes.least(s, costs) } or { 0, p.size }
  end
  return known[key][1], known[key][2]
end

--- Returns the first rank of the stage that works longest by formula, whose record gives the nearest bound, and that
-- stage (from 1).
function bounds.rank(s, facts, m, ranks)
  if s.pipeline.size == 1 then return 0, 1 end
  local stage = select(2, staged(s, facts, m, ranks))
  return bounds.first_of_stage(bounds.mesh(s, ranks), stage), stage
end

--- Returns the first rank of a stage (from 1) of a mesh.
function bounds.first_of_stage(mesh, stage)
  local rank = 0
  for _, axis in ipairs(mesh) do rank = rank * axis.size + (axis.name == "pipeline" and stage - 1 or 0) end
  return rank
end

--- Returns the seconds that a step takes at least, however its ranks are shared out.
function bounds.of_share(facts, ranks)
  local floor = facts.floors.none or facts.floors.own
  return (floor.passes + floor.update) / ranks
end

--- Returns the seconds of a step at least in which a mean rank of all works so long: where the ranks of a node share
-- its cores, these do the work of all of them. Ranks fill as few nodes as they can.
function bounds.crowded(m, ranks, work)
  if not rates.shares_cores(m) then return work end
  return math.max(1, ranks * m.cores_per_rank / (m.cores * math.ceil(ranks / m.ranks_per_node))) * work
end

--- Returns the seconds of what a mean rank does behind its last product, at least. Without ZeRO all data ranks update
-- what they hold.
function bounds.update(s, facts, ranks)
  local floor = facts.floors[s.recompute]
  if s.zero ~= 0 or facts.experts then return floor.update / ranks end
  return (floor.update - floor.states) / ranks + floor.states / (setting.weight_ways(s) * s.pipeline.size)
end

-- The seconds of the passes of all stages at least, and those of a mean rank with its update.
local function work_of(s, facts, m, ranks, sent)
  local floor, p = facts.floors[s.recompute], s.pipeline.size
  local all = floor.passes * p / ranks + m.launch * floor.ops * s.micro * s.accumulation + (sent or 0) * p
  return all, all / p + bounds.update(s, facts, ranks)
end

-- What a step takes that a mean rank works so long, and whose stages are all launched.
local function of_mean(s, facts, m, ranks, mean)
  local ops = facts.floors[s.recompute].ops * s.micro * s.accumulation
  return math.max(rates.launches(m) * ops / s.pipeline.size, bounds.crowded(m, ranks, mean))
end

--- Returns the same as bounds.of_family, whatever the order of passes and the split.
function bounds.of_bunch(s, facts, m, ranks)
  local _, mean = work_of(s, facts, m, ranks)
  return of_mean(s, facts, m, ranks, mean), mean
end

--- Returns the seconds that a step of a family or a setting takes at least, without what ranks send; and those of a
-- mean rank. sent: seconds that layers spend on sending where a rank that sends does nothing else.
function bounds.of_family(s, facts, m, ranks, sent)
  local all, mean = work_of(s, facts, m, ranks, sent)
  return math.max(pipelined(s, facts, all), s.pipeline.size > 1 and (staged(s, facts, m, ranks)) or 0,
    of_mean(s, facts, m, ranks, mean)), mean
end

--- Returns the seconds that a step takes at least. ranks: of the world.
function bounds.time(s, facts, m, ranks)
  local sent = bounds.data_sent(s, facts, m, ranks, facts.told)
  local shared = bounds.layers(s, facts, m, bounds.mesh(s, ranks))
  local seconds, mean = bounds.of_family(s, facts, m, ranks, m.host_moves and shared)
  if m.host_moves then return math.max(seconds, bounds.crowded(m, ranks, mean + sent)) end
  return math.max(seconds, sent, shared)
end

-- Bytes of weights, cut so many ways, of which ZeRO divides parts over `data` ranks: of parameters, of gradients, of
-- states.
local function divided(w, zero, ways, data)
  local rest = zero >= 1 and data or 1
  return w.parameters / (zero == 3 and data or 1) / ways, w.gradients / rest / ways, w.states / rest / ways
end

--- Returns the bytes of parameters, gradients and optimizer states that a mean rank holds, without those of experts.
function bounds.resting(s, facts, zero)
  return divided(facts.weights, zero == "own" and 3 or zero, setting.weight_ways(s) * s.pipeline.size, s.data)
end

--- Returns the bytes that some rank holds at least: its share of parameters, gradients and optimizer states.
function bounds.memory(s, facts)
  local zero = s.zero == "own" and 3 or s.zero
  local p, g, o = bounds.resting(s, facts, zero)
  local ep, eg, eo = divided(facts.expert_weights, zero, s.tensor.size * s.pipeline.size * s.expert, s.data / s.expert)
  return p + g + o + ep + eg + eo
end

return bounds
