--- Mutants of what saves memory: ZeRO.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "632-zero-rest", file = "host/gradients/owned.c",
    find = [[b->rest = axes & ~b->owners;]],
    replace = [[b->rest = 0;]],
    breaks = "sums over axes that have no owners are left out",
    test = "spec/parallel/zero_spec.lua -f 'ring on 2'",
  },
  {
    name = "633-zero-replicated", file = "host/gradients/owned.c",
    find = [[        if (gm_slot_counts(d, s, axes))
            GM_TRY(gm_parts_copy(]],
    replace = [[        if (s->used)
            GM_TRY(gm_parts_copy(]],
    breaks = "a gradient that is replicated counts once for each rank",
    test = "unit reducer_shares_out",
  },
  {
    name = "634-zero-flag", file = "host/gradients/owned.c",
    find = [[s->unused = users == 0;]],
    replace = [[s->unused = false;]],
    breaks = "a parameter that no rank used has a gradient",
    test = "unit reducer_shares_out",
  },
  {
    name = "635-zero-second-pass", file = "host/gradients/owned.c",
    find = [[GM_OP_axpy, NULL, b->sum, b->flat]],
    replace = [[GM_OP_copy, NULL, b->sum, b->flat]],
    breaks = "the second batch of a step replaces the sums of the first",
    test = "unit reducer_shares_out",
  },
  {
    name = "636-zero-uneven", file = "host/gradients/parts.c",
    find = [[if (p->len * n == p->n) return]],
    replace = [[if (p->n >= n) return]],
    breaks = "parts of uneven sizes are packed as if they were even",
    test = "unit reducer_shares_out",
  },
  {
    name = "637-zero-gather", file = "lua/ganymede/train/engine_update.lua",
    find = [[  if self.gathers then core.reducer_gather(self.reducer) end]],
    replace = [[]],
    breaks = "each rank goes on with its own part of the new parameters",
    test = "spec/parallel/zero_spec.lua -f 'parallelism: data 2'",
  },
  {
    name = "638-zero-rows", file = "host/optim/optimizer.c",
    find = [[whole ? rows.start : 0]],
    replace = [[0]],
    breaks = "every owner updates the first rows",
    test = "spec/parallel/zero_spec.lua -f 'parallelism: data 2'",
  },
  {
    name = "639-zero-dimension", file = "host/mesh/layout.c",
    find = [[if (padding <= 1.0 / 64) break;]],
    replace = [[if (padding <= 1.0 / 8) break;]],
    breaks = "a dimension that is padded much is taken",
    test = "unit layout_divides",
  },
  {
    name = "640-zero-each-pass", file = "lua/ganymede/train/engine.lua",
    find = [[if self.reducer and (last or self.sums_each_pass) then]],
    replace = [[if self.reducer and last then]],
    breaks = "stage 2 keeps whole gradients between the batches of a step",
    test = "spec/parallel/zero_spec.lua -f 'two batches a step'",
  },
  {
    name = "641-zero-state-layout", file = "host/optim/optimizer.c",
    find = [[is_shared_out(&o->items[i]) ? &v->param->owned : &v->layout]],
    replace = [[&v->layout]],
    breaks = "states of a part are saved as if they were whole",
    test = "spec/parallel/zero_spec.lua -f 'another stage'",
  },
  {
    name = "642-stored-writes", file = "host/gradients/stored.c",
    find = [[if (u->state != PRESENT || u->version == s->version) return GM_OK;]],
    replace = [[if (s) return GM_OK;]],
    breaks = "what was written into a gathered parameter is lost when it goes",
    test = "unit stored_parameters",
  },
  {
    name = "643-stored-one-call", file = "host/gradients/stored.c",
    find = [[ && u->call != u->block.storage->device->call;]],
    replace = [[;]],
    breaks = "a parameter makes room for another one of the same call",
    test = "unit stored_in_one_call",
  },
  {
    name = "644-stored-keep", file = "host/gradients/stored.c",
    find = [[while (s->present && s->present + more > keep_of(s)) {]],
    replace = [[while (s->present && s->present + more > 8 * keep_of(s) + 100000) {]],
    breaks = "gathered parameters stay",
    test = "unit stored_order",
  },
  {
    name = "645-stored-ahead", file = "host/gradients/stored.c",
    find = [[if (s->under_way && s->under_way + bytes_of(u) > ahead_of(s)) return GM_OK;]],
    replace = [[if (s->under_way > (1 << 30)) return GM_OK;]],
    breaks = "everything is gathered ahead at once",
    test = "unit stored_order",
  },
  {
    name = "646-stored-update", file = "host/gradients/stored.c",
    find = [[without being written back */
    return leave(u);]],
    replace = [[without being written back */
    return GM_OK;]],
    breaks = "a parameter is used as it was before the update",
    test = "unit stored_parameters",
  },
  {
    name = "647-stored-order", file = "host/gradients/stored.c",
    find = [[    note(s, u);
        follow(s, u);]],
    replace = [[    note(s, u);]],
    breaks = "what is gathered ahead is the beginning of the last step's order",
    test = "unit stored_order",
  },
  {
    name = "648-zero-size", file = "lua/ganymede/optim/zero.lua",
    find = [[{ "shard", "expert" } or]],
    replace = [[{ "data", "expert" } or]],
    breaks = "zero.size divides over the other ranks",
    test = "spec/parallel/zero_spec.lua -f 'zero.size'",
  },
  {
    name = "649-stored-version", file = "host/gradients/stored.c",
    find = [[u->block.storage->version = version; /* what comes is what was there */]],
    replace = [[]],
    breaks = "a gather counts as a write, and backward refuses what forward kept",
    test = "spec/parallel/zero_spec.lua -f 'parallelism: data 2'",
  },
  {
    name = "650-stored-load", file = "bindings/lua_checkpoint.c",
    find = [[L_TRY(L, gm_value_resting_changes(v));]],
    replace = [[]],
    breaks = "a parameter that was gathered before a checkpoint was loaded keeps its old numbers",
    test = "spec/parallel/zero_spec.lua -f 'has been used'",
  },
}
