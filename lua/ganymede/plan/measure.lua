--- Measures this machine into the table of a machine's file (ganymede.plan.machine): `ganymede bench machine`.
--
--     local found = measure.machine { disk = "/data" }    -- COLLECTIVE over the ranks of the job
--     local a, b = measure.fit(points)                    -- t = a + n b
--
-- Ops: small transformers of several widths train for some steps, and the records of these say what each op took
-- (core.record_start). The rate of an op at a size is that of the best quarter of its calls near that size. What a
-- step takes beside its ops, divided by their number, is `launch` (of the best quarter of steps). Where a rank has one
-- thread, the times are those of its CPU clock, so that other programs do not count.
-- Links: collectives of 1 KiB to 4 MiB, and a + n b fitted to their times (LogGP's latency and gap per byte, Alexandrov
-- et al. 1995), relative errors weighed equally. The ranks move the bytes themselves (host_moves). They go as messages
-- of runs do: through memory that ranks share, unless GANYMEDE_SHARED_MEMORY says otherwise. Where ranks share cores,
-- ganymede.plan.wakes measures what it costs to wake one, which is then taken off the time of a collective.
-- The trap: the figures are those of so many ranks at once on this machine, as it was.
-- @module ganymede.plan.measure
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local engine_module = require "ganymede.train.engine"
local models = require "ganymede.models"
local machine = require "ganymede.base.machine"
local tensors = require "ganymede.tensor"
local wakes = require "ganymede.plan.wakes"

local measure = {}

-- ---------------------------------------------------------------- statistics

