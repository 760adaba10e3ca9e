--- Which stages of a chain run again, so that a step takes the least time within a given memory.
--
--     local plan, why = solve(chain, bytes)        -- { regions, time, peak }; nil, { least, missing }
--
-- The dynamic programme of Rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova 2019, arXiv:1911.13214). Chains and
-- regions are those of ganymede.recompute.operations. A schedule of Rotor is a tree: a sub-chain s..t either keeps
-- everything of stage s and goes on with s+1..t, or runs s..e without keeping anything but the input, goes on with
-- e+1..t, and comes back to s..e as a sub-chain of its own, whose input is held. The second is a region s..e, and what
-- happens inside when it comes back are the regions inside: a schedule is a list of nested regions, and each such list
-- is a schedule. With F(s, t, m) the least time of a sub-chain in memory m, and H that of one whose input is held
-- beside m:
--
--     H(s, t, m) = min( forward s + F(s+1, t, m - kept s) + backward s,
--                       min over e of  forward s..e + F(e+1, t, m) + H(s, e, m) )
--     F(s, t, m) = the same, where the second is for m - input s
--
-- each where its own peak fits. As a function of m this is a staircase. It is kept as its steps (memory in bytes, time)
-- of plans that exist. So no plan needs more than it was given, and nothing is rounded where the steps are few. A
-- staircase of more steps than there is time for is thinned: a step that is left out needs at most the limit over the
-- number of steps less than the next one, which is better. So the time is at most that of the best plan in
-- (stages + 1) / steps less memory. The first step, the least memory of all, stays.
--
-- In a pipeline a stage holds several micro-batches: beside the one at work there are `copies` - 1 others, between
-- their forward and their backward pass. They hold what the regions outside of all others keep: h bytes each. For a
-- limit of h, the programme runs with the memory that is left, (copies - 1) h less, and its last stage must leave at
-- most h held. The best of a number of such limits is taken. The trap: the time grows with stages^3 times steps.
-- @module ganymede.recompute.solve
local ffi = require "ffi"
local operations = require "ganymede.recompute.operations"

local WORK, MOST_STEPS = 5e8, 4096 -- steps looked at: some seconds
local SHARES = 48 -- limits tried of what other micro-batches hold
local ATTEMPTS = 24 -- limits tried to find the least memory

local huge = math.huge

-- ---------------------------------------------------------------- the chain in arrays

-- Stages as flat arrays, from 1.
local function arrays_of(chain)
  local n, bytes = #chain, operations.bytes_of(chain)
  local a = { n = n, first_fixed = {} }
  local function array(name, value)
    a[name] = ffi.new("double[?]", n + 2)
    for i = 1, n do a[name][i] = value(i) end
  end
  for _, name in ipairs { "forward", "backward" } do array(name, function(i) return chain[i][name] end) end
  for name, list in pairs(bytes) do array(name, function(i) return list[i] end) end
  local fixed = n + 1 -- the first stage from i on that a region that contains stage i may not contain
  for i = n, 1, -1 do
    if chain[i].ends then fixed = i + 1 end
    if chain[i].fixed then fixed = i end
    a.first_fixed[i] = fixed
  end
  return a
end

-- The last stage that a region may have which begins with s.
local function furthest(a, s, options) return math.min(a.first_fixed[s] - 1, s + (options.span or a.n) - 1) end

-- Bytes at the peak of keeping everything of stage s in a sub-chain that ends with t; the rest of it comes on top.
-- is_held: its input is counted elsewhere.
local function need_of_keeping(a, s, t, is_held)
  return math.max(a.gradient[t] + a.keeping[s] - (is_held and a.input[s] or 0),
    a.gradient[s] + a.kept[s] + a.backward_extra[s])
end

-- Bytes at the peak of stage e in a forward pass of a region s..e that keeps nothing, in a sub-chain that ends with t,
-- beside the input of the region.
local function need_of_passing(a, s, e, t) return a.gradient[t] + a.passing[e] - (e == s and a.input[s] or 0) end

