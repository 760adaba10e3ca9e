--- The tree of settings as a search walks it: a heap of shares, bunches, families and settings, the least bound first.
--
--     local heap = tree.new(search, shares)           -- of ganymede.plan.search.space
--     local entry = tree.pop(search, heap)             -- the nearest; nil: nothing is left
--     tree.push(search, heap, entry)                   -- puts one back, with another bound
--     tree.open(search, heap, entry)                   -- of what is no setting: a nearer bound, or its children
--     tree.count(heap)                                 -- the settings that are left
--
-- An entry: { bound, turn, peak, count, and `share`, or `bunch`, `anchored` and `celled` (how far it was looked at), or
-- `family` and `played`, or `setting`, `group`, `zero` and `place` }. The settings of a family with one stage of ZeRO
-- (the place of which `zero` is) are a group: they differ in the order of the axes, `place` says which it is, and what
-- one of them was rehearsed for says of all (group.near). Of the children of a node only the nearest is in the heap
-- (ganymede.plan.search.bundle). search: that of ganymede.plan.search.
-- @module ganymede.plan.search.tree
local bounds = require "ganymede.plan.search.bounds"
local bundle = require "ganymede.plan.search.bundle"
local heaps = require "ganymede.plan.search.heap"
local left_out = require "ganymede.plan.search.left_out"
local refine = require "ganymede.plan.search.refine"
local setting = require "ganymede.plan.search.setting"
local space = require "ganymede.plan.search.space"

local tree = {}

-- ---------------------------------------------------------------- the heap

-- Of equal bounds, shares and families are opened first: they may have the simpler setting. Where the best may be
-- missed by a part (`within`), settings that were looked at come earlier by this part: they make a row sooner (weighted
-- A*, Pohl 1970).
local function before(a, b)
  if a.turn ~= b.turn then return a.turn < b.turn end
  if a.setting and b.setting then return setting.before(a.setting, b.setting) end
  if a.setting or b.setting then return b.setting ~= nil end
  return a.number < b.number
end

--- Puts an entry into the heap.
function tree.push(search, heap, entry)
  entry.turn = entry.looked and entry.bound / (1 + search.within) or entry.bound
  heap:push(entry)
end

local function push_next(search, heap, list)
  local entry = bundle.next(list)
  if entry then tree.push(search, heap, entry) end
end

--- Takes the nearest entry out, and puts that of its bundle which follows it in; nil: nothing is left.
function tree.pop(search, heap)
  local entry = heap:pop()
  if not entry or not entry.rest then return entry end
  local rest = entry.rest
  entry.rest = nil
  push_next(search, heap, rest)
  return entry
end

--- Returns how many settings are left.
function tree.count(heap)
  local n = 0
  for _, entry in ipairs(heap.list) do n = n + entry.count + (entry.rest and entry.rest.count or 0) end
  return n
end

--- Returns a heap of shares.
function tree.new(search, shares)
  local heap, bound = heaps.new(before), bounds.of_share(search.facts, search.given.ranks)
  for _, share in ipairs(shares) do
    if share.count > 0 then
      tree.push(search, heap, { bound = bound, peak = 0, share = share, count = share.count, number = share.number })
    end
  end
  return heap
end

-- ---------------------------------------------------------------- a share

