--- What ops and operations between ranks take at least on a machine: the terms of the lower bounds of a search.
--
--     local seconds = rates.op(m, event)                  -- of an op of a record, exactly as a simulation reckons it
--     local seconds = rates.least(m, "all_reduce", members, bytes)
--
-- m: a machine of ganymede.plan.machine. op() is host/plan/machine.c in Lua, and least() is below what
-- host/plan/network.c plans for any group: it counts the bytes of one busy port at the outermost level that the group
-- needs, and the latencies of the rounds or of the hops of a ring. The trap: a bound above what a simulation finds
-- makes a search miss the best; spec/plan/search_bounds_spec.lua compares both.
-- @module ganymede.plan.search.rates
local core = require "ganymede.core"

local rates = {}

--- The place of the last op that makes products in a list of events; 0: there is none.
function rates.last_product(events)
  local last = 0
  for i, e in ipairs(events) do last = e.kind == "op" and e.products > 0 and i or last end
  return last
end

-- ---------------------------------------------------------------- ops

--- Returns the seconds of the host for an op and for an operation between ranks; 0, 0: it does not bind.
function rates.launches(m)
  local host = m.host_launch
  return host and host.op or 0, host and host.between or 0
end

-- The row that names the op and the dtype most exactly.
local function row_of(list, op, dtype)
  local best, most = nil, -1
  for _, row in ipairs(list) do
    local own, typed = row.op == op, row.dtype == dtype
    local fit = (own and 2 or 0) + (typed and 1 or 0)
    if (own or row.op == "*") and (typed or row.dtype == "*") and fit > most then best, most = row, fit end
  end
  return best
end