-- Everything of s..t kept -> bytes at its peak, time, bytes held between forward and backward. is_held: the input is
-- counted elsewhere.
local function keeping_all(a, s, t, is_held)
  local held, peak, time = 0, 0, 0
  for i = s, t do
    peak = math.max(peak, held + a.gradient[t] + a.keeping[i] - (is_held and i == s and a.input[s] or 0))
    held, time = held + a.kept[i], time + a.forward[i] + a.backward[i]
  end
  local all = held
  for i = t, s, -1 do
    peak = math.max(peak, held + a.gradient[i] + a.backward_extra[i])
    held = held - a.kept[i]
  end
  return peak, time, all
end

-- ---------------------------------------------------------------- staircases

-- A staircase: n steps, memory going up, time going down. `room` steps have a place.
local function new_steps(room)
  return { n = 0, memory = ffi.new("double[?]", room), time = ffi.new("double[?]", room) }
end

local function copy_of(steps)
  local own = new_steps(steps.n)
  ffi.copy(own.memory, steps.memory, 8 * steps.n)
  ffi.copy(own.time, steps.time, 8 * steps.n)
  own.n = steps.n
  return own
end

-- A step at the end; one with the same memory is replaced, one that is no faster is left out.
local function append(steps, memory, time)
  local n = steps.n
  if n > 0 and steps.time[n - 1] <= time then return end
  if n > 0 and steps.memory[n - 1] == memory then n = n - 1 end
  steps.memory[n], steps.time[n], steps.n = memory, time, n + 1
end

-- Into `out`: the sum of both staircases and `own`, where a needs `held` more than it says, and both at least `need`.
local function add_up(out, a, b, own, held, need, limit)
  out.n = 0
  if a.n == 0 or b.n == 0 then return end
  local i, j = 0, 0
  local m = math.max(a.memory[0] + held, b.memory[0], need)
  while m <= limit do
    while i + 1 < a.n and a.memory[i + 1] + held <= m do i = i + 1 end
    while j + 1 < b.n and b.memory[j + 1] <= m do j = j + 1 end
    append(out, m, own + a.time[i] + b.time[j])
    m = math.min(i + 1 < a.n and a.memory[i + 1] + held or huge, j + 1 < b.n and b.memory[j + 1] or huge)
    if m == huge then return end
  end
end

-- Into `out`: the lower of both staircases, everywhere.
local function lower(out, a, b)
  local i, j = 0, 0
  out.n = 0
  while i < a.n or j < b.n do
    if j >= b.n or i < a.n and a.memory[i] <= b.memory[j] then
      append(out, a.memory[i], a.time[i])
      i = i + 1
    else
      append(out, b.memory[j], b.time[j])
      j = j + 1
    end
  end
end

-- Leaves at most `most` steps: the first, and the last of each of most - 1 equal parts of the memory.
local function thin(steps, most)
  if steps.n <= most then return end
  local first, n = steps.memory[0], steps.n
  local width, kept = (steps.memory[n - 1] - first) / (most - 1), 1
  local function part(i) return math.ceil((steps.memory[i] - first) / width) end
  for i = 1, most > 1 and n - 1 or 0 do
    if i == n - 1 or part(i + 1) > part(i) then
      steps.memory[kept], steps.time[kept], kept = steps.memory[i], steps.time[i], kept + 1
    end
  end
  steps.n = math.min(kept, most)
end

-- The time in so much memory.
local function time_of(steps, memory)
  local low, high = 0, steps.n -- the last step at or below memory is before high
  while low < high do
    local middle = math.floor((low + high) / 2)
    if steps.memory[middle] <= memory then low = middle + 1 else high = middle end
  end
  return low == 0 and huge or steps.time[low - 1]
end

-- ---------------------------------------------------------------- the programme

-- F and H of a chain: the staircases of each sub-chain, up to a limit.
local Programme = {}
Programme.__index = Programme

local function nothing_from(memory)
  local steps = new_steps(1)
  append(steps, memory, 0)
  return steps
end

local function new_programme(a, limit, options, most)
  local room = 4 * most + 8 -- two thinned staircases added up, beside another such
  return setmetatable({ a = a, n = a.n, limit = limit, options = options, most = most, free = {}, held = {},
    nothing = nothing_from(0), sum = new_steps(room), best = new_steps(room), other = new_steps(room) }, Programme)