local function median(list)
  table.sort(list)
  local middle = (#list + 1) / 2
  return (list[math.floor(middle)] + list[math.ceil(middle)]) / 2
end

-- The value that a quarter of a list exceeds: rates and times of calls that nothing else has disturbed, as far as one
-- quarter of them was not.
local function upper_quarter(list)
  table.sort(list)
  return list[math.ceil(0.75 * #list)]
end

local function lower_quarter(list)
  table.sort(list)
  return list[math.ceil(0.25 * #list)]
end

--- Fits t = a + n b to points { n, t }, relative errors weighed equally; a and b are at least 0. Returns a, b.
function measure.fit(points)
  local w, wn, wnn, wt, wnt = 0, 0, 0, 0, 0
  for _, p in ipairs(points) do
    local n, t = p[1], p[2]
    local weight = 1 / (t * t)
    w, wn, wnn = w + weight, wn + weight * n, wnn + weight * n * n
    wt, wnt = wt + weight * t, wnt + weight * n * t
  end
  local determinant = w * wnn - wn * wn
  local a, b = (wt * wnn - wnt * wn) / determinant, (w * wnt - wn * wt) / determinant
  if a < 0 then return 0, wnt / wnn end
  if b < 0 then return wt / w, 0 end
  return a, b
end

-- ---------------------------------------------------------------- ops

local shapes = { -- width, heads, tokens of a sequence, sequences
  { 16, 2, 16, 2 }, { 64, 4, 32, 2 }, { 128, 4, 64, 1 }, { 128, 4, 64, 4 }, { 256, 8, 128, 4 }, { 512, 8, 256, 2 },
  { 768, 12, 128, 1 },
}

-- Trains a small GPT for some steps and records the last ones -> { steps = list of events, seconds = of each }.
local function train(shape)
  local width, heads, length, sequences = unpack(shape)
  local steps, path = {}, os.tmpname()
  tensors.scope(function()
    local engine = engine_module.initialize {
      model = models.GPT { vocabulary = 512, sequence_length = length, width = width, depth = 2, heads = heads,
        dropout = 0 },
      optimizer = { type = "AdamW", lr = 1e-4 }, criterion = { type = "CrossEntropyLoss" },
      clip_grad_norm = 1,
    }
    engine:train()
    local x = tensors.zeros({ sequences, length }, { dtype = "i64" })
    for step = 1, 12 do
      if step > 2 then core.record_start(core.device().threads == 1 and "thread" or "wall") end
      tensors.scope(function()
        engine:zero_grad()
        engine:backward(engine:criterion(engine(x), x))
        engine:step()
      end)
      if step > 2 then
        core.record_stop(path)
        steps[#steps + 1] = core.step_read(path).events
      end
    end
  end)
  os.remove(path)
  return steps
end

-- Adds what the ops of a step took, by op, dtype and size, and returns the seconds beside them and their number.
local function add_step(events, calls)
  local beside, count, last = 0, 0, nil
  for i, e in ipairs(events) do
    local following = events[i + 1]
    if e.kind == "op" and following then
      local seconds = following.seconds - e.seconds
      calls[#calls + 1] = { op = e.name, dtype = e.dtype, size = e.size, products = e.products, bytes = e.bytes,
        seconds = seconds }
      if last then beside = beside + math.max(0, e.seconds - last) end
      count, last = count + 1, following.seconds
    elseif e.kind == "begin" or e.kind == "wait" then
      last = nil -- the time of other ranks is not this rank's
    end
  end
  return beside, count
end

local function bucket(v) return math.floor(math.log(v) / math.log(4) + 0.5) end

--- Returns rates by op and dtype: points at the buckets of their size (powers of 4). calls: a list of { op, dtype,
-- seconds, ... }; amount, size: their fields; keep(call), or nil: whether it counts; of(list): what stands for the
-- rates of a bucket (default: that of the best quarter).
function measure.rates(calls, amount, size, keep, of)
  local lists, order = {}, {}
  for _, call in ipairs(calls) do
    if (not keep or keep(call)) and call[amount] > 0 and call[size] > 0 and call.seconds > 0 then
      local key = call.op .. " " .. (call.dtype or "*")
      local list = lists[key] or { op = call.op, dtype = call.dtype or "*", at = {} }
      if not lists[key] then lists[key], order[#order + 1] = list, key end
      local at = bucket(call[size])
      local found = list.at[at] or { sizes = {}, values = {} }
      list.at[at] = found
      found.sizes[#found.sizes + 1], found.values[#found.values + 1] = call[size], call[amount] / call.seconds
    end
  end
  table.sort(order)
  local out = {}
  for i, key in ipairs(order) do
    local list, points = lists[key], {}
    for _, found in pairs(list.at) do
      points[#points + 1] = { median(found.sizes), (of or upper_quarter)(found.values) }
    end
    table.sort(points, function(a, b) return a[1] < b[1] end)
    out[i] = { op = list.op, dtype = list.dtype, points = points }
  end
  return out
end

-- Rates for ops that were not measured: at each size, the median of the calls of all ops near it.
local function any_rate(calls, amount, size, keep)
  local all = {}
  for _, call in ipairs(calls) do
    if keep(call) then
      all[#all + 1] = { op = "*", [amount] = call[amount], [size] = call[size], seconds = call.seconds }
    end
  end
  return measure.rates(all, amount, size, nil, median)[1]
end

--- Adds to each rate the points of `any` beyond the sizes at which its op was measured. An op that moved some bytes
-- only has shown what a call costs, and nothing of what it reaches with a million of them.
function measure.extend(rates, any)
  for _, rate in ipairs(rates) do
    local points, largest = rate.points, rate.points[#rate.points]
    for _, point in ipairs(any.points) do
      if point[1] > 2 * largest[1] and point[2] > largest[2] then points[#points + 1] = { point[1], point[2] } end
    end
  end
end

local function makes_products(call) return call.products > 0 end
local function only_moves(call) return call.products == 0 end

local function measure_ops()
  local calls, launches = {}, {}
  for _, shape in ipairs(shapes) do
    for _, events in ipairs(train(shape)) do
      local beside, count = add_step(events, calls)
      launches[#launches + 1] = beside / count
    end
  end
  local products = measure.rates(calls, "products", "size", makes_products)
  local moves = measure.rates(calls, "bytes", "bytes", only_moves)
  products[#products + 1] = any_rate(calls, "products", "size", makes_products)
  local any = any_rate(calls, "bytes", "bytes", only_moves)
  measure.extend(moves, any)
  moves[#moves + 1] = any
  -- Where an op makes products, its bytes are in its rate: they shall not count twice.
  for _, rate in ipairs(products) do
    if rate.op ~= "*" then moves[#moves + 1] = { op = rate.op, dtype = rate.dtype, points = { { 1, 1e15 } } } end
  end
  local peak = 0
  for _, rate in ipairs(products) do
    for _, point in ipairs(rate.points) do peak = math.max(peak, point[2]) end
  end
  return { products = products, moves = moves, launch = lower_quarter(launches), peak = peak }
end

-- ---------------------------------------------------------------- links

local operations = { -- in one order on all ranks
  { "all_gather", function(_, block) comm.all_gather(block) end },
  { "all_reduce", function(whole) comm.all_reduce(whole) end },
  { "broadcast", function(whole) comm.broadcast(whole, nil, 0) end },
  { "reduce_scatter", function(whole) comm.reduce_scatter(whole) end },
}

local rounds = 12 -- the first warms up

-- Seconds of a call, on average over some calls in a row.
local function time(call, bytes)
  local n = bytes / 4
  local whole, block = tensors.zeros { n }, tensors.zeros { n / core.world() }
  local times = math.max(3, math.min(50, 2 ^ 21 / bytes))
  for _ = 1, 2 do tensors.scope(function() call(whole, block) end) end
  comm.barrier()
  local began = core.now()
  for _ = 1, times do tensors.scope(function() call(whole, block) end) end
  return (core.now() - began) / times
end

-- Returns by operation the list of { bytes, seconds }. A round measures every operation at every size, so that a bad
-- moment of the machine spoils one time of many of them, and not all times of one.
local function time_links()
  local lists, out, world = {}, {}, core.world()
  for round = 0, rounds do
    for _, operation in ipairs(operations) do
      for power = 10, 22, 2 do
        local key = operation[1] .. power
        lists[key] = lists[key] or {}
        local bytes = math.ceil(2 ^ power / (4 * world)) * 4 * world
        lists[key].bytes, lists[key][round] = bytes, tensors.scope(time, operation[2], bytes)
      end
    end
  end
  for _, operation in ipairs(operations) do
    local points = {}
    for power = 10, 22, 2 do
      local list = lists[operation[1] .. power]
      points[#points + 1] = { list.bytes, lower_quarter(list) }
    end
    out[operation[1]] = points
  end
  return out
end

-- The cores that all ranks share, if they have fewer than they use; nil: each rank has cores of its own.
local function shared_cores()
  local n, first = machine.cores()
  if not n then return nil end
  local world = core.world()
  local all = comm.all_gather(tensors.tensor({ { first, n } }, { dtype = "f64" })):totable()
  for _, given in ipairs(all) do
    if given[1] ~= first or given[2] ~= n then return nil end
  end
  return n < world * (core.device().threads or 1) and n or nil
end

-- Of world ranks, direct algorithms: rounds, the bytes on a port by byte of n, and the messages of a rank in a round.
local function shares(op, world)
  local rest = (world - 1) / world
  if op == "all_reduce" then return 2, 2 * rest, world - 1 end
  local doublings = math.ceil(math.log(world) / math.log(2))
  if op == "broadcast" then return doublings, doublings, 1 end
  return 1, rest, world - 1
end

-- part: of a core that a rank has. Where it is below 1, latency and bandwidth are those of work on a core, and the
-- latency is that of one message, without waking anybody (wake). message: what it takes at least.
local function measure_links(part, wake, message)
  local world, fits, names = core.world(), {}, {}
  if world == 1 then return nil, {} end
  local times = time_links()
  for _, operation in ipairs(operations) do
    local name = operation[1]
    local rounds_of, share, messages = shares(name, world)
    local a, b = measure.fit(times[name])
    if part < 1 then
      a = wakes.of_messages(a, { ranks = world, cores = part * world, messages = messages, wake = wake,
        message = message * rounds_of })
      b = b * part
    end
    fits[name], names[#names + 1] = { latency = a / rounds_of, bandwidth = share / math.max(b, 1e-15) }, name
  end
  local latency, bandwidth, efficiency = {}, 0, {}
  for i, name in ipairs(names) do
    latency[i] = fits[name].latency
    bandwidth = math.max(bandwidth, fits[name].bandwidth)
  end
  for _, name in ipairs(names) do efficiency[name] = fits[name].bandwidth / bandwidth end
  return { name = "memory", kind = "switch", ranks = 0, bandwidth = bandwidth, latency = median(latency) }, efficiency
end

-- ---------------------------------------------------------------- the whole

--- Measures. given: name, disk (a folder, or nil) -> the table of a file.
function measure.machine(given)
  local world = core.world()
  local threads, cores = core.device().threads or 1, shared_cores()
  local part = cores and cores / (world * threads) or 1
  local ops = measure_ops()
  local wake, message
  if cores then wake, message = wakes.measure(part * world) end
  local link, efficiency = measure_links(part, wake, message)
  local memory = machine.memory()
  memory = memory.limit or memory.total
  local write = given.disk and machine.write_speed(given.disk, 2 ^ 26) or nil
  return {
    version = 1, name = given.name, device = "cpu", ranks_per_node = world, cores_per_rank = threads,
    cores = cores, wake = wake,
    description = ("measured by `ganymede bench machine`: %s, %d rank%s of %d thread%s"):format(
      core.device().description or "a CPU", world, world == 1 and "" or "s", threads, threads == 1 and "" or "s"),
    sources = { all = "ganymede bench machine" },
    launch = ops.launch, begin = 0, peak = { f32 = ops.peak * part }, memory = memory and memory / world or nil,
    host_moves = true, algorithm = "direct", products = ops.products, moves = ops.moves,
    links = link and { link } or nil, efficiency = next(efficiency) and efficiency or nil,
    disk = write and { write = write } or nil,
  }
end

return measure
