-- Ranks that share cores and wake late, against sums that can be done on paper (1e-9: sums of a few terms in f64), and
-- what is measured of that.
local core = require "ganymede.core"
local support = require "spec.plan.support"
local wakes = require "ganymede.plan.wakes"

local function near(wanted, got)
  assert(math.abs(wanted - got) <= 1e-9 * math.max(1, math.abs(wanted)), ("%.17g, not %.17g"):format(got, wanted))
end

-- Messages of 0.5 s, 10 bytes a second.
local function machine(fields)
  fields.host_moves, fields.algorithm, fields.cores_per_rank = true, "direct", 1
  return support.machine({ { name = "net", kind = "switch", bandwidth = 10, latency = 0.5 } }, fields)
end

describe("a rank that was woken on a node of shared cores", function()
  local two = { { "data", 2 } }
  local function gathers(rank, axes, seconds, bytes)
    return support.step(rank, axes, { { "op", seconds }, { "begin", "all_gather", "data", bytes }, { "wait", 1 } })
  end

  -- One core: ranks at half pace, so rank 0 waits from 2 on; rank 1 comes at 4 and moves for 0.5 + 20 / 10.
  local function pair(wake)
    local m = machine { cores = 1, ranks_per_node = 2, wake = wake }
    return support.simulate(m, { gathers(0, two, 1, 40), gathers(1, two, 3, 40) }, 2)
  end

  it("runs when the scheduler gets to it, and spends what waking costs", function()
    local found = pair { work = 0.25, late = { 0.1, 2 } }
    near(4 + 2 + 2 * 0.5, found.ranks[2].seconds) -- from 6 on at half pace
    near(4 + 2.5 + 2.75, found.ranks[1].seconds) -- the core is never idle
    near(found.seconds - 2, found.ranks[1].exposed.data)
  end)

  it("runs sooner if a core becomes free before that", function()
    local found = pair { work = 0.25, late = { 0.1, 3 } }
    near(4 + 2.5, found.ranks[2].seconds)
    near(4 + 2.5 + 2.75, found.ranks[1].seconds)
    near(4 + 2.5 + 2.5, pair({ work = 0, late = { 0 } }).seconds)
  end)

  it("is late on an idle core, too", function()
    local sends = support.step(0, two, { { "op", 3 }, { "begin", "send", "data", 20, 1 } })
    local receives = support.step(1, two, { { "op", 1 }, { "begin", "receive", "data", 20, 0 }, { "wait", 1 } })
    local m = machine { cores = 1, ranks_per_node = 2, wake = { work = 0.25, late = { 0.1, 9 } } }
    near(4 + 0.1 + 2.5 + 0.25, support.simulate(m, { sends, receives }, 2).seconds)
    -- 2 cores: rank 0 sends at 2, when one core is idle; at 3 rank 2 stops, which changes nothing
    local three, list = { { "data", 3 } }, {}
    list[1] = support.step(0, three, { { "op", 2 }, { "begin", "send", "data", 20, 1 } })
    list[2] = support.step(1, three, { { "begin", "receive", "data", 20, 0 }, { "wait", 1 } })
    list[3] = support.step(2, three, { { "op", 3 } })
    m = machine { cores = 2, ranks_per_node = 3, wake = { work = 0.25, late = { 0, 5, 9 } } }
    near(2 + 5 + 2.5 + 0.25, support.simulate(m, list, 3).seconds)
  end)

  it("has one core promised to one rank alone, and those of other nodes never", function()
    -- 2 cores, 4 ranks at 1/2: three wait from 2 on, the last comes at 5 and moves for 3 x 0.5 + 3/4 x 40 / 10
    local four, list, ends = { { "data", 4 } }, {}, {}
    for rank = 0, 3 do list[rank + 1] = gathers(rank, four, rank == 3 and 4 or 1, 40) end
    local m = machine { cores = 2, ranks_per_node = 4, wake = { work = 0.25, late = { 0.1, 5, 99 } } }
    for i, rank in ipairs(support.simulate(m, list, 4).ranks) do ends[i] = rank.seconds end
    table.sort(ends)
    near(5 + 4.5, ends[1])
    near(5 + 4.5 + 4.75, ends[2]) -- on the core that the last one leaves
    near(5 + 5 + 4.75, ends[3]) -- on the idle core, which was promised to it
    near(5 + 4.5 + 4.75 + 4.75, ends[4])
    -- 2 nodes of a core for 2 ranks: rank 0 computes to the end on one; on the other, rank 2 sends at 1
    list[1], list[2] = support.step(0, four, { { "op", 50 } }), support.step(1, four, {})
    list[3] = support.step(2, four, { { "op", 1 }, { "begin", "send", "data", 20, 3 } })
    list[4] = support.step(3, four, { { "begin", "receive", "data", 20, 2 }, { "wait", 1 } })
    m = machine { cores = 1, ranks_per_node = 2, wake = { work = 0, late = { 0.1, 99 } } }
    near(1 + 0.1 + 2.5, core.simulate(m, list, { 1, 2, 3, 4 }).ranks[4].seconds)
  end)

  it("counts those that are about to run among the others", function()
    -- the second of two that are woken at once beside one that computes finds two others: the last number of the list
    local three = { { "data", 3 } }
    local m = machine { cores = 1, ranks_per_node = 3, wake = { work = 0, late = { 0, 1, 7 } } }
    local list = { gathers(0, three, 1, 0), gathers(1, three, 1, 0),
      support.step(2, three, { { "op", 4 }, { "begin", "all_gather", "data", 0 }, { "wait", 1 }, { "op", 20 } }) }
    -- three at 1/3 until 3, then one until 6 and moves for 1 s; one joins at 7, the other at 13
    local found = support.simulate(m, list, 3)
    local first = math.min(found.ranks[1].seconds, found.ranks[2].seconds)
    local second = math.max(found.ranks[1].seconds, found.ranks[2].seconds)
    near(7 + 2 * 1, first)
    near(13 + 2 * 1, second)
    near(6 + 1 + 20 + 2, found.ranks[3].seconds)
  end)

  it("does not sleep in a wait that is short", function()
    -- rank 0 waits from 2 to 4
    local slept = pair { work = 0.25, late = { 0.1, 2 } }
    near(slept.seconds, pair({ work = 0.25, late = { 0.1, 2 }, after = 2 }).seconds)
    near(4 + 5, pair({ work = 0.25, late = { 0.1, 2 }, after = 2.001 }).seconds) -- as where waking costs nothing
  end)

  it("waits for nothing where waking costs nothing, or each rank has cores of its own", function()
    local none = support.simulate(machine { cores = 1, ranks_per_node = 2 },
      { gathers(0, two, 1, 40), gathers(1, two, 3, 40) }, 2)
    near(4 + 5, none.seconds)
    near(none.seconds, pair({ work = 0, late = { 0 } }).seconds)
    local own = machine { cores = 2, ranks_per_node = 2, wake = { work = 1, late = { 9 } } }
    near(3 + 2.5, support.simulate(own, { gathers(0, two, 1, 40), gathers(1, two, 3, 40) }, 2).seconds)
  end)
end)

