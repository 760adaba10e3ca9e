--- Reads the file of a machine: what its ranks and links can do, as JSON. docs/planning_machines.md has the format.
--
--     local m = machine.read "dgx_a100_80g"        -- a file of lua/ganymede/plan/machines/, or a path
--     local m = machine.check(table, "name")
--
-- What it returns goes to core.simulate as it is: numbers in seconds, bytes and operations per second. A key that the
-- format does not have, a missing one and a value out of range are errors of status 2 that name the place in the file.
-- @module ganymede.plan.machine
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"
local failure = require "ganymede.base.failure"
local files = require "ganymede.base.machine"
local json = require "ganymede.base.json"
local options = require "ganymede.base.options"

local machine = {}

--- The largest deviation of the logarithm of a time: a factor of e^5 and of e^-5 come now and then.
machine.MOST_JITTER = 5

-- Beyond these a number is a mistake: sums of such times would no longer be numbers.
local LEAST, MOST = 1, 1e30 -- of a rate
local LONG = 1e9            -- seconds
local MANY = 2 ^ 31 - 1     -- ranks, cores

local function with(entry, more)
  for key, value in pairs(more or {}) do entry[key] = value end
  return entry
end

local function rate(doc, more) return with({ type = "number", min = LEAST, max = MOST, doc = doc }, more) end
local function seconds(doc, more) return with({ type = "number", min = 0, max = LONG, doc = doc }, more) end
local function count(doc, more) return with({ type = "integer", min = 1, max = MANY, doc = doc }, more) end

machine.schema = {
  version = { type = "integer", one_of = { 1 }, doc = "the version of the format" },
  name = { type = "string", doc = "the name of the machine" },
  description = { type = "string", default = "", doc = "what it is" },
  sources = { type = "table", default = {}, doc = "where each number comes from: a text by key" },
  device = { type = "string", one_of = { "cpu", "gpu" }, doc = "what a rank computes on" },
  ranks_per_node = count "the ranks of a node",
  cores_per_rank = count("the cores of a rank", { optional = true }),
  cores = count("the cores of a node, for ranks that share them; default: each rank has cores of its own",
    { optional = true }),
  wake = { type = "table", optional = true,
    doc = "what it costs a rank that waits to be woken, where ranks share cores" },
  launch = seconds "the seconds that an op takes beside its work",
  begin = seconds "the seconds that a rank takes to start an operation between ranks",
  host_launch = { type = "table", optional = true,
    doc = "what a thread of the host takes to launch what a GPU does; `launch` is then what is left beside it" },
  peak = { type = "table", doc = "the FLOP/s that utilization refers to, by dtype" },
  memory = { type = "number", min = 0, max = 2 ^ 63, default = 0, doc = "the bytes that a rank can use; 0: not known" },
  host_moves = { type = "boolean", default = false,
    doc = "whether the ranks themselves move the bytes, so that nothing overlaps" },
  algorithm = { type = "string", one_of = { "ring", "tree", "direct", "auto" }, doc = "what collectives are made of" },
  products = { type = "table", doc = "the FLOP/s of products by their least dimension: a list of rates" },
  moves = { type = "table", doc = "the bytes per second of ops by their bytes: a list of rates" },
  links = { type = "table", default = {}, doc = "the links, from the inside outwards" },
  efficiency = { type = "table", default = {}, doc = "the part of the bandwidth that an operation reaches, by name" },
  disk = { type = "table", optional = true, doc = "the disk of a node" },
  -- what simulations of long runs need; what a file does not say is not simulated
  host = { type = "table", optional = true, doc = "a rank's own link to the memory of its host, for offload" },
  power = { type = "table", optional = true, doc = "the power of a rank with its share of the node" },
  failures = { type = "table", optional = true, doc = "how often nodes fail, and what a restart takes" },
  jitter = { type = "number", min = 0, max = machine.MOST_JITTER, default = 0,
    doc = "standard deviation of the logarithm of the time of an op, whose mean stays" },
}

machine.host_schema = {
  bandwidth = rate "bytes per second one way",
  latency = seconds("the seconds of a copy", { default = 0 }),
  source = { type = "string", default = "", doc = "where these numbers come from" },
}

machine.host_launch_schema = {
  op = seconds "the seconds of an op",
  between = seconds "the seconds of an operation between ranks",
  recorded = seconds("the seconds of a recorded step, which is launched at once", { default = 0 }),
  source = { type = "string", default = "", doc = "where these numbers come from" },
}

machine.wake_schema = {
  work = seconds "the seconds of a core that falling asleep and waking take",
  after = seconds("the seconds of a wait in which a rank does not sleep yet, and goes on at once", { default = 0 }),
  late = { type = "table", doc = "a list of the seconds until a woken rank runs, by the number of other ranks of its "
    .. "node that compute: first with none, then with one; the last for all more" },
  source = { type = "string", default = "", doc = "where these numbers come from" },
}

