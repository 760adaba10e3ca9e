-- Mutants of jobs on machines whose cores others use, and of programs that change while they run. See table.lua.
return {
  {
    name = "3261-grace-by-the-wall", file = "host/job/supervise_clock.c",
    find = "        if (is_there(&job->ranks[i]) && had(&job->ranks[i], since_failure) <= limit) return i;",
    replace = "        if (is_there(&job->ranks[i]) && had(&job->ranks[i], since_failure) <= -limit) return i;",
    breaks = "a rank that got no core is killed when the seconds that it has to end are over",
    test = "spec/faults/busy_machine_spec.lua -f 'by themselves'",
  },
  {
    name = "3262-pending-wait-is-its-own", file = "host/job/patience.c",
    find = "        return passed;\n    }\n    waited -= p->lent;",
    replace = "        return 0;\n    }\n    waited -= p->lent;",
    breaks = "a wait for a core counts as the process's own time until it is over",
    test = "unit patience_looks",
  },
  {
    name = "3263-wait-counted-twice", file = "host/job/patience.c",
    find = "    waited -= p->lent;", replace = "",
    breaks = "a wait for a core that was known is counted again at its end",
    test = "unit patience_looks",
  },
  {
    name = "3264-unit-of-waits", file = "host/job/patience.c",
    find = "    sum->waited += 1e-9 * (double)waited;", replace = "    sum->waited += 1e-12 * (double)waited;",
    breaks = "the kernel's count of a wait for a core has another unit",
    test = "unit patience_cores",
  },
  {
    name = "3265-looker-that-was-stopped", file = "host/job/patience.c",
    find = "    if (passed > GM_PATIENCE_MOST) passed = GM_PATIENCE_MOST;", replace = "",
    breaks = "the time in which the supervisor itself was stopped counts",
    test = "unit patience_looks",
  },
  {
    name = "3266-deleted-program", file = "bindings/lua_launch.c",
    find = "    if (end > path && !strcmp(end, gone) && access(path, F_OK)) *end = 0;", replace = "    (void)end;",
    breaks = "a job whose program was replaced starts no ranks again",
    test = "spec/faults/replaced_spec.lua -f 'lies there now'",
  },
  {
    name = "3267-program-that-is-gone", file = "lua/ganymede/job/launcher.lua",
    find = "  check_mpirun()\n  check_program()\n", replace = "  check_mpirun()\n",
    breaks = "mpirun waits for a program that is not there",
    test = "spec/faults/replaced_spec.lua -f 'was removed'",
  },
  {
    name = "3268-start-by-the-wall", file = "host/job/supervise_clock.c",
    find = "    if (job->starting.had < START_SECONDS && t < job->began + START_MOST) return;",
    replace = "    if (t < job->began + START_SECONDS) return;",
    breaks = "a job that was stopped for a minute while it started fails when it goes on",
    test = "spec/faults/start_spec.lua --slow -f 'is stopped while'",
  },
  {
    name = "3269-start-without-end", file = "host/job/supervise_clock.c",
    find = "    if (job->starting.had < START_SECONDS && t < job->began + START_MOST) return;",
    replace = "    if (job->starting.had < START_SECONDS || t < job->began + START_MOST) return;",
    breaks = "ranks that never start, and want no core, are waited for five minutes",
    test = "spec/faults/start_spec.lua --slow -f 'never start'",
  },
}
