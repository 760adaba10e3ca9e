--- Cuts of a list of sections: against all cuts there are, and against what a user may write wrongly.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local partition = require "ganymede.pipeline.partition"

-- Calls visit(sizes) for every way to write n as `parts` sizes of at least 1.
local function each_cut(n, parts, visit, sizes)
  sizes = sizes or {}
  if parts == 1 then
    sizes[#sizes + 1] = n
    visit(sizes)
    sizes[#sizes] = nil
    return
  end
  for size = 1, n - parts + 1 do
    sizes[#sizes + 1] = size
    each_cut(n - size, parts - 1, visit, sizes)
    sizes[#sizes] = nil
  end
end

-- heaviest part, sum of squares
local function cost(weights, sizes)
  local at, heaviest, squares = 0, 0, 0
  for _, size in ipairs(sizes) do
    local sum = 0
    for _ = 1, size do
      at = at + 1
      sum = sum + weights[at]
    end
    heaviest, squares = math.max(heaviest, sum), squares + sum * sum
  end
  return heaviest, squares
end

local function best(weights, parts)
  local heaviest, squares = math.huge, math.huge
  each_cut(#weights, parts, function(sizes)
    local h, s = cost(weights, sizes)
    if h < heaviest or h == heaviest and s < squares then heaviest, squares = h, s end
  end)
  return heaviest, squares
end

-- Sizes of parts that cover 1 to n in order; an error where they do not.
local function sizes_of(parts, n)
  local sizes, next_one = {}, 1
  for i, part in ipairs(parts) do
    assert.equal(next_one, part[1])
    assert.is_true(part[2] >= part[1])
    sizes[i], next_one = part[2] - part[1] + 1, part[2] + 1
  end
  assert.equal(n + 1, next_one)
  return sizes
end

describe("partition.uniform", function()
  it("differs by at most one, larger parts first", function()
    assert.same({ { 1, 3 }, { 4, 5 }, { 6, 7 } }, partition.uniform(7, 3))
    for n = 1, 20 do
      for parts = 1, n do
        local sizes = sizes_of(partition.uniform(n, parts), n)
        assert.equal(parts, #sizes)
        for i, size in ipairs(sizes) do
          assert.equal(math.floor(n / parts) + (i <= n % parts and 1 or 0), size)
        end
      end
    end
  end)
end)

describe("partition.balanced", function()
  local state = 12345
  local function random(below) -- a fixed sequence: Lehmer's
    state = state * 48271 % 2147483647
    return state % below
  end

  it("is the best of all cuts", function()
    for _ = 1, 150 do
      local weights = {}
      for i = 1, 1 + random(10) do weights[i] = random(4) == 0 and 0 or random(50) end
      for parts = 1, #weights do
        local sizes = sizes_of(partition.balanced(weights, parts), #weights)
        local heaviest, squares = cost(weights, sizes)
        local want_heaviest, want_squares = best(weights, parts)
        assert.same({ parts, want_heaviest, want_squares }, { #sizes, heaviest, squares })
      end
    end
  end)

  it("puts a heavy table alone", function()
    assert.same({ { 1, 1 }, { 2, 5 } }, partition.balanced({ 100, 10, 10, 10, 10 }, 2))
  end)

  it("serves a deep model in many parts", function()
    local weights = {}
    for i = 1, 130 do weights[i] = 7.5e15 + i end
    assert.equal(64, #sizes_of(partition.balanced(weights, 64), 130))
  end)

  it("refuses weights that are none", function()
    assert.error_matches(function() partition.balanced({ 1, -2 }, 1) end, "weight 2 .* at least 0; got %-2")
    assert.error_matches(function() partition.balanced({ 0 / 0 }, 1) end, "weight 1 ")
    assert.error_matches(function() partition.balanced({ "1" }, 1) end, "weight 1 ")
  end)
end)

describe("partition.listed", function()
  it("takes sizes, or first sections", function()
    assert.same({ { 1, 1 }, { 2, 7 } }, partition.listed({ 1, 6 }, 7, 2))
    assert.same({ { 1, 1 }, { 2, 7 } }, partition.listed({ first = { 1, 2 } }, 7, 2))
    assert.same({ { 1, 7 } }, partition.listed({ first = { 1 } }, 7, 1))
    each_cut(7, 3, function(sizes)
      local first = { 1, 1 + sizes[1], 1 + sizes[1] + sizes[2] }
      assert.same(partition.listed(sizes, 7, 3), partition.listed({ first = first }, 7, 3))
      assert.same(sizes, sizes_of(partition.listed(sizes, 7, 3), 7))
    end)
  end)

  for name, case in pairs {
    ["too few sections"] = { { 3, 3 }, "add up to 6 sections; the model has 7" },
    ["too many"] = { { 3, 5 }, "add up to 8 sections; the model has 7" },
    ["another number of parts"] = { { 7 }, "sizes of 1 parts are given; the schedule has 2" },
    ["an empty part"] = { { 0, 7 }, "size 1 must be a whole number from 1; got 0" },
    ["half a section"] = { { 3.5, 3.5 }, "size 1 must be a whole number from 1; got 3.5" },
    ["a word"] = { { "3", 4 }, "size 1 must be a whole number" },
    ["a late beginning"] = { { first = { 2, 3 } }, "the first part must begin at section 1, not 2" },
    ["a part before the one before it"] = { { first = { 1, 1 } }, "part 2 begins at section 1, part 1 at section 1" },
    ["a part behind the end"] = { { first = { 1, 8 } }, "begins at section 8; the model has 7" },
  } do
    it("refuses " .. name, function()
      assert.error_matches(function() partition.listed(case[1], 7, 2) end, case[2])
    end)
  end
end)

describe("more parts than sections", function()
  it("are an error that says how many there are", function()
    for _, cut in ipairs {
      function() partition.uniform(3, 4) end, function() partition.balanced({ 1, 1, 1 }, 4) end,
      function() partition.listed({ 1, 1, 1, 0 }, 3, 4) end,
    } do assert.error_matches(cut, "4 parts of 3 sections: no part may be empty") end
  end)
end)
