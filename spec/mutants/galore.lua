--- Mutants of GaLore, of the decomposition that it needs, and of how ZeRO divides states of optimizers that are written
-- with ops.
return {
  {
    name = "2970-smallest-first", file = "host/optim/whiten.c",
    find = [[size_t from = n - 1 - j;]],
    replace = [[size_t from = j;]],
    breaks = "the singular vectors of the smallest singular values come first",
    test = "unit whiten_gives_singular_vectors",
  },
  {
    name = "2971-nothing-is-small", file = "host/optim/whiten.c",
    find = "r->w[from] > least * least * r->w[n - 1];",
    replace = "r->w[from] > least * 0;",
    breaks = "directions that are there by rounding alone count",
    test = "unit whiten_leaves_out_what_is_small",
  },
  {
    name = "2972-decomposes-what-is-not-finite", file = "host/optim/whiten.c",
    find = [[if (!isfinite(x[i])) return false;]],
    replace = [[if (isnan(x[i]) && isfinite(x[i])) return false;]],
    breaks = "a matrix with NaN becomes zeros, or none is ever found",
    test = "unit whiten_passes_on_what_is_not_finite",
  },
  {
    name = "2973-signs-as-they-come", file = "lua/ganymede/optim/galore.lua",
    find = [[return v * (1 - ops.lt(along, 0):to "f64" * 2)]],
    replace = [[return v * (along * 0 + 1)]],
    breaks = "directions that are found again look the other way, and moments no longer fit",
    test = "-n 1 spec/optim/galore_spec.lua -f 'sign of those before'",
  },
  {
    name = "2974-half-the-iteration", file = "lua/ganymede/optim/galore.lua",
    find = [[local TURNS = 4]],
    replace = [[local TURNS = 1]],
    breaks = "the directions are near the singular vectors only",
    test = "-n 1 spec/optim/galore_spec.lua -f 'among many'",
  },
  {
    name = "2975-full-steps-in-rounding", file = "lua/ganymede/optim/galore.lua",
    find = [[core.whiten(c, least)]],
    replace = [[core.whiten(c, 0)]],
    breaks = "parameters move by full steps in directions that their gradients do not have",
    test = "-n 1 spec/optim/galore_spec.lua -f 'leaves out'",
  },
  {
    name = "2976-directions-once", file = "lua/ganymede/optim/galore.lua",
    find = [[if (t - 1) % opt.update_proj_gap == 0 then]],
    replace = [[if t == 1 then]],
    breaks = "the directions of the first gradient stay for ever",
    test = "-n 1 spec/golden/families_spec.lua -f galore",
  },
  {
    name = "2977-states-as-parameters-lie", file = "lua/ganymede/optim/by_ops.lua",
    find = [[local part = core.owned_part(self.mine[i].tensor)]],
    replace = [[local part = self.mine[i].tensor:detach()]],
    breaks = "ZeRO 1 and 2 leave the states of CAME, Adafactor and GaLore whole on each rank",
    test = "spec/parallel/zero_bytes_spec.lua -f 'written with ops'",
  },
  {
    name = "2978-moments-on-all-ranks", file = "lua/ganymede/optim/galore.lua",
    find = [[if #cuts[summed] == 0 then return]],
    replace = [[if true then return]],
    breaks = "where ranks divide the dimension that is summed up, all of them have all moments",
    test = "spec/parallel/zero_bytes_spec.lua -f 'written with ops'",
  },
}
