--- pairs and next whose loops stay right when they are compiled. Replaces both, for all Lua code of this process.
--
-- LuaJIT has instructions of its own for `for k, v in pairs(t)` and `in next, t`. Its compiler is wrong about them in
-- every release from 2021-09 to 2026-08: nested loops that end early without a word (Debian 12's does so; LuaJIT's
-- issues 827 and 1510), and exits that lead back into the loop (1000). These instructions are used only where the
-- iterator is LuaJIT's own next; here it is a function that calls it. A loop costs 15 to 30 ns an entry for 5 to 17.
local its_next = next

local function next(t, key) return its_next(t, key) end

local function pairs(...)
  local t = ...
  if type(t) ~= "table" then
    local got = select("#", ...) == 0 and "no value" or type(t)
    error(("bad argument #1 to 'pairs' (table expected, got %s)"):format(got), 2)
  end
  return next, t, nil
end

rawset(_G, "next", next)
rawset(_G, "pairs", pairs)
