--- Searches the best way to share a step over N ranks of a machine: ganymede plan, and parallel = "auto".
--
--     local found = search { recipe = "r.lua", ranks = 8, machine = "here.json", memory = 2^33, keep = {}, top = 5 }
--
-- A large world has millions of settings, so they are a tree (ganymede.plan.search.space): shares, their bunches, the
-- families of these, their settings. Each has a lower bound of its time, by formula (ganymede.plan.search.bounds), and
-- the least is looked at next. A share is opened. A bunch is bounded by a rehearsal of one piece that many bunches have
-- in common (ganymede.plan.search.cells), and then opened. A family is bounded by its order of passes, played
-- (ganymede.plan.search.refine), and then opened; what does not fit in memory by that order is left out. A setting is
-- rehearsed as one rank, of the stage that works longest, which gives a nearer bound and a peak, also for
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
-- (simulate everything: for tests), until_stopped (Ctrl-C ends the search with the best so far, and the field `stop` is
-- its error), tell (ganymede.plan.search.progress). Returns { rows = the simulated ones,
-- best first, front = list of places in rows, left_out = list of { why, count, example }, settings = how many there
-- were, rehearsed, reckoned, simulated, pieces (how many were rehearsed for bounds), machine, memory, ranks, facts }.
-- A row: setting, sets, lua, words, seconds, samples_per_second, peak_bytes, busy, exposed, bubble, why (it loses).
-- @module ganymede.plan.search
local bounds = require "ganymede.plan.search.bounds"
local cells = require "ganymede.plan.search.cells"
local facts_module = require "ganymede.plan.search.facts"
local failure = require "ganymede.base.failure"
local frontier = require "ganymede.plan.search.frontier"
local left_out = require "ganymede.plan.search.left_out"
local lengths = require "ganymede.plan.search.lengths"
local looks = require "ganymede.plan.search.looks"
local machines = require "ganymede.plan.machine"
local record = require "ganymede.plan.search.record"
local refine = require "ganymede.plan.search.refine"
local progress_of = require "ganymede.plan.search.progress"
local rehearsal = require "ganymede.job.rehearsal"
local relatives = require "ganymede.plan.search.relatives"
local setting = require "ganymede.plan.search.setting"
local space = require "ganymede.plan.search.space"
local tree = require "ganymede.plan.search.tree"
local why_loses = require "ganymede.plan.search.why"

-- ---------------------------------------------------------------- the search

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

-- Reckons what a rank alone takes for all pieces from the events of a few; 0: there are none.
local function reckon_rank(search, s, known, rank)
  if not known.lengths then return 0 end
  local seconds, mesh = {}, bounds.mesh(s, search.given.ranks)
  for i, events in ipairs(known.lengths) do seconds[i] = record.of_rank(events, mesh, search.machine, rank).total end
  return select(2, lengths.reckon(seconds, known.steps))
end

-- What a record says of a setting: seconds of its step, of what relatives with equal ops take, and of its passes, at
-- least. In a pipeline other stages work before the first pass of this one and behind its last. Pieces that the record
-- does not have add what the rank takes for each, or its host, or the lesser of both to what both take together.
local function told_by_record(search, s, known)
  local ranks = search.given.ranks
  local mesh, rank = bounds.mesh(s, ranks), bounds.rank(s, search.facts, search.machine, ranks)
  local piece, launches, first, last = refine.piece(search, s, known.stage)
  local alone = record.of_rank(known.events, mesh, search.device, rank)
  local more, host = known.missing * piece, known.missing * launches
  local total, passes = alone.total + more, alone.passes + more
  local near = math.max(total, reckon_rank(search, s, known, rank))
  if alone.lead > 0 then near = math.max(near, first - alone.lead + math.max(total, passes + last)) end
  if not search.machine.host_launch then return near, total, passes end
  local both = record.of_rank(known.events, mesh, search.machine, rank, first)
  return math.max(near, both.host + host, both.total + math.min(more, host)), math.max(total, both.host + host),
    math.max(passes, both.host_of_passes + host)
