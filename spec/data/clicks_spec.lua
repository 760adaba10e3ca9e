--- Datasets of clicks: logs line by line, what is refused and by which line; made-up ones, their law and their draws.
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local log = require "ganymede.base.log"
local make = require "spec.data.made"
local mutate = require "spec.support.mutate"
local shell = require "spec.support.shell"

local folder
setup(function() folder = shell.temporary_folder() end)
teardown(function() shell.remove(folder) end)

local function write(text, name) return shell.write(folder .. "/" .. (name or "day"), text) end

local function samples(dataset)
  local out = {}
  for i = 1, dataset:length() do
    local x, y = dataset:get(i)
    out[i] = { y:item(), x:totable() }
  end
  return out
end

local function refused(text, pattern)
  local ok, err = pcall(data.ClickLog, { path = write(text), dense = 2, tables = 2, rows = { 10, 7 } })
  assert.is_false(ok)
  assert.matches(pattern, failure.text(err))
end

describe("ClickLog", function()
  it("reads labels, counts and categories, of which it takes remainders", function()
    local first = write("1\t5\t-1\t68fd1e64\ta\n0\t\t12\t\tffffffff\r\n", "a")
    local second = write("0\t2147483647\t0\t0000000b\t7\n", "b")
    local dataset = data.ClickLog { path = { first, second }, dense = 2, tables = 2, rows = { 10, 7 } }
    assert.same({
      { 1, { 5, -1, 0x68fd1e64 % 10, 3 } }, { 0, { 0, 12, 0, 0xffffffff % 7 } }, { 0, { 2147483647, 0, 1, 0 } },
    }, samples(dataset))
    local about = dataset:describe()
    assert.same({ "i64", { 4 }, 2, 3 }, { about.x_dtype, about.x_shape, about.classes, about.length })
    assert.same(samples(dataset), samples(data.ClickLog { path = { first, second }, dense = 2, tables = 2,
      rows = { 10, 7 }, damaged = "skip" }))
  end)

  it("has the shape of Criteo's logs unless it is told otherwise", function()
    local line = "1" .. ("\t3"):rep(13) .. ("\tff"):rep(26) .. "\n"
    local x, y = data.ClickLog({ path = write(line), rows = 100 }):get(1)
    assert.same({ 39 }, x:shape())
    assert.equal(1, y:item())
    assert.equal(255 % 100, x:totable()[39])
  end)

  it("reads gzipped logs, also several streams in one, and says where a gzipped one is cut or damaged", function()
    local line = "1\t5\t-1\t68fd1e64\ta\n"
    local plain = write(line:rep(9000), "plain")
    local options = function(path) return { path = path, dense = 2, tables = 2, rows = { 10, 7 } } end
    local zipped = make.gzip(folder .. "/zipped", line:rep(9000))
    assert.same(samples(data.ClickLog(options(plain))), samples(data.ClickLog(options(zipped))))
    local bytes = shell.read(zipped)
    local twice = data.ClickLog(options(write(bytes .. bytes, "no_ending_says_so")))
    assert.equal(18000, twice:length())
    local function fails(content, pattern)
      local ok, err = pcall(data.ClickLog, options(write(content, "bad.gz")))
      assert.is_false(ok)
      assert.matches(pattern, failure.text(err))
      assert.equal(5, failure.code(err))
    end
    fails(bytes:sub(1, 60), "/bad%.gz: the gzip stream ends early, after %d+ inflated bytes; fetch it again")
    fails(bytes:sub(1, -9) .. "\1\2\3\4" .. bytes:sub(-4), "/bad%.gz: damaged gzip data near .*data check")
  end)

  it("names the line and the field that it cannot read", function()
    local good = "1\t1\t2\t3\t4\n"
    refused(good .. "2\t1\t2\t3\t4\n", "day: line 2, field 1: '2' is no label")
    refused(good .. good .. "1\t1.5\t2\t3\t4\n", "line 3, field 2: '1.5' is no whole number")
    refused("1\t1\t0x2\t3\t4\n", "line 1, field 3: '0x2' is no whole number")
    refused("1\t1\t2147483648\t3\t4\n", "field 3: '2147483648' needs more than 32 bits")
    refused("1\t1\t2\t3g\t4\n", "field 4: '3g' is no hexadecimal number")
    refused("1\t1\t2\t3\t-4\n", "field 5: '%-4' is no hexadecimal number")
    refused("1\t1\t2\t3\t1234567890abcdef0\n", "field 5: '1234567890abcdef0' is no hexadecimal number")
    refused(good .. "1\t1\t2\t3\n", "line 2 has 4 fields, should have 5: a label, 2 counts, 2 categories")
    refused("", "no line is left")
    assert.error_matches(function() data.ClickLog { path = "x", tables = 2, rows = { 3 } } end, "rows lists 1 tables")
    for _, class in ipairs { "ClickLog", "TextPairs", "WebDataset", "CSV", "JSONL" } do
      for said, path in pairs { ["path is an empty list"] = {}, ["entry 2 of it is true"] = { "x", true },
                                ["a list has no field 'file'"] = { file = "x" } } do
        local given = { path = path }
        if class == "ClickLog" then given.rows = 3 elseif class == "WebDataset" then given.classes = 2 end
        if class == "CSV" or class == "JSONL" then given.x, given.y = { "a" }, "b" end
        assert.error_matches(function() data[class](given) end, class .. ": .*" .. said)
      end
    end
    assert.error_matches(function() data.ClickLog { path = "x", tables = 1, rows = { 0 } } end, "rows%[1%] must be")
  end)

  it("leaves out what it cannot read, if it is told to, and says how many", function()
    local said = {}
    local warn = log.warn
    log.warn = function(fmt, ...) said[#said + 1] = fmt:format(...) end
    finally(function() log.warn = warn end)
    local path = write "1\t1\t2\t3\t4\n7\n0\t1\t2\t3\t4\n1\tx\t2\t3\t4\n"
    local dataset = data.ClickLog { path = path, dense = 2, tables = 2, rows = 5, damaged = "skip" }
    assert.equal(2, dataset:length())
    assert.equal(2, dataset:describe().left_out)
    assert.matches("ClickLog: 2 lines are left out .* line 2 has 1 fields", table.concat(said, "\n"))
  end)

  it("survives a seeded fuzzer", function()
    local good = "1\t5\t-1\t68fd1e64\ta\n0\t\t12\t\tffffffff\n0\t3\t4\tb\tc\n"
    local count, accepted = mutate.count(200), 0
    local function try(path)
      for _, sample in ipairs(samples(data.ClickLog { path = path, dense = 2, tables = 2, rows = { 10, 7 } })) do
        local x = sample[2]
        assert(x[3] >= 0 and x[3] < 10 and x[4] >= 0 and x[4] < 7, "a category outside of its table")
      end
    end
    mutate.bounded(2 ^ 28, function()
      for i = 1, count do
        local path = write(mutate.bytes(mutate.random(71000003 + i), good), "fuzz")
        local ok, err = pcall(gm.scope, try, path)
        accepted = accepted + (ok and 1 or 0)
        assert(ok or mutate.is_clear(failure.text(err), "fuzz"), ("file %d: %s"):format(i, failure.text(err or "")))
      end
    end)
    assert.is_true(accepted > 0 and accepted < count)
  end)
end)

describe("Clicks", function()
  local rows = { 50, 8 }

  local function made(opt)
    opt.dense, opt.rows, opt.length = opt.dense or 2, rows, opt.length or 400
    return samples(data.Clicks(opt))
  end

  it("are counts, rows of the tables, and labels, the same for the same seed", function()
    local list, ones, largest, zeros = made {}, 0, { 0, 0 }, 0
    assert.same(list, made {})
    for _, sample in ipairs(list) do
      ones = ones + sample[1]
      for t = 1, 2 do
        local v = sample[2][2 + t]
        assert.is_true(v >= 0 and v < rows[t] and v % 1 == 0)
        largest[t] = math.max(largest[t], v)
        assert.is_true(sample[2][t] >= 0)
        zeros = zeros + (sample[2][t] == 0 and 1 or 0)
      end
    end
    assert.is_true(ones > 60 and ones < 240, ones)
    assert.is_true(largest[1] > 40 and largest[2] == 7)
    assert.is_true(zeros > 40 and zeros < 160, zeros) -- one in ten, and small ones
  end)

  it("follow one law in training and test, another for another seed", function()
    -- How often rows of table 2 are clicked, by row.
    local function rates(opt)
      opt.length, opt.signal = 6000, 6
      local n, clicks = {}, {}
      for _, sample in ipairs(made(opt)) do
        local v = sample[2][4]
        n[v], clicks[v] = (n[v] or 0) + 1, (clicks[v] or 0) + sample[1]
      end
      for v in pairs(n) do clicks[v] = clicks[v] / n[v] end
      return clicks
    end
    local function distance(a, b)
      local most = 0
      for v = 0, 7 do most = math.max(most, math.abs(a[v] - b[v])) end
      return most
    end
    local train = rates {}
    -- a rate of some 250 clicks is within 4 * sqrt(0.25 / 250) = 0.13 of the true one; two differ by less than 0.18
    assert.is_true(distance(train, rates { split = "test" }) < 0.18)
    assert.is_true(distance(train, rates { seed = 1 }) > 0.25)
    assert.not_same(made {}, made { split = "test" })
  end)
end)
