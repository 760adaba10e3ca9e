--- recompute = { memory = BYTES }: what runs again in backward, so that a rank stays within BYTES.
--
--     local found, why = choose(measured, rehearse, memory)
--
-- measured: { chain, live (bytes held when a step begins), peak and flops (of a step where nothing runs again), copies
-- (micro-batches held at most) }. The solver chooses on the chain, and a rehearsal of the whole step says what its
-- choice needs: rehearse(setting) -> peak, flops; the setting is what `recompute` takes. The chain knows nothing of
-- optimizers, of messages, and of outputs that somebody holds. So the limit of the chain is moved until the peak of the
-- rehearsal comes close to BYTES from below. What is returned has been rehearsed. Stage i of a chain is section
-- chain[i].section (default i) of the model. If the chain has `modules`, its stages are modules, of a model without
-- sections, and regions are single modules (ganymede.plan.borders).
-- @module ganymede.recompute
local machine = require "ganymede.base.machine"
local section_regions = require "ganymede.nn.section_regions"
local solve = require "ganymede.recompute.solve"

local ATTEMPTS = 8 -- rehearsals, each a fraction of a second

local function pattern_of(path) return "^" .. path:gsub("%p", "%%%0") .. "$" end

local function section_of(chain, i) return chain[i].section or i end

local function by_section(chain, regions)
  local out = {}
  for i, r in ipairs(regions) do
    out[i] = { first = section_of(chain, r.first), last = section_of(chain, r.last),
      inside = by_section(chain, r.inside) }
  end
  return out
end

-- Regions of a chain as `recompute` takes them, and a text that tells two of them apart.
local function setting_of(chain, regions)
  if not chain.modules then
    local text = section_regions.text(by_section(chain, regions))
    return text ~= "" and { sections = text } or false, text
  end
  local patterns = {}
  for i, r in ipairs(regions) do patterns[i] = pattern_of(chain[r.first].name) end
  return #patterns > 0 and patterns or false, table.concat(patterns, " ")
end

-- ---------------------------------------------------------------- the search

local Search = {}
Search.__index = Search

-- The solver's plan for a limit of the chain; nil and why there is none.
function Search:plan(limit)
  local measured = self.measured
  return solve(measured.chain, limit, { copies = measured.copies, span = measured.chain.modules and 1 or nil })
end

-- Rehearses a plan, once -> what is found, whether it was known.
function Search:judge(plan)
  local setting, key = setting_of(self.measured.chain, plan.regions)
  if self.tried[key] then return self.tried[key], true end
  local found = { setting = setting, regions = plan.regions, predicted = self.beside + plan.peak }
  if setting then found.peak, found.flops = self.rehearse(setting)
  else found.peak, found.flops = self.measured.peak, self.measured.flops end
  self.tried[key] = found
  return found, false
end

-- The next limit to try: between one whose plan fits and one whose plan does not, or by what the last one missed.
local function next_limit(low, high, limit, missed)
  if low and high then return math.floor((low + high) / 2) end
  return limit + missed
end

-- Too little memory, as far as is known: the plan that needs least.
function Search:least(least)
  local found = self:judge((self:plan(least)))
  if found.peak <= self.memory then return found end
  return nil, { least = found.peak, missing = found.peak - self.memory }
end

function Search:run()
  local limit, best, low, high = math.max(0, self.memory - self.beside), nil, nil, nil
  for _ = 1, ATTEMPTS do
    local plan, why = self:plan(limit)
    if not plan and best then return best end
    if not plan then return self:least(why.least) end
    local found, known = self:judge(plan)
    if found.peak <= self.memory then
      low = limit
      if not best or found.flops < best.flops then best = found end
    else
      high, limit = plan.peak, plan.peak -- below this there is another plan
    end
    if known and best then return best end
    limit = math.max(0, next_limit(low, high, limit, self.memory - found.peak))
  end
  if best then return best end
  local _, why = self:plan(0)
  return self:least(why and why.least or 0)
end

--- -> { setting (of `recompute`; false: nothing runs again), regions (of the chain), peak and flops (rehearsed),
-- predicted (the peak by the chain), whole (operations of a step where nothing runs again) }; nil, { least, missing }
-- where no choice fits.
local function choose(measured, rehearse, memory)
  if measured.peak <= memory then
    return { setting = false, regions = {}, peak = measured.peak, flops = measured.flops, whole = measured.flops }
  end
  local search = setmetatable({ measured = measured, rehearse = rehearse, memory = memory, tried = {},
    beside = measured.live + (measured.chain.beside or 0) }, Search)
  local found, why = search:run()
  if found then found.whole = measured.flops end
  return found, why
end

--- The choice of the solver alone, without a rehearsal; measured and results as in choose, except `peak`, which is
-- what the chain predicts, and operations, which are those of the chain.
local function predict(measured, memory)
  local chain = measured.chain
  local beside = measured.live + (chain.beside or 0)
  local plan, why = solve(chain, math.max(0, memory - beside))
  if not plan then return nil, { least = beside + why.least, missing = beside + why.least - memory } end
  return { setting = setting_of(chain, plan.regions), regions = plan.regions, peak = beside + plan.peak,
    flops = plan.time, whole = measured.flops }
end

-- ---------------------------------------------------------------- in words

-- "blocks.1", "blocks.4" -> "blocks.1-4"
local function span_of(first, last)
  if first == last then return first end
  local stem, number = last:match "^(.-)(%d+)$"
  if stem and first:match "^(.-)%d+$" == stem then return ("%s-%s"):format(first, number) end
  return ("%s to %s"):format(first, last)
end

-- Regions one after the other: spans as one each, single stages in a row one by one.
local function in_short(chain, regions)
  local out, i = {}, 1
  while i <= #regions do
    local r, k = regions[i], i
    local single = r.first == r.last
    while single and regions[k + 1] and regions[k + 1].first == regions[k].last + 1
      and regions[k + 1].first == regions[k + 1].last do k = k + 1 end
    local words = span_of(chain[r.first].name, chain[regions[k].last].name)
    if not single then words = words .. " as one" end
    if #r.inside > 0 then words = words .. " with regions inside" end
    out[#out + 1], i = words, k + 1
  end
  return table.concat(out, ", ")
end

--- One line that says what was chosen for a chain.
local function said(chain, found, memory)
  if not found.setting then
    return ("nothing runs again: a step needs %s of %s"):format(machine.bytes(found.peak), machine.bytes(memory))
  end
  local is_one = #found.regions == 1 and found.regions[1].first == found.regions[1].last
  local text = found.setting.sections
  return ("%s run%s again in backward%s: a step needs %s of %s, and %.1f %% more operations"):format(
    in_short(chain, found.regions), is_one and "s" or "", text and (" (sections = \"%s\")"):format(text) or "",
    machine.bytes(found.peak), machine.bytes(memory), 100 * (found.flops / found.whole - 1))
end

-- What is said where no choice fits begins with this, by which a search for sizes knows it.
local TOO_LITTLE = "recompute.memory is too little"

--- What is said where no choice fits; why: of choose.
local function too_little(memory, why)
  return ("%s: %s lacks %s; a step needs %s at least, whatever runs again"):format(TOO_LITTLE, machine.bytes(memory),
    machine.bytes(why.missing), machine.bytes(why.least))
end

return { choose = choose, predict = predict, said = said, too_little = too_little, TOO_LITTLE = TOO_LITTLE }