end

-- A text that is equal for settings of a group on whose meshes a record says the same.
local function place_of(search, s, known)
  local m, ranks = search.machine, search.given.ranks
  local mesh, rank = bounds.mesh(s, ranks), bounds.rank(s, search.facts, m, ranks)
  local cell = search.cells:get(s)
  local words = { record.place(known.events, mesh, m, rank), cell and cells.key(cell, mesh, m) or "" }
  for _, events in ipairs(known.lengths or {}) do words[#words + 1] = record.place(events, mesh, m, rank) end
  return table.concat(words, "; ")
end

-- What a record says of each setting of its group, whose ranks have it: the mesh of each is another.
local function tell_group(search, known, entry)
  local near, family, around, told = {}, entry.setting.family, record.around_passes(known.events), {}
  for place in ipairs(family.orders) do
    local s = space.setting(family, entry.zero, place)
    local key = place_of(search, s, known)
    told[key] = told[key] or { told_by_record(search, s, known) }
    local total, passes
    near[place], total, passes = unpack(told[key])
    search.totals[relatives.ops(s)] = math.max(total, search.totals[relatives.ops(s)] or 0)
    if s.recompute == "none" and s.zero ~= 3 then search.passes[relatives.passes(s)] = passes end
    refine.note_ends(search, s, known.stage, around)
  end
  entry.group.near, entry.group.peak = near, known.peak
end

-- What is known of a setting before it is rehearsed, in seconds.
local function told_of(search, entry)
  local told = inherited(search, entry.setting)
  if told > entry.bound or entry.played then return told end
  entry.played = true
  return refine.play(search, entry.setting)
end

local function look_at(search, heap, entry)
  local s, group, told = entry.setting, entry.group, told_of(search, entry)
  if told > entry.bound then
    entry.bound = told
    return tree.push(search, heap, entry)
  end
  if not group.near then
    local known = looks.rank(search, s)
    if not known then return end
    tell_group(search, known, entry)
  end
  if left_out.is_too_large(search, group.peak) then return left_out.add(search, left_out.too_large(search), s) end
  entry.bound, entry.least_bytes = math.max(group.near[entry.place], entry.bound), entry.peak
  entry.peak, entry.looked = group.peak, true
  tree.push(search, heap, entry)
end

local function counted(search, text)
  return ("%d rehearsed, %d reckoned, %d simulated; %s"):format(search.rehearsed, search.reckoned,
    search.simulated, text)
end

-- What the search has come to. entry: the nearest that is left, which is out of the heap.
local function how_far(search, heap, entry)
  local best = search.best
  return counted(search, ("%d pieces of a batch; %s; %d settings are left, which take %.4g s at least"):format(
    search.cells.asked, best and ("best so far %.4g s"):format(best.seconds) or "none is simulated yet",
    tree.count(heap) + entry.count, entry.turn)
    .. (best and (": at most %.1f %% faster"):format(100 * math.max(0, best.seconds / entry.turn - 1)) or ""))
end

-- Looks at a few pieces in place of many. Puts the setting back: another one may be nearer then.
local function look_at_few(search, heap, entry)
  local found, bytes = looks.few(search, entry.setting)
  if not found then return end
  entry.few, entry.line = true, found[1]
  entry.bound, entry.peak = math.max(entry.bound, found[2] or 0), math.max(entry.peak, bytes)
  tree.push(search, heap, entry)
  if not entry.line then return end
  if not search.likely or entry.line < search.likely.line then search.likely = entry end
  search.progress:found(counted(search, ("reckoned at %.4g s: %s"):format(entry.line,
    setting.words(entry.setting, search.facts))))
end

local function take_row(search, entry)
  search.simulated = search.simulated + 1
  local row = looks.whole(search, entry.setting, entry.setting)
  if not row then return end
  row.bound, row.least_bytes = entry.bound, entry.least_bytes
  search.rows[#search.rows + 1] = row
  if not search.best or better(row, search.best) then search.best = row end
  search.progress:found(counted(search, ("best so far %.4g s: %s"):format(search.best.seconds, search.best.words)))
end

local function looks_of(search) return search.rehearsed + search.reckoned + search.simulated end

local function visit(search, heap, entry)
  if not entry.setting then return tree.open(search, heap, entry) end
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
  local heap, beaten = tree.new(search, shares), 0
  search.heap = heap
  while heap:first() do
    if looks_of(search) >= (search.given.looks or math.huge) and has_best(search) then
      search.ended = tree.count(heap)
      break
    end
    local entry = tree.pop(search, heap)
    search.progress:beat(how_far, search, heap, entry)
    if not is_beaten(search, entry) then
      visit(search, heap, entry)
    else
      beaten = beaten + entry.count
      if not search.given.front then
        beaten = beaten + tree.count(heap)
        break
      end
    end
  end
  return beaten
end

local function nothing_left(search)
  local lines = {}
  for i, row in ipairs(left_out.listed(search.reasons)) do
    if i <= 8 then lines[i] = ("  %d: %s"):format(row.count, row.why) end
  end
  failure(2, "no way to share %s over %d rank%s is left:\n%s", search.given.recipe, search.given.ranks,
    search.given.ranks == 1 and "" or "s", table.concat(lines, "\n"))
end

-- The search until it ends, or is stopped by Ctrl-C where the caller takes what was found until then -> the settings
-- that are beaten, the stop.
local function run_until_stopped(search, shares)
  local ok, beaten = xpcall(run, failure.handler, search, shares)
  if ok then return beaten end
  local stop = beaten
  if failure.code(stop) ~= 130 or not search.given.until_stopped then error(stop, 0) end
  search.ended = search.heap and tree.count(search.heap) or 0
  if search.best then return 0, stop end
  local reasons = left_out.listed(search.reasons)
  error(failure.changed(stop, function(text)
    return ("%s: nothing was simulated yet; %d settings are left%s. `--within P` and `--looks N` end a search early, "
      .. "and `--keep` leaves less to search"):format(text, search.ended, reasons[1]
      and (", and %d were left out: %s"):format(reasons[1].count, reasons[1].why) or "")
  end), 0)
end

local function result(search, beaten, count)
  table.sort(search.rows, better)
  for i, row in ipairs(search.rows) do row.why = i > 1 and why_loses(row, search.rows[1]) or nil end
  local reasons = left_out.listed(search.reasons)
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
  local about, device = machines.read(given.machine), machines.read(given.machine)
  device.host_launch = nil
  if given.ranks == 1 then about = device end -- a step of one rank is recorded (ganymede.plan.simulate)
  local search = { given = given, machine = about, device = device,
    memory = given.memory or about.memory or 0, reasons = {}, rows = {},
    passes = {}, totals = {}, ends = {}, stores = {}, kinds = {}, rehearsed = 0, reckoned = 0, simulated = 0,
    within = given.within or 0, progress = progress_of(given.tell) }
  if search.within > 0 and given.front then
    failure(2, "--within ends a search before the whole front is known: leave out --within or --front")
  end
  search.progress:found "the recipe's step is rehearsed on one rank"
  search.facts = facts_module.of(given, about, given.keep, search.progress)
  search.facts.told = given.keep.stored ~= nil and next(given.keep.stored) ~= nil
  search.cells = cells.open(given, search.facts, about)
  local shares, refused = space.shares(search.facts, { ranks = given.ranks, machine = about, keep = given.keep })
  local count = 0
  for _, share in ipairs(shares) do count = count + share.count end
  for why, n in pairs(refused) do
    search.reasons[why], count = { why = why, count = n }, count + n
  end
  return search, shares, count
end

--- Searches; see the head of this file.
return function(given)
  return rehearsal.with_workers(function()
    local search, shares, count = prepare(given)
    local beaten, stop = failure.protect(function()
      search.cells:close()
      looks.close(search)
    end, run_until_stopped, search, shares)
    if #search.rows == 0 then nothing_left(search) end
    local found = result(search, beaten, count)
    found.stop = stop
    return found
  end)
end