machine.power_schema = {
  busy = { type = "number", min = 0, max = LONG, doc = "watts of a rank in an op" },
  idle = { type = "number", min = 0, max = LONG, optional = true,
    doc = "watts of a rank that waits; not said: an energy is an upper bound" },
  source = { type = "string", default = "", doc = "where these numbers come from" },
}

machine.failures_schema = {
  mtbf_of_node = { type = "number", min = 1, max = 1e12, doc = "the mean seconds between two failures of a node" },
  restart = seconds("the seconds from a failure to the first new step", { optional = true }),
  copy = rate("bytes per second at which a rank copies its state before it is written; default: it stops until the "
    .. "disk has it", { optional = true }),
  source = { type = "string", default = "", doc = "where these numbers come from" },
}

machine.rate_schema = {
  op = { type = "string", default = "*", doc = "the op; *: every op without a rate of its own" },
  dtype = { type = "string", default = "*", doc = "the dtype; *: every dtype" },
  start = seconds("the seconds that a call takes beside its products", { default = 0 }),
  bandwidth = rate("the bytes per second that a call moves beside its products; default: they take nothing",
    { optional = true }),
  points = { type = "table", doc = "a list of [size, rate]; between two it is linear in log size" },
}

machine.link_schema = {
  name = { type = "string", doc = "the name of the level" },
  kind = { type = "string", one_of = { "switch", "shared", "torus" }, doc = "how ranks share it" },
  ranks = count("the ranks of a unit; 0: all (the outermost level only)", { min = 0, default = 0 }),
  bandwidth = rate "bytes per second one way: of a port, of the shared medium, of a link of the torus",
  latency = seconds "the seconds of a message; on a torus of each hop",
  ranks_per_port = count("the ranks that share a port of a switch", { default = 1 }),
  leaf = count("the ranks below a leaf switch of a fat tree; 0: no leaves", { min = 0, default = 0 }),
  oversubscription = { type = "number", min = 1, max = MANY, default = 1,
    doc = "bandwidth into a leaf by bandwidth out of it" },
  dims = { type = "table", default = {}, doc = "the sizes of a torus, slowest first" },
}

machine.disk_schema = {
  read = rate("bytes per second of reads", { optional = true }),
  write = rate "bytes per second of writes",
  latency = seconds("the seconds of a request", { default = 0 }),
}

-- Checks one table of the file. Errors name the file and the place in it.
local function checked(where, schema, given)
  if type(given) ~= "table" then failure(2, "%s: a table was expected", where) end
  local ok, result = pcall(options.check, where, schema, given, 0)
  if not ok then failure(2, "%s", failure.text(result)) end
  return result
end

-- Refuses what is no list. JSON's other tables have names.
local function check_list(where, given)
  for key in pairs(given) do
    if type(key) ~= "number" then failure(2, "%s: a list was expected, and it has the name '%s'", where, key) end
  end
end

local function check_name(where, name, known, what)
  if known[name] then return end
  failure(2, "%s: there is no %s '%s'%s", where, what, name, options.hint(name, options.sorted_keys(known)))
end

-- { [name] = true } of ops as records call them (gm_op_called), of dtypes, both with "*", and of what ranks do together
-- (host/plan/network.c).
local function names_of(...)
  local known = { ["*"] = true }
  for _, list in ipairs { ... } do
    for _, entry in ipairs(list) do known[type(entry) == "table" and entry.name or entry] = true end
  end
  return known
end

local is_op, is_dtype = names_of(core.op_list(), core.function_list()), names_of(dtypes.all)
local is_between = {}
for _, name in ipairs { "message", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
  "scatter", "all_to_all", "all_to_all_rows", "exchange", "barrier" } do is_between[name] = true end

local function check_points(where, points)
  check_list(where, points)
  if #points < 1 or #points > 16 then failure(2, "%s: a rate has 1 to 16 points", where) end
  local last = 0
  for i, point in ipairs(points) do
    local size, value = type(point) == "table" and point[1], type(point) == "table" and point[2]
    local good = type(size) == "number" and type(value) == "number" and #point == 2
    if not good or not (size > last and size <= MOST and value >= LEAST and value <= MOST) then
      failure(2, "%s: point %d must be [size, rate], sizes above 0 and ascending, rates from %g to %g", where, i, LEAST,
        MOST)
    end
    last = size
  end
end

local function check_rates(where, list)
  local out = {}
  check_list(where, list)
  for i, given in ipairs(list) do
    local here = ("%s[%d]"):format(where, i)
    out[i] = checked(here, machine.rate_schema, given)
    check_name(here .. ".op", out[i].op, is_op, "op")
    check_name(here .. ".dtype", out[i].dtype, is_dtype, "dtype")
    check_points(here .. ".points", out[i].points)
  end
  if #out == 0 or #out > 64 then failure(2, "%s: a machine has 1 to 64 of these rates", where) end
  return out
end

