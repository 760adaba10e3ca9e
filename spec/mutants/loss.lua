-- Mutants of cross entropy and of the gradient of a table on a CPU. What a row says: spec/mutants/table.lua.
return {
  {
    name = "2073-ignored-row-counts", file = "kernels/cpu/loss_t.h",
    find = [[*(T *)cpu_row_at(&j->loss, r) = target == j->ignore ? 0 : (T)F(entropy_of_row)(j, x, target, row);]],
    replace = [[*(T *)cpu_row_at(&j->loss, r) = (T)F(entropy_of_row)(j, x, target < 0 ? 0 : target, row);]],
    breaks = "a row whose target is ignored has a loss",
    test = "spec/kernels/loss_spec.lua",
  },
  {
    name = "2074-ignored-row-has-gradient", file = "kernels/cpu/loss_t.h",
    find = [[if (target == j->ignore) memset(dx, 0, (size_t)j->x.width * sizeof(T));]],
    replace = [[if (target == j->ignore) F(entropy_grad_row)(j, x, 0, largest, sum, g, dx);]],
    breaks = "a row whose target is ignored has a gradient",
    test = "spec/kernels/loss_spec.lua",
  },
  {
    name = "2075-smoothing-of-target-alone", file = "kernels/cpu/loss_t.h",
    find = [[dx[target] = (T)((double)g * (p - (1 - j->smoothing) - share));]],
    replace = [[dx[target] = (T)((double)g * (p - (1 - j->smoothing)));]],
    breaks = "the target's class does not get its part of what smoothing spreads",
    test = "spec/kernels/loss_spec.lua",
  },
  {
    name = "2076-smoothing-from-shift", file = "kernels/cpu/loss_t.h",
    find = [[e * (rest + F(sum_below)(j->x.width, x, (T)row.largest) / n) : miss;]],
    replace = [[e * (rest + F(sum_below)(j->x.width, x, (T)row.shift) / n) : miss;]],
    breaks = "smoothing measures from a logit that is not the largest",
    test = "spec/kernels/loss_spec.lua",
  },
  {
    name = "2077-sum-keeps-old-shift", file = "kernels/cpu/loss_t.h",
    find = [[r->sum *= exp(r->shift - largest); /* 0 at first: exp(-inf) */]],
    replace = [[if (r->shift == -INFINITY) r->sum = 0;]],
    breaks = "what was summed before a much larger logit came counts too much",
    test = "spec/kernels/loss_spec.lua",
  },
  {
    name = "2078-padding-row-learns", file = "kernels/cpu/loss_t.h",
    find = [[int64_t        count = row == j->padding ? 0 : j->start[row + 1] - j->start[row];]],
    replace = [[int64_t        count = j->start[row + 1] - j->start[row];]],
    breaks = "the row of a table for padding gets a gradient",
    test = "spec/kernels/loss_spec.lua",
  },
  {
    name = "2343-accuracy-of-ignored-targets", file = "lua/ganymede/nn/losses.lua",
    find = [[not is_soft(target) and self.opt.ignore_index or nil]],
    replace = [[nil]],
    breaks = "where ignore_index is a class, AccuracyHook counts right answers among ignored targets, and may exceed 1",
    test = "-n 1 spec/nn/losses_spec.lua -f 'none of them ignored'",
  },
  {
    name = "2344-labels-beside-rows", file = "lua/ganymede/nn/metrics.lua",
    find = [[if rows == labels then return end]],
    replace = [[if rows ~= "" then return end]],
    breaks = "labels of another shape are compared with all rows",
    test = "-n 1 spec/nn/losses_spec.lua -f 'none of them ignored'",
  },
}
