-- Replays in which one rank stands for others against replays of every rank: the same figures for many meshes, machines
-- and steps. Both add the same times in other orders when several things happen at one moment, hence 1e-12.
local core = require "ganymede.core"
local support = require "spec.plan.support"

local function switch(bandwidth, latency, more)
  local level = { name = "net", kind = "switch", bandwidth = bandwidth, latency = latency }
  for key, value in pairs(more or {}) do level[key] = value end
  return level
end

local function near(wanted, got, what)
  assert(math.abs(wanted - got) <= 1e-12 * math.max(1, math.abs(wanted)), ("%s: %.17g, not %.17g"):format(what, got,
    wanted))
end

-- Compares both replays; returns the folded one.
local function compare(m, steps, role, options)
  local given = { unfolded = true }
  for key, value in pairs(options or {}) do given[key] = value end
  local all = core.simulate(m, steps, role, given)
  given.unfolded = false
  local found = core.simulate(m, steps, role, given)
  near(all.seconds, found.seconds, "seconds")
  assert.equal(#role, #all.classes)
  assert.equal(all.transfers, found.transfers)
  local count = 0
  for _, class in ipairs(found.classes) do count = count + class.count end
  assert.equal(#role, count)
  for rank, r in ipairs(all.ranks) do
    near(r.seconds, found.ranks[rank].seconds, "end of rank " .. rank - 1)
    near(r.busy, found.ranks[rank].busy, "busy of rank " .. rank - 1)
    for group, seconds in pairs(r.exposed) do near(seconds, found.ranks[rank].exposed[group], group) end
  end
  return found
end

-- ---------------------------------------------------------------- steps of a transformer's kind

local function coordinates(mesh, rank)
  local at = {}
  for i = #mesh, 1, -1 do at[mesh[i][1]], rank = rank % mesh[i][2], math.floor(rank / mesh[i][2]) end
  return at
end

-- The step of a rank: micro-batches go down the pipeline and up again, tensor ranks sum, rings send to the next rank,
-- data ranks sum their gradients while the rank works, and all sum a norm.
local function step(mesh, rank, pieces)
  local at, sizes, events, ids = coordinates(mesh, rank), {}, {}, 0
  for _, axis in ipairs(mesh) do sizes[axis[1]] = axis[2] end
  local function begin(op, group, bytes, peer)
    ids = ids + 1
    events[#events + 1] = { "begin", op, group, bytes, peer }
    return ids
  end
  local function wait(id) events[#events + 1] = { "wait", id } end
  local stages, stage = sizes.pipeline or 1, at.pipeline or 0
  local function pass(from, to, seconds)
    if from >= 0 and from < stages then wait(begin("receive", "pipeline", 7, from)) end
    events[#events + 1] = { "op", seconds }
    if sizes.tensor then wait(begin("all_reduce", "tensor", 24)) end
    if sizes.ring then
      local size = sizes.ring
      begin("send", "ring", 5, (at.ring + 1) % size)
      local id = begin("receive", "ring", 5, (at.ring + size - 1) % size)
      events[#events + 1] = { "op", 0.5 }
      wait(id)
    end
    if to >= 0 and to < stages then begin("send", "pipeline", 7, to) end
  end
  for _ = 1, pieces do pass(stage - 1, stage + 1, 1 + 0.25 * stage) end
  for _ = 1, pieces do pass(stage + 1, stage - 1, 2) end
  local sums = {}
  for i = 1, sizes.data and 3 or 0 do
    sums[i] = begin("all_reduce", "data", 60 * i)
    events[#events + 1] = { "op", 1 }
  end
  for _, id in ipairs(sums) do wait(id) end
  local names = {}
  for i, axis in ipairs(mesh) do names[i] = axis[1] end
  wait(begin("all_reduce", table.concat(names, "."), 1))
  if sizes.data then wait(begin("broadcast", "data", 40, 0)) end
  return support.step(rank, mesh, events)
end

-- One step for each coordinate along the pipeline, at the first place of other axes.
local function steps_of(mesh, pieces)
  local inner, stages, world, steps, role = 1, 1, 1, {}, {}
  for i = #mesh, 1, -1 do
    world = world * mesh[i][2]
    if mesh[i][1] == "pipeline" then stages = mesh[i][2] end
    if stages == 1 then inner = inner * mesh[i][2] end
  end
  for s = 0, stages - 1 do steps[s + 1] = step(mesh, stages > 1 and s * inner or 0, pieces) end
  for rank = 0, world - 1 do role[rank + 1] = (coordinates(mesh, rank).pipeline or 0) + 1 end
  return steps, role
end

local machines = {
  { "one switch", { switch(20, 0.0625) } },
  { "nodes of 4 with a port for each rank", { switch(90, 0.01, { ranks = 4 }), switch(10, 0.125) } },
  { "nodes of 4 with one port", { switch(90, 0.01, { ranks = 4 }), switch(10, 0.125, { ranks_per_port = 4 }) } },
  { "a medium for 2, a fat tree", { { name = "bus", kind = "shared", ranks = 2, bandwidth = 30, latency = 0.02 },
    switch(8, 0.1, { leaf = 4, oversubscription = 2 }) } },
  { "a torus", { { name = "torus", kind = "torus", ranks = 8, dims = { 2, 4 }, bandwidth = 12, latency = 0.05 },
    switch(3, 0.2) } },
  { "one medium", { { name = "bus", kind = "shared", bandwidth = 60, latency = 0.02 } } },
}

local meshes = {
  { { "data", 8 } }, { { "data", 2 }, { "tensor", 4 } }, { { "data", 4 }, { "pipeline", 3 }, { "tensor", 2 } },
  { { "pipeline", 2 }, { "data", 4 }, { "tensor", 2 } }, { { "ring", 8 } },
  { { "data", 3 }, { "ring", 5 } }, { { "tensor", 3 }, { "pipeline", 4 }, { "data", 2 } },
}

describe("folded and unfolded replays agree", function()
  for _, machine in ipairs(machines) do
    it("on " .. machine[1], function()
      for _, algorithm in ipairs { "ring", "tree", "auto", "direct" } do
        local m = support.machine(machine[2], { algorithm = algorithm, begin = 0.03125 })
        for _, mesh in ipairs(meshes) do compare(m, steps_of(mesh, 3)) end
      end
    end)
  end

  it("where the ranks move the bytes", function()
    local m = support.machine({ switch(20, 0.0625) }, { host_moves = true, algorithm = "direct" })
    for _, mesh in ipairs(meshes) do compare(m, steps_of(mesh, 2)) end
  end)

  it("with a slow rank, which is apart from the others", function()
    local m = support.machine({ switch(90, 0.01, { ranks = 4 }), switch(10, 0.125) })
    local mesh = { { "data", 4 }, { "tensor", 4 } }
    local steps, role = steps_of(mesh, 2)
    local even, found = compare(m, steps, role), compare(m, steps, role, { slower = { [5] = 1.5 } })
    assert.equal(1, #even.classes)
    assert.is_true(#found.classes > 1 and #found.classes < 16)
    assert.is_true(found.ranks[6].busy > found.ranks[5].busy)
    assert.is_true(found.seconds > even.seconds)
  end)
end)

describe("a fold", function()
  it("has one class of equal ranks, also of a ring of messages at any size", function()
    local m = support.machine { switch(20, 0.0625) }
    assert.equal(1, #compare(m, steps_of({ { "ring", 16 } }, 2)).classes)
    assert.equal(3, #compare(m, steps_of({ { "data", 4 }, { "pipeline", 3 }, { "tensor", 2 } }, 2)).classes)
  end)

  it("is refused to ranks whose links others use more", function()
    -- 6 ranks in nodes of 4: pairs (0,1) (2,3) in a node with one port to the other node, (4,5) alone in theirs
    local m = support.machine { switch(90, 0, { ranks = 4 }), switch(10, 0, { ranks_per_port = 4 }) }
    local mesh = { { "tensor", 3 }, { "data", 2 } }
    local events = { { "begin", "all_reduce", "tensor", 30 }, { "begin", "all_reduce", "data", 30 }, { "wait", 2 },
      { "op", 1 }, { "wait", 1 } }
    local found = compare(m, { support.step(0, mesh, events) }, { 1, 1, 1, 1, 1, 1 })
    assert.is_true(#found.classes > 1)
  end)

  it("takes a tree apart only if it meets something on its links", function()
    local m = support.machine({ switch(10, 0) }, { algorithm = "tree" })
    local mesh, role = { { "data", 7 }, { "tensor", 2 } }, {}
    for rank = 1, 14 do role[rank] = 1 end
    local apart = { { "begin", "all_reduce", "data", 10 }, { "wait", 1 }, { "op", 1 },
      { "begin", "all_reduce", "tensor", 14 }, { "wait", 2 } }
    assert.equal(1, #compare(m, { support.step(0, mesh, apart) }, role).classes)
    -- now ranks of the inner places of the tree wait longer for their pair
    local crowd = { { "begin", "all_reduce", "data", 10 }, { "op", 1 }, { "begin", "all_reduce", "tensor", 14 },
      { "wait", 2 }, { "wait", 1 } }
    local found = compare(m, { support.step(0, mesh, crowd) }, role)
    assert.is_true(#found.classes > 1 and #found.classes < 14)
  end)

  it("ends where every rank has a jitter of its own, which seed and rank alone decide", function()
    local m = support.machine { switch(20, 0.0625) }
    local steps, role = steps_of({ { "data", 4 }, { "tensor", 2 } }, 2)
    local one = core.simulate(m, steps, role, { jitter = 0.1, seed = 3 })
    local again = core.simulate(m, steps, role, { jitter = 0.1, seed = 3 })
    local other = core.simulate(m, steps, role, { jitter = 0.1, seed = 4 })
    local traced = core.simulate(m, steps, role, { jitter = 0.1, seed = 3, spans = 1 })
    assert.equal(8, #one.classes)
    assert.equal(one.seconds, again.seconds)
    near(one.seconds, traced.seconds, "with spans")
    assert.are_not.equal(one.seconds, other.seconds)
    assert.are_not.equal(one.ranks[1].busy, one.ranks[2].busy)
  end)

  it("has a jitter whose mean is the time without it", function()
    local events = {}
    for i = 1, 4000 do events[i] = { "op", 1 } end
    local found = core.simulate(support.machine {}, { support.step(0, {}, events) }, { 1 }, { jitter = 0.2, seed = 1 })
    -- 4000 draws with a deviation of 0.2: that of the mean is 0.0032; four times this fails for one seed in 16,000
    assert.near(4000, found.seconds, 4000 * 4 * 0.2 / math.sqrt(4000))
  end)
end)
