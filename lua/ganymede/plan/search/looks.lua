--- The looks of a search at one setting: a rank of it is rehearsed, a few of its pieces are simulated, or all of it is.
--
--     local known = looks.rank(search, s)          -- nil: it is left out, as in all of these
--     local found, bytes = looks.few(search, s)    -- { line, least } in seconds; {}: it has too few pieces for that
--     local row = looks.whole(search, s, s)        -- a row of a plan
--     looks.close(search)
--
-- search: { given, facts, machine, memory, reasons, stores, kinds, rehearsed, reckoned } of ganymede.plan.search.
-- Records of ranks are kept in files for settings that differ in the order of the axes alone, as long as there are not
-- too many.
-- @module ganymede.plan.search.looks
local bounds = require "ganymede.plan.search.bounds"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local left_out = require "ganymede.plan.search.left_out"
local lengths = require "ganymede.plan.search.lengths"
local records = require "ganymede.plan.records"
local refine = require "ganymede.plan.search.refine"
local rehearsal = require "ganymede.job.rehearsal"
local relatives = require "ganymede.plan.search.relatives"
local setting = require "ganymede.plan.search.setting"
local simulate = require "ganymede.plan.simulate"

local looks = {}

local function sets_of(search, s)
  local out = { unpack(search.given.set or {}) }
  for _, text in ipairs(setting.sets(s, s.facts or search.facts)) do out[#out + 1] = text end
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
  while math.max(files, #list) > MOST_RECORDS and #list > 1 do
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

--- Rehearses the rank whose stage works longest -> { rank, stage, peak, events of its record, missing = pieces that the
-- record does not have }; nil: left out. The record of a whole step serves a simulation, too. Where data ranks send in
-- each piece, `lengths` are the events of three shorter steps, and `steps` as refine.lengths says.
function looks.rank(search, s)
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
  if not found then return left_out.add(search, left_out.reason_of(events.text), s) end
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

--- Simulates a setting -> its row; nil: it is left out. `of`: the setting that it stands for.
function looks.whole(search, s, of)
  local given, store = search.given, store_of(search, s)
  local ok, found = sharing_kinds(search, s, store, simulate, { recipe = given.recipe, ranks = given.ranks,
    set = sets_of(search, s), seed = given.seed, machine = given.machine, store = store,
    mesh = bounds.mesh(s, given.ranks) })
  if not ok then
    local code = failure.code(found)
    if code == 130 or code == 143 then error(found, 0) end
    return left_out.add(search, left_out.reason_of(failure.text(found)), of)
  end
  local row = row_of(search, s, found)
  if left_out.is_too_large(search, row.peak_bytes) then
    return left_out.add(search, left_out.too_large(search), of)
  end
  return row
end

--- Reckons a setting of many pieces by simulations of a few -> { line, least } of its seconds, and its bytes at least;
-- nil: it is left out; {}, 0: it has too few pieces for that. A whole step holds at least what a short one does.
function looks.few(search, s)
  local short, steps = refine.lengths(s, search.facts)
  if not short or search.given.all then return {}, 0 end
  local seconds, bytes = {}, 0
  search.reckoned = search.reckoned + 1
  for i, few in ipairs(short) do
    local row = looks.whole(search, few, s)
    if not row then return nil end
    seconds[i], bytes = row.seconds, math.max(bytes, row.peak_bytes)
  end
  return { lengths.reckon(seconds, steps) }, bytes
end

--- Removes the records.
function looks.close(search)
  for _, store in ipairs(search.stores) do store.records:close() end
end

return looks