end

function Programme:at(s, t) return s * (self.n + 1) + t end

-- F of what comes after stage s - 1.
function Programme:rest(s, t)
  if s <= t then return self.free[self:at(s, t)] end
  return t == self.n and self.ending or self.nothing
end

-- What happens inside a region s..e; if regions have none inside, everything is kept there.
function Programme:inside(s, e)
  if self.options.nested then return self.held[self:at(s, e)] end
  local steps = new_steps(1)
  append(steps, keeping_all(self.a, s, e, true))
  return steps
end

-- Takes another way to do a sub-chain into its best.
function Programme:take(rest, inside, own, held, need)
  add_up(self.sum, rest, inside, own, held, need, self.limit)
  if self.sum.n == 0 then return end
  lower(self.other, self.best, self.sum)
  self.best, self.other = self.other, self.best
  thin(self.best, self.most)
end

-- Keeping everything of stage s, joined with what `best` has.
function Programme:with_keeping(s, t, is_held)
  local a = self.a
  self:take(self:rest(s + 1, t), self.nothing, a.forward[s] + a.backward[s], a.kept[s],
    need_of_keeping(a, s, t, is_held))
  return copy_of(self.best)
end

-- All steps of `best` need more memory.
local function shift(steps, bytes, limit)
  local n = 0
  for i = 0, steps.n - 1 do
    steps.memory[i] = steps.memory[i] + bytes
    if steps.memory[i] <= limit then n = i + 1 end
  end
  steps.n = n
end

function Programme:fill(s, t)
  local a = self.a
  local passing, forward = 0, 0
  self.best.n = 0
  for e = s, math.min(t - 1, furthest(a, s, self.options)) do
    passing, forward = math.max(passing, need_of_passing(a, s, e, t)), forward + a.forward[e]
    self:take(self:rest(e + 1, t), self:inside(s, e), forward, 0, passing)
  end
  local regions = copy_of(self.best)
  self.held[self:at(s, t)] = self:with_keeping(s, t, true)
  ffi.copy(self.best.memory, regions.memory, 8 * regions.n)
  ffi.copy(self.best.time, regions.time, 8 * regions.n)
  self.best.n = regions.n
  shift(self.best, a.input[s], self.limit)
  self.free[self:at(s, t)] = self:with_keeping(s, t, false)
end

-- If regions have none inside, no region's inside is a sub-chain: all of them end with the last stage.
function Programme:run()
  for s = self.n, 1, -1 do
    for t = s, self.options.nested and self.n - 1 or 0 do self:fill(s, t) end
  end
  return self
end

-- The sub-chains that end with the last stage, in so many bytes, of which at most `held` are held when the forward pass
-- is over -> the staircase of the whole.
function Programme:finish(bytes, held)
  self.limit, self.ending = bytes, nothing_from(held < bytes and bytes - held or 0)
  for s = self.n, 1, -1 do self:fill(s, self.n) end
  return self.free[self:at(1, self.n)]
end

-- The best first choice of s..t in so many bytes -> e, the last stage of a region that begins with s (nil: s is kept),
-- and the bytes that what comes after it has.
function Programme:choose(s, t, bytes, is_held)
  local a = self.a
  local best, chosen, rest = huge, nil, bytes - a.kept[s]
  if bytes >= need_of_keeping(a, s, t, is_held) then
    best = a.forward[s] + a.backward[s] + time_of(self:rest(s + 1, t), rest)
  end
  local own = bytes - (is_held and 0 or a.input[s])
  local passing, forward = 0, 0
  for e = s, math.min(t - 1, furthest(a, s, self.options)) do
    passing, forward = math.max(passing, need_of_passing(a, s, e, t)), forward + a.forward[e]
    if passing > own then break end
    local total = forward + time_of(self:rest(e + 1, t), own) + time_of(self:inside(s, e), own)
    if total < best then best, chosen, rest = total, e, own end
  end
  return chosen, rest
end

