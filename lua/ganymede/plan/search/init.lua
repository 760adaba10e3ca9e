--- Searches the best way to share a step over N ranks of a machine: ganymede plan, and parallel = "auto".
--
--     local found = search { recipe = "r.lua", ranks = 8, machine = "here.json", memory = 2^33, keep = {}, top = 5 }
--
-- A large world has millions of settings, so they are a tree (ganymede.plan.search.space): shares, their families,
-- their settings. Each has a lower bound of its time, by formula (ganymede.plan.search.bounds), and the least is looked
-- at next. A share is opened. A family is bounded by a rehearsal of one piece, which it has in common with many
-- (ganymede.plan.search.cells), then by its order of passes, played (ganymede.plan.search.refine), and then opened. A
-- setting is rehearsed as one rank, of the stage that works longest, which gives a nearer bound and a peak, also for
-- its relatives (ganymede.plan.search.relatives). When it comes up again, its step is reckoned from those of a few
-- pieces if it has many (ganymede.plan.search.lengths), and in the end it is simulated (ganymede.plan.simulate).
-- What fits in no memory is left out on the way. The search ends when the next bound exceeds the best time, so nothing
-- that was left out would have won, as far as what was reckoned is right. Times that agree to 6 digits are equal, and
-- the simpler setting wins. The result is a function of the arguments alone.
--
-- given: recipe, ranks, set, seed, machine (a name or path), memory (bytes of a rank; default: the machine's), keep
-- (ganymede.plan.search.keep), top (how many are simulated at least), front (the whole Pareto front of time and
-- memory), looks (the search ends after so many rehearsals, reckonings and simulations, with the best so far), within
-- (0.05: the search ends when nothing left can be faster than the best by more than 5 %), all
-- (simulate everything: for tests), tell (a function of a text, now and then). Returns { rows = the simulated ones,
-- best first, front = list of places in rows, left_out = list of { why, count, example }, settings = how many there
-- were, rehearsed, reckoned, simulated, pieces (how many were rehearsed for bounds), machine, memory, ranks, facts }.
-- A row: setting, sets, lua, words, seconds, samples_per_second, peak_bytes, busy, exposed, bubble, why (it loses).
-- @module ganymede.plan.search
local bounds = require "ganymede.plan.search.bounds"
local cells = require "ganymede.plan.search.cells"
local core = require "ganymede.core"
local facts_module = require "ganymede.plan.search.facts"
local failure = require "ganymede.base.failure"
local frontier = require "ganymede.plan.search.frontier"
local heaps = require "ganymede.plan.search.heap"
local lengths = require "ganymede.plan.search.lengths"
local machine = require "ganymede.base.machine"
local machines = require "ganymede.plan.machine"
local records = require "ganymede.plan.records"
local refine = require "ganymede.plan.search.refine"
local rehearsal = require "ganymede.job.rehearsal"
local relatives = require "ganymede.plan.search.relatives"
local setting = require "ganymede.plan.search.setting"
local simulate = require "ganymede.plan.simulate"
local space = require "ganymede.plan.search.space"
local why_loses = require "ganymede.plan.search.why"

-- ---------------------------------------------------------------- what is left out

local function leave(search, why, s, n)
  local row = search.reasons[why] or { why = why, count = 0, example = s and setting.words(s, search.facts) }
  search.reasons[why] = row
  row.count = row.count + (n or 1)
end

-- Leaves all settings of a family out; the first is the example.
local function leave_family(search, why, family) leave(search, why, space.first(family), family.count) end

local function listed(reasons)
  local out = {}
  for _, row in pairs(reasons) do out[#out + 1] = row end
  table.sort(out, function(a, b) return a.count > b.count or (a.count == b.count and a.why < b.why) end)
  return out
end

-- What a rehearsal refused, without the parts that differ from setting to setting.
local function reason_of(text)
  text = text:match "^[^\n]*":gsub("^as rank %d+: ", ""):gsub("^[%w_./-]+%.lua:?%d*: ", "")
  return "cannot be built: " .. text
end

local function is_too_large(search, bytes) return search.memory > 0 and bytes > search.memory end

local function too_large(search) return ("needs more than %s of a rank"):format(machine.bytes(search.memory)) end

-- ---------------------------------------------------------------- the two looks at a setting

local function sets_of(search, s)
  local out = { unpack(search.given.set or {}) }
  for _, text in ipairs(setting.sets(s, s.facts or search.facts)) do out[#out + 1] = text end
  for _, text in ipairs(search.given.keep.sets or {}) do out[#out + 1] = text end
  return out
end

local MOST_RECORDS = 100 -- files

-- The store of the records of a setting and its relatives. The oldest stores go when there are too many files.
local function store_of(search, s)
  local key, list, files = relatives.records(s), search.stores, 0
  local own
  for i = #list, 1, -1 do
    if list[i].key == key then own = table.remove(list, i) end
  end
  list[#list + 1] = own or { key = key, records = records.new() }
  for _, store in ipairs(list) do files = files + store.records.count end
  while files > MOST_RECORDS and #list > 1 do
    files = files - list[1].records.count
    table.remove(list, 1).records:close()
  end
  return list[#list].records
end

-- Begins the rehearsal of a rank -> a function that returns what is found and the events of its record; nil and why
-- not. path: of the record; nil: it is not kept.
local function begin_rank(search, s, rank, path)
  local given, own = search.given, not path and os.tmpname() or nil
  local finish = rehearsal.start { recipe = given.recipe, ranks = given.ranks, rank = rank, set = sets_of(search, s),
    seed = given.seed, step_file = path or own, device = rehearsal.device_of(search.machine.device) }
  return function()
    local found, failed = finish()
    local events = found and core.step_condensed(search.machine, path or own)
    if own then os.remove(own) end
    return found, found and events or failed
  end
end

-- Rehearses the rank whose stage works longest -> { rank, stage, peak, events of its record, missing = pieces that the
-- record does not have }; nil: left out. The record of a whole step serves a simulation, too. Where data ranks send in
-- each piece, `lengths` are the events of three shorter steps, and `steps` as refine.lengths says.
local function look(search, s)
  local rank, stage = bounds.rank(s, search.facts, search.machine, search.given.ranks)
  local few, missing = refine.short(s, search.facts)
  local short, steps = nil, nil
  if few and (s.zero == 2 or s.zero == 3) then short, steps = refine.lengths(s, search.facts) end
  local store = store_of(search, s)
  local path, running, lengths_of = not few and store:new_path() or nil, {}, {}
  local first = begin_rank(search, few or s, rank, path)
  for i, one in ipairs(short or {}) do
    local same = one.accumulation == few.accumulation and one.micro == few.micro
    running[i] = same and first or begin_rank(search, one, rank)
  end
  search.rehearsed = search.rehearsed + 1
  local found, events = first()
  for i, finish in ipairs(running) do
    local known, of = found, events
    if finish ~= first then known, of = finish() end
    lengths_of[i] = known and of
  end
  if not found then return leave(search, reason_of(events.text), s) end
  if path then store:put(bounds.mesh(s, search.given.ranks), rank, found, path) end
  return { rank = rank, stage = stage, peak = found.totals.peak_bytes, events = events, missing = missing,
    lengths = steps and lengths_of[1] and lengths_of[2] and lengths_of[3] and lengths_of, steps = steps }
end

local function row_of(search, s, found)
  local peak = 0
  for _, stage in ipairs(found.memory) do peak = math.max(peak, stage.peak_bytes) end
  return { setting = s, sets = setting.sets(s, search.facts), lua = setting.lua(s, search.facts),
    words = setting.words(s, search.facts), seconds = found.seconds, key = tonumber(("%.6g"):format(found.seconds)),
    samples_per_second = found.samples_per_second, peak_bytes = peak, busy = found.busy, exposed = found.exposed,
    bubble = found.bubble, mesh = found.mesh }
end

-- Which ranks do the same is found out once for settings of a kind: that needs more rehearsals than they do. Where all
-- settings are simulated, each finds out by itself.
local function sharing_kinds(search, s, store, fn, ...)
  local key = not search.given.all and relatives.kinds(s, search.facts.samples)
  store.kinds = store.kinds or key and search.kinds[key] or nil
  local ok, found = failure.try(fn, ...)
  if key then search.kinds[key] = search.kinds[key] or store.kinds end
  return ok, found
end

-- Simulates a setting -> its row; nil: it is left out. `of`: the setting that it stands for.
local function measure(search, s, of)
  local given, store = search.given, store_of(search, s)
  local ok, found = sharing_kinds(search, s, store, simulate, { recipe = given.recipe, ranks = given.ranks,
    set = sets_of(search, s), seed = given.seed, machine = given.machine, store = store,
    mesh = bounds.mesh(s, given.ranks) })
  if not ok then
    local code = failure.code(found)
    if code == 130 or code == 143 then error(found, 0) end
    return leave(search, reason_of(failure.text(found)), of)
  end
  local row = row_of(search, s, found)
  if is_too_large(search, row.peak_bytes) then return leave(search, too_large(search), of) end
  return row
end

-- Reckons a setting of many pieces by simulations of a few -> { line, least } of its seconds, and its bytes at least;
-- nil: it is left out; {}, 0: it has too few pieces for that. A whole step holds at least what a short one does.
local function reckon(search, s)
  local short, steps = refine.lengths(s, search.facts)
  if not short or search.given.all then return {}, 0 end
  local seconds, bytes = {}, 0
  search.reckoned = search.reckoned + 1
  for i, few in ipairs(short) do
    local row = measure(search, few, s)
    if not row then return nil end
    seconds[i], bytes = row.seconds, math.max(bytes, row.peak_bytes)
  end
  return { lengths.reckon(seconds, steps) }, bytes
end

-- ---------------------------------------------------------------- the search

-- Entries of the heap: { bound, peak, count, share or family or setting }; a family has `level`, how far it was looked
-- at, a setting `looked`. Of equal bounds, shares and families are opened first: they may have the simpler setting.
-- Where the best may be missed by a part (`within`), settings that were looked at come earlier by this part: they make
-- a row sooner (weighted A*, Pohl 1970).
local function turn_of(search, entry) return entry.looked and entry.bound / (1 + search.within) or entry.bound end

local function push(search, heap, entry)
  entry.turn = turn_of(search, entry)
  heap:push(entry)
end

local function before(a, b)
  if a.turn ~= b.turn then return a.turn < b.turn end
  if a.setting and b.setting then return setting.before(a.setting, b.setting) end
  if a.setting or b.setting then return b.setting ~= nil end
  return a.number < b.number
end

local function better(a, b)
  if a.key ~= b.key then return a.key < b.key end
  return setting.before(a.setting, b.setting)
end

-- Whether an entry can neither win nor (with front) be on the Pareto front.
local function is_beaten(search, entry)
  local best = search.best
  if not best or search.given.all then return false end
  local limit = best.seconds * (1 + 1e-6)
  if entry.turn * (1 + search.within) <= limit then return false end
  if search.given.front then return frontier.dominates(search.rows, entry.bound, entry.peak) end
  return #search.rows >= search.given.top
end

-- What relatives that were rehearsed say about this setting; 0: none was.
local function inherited(search, s)
  local passes, total = search.passes[relatives.passes(s)], search.totals[relatives.ops(s)] or 0
  if not passes then return total end
  local whole = search.machine.host_moves and s.pipeline.size == 1
  return math.max(total,
    passes + (whole and bounds.gradients(s, search.facts, search.machine, search.given.ranks) or 0))
end

local function first_entries(search, shares)
  local heap, bound = heaps.new(before), bounds.of_share(search.facts, search.given.ranks)
  for _, share in ipairs(shares) do
    if share.count > 0 then
      push(search, heap, { bound = bound, peak = 0, share = share, count = share.count, number = share.number })
    end
  end
  return heap
end

-- Leaves out the stages of ZeRO of a family that do not fit. Returns the bytes that some rank holds at least, and the
-- seconds in which data ranks send at least, of those that are left.
local function keep_zeros(search, family)
  local kept, bytes, seconds = {}, math.huge, math.huge
  for _, zero in ipairs(family.zeros) do
    family.zero = zero[1]
    local own = bounds.memory(family, search.facts)
    if not is_too_large(search, own) then
      kept[#kept + 1], bytes = zero, math.min(bytes, own)
      seconds = math.min(seconds, refine.sent(search, family))
    end
  end
  family.zero = nil
  return kept, bytes, seconds
end

local function open_share(search, heap, entry)
  local facts = search.facts
  local function tell(why, n) leave(search, why, nil, n) end
  for _, family in ipairs(space.families(entry.share, facts, tell)) do
    local kept, bytes, sent = keep_zeros(search, family)
    local n = #family.zeros - #kept
    if n > 0 then leave(search, too_large(search), space.first(family), n * #family.orders) end
    family.zeros, family.count = kept, #kept * #family.orders
    if #kept > 0 then
      local seconds = bounds.of_family(family, facts, search.machine, search.given.ranks)
      push(search, heap, { bound = math.max(entry.bound, seconds, sent), peak = bytes, family = family,
        count = family.count, number = family.number, level = 0 })
    end
  end
end

-- Puts the settings of a family into the heap.
local function open_family(search, heap, entry)
  for _, s in ipairs(space.settings(entry.family)) do
    local seconds, bytes = refine.of_setting(search, s)
    if is_too_large(search, bytes) then
      leave(search, too_large(search), s)
    else
      local new = { bound = math.max(entry.bound, seconds), peak = bytes, setting = s, count = 1 }
      local key = relatives.records(s)
      push(search, heap, new)
      search.relatives[key] = search.relatives[key] or {}
      table.insert(search.relatives[key], new)
    end
  end
end

local function look_at_family(search, heap, entry)
  local family = entry.family
  local seconds, why
  if entry.level == 2 then return open_family(search, heap, entry) end
  if not entry.plain then
    entry.plain, seconds = true, refine.by_plain_cell(search, family)
    if seconds and seconds > entry.bound then
      entry.bound = seconds
      return push(search, heap, entry)
    end
  end
  if entry.level == 0 then
    local next_one = heap:first()
    search.cells:expect(family)
    if next_one and next_one.family then search.cells:expect(next_one.family) end
    seconds = refine.by_cell(search, family)
  else
    seconds, why = refine.by_order(search, family)
    if why then return leave_family(search, why, family) end
  end
  entry.bound, entry.level = math.max(entry.bound, seconds or 0), entry.level + 1
  push(search, heap, entry)
end

-- Reckons what a rank alone takes for all pieces from the events of a few; 0: there are none.
local function reckon_rank(search, s, known, rank)
  if not known.lengths then return 0 end
  local seconds, mesh = {}, bounds.mesh(s, search.given.ranks)
  for i, events in ipairs(known.lengths) do seconds[i] = bounds.of_rank(events, mesh, search.machine, rank) end
  return select(2, lengths.reckon(seconds, known.steps))
end

-- What a record says of each setting whose ranks have it: the mesh of each is another.
local function tell_relatives(search, known, first)
  local peak, events = known.peak, known.events
  for _, entry in ipairs(search.relatives[relatives.records(first)]) do
    local s = entry.setting
    if not entry.near then
      local rank = s == first and known.rank or bounds.rank(s, search.facts, search.machine, search.given.ranks)
      local total, passes = bounds.of_rank(events, bounds.mesh(s, search.given.ranks), search.machine, rank)
      local more = known.missing > 0 and known.missing * refine.piece(search, s, known.stage) or 0
      total, passes = total + more, passes + more
      entry.near = { bound = math.max(total, reckon_rank(search, s, known, rank)), peak = peak }
      search.totals[relatives.ops(s)] = math.max(total, search.totals[relatives.ops(s)] or 0)
      if s.recompute == "none" and s.zero ~= 3 then search.passes[relatives.passes(s)] = passes end
    end
  end
end

local function look_at(search, heap, entry)
  local s = entry.setting
  local told = inherited(search, s)
  if told > entry.bound then
    entry.bound = told
    return push(search, heap, entry)
  end
  if not entry.near then
    local known = look(search, s)
    if not known then return end
    tell_relatives(search, known, s)
  end
  if is_too_large(search, entry.near.peak) then return leave(search, too_large(search), s) end
  entry.bound, entry.peak, entry.looked = math.max(entry.near.bound, entry.bound), entry.near.peak, true
  push(search, heap, entry)
end

local function tell(search, text)
  if not search.given.tell then return end
  search.given.tell(("%d rehearsed, %d reckoned, %d simulated; %s"):format(search.rehearsed, search.reckoned,
    search.simulated, text))
end

-- Looks at a few pieces in place of many. Puts the setting back: another one may be nearer then.
local function look_at_few(search, heap, entry)
  local found, bytes = reckon(search, entry.setting)
  if not found then return end
  entry.few, entry.line = true, found[1]
  entry.bound, entry.peak = math.max(entry.bound, found[2] or 0), math.max(entry.peak, bytes)
  push(search, heap, entry)
  if not entry.line then return end
  if not search.likely or entry.line < search.likely.line then search.likely = entry end
  tell(search, ("reckoned at %.4g s: %s"):format(entry.line, setting.words(entry.setting, search.facts)))
end

local function take_row(search, entry)
  search.simulated = search.simulated + 1
  local row = measure(search, entry.setting, entry.setting)
  if not row then return end
  row.bound = entry.bound
  search.rows[#search.rows + 1] = row
  if not search.best or better(row, search.best) then search.best = row end
  tell(search, ("best so far %.4g s: %s"):format(search.best.seconds, search.best.words))
end

local function count_of(heap)
  local n = 0
  for _, entry in ipairs(heap.list) do n = n + entry.count end
  return n
end

local function looks_of(search) return search.rehearsed + search.reckoned + search.simulated end

local function visit(search, heap, entry)
  if entry.share then return open_share(search, heap, entry) end
  if entry.family then return look_at_family(search, heap, entry) end
  if not entry.looked then return look_at(search, heap, entry) end
  if not entry.few then return look_at_few(search, heap, entry) end
  if not entry.taken then take_row(search, entry) end
end

-- Whether there is a row. When the looks are over, what is reckoned to be the fastest becomes one.
local function has_best(search)
  local likely = search.likely
  if not search.best and likely then
    take_row(search, likely)
    likely.taken, search.likely = true, nil
  end
  return search.best ~= nil
end

local function run(search, shares)
  local heap, beaten = first_entries(search, shares), 0
  while heap:first() do
    if looks_of(search) >= (search.given.looks or math.huge) and has_best(search) then
      search.ended = count_of(heap)
      break
    end
    local entry = heap:pop()
    if not is_beaten(search, entry) then
      visit(search, heap, entry)
    else
      beaten = beaten + entry.count
      if not search.given.front then
        beaten = beaten + count_of(heap)
        break
      end
    end
  end
  return beaten
end

local function nothing_left(search)
  local lines = {}
  for i, row in ipairs(listed(search.reasons)) do
    if i <= 8 then lines[i] = ("  %d: %s"):format(row.count, row.why) end
  end
  failure(2, "no way to share %s over %d rank%s is left:\n%s", search.given.recipe, search.given.ranks,
    search.given.ranks == 1 and "" or "s", table.concat(lines, "\n"))
end

local function result(search, beaten, count)
  table.sort(search.rows, better)
  for i, row in ipairs(search.rows) do row.why = i > 1 and why_loses(row, search.rows[1]) or nil end
  local reasons = listed(search.reasons)
  if search.ended then
    table.insert(reasons, 1, { count = search.ended, why = ("not looked at: the search ended after %d looks"):format(
      looks_of(search)) })
  end
  if beaten > 0 then
    table.insert(reasons, 1, { count = beaten, why = search.within == 0 and "slower than the best by its lower bound"
      or ("at most %g %% faster than the best by its lower bound"):format(100 * search.within) })
  end
  return { rows = search.rows, front = frontier.of(search.rows), left_out = reasons, settings = count,
    complete = search.ended == nil, rehearsed = search.rehearsed, reckoned = search.reckoned,
    simulated = search.simulated, pieces = search.cells.asked,
    machine = search.machine.name, memory = search.memory,
    ranks = search.given.ranks, facts = search.facts }
end

-- Returns a search whose facts are known, the shares that may be, and how many settings there are with those left out.
local function prepare(given)
  given.keep, given.top = given.keep or {}, given.top or 5
  local about = machines.read(given.machine)
  local search = { given = given, machine = about, memory = given.memory or about.memory or 0, reasons = {}, rows = {},
    passes = {}, totals = {}, relatives = {}, stores = {}, kinds = {}, rehearsed = 0, reckoned = 0, simulated = 0,
    within = given.within or 0 }
  if search.within > 0 and given.front then
    failure(2, "--within ends a search before the whole front is known: leave out --within or --front")
  end
  search.facts = facts_module.of(given, about, given.keep)
  search.facts.told = given.keep.sets ~= nil and #given.keep.sets > 0
  search.cells = cells.open(given, search.facts, about)
  local shares, left_out = space.shares(search.facts, { ranks = given.ranks, machine = about, keep = given.keep })
  local count = 0
  for _, share in ipairs(shares) do count = count + share.count end
  for why, n in pairs(left_out) do
    search.reasons[why], count = { why = why, count = n }, count + n
  end
  return search, shares, count
end

--- Searches; see the head of this file.
return function(given)
  return rehearsal.with_workers(function()
    local search, shares, count = prepare(given)
    local beaten = failure.protect(function()
      search.cells:close()
      for _, store in ipairs(search.stores) do store.records:close() end
    end, run, search, shares)
    if #search.rows == 0 then nothing_left(search) end
    return result(search, beaten, count)
  end)
end
