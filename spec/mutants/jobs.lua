--- Mutants of jobs and of what runs leave: stops, output, supervisors, folders, files of a run, what ranks compare at
-- the start, settings of gm.launch, check. What a row says: spec/mutants/table.lua.
return {
  {
    name = "400-stop-outlives-its-run", file = "host/control/signals.c",
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
    name = "403-full-pipe-kept", file = "host/control/output.c",
    find = [[if (full && self.full[fd]) dup2(self.nothing, fd);]],
    replace = "",
    breaks = "a stop waits for output that nobody reads",
    test = "spec/faults/output_spec.lua -f 'Ctrl.C from ending 1'",
  },
  {
    name = "404-folder-not-swept", file = "host/control/sweeper.c",
    find = [[i < SWEEPS && died; i++]],
    replace = [[i < 0 && died; i++]],
    breaks = "a supervisor that is killed leaves its folder",
    test = "spec/faults/start_spec.lua -f 'killed while its ranks start'",
  },
  {
    name = "405-launcher-outlives", file = "host/control/sweeper.c",
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
    find = [[gm_control_ask(p, late);]],
    replace = [[gm_control_ask(p, false);]],
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
    name = "411-step-of-a-death", file = "host/control/keeper.c",
    find = [[(long long)note->step + 1);]],
    replace = [[(long long)note->step);]],
    breaks = "the step in which a rank died counts from 0",
    test = "spec/faults/ranks_spec.lua -f 'in the middle of a step ends'",
  },
  {
    name = "412-dying-is-not-awaited", file = "host/control/process.c",
    find = [[!= 1 || !(flags & EXITING)) return;]],
    replace = [[!= 9) return;]],
    breaks = "an mpirun that is dying is taken for one that lives, and a rank is blamed",
    test = "unit process_dying",
  },
  {
    name = "413-run-folder-shared", file = "host/control/lock.c",
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
    name = "415-stop-before-joining", file = "host/control/supervise.c",
    find = [[if (!job->ranks[i].joined) return false;]],
    replace = [[if (job->n < 1) return false;]],
    breaks = "ranks that wait for each other in MPI are asked to stop, which they do not hear",
    test = "spec/faults/start_spec.lua -f 'a stop before all'",
  },
  {
    name = "416-second-sigterm", file = "host/control/signals.c",
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
    name = "417-hangup", file = "host/control/signals.c",
    find = [[else if (signal_number == SIGTERM || signal_number == SIGHUP) on_terminate();]],
    replace = [[else if (signal_number == SIGTERM) on_terminate();]],
    breaks = "a terminal that is closed means a time limit",
    test = "spec/faults/stops_spec.lua -f 'SIGHUP saves'",
  },
  {
    name = "418-sigpipe", file = "host/control/output.c",
    find = [[before.sa_handler == SIG_DFL) sigaction(SIGPIPE, &action, NULL);]],
    replace = [[before.sa_handler == SIG_DFL) return true;]],
    breaks = "a reader that leaves ends the run",
    test = "spec/faults/output_spec.lua -f 'a reader that leaves'",
  },
  {
    name = "419-closed-files", file = "host/control/output.c",
    find = [[if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return false;]],
    replace = [[if (fd > STDERR_FILENO) return false;]],
    breaks = "files of a run take the places of standard files that are closed",
    test = "spec/faults/output_spec.lua -f 'closed standard'",
  },
  {
    name = "420-output-limit", file = "host/control/signals.c",
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
    name = "421-held-output-lost", file = "host/control/supervise.c",
    find = [[all_ended(job) && wind_up(job) && is_written(job)]],
    replace = [[all_ended(job) && wind_up(job)]],
    breaks = "what a slow reader has not read when the ranks have ended is lost",
    test = "spec/faults/output_spec.lua -f 'that have long ended'",
  },
  {
    name = "422-held-output-grows", file = "host/control/output.c",
    find = [[return o->n > ENOUGH;]],
    replace = [[return o->n > 64 * ENOUGH;]],
    breaks = "the supervisor holds what ranks write without a limit",
    test = "spec/faults/output_spec.lua -f 'is waited for by a rank'",
  },
  {
    name = "423-parts-never-written", file = "host/checkpoint/save.c",
    find = [[void gm_save_all_written(gm_save *s) { expect(s, PARTS_WRITTEN, ""); }]],
    replace = [[void gm_save_all_written(gm_save *s) { (void)s; }]],
    breaks = "a save whose parts somebody removes is waited for without end",
    test = "spec/faults/folder_spec.lua -f 'may lose what ranks'",
  },
  {
    name = "424-leftover-link", file = "host/checkpoint/files.c",
    find = [[
int  fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d]],
    replace = [[int  fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d]],
    breaks = "a link in place of a leftover save has what it leads to emptied",
    test = "spec/faults/folder_spec.lua -f 'may hold a link'",
  },
  {
    name = "425-dense-index", file = "host/checkpoint/index.c",
    find = [[
    GM_TRY(check_density(path, text, size));]],
    replace = "",
    breaks = "an index is parsed that takes a hundred times its bytes of memory",
    test = "spec/resume/sealed_spec.lua -f 'would take much more'",
  },
  {
    name = "426-folder-of-others", file = "host/control/files.c",
    find = [[ && !(s.st_mode & 077);]],
    replace = [[;]],
    breaks = "a folder that others may look into is taken for a job's, and emptied",
    test = "unit job_folders",
  },
  {
    name = "427-half-a-line", file = "host/control/append.c",
    find = [[if (done && before >= 0 && ftruncate(fd, before))]],
    replace = [[if (done && before < 0)]],
    breaks = "a full disk leaves half a line in metrics.jsonl",
    test = "spec/train/metrics_file_spec.lua -f 'limit on the size'",
  },
  {
    name = "428-metrics-through-a-link", file = "host/control/append.c",
    find = [[O_APPEND | O_NOFOLLOW | ]],
    replace = [[O_APPEND | ]],
    breaks = "metrics are written where a link leads that waited there",
    test = "spec/train/metrics_file_spec.lua -f 'does not follow a link'",
  },
  {
    name = "429-labels-not-compared", file = "host/data/dataset.c",
    find = [[
        *sum = (uint32_t)crc32_z(*sum, (const unsigned char *)y, y_bytes);]],
    replace = "",
    breaks = "ranks train on files with other labels",
    test = "spec/faults/differing_spec.lua -f 'other labels'",
  },
  {
    name = "430-names-not-compared", file = "host/control/tree.c",
    find = [[
    *sum = (uint32_t)crc32_z(*sum, (const unsigned char *)name, strlen(name));]],
    replace = "",
    breaks = "folders whose files have other names are taken for the same",
    test = "spec/faults/differing_spec.lua -f 'checksum of a folder'",
  },
  {
    name = "431-constant-not-forgotten", file = "kernels/meta/known.c",
    find = [[if (call->out[i]) gm_tensor_forget(call->out[i]);]],
    replace = "",
    breaks = "check reads the old value of a tensor that data went into",
    test = "spec/cli/check_constants_spec.lua -f 'what data went into'",
  },
  {
    name = "432-part-is-the-whole", file = "kernels/meta/known.c",
    find = [[ || bytes != t->storage->bytes) return false;]],
    replace = [[) return false;]],
    breaks = "a tensor of which a part is known is known",
    test = "spec/cli/check_constants_spec.lua -f 'written in part'",
  },
  {
    name = "433-padding-written-over", file = "bindings/handle.c",
    find = [[gm_status st = gm_padding_renew(h->value);]],
    replace = [[gm_status st = GM_OK;]],
    breaks = "what a user writes past the layout counts",
    test = "spec/layout/padding_spec.lua -f 'a user writes over'",
  },
  {
    name = "434-gradient-written-over", file = "host/parallel/padding.c",
    find = [[return v->grad_shown && v->grad ? renew(v, v->grad, &v->grad_zeroed) : GM_OK;]],
    replace = [[return GM_OK;]],
    breaks = "what a user writes into the padding of a gradient counts",
    test = "spec/layout/padding_spec.lua -f 'of a gradient'",
  },
  {
    name = "435-rows-of-no-sample", file = "host/data/loader.c",
    find = [[
    zero_rows(l, s, to + own, *rows - own);]],
    replace = "",
    breaks = "rows of a block that are no samples hold what was there",
    test = "spec/data/pieces_spec.lua",
  },
  {
    name = "436-exit-in-a-run", file = "lua/ganymede/launcher.lua",
    find = [[return failure.protect(function() os.exit = exit end, fn, ...)]],
    replace = [[return failure.protect(function() end, (function(...) os.exit = exit return ... end)(fn), ...)]],
    breaks = "os.exit in a hook ends a run as if all were done",
    test = "spec/faults/stops_spec.lua -f 'os.exit in a hook'",
  },
  {
    name = "437-later-metrics-stay", file = "lua/ganymede/metrics_file.lua",
    find = [[and at <= step then]],
    replace = [[then]],
    breaks = "a resumed run has the steps twice that its checkpoint does not hold",
    test = "spec/train/metrics_file_spec.lua -f 'goes on behind the step'",
  },
  {
    name = "438-evaluation-twice", file = "lua/ganymede/metrics_file.lua",
    find = [[
  if line == self.last then return end
]],
    replace = "\n",
    breaks = "the evaluation of a resumed step is noted twice",
    test = "spec/train/metrics_file_spec.lua -f 'notes the evaluation'",
  },
  {
    name = "439-step-told-late", file = "lua/ganymede/trainer.lua",
    find = [[
tell_known(self)
  tell_step(self)]],
    replace = [[tell_known(self)]],
    breaks = "a checkpoint is there before metrics.jsonl has its step",
    test = "spec/train/metrics_file_spec.lua -f 'before its checkpoint'",
  },
  {
    name = "440-samples-from-zero", file = "lua/ganymede/trainer.lua",
    find = [[total_samples = self.samples_before + self.samples,]],
    replace = [[total_samples = self.samples,]],
    breaks = "a resumed run counts its samples from zero",
    test = "spec/train/metrics_file_spec.lua -f 'counted from its beginning'",
  },
  {
    name = "441-files-not-compared", file = "lua/ganymede/initialize.lua",
    find = [[
launched), 2, aliases)
    check_data(opt)]],
    replace = [[launched), 2, aliases)]],
    breaks = "ranks with files of other lengths wait for each other",
    test = "spec/faults/differing_spec.lua -f 'other lengths'",
  },
  {
    name = "442-lua-files-not-compared", file = "lua/ganymede/session.lua",
    find = [[core.tree_checksum(rawget(_G, "GANYMEDE_ROOT") .. "/lua", ".lua")]],
    replace = [["unknown"]],
    breaks = "ranks run different Lua files of one version",
    test = "spec/faults/differing_spec.lua -f 'Lua files'",
  },
  {
    name = "443-count-beyond-53-bits", file = "lua/ganymede/snapshot.lua",
    find = [[and v < 2 ^ 53 and]],
    replace = [[and]],
    breaks = "a step is taken up that cannot be counted on from",
    test = "spec/resume/sealed_spec.lua -f 'cannot be counted'",
  },
  {
    name = "444-run-folder-not-locked", file = "lua/ganymede/rundir.lua",
    find = [[
: ", ""))) end
  lock(self)]],
    replace = [[: ", ""))) end]],
    breaks = "a run does not take its folder",
    test = "spec/faults/folder_spec.lua -f 'belongs to one run'",
  },
  {
    name = "445-launch-not-handed-on", file = "lua/ganymede/initialize.lua",
    find = [[do add(name, launched[name]) end]],
    replace = [[do add(name, nil) end]],
    breaks = "settings of gm.launch do not reach gm.initialize",
    test = "spec/train/launch_spec.lua -f 'reach gm.initialize'",
  },
  {
    name = "446-torchrun-trains-alone", file = "lua/ganymede/launcher.lua",
    find = [[

  refuse_torchrun(args, found)]],
    replace = "",
    breaks = "processes that torchrun started train each for itself",
    test = "spec/train/launch_spec.lua -f 'where torchrun did'",
  },
  {
    name = "447-base-wins", file = "lua/ganymede/launch.lua",
    find = [[if key ~= "config" then out[key] = value end]],
    replace = [[if key ~= "config" and out[key] == nil then out[key] = value end]],
    breaks = "config = file is not changed by what is given besides",
    test = "spec/train/launch_spec.lua -f 'loads the file'",
  },
  {
    name = "448-roles-without-hooks", file = "lua/ganymede/plan/roles.lua",
    find = [[calls = true, hooks = true }]],
    replace = [[calls = true, hooks = false }]],
    breaks = "check --roles passes over hooks",
    test = "spec/cli/check_plan_spec.lua -f 'finds a hook'",
  },
  {
    name = "449-hook-left-out-unsaid", file = "lua/ganymede/plan/hooks.lua",
    find = [[left_out[#left_out + 1] = { name = own.name or "a table of functions", why = failure.text(why) }]],
    replace = "",
    breaks = "check --roles does not say which hooks it could not compare",
    test = "spec/cli/check_plan_spec.lua -f 'names a hook'",
  },
  {
    name = "450-spec-files-not-fresh", file = "spec/run.lua",
    find = [[fresh.restore() --]],
    replace = [[--]],
    breaks = "a spec file sees what the one before left",
    test = "spec/cli/several_files_spec.lua",
  },
  {
    name = "451-checkpoint-elsewhere", file = "lua/ganymede/fit.lua",
    find = [[if seen > 0 then return found or]],
    replace = [[if found then return found or]],
    breaks = "a folder whose checkpoints are all damaged is one without: the run begins anew",
    test = "spec/resume/in_process_spec.lua -f 'auto takes the one before'",
  },
  {
    name = "452-no-output-unexplained", file = "lua/ganymede/trainer.lua",
    find = [[return scope(no_grad, without_output, fn, hook, self, output, ...)]],
    replace = [[return scope(no_grad, fn, hook, self, output, ...)]],
    breaks = "a hook that reads the output on another stage is told of a nil value",
    test = "spec/train/objects_spec.lua -f 'explains on a stage'",
  },
  {
    name = "453-handler-not-shielded", file = "lua/ganymede/failure.lua",
    find = [[
core.signals_shield(failure.handler)]],
    replace = "",
    breaks = "a stop in the handler of an error is an error in error handling",
    test = "spec/faults/stops_spec.lua -f 'in the handler of an error'",
  },
  {
    name = "454-ranks-of-a-line", file = "lua/ganymede/repl_ranks.lua",
    find = [[for rank = tonumber(first), tonumber(last) or tonumber(first) do]],
    replace = [[for rank = tonumber(first), tonumber(first) do]],
    breaks = "@2-3 means rank 2 alone",
    test = "spec/repl/on_ranks_spec.lua -f 'answers, survives'",
  },
  {
    name = "455-prints-mixed", file = "lua/ganymede/repl_ranks.lua",
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
    name = "457-meetings-too-seldom", file = "lua/ganymede/checkpoint.lua",
    find = [[return timeout > 0 and math.min(5, timeout / 4) or 5]],
    replace = [[return timeout > 0 and 5 or 5]],
    breaks = "a rank that waits for its slow disk is taken for one that hangs",
    test = "spec/checkpoint/ranks_spec.lua -n 2 -f 'meet more often'",
  },
  {
    name = "458-end-not-shielded", file = "lua/ganymede/session.lua",
    find = [[
core.signals_shield(conclude)]],
    replace = "",
    breaks = "a stop that comes when all is done makes a failure of a run that went well",
    test = "spec/faults/stops_spec.lua -f 'is being wound up'",
  },
  {
    name = "459-clean-up-not-shielded", file = "lua/ganymede/failure.lua",
    find = [[
core.signals_shield(done)]],
    replace = "",
    breaks = "a stop cuts short what puts things back",
    test = "spec/faults/stops_spec.lua -f 'does not cut short'",
  },
  {
    name = "460-stop-between-lines", file = "lua/ganymede/repl.lua",
    find = [[
return done(xpcall(function()
    core.signals_arm(true)
    return chunk()
  end, failure.handler))]],
    replace = [[core.signals_arm(true)
  return done(xpcall(chunk, failure.handler))]],
    breaks = "a Ctrl-C between two lines of the repl ends it",
    test = "spec/faults/stops_spec.lua -f 'between two lines'",
  },
  {
    name = "461-hangup-not-ignored", file = "host/control/signals.c",
    find = [[return signal_number == SIGHUP || (signal_number == SIGINT && !self.patient);]],
    replace = [[return signal_number == SIGINT && !self.patient;]],
    breaks = "nohup does not keep a run from ending with its terminal",
    test = "spec/faults/stops_spec.lua -f 'stays so: SIGHUP'",
  },
  {
    name = "462-background-interrupted", file = "host/control/signals.c",
    find = [[return signal_number == SIGHUP || (signal_number == SIGINT && !self.patient);]],
    replace = [[return signal_number == SIGHUP;]],
    breaks = "a Ctrl-C that is for another program ends a run in the background",
    test = "spec/faults/stops_spec.lua -f 'stays so: SIGINT'",
  },
  {
    name = "463-published-without-files", file = "host/checkpoint/save.c",
    find = [[
    if (all) return GM_OK;]],
    replace = [[
    return GM_OK;]],
    breaks = "a checkpoint whose files somebody removed meanwhile counts as saved",
    test = "spec/checkpoint/crash_spec.lua -f 'loses a file'",
  },
  {
    name = "464-size-limit-kills", file = "host/main.c",
    find = [[
    signal(SIGXFSZ, SIG_IGN); ]],
    replace = [[
    ]],
    breaks = "a limit on the size of files ends the run by a signal",
    test = "spec/train/metrics_file_spec.lua -f 'limit on the size'",
  },
  {
    name = "465-failure-waits-for-a-reader", file = "host/control/supervise_failure.c",
    find = [[
    gm_output_limit(); ]],
    replace = [[
    ]],
    breaks = "a job in which a rank was killed waits for who does not read its output",
    test = "spec/faults/output_spec.lua -f 'a killed rank from'",
  },
  {
    name = "466-output-not-told", file = "lua/ganymede/cli/init.lua",
    find = [[if verb.prints then check_output() end]],
    replace = "",
    breaks = "check > /dev/full ends with status 0",
    test = "spec/cli/run_spec.lua -f 'there to print cannot'",
  },
  {
    name = "467-environment-not-checked", file = "lua/ganymede/cli/init.lua",
    find = [[if depth == 1 then require("ganymede.environment").check() end]],
    replace = "",
    breaks = "a misspelt variable of the environment is ignored",
    test = "spec/cli/environment_spec.lua -f 'refuses a variable'",
  },
  {
    name = "468-rank-of-others", file = "lua/ganymede/launch.lua",
    find = [[if given[name] ~= nil and given[name] ~= is[name] then]],
    replace = [[if given[name] == "" then]],
    breaks = "gm.launch is told of ranks that are not there, and believes it",
    test = "spec/train/launch_spec.lua -f 'ranks that are others'",
  },
  {
    name = "469-state-of-a-hook", file = "lua/ganymede/snapshot.lua",
    find = [[local ok, err = failure.try(take_up, trainer, ck.meta)]],
    replace = [[local ok, err = true, take_up(trainer, ck.meta)]],
    breaks = "a state in a checkpoint that no hook takes is an error of Lua, with status 1",
    test = "spec/resume/sealed_spec.lua -f 'states are numbers'",
  },
  {
    name = "470-meta-not-checked", file = "lua/ganymede/snapshot.lua",
    find = [[
  check_shape(path, meta, shape, "meta")
]],
    replace = "\n",
    breaks = "meta of a checkpoint is believed whatever its fields are",
    test = "spec/resume/sealed_spec.lua",
  },
}
