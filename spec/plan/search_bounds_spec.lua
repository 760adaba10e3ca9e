-- What a search reckons against what a simulation finds: seconds of ops are equal (1e-12: the same sum in another
-- language), those of an operation between ranks never above, and equal where one port carries all that counts.
local bounds = require "ganymede.plan.search.bounds"
local core = require "ganymede.core"
local rates = require "ganymede.plan.search.rates"
local record = require "ganymede.plan.search.record"
local support = require "spec.plan.support"

local function switch(more)
  local level = { name = "net", kind = "switch", bandwidth = 50, latency = 0.125 }
  for key, value in pairs(more or {}) do level[key] = value end
  return level
end

local nodes = { switch { ranks = 4, bandwidth = 1000, latency = 0.01 }, switch { ranks_per_port = 2 } }

local function simulated(m, op, n, axes, group)
  local path = support.step(0, axes, { { "begin", op, group, n, 0 }, { "wait", 1 } })
  local world = 1
  for _, axis in ipairs(axes) do world = world * axis[2] end
  local replay = support.simulate(m, { path }, world)
  return replay.seconds
end

local function members_of(axes, group)
  local mesh = {}
  for i, axis in ipairs(axes) do mesh[i] = { name = axis[1], size = axis[2] } end
  return bounds.members(mesh, { group })
end

local operations = { "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
  "all_to_all", "barrier", "exchange", "all_to_all_rows" }

describe("the bound of an operation between ranks", function()
  for _, algorithm in ipairs { "ring", "tree", "direct", "auto" } do
    it(("is at most what a simulation finds: %s"):format(algorithm), function()
      for _, links in ipairs { { switch() }, nodes, { switch { kind = "shared" } } } do
        local m = support.machine(links, { algorithm = algorithm, efficiency = { all_reduce = 0.5 } })
        for _, axes in ipairs { { { "data", 8 } }, { { "data", 4 }, { "tensor", 4 } }, { { "tensor", 2 },
          { "data", 8 } }, { { "data", 3 }, { "tensor", 2 } } } do
          for _, op in ipairs(operations) do
            for _, n in ipairs { 1, 1e6 } do
              local least = rates.least(m, op, members_of(axes, "data"), n)
              local found = simulated(m, op, n, axes, "data")
              assert.is_true(least > 0 and least <= found * (1 + 1e-12), ("%s of %g on %s: %g at least, %g"):format(op,
                n, links[1].kind, least, found))
            end
          end
        end
      end
    end)
  end

  it("is what a simulation finds on one switch", function()
    for _, case in ipairs { { "ring", "all_reduce" }, { "ring", "all_gather" }, { "direct", "all_reduce" },
      { "direct", "all_to_all" }, { "ring", "all_to_all_rows" }, { "direct", "broadcast" } } do
      local m = support.machine({ switch() }, { algorithm = case[1] })
      for _, n in ipairs { 400, 4000 } do -- the first goes at once, in a direct all_reduce
        local found = simulated(m, case[2], n, { { "data", 8 } }, "data")
        assert.near(found, rates.least(m, case[2], members_of({ { "data", 8 } }, "data"), n), 1e-9 * found)
      end
    end
  end)

  it("is a part of what a simulation finds on one core, which moves all bytes and pays for each message", function()
    local m = support.machine({ switch() }, { algorithm = "direct", host_moves = true, ranks_per_node = 8, cores = 1,
      cores_per_rank = 1 })
    for _, op in ipairs { "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_rows",
      "barrier", "broadcast" } do
      local found = simulated(m, op, 4000, { { "data", 8 } }, "data")
      assert.near(found, 8 * rates.least(m, op, members_of({ { "data", 8 } }, "data"), 4000), 1e-9 * found)
    end
  end)

  it("knows the members of rank 0's group", function()
    local mesh = { { name = "tensor", size = 2 }, { name = "data", size = 3 }, { name = "expert", size = 2 } }
    assert.same({ 0, 6 }, bounds.members(mesh, { "tensor" }))
    assert.same({ 0, 2, 4 }, bounds.members(mesh, { "data" }))
    assert.same({ 0, 1, 2, 3, 4, 5 }, bounds.members(mesh, { "data", "expert" }))
  end)
end)

