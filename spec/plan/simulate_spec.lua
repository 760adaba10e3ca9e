-- Replays of steps written by hand, against sums that can be done on paper. Times are sums of a few terms in f64, so
-- 1e-9 of them holds with room.
local core = require "ganymede.core"
local pipeline = require "ganymede.schedules.pipeline"
local simulate_schedule = require "ganymede.schedules.simulate"
local support = require "spec.plan.support"

local function near(wanted, got)
  assert(math.abs(wanted - got) <= 1e-9 * math.max(1, math.abs(wanted)), ("%.17g, not %.17g"):format(got, wanted))
end

local function switch(bandwidth, latency, more)
  local level = { name = "net", kind = "switch", bandwidth = bandwidth, latency = latency }
  for key, value in pairs(more or {}) do level[key] = value end
  return level
end

local function one(op, bytes, p, m, root)
  local path = support.step(0, { { "data", p } }, { { "begin", op, "data", bytes, root }, { "wait", 1 } })
  return support.simulate(m, { path }, p).seconds
end

describe("a simulated step", function()
  it("of one rank takes the sum of its ops", function()
    local m = support.machine({}, { launch = 0.25, moves = { { points = { { 1, 2 }, { 100, 8 } } } } })
    local path = support.step(0, {}, { { "op", 1 }, { "alloc", 7 }, { "op", 10 }, { "op", 1000 }, { "free", 7 } })
    -- 10 lies in the middle between 1 and 100 in log size: half way from 2 to 8
    local found = support.simulate(m, { path }, 1)
    near(3 * 0.25 + 1 / 2 + 10 / 5 + 1000 / 8, found.seconds)
    near(found.seconds, found.ranks[1].busy)
  end)

  it("takes the rate of the op and the dtype, and the larger of computing and moving", function()
    local m = support.machine({}, { moves = { { points = { { 1, 1 } } }, { op = "add", points = { { 1, 4 } } },
      { dtype = "f32", points = { { 1, 2 } } }, { op = "add", dtype = "f64", points = { { 1, 16 } } } } })
    near(8 / 4, support.simulate(m, { support.step(0, {}, { { "op", 8 } }) }, 1).seconds)
  end)

  it("takes what a product takes beside its rate, and no more of other ops", function()
    local m = support.machine({}, { moves = { { points = { { 1, 1000 } } } },
      products = { { start = 0.5, bandwidth = 4, points = { { 16, 10 }, { 256, 30 } } } } })
    -- 64 lies in the middle between 16 and 256 in log size
    near(0.5 + 8 / 4 + 100 / 20, support.simulate(m, { support.step(0, {}, { { "op", 8, 100, 64 } }) }, 1).seconds)
    near(8 / 1000, support.simulate(m, { support.step(0, {}, { { "op", 8 } }) }, 1).seconds)
    m = support.machine({}, { products = { { points = { { 1, 50 } } } }, moves = { { points = { { 1, 1000 } } } } })
    near(100 / 50, support.simulate(m, { support.step(0, {}, { { "op", 8, 100, 64 } }) }, 1).seconds)
  end)

  for _, p in ipairs { 2, 3, 8 } do
    it(("of a ring of %d takes its latencies and bytes"):format(p), function()
      local n, b, l = 1200, 50, 0.125
      local m = support.machine { switch(b, l) }
      near(2 * (p - 1) / p * n / b + 2 * (p - 1) * l, one("all_reduce", n, p, m))
      near((p - 1) / p * n / b + (p - 1) * l, one("all_gather", n, p, m))
      near((p - 1) / p * n / b + (p - 1) * l, one("reduce_scatter", n, p, m))
      near((p - 1) / p * n / b + l, one("all_to_all", n, p, m))
      near(n / b + l, one("all_to_all_rows", n, p, m)) -- n: what goes to others
      near(n / b + (p - 1) * l, one("broadcast", n, p, m, 1))
    end)
  end

  it("of a tree, and of direct messages, takes theirs", function()
    local n, b, l = 800, 50, 0.125
    -- an inner member of the tree sends to its parent and two children: 3 n through one port, up and down together
    near(2 * 3 * l + 3 * n / b, one("all_reduce", n, 8, support.machine({ switch(b, l) }, { algorithm = "tree" })))
    local direct = support.machine({ switch(b, l) }, { algorithm = "direct" })
    near(2 * 7 / 8 * 100 * n / b + 2 * l, one("all_reduce", 100 * n, 8, direct))
    near(7 * n / b + l, one("all_reduce", n, 8, direct)) -- so few bytes go to all others at once
    near(3 * l + 3 * n / b, one("broadcast", n, 8, direct, 0))
  end)

  it("chooses the algorithm that takes less time", function()
    local m = support.machine({ switch(50, 0.125) }, { algorithm = "auto" })
    near(2 * 3 * 0.125 + 3 * 1 / 50, one("all_reduce", 1, 8, m))
    near(2 * 7 / 8 * 8000 / 50 + 14 * 0.125, one("all_reduce", 8000, 8, m))
  end)

  it("has a ring for each place of a node, each with a port of its own to other nodes", function()
    local n = 800
    local function links(ports) return { switch(1e6, 0, { ranks = 4 }), switch(1, 0, { ranks_per_port = ports }) } end
    -- 2 nodes of 4: each ring carries a quarter, and leaves each node once
    near(2 * 7 / 8 * n / 4, one("all_reduce", n, 8, support.machine(links(1))))
    near(2 * 7 / 8 * n, one("all_reduce", n, 8, support.machine(links(4))))
  end)

  it("pays in a ring each hop that a piece of the bytes takes, inside nodes and between them", function()
    local function links(of) return { switch(1, 1, { ranks = of }), switch(1, 100, { ranks_per_port = 1 }) } end
    local function ring(op, p, of) return one(op, 0, p, support.machine(links(of))) end
    -- all but one hop, of those inside a node
    near(2 * 100 + 6 - 1, ring("all_gather", 8, 4))
    near(2 * 100 + 6 - 1, ring("reduce_scatter", 8, 4))
    near(3 * 100, ring("all_gather", 4, 1))
    -- twice around, all but two hops that follow each other: both inside, one of each, none inside
    near(2 * (2 * 100 + 6) - 2, ring("all_reduce", 8, 4))
    near(2 * (4 * 100 + 4) - 101, ring("all_reduce", 8, 2))
    near(6 * 100, ring("all_reduce", 4, 1))
    near(2 * 7, ring("all_reduce", 8, 8))
  end)

  it("narrows at an oversubscribed leaf, and walks the shorter way on a torus", function()
    local axes = { { "data", 2 }, { "row", 4 } }
    local path = support.step(0, axes, { { "begin", "all_reduce", "data", 80 }, { "wait", 1 } })
    local fat = support.machine { switch(10, 0, { leaf = 4, oversubscription = 2 }) }
    -- 4 pairs, each between both leaves: 4 x 80 bytes through 4 ports of 10 / 2
    near(80 / 5, support.simulate(fat, { path }, 8).seconds)
    local torus = support.machine { { name = "torus", kind = "torus", ranks = 8, dims = { 8 }, bandwidth = 10,
      latency = 0.5 } }
    local message = support.step(0, { { "data", 8 } }, { { "begin", "send", "data", 20, 6 } })
    local arrives = support.step(6, { { "data", 8 } }, { { "begin", "receive", "data", 20, 0 }, { "wait", 1 } })
    local idle = support.step(1, { { "data", 8 } }, {})
    near(2 * 0.5 + 20 / 10, core.simulate(torus, { message, arrives, idle }, { 1, 3, 3, 3, 3, 3, 2, 3 }).seconds)
  end)

  it("shares a link among the transfers that use it at the same time", function()
    local m = support.machine { { name = "bus", kind = "shared", bandwidth = 10, latency = 0 } }
    local axes = { { "data", 2 }, { "row", 2 } }
    -- both sums of 2 ranks move 2 x 2 x 1/2 n = 2 n over the bus; the second begins 3 s later
    local early = support.step(0, axes, { { "begin", "all_reduce", "row", 40 }, { "wait", 1 } })
    local late = support.step(2, axes, { { "op", 3 }, { "begin", "all_reduce", "row", 40 }, { "wait", 1 } })
    local found = core.simulate(m, { early, late }, { 1, 1, 2, 2 })
    -- alone 8 s each. First: 3 s alone, then 5 s of work at half pace: 13 s. Second: 5 s of work by then, 3 s alone
    near(13, found.ranks[1].seconds)
    near(16, found.ranks[3].seconds)
    near(13, found.ranks[1].exposed.row)
    near(3, found.ranks[3].busy)
  end)
end)