local function check_torus(where, link)
  local product = 1
  check_list(where .. ".dims", link.dims)
  for _, n in ipairs(link.dims) do
    if type(n) ~= "number" or n ~= math.floor(n) or n < 1 then
      failure(2, "%s.dims: whole numbers, at least 1", where)
    end
    product = product * n
  end
  if (link.kind == "torus") ~= (#link.dims > 0) or #link.dims > 3 then
    failure(2, "%s.dims: a torus has 1 to 3 of them, and nothing else has any", where)
  end
  if link.kind == "torus" and product ~= link.ranks then
    failure(2, "%s: the dims multiply to %d, and ranks is %d", where, product, link.ranks)
  end
end

local function check_links(where, list)
  local out, inner = {}, 1
  check_list(where, list)
  if #list > 4 then failure(2, "%s: a machine has at most 4 levels of links", where) end
  for i, given in ipairs(list) do
    local here = ("%s[%d]"):format(where, i)
    local link = checked(here, machine.link_schema, given)
    if #link.name > 31 then failure(2, "%s.name: at most 31 bytes", here) end
    check_torus(here, link)
    local bound = link.ranks > 0 or i == #list
    if not bound or (link.ranks > 0 and (link.ranks < inner or link.ranks % inner ~= 0)) then
      failure(2, "%s.ranks: each level holds whole units of the level inside it (%d ranks); 0, at the end, all", here,
        inner)
    end
    if link.leaf % link.ranks_per_port ~= 0 then failure(2, "%s.leaf: a leaf has whole ports", here) end
    out[i], inner = link, link.ranks
  end
  return out
end

local function check_numbers(where, list, above, most, known, what)
  for key, value in pairs(list) do
    if type(key) == "string" then check_name(where, key, known, what) end
    if type(key) ~= "string" or type(value) ~= "number" or value <= above or value > most then
      failure(2, "%s.%s: a number above %g%s was expected", where, tostring(key), above,
        most < math.huge and (" and at most %g"):format(most) or "")
    end
  end
end

-- A machine's `wake` with what belongs to it.
local function check_wake(name, out)
  if not out.wake then return end
  if not out.cores then
    failure(2, "%s: wake is of ranks that share the cores of their node; say cores and cores_per_rank, too", name)
  end
  out.wake = checked(name .. ": wake", machine.wake_schema, out.wake)
  local late = out.wake.late
  if #late < 1 or #late > 16 then failure(2, "%s: wake.late: a list of 1 to 16 numbers was expected", name) end
  for i, value in ipairs(late) do
    if type(value) ~= "number" or not (value >= 0 and value <= LONG) then
      failure(2, "%s: wake.late[%d]: seconds were expected, at least 0", name, i)
    end
  end
end

local function efficiency_of(given)
  local out = {}
  for op, factor in pairs(given) do out[#out + 1] = { op = op, factor = factor } end
  table.sort(out, function(a, b) return a.op < b.op end)
  return out
end

--- Checks the table of a machine's file -> a table for core.simulate, with all defaults. name: what messages call it.
function machine.check(given, name)
  local out = checked(name, machine.schema, given)
  out.products = check_rates(name .. ": products", out.products)
  out.moves = check_rates(name .. ": moves", out.moves)
  out.links = check_links(name .. ": links", out.links)
  if out.cores and not out.cores_per_rank then
    failure(2, "%s: cores says what the ranks of a node share; say cores_per_rank, too", name)
  end
  if out.cores and out.host_launch then
    failure(2, "%s: cores is of ranks that compute on a CPU, host_launch of ranks that compute on a GPU; say one", name)
  end
  check_wake(name, out)
  check_numbers(name .. ": peak", out.peak, 0, MOST, is_dtype, "dtype")
  check_numbers(name .. ": efficiency", out.efficiency, 0, 1, is_between, "operation between ranks")
  out.in_order = out.device == "gpu" -- NCCL runs what goes through a communicator on one stream
  out.peaks, out.peak, out.efficiency = out.peak, 0, efficiency_of(out.efficiency)
  for _, key in ipairs { "disk", "host", "host_launch", "power", "failures" } do
    if out[key] then out[key] = checked(name .. ": " .. key, machine[key .. "_schema"], out[key]) end
  end
  return out
end

local folder = GANYMEDE_ROOT .. "/lua/ganymede/plan/machines/"

--- Returns the names of the machines that are shipped, sorted.
function machine.names()
  local out = {}
  for _, file in ipairs(core.list_folder(folder)) do out[#out + 1] = file:match "^(.*)%.json$" end
  table.sort(out)
  return out
end

--- Reads and checks a file. name: a path, or the name of a shipped machine.
function machine.read(name)
  local text = files.read(name) or (not name:find "/" and files.read(folder .. name .. ".json")) or nil
  if not text then
    failure(2, "there is no machine '%s': give the path of a file (`ganymede bench machine` makes one of this "
      .. "machine), or one of %s", name, table.concat(machine.names(), ", "))
  end
  local ok, given = pcall(json.decode, text, name)
  if not ok then failure(2, "%s", failure.text(given)) end
  return machine.check(given, name)
end

--- Returns the FLOP/s of a dtype that utilization refers to, and writes it into m.peak; nil: the file has none.
function machine.peak_of(m, dtype)
  m.peak = m.peaks[dtype] or 0
  return m.peaks[dtype]
end

return machine
