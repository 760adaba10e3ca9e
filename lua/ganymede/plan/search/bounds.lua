--- Lower bounds of the time and the memory of a setting: nothing that a simulation finds is below them.
--
--     local seconds = bounds.time(setting, facts, machine)          -- by formula
--     local bytes = bounds.memory(setting, facts)
--     local seconds = bounds.of_rank(events, mesh, machine)         -- from the record of one rank
--
-- By formula: products and bytes of ops are shared by all ranks at best, at the best rates of the machine; each piece
-- of a batch has as many ops as one sample. In a
-- pipeline whose passes are whole, stage s cannot begin before the stages before it have passed a micro-batch, and
-- these end after it: w_s + sum_{j<s} w_j / m <= T for all stages, therefore T >= W / (m (1 - (1 - 1/m)^p)) whatever
-- the split (Narayanan et al. 2021 count (p - 1)/m more for equal stages). Where a rank has several parts, a
-- micro-batch must at least go through all parts, one after the other. Layers send what their mode needs at least.
-- Gradients must be summed over the data ranks. Where ranks share cores, these do the work of all. Where the host
-- moves bytes, nothing overlaps, and what a mean rank sends adds to what it computes; elsewhere the larger counts.
-- Of one rank: its ops take what they take, and its operations at least their time alone; where they may overlap,
-- what stands between begin and wait goes on meanwhile.
-- @module ganymede.plan.search.bounds
local parallel = require "ganymede.job.parallel"
local rates = require "ganymede.plan.search.rates"
local pipelines = require "ganymede.schedules.pipeline"
local setting = require "ganymede.plan.search.setting"
local space = require "ganymede.plan.search.space"

local bounds = {}

-- ---------------------------------------------------------------- groups

local by_group = setmetatable({}, { __mode = "k" }) -- mesh -> group -> members