describe("overlap", function()
  local axes = { { "data", 2 } }
  -- compute 2, begin (8 s), compute 5, wait, compute 1
  local events = { { "op", 2 }, { "begin", "all_reduce", "data", 80 }, { "op", 5 }, { "wait", 1 }, { "op", 1 } }

  it("hides a transfer behind the ops between its begin and its wait", function()
    local found = support.simulate(support.machine { switch(10, 0) }, { support.step(0, axes, events) }, 2)
    near(2 + 8 + 1, found.seconds)
    near(3, found.ranks[1].exposed.data)
    near(8, found.ranks[1].busy)
  end)

  it("waits for the last member, and costs each what beginning costs", function()
    local m = support.machine({ switch(10, 0) }, { begin = 0.5 })
    local slow = support.step(1, axes, { { "op", 6 }, { "begin", "all_reduce", "data", 80 }, { "wait", 1 } })
    local found = support.simulate(m, { support.step(0, axes, events), slow }, 2)
    near(6 + 8 + 1, found.ranks[1].seconds)
    near(6 + 8 - 7.5, found.ranks[1].exposed.data)
    near(6 + 8, found.ranks[2].seconds)
  end)

  it("of operations of one group does not happen on GPUs: each starts when the one before it is over", function()
    local two = { { "begin", "all_reduce", "data", 80 }, { "begin", "all_reduce", "data", 40 }, { "op", 3 },
      { "wait", 2 }, { "wait", 1 }, { "begin", "all_reduce", "data", 20 }, { "wait", 3 } }
    local path = support.step(0, axes, two)
    local function on(device) return support.machine({ switch(10, 0.5) }, { device = device }) end
    -- a ring of 2 takes 1 s of latency, and then n / 10 s
    near((1 + 8) + (1 + 4) + (1 + 2), support.simulate(on "gpu", { path }, 2).seconds)
    -- on a CPU both move from 1 s on at half the rate: the second is over at 9, the first at 13
    near(13 + 3, support.simulate(on "cpu", { path }, 2).seconds)
    near(13 - 3 + 3, support.simulate(on "cpu", { path }, 2).ranks[1].exposed.data)
  end)

  it("of messages one way does not happen on GPUs, and that of other ways and groups does", function()
    local m = support.machine({ switch(10, 0.5) })
    local function messages(rank, first, second)
      local other = 1 - rank
      return support.step(rank, axes, { { "begin", first, "data", 40, other }, { "begin", first, "data", 20, other },
        { "begin", second, "data", 40, other }, { "op", 1 }, { "wait", rank == 0 and 3 or 1 },
        { "wait", rank == 0 and 3 or 2 } })
    end
    local found = support.simulate(m, { messages(0, "send", "receive"), messages(1, "receive", "send") }, 2)
    near(0.5 + 4, found.ranks[1].seconds)
    near((0.5 + 4) + (0.5 + 2), found.ranks[2].seconds)
    local groups = { { "data", 2 }, { "tensor", 2 } }
    local both = { { "begin", "all_reduce", "data", 40 }, { "begin", "all_reduce", "tensor", 40 }, { "wait", 1 },
      { "wait", 2 } }
    near(1 + 2 * 4, support.simulate(m, { support.step(0, groups, both) }, 4).seconds)
  end)

  it("does not happen where the ranks move the bytes", function()
    local m = support.machine({ switch(10, 0) }, { host_moves = true })
    local found = support.simulate(m, { support.step(0, axes, events) }, 2)
    near(2 + 5 + 8 + 1, found.seconds)
    near(8, found.ranks[1].exposed.data)
  end)
end)

