--- Which stages of a chain run again, so that a step takes the least time within a given memory.
--
--     local plan, why = solve(chain, bytes)        -- { regions, time, peak, least }; nil, { least, missing }
--
-- The dynamic programme of Rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova 2019, arXiv:1911.13214). Chains and
-- regions are those of ganymede.plan.recompute.operations. A schedule of Rotor is a tree: a sub-chain s..t whose input
-- is held either keeps everything of stage s and goes on with s+1..t, or runs s..e without keeping anything but the
-- input, goes on with e+1..t, and comes back to s..e as a sub-chain of its own. The second is a region s..e, and what
-- happens inside when it comes back are the regions inside: a schedule is a list of nested regions, and each such list
-- is a schedule. With C(s, t, m) the least time of a sub-chain in memory m beside its input:
--
--     C(s, t, m) = min( forward s + C(s+1, t, m - kept s) + backward s,
--                       min over e of  forward s..e + C(e+1, t, m - output e) + C(s, e, m) )
--
-- each where its own peak fits. As a function of m this is a staircase. It is kept as its steps (memory in bytes, time)
-- of plans that exist. So no plan needs more than it was given, and nothing is rounded where the steps are few. A
-- staircase of more steps than there is time for is thinned: a step that is left out needs at most the limit over the
-- number of steps less than the next one, which is better. So the time is at most that of the best plan in
-- (stages + 1) / steps less memory. The first step, the least memory of all, stays.
-- The trap: the time grows with stages^3 times steps.
-- @module ganymede.plan.recompute.solve
local ffi = require "ffi"
local operations = require "ganymede.plan.recompute.operations"

local WORK, MOST_STEPS = 5e8, 4096 -- steps looked at: some seconds

local huge = math.huge

-- ---------------------------------------------------------------- the chain in arrays

-- Stages as flat arrays, from 1.
local function arrays_of(chain)
  local n = #chain
  local a = { n = n, first_fixed = {} }
  for _, name in ipairs { "forward", "backward", "output", "kept", "gradient", "forward_extra", "kept_extra",
    "backward_extra" } do
    local list = ffi.new("double[?]", n + 2)
    for i, stage in ipairs(chain) do
      list[i] = stage[name] or (name == "gradient" and stage.output or 0)
    end
    a[name] = list
  end
  local fixed = n + 1 -- the first stage from i on that no region may contain
  for i = n, 1, -1 do
    if chain[i].fixed then fixed = i end
    a.first_fixed[i] = fixed
  end
  return a
end

-- The last stage that a region may have which begins with s.
local function furthest(a, s, options) return math.min(a.first_fixed[s] - 1, s + (options.span or a.n) - 1) end

-- Bytes at the peak of keeping everything of stage s in a sub-chain that ends with t; the rest of it comes on top.
local function need_of_keeping(a, s, t)
  return math.max(a.gradient[t] + a.kept[s] + a.kept_extra[s], a.gradient[s] + a.kept[s] + a.backward_extra[s])
end

-- Bytes at the peak of stage e in a forward pass of a region s..e that keeps nothing, in a sub-chain that ends with t.
local function need_of_passing(a, s, e, t)
  return a.gradient[t] + (e > s and a.output[e - 1] or 0) + a.output[e] + a.forward_extra[e]
end

-- Everything of s..t kept -> bytes at its peak, time.
local function keeping_all(a, s, t)
  local held, peak, time = 0, 0, 0
  for i = s, t do
    peak = math.max(peak, held + a.gradient[t] + a.kept[i] + a.kept_extra[i])
    held, time = held + a.kept[i], time + a.forward[i] + a.backward[i]
  end
  for i = t, s, -1 do
    peak = math.max(peak, held + a.gradient[i] + a.backward_extra[i])
    held = held - a.kept[i]
  end
  return peak, time
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

-- C of a chain: the staircase of each sub-chain, up to a limit.
local Programme = {}
Programme.__index = Programme

local function new_programme(a, limit, options, most)
  local nothing = new_steps(1)
  append(nothing, 0, 0)
  local room = 4 * most + 8 -- two thinned staircases added up, beside another such
  return setmetatable({ a = a, n = a.n, limit = limit, options = options, most = most, rows = {}, nothing = nothing,
    sum = new_steps(room), best = new_steps(room), other = new_steps(room) }, Programme)
end

function Programme:row(s, t) return self.rows[s * (self.n + 1) + t] end

