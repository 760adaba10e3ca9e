--- Rows of files of separated values: quotes, missing values by each rule, refused rows by their lines, hostile files.
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

local function write(text, name) return shell.write(folder .. "/" .. (name or "t.csv"), text) end

-- All rows of x, and all y.
local function rows(opt)
  local dataset = data.CSV(opt)
  local xs, ys = {}, {}
  for i = 1, dataset:length() do
    local x, y = dataset:get(i)
    xs[i], ys[i] = x:totable(), y:item()
  end
  return xs, ys, dataset
end

local function refused(text, opt, ...)
  opt.path = write(text)
  local ok, err = pcall(rows, opt)
  assert.is_false(ok)
  local message = failure.text(err)
  assert(message:find("t.csv", 1, true), message)
  for _, pattern in ipairs { ... } do assert(message:find(pattern), message) end
end

describe("CSV", function()
  it("takes columns by name, numbers and values, from files in their order", function()
    local a = write("\239\187\191id,colour,size,y\r\n1,red,1e3,0\r\n2,\"blue\",-2.5,2\r\n\r\n3, red ,7,1", "a.csv")
    local b = write("size;y;colour\n0.125;1;blue\n", "b.csv")
    local opt = { path = a, x = { "size", { name = "colour", values = { "blue", "red" } } }, y = "y", classes = 3 }
    local x, y, dataset = rows(opt)
    assert.same({ { 1000, 1 }, { -2.5, 0 }, { 7, 1 } }, x)
    assert.same({ 0, 2, 1 }, y)
    assert.same({ 3, { 2 } }, { dataset:describe().classes, dataset:describe().x_shape })
    opt.path, opt.delimiter = b, ";"
    assert.same({ { 0.125, 0 } }, (rows(opt)))
    opt.path, opt.delimiter = { a, write("y,size,colour\n2,5,red\n", "c.csv") }, nil
    x, y = rows(opt)
    assert.same({ { 7, 1 }, { 5, 1 } }, { x[3], x[4] })
    assert.equal(2, y[4])
  end)

  it("reads quotes with delimiters, line ends and quotes in them, and names the lines behind them", function()
    local text = 'a,b\n"x,\ny",1\n"say ""hi""",2\n"",3\n'
    local values = { "x,\ny", 'say "hi"', "" }
    local x = { { name = "a", values = values }, "b" }
    assert.same({ { 0, 1 }, { 1, 2 }, { 2, 3 } }, (rows { path = write(text), x = x }))
    x = { { name = "a", values = values } }
    refused(text .. "z,4\n", { x = x }, "line 6, column 'a': 'z' is none of its values")
  end)

  it("reads gzipped files, and refuses one that grows while it is read", function()
    local plain = write("a,y\n" .. ("1.5,1\n2.5,0\n"):rep(6000), "plain.csv")
    local zipped = make.gzip(folder .. "/zipped.csv", "\239\187\191" .. shell.read(plain))
    local x = { x = { "a" }, y = "y", path = plain }
    local xs, ys = rows(x)
    x.path = zipped
    local xs_again, ys_again = rows(x)
    assert.same({ xs, ys }, { xs_again, ys_again })
    local ok, err = pcall(data.CSV, { path = "/proc/self/status", x = { "a" } }) -- its size is 0 before it is read
    assert.is_false(ok)
    assert.matches("became longer while in use: it had 0 bytes, and %d+ were read", failure.text(err))
  end)

  it("has real targets and no header where asked", function()
    local path = write("1,2,0.5\n3,4,-0.25\n")
    local loader = data.loader { batch_size = 2, dtype = "f64", prefetch = 0,
      dataset = { type = "CSV", path = path, header = false, x = { "2", "1" }, y = "3" } }
    local x, y = loader:next()
    assert.same({ { 2, 1 }, { 4, 3 } }, x:totable())
    assert.same({ 0.5, -0.25 }, y:totable())
    assert.equal("f64", y:dtype())
    loader:close()
  end)

  it("has a rule for what is missing in each column", function()
    local text = "a,b,c\n1,,x\n,4,\n3,NA,y\n8,nan,x\n"
    local c = { name = "c", values = { "x", "y" }, missing = 9 }
    local x, _, dataset = rows { path = write(text),
      x = { { name = "a", missing = "mean" }, { name = "b", missing = -1 }, c } }
    assert.same({ { 1, -1, 0 }, { 4, 4, 9 }, { 3, -1, 1 }, { 8, -1, 0 } }, x)
    local a = dataset:describe().columns[1]
    assert.same({ name = "a", present = 3, missing = 1, least = 1, most = 8, mean = 4 }, a)
    x, _, dataset = rows { path = write(text), x = { { name = "a", missing = "drop" }, { name = "b", missing = 0 } } }
    assert.same({ { 1, 0 }, { 3, 0 }, { 8, 0 } }, x)
    assert.equal(1, dataset:describe().left_out)
    refused(text, { x = { "a" } },
      "line 3, column 'a': '' is missing, and the column has no rule for that %(missing: a number, \"mean\"")
    refused("a\nNA\n", { x = { { name = "a", missing = "mean" } } }, "column 'a' has no value at all, and so no mean")
  end)

  it("refuses rows by file, line and column, or leaves them out where asked, and says how many", function()
    local text = "a,b\n1,2\n1,x\n3\n4,5\n1e999,3\n0x10,3\n"
    refused(text, { x = { "a", "b" } }, "line 3, column 'b': 'x' is no number; a column of texts has a list of values")
    refused("a,b\n1,2\n3\n", { x = { "a" } }, "line 3 has 1 fields, the first row 2")
    refused("a,b\n1,2\n", { x = { "a" }, y = "b", classes = 2 }, "line 2, column 'b': '2' is no class")
    local said, warn = {}, log.warn
    log.warn = function(fmt, ...) said[#said + 1] = fmt:format(...) end
    local ok, x = pcall(rows, { path = write(text), x = { "a", "b" }, damaged = "skip" })
    log.warn = warn
    assert(ok, x)
    assert.same({ { 1, 2 }, { 4, 5 } }, x)
    assert(said[1]:find "4 rows are left out", said[1])
    assert(said[1]:find "line 3, column 'b'", said[1])
  end)

  it("refuses files and settings that cannot be", function()
    refused('a\n1\n"2\n3\n', { x = { "a" } }, "line 3: a quote is opened here and never closed")
    refused('a,b\n"1"x,2\n', { x = { "a" } }, "line 2: there is text behind a closing quote")
    refused("a\n1\0\n", { x = { "a" } }, "line 2: has a byte 0")
    refused("", { x = { "a" } }, "is empty")
    refused("a,b\n", { x = { "a" } }, "no row is left")
    refused("a,a\n1,2\n", { x = { "a" } }, "two columns 'a'")
    refused("a\n1\n", { x = { "c" } }, "has no column 'c'; its first line names 'a'")
    refused("a,b\n1,2\n", { x = { "c" } }, "its first line names 'a', 'b'")
    refused(("n"):rep(150) .. "," .. ("m"):rep(150) .. "\n1,2\n", { x = { "c" } },
      "its first line names '" .. ("n"):rep(150) .. "', ...")
    refused("1\n", { x = { "2" }, header = false }, "has no column '2'; without a header they are 1, 2")
    refused(("a,"):rep(100001) .. "\n", { x = { "a" } }, "too many fields")
    assert.error_matches(function() data.CSV { path = "x", x = {} } end, "x is an empty list")
    assert.error_matches(function() data.CSV { path = "x", x = { { name = "a", mising = 1 } } } end, "missing")
    assert.error_matches(function() data.CSV { path = "x", x = { { name = "a", missing = "median" } } } end,
      "\"mean\", \"drop\" or \"refuse\" is possible")
    assert.error_matches(function() data.CSV { path = "x", x = { "a" }, delimiter = "ab" } end, "is one byte")
    assert.error_matches(function() data.CSV { path = folder .. "/none.csv", x = { "a" } } end, "cannot be opened")
  end)

  it("survives a seeded fuzzer", function()
    local good = 'a,b,c\n1,"x ""y""\n",3\n-4.5,z,\n6,"",7e3\n'
    local count, accepted = mutate.count(200), 0
    mutate.bounded(2 ^ 28, function()
      for i = 1, count do
        local path = write(mutate.bytes(mutate.random(91000003 + i), good), "fuzz.csv")
        local x = { { name = "a", missing = 0 }, { name = "c", missing = 1 } }
        local ok, err = pcall(gm.scope, rows, { path = path, x = x })
        accepted = accepted + (ok and 1 or 0)
        assert(ok or mutate.is_clear(failure.text(err), "fuzz.csv"), ("file %d: %s"):format(i, failure.text(err or "")))
      end
    end)
    assert(accepted < count)
  end)
end)
