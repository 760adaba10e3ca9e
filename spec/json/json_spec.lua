--- JSON: what goes through unchanged, and what is refused with a place.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

describe("json.encode", function()
  it("writes integers up to 2^53 without exponent or fraction", function()
    assert.equal("[0,-1,1000000,9007199254740992,-9007199254740992]",
      json.encode { 0, -1, 1e6, 2 ^ 53, -2 ^ 53 })
  end)

  it("gives every double back bit for bit", function()
    local state = 12345
    local function next_bits()
      state = (state * 16807) % 2147483647
      return state / 2147483647
    end
    local values = { 0.1, 1 / 3, 2 ^ -1074, 2 ^ 1023 * (2 - 2 ^ -52), 2 ^ 60, 1e21, -2 ^ -1022, 123456789.125 }
    for _ = 1, 2000 do values[#values + 1] = (next_bits() - 0.5) * 10 ^ math.floor(600 * next_bits() - 300) end
    local back = json.decode(json.encode(values))
    for i, v in ipairs(values) do assert.equal(v, back[i]) end
  end)

  it("keeps the sign of zero", function()
    assert.equal(-math.huge, 1 / json.decode(json.encode(-0.0)))
    assert.equal(math.huge, 1 / json.decode(json.encode(0)))
  end)

  it("writes what JSON cannot hold as strings", function()
    assert.equal('["nan","inf","-inf"]', json.encode { 0 / 0, 1 / 0, -1 / 0 })
  end)

  it("sorts names and indents", function()
    assert.equal('{"a":1,"b":{"c":[],"d":{}}}', json.encode { b = { d = {}, c = json.array {} }, a = 1 })
    assert.equal('{\n  "a": [\n    1\n  ],\n  "b": null\n}',
      json.encode({ b = json.null, a = { 1 } }, { indent = true }))
    assert.equal('{\n    "a": 1\n}', json.encode({ a = 1 }, { indent = 4 }))
  end)

  it("writes text with quotes, control characters and NUL so that it comes back", function()
    local text = "\"\\\n\t\0\1 \195\164 \240\159\140\145"
    assert.equal(text, json.decode(json.encode(text)))
  end)

  it("does not change the table it is given", function()
    local t = { 1, { a = json.array() } }
    json.encode(t)
    assert.same({ 1, { a = {} } }, t)
  end)

  local loop = {}
  loop.inner = { loop }
  local refused = {
    { "a cycle", loop, "json: inner%[1%]: the table contains itself" },
    { "a function", { f = { print } }, "json: f%[1%]: a function has no form in JSON" },
    { "a hole", { 1, 2, nil, 4 }, "holes: 3 values, last position 4" },
    { "list and names", { 1, a = 2 }, "both list positions and names" },
    { "a broken position", { [1.5] = 1 }, "no list position" },
    { "a boolean key", { [true] = 1 }, "a key is boolean" },
    { "bytes that are not UTF-8", { k = "\255" }, "json: k: a string of 1 bytes is not UTF%-8" },
    { "a name that is not UTF-8", { ["\255"] = 1 }, "a name is not UTF%-8" },
    { "names in a marked list", json.array { a = 1 }, "both list positions and names" },
  }
  for _, case in ipairs(refused) do
    it("refuses " .. case[1], function()
      if case[1] == "names in a marked list" then case[2][1] = 0 end
      assert.error_matches(function() json.encode(case[2]) end, case[3])
    end)
  end

  it("goes 100 tables deep and no deeper", function()
    local deep = {}
    local inner = deep
    for _ = 2, 100 do
      inner[1] = {}
      inner = inner[1]
    end
    assert.equal(("["):rep(99) .. "{}" .. ("]"):rep(99), json.encode(deep))
    inner[1] = {}
    assert.error_matches(function() json.encode(deep) end, "nested deeper than 100")
  end)

  it("names an option it does not know", function()
    assert.error_matches(function() json.encode({}, { idnent = true }) end, "json.encode has no option 'idnent'")
  end)

  it("refuses to mark a table that has a metatable", function()
    assert.error_matches(function() json.array(setmetatable({}, {})) end, "metatable of its own")
  end)
end)

describe("json.decode", function()
  it("reads values, null as json.null", function()
    local t = json.decode ' { "a" : [ 1 , 2.5e1 , true , null ] , "b" : "x" } '
    assert.same({ 1, 25, true }, { t.a[1], t.a[2], t.a[3] })
    assert.equal(json.null, t.a[4])
    assert.equal("x", t.b)
  end)

  it("keeps empty lists lists, through both ways", function()
    local text = '{"a":[],"b":{},"c":[1,[]]}'
    assert.equal(text, json.encode(json.decode(text)))
    assert.is_true(json.is_array(json.decode(text).a))
    assert.is_false(json.is_array(json.decode(text).b))
  end)

  local refused = {
    { "duplicate names", '{"a":1,"a":2}', "duplicate object key" },
    { "text after the value", "[1] 2", "^.-1:%d+: end of file expected" },
    { "nothing", "", "json:1:0" },
    { "an integer that would be rounded", '{"n":[9007199254740993]}', "n%[1%]: 9007199254740993 is beyond 2%^53" },
    { "a number that overflows", "1e999", "overflow" },
    { "NaN", "NaN", "invalid token" },
    { "comments", "[1] // x", "end of file expected" },
    { "a trailing comma", "[1,]", "unexpected token" },
    { "broken UTF-8", '"\255"', "unable to decode byte" },
  }
  for _, case in ipairs(refused) do
    it("refuses " .. case[1], function()
      assert.error_matches(function() json.decode(case[2]) end, case[3])
    end)
  end

  it("says line and column, and the name it was given", function()
    assert.error_matches(function() json.decode('{\n "a": ,\n}', "x.json") end, "x%.json:2:7: ")
  end)

  it("goes 100 deep and no deeper", function()
    assert.is_table(json.decode(("["):rep(100) .. ("]"):rep(100)))
    assert.error_matches(function() json.decode(("["):rep(101) .. ("]"):rep(101)) end, "deeper than 100")
  end)

  it("survives every prefix and every changed byte of a document", function()
    local text = json.encode { a = { 1, 2.5, "x\n\195\164" }, b = { c = json.null, d = json.array() }, e = true }
    for n = 0, #text - 1 do assert.is_false((pcall(core.json_decode, text:sub(1, n)))) end
    for at = 1, #text do
      for _, byte in ipairs { 0, 34, 44, 91, 123, 255 } do
        pcall(core.json_decode, text:sub(1, at - 1) .. string.char(byte) .. text:sub(at + 1))
      end
    end
    assert.equal(text, json.encode(json.decode(text)))
  end)
end)

describe("json.each_line", function()
  it("gives the objects of a file and their lines, without those that are torn, no objects or lists", function()
    local path, found = shell.temporary_folder() .. "/lines", {}
    shell.write(path, '{"a":1}\n\n{"a":\n7\n[8]\n{"b":[2]}\n{"c":3')
    json.each_line(path, function(object, line) found[#found + 1] = { json.plain(object), line } end)
    assert.same({ { { a = 1 }, '{"a":1}' }, { { b = { 2 } }, '{"b":[2]}' } }, found)
  end)

  it("has no lines where there is no file", function()
    json.each_line(shell.temporary_folder() .. "/none", function() error "a line" end)
  end)
end)
