--- Mutants of host/pipeline/ and of lua/ganymede/pipeline/: stages, borders, cuts, what stages share.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "251-border-slices", file = "host/pipeline/parcel.c",
    find = [[gm_group_size(g)), start = per * gm_group_rank(g);]],
    replace = [[gm_group_size(g)), start = per * (gm_group_size(g) - 1 - gm_group_rank(g));]],
    breaks = "ranks that share a border's value send each other's slices",
    test = "unit executor_scatter",
  },
  {
    name = "252-border-zeros", file = "host/pipeline/compute.c",
    find = [[gm_status st = gm_run_one(r->device, GM_OP_fill, NULL, NULL, (*out)->local);]],
    replace = [[
gm_attrs  other = gm_attrs_default();
    other.value = 0.5;
    gm_status st = gm_run_one(r->device, GM_OP_fill, &other, NULL, (*out)->local);]],
    breaks = "the gradient of a value that the next part ignores is what its memory held before",
    test = "unit executor_ignored",
  },
  {
    name = "253-other-chunk-awaited", file = "host/pipeline/compute.c",
    find = [[if (!e->step->final || e->awaited) return GM_OK;]],
    replace = [[if (e->step->final || e->awaited) return GM_OK;]],
    breaks = "a parameter of two chunks is summed after the last pass of the first of them",
    test = "spec/pipeline/executor_spec.lua",
  },
  {
    name = "254-sends-block", file = "host/pipeline/transfer.c",
    find = [[
gm_status st = a->gradient ? send_gradient(e, p, passage) : send_activation(e, p, a, passage);
    GM_TRY(gm_flow_leave(e));
    return st;
}]],
    replace = [[
gm_status st = a->gradient ? send_gradient(e, p, passage) : send_activation(e, p, a, passage);
    GM_TRY(gm_flow_leave(e));
    return st == GM_OK ? gm_parcel_wait(&e->route, p) : st;
}]],
    breaks = "a send waits until it is received",
    test = "unit executor_sends_ahead",
  },
  {
    name = "255-middle-loss", file = "host/pipeline/compute.c",
    find = [[passage->has_loss = result->loss && result->loss->requires_grad;]],
    replace = [[passage->has_loss = result->loss && result->loss->requires_grad && !result->n;]],
    breaks = "the loss that a part in the middle adds is dropped",
    test = "unit executor_schedules",
  },
  {
    name = "256-epoch-forgotten", file = "host/pipeline/executor.c",
    find = [[
if (e->epoch != gm_comm_epoch(e->route.comm)) gm_agreed_forget(e->agreed); /* the others may have failed before */]],
    replace = "",
    breaks = "after a step that failed, stages remember headers that others never saw",
    test = "unit executor_forgets",
  },
  {
    name = "257-outputs-held", file = "host/pipeline/transfer.c",
    find = [[gm_value_release(passage->out[i]);]],
    replace = "",
    breaks = "what a part gave is held beyond the send that carries it",
    test = "spec/pipeline/executor_spec.lua",
  },
  {
    name = "263-uneven-parts", file = "lua/ganymede/pipeline/partition.lua",
    find = [[return w <= heaviest and w * w or math.huge]],
    replace = [[return w <= heaviest and w or math.huge]],
    breaks = "of cuts with the same heaviest part not the most even one is taken",
    test = 'spec/pipeline/partition_spec.lua -f "best of all cuts"',
  },
  {
    name = "264-border-order", file = "lua/ganymede/pipeline/packing.lua",
    find = [[for _, key in ipairs(options.sorted_keys(value)) do]],
    replace = [[for key in pairs(value) do]],
    breaks = "tables cross a border in the order in which this process happens to visit them",
    test = 'spec/pipeline/stage_packing_spec.lua -f "one text"',
  },
  {
    name = "269-measured-first", file = "lua/ganymede/schedules/account.lua",
    find = [[a.time = last - first]],
    replace = [[a.time = a.span]],
    breaks = "a step that ends at a barrier is said to lose no more than one that does not",
    test = "spec/pipeline/trace_spec.lua",
  },
  {
    name = "272-pieces-draw-alike", file = "lua/ganymede/schedules/pipeline_schedule.lua",
    find = [[run.engine:begin_batch(run.before[m], run.sizes[m])]],
    replace = [[run.engine:begin_batch(run.before[1], run.sizes[m])]],
    breaks = "every micro-batch draws the random numbers of the first",
    test = 'spec/pipeline/engine_spec.lua -f "accumulates gradients over batches"',
  },
  {
    name = "273-auxiliary-not-averaged", file = "lua/ganymede/schedules/pipeline_schedule.lua",
    find = [[extra = ops.mul(extra, 1 / run.count)]],
    replace = [[extra = ops.mul(extra, 1)]],
    breaks = "losses of layers are summed over micro-batches, not averaged",
    test = 'spec/pipeline/engine_spec.lua -f "adds what layers of any stage add"',
  },
  {
    name = "274-output-on-the-last", file = "lua/ganymede/schedules/pipeline_schedule.lua",
    find = [[if part == stages * self.chunks then return i - 1 end]],
    replace = [[if part == stages * self.chunks then return stages - 1 end]],
    breaks = "the stage that counts is the last, also where the first holds the last part",
    test = 'spec/pipeline/engine_spec.lua -f "evaluates, predicts"',
  },
  {
    name = "275-loss-of-a-middle-stage", file = "lua/ganymede/schedules/pipeline_schedule.lua",
    find = [[if loss and core.device().has_data then run.loss_part = run.loss_part + ranks.part(loss, true) end]],
    replace = [[if loss and core.device().has_data then run.loss_part = run.loss_part + ranks.part(loss, false) end]],
    breaks = "what layers of a middle stage add is not in the loss that is said",
    test = 'spec/pipeline/engine_spec.lua -f "adds what layers of any stage add"',
  },
  {
    name = "276-targets-of-a-piece", file = "lua/ganymede/schedules/pipeline_schedule.lua",
    find = [[output, run.y and run.y[m], run.targets)]],
    replace = [[output, run.y and run.y[m], nil)]],
    breaks = "without a loader a loss is divided by the targets of its micro-batch",
    test = 'spec/pipeline/execute_spec.lua -f "1f1b"',
  },
  {
    name = "291-borders-whole", file = "lua/ganymede/schedules/pipeline_schedule.lua",
    find = [[return core.executor_new { scatter = self.opt.scatter_gather and #axes > 0 and axes or nil,]],
    replace = [[return core.executor_new { scatter = nil,]],
    breaks = "every rank sends all of what it has a copy of, although slices were asked for",
    test = 'spec/parallel/hybrid_spec.lua -f "borders in slices"',
  },
  {
    name = "373-stages-not-scaled", file = "host/pipeline/compute.c",
    find = [[.pass = pass, .final = final, .outputs = outputs, .seeds = seeds, .losses = true, .inputs = inputs};]],
    replace = [[.pass = pass, .final = final, .outputs = outputs, .seeds = seeds, .inputs = inputs};]],
    breaks = "losses of a pipeline's last stage are not scaled",
    test = "spec/parallel/precision_spec.lua -f pipeline",
  },
}
