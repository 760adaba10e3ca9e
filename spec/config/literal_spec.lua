--- --set values: Lua literals are parsed, anything else is the text itself, and nothing is ever run.
local literal = require "ganymede.base.literal"

describe("literal.parse", function()
  local same = {
    ["1"] = 1, ["-2.5e-3"] = -0.0025, ["0x10"] = 16, [".5"] = 0.5, ["1e+5"] = 1e5, ["- 3"] = -3,
    ["1e999"] = math.huge, ["math.huge"] = math.huge, ["-math.huge"] = -math.huge,
    ["true"] = true, ["false"] = false, ["'it\\'s'"] = "it's", ['"a\\n\\065\\x42"'] = "a\nAB", ["[[x]y]]"] = "x]y",
    ["[==[\n]]]==]"] = "]]", [" 7 "] = 7,
    ["{}"] = {}, ["{1, 2; 3,}"] = { 1, 2, 3 }, ["{ size = 4, mode = '2d' }"] = { size = 4, mode = "2d" },
    ["{['a b'] = {x = {true}}, [5] = 'five'}"] = { ["a b"] = { x = { true } }, [5] = "five" },
    ["{[[long]], [2] = 3}"] = { "long", 3 },
  }
  for text, want in pairs(same) do
    it("reads " .. text, function()
      local value, why = literal.parse(text)
      assert.same(want, value)
      assert.is_nil(why)
      assert.same(want, (assert(loadstring("return " .. text))()), "Lua itself reads it differently")
    end)
  end

  it("rounds no whole number", function()
    assert.equal(2 ^ 53, (literal.parse "9007199254740992"))
    assert.equal(-2 ^ 60, (literal.parse "-01152921504606846976"))
    local value, why = literal.parse "9007199254740993"
    assert.equal("9007199254740993", value) -- taken as text, which no setting of a number takes
    assert.matches("no number is 9007199254740993: the nearest is 9007199254740992", why)
  end)

  it("reads nil as no value", function()
    assert.equal(0, select("#", literal.parse "nil") - 1)
    assert.is_nil((literal.parse "nil"))
  end)

  for _, text in ipairs {
    "2d", "2.5d", "", "inf", "nan", "os.exit()", "{os.exit()}", "x", "5LL", "3i", "1 2", "1-2", "{1,2",
    "{x = 1, x = 2}", "'open", "'new\nline'", "0x", "1e", "a.b", "--3", "function() end", "{[nil] = 1}", "'\\q'",
    "'\\300'", "[[open", "{,}", "1_000", "{a = }", "#t", "not true", "math.pi", "math", "\"a\" .. \"b\"",
  } do
    it(("takes %q as text, and says why"):format(text), function()
      local value, why = literal.parse(text)
      assert.equal(text, value)
      assert.is_string(why)
    end)
  end

  it("runs nothing", function()
    rawset(_G, "literal_spec_ran", false)
    for _, text in ipairs { "{(function() literal_spec_ran = true end)()}", "rawset(_G, 'literal_spec_ran', true)" } do
      literal.parse(text)
    end
    assert.is_false(rawget(_G, "literal_spec_ran"))
    rawset(_G, "literal_spec_ran", nil)
  end)

  it("refuses nesting and sizes that nobody types", function()
    assert.error_matches(function() literal.parse(("{"):rep(33) .. ("}"):rep(33)) end, "deeper than 32")
    assert.same({ {} }, (literal.parse "{{}}"))
    assert.error_matches(function() literal.parse(("x"):rep(65537)) end, "65537 bytes")
  end)
end)

describe("literal.show", function()
  local function back(value) return assert(loadstring("return " .. literal.show(value)))() end

  it("writes what Lua reads back bit for bit", function()
    for _, value in ipairs { 0.1, 1 / 3, 1e300, 5e-324, -0.25, 2 ^ 53, 1e15, "a\n\"b\"\r\0c\\", true, false } do
      assert.equal(value, back(value))
    end
    local t = { 1, "two", { x = { y = { 0.1, 0.2 } }, ["not a name"] = 3, ["end"] = 4 }, [10] = "ten" }
    assert.same(t, back(t))
    assert.equal(math.huge, back(math.huge))
    local nan = back(0 / 0)
    assert.is_true(nan ~= nan)
  end)

  it("gives equal tables equal texts, and names what has no literal", function()
    local one, two = {}, {}
    for i = 1, 50 do one["k" .. i] = i end
    for i = 50, 1, -1 do two["k" .. i] = i end
    assert.equal(literal.show(one), literal.show(two))
    assert.equal("{ f = nil --[[ a function ]] }", literal.show { f = print })
  end)
end)
