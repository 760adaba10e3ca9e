--- A genetic search for states that are good in two aims: NSGA-II, Deb et al., IEEE Trans. Evol. Comp. 6 (2002).
--
-- The caller's problem p says what states are: p.rows * p.columns whole numbers in a list;
-- p.evaluate(p, x) -> first aim, second aim (both to be made large), a number that equal states share;
-- p.cross(p, a, b, x, y), p.mutate(p, x), p.repair(p, x) write into x and y; p.random (cluster/random.lua).
-- @module ganymede.cluster.nsga2
local nsga2 = {}

local function measure(p, state)
  state.first, state.second, state.hash = p.evaluate(p, state.x)
  return state
end

local function by_first(a, b)
  if a.first ~= b.first then return a.first > b.first end
  return a.second > b.second
end

-- Numbers the fronts: in the order of the first aim, a state belongs to the first front whose last one it is not
-- worse than in the second aim.
local function rank(states)
  table.sort(states, by_first)
  local fronts = {}
  for _, s in ipairs(states) do
    local k = 1
    while fronts[k] do
      local last = fronts[k][#fronts[k]]
      if s.second > last.second or (s.second == last.second and s.first == last.first) then break end
      k = k + 1
    end
    fronts[k] = fronts[k] or {}
    table.insert(fronts[k], s)
    s.rank = k
  end
  return fronts
end

-- How far the neighbours in the front are, in both aims; the ends are farthest. The front is in order of the first aim,
-- and therefore of the second one too.
local function crowding(front)
  local first, last = front[1], front[#front]
  local wide, high = first.first - last.first, last.second - first.second
  for i, s in ipairs(front) do
    local before, after = front[i - 1], front[i + 1]
    if not before or not after then
      s.room = math.huge
    else
      s.room = (wide > 0 and (before.first - after.first) / wide or 0)
        + (high > 0 and (after.second - before.second) / high or 0)
    end
  end
end

local function roomier(a, b)
  if a.room ~= b.room then return a.room > b.room end
  return by_first(a, b)
end

-- The best `most` states, and the others.
local function survive(states, most)
  local keep, rest = {}, {}
  for _, front in ipairs(rank(states)) do
    crowding(front)
    if #keep + #front > most then table.sort(front, roomier) end
    for _, s in ipairs(front) do
      if #keep < most then keep[#keep + 1] = s else rest[#rest + 1] = s end
    end
  end
  return keep, rest
end

local function tournament(p, states)
  local a, b = states[p.random(#states)], states[p.random(#states)]
  if a.rank ~= b.rank then return a.rank < b.rank and a or b end
  return a.room >= b.room and a or b
end

-- Measures a new state; false: there is an equal one, and it is spare again.
local function keep(p, state, seen, states, spare)
  p.mutate(p, state.x)
  p.repair(p, state.x)
  measure(p, state)
  if seen[state.hash] then
    spare[#spare + 1] = state
  else
    seen[state.hash] = true
    states[#states + 1] = state
  end
end

--- begin: a list of states to begin with; population, generations: how many -> the last population, the best in the
-- first aim first: a list of { x, first, second }
function nsga2.search(p, begin, population, generations)
  local states, spare, seen = {}, {}, {}
  for _, x in ipairs(begin) do
    local copy = {}
    for i = 1, p.rows * p.columns do copy[i] = x[i] end
    p.repair(p, copy)
    local state = measure(p, { x = copy })
    if not seen[state.hash] then
      seen[state.hash] = true
      states[#states + 1] = state
    end
  end
  states = survive(states, population)
  for _ = 1, generations do
    local parents = { unpack(states) }
    for _ = 1, population / 2 do
      local x, y = table.remove(spare) or { x = {} }, table.remove(spare) or { x = {} }
      p.cross(p, tournament(p, parents).x, tournament(p, parents).x, x.x, y.x)
      keep(p, x, seen, states, spare)
      keep(p, y, seen, states, spare)
    end
    local rest
    states, rest = survive(states, population)
    for _, s in ipairs(rest) do
      seen[s.hash] = nil
      spare[#spare + 1] = s
    end
  end
  table.sort(states, by_first)
  return states
end

return nsga2