-- The regions of s..t in so many bytes.
function Programme:regions(s, t, bytes, is_held)
  local list = {}
  while s <= t do
    local e, rest = self:choose(s, t, bytes, is_held)
    if e then
      local own = bytes - (is_held and 0 or self.a.input[s])
      list[#list + 1] = { first = s, last = e, inside = self.options.nested and self:regions(s, e, own, true) or {} }
    end
    s, bytes, is_held = (e or s) + 1, rest, false
  end
  return list
end

-- ---------------------------------------------------------------- the answer

local function is_bytes(v) return type(v) == "number" and v >= 0 and v % 1 == 0 end

local function check(chain, limit)
  if #chain == 0 then error("a chain without stages", 3) end
  if not is_bytes(limit) then error("a limit in bytes, 0 or more", 3) end
  for i, stage in ipairs(chain) do
    if not (is_bytes(stage.kept) and is_bytes(stage.input)) then
      error(("stage %d: kept and input are whole numbers of bytes"):format(i), 3)
    end
  end
end

-- The regions of the best plan of one micro-batch in `bytes`, of which at most `held` are held between forward and
-- backward, and its time; nil if there is none.
local function plan_within(programme, bytes, held)
  local steps = programme:finish(bytes, held)
  local time = time_of(steps, bytes)
  if time == huge then return nil end
  return programme:regions(1, programme.n, bytes, false), time
end

-- The best plan for limits of what other micro-batches hold.
local function best_shared(programme, limit, copies)
  local others = copies - 1
  if others <= 0 then return plan_within(programme, limit, limit) end
  local best, regions = huge, nil
  for k = 1, SHARES do
    local held = math.floor(limit / copies * k / SHARES)
    local found, time = plan_within(programme, limit - math.ceil(others * held), held)
    if found and time < best then best, regions = time, found end
  end
  return regions
end

-- The least memory in which a plan is found.
local function least_memory(a, options)
  if options.copies <= 1 then return new_programme(a, huge, options, 1):run():finish(huge, huge).memory[0] end
  local peak, _, held = keeping_all(a, 1, a.n, false)
  local low, high = 0, math.ceil(peak + (options.copies - 1) * held)
  for _ = 1, ATTEMPTS do
    local middle = math.floor((low + high) / 2)
    local found = best_shared(new_programme(a, middle, options, 8):run(), middle, options.copies)
    if found then high = middle else low = middle end
  end
  return high
end

local function regions_of(a, limit, options)
  local peak, _, held = keeping_all(a, 1, a.n, false)
  if peak + math.max(0, options.copies - 1) * held <= limit then return {} end
  local most = options.steps or math.min(MOST_STEPS, math.ceil(WORK / a.n ^ 3))
  return best_shared(new_programme(a, limit, options, most):run(), limit, options.copies)
end

-- Where micro-batches wait for their backward pass, the last stage can wait in a region, too: after it nothing comes.
local function with_end(chain)
  local out = { unpack(chain) }
  out[#out + 1] = { forward = 0, backward = 0, input = 0, kept = 0, gradient = 0, passing = 0, keeping = 0,
    fixed = true }
  return out
end

--- The plan for a chain whose peak is at most `limit` bytes: { regions (of stages by number), time, peak (in bytes, as
-- operations.simulate counts them, and what the other micro-batches hold) }; nil, { least (the smallest limit with a
-- plan), missing } if there is none. options: nested = false (no regions inside regions), span (the most stages of a
-- region), steps (of a staircase), copies (micro-batches that are held at most, this one among them; any number from
-- 1). A stage with fixed = true is in no region; no region goes on after a stage with ends = true.
local function solve(chain, limit, options)
  check(chain, limit)
  options = options or {}
  if (options.copies or 1) > 1 then chain = with_end(chain) end
  local a, own = arrays_of(chain), { nested = options.nested ~= false, span = options.span, steps = options.steps,
    copies = options.copies or 1 }
  local regions = regions_of(a, limit, own)
  if not regions then
    local least = least_memory(a, own)
    return nil, { least = least, missing = least - limit }
  end
  local took = operations.simulate(chain, operations.of(regions, a.n))
  return { regions = regions, time = took.time, peak = took.peak + math.ceil(math.max(0, own.copies - 1) * took.held) }
end

return solve
