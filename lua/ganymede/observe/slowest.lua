--- Which rank of a job the others wait for, from the seconds in which each rank waited.
--
--     local found = slowest.of({ 3.1, 0.2, 3.0 }, 9.5)     -- { rank = 1, waited = 0.2, others = 3.05, seconds = 2.85 }
--
-- Ranks that share the work of a step meet in each of its exchanges: who comes last has waited least. The rank that
-- waited least is named only where the others, in their median, waited longer by a tenth of the time: less is within
-- what the system and other programs take from one rank or another. The trap: on a GPU the device waits in exchanges
-- between devices, not the host, and such seconds are counted nowhere.
-- @module ganymede.observe.slowest
local slowest = {}

local MATTERS = 0.1 -- of the time
local SHORTEST = 1  -- second of a run: in less than that, what ranks wait at the start is most of it

local function median(sorted)
  local half = math.floor(#sorted / 2)
  return #sorted % 2 == 1 and sorted[half + 1] or (sorted[half] + sorted[half + 1]) / 2
end

--- The rank that the others wait for -> { rank, waited (by it), others (waited by them, in their median), seconds (how
-- much more that is) }; nil: nobody is slower than the others by so much that it matters.
-- waited: list of seconds, rank 0 first; seconds: how long this was watched.
function slowest.of(waited, seconds)
  if #waited < 2 then return nil end
  local least, others = 1, {}
  for i = 2, #waited do
    if waited[i] < waited[least] then least = i end
  end
  for i, own in ipairs(waited) do
    if i ~= least then others[#others + 1] = own end
  end
  table.sort(others)
  local found = { rank = least - 1, waited = waited[least], others = median(others) }
  found.seconds = found.others - found.waited
  return found.seconds > MATTERS * seconds and found or nil
end

local training = { forward = true, backward = true, update = true }

--- The same of a run, from what its ranks have counted in training steps; nil also where they took less than a second.
-- entries: `ranks` of the document of --stats; seconds: of these steps.
function slowest.of_run(entries, seconds)
  if seconds < SHORTEST then return nil end
  local waited = {}
  for i, entry in ipairs(entries) do
    waited[i] = 0
    for _, e in ipairs(entry.comm) do
      if training[e.phase] then waited[i] = waited[i] + e.seconds_exposed end
    end
  end
  return slowest.of(waited, seconds)
end

--- A sentence about what `of` has found. seconds: as there.
function slowest.text(found, seconds)
  return ("the other ranks waited for rank %d: %.1f s of %.1f s each, rank %d itself %.1f s; it is slower than they "
    .. "are, or has more to do"):format(found.rank, found.others, seconds, found.rank, found.waited)
end

return slowest
