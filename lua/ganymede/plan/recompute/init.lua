--- recompute = { memory = BYTES }: which modules of a model run again in backward, so that a rank stays within BYTES.
--
--     local found = choose(measured, rehearse, memory)
--
-- measured: { chain, live (bytes held when a step begins), peak (of a step where nothing runs again) }. The solver
-- chooses on the chain, and a rehearsal of the whole step says what its choice needs: rehearse(patterns) -> peak. The
-- chain counts everything that a section gives as held until its backward pass, which is more than a tape holds, and it
-- knows nothing of optimizers and of messages. So the limit of the chain is moved until the peak of the rehearsal comes
-- close to BYTES from below. What is returned has been rehearsed.
-- Regions are single modules here; a plan of the solver with larger regions has no module to mark.
-- @module ganymede.plan.recompute
local machine = require "ganymede.base.machine"
local operations = require "ganymede.plan.recompute.operations"
local solve = require "ganymede.plan.recompute.solve"

local ATTEMPTS = 8 -- rehearsals, each a fraction of a second

local function pattern_of(path) return "^" .. path:gsub("%p", "%%%0") .. "$" end

-- Regions of a chain -> patterns over the paths of modules, as `recompute` takes them; and the paths.
local function named(chain, regions)
  local patterns, paths = {}, {}
  for i, region in ipairs(regions) do
    paths[i] = chain[region.first].path
    patterns[i] = pattern_of(paths[i])
  end
  return patterns, paths
end

-- The next limit to try: between one whose plan fits and one whose plan does not, or by what the last one missed.
local function next_limit(low, high, limit, missed)
  if low and high then return math.floor((low + high) / 2) end
  return limit + missed
end

-- Too little memory, whatever runs again.
local function cannot(chain, least, memory, rehearse)
  local plan = solve(chain, least, { span = 1 })
  local patterns, paths = named(chain, plan.regions)
  local peak = rehearse(patterns)
  if peak <= memory then return { patterns = patterns, paths = paths, peak = peak, time = plan.time } end
  return nil, { least = peak, missing = peak - memory }
end

local function search(measured, rehearse, memory)
  local chain, limit, tried = measured.chain, math.max(0, memory - measured.live), {}
  local best, low, high
  for _ = 1, ATTEMPTS do
    local plan, why = solve(chain, limit, { span = 1 })
    if not plan and best then return best end
    if not plan then return cannot(chain, why.least, memory, rehearse) end
    local patterns, paths = named(chain, plan.regions)
    local key = table.concat(paths, " ")
    local peak = tried[key] or rehearse(patterns)
    local known = tried[key]
    tried[key] = peak
    if peak <= memory then
      low = limit
      if not best or plan.time < best.time then
        best = { patterns = patterns, paths = paths, peak = peak, time = plan.time }
      end
    else
      high = limit
    end
    if known and best then return best end
    limit = math.max(0, next_limit(low, high, limit, memory - peak))
  end
  if best then return best end
  return cannot(chain, solve(chain, 2 ^ 52, { span = 1 }).least, memory, rehearse)
end

--- -> { patterns (of `recompute`), paths, peak (rehearsed), time and whole (operations of the step with the plan, and
-- where nothing runs again) }; nil, { least, missing } where no choice fits.
local function choose(measured, rehearse, memory)
  local chain = measured.chain
  local whole = operations.simulate(chain, operations.of({}, #chain)).time
  if measured.peak <= memory then
    return { patterns = {}, paths = {}, peak = measured.peak, time = whole, whole = whole }
  end
  local found, why = search(measured, rehearse, memory)
  if found then found.whole = whole end
  return found, why
end

-- ---------------------------------------------------------------- in words

-- { "blocks.1", "blocks.2", "blocks.5" } -> "blocks.1-2, blocks.5"
local function in_short(paths)
  local out, i = {}, 1
  while i <= #paths do
    local stem, first = paths[i]:match "^(.-)(%d+)$"
    local last, k = tonumber(first), i
    while first and paths[k + 1] == stem .. last + 1 do k, last = k + 1, last + 1 end
    out[#out + 1] = k > i and ("%s-%d"):format(paths[i], last) or paths[i]
    i = k + 1
  end
  return table.concat(out, ", ")
end

--- One line that says what was chosen.
local function said(found, memory)
  if #found.paths == 0 then
    return ("nothing runs again: a step needs %s of %s"):format(machine.bytes(found.peak), machine.bytes(memory))
  end
  return ("%s run%s again in backward: a step needs %s of %s, and %.1f %% more operations"):format(
    in_short(found.paths), #found.paths == 1 and "s" or "", machine.bytes(found.peak), machine.bytes(memory),
    100 * (found.time / found.whole - 1))
end

-- What is said where no choice fits begins with this, by which a search for sizes knows it.
return { choose = choose, said = said, TOO_LITTLE = "recompute.memory is too little" }
