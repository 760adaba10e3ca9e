--- Searches the best way to share a step over N ranks of a machine: ganymede plan, and parallel = "auto".
--
--     local found = search { recipe = "r.lua", ranks = 8, machine = "here.json", memory = 2^33, keep = {}, top = 5 }
--
-- What must hold is asked first (ganymede.plan.search.space), then what fits at all, then a lower bound of the time
-- (ganymede.plan.search.bounds). The setting with the least bound comes next: it is rehearsed as one rank, of the stage
-- that works longest, which gives a nearer bound and a peak, also for its relatives (record_key, total_key); when it
-- comes up again, it is simulated (ganymede.plan.simulate). The search ends when the
-- next bound exceeds the best time, so nothing that was left out would have won. Times that agree to 6 digits are
-- equal, and the simpler setting wins. The result is a function of the arguments alone.
--
-- given: recipe, ranks, set, seed, machine (a name or path), memory (bytes of a rank; default: the machine's), keep
-- (ganymede.plan.search.keep), top (how many are simulated at least), front (the whole Pareto front of time and
-- memory), looks (the search ends after so many rehearsals and simulations, with the best so far), all (simulate
-- everything: for tests), tell (a function of a text, now and then). Returns { rows = the simulated ones, best first,
-- front = list of places in rows, left_out = list of { why, count, example }, settings = how many there were,
-- rehearsed, simulated, machine, memory, ranks, facts }. A row: setting, sets, lua, words, seconds, samples_per_second,
-- peak_bytes, busy, exposed, bubble, why (it loses).
-- @module ganymede.plan.search
local bounds = require "ganymede.plan.search.bounds"
local core = require "ganymede.core"
local facts_module = require "ganymede.plan.search.facts"
local failure = require "ganymede.base.failure"
local frontier = require "ganymede.plan.search.frontier"
local machine = require "ganymede.base.machine"
local machines = require "ganymede.plan.machine"
local rehearsal = require "ganymede.job.rehearsal"
local setting = require "ganymede.plan.search.setting"
local simulate = require "ganymede.plan.simulate"
local space = require "ganymede.plan.search.space"
local why_loses = require "ganymede.plan.search.why"

-- ---------------------------------------------------------------- what is left out

local function leave(search, why, s)
  local row = search.reasons[why] or { why = why, count = 0, example = s and setting.words(s, search.facts) }
  search.reasons[why] = row
  row.count = row.count + 1
end

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

local function too_large(search) return ("needs more than %s of a rank"):format(machine.bytes(search.memory)) end

-- ---------------------------------------------------------------- the two looks at a setting

local function sets_of(search, s)
  local out = { unpack(search.given.set or {}) }
  for _, text in ipairs(setting.sets(s, search.facts)) do out[#out + 1] = text end
  for _, text in ipairs(search.given.keep.sets or {}) do out[#out + 1] = text end
  return out
end

local function bound_of(search, s, step, rank)
  return bounds.of_rank(step.events, bounds.mesh(s, search.given.ranks), search.machine, rank)
end

-- Where a record goes. All go when the search ends, and each when nothing will ask for it any more.
local function new_path(search)
  local path = os.tmpname()
  search.paths[path] = true
  return path
end

local function forget(search, path)
  os.remove(path)
  search.paths[path] = nil
end

-- What a simulation asks of a rehearsal.
local function brief(found)
  return { totals = found.totals, mesh = found.mesh, settings = found.settings, dtype = found.dtype }
end

-- Rehearses the rank whose stage works longest -> the rehearsal { rank, found, path } and its step; nil: left out.
local function look(search, s)
  local path, given = new_path(search), search.given
  local rank = bounds.rank(s, search.facts, search.machine, given.ranks)
  search.rehearsed = search.rehearsed + 1
  local found, failed = rehearsal { recipe = given.recipe, ranks = given.ranks, rank = rank, set = sets_of(search, s),
    seed = given.seed, step_file = path, device = rehearsal.device_of(search.machine.device) }
  if not found then
    forget(search, path)
    return leave(search, reason_of(failed.text), s)
  end
  return { rank = rank, found = brief(found), path = path }, core.step_read(path)
end

local function row_of(search, s, found)
  local peak = 0
  for _, stage in ipairs(found.memory) do peak = math.max(peak, stage.peak_bytes) end
  return { setting = s, sets = setting.sets(s, search.facts), lua = setting.lua(s, search.facts),
    words = setting.words(s, search.facts), seconds = found.seconds, key = tonumber(("%.6g"):format(found.seconds)),
    samples_per_second = found.samples_per_second, peak_bytes = peak, busy = found.busy, exposed = found.exposed,
    bubble = found.bubble, mesh = found.mesh }
end

-- Simulates -> its row; nil: it is left out. known: the rehearsal of its look, or nil.
local function measure(search, s, known)
  local given = search.given
  search.simulated = search.simulated + 1
  local ok, found = failure.try(simulate, { recipe = given.recipe, ranks = given.ranks, set = sets_of(search, s),
    seed = given.seed, machine = given.machine, known = known })
  if not ok then
    local code = failure.code(found)
    if code == 130 or code == 143 then error(found, 0) end
    return leave(search, reason_of(failure.text(found)), s)
  end
  local row = row_of(search, s, found)
  if search.memory > 0 and row.peak_bytes > search.memory then return leave(search, too_large(search), s) end
  return row
end

-- ---------------------------------------------------------------- the search

local function before(a, b)
  if a.bound ~= b.bound then return a.bound < b.bound end
  return a.setting.number < b.setting.number
end

-- A heap of { bound, setting, looked, peak }.
local function push(heap, entry)
  local at = #heap + 1
  while at > 1 and before(entry, heap[math.floor(at / 2)]) do
    heap[at] = heap[math.floor(at / 2)]
    at = math.floor(at / 2)
  end
  heap[at] = entry
end

local function pop(heap)
  local first, last = heap[1], table.remove(heap)
  local at, n = 1, #heap
  if n == 0 then return first end
  while true do
    local child = 2 * at
    if child > n then break end
    if child < n and before(heap[child + 1], heap[child]) then child = child + 1 end
    if not before(heap[child], last) then break end
    heap[at], at = heap[child], child
  end
  heap[at] = last
  return first
end

local function better(a, b)
  if a.key ~= b.key then return a.key < b.key end
  return a.setting.number < b.setting.number
end

-- Whether an entry can neither win nor (with front) be on the Pareto front.
local function is_beaten(search, entry)
  local best = search.best
  if not best or search.given.all then return false end
  local limit = best.seconds * (1 + 1e-6)
  if entry.bound <= limit then return false end
  if search.given.front then return frontier.dominates(search.rows, entry.bound, entry.peak) end
  return #search.rows >= search.given.top
end

-- Orders of one backward pass have the ops and operations of a rank in common, and so have those that split it.
local alike = { ["1f1b"] = "whole", gpipe = "whole", interleaved = "whole", ["zb-h1"] = "split", ["zb-h2"] = "split" }

-- What settings have in common that differ in ZeRO, recomputation, and the order of passes and of axes alone.
local function share_of(s)
  local t, q, p = s.tensor, s.sequence, s.pipeline
  local split = type(p.split) == "table" and table.concat(p.split, "+") or p.split
  return table.concat({ s.data, s.expert, t.size, t.mode or "", t.depth or 0, tostring(t.sequence), q.size, q.mode,
    p.size, alike[p.schedule] or p.schedule, p.chunks, split, s.micro, s.accumulation }, " ")
end

local function order_of(s) return table.concat(s.order or {}, ".") end

-- Settings with equal passes: those that differ in ZeRO and recomputation. Settings with equal ops: neither.
local function passes_key(s) return share_of(s) .. " " .. order_of(s) end
local function total_key(s) return table.concat({ passes_key(s), s.zero, s.recompute }, " ") end

-- Settings whose ranks have equal records: they differ in the order of the axes alone.
local function record_key(s) return table.concat({ share_of(s), s.pipeline.schedule, s.zero, s.recompute }, " ") end

-- What relatives that were rehearsed say about this setting; 0: none was.
local function inherited(search, s)
  local passes, total = search.passes[passes_key(s)], search.totals[total_key(s)] or 0
  if not passes then return total end
  local whole = search.machine.host_moves and s.pipeline.size == 1
  return math.max(total,
    passes + (whole and bounds.gradients(s, search.facts, search.machine, search.given.ranks) or 0))
end

local function first_entries(search, list)
  local heap = {}
  for _, s in ipairs(list) do
    local bytes = bounds.memory(s, search.facts)
    if search.memory > 0 and bytes > search.memory then
      leave(search, too_large(search), s)
    else
      local seconds = bounds.time(s, search.facts, search.machine, search.given.ranks)
      local entry, key = { bound = seconds, setting = s, peak = bytes }, record_key(s)
      push(heap, entry)
      search.relatives[key] = search.relatives[key] or {}
      table.insert(search.relatives[key], entry)
    end
  end
  return heap
end

-- What a record says of each setting whose ranks have it: the mesh of each is another.
local function tell_relatives(search, known, step, first)
  local peak = known.found.totals.peak_bytes
  for _, entry in ipairs(search.relatives[record_key(first)]) do
    local s = entry.setting
    if not entry.near then
      local rank = s == first and known.rank or bounds.rank(s, search.facts, search.machine, search.given.ranks)
      local total, passes = bound_of(search, s, step, rank)
      entry.near = { bound = total, peak = peak }
      search.totals[total_key(s)] = math.max(total, search.totals[total_key(s)] or 0)
      if s.recompute == "none" and s.zero ~= 3 then search.passes[passes_key(s)] = passes end
    end
  end
end

-- Keeps a rehearsal for the simulation of the setting, if there may be one.
local function keep_record(search, entry, known)
  local best = search.best
  if best and entry.bound > best.seconds * (1 + 1e-6) and not search.given.all and not search.given.front then
    forget(search, known.path)
  else
    entry.known = known
  end
end

local function look_at(search, heap, entry)
  local s = entry.setting
  local told = inherited(search, s)
  if told > entry.bound then
    entry.bound = told
    return push(heap, entry)
  end
  local known
  if not entry.near then
    local step
    known, step = look(search, s)
    if not known then return end
    tell_relatives(search, known, step, s)
  end
  if search.memory > 0 and entry.near.peak > search.memory then
    if known then forget(search, known.path) end
    return leave(search, too_large(search), s)
  end
  entry.bound, entry.peak, entry.looked = math.max(entry.near.bound, entry.bound), entry.near.peak, true
  if known then keep_record(search, entry, known) end
  push(heap, entry)
end

local function take_row(search, entry)
  local row = measure(search, entry.setting, entry.known)
  if entry.known then forget(search, entry.known.path) end
  if not row then return end
  row.bound = entry.bound
  search.rows[#search.rows + 1] = row
  if not search.best or better(row, search.best) then search.best = row end
  if search.given.tell then
    search.given.tell(("%d rehearsed, %d simulated; best so far %.4g s: %s"):format(search.rehearsed, search.simulated,
      search.best.seconds, search.best.words))
  end
end

local function run(search, list)
  local heap, beaten = first_entries(search, list), 0
  while #heap > 0 do
    if search.best and search.rehearsed + search.simulated >= (search.given.looks or math.huge) then
      search.ended = #heap
      break
    end
    local entry = pop(heap)
    if is_beaten(search, entry) then
      beaten = beaten + 1
      if not search.given.front then
        beaten = beaten + #heap
        break
      end
    elseif not entry.looked then
      look_at(search, heap, entry)
    else
      take_row(search, entry)
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
      search.rehearsed + search.simulated) })
  end
  if beaten > 0 then
    table.insert(reasons, 1, { count = beaten, why = "slower than the best by its lower bound" })
  end
  return { rows = search.rows, front = frontier.of(search.rows), left_out = reasons, settings = count,
    complete = search.ended == nil, rehearsed = search.rehearsed, simulated = search.simulated,
    machine = search.machine.name, memory = search.memory,
    ranks = search.given.ranks, facts = search.facts }
end

-- Returns a search whose facts are known, the settings that may be, and how many there are with those left out.
local function prepare(given)
  given.keep, given.top = given.keep or {}, given.top or 5
  local about = machines.read(given.machine)
  local search = { given = given, machine = about, memory = given.memory or about.memory or 0, reasons = {}, rows = {},
    passes = {}, totals = {}, relatives = {}, paths = {}, rehearsed = 0, simulated = 0 }
  search.facts = facts_module.of(given, about, given.keep)
  local list, left_out = space.list(search.facts, { ranks = given.ranks, machine = about, keep = given.keep })
  local count = #list
  for why, n in pairs(left_out) do
    search.reasons[why], count = { why = why, count = n }, count + n
  end
  return search, list, count
end

local M = {}

--- Returns the settings that may be, the simpler ones first, without trying any, and the facts.
function M.settings(given)
  local search, list = prepare(given)
  return list, search.facts
end

--- Searches; see the head of this file.
function M.search(given)
  return rehearsal.with_workers(function()
    local search, list, count = prepare(given)
    local beaten = failure.protect(function()
      for path in pairs(search.paths) do os.remove(path) end
    end, run, search, list)
    if #search.rows == 0 then nothing_left(search) end
    return result(search, beaten, count)
  end)
end

return setmetatable(M, { __call = function(_, given) return M.search(given) end })
