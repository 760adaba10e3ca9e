--- LuaJIT's compiler: what it is known to do wrongly is found at the start, and it is off then.
local compiler = require "ganymede.base.compiler"
local support = require "spec.cli.support"

describe("the compiler of Lua code", function()
  -- Functions of the kinds that faulty versions compile wrongly, with more and other arguments than the probes have,
  -- compiled (if it is on) and interpreted.
  it("gives what is interpreted", function()
    local texts = {
      [[local t = {} local u = t for i = 1, 300 do local n = #t u[n + 1] = i t[#t + 1] = i end return #t, 0]],
      [[local t, u = {}, {} for i = 1, 300 do local n = #t u[n + 1] = i t[#t + 1] = i end return #t, #u]],
      [[local sum, last = 0, 0 for _ = 1, 300 do local a, b = ... sum = sum + 10 * a + b last = b end
        return sum, last]],
      [[local s, n = 0, 0 for _ = 1, 300 do local a, b, c = ... s = s + 100 * a + 10 * b + (c or 0) n = n + 1 end
        return s, n]],
      [[local s, n = 0, 0 for _ = 1, 300 do s = s + select("#", ...) n = n + (select(2, ...)) end return s, n]],
    }
    for _, text in ipairs(texts) do
      for _, given in ipairs { { 1, 2 }, { 3, 4, 5 }, { 6, 7, 8, 9, 10 } } do
        local fast, slow = assert(loadstring(text)), assert(loadstring(text))
        jit.off(slow, true)
        local a, b = fast(unpack(given))
        local x, y = slow(unpack(given))
        assert.same({ x, y }, { a, b })
      end
    end
  end)

  it("is on unless a probe went wrong", function()
    assert.equal(#compiler.wrong == 0, (jit.status()))
  end)

  it("is turned off by a probe that goes wrong, and its name is told", function()
    local was, wrong = jit.status(), compiler.wrong
    compiler.start { { "what is right", function() return true end }, { "what is wrong", function() return false end } }
    local on, names = jit.status(), compiler.wrong
    if was then jit.on() end
    compiler.wrong = wrong
    assert.is_false(on)
    assert.same({ "what is wrong" }, names)
  end)

  it("that is wrong is told once at the start of a run, with what to do", function()
    local home = support.home [[
      require("ganymede.base.compiler").wrong = { "the sum of one and one" }
      local gm = require "ganymede"
      gm.launch { config = {} }
      print "begun"]]
    local result = support.run(home, { "run", "recipe.lua" })
    support.shell.remove(home)
    assert.is_truthy(result.out:find("begun", 1, true), result.err)
    assert.is_truthy(result.err:find("compiles wrongly: the sum of one and one;", 1, true), result.err)
    assert.is_truthy(result.err:find("libluajit2-5.1-dev", 1, true), result.err)
  end)
end)