-- ---------------------------------------------------------------- ranks that share cores

describe("ranks that share the cores of their node", function()
  local axes = { { "data", 4 } }
  local function crowded(fields)
    fields.cores_per_rank, fields.ranks_per_node = fields.cores_per_rank or 1, fields.ranks_per_node or 4
    return support.machine({ switch(10, 0) }, fields)
  end
  local function steps(...)
    local list = {}
    for i, seconds in ipairs { ... } do list[i] = support.step(i - 1, axes, { { "op", seconds } }) end
    return list
  end

  it("compute at their share of the cores, and faster when others have ended", function()
    -- 4 ranks on 2 cores: at 1/2 until the shortest op ends at 2; 3 ranks at 2/3 until 5; then a core for each
    local found = support.simulate(crowded { cores = 2 }, steps(1, 3, 5, 6), 4)
    near(2, found.ranks[1].seconds)
    near(5, found.ranks[2].seconds)
    near(7, found.ranks[3].seconds)
    near(8, found.ranks[4].seconds)
    near(8, found.ranks[4].busy)
  end)

  it("have the cores of their own node alone, and count the cores of a rank", function()
    local found = support.simulate(crowded { cores = 1, ranks_per_node = 2 }, steps(2, 2, 1, 5), 4)
    near(4, found.ranks[2].seconds)
    near(2, found.ranks[3].seconds)
    near(6, found.ranks[4].seconds)
    near(12, support.simulate(crowded { cores = 4, cores_per_rank = 2 }, steps(6, 6, 6, 6), 4).seconds)
  end)

  it("are as before where each has cores of its own", function()
    local found = support.simulate(crowded { cores = 4 }, steps(1, 3, 5, 6), 4)
    near(6, found.seconds)
    near(3, found.ranks[2].seconds)
  end)

  it("leave their cores while they wait, and take them to move bytes", function()
    local m = support.machine({ switch(10, 0.5) }, { cores = 1, cores_per_rank = 1, ranks_per_node = 4,
      host_moves = true, algorithm = "direct" })
    local function step(rank, seconds)
      return support.step(rank, axes, { { "op", seconds }, { "begin", "all_gather", "data", 40 }, { "wait", 1 } })
    end
    -- ops: 1 + 1 + 1 + 2 on one core; then 4 ranks move, each 3 messages of 0.5 s and 3/4 of 40 bytes at 10 a second
    local found = support.simulate(m, { step(0, 1), step(1, 1), step(2, 1), step(3, 2) }, 4)
    near(5 + 4 * (1.5 + 3), found.seconds)
    near(found.seconds - 4, found.ranks[1].exposed.data)
  end)

  it("need to be told of how many cores a rank uses", function()
    assert.has_error(function() support.machine({}, { cores = 2 }) end,
      "by hand: cores says what the ranks of a node share; say cores_per_rank, too")
  end)
end)

