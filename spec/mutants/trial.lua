--- Mutants of what a walk through the documentation as a new user found.
return {
  {
    name = "2720-few-names-untold", file = "lua/ganymede/base/missing.lua",
    find = [[nearest == "" and #names <= FEW]],
    replace = [[nearest == "" and #names < 0]],
    breaks = "a module with few names does not list them where a name is wrong",
    test = "spec/config/missing_spec.lua -f 'every public module'",
  },
  {
    name = "2721-context-has-all", file = "lua/ganymede/job/context.lua",
    find = [[missing.refuse("context", name, 2)]],
    replace = [[]],
    breaks = "gm.context.get_global_rnk() is an attempt to call a nil value",
    test = "spec/config/missing_spec.lua -f 'every public module'",
  },
  {
    name = "2722-core-has-all", file = "lua/ganymede/init.lua",
    find = [[missing.guard("core", require "ganymede.core")]],
    replace = [[]],
    breaks = "gm.core.wrold() is an attempt to call a nil value",
    test = "spec/config/missing_spec.lua -f 'every public module'",
  },
  {
    name = "2723-slow-in-no-time", file = "lua/ganymede/observe/slowest.lua",
    find = [[if seconds < SHORTEST then return nil end]],
    replace = [[]],
    breaks = "a run of a few milliseconds names a rank that is slower than the others",
    test = "spec/faults/slow_rank_spec.lua -f 'only where'",
  },
  {
    name = "2724-byte-by-byte", file = "host/job/terminal.c",
    find = [[S_ISREG(about.st_mode) ? 4096 : 1]],
    replace = [[S_ISREG(about.st_mode) ? 1 : 1]],
    breaks = "a line of a file is read byte by byte, two system calls each",
    test = "spec/repl/repl_spec.lua -f 'in pieces'",
  },
  {
    name = "2725-rest-is-lost", file = "host/job/terminal.c",
    find = [[lseek(STDIN_FILENO, -beyond, SEEK_CUR)]],
    replace = [[lseek(STDIN_FILENO, 0, SEEK_CUR)]],
    breaks = "what follows a line of a file is lost",
    test = "spec/repl/repl_spec.lua -f 'rest of standard input'",
  },
  {
    name = "2726-piece-of-a-pipe", file = "host/job/terminal.c",
    find = [[S_ISREG(about.st_mode) ? 4096 : 1]],
    replace = [[true ? 4096 : 1]],
    breaks = "what follows a line of a pipe is lost to a program that the line starts, and to the next line",
    test = "spec/repl/repl_spec.lua -f 'rest of standard input'",
  },
}