describe("the bound of what data ranks send", function()
  local m = support.machine { switch() } -- 50 bytes a second, 0.125 s a hop
  local facts = { weights = { gradients = 800, each = { 1e5, 1e5, 1e5, 1e5, 1e5, 7e4, 100 }, bytes_of_element = 2 } }
  local function seconds(zero, more)
    local s = { data = 4, expert = 1, tensor = { size = 1 }, sequence = { size = 1 }, micro = 1, accumulation = 3,
      pipeline = { size = 1, chunks = 1, split = "parameters" }, zero = zero }
    for key, value in pairs(more or {}) do s[key] = value end
    return bounds.data_sent(s, facts, m, 4 * s.pipeline.size)
  end
  local scatter, gather = 3 * 0.125 + 0.75 * 800 / 50, 3 * 0.125 + 0.75 * 2 * (5.7e5 - 4e5) / 50

  it("is one sum of gradients up to stage 1, one a batch from stage 2 on", function()
    assert.near(6 * 0.125 + 1.5 * 800 / 50, seconds(0), 1e-9)
    assert.near(scatter, seconds(1), 1e-9)
    assert.near(3 * scatter, seconds(2), 1e-9)
    assert.equal(0, seconds(2, { data = 1 }))
  end)

  it("in stage 3 has all parameters for each piece but those that may be kept", function()
    assert.near(3 * scatter + 3 * gather, seconds(3), 1e-9)
    local half = { accumulation = 1, micro = 4, pipeline = { size = 2, chunks = 1, split = "parameters" } }
    assert.near(3 * 0.125 + 0.75 * 400 / 50, seconds(3, half), 1e-9) -- as much as a stage has may be kept
    local two = { tensor = { size = 2, mode = "1d" } } -- where 7e4 and 1e5 are cut in two, all are too small for that
    local whole = 3 * 0.125 + 0.75 * 800 / 2 / 50
    local cut = bounds.data_sent({ data = 4, expert = 1, tensor = two.tensor, sequence = { size = 1 }, micro = 1,
      accumulation = 3, pipeline = { size = 1, chunks = 1, split = "parameters" }, zero = 3 }, facts, m, 8)
    assert.near(3 * whole, cut, 1e-9)
    assert.near(3 * scatter, bounds.data_sent({ data = 4, expert = 1, tensor = { size = 1 }, sequence = { size = 1 },
      micro = 1, accumulation = 3, pipeline = { size = 1, chunks = 1, split = "parameters" }, zero = 3 }, facts, m, 4,
      true), 1e-9)
  end)
end)

