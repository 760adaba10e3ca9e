--- The settings that a search looks at, and why others are left out.
--
--     local shares, left_out = space.shares(facts, { ranks = 8, keep = { pipeline = 2 }, machine = m })
--     space.each_bunch(shares[1], facts, leave, fn)                 -- leave(why, how many): what cannot be
--     local families = space.families(shares[1], facts, leave)
--     local settings = space.settings(families[1])
--     local list, left_out = space.list(facts, given)               -- all settings, the simpler ones first
--
-- facts: of ganymede.plan.search.facts. A large world has millions of settings (ganymede.plan.search.setting), so they
-- are a tree. A share says how many ranks each axis has, and its mode; it has `count` settings, with those that cannot
-- be. A bunch of it has the pieces of a batch and what runs again; a family of a bunch has an order of a pipeline's
-- passes. Its settings differ in the stage of ZeRO and the order of the axes. Shares, bunches and families have what a
-- setting has that all of theirs have in common. left_out: number of settings by reason, in words. keep fixes parts:
-- data, expert, tensor_size, tensor_mode, tensor_depth, tensor_sequence, sequence_size, sequence_mode, pipeline,
-- chunks, split, schedule, micro, zero, recompute, accumulation, order.
-- What changes the mathematics of a step is no setting: the samples of a step stay, and models whose experts look at a
-- whole batch keep its pieces. In a pipeline micro-batches take the place of accumulation. The trap: what the runtime
-- refuses beyond these rules is found by the rehearsal of a setting, and costs one.
-- @module ganymede.plan.search.space
local failure = require "ganymede.base.failure"
local parallel = require "ganymede.job.parallel"
local passes = require "ganymede.plan.search.passes"
local pipelines = require "ganymede.schedules.pipeline"
local registry = require "ganymede.base.registry"
local setting = require "ganymede.plan.search.setting"

local space = {}