-- Leaves out the stages of ZeRO of a bunch that do not fit. Returns the bytes that some rank holds at least, and the
-- seconds in which data ranks send at least, of those that are left.
local function keep_zeros(search, bunch)
  local kept, bytes, seconds = {}, math.huge, math.huge
  for _, zero in ipairs(bunch.zeros) do
    bunch.zero = zero[1]
    local own = bounds.memory(bunch, search.facts)
    if not left_out.is_too_large(search, own) then
      kept[#kept + 1], bytes = zero, math.min(bytes, own)
      seconds = math.min(seconds, refine.sent(search, bunch))
    end
  end
  bunch.zero = nil
  return kept, bytes, seconds
end

-- The seconds of a bunch by formula. Where the host moves what is sent, that adds to what a mean rank computes.
local function by_formula(search, bunch, sent)
  local m, ranks, shared = search.machine, search.given.ranks, refine.shared(search, bunch)
  local seconds, mean = bounds.of_bunch(bunch, search.facts, m, ranks)
  return math.max(seconds, m.host_moves and bounds.crowded(m, ranks, mean + sent + shared) or math.max(sent, shared))
end

local STAGES = 16 -- sets of four stages of ZeRO

-- A bunch as a number: its own, and which stages of ZeRO it has.
local function code_of(code, zeros)
  local set = 0
  for _, zero in ipairs(zeros) do set = set + 2 ^ (zero[2] - 1) end
  return code * STAGES + set
end

local function bunch_of(share, code)
  local set, zeros = code % STAGES, {}
  for i, zero in ipairs(share.zeros) do
    if math.floor(set / 2 ^ (i - 1)) % 2 == 1 then zeros[#zeros + 1] = { zero, i } end
  end
  return space.bunch(share, math.floor(code / STAGES), zeros)
end

local function nearest_first(a, b) return a.bound < b.bound or (a.bound == b.bound and a.number < b.number) end

local function open_share(search, heap, entry)
  local share, list = entry.share, {}
  local function tell(why, n) left_out.add(search, why, nil, n) end
  space.each_bunch(share, search.facts, tell, function(bunch, code)
    local kept, bytes, sent = keep_zeros(search, bunch)
    local each = #bunch.places * #bunch.orders
    local n = #bunch.zeros - #kept
    if n > 0 then left_out.add(search, left_out.too_large(search), space.first(bunch), n * each) end
    if #kept == 0 then return end
    list[#list + 1] = { code = code_of(code, kept), bound = math.max(entry.bound, by_formula(search, bunch, sent)),
      peak = bytes, count = #kept * each, number = bunch.number }
  end)
  table.sort(list, nearest_first)
  push_next(search, heap, bundle.new(list, function(code, bound, peak, count)
    local bunch = bunch_of(share, code)
    return { bound = bound, peak = peak, bunch = bunch, count = count, number = bunch.number, anchored = 0 }
  end))
end

-- ---------------------------------------------------------------- a bunch

-- The cell that is looked at next for a bunch: an anchor, or its own.
local function next_cell(search, entry)
  local anchors = search.cells.anchors
  for i = entry.anchored + 1, #anchors do
    local anchor = search.cells:anchor(entry.bunch, anchors[i])
    if anchor then return anchor end
  end
  return entry.bunch
end

-- Begins the rehearsals of the cells that this bunch and the next one need.
local function expect(search, heap, entry)
  for _, one in ipairs { entry, heap:first() } do
    if one.bunch and not one.celled then search.cells:expect(next_cell(search, one)) end
  end
end

local function open_bunch(search, heap, entry)
  local bunch, list, known = entry.bunch, {}, {}
  for _, pipe in ipairs(bunch.places) do
    local family = space.family(bunch, pipe)
    local seconds = math.max(entry.bound, refine.by_cell(search, family, known) or 0,
      (bounds.of_family(family, search.facts, search.machine, search.given.ranks)))
    list[#list + 1] = { code = pipe, bound = seconds, peak = entry.peak, count = family.count, number = family.number }
  end
  table.sort(list, nearest_first)
  push_next(search, heap, bundle.new(list, function(pipe, bound, peak, count)
    local family = space.family(bunch, pipe)
    return { bound = bound, peak = peak, family = family, count = count, number = family.number }
  end))
end

-- Looks at a bunch: at what cells say that it has in common with others, then at its own; then it is opened.
local function look_at_bunch(search, heap, entry)
  local anchors, seconds = search.cells.anchors, nil
  if entry.celled then return open_bunch(search, heap, entry) end
  expect(search, heap, entry)
  while not seconds and entry.anchored < #anchors do
    entry.anchored = entry.anchored + 1
    seconds = refine.by_anchor(search, entry.bunch, anchors[entry.anchored])
  end
  if not seconds then
    entry.celled, seconds = true, refine.of_bunch(search, entry.bunch)
  end
  entry.bound = math.max(entry.bound, seconds or 0)
  tree.push(search, heap, entry)
end

-- ---------------------------------------------------------------- a family

-- Opens a family that its order of passes has been played for. What was played is of no use afterwards.
local function open_family(search, heap, entry)
  local family, list, groups, n = entry.family, {}, {}, #entry.family.orders
  for zero in ipairs(family.zeros) do
    groups[zero] = {}
    for order in ipairs(family.orders) do
      local s = space.setting(family, zero, order)
      local seconds, bytes = refine.of_setting(search, s)
      if left_out.is_too_large(search, bytes) then
        left_out.add(search, left_out.too_large(search), s)
      else
        list[#list + 1] = { code = (zero - 1) * n + order - 1, bound = math.max(entry.bound, seconds), peak = bytes,
          count = 1, setting = s }
      end
    end
  end
  refine.forget(family)
  table.sort(list, function(a, b)
    return a.bound < b.bound or (a.bound == b.bound and setting.before(a.setting, b.setting))
  end)
  push_next(search, heap, bundle.new(list, function(code, bound, peak)
    local zero, order = math.floor(code / n) + 1, code % n + 1
    return { bound = bound, peak = peak, setting = space.setting(family, zero, order), count = 1, group = groups[zero],
      zero = zero, place = order }
  end))
end

-- Looks at the order of passes of a family; then it is opened.
local function look_at_family(search, heap, entry)
  if entry.played then return open_family(search, heap, entry) end
  local seconds, why = refine.by_order(search, entry.family)
  if why then return left_out.family(search, why, entry.family) end
  entry.bound, entry.played = math.max(entry.bound, seconds or 0), true
  tree.push(search, heap, entry)
end

--- Opens a share, or looks at a bunch or a family and opens it in the end.
function tree.open(search, heap, entry)
  if entry.share then return open_share(search, heap, entry) end
  if entry.bunch then return look_at_bunch(search, heap, entry) end
  look_at_family(search, heap, entry)
end

return tree
