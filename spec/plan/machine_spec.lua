-- Files of machines: what ships is complete and has sources; what is wrong is refused at its place; measuring.
local json = require "ganymede.base.json"
local fits = require "ganymede.plan.fits"
local machine = require "ganymede.plan.machine"
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
      for key, source in pairs(given.sources) do -- pages of the project, not those of a site
        for path in source:gmatch "%f[%w_/](%a+/[%w_]+%.md)" do
          assert.equal(path, shell.lines("ls " .. path)[1], key)
        end
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
    { "a start below 0", { products = { { start = -1, points = { { 1, 1 } } } } }, "start" },
    { "a bandwidth of 0", { products = { { bandwidth = 0, points = { { 1, 1 } } } } }, "bandwidth" },
    { "no rates", { products = {} }, "products: a machine has 1 to 64" },
    { "a link of an unknown kind", { links = { level { kind = "string" } } }, "links%[1%]" },
    { "units that do not fit", { links = { level { ranks = 4 }, level { ranks = 6 } } }, "links%[2%].ranks: each" },
    { "a level that holds all inside another", { links = { level {}, level {} } }, "links%[1%].ranks: each level" },
    { "a torus of another size", { links = { level { kind = "torus", ranks = 8, dims = { 2, 2 } } } }, "ply to 4" },
    { "a torus without a size", { links = { level { kind = "torus", ranks = 8 } } }, "a torus has 1 to 3" },
    { "an efficiency above 1", { efficiency = { all_reduce = 1.5 } }, "efficiency.all_reduce: a number above 0" },
    { "a peak that is no number", { peak = { bf16 = "fast" } }, "peak.bf16: a number above 0" },
    { "a disk without writes", { disk = {} }, "disk" },
    { "a time without end", { launch = 1e300 }, "launch.*at most 1000000000" },
    { "a rate that takes forever", { products = { { points = { { 8, 1e-300 } } } } }, "point 1 must be" },
    { "a point of three numbers", { moves = { { points = { { 1, 2, 3 } } } } }, "point 1 must be" },
    { "more ranks of a node than a number holds", { ranks_per_node = 1e15 }, "ranks_per_node.*at most 2147483647" },
    { "a link in place of links", { links = { name = "x" } }, "links: a list was expected, and it has the name" },
    { "a rate in place of rates", { moves = { points = { { 1, 1 } } } }, "moves: a list was expected" },
    { "an op that does not exist", { products = { { op = "matmull", points = { { 1, 1 } } } } },
      "products%[1%].op: there is no op 'matmull' %(did you mean 'matmul'" },
    { "a dtype that does not exist", { peak = { fp32 = 1e12 } }, "peak: there is no dtype 'fp32' %(did you mean" },
    { "an efficiency of no operation", { efficiency = { all_reducee = 0.5 } },
      "efficiency: there is no operation between ranks 'all_reducee'" },
    { "a long name of a link", { links = { level { name = ("n"):rep(40) } } }, "links%[1%].name: at most 31" },
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
    local a, b = fits.line(points)
    assert.near(3e-6, a, 1e-15) -- of exact times the fit is exact but for rounding
    assert.near(1 / 4e9, b, 1e-19)
    a = fits.line { { 10, 1 }, { 20, 2.5 } } -- a line that begins below 0
    assert.equal(0, a)
  end)

  it("takes the mean of the calls near a size, without the slowest tenth", function()
    local calls = {}
    for i = 1, 10 do calls[i] = { op = "add", dtype = "f32", bytes = 1000, seconds = i < 10 and i or 1e3 } end
    calls[11] = { op = "add", dtype = "f32", bytes = 1e6, seconds = 1 }
    calls[12] = { op = "copy", dtype = "u8", bytes = 10, seconds = 5 }
    calls[13] = { op = "add", dtype = "f32", bytes = 0, seconds = 5 } -- says nothing of bytes
    local rates = fits.rates(calls, "bytes", "bytes", function(call) return call.op == "add" end)
    assert.equal(1, #rates)
    assert.equal("add", rates[1].op)
    assert.same({ 1000, 1e6 }, { rates[1].points[1][1], rates[1].points[2][1] })
    assert.near(1000 / 5, rates[1].points[1][2], 1e-10) -- 5: the mean of 1 to 9
    assert.near(1e6, rates[1].points[2][2], 1e-6)
  end)

  it("finds what products take beside their rates, in times that have it", function()
    local calls, rates = {}, { [16] = 2e10, [64] = 5e10, [256] = 8e10 }
    for i, size in ipairs { 16, 64, 256 } do
      for _, times in ipairs { 1, 7, 60 } do
        for _, more in ipairs { 1, 3 } do
          local products, bytes = 1e4 * size * times, 900 * size * more
          calls[#calls + 1] = { op = "linear", dtype = "f32", size = size, products = products, bytes = bytes,
            seconds = 6e-6 + bytes / 4e9 + products / rates[size] }
        end
      end
      calls[#calls + 1] = { op = "add", dtype = "f32", size = 0, products = 0, bytes = i, seconds = 1 }
    end
    local found = fits.products(calls)
    assert.equal(1, #found)
    assert.equal("linear", found[1].op)
    assert.near(6e-6, found[1].start, 6e-9) -- the descent stops before the last digits
    assert.near(4e9, found[1].bandwidth, 4e6)
    for i, size in ipairs { 16, 64, 256 } do
      assert.equal(size, found[1].points[i][1])
      assert.near(rates[size], found[1].points[i][2], 1e-3 * rates[size])
    end
  end)

  it("gives products of few rows a rate of their own, and one to all that are smaller", function()
    local calls, rates = {}, { [8] = 1e10, [16] = 1e10, [32] = 3e10, [64] = 6e10 }
    for size, rate in pairs(rates) do
      for _, times in ipairs { 10, 100 } do
        local products = 1e4 * size * times
        calls[#calls + 1] = { op = "linear", dtype = "f32", size = size, products = products, bytes = 1,
          seconds = products / rate }
      end
    end
    local points = fits.products(calls)[1].points
    assert.equal(3, #points)
    for i, size in ipairs { 12, 32, 64 } do -- 12: in the middle of 8 and 16
      assert.equal(size, points[i][1])
      assert.near(rates[size] or 1e10, points[i][2], 1e7)
    end
  end)

  it("takes no product to be much faster than the fastest, and no time to be below 0", function()
    local calls = {}
    for i, seconds in ipairs { 4e-6, 2e-6 } do -- more products in less time
      calls[i] = { op = "matmul", dtype = "f32", size = 64, products = 1e5 * i, bytes = 1e4 * i, seconds = seconds }
    end
    local rate = fits.products(calls)[1]
    assert.near(1.25 * 2e5 / 2e-6, rate.points[1][2], 1) -- a quarter above the rate of the second
    assert.is_true(rate.start > 0)
    assert.is_nil(rate.bandwidth)
    assert.near(1e11, fits.largest(calls), 1)
    local x = fits.least_squares({ { 1, 1 }, { 1, 2 } }, { 0, 0.25 }) -- 1, 0 would fit
    assert.near(0.625, x[1], 1e-12)
    assert.equal(0.25, x[2])
  end)

  it("takes the rates of all ops beyond the sizes at which an op was measured", function()
    local function rate(op, points) return { op = op, dtype = "f32", points = points } end
    local any = rate("*", { { 10, 1e6 }, { 1000, 1e8 }, { 1e6, 1e10 } })
    local rates = { rate("fill", { { 4, 5e5 } }), rate("copy", { { 1000, 3e8 }, { 6e5, 2e10 } }) }
    fits.extend(rates, any)
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