-- ---------------------------------------------------------------- pipelines

local costs = { forward = 1, backward = 2, backward_input = 1, backward_weight = 1 }

-- The step of a stage: the actions of a schedule, each with its cost; messages take no time.
local function stage(schedule, rank)
  local events, ids, begun = {}, 0, {}
  for _, a in ipairs(schedule.actions[rank + 1]) do
    local kind, peer = a[1], a[5]
    if kind == "send" or kind == "receive" then
      ids = ids + 1
      events[#events + 1] = { "begin", kind, "pipeline", 0, peer }
      if kind == "receive" then begun[#begun + 1] = ids end
    else
      for _, id in ipairs(begun) do events[#events + 1] = { "wait", id } end
      begun = {}
      events[#events + 1] = { "op", costs[kind] }
    end
  end
  return support.step(rank, { { "pipeline", schedule.stages } }, events)
end

local function replayed(schedule)
  local steps = {}
  for rank = 0, schedule.stages - 1 do steps[rank + 1] = stage(schedule, rank) end
  return support.simulate(support.machine { switch(1, 0) }, steps, schedule.stages)
end

describe("the bubble", function()
  it("has the same bits in whatever order the groups are found", function()
    local bubble_of, mesh = require "ganymede.plan.bubble", { { name = "data", size = 2 },
      { name = "pipeline", size = 2 } }
    local usual, exposed, sum = pairs, { pipeline = 5 }, 1.2
    finally(function() rawset(_G, "pairs", usual) end)
    for i = 1, 60 do exposed[("data@%d"):format(i)], sum = 1 / (3 * i), sum + 1 / (3 * i) end
    local found, replay = {}, { seconds = 3 * sum / 4 * 1.001, -- a small rest, in which a last bit is a large part
      classes = { { count = 3, busy = 1.1, launching = 0.1, exposed = exposed } } }
    for turn = 1, 2 do
      rawset(_G, "pairs", function(t) -- forwards and backwards
        local list, i = {}, 0
        for key in usual(t) do table.insert(list, turn == 1 and #list + 1 or 1, key) end
        return function()
          i = i + 1
          return list[i], t[list[i]]
        end
      end)
      found[turn] = bubble_of(replay, mesh, 4)
    end
    assert.near(1 - 1 / 1.001, found[1], 1e-12)
    assert.equal(found[1], found[2])
  end)

  for _, name in ipairs { "gpipe", "1f1b" } do
    for _, sizes in ipairs { { 2, 4 }, { 4, 8 }, { 4, 3 } } do
      local p, m = unpack(sizes)
      it(("of %s with %d stages and %d micro-batches is (p - 1) / (m + p - 1)"):format(name, p, m), function()
        local found, busy = replayed(pipeline.build(name, { stages = p, micro_batches = m })), 0
        near(3 * (m + p - 1), found.seconds)
        for _, rank in ipairs(found.ranks) do busy = busy + rank.busy end
        near((p - 1) / (m + p - 1), 1 - busy / (p * found.seconds))
      end)
    end
  end

  -- by ideal time, which is 3 for each micro-batch and chunk (docs/pipelines.md)
  for _, case in ipairs {
    { "interleaved", 4, 8, 2, function(p, m, v) return (p - 1) / (v * m) end },
    { "interleaved", 4, 8, 3, function(p, m, v) return (p - 1) / (v * m) end },
    { "zb-h1", 4, 8, 1, function(p, m) return (p - 1) / (3 * m) end },
    { "zb-h1", 3, 12, 1, function(p, m) return (p - 1) / (3 * m) end },
  } do
    local name, p, m, v, wanted = unpack(case)
    it(("of %s with %d stages, %d micro-batches and %d chunks is that of its formula"):format(name, p, m, v), function()
      local found = replayed(pipeline.build(name, { stages = p, micro_batches = m, chunks = v > 1 and v or nil }))
      near(wanted(p, m, v), found.seconds / (3 * m * v) - 1)
    end)
  end

  for _, case in ipairs { { "gpipe", 3, 5 }, { "1f1b", 4, 6 }, { "interleaved", 3, 6, 2 }, { "zb-h1", 4, 6 },
    { "zb-h2", 4, 9 }, { "zb-v", 4, 8, 2 } } do
    local name, p, m, v = unpack(case)
    it(("of %s is that of the simulator of schedules"):format(name), function()
      local schedule = pipeline.build(name, { stages = p, micro_batches = m, chunks = v })
      local found, simulated = replayed(schedule), simulate_schedule(schedule)
      near(simulated.time, found.seconds)
      for rank = 1, p do near(3 * m * (v or 1), found.ranks[rank].busy) end
      if name == "zb-h2" or name == "zb-v" then near(3 * m * (v or 1), simulated.span) end -- a rank never idles
    end)
  end
end)

describe("offloaded bytes", function()
  local disk = { read = 10, write = 5, latency = 0.5 }

  it("come while the rank works, and share the disk of a node", function()
    local m = support.machine({ switch(1, 0) }, { disk = disk, ranks_per_node = 2 })
    local events = { { "begin", "disk_read", "@disk", 20 }, { "op", 1 }, { "wait", 1 } }
    local alone = support.simulate(m, { support.step(0, {}, events) }, 1)
    near(0.5 + 20 / 10, alone.seconds)
    near(1.5, alone.ranks[1].exposed["@disk"])
    -- of 3 ranks, two share a disk
    local three = support.simulate(m, { support.step(0, { { "data", 3 } }, events) }, 3)
    near(0.5 + 2 * 20 / 10, three.ranks[1].seconds)
    near(0.5 + 2 * 20 / 10, three.ranks[2].seconds)
    near(0.5 + 20 / 10, three.ranks[3].seconds)
  end)

  it("go at the rate of writes, beside reads, also where ranks move the bytes of other operations", function()
    local events = { { "begin", "disk_write", "@disk", 20 }, { "begin", "disk_read", "@disk", 20 }, { "op", 1 },
      { "wait", 2 }, { "wait", 1 } }
    for _, moves in ipairs { false, true } do
      local m = support.machine({ switch(1, 0) }, { disk = disk, host_moves = moves })
      near(0.5 + 20 / 5, support.simulate(m, { support.step(0, {}, events) }, 1).seconds)
    end
  end)

  it("go to the host by a link of each rank", function()
    local m = support.machine({ switch(1, 0) }, { host = { bandwidth = 4, latency = 0.25 }, ranks_per_node = 2 })
    local events = { { "begin", "host_write", "@host", 8 }, { "wait", 1 }, { "begin", "host_read", "@host", 4 },
      { "wait", 2 } }
    near(2 * 0.25 + 3, support.simulate(m, { support.step(0, { { "data", 2 } }, events) }, 2).seconds)
    local path = support.step(0, {}, { { "begin", "disk_read", "@disk", 8 } })
    assert.error_matches(function() support.simulate(m, { path }, 1) end, "does not say how fast it is: add disk.read")
  end)
end)

describe("a replay", function()
  it("says which rank waits for ever, and which calls differ", function()
    local axes = { { "data", 2 } }
    local m = support.machine { switch(1, 0) }
    local waits = support.step(0, axes, { { "begin", "all_reduce", "data", 8 }, { "wait", 1 } })
    local nothing = support.step(1, axes, {})
    local other = support.step(1, axes, { { "begin", "all_reduce", "data", 16 }, { "wait", 1 } })
    assert.error_matches(function() support.simulate(m, { waits, nothing }, 2) end, "rank 0 waits for all_reduce")
    assert.error_matches(function() support.simulate(m, { waits, other }, 2) end,
      "ranks 0 and 1 do not make the same call 1 of group data")
    local function rooted(rank, root) return support.step(rank, axes, { { "begin", "reduce", "data", 8, root } }) end
    assert.error_matches(function() support.simulate(m, { rooted(0, 0), rooted(1, 1) }, 2) end, "the same call 1")
    local strange = support.step(0, axes, { { "begin", "all_reduce", "colour", 8 } })
    assert.error_matches(function() support.simulate(m, { strange }, 2) end, "cannot read the group 'colour'")
  end)

  it("knows groups of some stages, and of ranks that differ in other axes", function()
    local axes = { { "data", 2 }, { "pipeline", 3 } }
    local tied = { { "begin", "all_reduce", "pipeline@0+2", 10 }, { "wait", 1 } }
    local ends, middle = support.step(0, axes, tied), support.step(1, axes, {})
    local found = core.simulate(support.machine { switch(1, 0) }, { ends, middle }, { 1, 2, 1, 1, 2, 1 })
    near(10, found.ranks[6].seconds)
    near(0, found.ranks[5].seconds)
    assert.equal(2, found.transfers)
  end)

  it("needs links between all ranks, and rates for all ops", function()
    local path = support.step(0, { { "data", 4 } }, { { "begin", "all_reduce", "data", 8 }, { "wait", 1 } })
    assert.error_matches(function()
      support.simulate(support.machine { switch(1, 0, { ranks = 2 }) }, { path }, 4)
    end, "no link between all of 4 ranks")
    local m = support.machine({}, { moves = { { op = "copy", points = { { 1, 1 } } } } })
    assert.error_matches(function() support.simulate(m, { support.step(0, {}, { { "op", 1 } }) }, 1) end,
      "no rate of moves for add of f32")
  end)
end)
