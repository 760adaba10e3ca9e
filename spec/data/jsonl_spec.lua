--- Rows of files of JSON objects: keys, places in lists, missing values by each rule, refused lines, hostile files.
local core = require "ganymede.core"
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local log = require "ganymede.base.log"
local make = require "spec.data.made"
local mutate = require "spec.support.mutate"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local folder
setup(function() folder = shell.temporary_folder() end)
teardown(function() shell.remove(folder) end)

local function write(text) return shell.write(folder .. "/t.jsonl", text) end

-- All rows of x, all y, and the dataset.
local function rows(text, opt)
  opt.path = write(text)
  local dataset = data.JSONL(opt)
  local xs, ys = {}, {}
  for i = 1, dataset:length() do
    local x, y = dataset:get(i)
    xs[i], ys[i] = x:totable(), y:item()
  end
  return xs, ys, dataset
end

local function refused(text, opt, ...)
  local ok, err = pcall(rows, text, opt)
  assert.is_false(ok)
  local message = failure.text(err)
  assert(message:find("t.jsonl", 1, true), message)
  for _, part in ipairs { ... } do assert(message:find(part, 1, true), message) end
end

describe("JSONL", function()
  it("takes keys, keys of inner objects and places in lists", function()
    local text = '\239\187\191{"a": 1.5, "b": {"c": -2e3, "d": [7, {"e": 8}]}, "kind": "red", "y": 2}\r\n\n' ..
      '  {"y": 0, "kind": "blue", "b": {"d": [9, {"e": 10}, 11], "c": "4"}, "a": 12345678901234567890}'
    local x, y, dataset = rows(text, { y = "y", classes = 3,
      x = { "a", "b.c", "b.d.1", "b.d.2.e", { name = "kind", values = { "blue", "red" } } } })
    assert.same({ { 1.5, -2000, 7, 8, 1 }, { 12345678901234567890, 4, 9, 10, 0 } }, x)
    assert.same({ 2, 0 }, y)
    assert.equal("b.d.2.e", dataset:describe().columns[4].name)
    assert.same({ { 3, 1 } }, (rows('{"a.b": 3, "a": {"b": 4, "c.d": 1}}', { x = { "a.b", "a.c.d" } })))
  end)

  it("reads lines across the pieces of a file, gzipped or not", function()
    local lines = {}
    for i = 1, 3000 do lines[i] = ('{"pad": "%s", "a": %d}'):format(("x"):rep(i % 97), i) end
    local text = table.concat(lines, "\n")
    local xs = rows(text, { x = { "a" } })
    for i = 1, 3000 do assert.equal(i, xs[i][1]) end
    local zipped = data.JSONL { path = make.gzip(folder .. "/z.jsonl", text), x = { "a" } }
    assert.equal(3000, zipped:length())
    assert.equal(2999, zipped:get(2999):item())
  end)

  it("takes the places of a list as columns", function()
    local text = '{"v": [1, 2, 3], "on": true}\n{"v": [4, 5], "on": false}\n'
    local x, y = rows(text, { x = { { name = "v", length = 3, missing = "mean" } },
      y = { name = "on", values = { "false", "true" } } })
    assert.same({ { 1, 2, 3 }, { 4, 5, 3 } }, x)
    assert.same({ 1, 0 }, y)
    refused(text, { x = { { name = "v", length = 3 } } }, "line 2, column 'v.3': '' is missing")
  end)

  it("knows null and what is not there as missing, by the rule of the column", function()
    local text = '{"a": 1, "b": null}\n{"a": 3, "b": 5}\n{"b": 6}\n'
    local x, _, dataset = rows(text, { x = { { name = "a", missing = -1 }, { name = "b", missing = "mean" } } })
    assert.same({ { 1, 5.5 }, { 3, 5 }, { -1, 6 } }, x)
    assert.equal(1, dataset:describe().columns[1].missing)
    local both = { { name = "a", missing = "drop" }, { name = "b", missing = "drop" } }
    assert.same({ { 3, 5 } }, (rows(text, { x = both })))
    refused(text, { x = { "b" } }, "line 1, column 'b': '' is missing")
    for _, rule in ipairs { 0, "mean" } do -- a key that was misspelt
      refused(text, { x = { { name = "bb", missing = rule } } }, "no object has a value 'bb'")
    end
  end)

  it("refuses lines by their numbers, or leaves them out", function()
    local cases = {
      { '{"a": 1', "line 2: " }, { "[1]", "line 2: is no object" }, { '{"a": 1, "a": 2}', "line 2: duplicate" },
      { '{"a": [1]}', "line 2, column 'a': is a list", '"a.1"' }, { '{"a": {}}', "column 'a': is an object" },
      { '{"a": "x"}', "column 'a': 'x' is no number" }, { '{"a": true}', "'true' is no number" },
      { '{"a": 1e999}', "line 2: " }, { '{"a": "\\u0000"}', "line 2: " }, { '{"a": 1} {"a": 2}', "line 2: " },
      { '\0', "line 2: " },
    }
    for _, case in ipairs(cases) do
      local text = '{"a": 1}\n' .. case[1] .. '\n{"a": 3}'
      refused(text, { x = { "a" } }, unpack(case, 2))
      local warn, said = log.warn, nil
      log.warn = function(fmt, ...) said = fmt:format(...) end
      local ok, x = pcall(rows, text, { x = { "a" }, damaged = "skip" })
      log.warn = warn
      assert(ok, x)
      assert.same({ { 1 }, { 3 } }, x)
      assert(said:find("1 rows are left out", 1, true) and said:find("line 2", 1, true), said)
    end
    refused("", { x = { "a" } }, "is empty")
    refused("\n \n", { x = { "a" } }, "no row is left")
  end)

  it("refuses options that are wrong", function()
    local path = write '{"a": 1}\n'
    for _, case in ipairs {
      { { x = {} }, "x is an empty list" }, { { x = { 1 } }, "column 1 of x is neither" },
      { { x = { "a" }, y = { name = "a", length = 2 } }, "y is one number" },
      { { x = { { name = "a", length = 0 } } }, "length" }, { { x = { { name = "a", missing = "some" } } }, "missing" },
      { { x = { "a" }, delimiter = ";" }, "delimiter" },
    } do
      case[1].path = path
      local ok, err = pcall(data.JSONL, case[1])
      assert.is_false(ok)
      assert(failure.text(err):find(case[2], 1, true), failure.text(err))
    end
  end)

  it("passes a line that is too long #slow", function()
    local path = write '{"a": 1}\n'
    local file = io.open(path, "a")
    file:write '{"a": "'
    local piece = ("x"):rep(2 ^ 20)
    for _ = 1, 65 do file:write(piece) end
    file:write '"}\n{"a": 3}\n'
    file:close()
    local ok, err = pcall(data.JSONL, { path = path, x = { "a" } })
    assert.is_false(ok)
    assert.matches("line 2: has more than 64 MiB", failure.text(err))
    assert.equal(2, data.JSONL({ path = path, x = { "a" }, damaged = "skip" }):length())
  end)

  it("survives a seeded fuzzer", function()
    local good = '{"a": 1, "b": {"c": [1, 2, "three"]}, "d": "x"}\n{"a": 2, "b": {"c": [4]}, "d": null}\n'
    local count, accepted = mutate.count(200), 0
    mutate.bounded(2 ^ 28, function()
      for i = 1, count do
        local x = { { name = "a", missing = 0 }, { name = "b.c.1", missing = 0 } }
        local ok, err = pcall(gm.scope, rows, mutate.bytes(mutate.random(91000004 + i), good), { x = x })
        accepted = accepted + (ok and 1 or 0)
        assert(ok or mutate.is_clear(failure.text(err), "t.jsonl"), ("file %d: %s"):format(i, failure.text(err or "")))
        core.table_look(folder .. "/t.jsonl")
      end
    end)
    assert(accepted < count)
  end)
end)

describe("ganymede data", function()
  local function told(text, ...)
    write(text)
    return run_host({ "data", "t.jsonl", ... }, { cwd = folder })
  end

  it("shows the keys of a .jsonl file, and what they hold", function()
    local result = told '{"a": 1, "b": {"c": "x"}}\n{"a": 4, "v": [1, 2]}\n{"b": {"c": "x"}, "a": null}\n'
    assert.equal(0, result.code, result.err)
    assert.matches("a table of 3 rows, 3 columns", result.out)
    assert.matches("\n%s*a%s+number%s+1%s+1%s+2.5%s+4%s", result.out)
    assert.matches("\n%s*b%.c%s+text%s+1%s+.*x %(2%)", result.out)
    assert.matches("\n%s*v%s+text%s+2%s+.*list of 2 %(1%)", result.out)
  end)

  it("refuses a delimiter, and names the line that is no object", function()
    local result = told("{}\n", "--delimiter", ";")
    assert.equal(2, result.code)
    assert.matches("without a %-%-delimiter", result.err)
    result = told "{}\nnope\n"
    assert.is_true(result.code ~= 0)
    assert.matches("t.jsonl: line 2", result.err)
  end)
end)
