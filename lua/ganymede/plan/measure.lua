--- Measures this machine into the table of a machine's file (ganymede.plan.machine): `ganymede bench machine`.
--
--     local found = measure.machine { disk = "/data" }    -- COLLECTIVE over the ranks of the job
--
-- Ops: small transformers of several widths train for some steps, and the records of these say what each op took
-- (core.record_start), to which ganymede.plan.fits fits rates. Between two ops Lua runs. In the model where this takes
-- least, the smallest, its mean is `launch`. Behind a larger op it takes longer, because the op has put other things
-- into the caches. So what is more than `launch` counts as the time of the op before. Where a rank has one thread, the
-- times are those of its CPU clock, so that other programs do not count.
-- Links: collectives of 1 KiB to 4 MiB, and a + n b fitted to their times (LogGP's latency and gap per byte, Alexandrov
-- et al. 1995), relative errors weighed equally. The ranks move the bytes themselves (host_moves). They go as messages
-- of runs do: through memory that ranks share, unless GANYMEDE_SHARED_MEMORY says otherwise. Where ranks share cores,
-- ganymede.plan.wakes measures what it costs to wake one, which is then taken off the time of a collective.
-- The trap: the figures are those of so many ranks at once on this machine, as it was.
-- @module ganymede.plan.measure
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local engine_module = require "ganymede.train.engine"
local failure = require "ganymede.base.failure"
local fits = require "ganymede.plan.fits"
local gradient_handlers = require "ganymede.train.gradient_handlers"
local models = require "ganymede.models"
local machine = require "ganymede.base.machine"
local tensors = require "ganymede.tensor"
local wakes = require "ganymede.plan.wakes"

local measure = {}

-- ---------------------------------------------------------------- ops

-- Of measure.train.
local shapes = {
  { "GPT", 16, 2, 16, 2, 150 }, { "GPT", 64, 4, 32, 2, 80 }, { "GPT", 128, 4, 64, 1, 40 }, { "GPT", 128, 4, 64, 4, 20 },
  { "GPT", 256, 8, 128, 4, 3 }, { "GPT", 512, 8, 256, 2, 2 }, { "GPT", 768, 12, 128, 1, 2 },
  { "VisionTransformer", 128, 8, 24, 2, 40 }, { "VisionTransformer", 128, 8, 32, 16, 3 },
  -- few rows, of pieces of a batch and of a sequence, and few heads, of which pieces of a ring consist
  { "GPT", 128, 8, 32, 1, 40 }, { "GPT", 256, 4, 16, 1, 20 }, { "VisionTransformer", 32, 2, 24, 1, 80 },
}
local recorded = 10 -- steps of a round

-- What a shape trains -> the model, the input, the targets.
local make = {
  GPT = function(width, heads, length, samples)
    local x = tensors.zeros({ samples, length }, { dtype = "i64" })
    return models.GPT { vocabulary = 512, sequence_length = length, width = width, depth = 2, heads = heads,
      dropout = 0 }, x, x
  end,
  VisionTransformer = function(width, heads, side, samples)
    return models.VisionTransformer { image_size = side, patch_size = 4, channels = 3, classes = 10, width = width,
      depth = 2, heads = heads }, tensors.zeros { samples, 3, side, side },
      tensors.zeros({ samples }, { dtype = "i64" })
  end,
}

-- All ranks train on the same numbers, so each has the gradient already: no sum over a slow network is waited for.
local no_sums = { handle_gradient = function(_, engine) gradient_handlers.summed(engine.parameters) end }

