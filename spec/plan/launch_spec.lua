-- Replays in which a thread of the host launches what a device does, against sums on paper and against the queue as a
-- plain loop. Times are sums of a few terms in f64, so 1e-9 holds with room.
local core = require "ganymede.core"
local machine = require "ganymede.plan.machine"
local support = require "spec.plan.support"

local link = { { name = "net", kind = "switch", bandwidth = 50, latency = 0.125 } }

local function on(host, fields)
  local m = support.machine(link, fields)
  m.host_launch = host
  return m
end

local function ops(list)
  local out = {}
  for i, seconds in ipairs(list) do out[i] = { "op", seconds } end
  return out
end

local function simulate(m, events, options, ranks)
  local axes, roles = ranks and { { "data", ranks } } or {}, {}
  for i = 1, ranks or 1 do roles[i] = 1 end
  return core.simulate(m, { support.step(0, axes, events) }, roles, options)
end

-- Each op begins when it is launched and the one before has ended.
local function queue(list, launch)
  local host, device = 0, 0
  for _, seconds in ipairs(list) do
    host = host + launch
    device = math.max(device, host) + seconds
  end
  return device
end

describe("ops that a host launches", function()
  it("take what the launches take where they are small, and their work where it is large", function()
    local small = simulate(on { op = 3, between = 0 }, ops { 1, 1, 1, 1 })
    assert.near(4 * 3 + 1, small.seconds, 1e-9)
    assert.near(9, small.ranks[1].launching, 1e-9)
    assert.near(4, small.ranks[1].busy, 1e-9)
    assert.near(2 + 4 * 5, simulate(on { op = 2, between = 0 }, ops { 5, 5, 5, 5 }).seconds, 1e-9)
    -- the third is long: what comes after it has been launched when it ends
    assert.near(9 + 10 + 2, simulate(on { op = 3, between = 0 }, ops { 1, 1, 10, 1, 1 }).seconds, 1e-9)
    assert.near(4, simulate(on(nil), ops { 1, 1, 1, 1 }).seconds, 1e-9)
  end)

  it("are a queue, one by one, in runs, and on a slower rank", function()
    for turn = 1, 6 do
      local list, double = {}, {}
      for i = 1, 20 do
        list[i] = 1 + (i * i * turn) % 7
        double[i] = 2 * list[i]
      end
      local m = on { op = turn, between = 0 }
      assert.near(queue(list, turn), simulate(m, ops(list)).seconds, 1e-9)
      assert.near(queue(list, turn), simulate(m, ops(list), { spans = 1 }).seconds, 1e-9)
      assert.near(queue(double, turn), simulate(m, ops(list), { slower = { [0] = 2 } }).seconds, 1e-9)
    end
  end)

  it("let an operation between ranks begin when it has been launched", function()
    local m = on { op = 3, between = 4 }
    local events = { { "op", 1 }, { "begin", "all_reduce", "data", 100 }, { "op", 1 }, { "wait", 1 }, { "op", 1 } }
    -- launched at 3, 7, 10, 13. The ring of two takes 2 hops and 100 bytes; the second op ends at 11
    local found = simulate(m, events, nil, 2)
    assert.near(13 + 1, found.seconds, 1e-9)
    assert.near(3 + 3 + 3 + 2, found.ranks[1].launching, 1e-9)
    events[2][4] = 1000
    assert.near(7 + 0.25 + 20 + 1, simulate(m, events, nil, 2).seconds, 1e-9)
    local alone = simulate(m, events, { unfolded = true }, 2)
    assert.equal(simulate(m, events, nil, 2).seconds, alone.seconds)
  end)

  it("of a recorded step are launched at once, while the device does the step before", function()
    local m = on { op = 3, between = 0, recorded = 6 }
    assert.near(8, simulate(m, ops { 4, 4 }, { recorded = true }).seconds, 1e-9)
    assert.near(6, simulate(m, ops { 1, 1 }, { recorded = true }).seconds, 1e-9)
  end)

  it("are described by the files of machines with GPUs, and refused in other words", function()
    for _, name in ipairs { "dgx_a100_80g", "dgx_h100", "dgx_h200", "gb200_nvl72", "pcie_8x" } do
      local m = machine.read(name)
      assert.is_true(m.host_launch.op > m.launch and #m.host_launch.source > 10, name)
    end
    local ok, why = pcall(support.machine, link, { host_launch = { op = 1, betwixt = 1 } })
    assert.is_false(ok)
    assert.truthy(tostring(require("ganymede.base.failure").text(why)):find("betwixt", 1, true))
  end)
end)
