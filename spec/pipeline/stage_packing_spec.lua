--- What crosses a border: every structure comes back as it went, in one order; what cannot cross is refused by place.
local gm = require "ganymede"
local nn = require "ganymede.nn"
local packing = require "ganymede.pipeline.packing"

local function scoped(fn) return function() gm.scope(fn) end end

-- There and back -> number of results, the results in a list, number of tensors, text
local function round(...)
  local list, text = packing.pack(...)
  local function gather(...) return select("#", ...), { ... } end
  local n, values = gather(packing.unpack(list, text))
  return n, values, #list, text
end

describe("packing", function()
  it("says one tensor in one letter", scoped(function()
    local x = gm.zeros { 2 }
    local list, text = packing.pack(x)
    assert.equal("T", text)
    assert.equal(x, list[1])
    assert.equal(x, (packing.unpack(list, text)))
  end))

  it("keeps nil, also at the end, and nothing at all", scoped(function()
    local x = gm.zeros { 2 }
    local n, values, tensors, text = round(x, nil, x, nil)
    assert.same({ 4, 2, "T-T-" }, { n, tensors, text })
    assert.is_nil(values[2])
    assert.equal(x, values[3])
    assert.same({ 0, {}, 0, "" }, { round() })
  end))

  it("keeps plain values to the bit", function()
    for _, value in ipairs { 0.1, -1 / 3, 2 ^ 53, 1e-310, math.huge, -math.huge, "", "a;b}T", "12:\0\n", true } do
      local n, values, tensors = round(value)
      assert.same({ 1, 0 }, { n, tensors })
      assert.equal(value, values[1])
    end
    local _, values = round(false, 0 / 0)
    assert.is_false(values[1])
    assert.is_true(values[2] ~= values[2])
  end)

  it("keeps tables in tables, with keys of both kinds", scoped(function()
    local a, b, c = gm.zeros { 1 }, gm.zeros { 2 }, gm.zeros { 3 }
    local sent = { a, { mask = b, [5] = "five", inner = { { c } } }, scale = 0.5, [2.5] = true, empty = {} }
    local n, values, tensors = round(7, sent)
    assert.same({ 2, 3, 7 }, { n, tensors, values[1] })
    assert.same(sent, values[2])
    assert.equal(b, values[2][2].mask)
    assert.equal(c, values[2][2].inner[1][1])
  end))

  it("has one text for a table however it was filled", scoped(function()
    local t, words = gm.zeros { 1 }, { "x", "mask", "aa", "b", "zeta", "k7", "k11" }
    local forwards, backwards = {}, {}
    for i = 1, #words do forwards[words[i]] = t end
    for i = #words, 1, -1 do backwards[words[i]] = t end
    local _, one = packing.pack(forwards)
    local _, other = packing.pack(backwards)
    assert.equal(one, other)
    assert.equal("{$2:aaT$1:bT$3:k11T$2:k7T$4:maskT$1:xT$4:zetaT}", one)
  end))

  it("lets a table occur twice, but not inside itself", function()
    local twice = { 1 }
    assert.same({ twice, twice }, select(2, round { twice, twice })[1])
    local cycle = { inner = {} }
    cycle.inner.out = cycle
    assert.error_matches(function() packing.pack(cycle) end, 'result 1%["inner"%]%["out"%] is part of itself')
  end)

  it("refuses what is no data, by its place", function()
    assert.error_matches(function() packing.pack(1, print) end, "result 2 is a function, which cannot cross")
    assert.error_matches(function() packing.pack { a = { coroutine.create(print) } } end,
      'result 1%["a"%]%[1%] is a thread')
    assert.error_matches(function() packing.pack { io.stdout } end, "result 1%[1%] is a userdata")
    assert.error_matches(function() packing.pack { nn.ReLU() } end, "result 1%[1%] is an object")
    assert.error_matches(function() packing.pack { [true] = 1 } end, "result 1 has a key that is a boolean")
  end)

  it("refuses a text that does not fit what came", scoped(function()
    local x = gm.zeros { 1 }
    assert.error_matches(function() packing.unpack({ x, x }, "T") end, "describes 1 tensors, and 2 arrived")
    assert.error_matches(function() packing.unpack({ x }, "TT") end, "describes 2 tensors, and 1 arrived")
    for _, text in ipairs { "?", "{#1;T", "{#1;", "#1", "#x;", "$3:ab", "$a:", "T}" } do
      assert.error_matches(function() packing.unpack({ x }, text) end, "border is damaged at byte", text)
    end
  end))
end)
