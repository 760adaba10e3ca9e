--- Mutants of jobs whose ranks change while they train. What a row says: spec/mutants/table.lua.
return {
  {
    name = "1460-grow-forgotten", file = "lua/ganymede/job/fewer.lua",
    find = [=[found[order[1]] = product / least]=],
    replace = [=[found[order[1]] = sizes[order[1]]]=],
    breaks = "with more ranks the mesh stays as it was",
    test = "spec/job/fewer_spec.lua -f 'grows along'",
  },
  {
    name = "1461-refused-and-left", file = "lua/ganymede/job/elastic.lua",
    find = [[if change.asked then send(self.set, nil, { kind = "stay", id = change.id }) end]],
    replace = "",
    breaks = "ranks that have saved their state wait for ever when those that came are gone",
    test = "spec/job/elastic_spec.lua -f 'costs the job nothing'",
  },
  {
    name = "1462-state-not-taken", file = "lua/ganymede/train/handover.lua",
    find = [[snapshot.restore(trainer, word.path)]],
    replace = [[trainer.step = tonumber(word.path:match "step%-(%d+)")]],
    breaks = "ranks that come begin with fresh weights",
    test = "spec/job/elastic_spec.lua -f 'from 4 ranks to 8'",
  },
  {
    name = "1463-memory-left", file = "lua/ganymede/job/elastic.lua",
    find = [[if keep.folder and not keep.stays then]],
    replace = [[if keep.folder and keep.stays then]],
    breaks = "the state stays in memory after a change",
    test = "spec/job/elastic_spec.lua -f 'from 4 ranks to 8'",
  },
  {
    name = "1464-early-leave", file = "lua/ganymede/job/elastic.lua",
    find = [[send(new, nil, { kind = "take", path = state.path, before = self.set.args.ranks })]],
    replace = [[send(self.set, nil, { kind = "yield", id = change.id })
  send(new, nil, { kind = "take", path = state.path, before = self.set.args.ranks })]],
    breaks = "the ranks that train end before the others have the state",
    test = "spec/job/elastic_spec.lua -f 'costs the job nothing'",
  },
  {
    name = "1465-needs-the-old", file = "lua/ganymede/job/elastic.lua",
    find = [[change.frozen = true]],
    replace = "",
    breaks = "a job whose ranks die when their state lies in memory is lost",
    test = "spec/job/elastic_spec.lua -f 'once their state lies in memory'",
  },
  {
    name = "1466-anything-may-change", file = "lua/ganymede/job/elastic.lua",
    find = [[if not changeable[key or ""] then]],
    replace = [[if not key then]],
    breaks = "resize changes what is trained",
    test = "spec/job/elastic_spec.lua -f 'refuses what cannot be'",
  },
  {
    name = "1467-two-jobs", file = "lua/ganymede/cli/run.lua",
    find = [[if not args.takes_over then
      live.open]],
    replace = [[if true then
      live.open]],
    breaks = "ranks that are being built are found as a job of their own",
    test = "spec/job/elastic_spec.lua -f 'is one job'",
  },
  {
    name = "1468-swept-not", file = "host/files/files.c",
    find = [[!strcmp(name, "checkpoints") || ]],
    replace = "",
    breaks = "the state in memory outlives a supervisor that was killed",
    test = "spec/job/elastic_spec.lua -f 'supervisor is killed'",
  },
  {
    name = "1469-end-of-epoch", file = "lua/ganymede/train/handover.lua",
    find = [[return not (trainer and trainer.steps_per_epoch and trainer.step_of_epoch >= trainer.steps_per_epoch)]],
    replace = [[return true]],
    breaks = "a change at the end of an epoch leaves out its evaluation",
    test = "spec/job/elastic_spec.lua -f 'each epoch'",
  },
  {
    name = "1470-memory-ignored", file = "lua/ganymede/job/attempts.lua",
    find = [[return math.max(disk, memory), memory > 0 and memory >= disk]],
    replace = [[return math.max(disk, memory), false]],
    breaks = "a restart does not go on from the checkpoint in memory",
    test = "spec/faults/memory_checkpoint_spec.lua -f 'from memory with ZeRO'",
  },
  {
    name = "1471-memory-over-disk", file = "lua/ganymede/job/attempts.lua",
    find = [[return math.max(disk, memory), memory > 0 and memory >= disk]],
    replace = [[return math.max(disk, memory), memory > 0]],
    breaks = "a restart goes on from memory where the disk has a newer checkpoint",
    test = "spec/faults/memory_checkpoint_spec.lua -f 'where that is newer'",
  },
  {
    name = "1473-spare-unused", file = "lua/ganymede/job/elastic.lua",
    find = [[if not (spare and spare.idle) or old.job:asked()]],
    replace = [[if not (spare and spare.failed) or old.job:asked()]],
    breaks = "ranks that stand by are never used",
    test = "spec/faults/memory_checkpoint_spec.lua -f 'ranks that stand by'",
  },
  {
    name = "1474-hidden-flags-open", file = "lua/ganymede/job/attempts.lua",
    find = [[for _, flag in ipairs { "takes_over", "memory_folder" } do]],
    replace = [[for _, flag in ipairs {} do]],
    breaks = "a flag for ranks of a supervisor is taken from a user, whose job then waits for ever",
    test = "spec/faults/memory_checkpoint_spec.lua -f 'is refused'",
  },
  {
    name = "1475-steps-twice", file = "lua/ganymede/train/handover.lua",
    find = [[return word.before, go.closed == true]],
    replace = [[return word.before, true]],
    breaks = "metrics.jsonl has steps twice that were made again in ranks that stood by",
    test = "spec/faults/memory_checkpoint_spec.lua -f 'ranks that stand by'",
  },
  {
    name = "1476-no-disk", file = "lua/ganymede/train/handover.lua",
    find = [[local directory = trainer.checkpoint_directory and trainer.checkpoint_directory()]],
    replace = [[local directory]],
    breaks = "a change is refused where memory does not take the state",
    test = "spec/job/elastic_spec.lua -f 'costs the job nothing'",
  },
  {
    name = "1472-memory-not-saved", file = "lua/ganymede/train/memory_checkpoint.lua",
    find = [[self.due = self.due or trainer.step % self.interval == 0]],
    replace = [[self.due = self.due or trainer.step == self.interval]],
    breaks = "one checkpoint in memory is saved, and no other",
    test = "spec/faults/memory_checkpoint_spec.lua -f 'with ZeRO'",
  },
  {
    name = "1770-beyond-the-allocation", file = "lua/ganymede/job/steps.lua",
    find = [[if count > most then]],
    replace = [[if count > most + 1 then]],
    breaks = "a job of srun is given more ranks than its machines have places",
    test = "spec/job/steps_spec.lua -f 'does not hold'",
  },
  {
    name = "1771-limit-of-a-step", file = "lua/ganymede/job/steps.lua",
    find = [[if core.now() > change.ends then return]],
    replace = [[if false then return]],
    breaks = "a change of a job of srun waits for new ranks longer than --limit",
    test = "spec/job/steps_spec.lua -f 'costs the job nothing'",
  },
  {
    name = "1772-status-of-the-step", file = "lua/ganymede/job/steps.lua",
    find = [[return status, {}]],
    replace = [[return 0, {}]],
    breaks = "a job of srun whose ranks have changed ends with 0, whatever became of the new ones",
    test = "spec/job/steps_spec.lua -f 'goes from 2 ranks'",
  },
  {
    name = "1773-reason-of-the-step", file = "lua/ganymede/job/steps.lua",
    find = [[pcall(write, steps.folder(), "failed", { text = text })]],
    replace = "",
    breaks = "who asked for a change is not told why the new ranks have failed",
    test = "spec/job/steps_spec.lua -f 'costs the job nothing'",
  },
  {
    name = "1774-one-task-of-srun", file = "lua/ganymede/job/launcher.lua",
    find = [[if found.by == "srun" then
    launcher.started]],
    replace = [[if found.by == "srun" and found.world > 1 then
    launcher.started]],
    breaks = "a job of srun that has one rank does not get more",
    test = "spec/job/steps_spec.lua -f 'goes from 2 ranks'",
  },
  {
    name = "1775-sharing-by-itself", file = "host/comm/share.c",
    find = [[if (on && !c->may_share) st =]],
    replace = [[if (on && !c->shares) st =]],
    breaks = "a rank that is alone on its machine looks again for others to share memory with, and they do not come",
    test = "spec/comm/tcp_spec.lua -f 'one of them shares no memory'",
  },
  {
    name = "1776-nameless-machine", file = "lua/ganymede/cli/init.lua",
    find = [[text = launcher.with_hosts(text)]],
    replace = "",
    breaks = "a job does not say which machine was cut off",
    test = "spec/faults/three_hosts_spec.lua -f 'ends soon where host 2'",
  },
  {
    name = "2189-words-of-others", file = "lua/ganymede/job/steps.lua",
    find = [[  until not core.real_path(folder)
  core.make_new_folder(folder)]],
    replace = [[  until true
  core.make_folders(folder)]],
    breaks = "ranks that come take the words of an earlier change, in a folder that was left, for theirs",
    test = "spec/job/steps_spec.lua -f 'hears no words'",
  },
  {
    name = "2190-stop-between", file = "lua/ganymede/cli/run.lua",
    find = [[    if ok and steps.left() then status = steps.follow() end
  end]],
    replace = "  end",
    also = { { file = "lua/ganymede/cli/run.lua", find = [[launcher.without_exit, all)
  return status]], replace = [[launcher.without_exit, all)
  if steps.left() then return steps.follow() end]] } },
    breaks = "SIGTERM while the ranks before leave ends rank 0, and the job is not put back",
    test = "spec/job/steps_spec.lua -f 'loses no SIGTERM'",
  },
  {
    name = "2191-rehearsal-needed", file = "lua/ganymede/train/handover.lua",
    find = "local ok, err = pcall(snapshot.rehearse, trainer,",
    replace = "local ok, err = true, snapshot.rehearse(trainer,",
    breaks = "a job is not resized where /dev/shm is too small for its state, which could go over the disk",
    test = "spec/job/elastic_spec.lua -f 'costs the job nothing'",
  },
}