--- Returns the members of the group of a rank (0) along some axes of a mesh (a list of { name, size }), from 0.
function bounds.members(mesh, names, of)
  of = of or 0
  local key = ("%s %d"):format(table.concat(names, "."), of)
  by_group[mesh] = by_group[mesh] or {}
  if by_group[mesh][key] then return by_group[mesh][key] end
  local wanted, list, stride = {}, { 0 }, 1
  for _, name in ipairs(names) do wanted[name] = true end
  for i = #mesh, 1, -1 do
    local axis, more = mesh[i], {}
    local own = math.floor(of / stride) % axis.size
    for at = wanted[axis.name] and 0 or own, wanted[axis.name] and axis.size - 1 or own do
      for _, rank in ipairs(list) do more[#more + 1] = rank + at * stride end
    end
    list, stride = more, stride * axis.size
  end
  by_group[mesh][key] = list
  return list
end

--- Returns the mesh of a setting: a list of { name, size }.
function bounds.mesh(s, ranks)
  local plan, out = assert(parallel.resolve(setting.parallel(s, {}), ranks)), {}
  for i, axis in ipairs(plan.axes) do out[i] = { name = axis[1], size = axis[2] } end
  return out
end

-- ---------------------------------------------------------------- by formula

--- Returns the seconds of the sums of gradients over the data ranks at least, of a mean rank.
function bounds.gradients(s, facts, m, ranks)
  if s.data == 1 then return 0 end
  local mesh = bounds.mesh(s, ranks)
  local copies, ways = {}, setting.weight_ways(s)
  for _, axis in ipairs(mesh) do
    if axis.name == "data" or axis.name == "shard" or axis.name == "expert" then copies[#copies + 1] = axis.name end
  end
  local members = bounds.members(mesh, copies)
  local bytes = facts.weights.gradients / ways / s.pipeline.size
  if s.zero == 0 then return rates.least(m, "all_reduce", members, bytes) end
  return rates.least(m, "reduce_scatter", members, bytes)
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

-- The least time of a mean rank in the operations that layers need, of all pieces of a step. Of models with experts
-- only attention is sure to need them.
local function layers(s, facts, m, mesh)
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
local split_backward = { ["zb-h1"] = true, ["zb-h2"] = true, ["zb-v"] = true }
local TOGETHER, TOGETHER_IN_BLOCKS = 0.5, 0.6

-- work: seconds of all passes of all stages.
local function pipelined(s, facts, work)
  local p, micro = s.pipeline.size, s.micro
  if p == 1 then return work end
  local part = split_backward[s.pipeline.schedule] and (facts.blocks and TOGETHER_IN_BLOCKS or TOGETHER) or 1
  if s.pipeline.chunks > 1 then return math.max(work / p, part * work / micro) end -- the way of one micro-batch
  return math.max(work / p, part * work / (micro * (1 - (1 - 1 / micro) ^ p)))
end

-- What a section takes in a pass at least: with recomputation, what it takes without, too, which may run elsewhere.
local function cost_of(own, none, kind, share, m)
  local function seconds(section) return section[kind] / share + m.launch * section.ops[kind] end
  return math.max(seconds(own), none and seconds(none) or 0)
end

-- The costs of the parts of a pipeline for a micro-batch, at least, as pipeline.simulate takes them; nil: unknown.
-- whole: a backward pass is one action. Then the gradients of weights are in it, wherever recomputation puts them.
local function costs_of(s, facts, m, ranks, whole)
  local sections, p = facts.floors[s.recompute].sections, s.pipeline
  local ends = sections and facts.bounds(p.split, p.size * p.chunks)
  if not ends then return nil end
  local none = facts.floors.none and facts.floors.none.sections
  local share, costs, first = s.micro * s.accumulation * ranks / p.size, {}, 1
  for _, kind in ipairs { "forward", "input", "weight" } do costs[kind] = {} end
  for part, last in ipairs(ends) do
    for kind, list in pairs(costs) do
      list[part] = 1e-12 -- no time is refused
      for i = first, last do
        list[part] = list[part] + cost_of(sections[i], (whole or kind ~= "weight") and none and none[i], kind, share, m)
      end
    end
    first = last + 1
  end
  return { forward = costs.forward, backward_input = costs.input, backward_weight = costs.weight }
end

-- Seconds of the passes of each stage, at least, and the stage that takes the most.
local function stages_of(s, costs, schedule)
  local list, heaviest = {}, 1
  for stage, parts in ipairs(schedule.parts) do
    list[stage] = 0
    for _, part in ipairs(parts) do
      for _, kind in pairs(costs) do list[stage] = list[stage] + kind[part] * s.micro * s.accumulation end
    end
    if list[stage] > list[heaviest] then heaviest = stage end
  end
  return list, heaviest
end

local scheduled_before = setmetatable({}, { __mode = "k" }) -- facts -> times

-- What a step takes in its schedule: the order of each rank is fixed, so shorter passes never make it longer. And no
-- less than its longest stage takes. Returns that time and the stage; 0: unknown.
local function scheduled(s, facts, m, ranks)
  local p, known = s.pipeline, scheduled_before[facts] or {}
  local split = type(p.split) == "table" and table.concat(p.split, "+") or p.split
  local key = table.concat({ p.size, p.schedule, p.chunks, split, s.micro, s.accumulation, s.recompute }, " ")
  scheduled_before[facts] = known
  if not known[key] then
    local schedule, all = space.schedule(s, facts), costs_of(s, facts, m, ranks, true)
    local stages, heaviest = {}, p.size
    if all then stages, heaviest = stages_of(s, all, schedule) end
    local costs = split_backward[p.schedule] and costs_of(s, facts, m, ranks) or all
    known[key] = { heaviest, costs and math.max(s.accumulation * pipelines.simulate(schedule, costs).time,
      stages[heaviest]) or 0 }
  end
  return known[key][2], known[key][1]
end

--- Returns the first rank of the stage that works longest by formula: its record gives the nearest bound.
function bounds.rank(s, facts, m, ranks)
  if s.pipeline.size == 1 then return 0 end
  local stage, rank = select(2, scheduled(s, facts, m, ranks)) - 1, 0
  for _, axis in ipairs(bounds.mesh(s, ranks)) do rank = rank * axis.size + (axis.name == "pipeline" and stage or 0) end
  return rank
end

-- How many ranks take turns on a core.
local function crowd(m) return m.cores and math.max(1, m.ranks_per_node * m.cores_per_rank / m.cores) or 1 end

--- Returns the seconds that a step takes at least. ranks: of the world.
function bounds.time(s, facts, m, ranks)
  local floor, p = facts.floors[s.recompute], s.pipeline.size
  local passes = floor.passes * p / ranks + m.launch * floor.ops * s.micro * s.accumulation -- of all stages
  local sent, shared = bounds.gradients(s, facts, m, ranks), layers(s, facts, m, bounds.mesh(s, ranks))
  if m.host_moves then passes = passes + shared * p end
  local mean = passes / p + floor.update / ranks
  local order = p > 1 and (scheduled(s, facts, m, ranks)) or 0
  if m.host_moves then return math.max(pipelined(s, facts, passes), order, (mean + sent) * crowd(m)) end
  return math.max(pipelined(s, facts, passes), order, mean * crowd(m), sent, shared)
end

--- Returns the bytes that some rank holds at least: its share of parameters, gradients and optimizer states.
function bounds.memory(s, facts)
  local zero = s.zero == "own" and 3 or s.zero
  local function share(w, ways, data)
    local rest = zero >= 1 and data or 1
    return (w.parameters / (zero == 3 and data or 1) + (w.gradients + w.states) / rest) / ways
  end
  local ways = setting.weight_ways(s) * s.pipeline.size
  return share(facts.weights, ways, s.data)
    + share(facts.expert_weights, s.tensor.size * s.pipeline.size * s.expert, s.data / s.expert)
end

-- ---------------------------------------------------------------- of one rank

local function is_message(e) return e.name == "send" or e.name == "receive" end

local copies = { data = true, shard = true, expert = true }

local function is_of_layers(names)
  for _, name in ipairs(names) do
    if copies[name] then return false end
  end
  return true
end

--- Returns the seconds that a rank with these events takes at least, and those of its passes alone: of ops up to the
-- last product, and of operations among ranks with the same samples. No stage of ZeRO changes the latter, and
-- recomputation only adds to it. A wait ends no sooner than its operation takes alone. mesh: a list of { name, size };
-- rank: whose events these are.
function bounds.of_rank(events, mesh, m, rank)
  local total, passes, begun, last = 0, 0, {}, rates.last_product(events)
  for i, e in ipairs(events) do
    if e.kind == "op" then
      local seconds = rates.op(m, e)
      total, passes = total + seconds, passes + (i <= last and seconds or 0)
    elseif e.kind == "begin" and e.group and e.group ~= "" then
      begun[e.id] = { event = e, total = total, passes = passes } -- it moves while the rank still pays for its begin
      total = total + m.begin
    elseif e.kind == "wait" and begun[e.id] then
      local at, first = begun[e.id], begun[e.id].event
      begun[e.id] = nil
      if not is_message(first) and not first.group:find("@", 1, true) then
        local names = parallel.axis_names(first.group)
        local seconds = rates.least(m, first.name, bounds.members(mesh, names, rank), first.bytes)
        if m.host_moves then at.total, at.passes = total, passes end -- nothing else went on
        total = math.max(total, at.total + seconds)
        if i <= last and is_of_layers(names) then passes = math.max(passes, at.passes + seconds) end
      end
    end
  end
  return total, passes
end

return bounds