-- What happens inside a region s..e; if regions have none inside, everything is kept there.
function Programme:inside(s, e)
  if self.options.nested then return self:row(s, e) end
  local steps = new_steps(1)
  append(steps, keeping_all(self.a, s, e))
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

function Programme:fill(s, t)
  local a = self.a
  self.best.n = 0
  self:take(s < t and self:row(s + 1, t) or self.nothing, self.nothing, a.forward[s] + a.backward[s],
    s < t and a.kept[s] or 0, need_of_keeping(a, s, t))
  local passing, forward = 0, 0
  for e = s, math.min(t - 1, furthest(a, s, self.options)) do
    passing, forward = math.max(passing, need_of_passing(a, s, e, t)), forward + a.forward[e]
    self:take(self:row(e + 1, t), self:inside(s, e), forward, a.output[e], passing)
  end
  self.rows[s * (self.n + 1) + t] = copy_of(self.best)
end

-- If regions have none inside, no region's inside is a sub-chain: all of them end with the last stage.
function Programme:run()
  for s = self.n, 1, -1 do
    for t = self.options.nested and s or self.n, self.n do self:fill(s, t) end
  end
  return self
end

-- The best first choice of s..t in so many bytes -> e, the last stage of a region that begins with s (nil: s is kept),
-- and the bytes that what comes after it has.
function Programme:choose(s, t, bytes)
  local a = self.a
  local best, chosen, rest = huge, nil, bytes - a.kept[s]
  if bytes >= need_of_keeping(a, s, t) then
    best = a.forward[s] + a.backward[s] + (s < t and time_of(self:row(s + 1, t), rest) or 0)
  end
  local passing, forward = 0, 0
  for e = s, math.min(t - 1, furthest(a, s, self.options)) do
    passing, forward = math.max(passing, need_of_passing(a, s, e, t)), forward + a.forward[e]
    if passing > bytes then break end
    local total = forward + time_of(self:row(e + 1, t), bytes - a.output[e]) + time_of(self:inside(s, e), bytes)
    if total < best then best, chosen, rest = total, e, bytes - a.output[e] end
  end
  return chosen, rest
end

-- The regions of s..t in so many bytes.
function Programme:regions(s, t, bytes)
  local list = {}
  while s <= t do
    local e, rest = self:choose(s, t, bytes)
    if e then
      list[#list + 1] = { first = s, last = e, inside = self.options.nested and self:regions(s, e, bytes) or {} }
    end
    s, bytes = (e or s) + 1, rest
  end
  return list
end

-- ---------------------------------------------------------------- the answer

local function is_bytes(v) return type(v) == "number" and v >= 0 and v % 1 == 0 end

local function check(chain, limit)
  if #chain == 0 then error("a chain without stages", 3) end
  if not is_bytes(limit) then error("a limit in bytes, 0 or more", 3) end
  for i, stage in ipairs(chain) do
    if not (is_bytes(stage.kept) and is_bytes(stage.output)) then
      error(("stage %d: kept and output are whole numbers of bytes"):format(i), 3)
    end
    if stage.kept < stage.output then error(("stage %d keeps less than its output"):format(i), 3) end
  end
end

local function least_memory(a, options) return new_programme(a, huge, options, 1):run():row(1, a.n).memory[0] end

local function regions_of(a, limit, options)
  if keeping_all(a, 1, a.n) <= limit then return {} end
  local most = options.steps or math.min(MOST_STEPS, math.ceil(WORK / a.n ^ 3))
  return new_programme(a, limit, options, most):run():regions(1, a.n, limit)
end

--- The plan for a chain whose peak is at most `limit` bytes: { regions (of stages by number), time, peak (in bytes, as
-- operations.simulate counts them), least (the smallest limit with a plan) }; nil, { least, missing } if there is none.
-- options: nested = false (no regions inside regions), span (the most stages of a region), steps (of a staircase). A
-- stage with fixed = true is in no region.
local function solve(chain, limit, options)
  check(chain, limit)
  options = options or {}
  local a, own = arrays_of(chain), { nested = options.nested ~= false, span = options.span, steps = options.steps }
  local least = least_memory(a, own)
  if least > limit then return nil, { least = least, missing = least - limit } end
  local regions = regions_of(a, limit, own)
  local took = operations.simulate(chain, operations.of(regions, a.n))
  return { regions = regions, time = took.time, peak = took.peak, least = least }
end

return solve
