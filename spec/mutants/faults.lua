--- Mutants of what faults and slow ranks meet. What a row says: spec/mutants/table.lua.
return {
  {
    name = "1880-fastest-named", file = "lua/ganymede/observe/slowest.lua",
    find = [[if waited[i] < waited[least] then least = i end]],
    replace = [[if waited[i] > waited[least] then least = i end]],
    breaks = "the rank that waits longest is said to be the one that the others wait for",
    test = "spec/faults/slow_rank_spec.lua -f 'only where'",
  },
  {
    name = "1881-always-named", file = "lua/ganymede/observe/slowest.lua",
    find = [[return found.seconds > MATTERS * seconds and found or nil]],
    replace = [[return found]],
    breaks = "some rank is named in every run",
    test = "spec/faults/slow_rank_spec.lua -f 'only where'",
  },
  {
    name = "1882-page-without-waits", file = "host/comm/page.c",
    find = [[    page->waited += seconds;]],
    replace = [[    (void)seconds;]],
    breaks = "top does not see how long a rank has waited",
    test = "spec/faults/slow_rank_spec.lua -f 'by top'",
  },
  {
    name = "1883-command-line-grows", file = "lua/ganymede/job/command_line.lua",
    find = [[word == "--set" and keys[key_of(value)] then]],
    replace = [[word == "--set" and false then]],
    breaks = "each change of ranks makes the command line of the next ones longer",
    test = "spec/job/random_changes_spec.lua",
  },
  {
    name = "1884-limits-by-the-wall", file = "host/comm/comm.c",
    find = [[    return now - (since > c->woke ? since : c->woke);]],
    replace = [[    static double wall;
    if (!wall) wall = gm_clock(CLOCK_REALTIME) - now;
    return gm_clock(CLOCK_REALTIME) - wall - (since > c->woke ? since : c->woke);]],
    breaks = "--comm-timeout follows the clock of the wall",
    test = "spec/faults/clocks_jump_spec.lua -f hangs",
  },
  {
    name = "1885-dtype-believed", file = "host/arrays/safetensors.c",
    find = [[!json_is_string(dtype) || ]],
    replace = [[]],
    breaks = "a header whose dtype is no text ends the program",
    test = "spec/checkpoint/fuzz_spec.lua --slow",
  },
}
