--- Mutants of what cuDNN computes and of what is around it: key masks that are prefixes, tensors that are turned or
-- folded, batch norm of odd planes.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "1921-holes-pass", file = "kernels/cuda/ops/attention/prefix.cu",
    find = [[if (count != end) gm_refuse]],
    replace = [[if (count > end) gm_refuse]],
    breaks = "a GPU takes a mask with a zero before a one as a prefix",
    test = "spec/cuda/dnn_spec.lua -f 'no prefix'",
  },
  {
    name = "1925-holes-pass-on-cpu", file = "kernels/key_mask.c",
    find = [[if (count != end)]],
    replace = [[if (count > end)]],
    breaks = "a CPU takes a mask with a zero before a one as a prefix",
    test = "spec/kernels/attention_spec.lua -f 'no prefix'",
  },
  {
    name = "1926-prefix-not-told", file = "lua/ganymede/nn/attention.lua",
    find = [[prefix_mask = key_mask and opt.prefix_mask or nil, limits]],
    replace = [[prefix_mask = nil, limits]],
    breaks = "a layer does not pass on what is known of its masks",
    test = "spec/models/bert_spec.lua -f prefixes",
  },
  {
    name = "1927-fold-without-padding", file = "kernels/cuda/ops/convolution/folded.cu",
    find = [[left = s * a.fold[1] - a.low[1];]],
    replace = [[left = s * a.fold[1];]],
    breaks = "a folded image has its padding behind it",
    test = "spec/cuda/convolution_spec.lua -f 'case 5'",
  },
  {
    name = "1928-unfold-replaces", file = "kernels/cuda/ops/convolution/folded.cu",
    find = [[a.accumulate ? gm_get(*to) + v : v]],
    replace = [[v]],
    breaks = "the gradient of a folded weight replaces what was there",
    test = "spec/cuda/convolution_spec.lua -f 'case 5'",
  },
  {
    name = "1929-turned-tiles", file = "kernels/cuda/ops/convolution/turned.cu",
    find = [[column = (int64_t)(at % a.tiles[1]) * GM_TURN_SIDE;]],
    replace = [[column = (int64_t)(at % a.tiles[1]) * (GM_TURN_SIDE + 8);]],
    breaks = "tiles of turned planes leave places out between them",
    test = "spec/cuda/convolution_spec.lua -f 'case 3'",
  },
  {
    name = "1930-turned-not-told", file = "kernels/cuda/dnn/convolution_graph.c",
    find = [[p->channels_last[i] ? with_channels_last]],
    replace = [[p->channels_last[i] && i ? with_channels_last]],
    breaks = "cuDNN reads a turned image as if it were not turned",
    test = "spec/cuda/convolution_spec.lua -f 'case 1'",
  },
  {
    name = "1931-next-plane", file = "kernels/cuda/ops/batch_norm/batch_norm.cu",
    find = [[c + 1 < a.channels ? c + 1 : 0]],
    replace = [[c]],
    breaks = "elements of a plane that begins within an item are normalised as those of the plane before",
    test = "spec/kernels/images_spec.lua -f 'atch norm'",
  },
  {
    name = "1932-prefix-of-nothing", file = "kernels/infer_dense.c",
    find = [[if (at->prefix_mask && !call->in[3])]],
    replace = [[if (at->prefix_mask && call->in[3] == q)]],
    breaks = "prefix_mask without a key mask is ignored",
    test = "spec/kernels/attention_spec.lua -f 'cannot be meant'",
  },
}
