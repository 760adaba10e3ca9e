--- Turns LuaJIT's compiler off where what it compiles gives wrong results without an error.
--
--     require("ganymede.base.compiler").start() -- the first module of a program: nothing else is compiled before
--
-- The versions of LuaJIT in question call themselves as others do ("LuaJIT 2.1.0-beta3"), so each known fault is tried:
-- a function that LuaJIT compiles is called with a known result. All of them take less than a millisecond. Elsewhere a
-- fault stays silent, so a program that has one is interpreted from then on: it is slower, and right. Debian 12 has
-- both: libluajit-5.1-2 is of March 2022 and has the faults below, libluajit2-5.1-2 is of January 2023 and has none.
-- What every version compiles wrongly, bindings/next.c keeps from it.
-- @module ganymede.base.compiler
local compiler = {}

--- What to do about a LuaJIT with faults.
compiler.advice = "install a newer LuaJIT; on Debian 12: apt-get install libluajit2-5.1-dev, in place of "
  .. "libluajit-5.1-dev"

-- Until May 2022 a length was taken for known although a store through another name of the table had changed it.
local function lengths(list, same)
  for i = 1, 200 do
    local n = #list
    same[n + 1] = i
    if #list ~= n + 1 then return false end
  end
  return true
end

-- Until July 2022 a loop took the third of three arguments, or more, for the second.
local function second_of(...)
  local sum = 0
  for _ = 1, 200 do
    local _, second = ...
    sum = sum + second
  end
  return sum
end

--- List of { name, is_right() }.
compiler.probes = {
  { "the length of a table that has two names", function()
    local list = {}
    return lengths(list, list)
  end },
  { "the arguments of a function that takes any number of them", function() return second_of(1, 2, 3) == 400 end },
}

--- Returns the names of the probes that went wrong.
function compiler.faults(probes)
  local names = {}
  for _, probe in ipairs(probes) do
    if not probe[2]() then names[#names + 1] = probe[1] end
  end
  return names
end

--- Tries the probes and turns the compiler off if one goes wrong. compiler.wrong lists those that did.
function compiler.start(probes)
  compiler.wrong = compiler.faults(probes or compiler.probes)
  if #compiler.wrong == 0 then return end
  jit.off()
  jit.flush()
end

return compiler
