--- check --largest batch|sequence --limit-memory BYTES: the largest size that fits on N ranks, for each mode of sharing
-- the work.
--
--     2d              112    15.9 GiB  { tensor = { mode = "2d", size = 16 } }, 113: 16.1 GiB
--
-- For every mode that N ranks can form, it finds the largest data.batch_size, or model.sequence_length (with the
-- sequence_length of the datasets), whose rehearsed peak on rank 0 (in a pipeline: on every stage) is at most the
-- limit. It doubles the size until it does not fit, then bisects, so that the next number does not fit. Each rehearsal
-- is a process of its own. If the recipe has no num_microbatches, mode pipeline is left out unless it is asked for by
-- name. A peak counts tensors; the scratch memory of kernels and the rounding up to pages come on top.
-- The trap: the search assumes that the peak grows with the size, and a batch has no more samples than the dataset.
-- @module ganymede.plan.largest
local rehearsal = require "ganymede.job.rehearsal"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local literal = require "ganymede.base.literal"
local machine = require "ganymede.base.machine"
local parallel = require "ganymede.job.parallel"
local recompute = require "ganymede.recompute"

local MOST = 2 ^ 24 -- the size of a batch or a sequence at which a search ends

local function setting(found, key)
  for _, row in ipairs(found.settings) do
    if row.key == key then return row.value end
  end
end

-- ---------------------------------------------------------------- modes

