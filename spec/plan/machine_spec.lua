-- Files of machines: what ships is complete and has sources; what is wrong is refused at its place; measuring.
local json = require "ganymede.base.json"
local machine = require "ganymede.plan.machine"
local measure = require "ganymede.plan.measure"
local support = require "spec.cli.support"
local shell = support.shell

local folder = GANYMEDE_ROOT .. "/lua/ganymede/plan/machines/"

describe("a machine that ships", function()
  it("is one of six", function()
    assert.same({ "cpu_ethernet", "dgx_a100_80g", "dgx_h100", "dgx_h200", "gb200_nvl72", "pcie_8x" }, machine.names())
  end)

  for _, name in ipairs(machine.names()) do
    it(name .. " is valid, and says where each of its numbers comes from", function()
      local given, m = json.decode(shell.read(folder .. name .. ".json"), name), machine.read(name)
      assert.equal(name, m.name)
      for key, value in pairs(given) do
        if type(value) == "number" and key ~= "version" or key == "peak" or key == "products" or key == "moves" then
          assert.is_string(given.sources[key], key .. " has no source")
        end
      end
      for i, link in ipairs(given.links) do
        assert.is_string(given.sources["links." .. link.name], link.name .. " has no source")
        assert.is_true(m.links[i].bandwidth > 0)
      end
    end)
  end
end)

describe("the file of a machine", function()
  local function changed(fields)
    local given = json.decode(shell.read(folder .. "dgx_h100.json"), "dgx_h100")
    for key, value in pairs(fields) do given[key] = value end
    return given
  end
  local function level(fields)
    local link = { name = "net", kind = "switch", bandwidth = 1, latency = 0 }
    for key, value in pairs(fields) do link[key] = value end
    return link
  end
  local wrong = {
    { "an unknown key", { speed = 1 }, "speed" },
    { "a missing one", { launch = json.null }, "launch" },
    { "a rate without points", { moves = { { points = {} } } }, "moves%[1%].points: a rate has 1 to 16" },
    { "sizes that do not ascend", { moves = { { points = { { 2, 1 }, { 2, 1 } } } } }, "point 2 must be" },
    { "no rates", { products = {} }, "products: a machine has 1 to 64" },
    { "a link of an unknown kind", { links = { level { kind = "string" } } }, "links%[1%]" },
    { "units that do not fit", { links = { level { ranks = 4 }, level { ranks = 6 } } }, "links%[2%].ranks: each" },
    { "a level that holds all inside another", { links = { level {}, level {} } }, "links%[1%].ranks: each level" },
    { "a torus of another size", { links = { level { kind = "torus", ranks = 8, dims = { 2, 2 } } } }, "ply to 4" },
    { "a torus without a size", { links = { level { kind = "torus", ranks = 8 } } }, "a torus has 1 to 3" },
    { "an efficiency above 1", { efficiency = { all_reduce = 1.5 } }, "efficiency.all_reduce: a number above 0" },
    { "a peak that is no number", { peak = { bf16 = "fast" } }, "peak.bf16: a number above 0" },
    { "a disk without writes", { disk = {} }, "disk" },
  }
  for _, case in ipairs(wrong) do
    it("refuses " .. case[1], function()
      assert.error_matches(function() machine.check(changed(case[2]), "mine.json") end, "mine.json.*" .. case[3])
    end)
  end

  it("that does not exist names those that ship", function()
    assert.error_matches(function() machine.read "dgx_h300" end, "dgx_h200, gb200_nvl72")
  end)
end)

describe("measuring", function()
  it("finds latency and bandwidth in times that have them", function()
    local points = {}
    for power = 10, 22, 2 do points[#points + 1] = { 2 ^ power, 3e-6 + 2 ^ power / 4e9 } end
    local a, b = measure.fit(points)
    assert.near(3e-6, a, 1e-15) -- of exact times the fit is exact but for rounding
    assert.near(1 / 4e9, b, 1e-19)
    a = measure.fit { { 10, 1 }, { 20, 2.5 } } -- a line that begins below 0
    assert.equal(0, a)
  end)

  it("takes the best quarter of calls near a size", function()
    local calls = {}
    for i = 1, 8 do calls[i] = { op = "add", dtype = "f32", bytes = 1000 + i, seconds = i } end
    calls[9] = { op = "add", dtype = "f32", bytes = 1e6, seconds = 1 }
    calls[10] = { op = "copy", dtype = "u8", bytes = 10, seconds = 5 }
    local rates = measure.rates(calls, "bytes", "bytes", function(call) return call.op == "add" end)
    assert.equal(1, #rates)
    assert.equal("add", rates[1].op)
    assert.same({ { 1004.5, 1003 / 3 }, { 1e6, 1e6 } }, rates[1].points)
  end)

  it("takes the rates of all ops beyond the sizes at which an op was measured", function()
    local function rate(op, points) return { op = op, dtype = "f32", points = points } end
    local any = rate("*", { { 10, 1e6 }, { 1000, 1e8 }, { 1e6, 1e10 } })
    local rates = { rate("fill", { { 4, 5e5 } }), rate("copy", { { 1000, 3e8 }, { 6e5, 2e10 } }) }
    measure.extend(rates, any)
    assert.same({ { 4, 5e5 }, { 10, 1e6 }, { 1000, 1e8 }, { 1e6, 1e10 } }, rates[1].points)
    assert.same({ { 1000, 3e8 }, { 6e5, 2e10 } }, rates[2].points) -- faster already, and nearly as large
  end)

  it("this machine gives a file that a simulation reads #slow", function()
    local home = support.home()
    local made = support.run(home, { "bench", "machine", "-n", "2", "--out", "here.json" })
    assert.equal(0, made.code, made.err)
    local m = machine.read(home .. "/here.json")
    assert.equal(2, m.ranks_per_node)
    assert.is_true(m.host_moves)
    local found = support.run(home, { "simulate", "recipe.lua", "-n", "2", "--machine", "here.json" })
    assert.equal(0, found.code, found.err)
  end)
end)