describe("the bound of a mean rank", function()
  local function pipeline(size, schedule, chunks)
    return { data = 2, expert = 1, tensor = { size = 2, mode = "1d" }, sequence = { size = 1 }, micro = 3,
      accumulation = 1, recompute = "none", pipeline = { size = size, schedule = schedule, chunks = chunks } }
  end

  it("counts for all ranks of a node that shares its cores", function()
    local m = support.machine({ switch() }, { host_moves = true, ranks_per_node = 8, cores = 2, cores_per_rank = 1 })
    for _, case in ipairs { { 8, 4 }, { 4, 2 }, { 2, 1 }, { 1, 1 }, { 16, 4 }, { 12, 3 } } do
      assert.equal(case[2], bounds.crowded(m, case[1], 1), case[1] .. " ranks")
    end
    m.cores = 8
    assert.equal(1, bounds.crowded(m, 8, 1))
  end)

  it("has an update that data ranks repeat without ZeRO, and messages at each border of its stages", function()
    local m = support.machine { switch { ranks = 4 }, switch { latency = 0.5 } }
    local facts = { floors = { none = { update = 96, states = 64 } } }
    local s = pipeline(4, "1f1b", 1)
    assert.equal(96 / 16, bounds.update(s, facts, 16)) -- of a family, whose stage of ZeRO is open
    s.zero = 0
    assert.equal(32 / 16 + 64 / (2 * 4), bounds.update(s, facts, 16))
    s.zero = 1
    assert.equal(96 / 16, bounds.update(s, facts, 16))
    assert.near(2 * 3 * 3 * 0.125 / 4, bounds.messages(s, m), 1e-12)
    assert.near(2 * 3 * 7 * 0.125 / 4, bounds.messages(pipeline(4, "interleaved", 2), m), 1e-12)
    assert.near(2 * 3 * 6 * 0.125 / 4, bounds.messages(pipeline(4, "zb-v", 2), m), 1e-12)
    assert.equal(0, bounds.messages(pipeline(1, "none", 1), m))
  end)

  it("gathers what was updated, where the host moves the bytes", function()
    local facts = { weights = { gradients = 800, parameters = 400, each = {}, bytes_of_element = 4 } }
    local s = { data = 4, expert = 1, tensor = { size = 1 }, sequence = { size = 1 }, micro = 1, accumulation = 3,
      pipeline = { size = 1, chunks = 1, split = "parameters" }, zero = 1 }
    local on, apart = support.machine({ switch() }, { host_moves = true }), support.machine { switch() }
    local gather = 3 * 0.125 + 0.75 * 400 / 50
    assert.near(gather, bounds.data_sent(s, facts, on, 4) - bounds.data_sent(s, facts, apart, 4), 1e-9)
    s.zero = 2
    assert.near(gather, bounds.data_sent(s, facts, on, 4) - bounds.data_sent(s, facts, apart, 4), 1e-9)
    s.zero = 0
    assert.near(bounds.data_sent(s, facts, apart, 4), bounds.data_sent(s, facts, on, 4), 1e-9)
  end)
end)

