-- The rows of spec/mutants: each breaks one place that is there, and names a test that is there.
local lfs = require "lfs"
local mutants = require "spec.mutants.table"
local tree = require "spec.support.tree"

local rows = mutants.rows()
local fields = { name = "string", file = "string", find = "string", replace = "string", breaks = "string",
  test = "string", also = "table", isa = "string", cpu = "string" }
local optional = { also = true, isa = true, cpu = true, replace = true } -- replace: may be empty

--- Complaints about all rows: complain(row) -> nil or a text.
local function over_rows(complain)
  local wrong = {}
  for _, row in ipairs(rows) do
    local complaint = complain(row)
    if complaint then wrong[#wrong + 1] = ("%s: %s"):format(row.name, complaint) end
  end
  tree.none(wrong)
end

--- Whether cmocka's pattern (* and ?) matches a name.
local function matches(name, pattern)
  return name:find("^" .. pattern:gsub("[%-%.%+%[%]%(%)%^%$%%]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$") ~= nil
end

describe("the tables of mutants", function()
  it("are all known", function()
    local known = { table = true, run = true }
    for _, name in ipairs(mutants.tables) do known[name] = true end
    for file in lfs.dir "spec/mutants" do
      local name = file:match "^(.*)%.lua$"
      assert(not name or known[name], ("spec/mutants/%s is not in the list of spec/mutants/table.lua"):format(file))
    end
  end)
end)

describe("each mutant", function()
  it("is a row of known fields, with a number and a name of its own", function()
    assert(#rows > 280)
    local seen = {}
    over_rows(function(row)
      for field, value in pairs(row) do
        if type(value) ~= fields[field] then return "what is " .. tostring(field) .. "?" end
      end
      if row.isa and not ({ avx2 = 1, avx512 = 1, avx512bf16 = 1 })[row.isa] then
        return "isa is avx2, avx512 or avx512bf16"
      end
      for field in pairs(fields) do
        if not optional[field] and (row[field] or "") == "" then return "lacks " .. field end
      end
      local number = row.name:match "^(%d%d%d%d?)%-[%w-]+$"
      if not number or seen[number] then
        return "should have a number of its own: NNN-name or NNNN-name"
      end
      seen[number] = true
    end)
  end)

  it("breaks text that stands exactly once in its file", function()
    local read = {}
    local function once(path)
      read[path] = read[path] or tree.read(path)
      return read[path]
    end
    over_rows(function(row)
      local before, after = mutants.broken(row, once)
      if not before then return after end
      for path, text in pairs(before) do
        if text == after[path] then return "changes nothing in " .. path end
      end
    end)
  end)

  it("names a test that exists", function()
    local units = {}
    for name in tree.read("spec/unit/tests.def"):gmatch "GM_TEST%(([%w_]+)%)" do units[#units + 1] = name end
    over_rows(function(row)
      local unit = mutants.unit(row)
      for _, name in ipairs(unit and units or {}) do
        if matches(name, unit) then return nil end
      end
      if unit then return "no unit test is named " .. unit end
      local path = row.test:match "spec/[%w_/]+[%w_.]*"
      if not path then return "its test names no spec file" end
      if not lfs.attributes(path) then return "there is no " .. path end
    end)
  end)
end)

describe("a place that a mutant breaks", function()
  it("is refused when it is not there, or there twice", function()
    local place = { file = "some.c", find = "a + b", replace = "a - b" }
    assert.equal("x = a - b;", (mutants.replaced("x = a + b;", place)))
    local none, why = mutants.replaced("x = a;", place)
    assert.is_nil(none)
    assert.truthy(why:find("some.c holds no", 1, true))
    none, why = mutants.replaced("x = a + b; y = a + b;", place)
    assert.is_nil(none)
    assert.truthy(why:find("more than once", 1, true))
  end)

  it("may be one of several of a row", function()
    local row = { file = "some.c", find = "one", replace = "1", also = {
      { file = "some.c", find = "two", replace = "2" }, { file = "other.c", find = "three", replace = "3" } } }
    local before, after = mutants.broken(row, function(path) return path == "some.c" and "one two" or "three" end)
    assert.same({ ["some.c"] = "one two", ["other.c"] = "three" }, before)
    assert.same({ ["some.c"] = "1 2", ["other.c"] = "3" }, after)
  end)
end)
