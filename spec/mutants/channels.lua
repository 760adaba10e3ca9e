--- Mutants of images whose channels ranks share (2D tensor parallelism).
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "1777-channels-one-term", file = "host/parallel/sharded/convolution2d.c",
    find = [[if (term != c) gm_work_into(w, GM_OP_axpy, 1, &term, NULL, 1, &c);]],
    replace = [[if (term != c) gm_work_copy(w, term, c);]],
    breaks = "a convolution of blocks of channels keeps its last term in place of the sum",
    test = "-n 4 spec/layout/channel_blocks_spec.lua -f 'even channels'",
  },
  {
    name = "1778-channels-terms-activated", file = "host/parallel/sharded/convolution2d.c",
    find = [[gm_tensor   *in[3] = {x, weight, NULL}, *out[2] = {place(t, accumulate, y), NULL};
    a.function = GM_FN_none;]],
    replace = [[gm_tensor   *in[3] = {x, weight, NULL}, *out[2] = {place(t, accumulate, y), NULL};]],
    breaks = "each term of a convolution of blocks is activated by itself",
    test = "-n 4 spec/layout/channel_blocks_spec.lua -f 'an activation'",
  },
  {
    name = "1779-channels-whole", file = "lua/ganymede/nn/tensor_parallel/two_d_images.lua",
    find = [[if how == "whole" then return nil end]],
    replace = [[if how ~= "groups" then return nil end]],
    breaks = "every rank of a 2D grid holds whole convolutions",
    test = "spec/parallel/channel_blocks_spec.lua -f 'hold a quarter'",
  },
  {
    name = "1780-uneven-width", file = "lua/ganymede/nn/stream.lua",
    find = [[return x:local_tensor():size(d) == n]],
    replace = [[return n > 0]],
    breaks = "an activation whose channels a reshape left in other blocks is taken as it lies",
    test = "spec/parallel/channel_blocks_spec.lua -f 'divide otherwise'",
  },
  {
    name = "1781-groups-cut-twice", file = "lua/ganymede/nn/tensor_parallel/two_d_images.lua",
    find = [[local cut = space.is_cut(x) or (]],
    replace = [[local cut = (]],
    breaks = "norms of images get channels that are cut, where space is cut, too",
    test = "spec/parallel/channel_blocks_spec.lua -f 'norms of each instance'",
  },
  {
    name = "1782-term-without-channels", file = "host/parallel/sharded/summa.c",
    find = [[else if (!add) gm_work_fill(s->work, c, 0);]],
    replace = [[else if (add) gm_work_fill(s->work, c, 0);]],
    breaks = "a rank without channels gets terms that nobody has set",
    test = "-n 4 spec/layout/channel_blocks_spec.lua -f 'one of y'",
  },
}
