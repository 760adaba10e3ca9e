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
    find = [[if (counts(d, s, axes)) GM_TRY(move]],
    replace = [[if (s->used) GM_TRY(move]],
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
    name = "636-zero-uneven", file = "host/gradients/owned.c",
    find = [[if (f.len * p == f.n) return]],
    replace = [[if (f.n >= p) return]],
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
}
