--- Mutants of what a trial from outside found, by combinations that nobody had tried and by bad input.
--- What a row says: spec/mutants/table.lua.
return {
  {
    name = "3500-sixty-four-pieces", file = "bindings/lua_views.c",
    find = [[if (n < 1) return gm_bad_argument(L, 1, "a list of at least one tensor was expected");]],
    replace = [[if (n < 1 || n > 64) return gm_bad_argument(L, 1, "a list of at least one tensor was expected");]],
    breaks = "a step of more than 64 batches or micro-batches fails where a hook sees its outputs",
    test = "spec/train/many_pieces_spec.lua",
  },
}