describe("the bound of a rank", function()
  local axes = { { "data", 2 } }
  local m = support.machine({ switch() }, { launch = 0.25, begin = 0.5, host_moves = true, algorithm = "direct",
    moves = { { points = { { 1, 2 }, { 100, 8 } } } } })

  it("is the time of a step that all ranks take alike, where nothing overlaps", function()
    local path = support.step(0, axes, { { "op", 1 }, { "op", 20 }, { "begin", "all_reduce", "data", 80 },
      { "op", 1000 }, { "wait", 1 } })
    local least = record.of_rank(core.step_read(path).events, { { name = "data", size = 2 } }, m)
    local found = support.simulate(m, { path }, 2).seconds
    assert.near(found, least.total, 1e-12 * found)
    assert.equal(0, least.passes) -- no op makes products
  end)

  it("has what products take beside their rates", function()
    local own = support.machine({ switch() }, { launch = 0.25, begin = 0.5, host_moves = true, algorithm = "direct",
      moves = { { points = { { 1, 1000 } } } },
      products = { { start = 0.5, bandwidth = 4, points = { { 16, 10 }, { 256, 30 } } } } })
    local path = support.step(0, axes, { { "op", 8, 100, 64 }, { "op", 3 } })
    local total = record.of_rank(core.step_read(path).events, { { name = "data", size = 2 } }, own).total
    assert.near(0.25 + 0.5 + 8 / 4 + 100 / 20 + 0.25 + 3 / 1000, total, 1e-12 * total)
    local found = support.simulate(own, { path }, 2).seconds
    assert.near(found, total, 1e-12 * found)
  end)

  it("is the same from a record in few, and for every mesh", function()
    local events = { { "alloc", 8 }, { "op", 1 }, { "op", 20 }, { "free", 8 }, { "begin", "all_reduce", "data", 80 },
      { "op", 1000 }, { "op", 30 }, { "wait", 1 }, { "op", 7 }, { "begin", "send", "data", 8, 1 } }
    local path, mesh = support.step(0, axes, events), { { name = "data", size = 2 } }
    for _, on in ipairs { m, support.machine({ switch() }, { launch = 0.25, begin = 0.5 }),
      support.machine({ switch() }, { host_launch = { op = 12, between = 3 } }) } do
      local few = core.step_condensed(on, path)
      assert.equal(6, #few) -- a run, a begin, a run, a wait, a run, a begin
      local whole = record.of_rank(core.step_read(path).events, mesh, on)
      for key, seconds in pairs(record.of_rank(few, mesh, on)) do
        assert.near(whole[key], seconds, 1e-12 * whole.total, key)
      end
    end
  end)

  it("is equal on meshes on which its operations lie alike, and there are others", function()
    local on = support.machine({ { name = "node", kind = "switch", ranks = 4, bandwidth = 10, latency = 0.25 },
      { name = "net", kind = "switch", bandwidth = 1, latency = 0.5 } }, { launch = 0.25, begin = 0.5 })
    local three = { { "data", 2 }, { "pipeline", 4 }, { "tensor", 2 } }
    local events = core.step_read(support.step(0, three, { { "op", 1 }, { "begin", "all_reduce", "tensor", 80 },
      { "wait", 1 }, { "begin", "all_reduce", "data.tensor", 40 }, { "wait", 2 } })).events
    local found, places, n = {}, 0, 0
    for _, order in ipairs { { 1, 2, 3 }, { 1, 3, 2 }, { 2, 1, 3 }, { 2, 3, 1 }, { 3, 1, 2 }, { 3, 2, 1 } } do
      local mesh = {}
      for i, at in ipairs(order) do mesh[i] = { name = three[at][1], size = three[at][2] } end
      local key, total = record.place(events, mesh, on, 0), record.of_rank(events, mesh, on, 0).total
      if not found[key] then found[key], places = total, places + 1 end
      assert.equal(found[key], total)
      n = n + 1
    end
    assert.is_true(places > 1 and places < n, places .. " places")
  end)

  it("overlaps what may overlap, and leaves out messages", function()
    local free = support.machine({ switch() }, { launch = 0.25, begin = 0.5 })
    local events = { { "op", 1 }, { "begin", "all_reduce", "data", 8000 }, { "op", 2 }, { "wait", 1 },
      { "begin", "all_reduce", "data", 8 }, { "op", 1000 }, { "wait", 2 } }
    local path = support.step(0, axes, events)
    local mesh = { { name = "data", size = 2 } }
    local found = support.simulate(free, { path }, 2).seconds
    local total = record.of_rank(core.step_read(path).events, mesh, free).total
    assert.near(found, total, 1e-12 * found)
    table.insert(events, { "begin", "receive", "data", 80, 1 })
    table.insert(events, { "wait", 3 })
    assert.equal(total + 0.5, record.of_rank(core.step_read(support.step(0, axes, events)).events, mesh, free).total)
  end)

  -- Ops of 1 to 7 s, some of which make products, and operations between ranks with ops between begin and wait.
  local function random_events(turn)
    local events, open, id = {}, nil, 0
    local function number(i, n) return (i * i * turn + 3 * i) % n end
    for i = 1, 30 do
      if number(i, 4) == 0 and not open then
        events[#events + 1] = { "begin", "all_reduce", "data", 100 * number(i, 5) }
        open = true
      elseif number(i, 3) == 0 and open then
        events[#events + 1] = { "wait", 0 }
        open = nil
      end
      events[#events + 1] = { "op", 1 + number(i, 7), i < 20 and number(i, 2) or 0, 1 }
    end
    events[#events + 1] = open and { "wait", 0 } or nil
    for _, e in ipairs(events) do
      if e[1] == "begin" then id = id + 1 end
      if e[1] == "wait" then e[2] = id end
    end
    return events, id
  end

  it("is the time of a step whose ops and operations a host launches, and its launches are a part of it", function()
    for turn = 1, 12 do
      local events, n = random_events(turn)
      local path, mesh = support.step(0, axes, events), { { name = "data", size = 2 } }
      for _, host in ipairs { { op = 0.5, between = 0.25 }, { op = 3, between = 1 }, { op = 9, between = 20 } } do
        local on = support.machine({ switch() }, { launch = 0.25, begin = 0.5, host_launch = host })
        local found = support.simulate(on, { path }, 2).seconds
        for _, list in ipairs { core.step_read(path).events, core.step_condensed(on, path) } do
          local least = record.of_rank(list, mesh, on)
          assert.near(found, least.total, 1e-12 * found)
          assert.near(30 * host.op + n * host.between, least.host, 1e-9)
          assert.is_true(least.host_of_passes <= least.passes and least.passes <= least.total)
        end
        on.host_launch = nil -- a record in few knows of a host that does not bind
        found = support.simulate(on, { path }, 2).seconds
        on.host_launch = host
        local few = core.step_condensed(on, path)
        on.host_launch = nil
        assert.near(found, record.of_rank(few, mesh, on).total, 1e-12 * found)
      end
    end
  end)

  it("knows what comes before its passes and behind its passes, which relatives do, too", function()
    local on = support.machine({ switch() }, { host_launch = { op = 1, between = 2 } })
    local mesh = { { name = "data", size = 2 } }
    local function around(list)
      local path = support.step(0, axes, list)
      return record.around_passes(core.step_condensed(on, path)), path
    end
    local events = { { "op", 1 }, { "begin", "all_reduce", "data", 8 }, { "wait", 1 }, { "op", 10, 5, 1 }, { "op", 2 },
      { "begin", "all_reduce", "data", 100 }, { "op", 3 }, { "wait", 2 }, { "op", 4 },
      { "begin", "all_reduce", "data", 50 }, { "wait", 3 }, { "op", 1 } }
    local known, path = around(events)
    assert.near(0.25 + 8 / 50, record.summed_before(known, mesh, on, 0), 1e-12)
    assert.equal(2, (select(2, record.summed_before(known, mesh, on, 0))))
    -- the ops of 2 s and 3 s may be of the last pass; operations of 2.25 and 1.25 s with ops of 4 and 1 s are behind it
    assert.near(20 + 2.25 + 4 + 1.25 + 1, record.ended(known, mesh, on, 0, 20, 5), 1e-12)
    -- launched at 32, 33, 35 and 36
    assert.near(32 + 2.25 + 4 + 1.25 + 1, record.ended(known, mesh, on, 0, 20, 30), 1e-12)
    local found = support.simulate(on, { path }, 2).seconds
    local passed = 4 + 10 -- it has been launched at 4, when the sum was over
    assert.is_true(record.ended(known, mesh, on, 0, passed, 4) <= found)
    assert.near(found - 2 - (3 - 2.25), record.ended(known, mesh, on, 0, passed, 4), 1e-9)
    table.remove(events, 1)
    assert.equal(0, record.summed_before(around(events), mesh, on, 0)) -- nothing was counted
  end)

  it("goes on when its first message can be there, while its host goes on before", function()
    local on = support.machine({ switch() }, { host_launch = { op = 4, between = 1 } })
    local events = { { "op", 1 }, { "begin", "receive", "data", 80, 1 }, { "wait", 1 }, { "op", 1 }, { "op", 1 } }
    local list = core.step_read(support.step(0, axes, events)).events
    local function least(first) return record.of_rank(list, { { name = "data", size = 2 } }, on, 0, first) end
    assert.same({ 13 + 1, 5, 13 }, { least().total, least().lead, least().host }) -- launched at 4, 5, 9 and 13
    assert.equal(13 + 1, least(10).total)
    assert.equal(20 + 2, least(20).total)
  end)
end)
