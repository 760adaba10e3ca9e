--- Mutants of what runs leave and read: folders, metrics, checkpoints, what ranks compare at the start, settings of
-- gm.launch, check, padding that is written over. What a row says: spec/mutants/table.lua.
return {
  {
    name = "423-parts-never-written", file = "host/checkpoint/save.c",
    find = [[void gm_save_all_written(gm_save *s) { expect(s, PARTS_WRITTEN, ""); }]],
    replace = [[void gm_save_all_written(gm_save *s) { (void)s; }]],
    breaks = "a save whose parts somebody removes is waited for without end",
    test = "unit checkpoint_rank_fails",
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
    name = "426-folder-of-others", file = "host/files/files.c",
    find = [[ && !(s.st_mode & 077);]],
    replace = [[;]],
    breaks = "a folder that others may look into is taken for a job's, and emptied",
    test = "unit job_folders",
  },
  {
    name = "427-half-a-line", file = "host/files/append.c",
    find = [[if (done && before >= 0 && ftruncate(fd, before))]],
    replace = [[if (done && before < 0)]],
    breaks = "a full disk leaves half a line in metrics.jsonl",
    test = "spec/train/metrics_file_spec.lua -f 'limit on the size'",
  },
  {
    name = "428-metrics-through-a-link", file = "host/files/append.c",
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
    name = "430-names-not-compared", file = "host/files/tree.c",
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
    name = "434-gradient-written-over", file = "host/autograd/padding.c",
    find = [[if (!v->param || !v->param->grad_shown || !v->param->grad) return GM_OK;]],
    replace = [[return GM_OK;]],
    breaks = "what a user writes into the padding of a gradient counts",
    test = "spec/layout/padding_spec.lua -f 'of a gradient'",
  },
  {
    name = "435-rows-of-no-sample", file = "host/data/loader.c",
    find = [[
    zero_rows(l, s, to + own, rows - own);]],
    replace = "",
    breaks = "rows of a block that are no samples hold what was there",
    test = "spec/data/pieces_spec.lua",
  },
  {
    name = "437-later-metrics-stay", file = "lua/ganymede/observe/metrics_file.lua",
    find = [[and event.step <= step then]],
    replace = [[then]],
    breaks = "a resumed run has the steps twice that its checkpoint does not hold",
    test = "spec/train/metrics_file_spec.lua -f 'goes on behind the step'",
  },
  {
    name = "438-evaluation-twice", file = "lua/ganymede/observe/metrics_file.lua",
    find = [[
  if line == self.last then return end
]],
    replace = "\n",
    breaks = "the evaluation of a resumed step is noted twice",
    test = "spec/train/metrics_file_spec.lua -f 'notes the evaluation'",
  },
  {
    name = "439-step-told-late", file = "lua/ganymede/train/trainer.lua",
    find = [[
tell_known(self)
  tell_step(self)]],
    replace = [[tell_known(self)]],
    breaks = "a checkpoint is there before metrics.jsonl has its step",
    test = "spec/train/metrics_file_spec.lua -f 'before its checkpoint'",
  },
  {
    name = "440-samples-from-zero", file = "lua/ganymede/train/trainer.lua",
    find = [[total_samples = self.samples_before + self.samples,]],
    replace = [[total_samples = self.samples,]],
    breaks = "a resumed run counts its samples from zero",
    test = "spec/train/metrics_file_spec.lua -f 'counted from its beginning'",
  },
  {
    name = "441-files-not-compared", file = "lua/ganymede/train/initialize.lua",
    find = [[
parts, 2, aliases)
    check_loaders(opt)
    check_data(opt)]],
    replace = [[parts, 2, aliases)
    check_loaders(opt)]],
    breaks = "ranks with files of other lengths wait for each other",
    test = "spec/faults/differing_spec.lua -f 'other lengths'",
  },
  {
    name = "442-lua-files-not-compared", file = "lua/ganymede/job/session.lua",
    find = [[core.tree_checksum(rawget(_G, "GANYMEDE_ROOT") .. "/lua", ".lua")]],
    replace = [["unknown"]],
    breaks = "ranks run different Lua files of one version",
    test = "spec/faults/differing_spec.lua -f 'Lua files'",
  },
  {
    name = "443-count-beyond-53-bits", file = "lua/ganymede/checkpoint/snapshot.lua",
    find = [[and v < 2 ^ 53 and]],
    replace = [[and]],
    breaks = "a step is taken up that cannot be counted on from",
    test = "spec/resume/sealed_spec.lua -f 'cannot be counted'",
  },
  {
    name = "444-run-folder-not-locked", file = "lua/ganymede/observe/rundir.lua",
    find = [[
: ", ""))) end
  lock(self)]],
    replace = [[: ", ""))) end]],
    breaks = "a run does not take its folder",
    test = "spec/faults/folder_spec.lua -f 'belongs to one run'",
  },
  {
    name = "445-launch-not-handed-on", file = "lua/ganymede/train/initialize.lua",
    find = [[do add(name, launched[name]) end]],
    replace = [[do add(name, nil) end]],
    breaks = "settings of gm.launch do not reach gm.initialize",
    test = "spec/train/launch_spec.lua -f 'reach gm.initialize'",
  },
  {
    name = "446-torchrun-trains-alone", file = "lua/ganymede/job/launcher.lua",
    find = [[launched()
  refuse_half_an_environment(args, found)]],
    replace = "launched()",
    breaks = "processes of an environment that is not complete train each for itself",
    test = "spec/train/launch_spec.lua -f 'are refused where torchrun'",
  },
  {
    name = "447-base-wins", file = "lua/ganymede/train/launch.lua",
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
    name = "451-checkpoint-elsewhere", file = "lua/ganymede/train/fit.lua",
    find = [[if seen > 0 then return found or]],
    replace = [[if found then return found or]],
    breaks = "a folder whose checkpoints are all damaged is one without: the run begins anew",
    test = "spec/resume/in_process_spec.lua -f 'auto takes the one before'",
  },
  {
    name = "457-meetings-too-seldom", file = "lua/ganymede/checkpoint/init.lua",
    find = [[return timeout > 0 and math.min(5, timeout / 4) or 5]],
    replace = [[return timeout > 0 and 5 or 5]],
    breaks = "a rank that waits for its slow disk is taken for one that hangs",
    test = "spec/checkpoint/ranks_spec.lua -n 2 -f 'meet more often'",
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
    name = "468-rank-of-others", file = "lua/ganymede/train/launch.lua",
    find = [[if given[name] ~= nil and given[name] ~= is[name] then]],
    replace = [[if given[name] == "" then]],
    breaks = "gm.launch is told of ranks that are not there, and believes it",
    test = "spec/train/launch_spec.lua -f 'ranks that are others'",
  },
  {
    name = "469-state-of-a-hook", file = "lua/ganymede/checkpoint/snapshot.lua",
    find = [[local ok, err = failure.try(take_up, trainer, ck.meta)]],
    replace = [[local ok, err = true, take_up(trainer, ck.meta)]],
    breaks = "a state in a checkpoint that no hook takes is an error of Lua, with status 1",
    test = "spec/resume/sealed_spec.lua -f 'states are numbers'",
  },
  {
    name = "470-meta-not-checked", file = "lua/ganymede/checkpoint/snapshot.lua",
    find = [[
  check_shape(path, meta, shape, "meta")
]],
    replace = "\n",
    breaks = "meta of a checkpoint is believed whatever its fields are",
    test = "spec/resume/sealed_spec.lua",
  },
  {
    name = "594-folder-without-index", file = "host/checkpoint/steps.c",
    find = [[(steps[i] != spared || spared == saved) && has_index(folder, steps[i]);]],
    replace = [[steps[i] != spared || spared == saved;]],
    breaks = "keep_last counts folders without an index as checkpoints",
    test = "spec/checkpoint/damage_spec.lua -f index",
  },
  {
    name = "595-cut-between-images", file = "host/data/image_dataset.c",
    find = [[if (d->layout.records &&]],
    replace = [[if (0 && d->layout.records &&]],
    breaks = "a CIFAR file that is cut between two images is taken",
    test = "spec/data/files_spec.lua -f between",
  },
  {
    name = "2231-torn-line-is-damage", file = "lua/ganymede/base/json.lua",
    find = [[local ok, value = failure.try(json.decode, line, path)]],
    replace = [[local ok, value = true, json.decode(line, path)]],
    breaks = "a line that a killed process left incomplete ends the run that goes on",
    test = "spec/json/json_spec.lua -f torn",
  },
}
