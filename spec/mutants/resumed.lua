--- Mutants of runs that stop and go on: what a checkpoint says of hooks, of the end of an epoch, of random numbers.
return {
  {
    name = "2320-epoch-end-forgotten", file = "lua/ganymede/train/trainer.lua",
    find = [[return self.ended_at ~= self.step or self.tested_at ~= self.step]],
    replace = [[return false]],
    breaks = "a run that goes on at the end of an epoch leaves out its evaluation",
    test = "spec/resume/epoch_ends_spec.lua -f 'evaluates there'",
  },
  {
    name = "2321-epoch-end-without-test", file = "lua/ganymede/train/trainer.lua",
    find = [[return self.ended_at ~= self.step or self.tested_at ~= self.step]],
    replace = [[return self.ended_at ~= self.step]],
    breaks = "an evaluation is left out where the checkpoint was saved in after_train_epoch",
    test = "spec/resume/epoch_ends_spec.lua -f 'behind them'",
  },
  {
    name = "2322-epoch-end-told-twice", file = "lua/ganymede/train/trainer.lua",
    find = [[  if self.ended_at ~= self.step then
    self:call "before]],
    replace = [[  if true then
    self:call "before]],
    breaks = "after_train_epoch is called again where the checkpoint was saved in it",
    test = "spec/resume/epoch_ends_spec.lua -f 'behind them'",
  },
  {
    name = "2323-early-stop-goes-on", file = "lua/ganymede/hooks/early_stop.lua",
    find = [[if self.restored and self.waited >= self.opt.patience then trainer:stop() end]],
    replace = [[]],
    breaks = "a run that has ended early trains on when it is resumed",
    test = "spec/resume/epoch_ends_spec.lua -f 'more patience'",
  },
  {
    name = "2324-hook-states-in-order", file = "lua/ganymede/hooks/states.lua",
    find = [[local hook = table.remove(waiting[title] or {}, 1)]],
    replace = [[local hook = table.remove(waiting[title] or {})]],
    breaks = "of hooks of one name the last takes the first state",
    test = "spec/resume/hook_states_spec.lua -f 'go in order'",
  },
  {
    name = "2325-hook-state-dropped-unsaid", file = "lua/ganymede/hooks/states.lua",
    find = [[else left[#left + 1] = title end]],
    replace = [[end]],
    breaks = "a state that no hook takes is dropped without a word",
    test = "spec/resume/hook_states_spec.lua -f 'are named'",
  },
  {
    name = "2326-hook-state-of-another-measure", file = "lua/ganymede/hooks/metric.lua",
    find = [[return ("%s %s"):format(self.name, self.opt.name) end]],
    replace = [[return self.name end]],
    breaks = "a mean begins with the sums of another one",
    test = "spec/resume/hook_states_spec.lua -f 'are named'",
  },
  {
    name = "2327-best-of-another-metric", file = "lua/ganymede/hooks/early_stop.lua",
    find = [[return ("%s %s"):format(self.name, self.opt.metric) end]],
    replace = [[return self.name end]],
    breaks = "accuracies are compared with the best loss",
    test = "spec/resume/hook_states_spec.lua -f 'of one metric'",
  },
  {
    name = "2328-metrics-by-place", file = "lua/ganymede/hooks/metrics.lua",
    find = [[for _, metric in ipairs(self.train) do state[metric.name] = metric:state() end
  return next(state) and state]],
    replace = [[for _, metric in ipairs(self.train) do state[self.train[1].name] = metric:state() end
  return next(state) and state]],
    breaks = "a metric takes the sums of another one",
    test = "spec/resume/hook_states_spec.lua -f 'belong to their names'",
  },
  {
    name = "2329-draws-of-the-step-before", file = "lua/ganymede/train/step_loader.lua",
    find = [[if self.engine then self.engine:restart_draws() end]],
    replace = [[]],
    breaks = "what transforms draw depends on what was drawn before the step",
    test = "spec/resume/draws_spec.lua -f 'have stopped'",
    also = { { file = "lua/ganymede/train/trainer.lua", find = [[self.engine:restart_draws()]], replace = [[]] } },
  },
  {
    name = "2330-draws-by-order-of-samples", file = "lua/ganymede/data/loader.lua",
    find = [[core.set_path("data." .. i)]],
    replace = [[core.set_path("data")]],
    breaks = "what a dataset draws for a sample depends on the rank that reads it",
    test = "spec/resume/draws_spec.lua -f '2 ranks where 3'",
  },
  {
    name = "2331-evaluation-draws", file = "lua/ganymede/train/trainer_evaluation.lua",
    find = [[engine:restart_draws()]],
    replace = [[]],
    breaks = "what transforms draw in an evaluation depends on what was before it",
    test = "spec/resume/draws_spec.lua -f 'have stopped'",
  },
  {
    name = "2332-evaluation-row-twice", file = "lua/ganymede/hooks/csv.lua",
    find = [[math.min(self.began, trainer.step - 1)]],
    replace = [[self.began]],
    breaks = "evaluations.csv has the evaluation of a resumed step twice",
    test = "spec/train/watching_hooks_spec.lua -f 'was resumed'",
  },
}