--- Trains a small transformer for some steps and records the last ones -> a list of the events of each. In the first
-- steps Lua is still compiled, which small ops feel most. shape: { model, width, heads, tokens of a sequence or points
-- of an image's side, samples, steps before those that are recorded }. Collective, but ranks exchange some numbers of a
-- step only.
function measure.train(shape)
  local kind, width, heads, length, samples, before = unpack(shape)
  local steps, path = {}, os.tmpname()
  tensors.scope(function()
    local model, x, y = make[kind](width, heads, length, samples)
    local engine = engine_module.initialize { model = model, optimizer = { type = "AdamW", lr = 1e-4 },
      criterion = { type = "CrossEntropyLoss" }, clip_grad_norm = 1, gradient_handlers = { no_sums } }
    engine:train()
    for step = 1, before + recorded do
      if step > before then core.record_start(core.device().threads == 1 and "thread" or "wall") end
      tensors.scope(function()
        engine:zero_grad()
        engine:backward(engine:criterion(engine(x), y))
        engine:step()
      end)
      if step > before then
        core.record_stop(path)
        steps[#steps + 1] = core.step_read(path).events
      end
    end
  end)
  os.remove(path)
  return steps
end

-- Adds what the ops of a step took, by op, dtype and size, each with the seconds behind it until the next op (gap; nil
-- where another rank's time may be in them). Returns the mean of these.
local function add_step(events, calls)
  local sum, count, last = 0, 0, nil
  for i, e in ipairs(events) do
    local following = events[i + 1]
    if e.kind == "op" and following then
      if last then
        last.gap = math.max(0, e.seconds - last.ended)
        sum, count = sum + last.gap, count + 1
      end
      last = { op = e.name, dtype = e.dtype, size = e.size, products = e.products, bytes = e.bytes,
        seconds = following.seconds - e.seconds, ended = following.seconds }
      calls[#calls + 1] = last
    elseif e.kind == "begin" or e.kind == "wait" then
      last = nil
    end
  end
  return sum / count
end

-- What of the time behind an op is more than `launch` counts as the op's.
local function add_gaps(calls, launch)
  for _, call in ipairs(calls) do
    if call.gap then call.seconds = math.max(call.seconds + call.gap - launch, call.seconds / 2) end
  end
end

local function makes_products(call) return call.products > 0 end
local function only_moves(call) return call.products == 0 end

-- How many rounds take about so many seconds, the same on all ranks. first: seconds of one on this rank.
local function rounds_within(seconds, first, least, most)
  local longest = comm.all_reduce(tensors.tensor({ first }, { dtype = "f64" }), nil, "max"):item()
  return math.max(least, math.min(most, math.floor(seconds / longest)))
end

-- Trains all shapes, and does so in up to three rounds, so that a bad moment of the machine spoils a third of each.
-- Returns the calls of all ops, and `launch`.
local function time_ops()
  local calls, means, launch = {}, {}, math.huge
  local round, last, began = 1, 1, core.now()
  while round <= last do
    for i, shape in ipairs(shapes) do
      local list = means[i] or {}
      for _, events in ipairs(measure.train(shape)) do list[#list + 1] = add_step(events, calls) end
      means[i] = list
    end
    if round == 1 then last = tensors.scope(rounds_within, 20, core.now() - began, 1, 3) end
    round = round + 1
  end
  for _, list in ipairs(means) do launch = math.min(launch, fits.lower_quarter(list)) end
  return calls, launch
end

local function measure_ops()
  local calls, launch = time_ops()
  local peak = fits.largest(calls)
  add_gaps(calls, launch)
  local products = fits.products(calls)
  local moves = fits.rates(calls, "bytes", "bytes", only_moves)
  products[#products + 1] = fits.any(calls, "products", "size", makes_products)
  local any = fits.any(calls, "bytes", "bytes", only_moves)
  fits.extend(moves, any)
  moves[#moves + 1] = any
  -- Where an op makes products, its bytes are in its rate: they shall not count twice.
  for _, rate in ipairs(products) do
    if rate.op ~= "*" then moves[#moves + 1] = { op = rate.op, dtype = rate.dtype, points = { { 1, 1e15 } } } end
  end
  return { products = products, moves = moves, launch = launch, peak = peak }
end

-- ---------------------------------------------------------------- links

local operations = { -- in one order on all ranks
  { "all_gather", function(_, block) comm.all_gather(block) end },
  { "all_reduce", function(whole) comm.all_reduce(whole) end },
  { "broadcast", function(whole) comm.broadcast(whole, nil, 0) end },
  { "reduce_scatter", function(whole) comm.reduce_scatter(whole) end },
}

-- Seconds of a call, on average over some calls in a row. They end when all ranks are done: the root of a broadcast
-- only hands its bytes to the system, which a slow network takes long to empty.
local function time(call, bytes)
  local n = bytes / 4
  local whole, block = tensors.zeros { n }, tensors.zeros { n / core.world() }
  local times = math.max(3, math.min(50, 2 ^ 21 / bytes))
  for _ = 1, 2 do tensors.scope(function() call(whole, block) end) end
  comm.barrier()
  local began = core.now()
  for _ = 1, times do tensors.scope(function() call(whole, block) end) end
  comm.barrier()
  return (core.now() - began) / times
end

-- Returns by operation the list of { bytes, seconds }. A first round warms up. On a slow network there are fewer of the
-- others, so that all of them take about half a minute. A round measures every operation at every size, so that a bad
-- moment of the machine spoils one time of many of them, and not all times of one.
local function time_links()
  local lists, out, world = {}, {}, core.world()
  local round, last, began = 0, 0, core.now()
  while round <= last do
    for _, operation in ipairs(operations) do
      for power = 10, 22, 2 do
        local key = operation[1] .. power
        lists[key] = lists[key] or {}
        local bytes = math.ceil(2 ^ power / (4 * world)) * 4 * world
        lists[key].bytes, lists[key][round] = bytes, tensors.scope(time, operation[2], bytes)
      end
    end
    if round == 0 then last = tensors.scope(rounds_within, 30, core.now() - began, 3, 12) end
    round = round + 1
  end
  for _, operation in ipairs(operations) do
    local points = {}
    for power = 10, 22, 2 do
      local list = lists[operation[1] .. power]
      local at_once = operation[1] == "all_reduce" and core.comm_sums_at_once(world, list.bytes)
      if not at_once then points[#points + 1] = { list.bytes, fits.lower_quarter(list) } end -- of two rounds alone
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
  local world, found, names = core.world(), {}, {}
  if world == 1 then return nil, {} end
  local times = time_links()
  for _, operation in ipairs(operations) do
    local name = operation[1]
    local rounds_of, share, messages = shares(name, world)
    local a, b = fits.line(times[name])
    if part < 1 then
      a = wakes.of_messages(a, { ranks = world, cores = part * world, messages = messages, wake = wake,
        message = message * rounds_of })
      b = b * part
    end
    found[name], names[#names + 1] = { latency = a / rounds_of, bandwidth = share / math.max(b, 1e-15) }, name
  end
  local latency, bandwidth, efficiency = {}, 0, {}
  for i, name in ipairs(names) do
    latency[i] = found[name].latency
    bandwidth = math.max(bandwidth, found[name].bandwidth)
  end
  for _, name in ipairs(names) do efficiency[name] = found[name].bandwidth / bandwidth end
  return { name = "memory", kind = "switch", ranks = 0, bandwidth = bandwidth, latency = fits.median(latency) },
    efficiency
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
  local write, why = nil, nil
  if given.disk then write, why = machine.write_speed(given.disk, 2 ^ 26) end
  if why then failure(1, "the disk of %s could not be measured: %s", given.disk, why) end
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