describe("a machine's wake", function()
  local function refused(fields, why)
    assert.error_matches(function() support.machine({}, fields) end, why)
  end

  it("is refused where it says nothing, or what cannot be", function()
    local function with(wake) return { cores = 2, cores_per_rank = 1, wake = wake } end
    refused({ wake = { work = 0, late = { 1 } } }, "wake is of ranks that share the cores of their node; say cores")
    refused(with { work = 0, late = {} }, "wake.late: a list of 1 to 16 numbers")
    refused(with { work = 0, late = { 1, -1 } }, "wake.late%[2%]: seconds were expected")
    refused(with { late = { 1 } }, "work")
    refused(with { work = 0, late = { 1 }, soon = 1 }, "soon")
  end)
end)

describe("what is measured of wake-ups", function()
  it("is a median, a mean without the longest tenth, and what a burst costs beside its messages", function()
    near(5, wakes.mean { 9, 2, 3, 4, 5, 6, 7, 8, 1, 1e6 })
    near(7, wakes.mean { 7 })
    near(3, wakes.median { 3, 1e6, 1 })
    near(2.5, wakes.median { 3, 1e6, 2, 1 })
    local most, spent = core.comm_yields() -- of this rank, which has a core of its own
    near(50e-6, most)
    near(0, spent)
    -- a wake-up of 3 and messages of 2, of which the answer is one
    near(3, wakes.work(3 + 2 * 2, 3 + 10 * 2, 9))
    near(0, wakes.work(1, 9, 9))
  end)

  it("is taken off the time of a collective", function()
    -- 8 ranks on 2 cores with 7 messages of 3 s each: 7 wake-ups of 2 s, and one core idle for 4 s
    local wake = { work = 2, late = { 1, 4, 9 } }
    local about = { ranks = 8, cores = 2, messages = 7, wake = wake, message = 0.25 }
    near(3, wakes.of_messages((8 * 7 * 3 + 7 * 2 + 4) / 2, about))
    about.wake.after = 1.5 -- the same, since it takes longer, and one that does not
    near(3, wakes.of_messages((8 * 7 * 3 + 7 * 2 + 4) / 2, about))
    near(2 * 1.4 / (8 * 7), wakes.of_messages(1.4, { ranks = 8, cores = 2, messages = 7, wake = wake, message = 0 }))
    about.wake.after = nil
    near(0.25, wakes.of_messages(1, about)) -- the work of a message is left in any case
    near(3, wakes.of_messages(3 * 2 * 3 + 2 * 2, { ranks = 3, cores = 1, messages = 2, wake = wake, message = 0 }))
  end)
end)
