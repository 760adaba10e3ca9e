--- Mutants of what keeps LuaJIT's faults from users. What a row says: spec/mutants/table.lua.
return {
  {
    name = "384-own-pairs", file = "host/embed.c",
    find = [[gm_replace_next(L);]],
    replace = [[;]],
    breaks = "LuaJIT's own pairs and next",
    test = "spec/cli/iteration_spec.lua",
  },
  {
    name = "1240-wrong-compiler-left-on", file = "lua/ganymede/base/compiler.lua",
    find = [[  jit.off()]],
    replace = "",
    breaks = "a LuaJIT that compiles wrongly is not kept from it",
    test = "spec/cli/compiler_spec.lua",
  },
  {
    name = "1241-compiler-unnamed", file = "lua/ganymede/job/session.lua",
    find = [[if #compiler.wrong > 0 and ranks.is_first() then]],
    replace = [[if #compiler.wrong > 1 and ranks.is_first() then]],
    breaks = "nobody is told that Lua code is interpreted",
    test = "spec/cli/compiler_spec.lua",
  },
}