local function at_size(row, size)
  local points = row.points
  if size <= points[1][1] then return points[1][2] end
  for i = 2, #points do
    local low, high = points[i - 1], points[i]
    if size < high[1] then
      return low[2] + math.log(size / low[1]) / math.log(high[1] / low[1]) * (high[2] - low[2])
    end
  end
  return points[#points][2]
end

local function part(list, op, dtype, amount, size, bytes)
  if not amount or amount <= 0 then return 0 end
  local row = row_of(list, op, dtype)
  if not row then return 0 end
  return amount / at_size(row, size) + row.start + (row.bandwidth and (bytes or 0) / row.bandwidth or 0)
end

--- Returns the seconds of an op of a record; what the machine has no rate for counts nothing here.
function rates.op(m, e)
  local computing = part(m.products, e.name, e.dtype or "", e.products, e.size, e.bytes)
  return m.launch + math.max(computing, part(m.moves, e.name, e.dtype or "", e.bytes, e.bytes))
end

-- The largest rate of a row up to a size.
local function most_up_to(row, size)
  local most = at_size(row, size)
  for _, point in ipairs(row.points) do
    if point[1] <= size then most = math.max(most, point[2]) end
  end
  return most
end

--- Returns the largest FLOP/s that a product of this dtype, with a least dimension of at most `size`, reaches in any
-- op: cut products may be other ops than whole ones.
function rates.most_products(m, dtype, size)
  local most = 0
  for _, row in ipairs(m.products) do
    if row.dtype == "*" or row.dtype == dtype then most = math.max(most, most_up_to(row, size)) end
  end
  return most
end

--- Whether no rate of a machine falls with the size.
function rates.rise(m)
  for _, list in ipairs { m.products, m.moves } do
    for _, row in ipairs(list) do
      for i = 2, #row.points do
        if row.points[i][2] < row.points[i - 1][2] then return false end
      end
    end
  end
  return true
end

--- Returns the seconds that the bytes of an op without products take at least, if pieces of it are moved apart.
function rates.least_moves(m, e)
  local row = row_of(m.moves, e.name, e.dtype or "")
  return row and e.bytes and e.bytes > 0 and e.bytes / most_up_to(row, e.bytes) or 0
end

-- ---------------------------------------------------------------- links

local function unit_of(level, rank) return level.ranks > 0 and math.floor(rank / level.ranks) or 0 end

local function together(level, members)
  for i = 2, #members do
    if unit_of(level, members[i]) ~= unit_of(level, members[1]) then return false end
  end
  return true
end

-- The most members of a group in one unit of a level.
local function most_in_unit(level, members)
  local count, most = {}, 1
  for _, rank in ipairs(members) do
    local unit = unit_of(level, rank)
    count[unit] = (count[unit] or 0) + 1
    most = math.max(most, count[unit])
  end
  return most
end

local known = setmetatable({}, { __mode = "k" }) -- machine -> members -> what group_of returns

-- What a machine says of a group: { level, the outermost one that it needs; its number; k, the most members in a unit
-- inside of it (1: it is the innermost); inside, the least latency of it and the levels inside; costs, by
-- algorithm and operation }. Without level: no level holds them.
local function group_of(m, members)
  local of = known[m] or setmetatable({}, { __mode = "k" })
  known[m] = of
  if of[members] then return of[members] end
  local least, out = math.huge, { costs = {} }
  of[members] = out
  for i, level in ipairs(m.links) do
    least = math.min(least, level.latency)
    if together(level, members) then
      out.level, out.k, out.inside = level, i > 1 and most_in_unit(m.links[i - 1], members) or 1, least
      out.number = i
      break
    end
  end
  return out
end

-- The latency of a ring at least: it leaves each unit inside of its level once. A piece goes around all hops but one,
-- or twice all but two neighbours.
local function around(level, inside, p, k, twice)
  local units = math.ceil(p / k)
  local sum, fast = units * level.latency + (p - units) * inside, p > units and inside or level.latency
  return twice and 2 * sum - level.latency - fast or sum - fast
end

local function doublings(p)
  local rounds = 0
  while 2 ^ rounds < p do rounds = rounds + 1 end
  return rounds
end

-- Of p members, k of which may be in one unit inside, and n bytes: rounds, the part of n that one port carries at
-- least, and the messages of a member in a round (nil: one), which ranks that share cores send one after the other.
local direct = {
  all_reduce = function(p, k, n)
    if core.comm_sums_at_once(p, n) then return 1, p - k, p - 1 end
    return 2, 2 * (p - k) / p, p - 1
  end,
  all_gather = function(p, k) return 1, (p - k) / p, p - 1 end,
  broadcast = function(p, k) return doublings(p), k == 1 and doublings(p) or 1 end, -- the root sends in each round
  reduce = function(p, k) return 2, (p - k) / p, p - 1 end,
}
direct.reduce_scatter = direct.all_gather

local ring = {
  all_reduce = function(p, k) return 2 * (p - 1), 2 * (p - 1) / p / k end,
  all_gather = function(p, k) return p - 1, (p - 1) / p / k end,
  broadcast = function(p, k) return p - 1, 1 / k end,
}
ring.reduce_scatter, ring.reduce = ring.all_gather, ring.broadcast

local tree = {
  all_reduce = function(p) return 2 * doublings(p), 1 end,
  broadcast = function(p) return doublings(p), 1 end,
}
tree.reduce = tree.broadcast

local every = { -- in every algorithm
  gather = function(p) return 1, 1 / p end,
  all_to_all = function(p, k) return 1, (p - k) / p, p - 1 end,
  exchange = function(p) return 2, 0, p - 1 end, -- how many bytes go where, the data decide
  all_to_all_rows = function(p, k) return 1, (p - k) / (p - 1), p - 1 end, -- of what goes to others
  barrier = function(p) return doublings(p), 0, p - 1 end,
}
every.scatter = every.gather

local function forms(algorithm, op)
  if every[op] then return { every[op] } end
  if algorithm == "direct" then return { direct[op] } end
  if algorithm == "ring" then return { ring[op] } end
  return { algorithm == "auto" and ring[op] or tree[op] or ring[op], algorithm == "auto" and tree[op] or nil }
end

local function efficiency(m, op)
  for _, row in ipairs(m.efficiency) do
    if row.op == op then return row.factor end
  end
  return 1
end

--- Whether ranks of a node use more cores than it has.
function rates.shares_cores(m) return m.cores ~= nil and m.ranks_per_node * m.cores_per_rank > m.cores end

--- Returns the least latency of a message between ranks; 0: there are no links.
function rates.least_latency(m)
  local least = math.huge
  for _, level in ipairs(m.links) do least = math.min(least, level.latency) end
  return least < math.huge and least or 0
end

--- Returns a text that is equal for groups of equally many members on which all operations take equally long.
function rates.place(m, members)
  local group = group_of(m, members)
  return group.level and ("%d %d"):format(group.number, group.k) or "-"
end

-- An operation of a group as { seconds, seconds of a byte } of each form that it may have. n: its bytes, which decide
-- how many rounds a direct sum has.
local function costs_of(m, op, members, n)
  local group, out, p = group_of(m, members), {}, #members
  local level, k = group.level, group.k
  for i, form in ipairs(forms(m.algorithm, op)) do
    local rounds, share, messages = form(p, k, n)
    if messages and rates.shares_cores(m) then rounds = rounds * messages end
    if level.kind == "torus" then share = share / (2 * #level.dims) end -- as many links leave a rank
    out[i] = { form == ring[op] and around(level, group.inside, p, k, op == "all_reduce") or rounds * level.latency,
      share / (level.bandwidth * efficiency(m, op)) }
  end
  return out
end

-- The same, made once for each group and operation where bytes decide nothing else.
local function known_costs(m, op, members, n)
  if m.algorithm == "direct" and op == "all_reduce" then return costs_of(m, op, members, n) end
  local costs = group_of(m, members).costs
  local own = costs[m.algorithm] or {}
  costs[m.algorithm] = own
  own[op] = own[op] or costs_of(m, op, members, n)
  return own[op]
end

--- Returns the seconds that an operation of these members (a list of ranks from 0) takes at least, alone. n: its bytes,
-- as host/comm/comm.h counts them. 0 for messages, and for what the machine has no link for.
function rates.least(m, op, members, n)
  if #members < 2 or not group_of(m, members).level then return 0 end
  local best
  for _, cost in ipairs(known_costs(m, op, members, n)) do
    local seconds = cost[1] + cost[2] * n
    best = math.min(best or seconds, seconds)
  end
  return best or 0
end

return rates
