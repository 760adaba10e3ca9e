--- Mutants of what CPU tables do where the last dimension is short (kernels/cpu/base.c, dense.c,
--- copy.c, reduce.c, sum_t.h).
--- What a row says: spec/mutants/table.lua.
local spec = "spec/kernels/short_rows_spec.lua"
return {
  {
    name = "3102-short-rows-turn", file = "kernels/cpu/base.c",
    find = [[w->turn[k] = w->stride[k][last];]],
    replace = [[w->turn[k] = 1;]],
    breaks = "a column that is repeated along short rows is read as if it lay there",
    test = spec .. " -f 'f32, 3 wide'",
  },
  {
    name = "3103-short-rows-repeats", file = "kernels/cpu/dense.c",
    find = [[const bool there = i > 0 && stride[k] == 0;]],
    replace = [[const bool there = i > 0;]],
    breaks = "the first rows of a window serve for all",
    test = spec .. " -f 'f32, 31 wide'",
  },
  {
    name = "3104-short-rows-back", file = "kernels/cpu/dense.c",
    find = [[if (back) copy_strided(size, n, at, stride, room, j->turns);]],
    replace = [[if (back) copy_strided(size, n, at, stride, room, 1);]],
    breaks = "what is computed for a window goes to other places",
    test = spec .. " -f 'f32, 3 wide'",
  },
  {
    name = "3105-short-rows-copy", file = "kernels/cpu/copy.c",
    find = [[p[1] + t * w->turn[1] * w->size[1]],
    replace = [[p[1] + t * w->size[1]],
    breaks = "copies take their short dimension from neighbours",
    test = spec .. " -f 'f32, 3 wide'",
  },
  {
    name = "3106-short-rows-fill", file = "kernels/cpu/copy.c",
    find = [[p[0] + t * j->turn * j->size, stride[0], j->pattern, 0);]],
    replace = [[p[0], stride[0], j->pattern, 0);]],
    breaks = "of a window only the first column is filled",
    test = spec .. " -f 'f32, 3 wide'",
  },
  {
    name = "3107-short-sums-last", file = "kernels/cpu/reduce.c",
    find = [[if (first + piece > j->length) part.shape[last] = j->length - first;]],
    replace = [[if (first > j->length) part.shape[last] = j->length - first;]],
    breaks = "the last sums that are added up beside each other reach behind the end",
    test = spec .. " -f 'sums of f32 of .130, 15'",
  },
  {
    name = "3108-short-sums-flat", file = "kernels/cpu/sum_t.h",
    find = [[sum[i % n] += room[i];]],
    replace = [[sum[i / (period / n)] += room[i];]],
    breaks = "columns of short rows are mixed",
    test = spec .. " -f 'sums of f32 of .200, 63'",
  },
  {
    name = "3109-short-sums-threads", file = "kernels/cpu/reduce.c",
    find = [[sum_place(&part, i / pieces, first, j->sums + thread * j->inner);]],
    replace = [[sum_place(&part, i, first, j->sums + thread * j->inner);]],
    breaks = "pieces of one place count as places",
    test = spec .. " -f 'sums of f32 of .6, 5, 3, 5, 3'",
  },
}