local function divisors(n)
  local list = {}
  for i = 1, n do
    if n % i == 0 then list[#list + 1] = i end
  end
  return list
end

-- The choices, or the one that is kept.
local function only(kept, list)
  if kept ~= nil then return { kept } end
  return list
end

-- ---------------------------------------------------------------- what can be chosen

local function depths(size)
  local list = {}
  for depth = 2, size - 1 do
    local given = { tensor = { size = size, mode = "2.5d", depth = depth } }
    if parallel.resolve(given, size) then list[#list + 1] = depth end
  end
  return list
end

-- The tensor settings of so many ranks.
local function tensors(size, keep)
  if size == 1 then return { { size = 1 } } end
  local list = {}
  for _, mode in ipairs(only(keep.tensor_mode, { "1d", "2d", "2.5d", "3d" })) do
    if mode == "1d" then
      for _, sequence in ipairs(only(keep.tensor_sequence, { false, true })) do
        list[#list + 1] = { size = size, mode = mode, sequence = sequence or nil }
      end
    elseif mode == "2.5d" then
      for _, depth in ipairs(only(keep.tensor_depth, depths(size))) do
        list[#list + 1] = { size = size, mode = mode, depth = depth }
      end
    else
      list[#list + 1] = { size = size, mode = mode }
    end
  end
  return list
end

local function sequences(size, keep)
  if size == 1 then return { { size = 1, mode = "ring" } } end
  local list = {}
  for _, mode in ipairs(only(keep.sequence_mode, { "ring", "ulysses" })) do
    list[#list + 1] = { size = size, mode = mode }
  end
  return list
end

-- The numbers of chunks that an order takes.
local function chunks_of(name, keep)
  local allowed = registry.pipeline_schedules:get(name).chunks or { default = 1, min = 1 }
  if keep.chunks ~= nil then return { keep.chunks } end
  local first, list = allowed.default or allowed.min or 1, {}
  for _, chunks in ipairs { 1, 2, 4 } do
    if chunks == first or (chunks >= (allowed.min or 1) and chunks <= (allowed.max or math.huge)) then
      list[#list + 1] = chunks
    end
  end
  return list
end

local orders = { "1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v" }

local function same(a, b)
  if type(a) ~= "table" then return a == b end
  for i = 1, math.max(#a, #b) do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- The ways to cut the sections into parts that differ.
local function splits(parts, facts, keep)
  if keep.split ~= nil then return { keep.split } end
  local list, bounds = {}, {}
  for _, name in ipairs { "parameters", "flops", "uniform" } do
    local found, own = facts.bounds(name, parts), nil
    for _, other in ipairs(bounds) do own = own or found and same(other, found) end
    if found and not own then list[#list + 1], bounds[#bounds + 1] = name, found end
  end
  return #list > 0 and list or { "parameters" }
end

local function pipes(size, facts, keep)
  if size == 1 then return { { size = 1, schedule = "none", chunks = 1, split = "parameters" } } end
  local list = {}
  for _, name in ipairs(only(keep.schedule, orders)) do
    for _, chunks in ipairs(chunks_of(name, keep)) do
      for _, split in ipairs(splits(size * chunks, facts, keep)) do
        list[#list + 1] = { size = size, schedule = name, chunks = chunks, split = split }
      end
    end
  end
  return list
end

-- { micro-batches, batches }: pieces of a step that are equally large.
local function pieces(pipeline, facts, keep)
  local list = {}
  if pipeline.size == 1 then
    for _, n in ipairs(only(keep.accumulation, divisors(facts.samples))) do list[#list + 1] = { keep.micro or 1, n } end
    return list
  end
  local batches = keep.accumulation or 1
  for _, n in ipairs(only(keep.micro, divisors(facts.samples / batches))) do
    if keep.micro or (n > 1 and n <= 16 * pipeline.size) then list[#list + 1] = { n, batches } end
  end
  return list
end

local function permuted(list)
  if #list < 2 then return { list } end
  local out = {}
  for i, first in ipairs(list) do
    local rest = {}
    for k, other in ipairs(list) do rest[#rest + 1] = k ~= i and other or nil end
    for _, more in ipairs(permuted(rest)) do out[#out + 1] = { first, unpack(more) } end
  end
  return out
end

-- The orders of the axes, the usual one (nil, as false) first. On one level of links all are alike.
local function placements(s, machine, keep, ranks)
  if keep.order ~= nil then return { keep.order } end
  local first = machine.links[1]
  local flat = #machine.links == 0 or first.kind == "switch" and first.ranks_per_port == 1 and first.leaf == 0
    and (first.ranks == 0 or first.ranks >= ranks)
  local names, list = {}, { false }
  for _, row in ipairs { { "data", s.data }, { "pipeline", s.pipeline.size }, { "sequence", s.sequence.size },
    { "tensor", s.tensor.size } } do
    if row[2] > 1 then names[#names + 1] = row[1] end
  end
  for i, order in ipairs(flat and {} or permuted(names)) do
    local all = {}
    for _, name in ipairs(order) do
      all[#all + 1] = name
      if name == "data" and s.expert > 1 then all[#all + 1] = "expert" end
    end
    if i > 1 then list[#list + 1] = all end -- the first is the usual one
  end
  return list
end

-- ---------------------------------------------------------------- what must hold

local function problem_of_heads(s, facts)
  local _, width = setting.weight_ways(s)
  if not facts.heads then return nil end
  local keys = facts.kv_heads or facts.heads
  if facts.heads % width ~= 0 or keys % width ~= 0 then
    return ("%d key heads cannot be divided evenly over %d ranks of tensor"):format(keys, width)
  end
  if s.sequence.size > 1 and s.sequence.mode == "ulysses" and keys / width % s.sequence.size ~= 0 then
    return ("%d key heads on a rank cannot be divided over %d ranks of ulysses"):format(keys / width, s.sequence.size)
  end
end

local function problem_of_pieces(s, facts)
  local samples = facts.samples / s.accumulation
  if samples % s.micro ~= 0 then return "the pieces of a batch would not be equally large" end
  if samples / s.micro < setting.batch_ways(s) then return "a rank would have no sample of a piece" end
  if s.accumulation ~= facts.accumulation and facts.fixed_batches then
    return ("gradient_accumulation stays %d: %s"):format(facts.accumulation, facts.fixed_batches)
  end
  if facts.experts and s.accumulation * s.micro ~= facts.pieces then
    return ("experts decide by the pieces of a batch, and a step of the recipe has %d"):format(facts.pieces)
  end
end

local function problem_of_parts(s, facts)
  local p = s.pipeline
  if p.size == 1 then return nil end
  local parts = p.size * p.chunks
  if not facts.sections then return "the model says no sections at which a pipeline may cut it" end
  if parts > facts.sections then
    return ("%d sections cannot make %d parts of a pipeline"):format(facts.sections, parts)
  end
end

local orders_of = {} -- by shape: a text that says why there is none, or a weak reference to the schedule

--- Returns the order of passes of a setting or family with a pipeline, as pipeline.ordered makes it; nil and why there
-- is none, in words.
function space.schedule(s)
  local p = s.pipeline
  local key = ("%s %d %d %d"):format(p.schedule, p.size, s.micro, p.chunks)
  local known = orders_of[key] or setmetatable({}, { __mode = "v" })
  if not known.schedule and not known.why then
    local ok, found = failure.try(pipelines.ordered, p.schedule, { stages = p.size, micro_batches = s.micro,
      chunks = p.chunks }, 0)
    known[ok and "schedule" or "why"] = ok and found or failure.text(found)
  end
  orders_of[key] = known
  return known.schedule, known.why
end

local holdings_of = {} -- by shape of an order of passes

--- Returns what the ranks of a setting or family with a pipeline hold at once (ganymede.plan.search.passes), with the
-- `parts` of each rank; nil: there is no such order.
function space.holdings(s)
  local p = s.pipeline
  local key = ("%s %d %d %d"):format(p.schedule, p.size, s.micro, p.chunks)
  local schedule = not holdings_of[key] and space.schedule(s)
  if schedule then
    holdings_of[key] = passes.holdings(schedule)
    holdings_of[key].parts = schedule.parts
  end
  return holdings_of[key]
end

local function problem_of_zero(s)
  if s.zero == "own" or s.zero == 0 then return nil end
  if s.data == 1 then return "there are no data ranks that ZeRO could divide over" end
  if s.zero == 2 and s.accumulation == 1 then return "with one batch a step, stage 2 of ZeRO is stage 1" end
end

-- ---------------------------------------------------------------- all of them

local function each_recompute(facts, keep)
  if keep.recompute ~= nil then return { keep.recompute } end
  local list = { "none" }
  for _, name in ipairs { "attention", "block" } do list[#list + 1] = facts.floors[name] and name or nil end
  return list
end

-- Ways to share out `ranks`: { data, tensor, sequence, pipeline }.
local function ways(ranks, facts, keep)
  local list = {}
  for _, tensor in ipairs(only(keep.tensor_size, divisors(ranks))) do
    for _, sequence in ipairs(only(keep.sequence_size, facts.heads and divisors(ranks / tensor) or { 1 })) do
      for _, pipeline in ipairs(only(keep.pipeline, divisors(ranks / tensor / sequence))) do
        local data = ranks / (tensor * sequence * pipeline)
        if data >= 1 and data % 1 == 0 and (keep.data or data) == data then
          list[#list + 1] = { data, tensor, sequence, pipeline }
        end
      end
    end
  end
  return list
end

-- Calls fn(share, its ways to run a pipeline).
local function each_share(facts, given, fn)
  local keep, known = given.keep, {}
  for _, way in ipairs(ways(given.ranks, facts, keep)) do
    local list = known[way[4]] or pipes(way[4], facts, keep)
    known[way[4]] = list
    for _, expert in ipairs(only(keep.expert, facts.experts and divisors(way[1]) or { 1 })) do
      for _, tensor in ipairs(tensors(way[2], keep)) do
        for _, sequence in ipairs(sequences(way[3], keep)) do
          fn({ data = way[1], expert = expert, tensor = tensor, sequence = sequence, pipeline = list[1] }, list)
        end
      end
    end
  end
end

local function problem_of_share(s, facts, ranks)
  local plan, why = parallel.resolve(setting.parallel(s, {}), ranks)
  if not plan then return why end
  if facts.experts and s.expert > facts.experts then
    return ("%d experts cannot be shared by %d ranks"):format(facts.experts, s.expert)
  end
  return problem_of_heads(s, facts)
end

local function copied(s, more)
  local out = {}
  for _, key in ipairs { "data", "expert", "tensor", "sequence", "pipeline", "micro", "accumulation", "recompute" } do
    out[key] = s[key]
  end
  for key, value in pairs(more) do out[key] = value or nil end
  return out
end

--- Returns the list of shares that may be, and the number of settings of others, by reason.
function space.shares(facts, given)
  local list, left_out, keep = {}, {}, given.keep
  local recomputes, zeros = each_recompute(facts, keep), only(keep.zero, { 0, 1, 2, 3 })
  each_share(facts, given, function(share, of)
    local why = problem_of_share(share, facts, given.ranks)
    if why then
      left_out[why] = (left_out[why] or 0) + #of
      return
    end
    share.pipes, share.pieces = of, pieces(share.pipeline, facts, keep)
    share.zeros, share.recomputes = zeros, recomputes
    share.orders = placements(share, given.machine, keep, given.ranks)
    share.each = #recomputes * #share.orders -- of each stage of ZeRO
    share.count = #of * #share.pieces * #zeros * share.each
    share.number, list[#list + 1] = #list + 1, share
  end)
  return list, left_out
end

-- The pipes of a share that its sections can make, as places of its list, and how many of the others, by reason.
local function places_of(share, facts)
  if share.places then return share.places, share.refused end
  share.places, share.refused = {}, {}
  for i, pipe in ipairs(share.pipes) do
    local why = problem_of_parts({ pipeline = pipe }, facts)
    if why then share.refused[why] = (share.refused[why] or 0) + 1 else share.places[#share.places + 1] = i end
  end
  return share.places, share.refused
end

-- The stages of ZeRO that the n families of a bunch may have; the others are left out with their reason.
local function zeros_of(share, s, leave, n)
  local list = {}
  for i, zero in ipairs(share.zeros) do
    s.zero = zero
    local why = problem_of_zero(s)
    if why then leave(why, n * share.each) else list[#list + 1] = { zero, i } end
  end
  s.zero = nil
  return list
end

-- Places in lists as one number: the order in which settings of equal complexity are looked at.
local MOST = { pipes = 2 ^ 8, pieces = 2 ^ 10, zeros = 4, recomputes = 4, orders = 2 ^ 6 }

local function number_of(share, pipe, piece)
  return ((share.number * MOST.pipes + pipe) * MOST.pieces + piece) * MOST.zeros * MOST.recomputes * MOST.orders
end

-- A family at these places of the lists of a share, without its stages of ZeRO. pipe: 1 stands for all in a bunch.
local function family_at(share, pipe, piece, recompute)
  local n = share.pieces[piece]
  local family = copied(share, { pipeline = share.pipes[pipe], micro = n[1], accumulation = n[2],
    recompute = share.recomputes[recompute] })
  family.home, family.orders = share, share.orders
  family.number = number_of(share, pipe, piece) + recompute * MOST.orders
  family.piece, family.again = piece, recompute
  return family
end

local function bunch_at(share, piece, recompute, zeros, places)
  local bunch = family_at(share, 1, piece, recompute)
  bunch.zeros, bunch.places, bunch.count = zeros, places, #zeros * #share.orders * #places
  return bunch
end

--- Calls fn(bunch, code) for each bunch of a share that may be; code: space.bunch knows it by that. Of a bunch only the
-- number of stages of its pipeline counts, and `places` are those of its pipes. leave(why, n) is told how many settings
-- may not. What an order of passes refuses is not known yet (space.schedule).
function space.each_bunch(share, facts, leave, fn)
  local places, refused = places_of(share, facts)
  local each = #share.zeros * share.each
  for piece in ipairs(share.pieces) do
    local first = family_at(share, 1, piece, 1)
    local why = problem_of_pieces(first, facts)
    if why then
      leave(why, each * #share.pipes)
    else
      for reason, n in pairs(refused) do leave(reason, each * n) end
      local zeros = zeros_of(share, first, leave, #places)
      for again in ipairs(#zeros > 0 and #places > 0 and share.recomputes or {}) do
        fn(bunch_at(share, piece, again, zeros, places), piece * MOST.recomputes + again)
      end
    end
  end
end

--- Returns the bunch of a share with this code, and with these stages of ZeRO: a list of { stage, its place }.
function space.bunch(share, code, zeros)
  return bunch_at(share, math.floor(code / MOST.recomputes), code % MOST.recomputes, zeros, share.places)
end

--- Returns the family of a bunch with the pipe at this place of its share.
function space.family(bunch, pipe)
  local family = family_at(bunch.home, pipe, bunch.piece, bunch.again)
  family.zeros, family.count = bunch.zeros, #bunch.zeros * #bunch.orders
  return family
end

--- Returns the list of families of a share that may be; leave: as above.
function space.families(share, facts, leave)
  local list = {}
  space.each_bunch(share, facts, leave, function(bunch)
    for _, pipe in ipairs(bunch.places) do list[#list + 1] = space.family(bunch, pipe) end
  end)
  return list
end

--- Returns the first setting of a family, for examples.
function space.first(family) return copied(family, { zero = family.zeros[1][1], order = family.orders[1] }) end

--- Returns the setting of a family with the stage of ZeRO and the order of the axes at these places of its lists.
function space.setting(family, zero, order)
  local stage = family.zeros[zero]
  local s = copied(family, { zero = stage[1], order = family.orders[order] })
  s.number = family.number + (stage[2] - 1) * MOST.recomputes * MOST.orders + order - 1
  s.home, s.family, s.complexity = family.home, family, setting.complexity(s)
  return s
end

--- Returns the list of settings of a family.
function space.settings(family)
  local list = {}
  for zero in ipairs(family.zeros) do
    for order in ipairs(family.orders) do list[#list + 1] = space.setting(family, zero, order) end
  end
  return list
end

--- Returns the list of all settings, the simpler ones first, and the table of numbers left out, by reason.
function space.list(facts, given)
  local shares, left_out = space.shares(facts, given)
  local list = {}
  local function leave(why, n) left_out[why] = (left_out[why] or 0) + n end
  for _, share in ipairs(shares) do
    for _, family in ipairs(space.families(share, facts, leave)) do
      local why = family.pipeline.size > 1 and select(2, space.schedule(family)) or nil
      if why then leave(why, family.count) end
      for _, s in ipairs(why and {} or space.settings(family)) do list[#list + 1] = s end
    end
  end
  table.sort(list, setting.before)
  return list, left_out
end

return space