-- The ways to share work over N ranks: a list of names with their tables `parallel`. megatron is 1d with its sequence
-- mode; 2.5d is listed once for each depth above 1.
local function candidates(n, pipelines)
  local list = {}
  local function add(name, given)
    if parallel.resolve(given, n) then list[#list + 1] = { name = name, parallel = given } end
  end
  add("data", { data = n })
  add("1d", { tensor = { size = n, mode = "1d" } })
  add("megatron", { tensor = { size = n, mode = "1d", sequence = true } })
  add("2d", { tensor = { size = n, mode = "2d" } })
  for depth = 2, n - 1 do add("2.5d", { tensor = { size = n, mode = "2.5d", depth = depth } }) end
  add("3d", { tensor = { size = n, mode = "3d" } })
  if pipelines then add("pipeline", { pipeline = n }) end
  for _, mode in ipairs { "ring", "ulysses" } do add(mode, { sequence = { size = n, mode = mode } }) end
  return list
end

local names = { "data", "1d", "megatron", "2d", "2.5d", "3d", "pipeline", "ring", "ulysses" }

local function chosen(n, wanted, plain)
  local all = candidates(n, wanted or setting(plain, "num_microbatches"))
  if not wanted then return all end
  local out = {}
  for name in wanted:gmatch "[^,]+" do
    local known = false
    for _, own in ipairs(names) do known = known or own == name end
    if not known then failure(2, "--mode: there is no mode '%s'; it may be %s", name, table.concat(names, ", ")) end
    local before = #out
    for _, mode in ipairs(all) do
      if mode.name == name then out[#out + 1] = mode end
    end
    if #out == before then failure(2, "--mode %s: %d ranks cannot form it", name, n) end
  end
  return out
end

-- ---------------------------------------------------------------- what is searched for

local subjects = {}

subjects.batch = { what = "batch", sets = function(n) return { ("data.batch_size=%d"):format(n) } end,
  held = function(found) return found.totals.samples_per_step end,
  start = function(found) return setting(found, "data.batch_size") end }

-- The sequence length of the model and of the datasets that have one.
subjects.sequence = { what = "sequence", start = function(found)
  local length = setting(found, "model.sequence_length")
  if not length then failure(2, "--largest sequence: the recipe has no model.sequence_length") end
  return length
end }

function subjects.sequence.sets(n, found)
  local sets = { ("model.sequence_length=%d"):format(n) }
  for _, which in ipairs { "train", "test" } do
    local key = ("data.%s.sequence_length"):format(which)
    if setting(found, key) then sets[#sets + 1] = ("%s=%d"):format(key, n) end
  end
  return sets
end

function subjects.sequence.held(found) return setting(found, "model.sequence_length") end

-- ---------------------------------------------------------------- the search

-- The settings of the command line, and this table `parallel`.
local function sets_with(args, given)
  local sets = { unpack(args.set) }
  sets[#sets + 1] = "parallel=" .. literal.show(given)
  return sets
end

-- Rehearses one size on one rank and returns its peak in bytes, or nil and the reason.
local function peak_of(search, n, rank)
  local sets = sets_with(search.args, search.mode.parallel)
  for _, set in ipairs(search.subject.sets(n, search.plain)) do sets[#sets + 1] = set end
  local found, failed = rehearsal { recipe = search.args.recipe, ranks = search.args.ranks, rank = rank, set = sets,
    seed = search.args.seed, device = search.args.device }
  if not found and failed.text:find(recompute.TOO_LITTLE, 1, true) then return math.huge end -- smaller sizes may fit
  if not found then return nil, failed.text end
  if search.subject.held(found) ~= n then
    return nil, ("a step has only %d samples: the dataset has no more"):format(found.totals.samples_per_step)
  end
  return found.totals.peak_bytes
end

-- Rehearses one size and returns { n, peak, fits } or { n, why }. In a pipeline it rehearses the stages one after the
-- other, until one does not fit.
local function try(search, n)
  local limit, most = search.args.limit_memory, 0
  for stage = 0, (search.mode.parallel.pipeline or 1) - 1 do
    local peak, why = peak_of(search, n, stage)
    if not peak then return { n = n, why = why } end
    most = math.max(most, peak)
    if most > limit then break end
  end
  return { n = n, peak = most < math.huge and most or nil, fits = most <= limit }
end

-- Returns the largest size tried that fits (or nil), and the smallest that does not (or nil, if MOST was reached).
local function bracket(search, first)
  local at = try(search, first)
  if at.why then return nil, at end -- the mode cannot be formed, and smaller sizes change nothing
  if at.fits then
    local best = at
    while best.n < MOST do
      at = try(search, 2 * best.n)
      if not at.fits then return best, at end
      best = at
    end
    return best, nil
  end
  while at.n > 1 do
    local smaller = try(search, math.floor(at.n / 2))
    if smaller.fits then return smaller, at end
    at = smaller
  end
  return nil, at
end

local function bisect(search, best, worse)
  while worse.n - best.n > 1 do
    local at = try(search, math.floor((best.n + worse.n) / 2))
    if at.fits then best = at else worse = at end
  end
  return best, worse
end

local function search_mode(args, mode, subject, plain)
  local search = { args = args, mode = mode, subject = subject, plain = plain }
  local row = { mode = mode.name, parallel = mode.parallel }
  local best, worse = bracket(search, subject.start(plain))
  if best and worse then best, worse = bisect(search, best, worse) end
  if best then row.largest, row.peak_bytes = best.n, best.peak end
  if worse then row.next, row.next_peak_bytes, row.why = worse.n, worse.peak, worse.why end
  return row
end

local function in_one_line(given) return (literal.show(given):gsub(",?%s*\n%s*", " ")) end

-- Prints a text in indented lines of at most 112 characters.
local function print_wrapped(text)
  local line = ""
  for word in text:gmatch "%S+" do
    if #line + #word > 111 then
      print("      " .. line)
      line = ""
    end
    line = line == "" and word or line .. " " .. word
  end
  print("      " .. line)
end

local function print_row(row)
  local after = row.next_peak_bytes and (", %d: %s"):format(row.next, machine.bytes(row.next_peak_bytes)) or ""
  print(("  %-8s %10s  %10s  %s%s"):format(row.mode, row.largest or "none",
    row.largest and machine.bytes(row.peak_bytes) or "-", in_one_line(row.parallel), after))
  if row.why then print_wrapped(("%d: %s"):format(row.next, row.why:match "^[^\n]*")) end
  io.stdout:flush()
end

-- The recipe as it is, on one rank, which may hold more than a rank of the job.
local function plainly(args, sets)
  local found, failed = rehearsal { recipe = args.recipe, set = sets, seed = args.seed, device = args.device }
  if found or not failed.text:find(recompute.TOO_LITTLE, 1, true) then return found, failed end
  sets[#sets + 1] = "recompute.memory=1024T"
  return rehearsal { recipe = args.recipe, set = sets, seed = args.seed, device = args.device }
end

--- Runs the search. args: the arguments of the command line.
return function(args)
  local subject, n = subjects[args.largest], args.ranks or 1
  local plain, failed = plainly(args, sets_with(args, {}))
  if not plain then failure(failed.code, "on one rank: %s", failed.text) end
  local rows = json.array()
  if not args.json then
    print(("largest %s of %s on %d ranks of %s each (peak of rank 0, or of all stages)"):format(subject.what,
      args.recipe, n, machine.bytes(args.limit_memory)))
  end
  for i, mode in ipairs(chosen(n, args.mode, plain)) do
    rows[i] = search_mode(args, mode, subject, plain)
    if not args.json then print_row(rows[i]) end
  end
  if args.json then print(json.encode({ largest = subject.what, ranks = n, limit = args.limit_memory, modes = rows },
    { indent = true })) end
end
