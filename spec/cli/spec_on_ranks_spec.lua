--- `ganymede spec` on several ranks: an example that fails on one rank fails once, and costs no other.
local support = require "spec.cli.support"
local shell = support.shell

local file = [[
-- ranks: 1 3
local core = require "ganymede.core"
local gm = require "ganymede"

local function sum()
  local t = gm.ones { 2 }
  core.comm_all_reduce(t, nil, "sum")
  return t:totable()[1]
end

describe("ranks", function()
  it("pass", function() assert.equal(core.world(), sum()) end)
  it("fail on one", function()
    if core.rank() == core.world() - 1 then error "this rank only" end
    sum()
  end)
  it("fail on one, unnoticed by others", function() assert.is_true(core.rank() < core.world() - 1) end)
  it("go on", function() assert.equal(core.world(), sum()) end)
  it("fail on all", function() error "everywhere" end)
  it("differ", function()
    if core.rank() == 0 then sum() elseif core.world() > 1 then core.comm_broadcast(gm.ones { 2 }, nil, 0) sum() end
  end)
  it("skip", function() pending "not now" end)
  it("go on again #late", function() assert.equal(core.world(), sum()) end)
end)
]]

describe("ganymede spec on several ranks", function()
  local home
  before_each(function()
    home = shell.temporary_folder()
    shell.write(home .. "/some_spec.lua", file)
  end)
  after_each(function() shell.remove(home) end)

  local function spec(...) return support.run(home, { "spec", "some_spec.lua", "--threads", "1", ... }) end

  local function has(text, part)
    if not text:find(part, 1, true) then error(("%q is not in:\n%s"):format(part, text), 2) end
  end

  it("settles every example on all ranks", function()
    local result = spec("-n", "3", "--comm-timeout", "10")
    assert.equal(1, result.code, result.err)
    has(result.out, "3 passed, 4 failed, 1 skipped")
    has(result.out, "on rank 2: ")
    has(result.out, "this rank only")
    has(result.out, "on all ranks: ")
    assert.equal(1, select(2, result.out:gsub("FAILED  ranks fail on all", "")))
    assert.equal(1, select(2, result.out:gsub("FAILED  ranks differ", "")))
    assert.is_truthy(result.out:find "FAILED  ranks differ.-all_reduce.-broadcast"
      or result.out:find "FAILED  ranks differ.-broadcast.-all_reduce", result.out)
  end)

  it("runs a file on as many ranks as its head says", function()
    local result = spec("-f", "pass", "-f", "go on")
    assert.equal(0, result.code, result.out .. result.err)
    assert.equal("6 passed, 0 failed", result.out:match "([^\n]*)\n$")
    has(result.out, "on 3 ranks:")
  end)

  it("passes filters and tags on", function()
    local result = spec("-t", "late", "-n", "2")
    assert.equal("1 passed, 0 failed", result.out:match "([^\n]*)\n$")
  end)

  it("refuses a head that names no numbers", function()
    shell.write(home .. "/some_spec.lua", "-- ranks: many\n")
    local result = spec()
    assert.equal(2, result.code)
    has(result.err, "some_spec.lua: the line '-- ranks: many'")
  end)
end)
