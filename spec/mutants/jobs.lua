--- Mutants of jobs: stops, output, supervisors, ranks that hang or die, os.exit, the repl, the command line.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "400-stop-outlives-its-run", file = "host/job/signals.c",
    find = [[if (!on) self.pending = GM_STOP_NONE;]],
    replace = "",
    breaks = "a Ctrl-C that came at the end of a run makes the next one kill the process",
    test = "spec/faults/stops_spec.lua -f 'all is done'",
  },
  {
    name = "401-save-not-begun", file = "bindings/lua_checkpoint.c",
    find = [[if (b->save && gm_save_is_started(b->save) && ]],
    replace = [[if (b->save && ]],
    breaks = "the end of a program waits for a save that was never started",
    test = "spec/faults/stops_spec.lua -f 'before a save has begun'",
  },
  {
    name = "402-stop-in-clean-up", file = "bindings/lua_control.c",
    find = [[if (!is_shielded(L)) gm_raise_stop(L);]],
    replace = [[gm_raise_stop(L);]],
    breaks = "a stop is raised in what puts things back",
    test = "spec/faults/stops_spec.lua -f 'does not cut short'",
  },
  {
    name = "403-full-pipe-kept", file = "host/job/output.c",
    find = [[if (full && self.full[fd]) give_up(fd);]],
    replace = "",
    breaks = "a stop waits for output that nobody reads",
    test = "spec/faults/output_spec.lua -f 'Ctrl.C from ending 1'",
  },
  {
    name = "404-folder-not-swept", file = "host/job/sweeper.c",
    find = [[i <= SWEEPS; i++]],
    replace = [[i < 0; i++]],
    breaks = "a supervisor that is killed leaves its folder",
    test = "spec/faults/start_spec.lua -f 'killed while its ranks start'",
  },
  {
    name = "405-launcher-outlives", file = "host/job/sweeper.c",
    find = [[&& group > 1) kill(-group, SIGKILL);]],
    replace = [[&& group > 1) continue;]],
    breaks = "an mpirun that hangs outlives its supervisor",
    test = "spec/faults/start_spec.lua -f 'hears no SIGTERM'",
  },
  {
    name = "406-listens-to-all", file = "host/loopback/loopback.c",
    find = [[v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);]],
    replace = [[v4.sin_addr.s_addr = htonl(INADDR_ANY);]],
    breaks = "mpirun listens to other machines",
    test = "spec/faults/start_spec.lua -f 'listens to that'",
  },
  {
    name = "407-listens-to-all-v6", file = "host/loopback/loopback.c",
    find = [[v6.sin6_addr = in6addr_loopback;]],
    replace = [[v6.sin6_addr = in6addr_any;]],
    breaks = "mpirun listens to other machines over IPv6",
    test = "spec/faults/start_spec.lua -f 'listens to that'",
  },
  {
    name = "408-preload-inherited", file = "host/loopback/loopback.c",
    find = [[else unsetenv("LD_PRELOAD");]],
    replace = "",
    breaks = "what mpirun is started with is loaded into the ranks and whatever they start",
    test = "spec/faults/start_spec.lua -f 'listens to that'",
  },
  {
    name = "409-asks-its-group", file = "host/comm/operation.c",
    find = [[gm_notice_ask(p, late);]],
    replace = [[gm_notice_ask(p, false);]],
    breaks = "a rank that hangs in another group is not named",
    test = "spec/faults/ranks_spec.lua -f 'in another group'",
  },
  {
    name = "410-hang-names-one", file = "host/comm/hang.c",
    find = [[: late) && n < sizeof text)]],
    replace = [[: late) && !n)]],
    breaks = "of several ranks that have not come one is named",
    test = "unit comm_failures",
  },
  {
    name = "471-hang-before-answers", file = "host/comm/operation.c",
    find = [[if (all_asked && quiet > c->timeout && now - p->asked_all > HEAR) return]],
    replace = [[if (c->timeout > 0 && quiet > c->timeout) return]],
    breaks = "a rank of another group that sleeps is not named where the time-out is short or the machine busy",
    test = "unit comm_failures",
  },
  {
    name = "411-step-of-a-death", file = "host/job/keeper.c",
    find = [[(long long)note->step + 1);]],
    replace = [[(long long)note->step);]],
    breaks = "the step in which a rank died counts from 0",
    test = "spec/faults/ranks_spec.lua -f 'in the middle of a step ends'",
  },
  {
    name = "412-dying-is-not-awaited", file = "host/job/process.c",
    find = [[!= 1 || !(flags & EXITING)) return;]],
    replace = [[!= 9) return;]],
    breaks = "an mpirun that is dying is taken for one that lives, and a rank is blamed",
    test = "unit process_dying",
  },
  {
    name = "413-run-folder-shared", file = "host/files/lock.c",
    find = [[if (!flock(fd, LOCK_EX | LOCK_NB)) return 0;]],
    replace = [[if (!flock(fd, LOCK_SH | LOCK_NB)) return 0;]],
    breaks = "two runs have one folder",
    test = "spec/faults/folder_spec.lua -f 'belongs to one run'",
  },
  {
    name = "414-saves-share-a-folder", file = "host/checkpoint/steps.c",
    find = [[if (!flock(*lock, LOCK_EX | LOCK_NB) ]],
    replace = [[if (!flock(*lock, LOCK_SH | LOCK_NB) ]],
    breaks = "two processes save into one folder at a time",
    test = "spec/faults/folder_spec.lua -f 'one save at a time'",
  },
  {
    name = "415-stop-before-joining", file = "host/job/supervise.c",
    find = [[if (!job->ranks[i].joined) return false;]],
    replace = [[if (job->n < 1) return false;]],
    breaks = "ranks that wait for each other in MPI are asked to stop, which they do not hear",
    test = "spec/faults/start_spec.lua -f 'a stop before all'",
  },
  {
    name = "416-second-sigterm", file = "host/job/signals.c",
    find = [[
self.terminate = 1;
    gm_output_limit();
    if (first && self.asked) return;]],
    replace = [[self.terminate = 1;
    gm_output_limit();
    if (self.asked) return;]],
    breaks = "a second SIGTERM is not heard",
    test = "spec/faults/stops_spec.lua -f 'SIGTERM that comes twice ends one'",
  },
  {
    name = "417-hangup", file = "host/job/signals.c",
    find = [[else if (signal_number == SIGTERM || signal_number == SIGHUP) on_terminate(self.once);]],
    replace = [[else if (signal_number == SIGTERM) on_terminate(self.once);]],
    breaks = "a terminal that is closed means a time limit",
    test = "spec/faults/stops_spec.lua -f 'SIGHUP saves'",
  },
  {
    name = "418-sigpipe", file = "host/job/output.c",
    find = [[before.sa_handler == SIG_DFL) sigaction(SIGPIPE, &action, NULL);]],
    replace = [[before.sa_handler == SIG_DFL) return true;]],
    breaks = "a reader that leaves ends the run",
    test = "spec/faults/output_spec.lua -f 'a reader that leaves'",
  },
  {
    name = "419-closed-files", file = "host/job/output.c",
    find = [[if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return false;]],
    replace = [[if (fd > STDERR_FILENO) return false;]],
    breaks = "files of a run take the places of standard files that are closed",
    test = "spec/faults/output_spec.lua -f 'closed standard'",
  },
  {
    name = "420-output-limit", file = "host/job/signals.c",
    find = [[
self.terminate = 1;
    gm_output_limit();
    if (first]],
    replace = [[self.terminate = 1;
    if (first]],
    breaks = "SIGTERM is not heard while nobody reads the output",
    test = "spec/faults/output_spec.lua -f 'SIGTERM from ending 1'",
  },
  {
    name = "421-held-output-lost", file = "host/job/supervise.c",
    find = [[all_ended(job) && wind_up(job) && is_written(job)]],
    replace = [[all_ended(job) && wind_up(job)]],
    breaks = "what a slow reader has not read when the ranks have ended is lost",
    test = "spec/faults/output_spec.lua -f 'that have long ended'",
  },
  {
    name = "422-held-output-grows", file = "host/job/output.c",
    find = [[return o->n > ENOUGH;]],
    replace = [[return o->n > 64 * ENOUGH;]],
    breaks = "the supervisor holds what ranks write without a limit",
    test = "spec/faults/output_spec.lua -f 'is waited for by a rank'",
  },
  {
    name = "436-exit-in-a-run", file = "lua/ganymede/job/launcher.lua",
    find = [[return failure.protect(function() os.exit = exit end, fn, ...)]],
    replace = [[return failure.protect(function() end, (function(...) os.exit = exit return ... end)(fn), ...)]],
    breaks = "os.exit in a hook ends a run as if all were done",
    test = "spec/faults/stops_spec.lua -f 'os.exit in a hook'",
  },
  {
    name = "452-no-output-unexplained", file = "lua/ganymede/train/trainer.lua",
    find = [[return scope(no_grad, without_output, fn, hook, self, output, ...)]],
    replace = [[return scope(no_grad, fn, hook, self, output, ...)]],
    breaks = "a hook that reads the output on another stage is told of a nil value",
    test = "spec/train/objects_spec.lua -f 'explains on a stage'",
  },
  {
    name = "453-handler-not-shielded", file = "lua/ganymede/base/failure.lua",
    find = [[
core.signals_shield(failure.handler)]],
    replace = "",
    breaks = "a stop in the handler of an error is an error in error handling",
    test = "spec/faults/stops_spec.lua -f 'in the handler of an error'",
  },
  {
    name = "454-ranks-of-a-line", file = "lua/ganymede/repl/ranks.lua",
    find = [[for rank = tonumber(first), tonumber(last) or tonumber(first) do]],
    replace = [[for rank = tonumber(first), tonumber(first) do]],
    breaks = "@2-3 means rank 2 alone",
    test = "spec/repl/on_ranks_spec.lua -f 'answers, survives'",
  },
  {
    name = "455-prints-mixed", file = "lua/ganymede/repl/ranks.lua",
    find = [[live = live or core.now() - began > SHOWN_LATER]],
    replace = [[live = true]],
    breaks = "what ranks print in a line is mixed",
    test = "spec/repl/on_ranks_spec.lua -f 'answers, survives'",
  },
  {
    name = "456-files-checked-late", file = "lua/ganymede/cli/run.lua",
    find = [[
  verb.refuse_unserved(args)
  check_files(args)]],
    replace = [[
  verb.refuse_unserved(args)]],
    breaks = "ranks are started although --stats cannot be written",
    test = "spec/cli/run_spec.lua -f 'statistics in no folder'",
  },
  {
    name = "458-end-not-shielded", file = "lua/ganymede/job/session.lua",
    find = [[
core.signals_shield(conclude)]],
    replace = "",
    breaks = "a stop that comes when all is done makes a failure of a run that went well",
    test = "spec/faults/stops_spec.lua -f 'is being wound up'",
  },
  {
    name = "459-clean-up-not-shielded", file = "lua/ganymede/base/failure.lua",
    find = [[
core.signals_shield(done)]],
    replace = "",
    breaks = "a stop cuts short what puts things back",
    test = "spec/faults/stops_spec.lua -f 'does not cut short'",
  },
  {
    name = "460-stop-between-lines", file = "lua/ganymede/repl/init.lua",
    find = [[xpcall(function()
    core.signals_arm(true)
    return chunk()
  end, failure.handler))]],
    replace = [[(core.signals_arm(true) or xpcall)(chunk, failure.handler))]],
    breaks = "a Ctrl-C between two lines of the repl ends it",
    test = "spec/faults/stops_spec.lua -f 'between two lines'",
  },
  {
    name = "461-hangup-not-ignored", file = "host/job/signals.c",
    find = [[return signal_number == SIGHUP || (signal_number == SIGINT && !self.patient);]],
    replace = [[return signal_number == SIGINT && !self.patient;]],
    breaks = "nohup does not keep a run from ending with its terminal",
    test = "spec/faults/stops_spec.lua -f 'stays so: SIGHUP'",
  },
  {
    name = "462-background-interrupted", file = "host/job/signals.c",
    find = [[return signal_number == SIGHUP || (signal_number == SIGINT && !self.patient);]],
    replace = [[return signal_number == SIGHUP;]],
    breaks = "a Ctrl-C that is for another program ends a run in the background",
    test = "spec/faults/stops_spec.lua -f 'stays so: SIGINT'",
  },
  {
    name = "465-failure-waits-for-a-reader", file = "host/job/supervise_failure.c",
    find = [[
    gm_output_limit(); ]],
    replace = [[
    ]],
    breaks = "a job in which a rank was killed waits for who does not read its output",
    test = "spec/faults/output_spec.lua -f 'a killed rank from'",
  },
  {
    name = "466-output-not-told", file = "lua/ganymede/cli/init.lua",
    find = [[if verb.prints then cli.check_output() end]],
    replace = "",
    breaks = "check > /dev/full ends with status 0",
    test = "spec/cli/run_spec.lua -f 'there to print cannot'",
  },
  {
    name = "467-environment-not-checked", file = "lua/ganymede/cli/init.lua",
    find = [[if depth == 1 then require("ganymede.base.environment").check() end]],
    replace = "",
    breaks = "a misspelt variable of the environment is ignored",
    test = "spec/cli/environment_spec.lua -f 'refuses a variable'",
  },
  {
    name = "596-output-error", file = "host/job/output.c",
    find = [[o->error = errno;]],
    replace = [[o->error = 0;]],
    breaks = "output of ranks that cannot be written is a success",
    test = "spec/faults/output_spec.lua -f cannot",
  },
  {
    name = "597-turns-on-a-core", file = "host/comm/comm.c",
    find = [[*turns |= SHARED; /* a yield]],
    replace = [[*turns |= 0; /* a yield]],
    breaks = "ranks that share a core yield to each other in turns",
    test = "unit comm_pause_on_a_shared_core",
  },
  {
    name = "600-prompt-before-keys", file = "host/job/terminal.c",
    find = [[el_set(t->edit, EL_PREP_TERM, 1);]],
    replace = "",
    breaks = "the prompt shows before keys are read as keys: a Ctrl-D between the two is lost",
    test = "unit terminal_prompt",
  },
  {
    name = "1130-standing-ranks-remember", file = "spec/parallel/standing.lua",
    find = [[    require("spec.support.fresh").restore()
]],
    replace = "",
    breaks = "what a run leaves behind reaches the next run on standing ranks",
    test = "spec/parallel/standing_spec.lua -f 'whatever they ran before'",
  },
  {
    name = "1131-standing-accounts-add-up", file = "spec/parallel/standing.lua",
    find = [[    core.comm_reset_traffic()
]],
    replace = "",
    breaks = "a run on standing ranks counts what earlier ones sent",
    test = "spec/parallel/standing_spec.lua -f 'whatever they ran before'",
  },
  {
    name = "1132-failed-ranks-asked-again", file = "spec/parallel/standing.lua",
    find = [[  jobs[ranks] = nil
  put(]],
    replace = "  put(",
    breaks = "ranks that are gone are asked for the next run",
    test = "spec/parallel/standing_spec.lua -f 'others take their place'",
  },
  {
    name = "1133-work-not-counted", file = "lua/ganymede/cli/pool.lua",
    find = [[sum = sum + 60 * minutes + seconds]],
    replace = [[sum = sum + 60 * minutes]],
    breaks = "the seconds that a job worked are left out",
    test = "spec/cli/pool_spec.lua -f worked",
  },
  {
    name = "1788-found-while-built", file = "lua/ganymede/job/live.lua",
    find = [[folder = about.folder and core.real_path(about.folder) }]],
    replace = [[folder = nil }]],
    breaks = "a run whose ranks are built again is not found by its folder until they train",
    test = "spec/job/found_spec.lua -f 'while they are built'",
  },
  {
    name = "1789-between-attempts", file = "lua/ganymede/job/jobs.lua",
    find = [[found, all = await(wanted, folder, who, patience)]],
    replace = "",
    breaks = "between two attempts resize says that there is no job, and does not wait for it",
    test = "spec/job/found_spec.lua -f 'between two attempts'",
  },
  {
    name = "1798-size-of-another-job", file = "lua/ganymede/job/steps.lua",
    find = [[type(found) == "table" and found.job == job and]],
    replace = [[type(found) == "table" and]],
    breaks = "a new job of Slurm begins with the ranks to which an older one was changed",
    test = "spec/job/steps_spec.lua -f 'put back'",
  },
  {
    name = "1799-mesh-forgotten", file = "lua/ganymede/cli/run.lua",
    find = [[args.set = joined(args.set, found)]],
    replace = "",
    breaks = "a job that is put back has the ranks of its last change, and not their mesh",
    test = "spec/job/steps_spec.lua -f 'put back'",
  },
}
