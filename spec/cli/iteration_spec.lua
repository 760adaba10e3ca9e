--- Loops over pairs and next in compiled code: they see each entry once, as interpreted ones do.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local support = require "spec.cli.support"

local entries = { 1, 2, 3, 4, 5, a = 6, b = 7, [2.5] = 8 }

describe("loops over tables", function()
  -- With LuaJIT's own pairs the outer loop ends after one entry in some round, in Debian 12's in the 39,061st: what it
  -- has tried in vain to compile goes on as another instruction. In a process of its own, where nothing else was tried.
  it("that are nested end where they should", function()
    local home = support.home [[
      local inner = { 1, 2, 3, 4, 5 }
      local outer = { a = inner, b = inner, c = inner, d = inner, e = inner }
      local function interpreted(...) -- whoever calls what takes any number of arguments is not compiled
        for _ = 1, 100 do end
      end
      for round = 1, 100000 do
        interpreted()
        local count = 0
        for _, list in pairs(outer) do
          for _ in pairs(list) do end
          count = count + 1
        end
        if count ~= 5 then error(("round %d: %d of 5 entries"):format(round, count)) end
      end
      print "whole"]]
    local result = support.run(home, { "run", "recipe.lua" })
    support.shell.remove(home)
    assert.is_truthy(result.out:find("whole", 1, true), result.err)
  end)

  -- What LuaJIT compiles of its own next can end the process (issue 829), in one run of a hundred: no example can wait
  -- for that. Functions of LuaJIT's own have a number, those of C an address only.
  it("are of C, which is not compiled", function()
    local info = require("jit.util").funcinfo
    assert.is_number(info(rawget).ffid)
    for _, f in ipairs { next, pairs } do
      assert.is_nil(info(f).ffid)
      assert.is_number(info(f).addr)
    end
    assert.equal(next, (pairs {}))
    local sum = 0
    table.foreach({ 1, 2, x = 3 }, function(_, v) sum = sum + v end)
    assert.equal(6, sum)
  end)

  it("give the same sums compiled and interpreted, whatever they do", function()
    local bodies = {
      "sum = sum + v", "if v > 3 then sum = sum + v * 2 end", "for _, w in pairs(u) do sum = sum + w end",
      "for _, w in next, u do sum = sum + v * w end", "if type(k) == 'string' then sum = sum + #k end",
      "sum = sum + (next(u) and 1 or 0)", "t[k] = v + 1", "if v > 6 then break end sum = sum + 1",
      "kept[k] = v for _ in pairs(kept) do sum = sum + 1 end", "if v == 4 then t[k] = nil end",
    }
    for i, first in ipairs(bodies) do
      for j, second in ipairs(bodies) do
        local text = ([[
          local t, u, kept = ...
          local sum = 0
          for _ = 1, 3 do
            for k, v in pairs(t) do %s end
            for k, v in next, u do %s end
          end
          return sum]]):format(first, second)
        local compiled, interpreted = assert(loadstring(text)), assert(loadstring(text))
        jit.off(interpreted, true)
        for round = 1, 60 do
          local function run(f)
            local t, u = {}, {}
            for k, v in pairs(entries) do t[k] = v end
            for n = 1, round % 7 do u[n], u["k" .. n] = n, n + round end
            return f(t, u, {})
          end
          local got, want = run(compiled), run(interpreted)
          if got ~= want then error(("bodies %d and %d, round %d: %g, not %g"):format(i, j, round, got, want)) end
        end
      end
    end
  end)

  it("go in the order of next, from any key", function()
    local list, key = {}, nil
    repeat
      key = next(entries, key)
      list[#list + 1] = key
    until key == nil
    local n = 0
    for k, v in pairs(entries) do
      n = n + 1
      assert.equal(list[n], k)
      assert.equal(entries[k], v)
    end
    assert.equal(8, n)
    assert.equal(8, #list)
    for k in next, entries, list[7] do assert.equal(list[8], k) end
    assert.is_nil(next {})
  end)

  it("over what is no table say so, where they stand", function()
    local function fails(message, f)
      local ok, text = pcall(f)
      assert.is_false(ok)
      assert.is_truthy(text:find("iteration_spec.lua:%d+: " .. message), text)
    end
    fails("bad argument #1 to 'pairs' %(table expected, got nil%)", function() for _ in pairs(nil) do end end)
    fails("bad argument #1 to 'pairs' %(table expected, got no value%)", function() for _ in pairs() do end end)
    fails("bad argument #1 to 'next' %(table expected, got number%)", function() local k = next(3) return k end)
  end)
end)
