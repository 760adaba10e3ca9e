--- Mutants of what runs on several machines: launchers, ranks that meet over TCP, Slurm.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "1310-mpirun-of-one", file = "host/comm/launched.c",
    find = [[    if (n < 1) return false;
    l->by = "mpirun";]],
    replace = [[    if (n < 2) return false;
    l->by = "mpirun";]],
    breaks = "one rank of mpirun in a step of Slurm takes itself for a task of the step",
    test = "spec/comm/launched_spec.lua -f 'is mpirun'",
  },
  {
    name = "1311-srun-with-pmix", file = "host/comm/launched.c",
    find = [[l->over_tcp = !getenv("PMIX_RANK");]],
    replace = [[l->over_tcp = true;]],
    breaks = "tasks of srun do not use the PMIx that it offers",
    test = "spec/comm/launched_spec.lua -f 'is srun'",
  },
  {
    name = "1312-two-worlds", file = "host/comm/launched.c",
    find = [[if (tasks < 2 || getenv]],
    replace = [[if (tasks < 200 || getenv]],
    breaks = "variables of another world than the step's are taken",
    test = "spec/comm/launched_spec.lua -f 'must be one'",
  },
  {
    name = "1313-agent-store", file = "host/comm/launched.c",
    find = [[!strcmp(uses, "True")]],
    replace = [[!strcmp(uses, "true")]],
    breaks = "ranks meet at the port at which torchrun itself listens",
    test = "spec/comm/launched_spec.lua -f 'where the ranks meet'",
  },
  {
    name = "1314-foreign-key", file = "host/comm/meet.c",
    find = [[g->says.key == t->m->key]],
    replace = [[g->says.key != 1]],
    breaks = "a rank of another job is taken in",
    test = "spec/comm/tcp_spec.lua -f 'turn away'",
  },
  {
    name = "1315-listens-on", file = "host/comm/meet.c",
    find = [[    close_fd(&t.listener);
]],
    replace = "",
    breaks = "ranks that have met still listen",
    test = "spec/comm/tcp_spec.lua -f 'listen nowhere'",
  },
  {
    name = "1316-no-offer", file = "host/comm/frame_requests.c",
    find = [[n > f->stream->eager, put_it]],
    replace = [[n > GM_MESSAGE_MAX, put_it]],
    breaks = "long messages are sent unasked",
    test = "spec/comm/tcp_spec.lua -f 'long messages'",
  },
  {
    name = "1317-dead-peer", file = "host/comm/frame_requests.c",
    find = [[if (!done && *lost < 0) return 0;]],
    replace = [[if (!done) return 0;]],
    breaks = "ranks wait for one whose connection is closed",
    test = "spec/comm/tcp_spec.lua -f 'is killed'",
  },
  {
    name = "1318-one-request", file = "host/job/signals.c",
    find = [[if (once && !first) return;]],
    replace = [[if (once && first) return;]],
    breaks = "a second warning ends the run, and the first does nothing",
    test = "spec/comm/tcp_spec.lua -f 'SIGUSR1'",
  },
  {
    name = "1319-srun-terminates-twice", file = "lua/ganymede/job/launcher.lua",
    find = [[if found.by == "srun" then core]],
    replace = [[if found.by == "mpirun" then core]],
    breaks = "the second SIGTERM of Slurm ends a run before its checkpoint",
    test = "spec/comm/tcp_spec.lua -f 'step of srun'",
  },
  {
    name = "1320-any-interface", file = "host/comm/meet.c",
    find = [[if (t->m->interface) GM_TRY(]],
    replace = [[if (t->m->interface && t->m->rank > t->m->world) GM_TRY(]],
    breaks = "the interface that was asked for is ignored",
    test = "spec/comm/tcp_spec.lua -f 'interface'",
  },
  {
    name = "1321-slurm-checks-one", file = "lua/ganymede/cli/slurm.lua",
    find = [[recipe = args.recipe, ranks = ranks_of(args),]],
    replace = [[recipe = args.recipe, ranks = args.nodes,]],
    breaks = "the recipe is checked for one rank on each machine",
    test = "spec/cli/slurm_spec.lua -f 'checks the recipe'",
  },
  {
    name = "1322-slurm-blank", file = "lua/ganymede/cli/slurm.lua",
    find = [[and word or machine.quote(word)]],
    replace = [[and word or word]],
    breaks = "a path with a blank becomes two words",
    test = "spec/cli/slurm_spec.lua -f 'prints the script'",
  },
  {
    name = "1323-slurm-percent", file = "lua/ganymede/cli/slurm.lua",
    find = [[folder:gsub("%%", "%%%%")]],
    replace = [[folder:gsub("%%", "%%")]],
    breaks = "a % in the path of the log means something to Slurm",
    test = "spec/cli/slurm_spec.lua -f 'prints the script'",
  },
  {
    name = "1324-slurm-requeues-twice", file = "lua/ganymede/cli/slurm.lua",
    find = [[ = RUNNING ]; then]],
    replace = [[ != "" ]; then]],
    breaks = "a job that Slurm has put back is put back again",
    test = "spec/cli/slurm_spec.lua -f 'puts the job back'",
  },
  {
    name = "1800-slurm-trained", file = "lua/ganymede/job/batch_attempts.lua",
    find = [[began = now.bytes > known.bytes and known.reached or nil }]],
    replace = [[began = now.bytes >= known.bytes and known.reached or nil }]],
    breaks = "an error before the first step is taken for one that may pass",
    test = "spec/cli/slurm_spec.lua -f 'a start cannot mend'",
  },
  {
    name = "1801-slurm-one-more", file = "lua/ganymede/job/batch_attempts.lua",
    find = [[{ most = limits.most, delay = limits.delay }]],
    replace = [[{ most = limits.most + 1, delay = limits.delay }]],
    breaks = "a script starts ranks once more than it was told",
    test = "spec/cli/slurm_spec.lua -f 'no checkpoint'",
  },
  {
    name = "1802-slurm-counts-on", file = "lua/ganymede/job/batch_attempts.lua",
    find = [[known.history = json.array {}]],
    replace = [[known.history = (json.decode(machine.read(path_of(folder)) or '{"history":[]}', "x")).history]],
    breaks = "a script that is submitted again counts the attempts of the last time",
    test = "spec/cli/slurm_spec.lua -f 'no checkpoint'",
  },
  {
    name = "1325-slurm-dies-first", file = "lua/ganymede/cli/slurm.lua",
    find = [[

trap : TERM
]],
    replace = [[

]],
    breaks = "the script ends at SIGTERM, before its ranks have saved",
    test = "spec/cli/slurm_spec.lua -f 'waits for the ranks'",
  },
  {
    name = "1326-slurm-no-time", file = "lua/ganymede/cli/slurm.lua",
    find = [[seconds_of(args.time) <= warn + 60]],
    replace = [[seconds_of(args.time) <= warn]],
    breaks = "a job is submitted whose time is over at its start",
    test = "spec/cli/slurm_spec.lua -f 'leaves no time'",
  },
  {
    name = "1327-part-of-allocation", file = "lua/ganymede/job/launcher.lua",
    find = [[if machines > 1 and (args.ranks or 1) > 1 then]],
    replace = [[if machines > 2 and (args.ranks or 1) > 1 then]],
    breaks = "-n uses one machine of an allocation of two",
    test = "spec/cli/slurm_spec.lua -f 'leaves an allocation'",
  },
}
