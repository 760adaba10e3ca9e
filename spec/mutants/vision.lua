--- Mutants of models of images: attention with a bias, windows, VGG, ConvNeXt, MLP-Mixer, patches of volumes, and files
-- of torchvision and timm.
return {
  {
    name = "1551-bias-without-cap-only", file = "kernels/cpu/attention_t.h",
    find = [[    if (w->bias) F(attention_bias)(w, room, b, head, i0, queries, j0, keys);]],
    replace = [[    if (w->bias && w->softcap == 0) F(attention_bias)(w, room, b, head, i0, queries, j0, keys);]],
    breaks = "attention with a softcap leaves its bias out",
    test = "spec/kernels/attention_bias_spec.lua -f 'a cap'",
  },
  {
    name = "1552-bias-of-the-last-sample", file = "kernels/cpu/attention_grad_t.h",
    find = [[to[c * step] += ds[c];]],
    replace = [[to[c * step] = ds[c];]],
    breaks = "the gradient of a bias is that of the last sample which shares it",
    test = "spec/kernels/attention_bias_spec.lua -f 'shared by the batch'",
  },
  {
    name = "1553-bias-of-the-first-block", file = "host/autograd/layout_rules/rows.c",
    find = [[c->attrs->row = block.offset[0];]],
    replace = [[c->attrs->row = 0;]],
    breaks = "a rank takes the biases of the first samples for its own",
    test = "spec/layout/rules_spec.lua -f 'biases of n windows on 10'",
  },
  {
    name = "1554-bias-in-a-ring", file = "host/parallel/sharded/ring.c",
    find = [[    if (c->in[BIAS])
]],
    replace = [[    if (c->in[BIAS] && c->attrs->causal)
]],
    breaks = "attention over a sequence that is cut ignores its bias",
    test = "spec/sequence/attention_spec.lua -f 'a bias goes with'",
  },
  {
    name = "1555-gpu-bias-row", file = "kernels/cuda/ops/attention/attention.cuh",
    find = [[return (a->row + batch) % a->biases * step[0] + head * step[1] + i * step[2] + j * step[3];]],
    replace = [[return batch % a->biases * step[0] + head * step[1] + i * step[2] + j * step[3];]],
    breaks = "on a GPU samples take their biases from the first on, wherever the block begins",
    test = "spec/kernels/attention_bias_spec.lua -f 'from the second on in f32'",
  },
  {
    name = "1556-gpu-bias-replaced", file = "kernels/cuda/ops/attention/attention.cu",
    find = [[*to = gm_put<T>(a.accumulate ? gm_get(*to) + sum[i][j] : sum[i][j]);]],
    replace = [[*to = gm_put<T>(sum[i][j]);]],
    breaks = "on a GPU the gradient of a bias replaces what it should be added to",
    test = "spec/kernels/attention_bias_spec.lua -f 'shared by the batch in f64'",
  },
  {
    name = "1557-windows-not-rolled-back", file = "lua/ganymede/nn/window_attention.lua",
    find = [[y = ops.roll(from_windows(y, self.window, b, sizes[1], sizes[2]), shift, { 2, 3 })]],
    replace = [[y = from_windows(y, self.window, b, sizes[1], sizes[2])]],
    breaks = "an image that was rolled for its windows stays so",
    test = "spec/golden/layers_spec.lua -f swin",
  },
  {
    name = "1558-windows-not-apart", file = "lua/ganymede/nn/window_attention.lua",
    find = [[return place < size - shift and 1 or 2]],
    replace = [[return 1]],
    breaks = "opposite edges of an image see each other",
    test = "spec/golden/layers_spec.lua -f swin",
  },
  {
    name = "1559-windows-all-rolled", file = "lua/ganymede/nn/window_attention.lua",
    find = [[shift[d] = self.window[d] < sizes[d] and self.shift[d] or 0]],
    replace = [[shift[d] = self.shift[d] ]],
    breaks = "a dimension that fits into one window is rolled",
    test = "spec/golden/layers_spec.lua -f swin",
  },
  {
    name = "1560-merged-row-by-row", file = "lua/ganymede/nn/swin_block.lua",
    find = [[{ b, h, 2, w, 2, c }), { 1, 2, 4, 5, 3, 6 })]],
    replace = [[{ b, h, 2, w, 2, c }), { 1, 2, 4, 3, 5, 6 })]],
    breaks = "four neighbours are merged row by row, not column by column",
    test = "spec/golden/layers_spec.lua -f swin",
  },
  {
    name = "1561-layer-scale-left-out", file = "lua/ganymede/nn/convnext_block.lua",
    find = [[if scale then y = ops.mul(y, scale) end]],
    replace = [[if scale then y = ops.mul(y, 1) end]],
    breaks = "the branch of a ConvNeXt is not scaled",
    test = "spec/golden/layers_spec.lua -f convnext",
  },
  {
    name = "1562-mixer-without-norm", file = "lua/ganymede/nn/mixer_block.lua",
    find = [[y = self.mlp(self.norm2(x))]],
    replace = [[y = self.mlp(x)]],
    breaks = "channels are mixed without their norm",
    test = "spec/golden/layers_spec.lua -f mixer",
  },
  {
    name = "1563-vgg-mean", file = "lua/ganymede/models/vgg.lua",
    find = [[return self.ends[i] and ops.max_pool(x, 2, 2) or x]],
    replace = [[return self.ends[i] and ops.avg_pool(x, 2, 2) or x]],
    breaks = "stages of VGG end with means, not with maxima",
    test = "spec/golden/layers_spec.lua -f vgg",
  },
  {
    name = "1564-volume-columns", file = "lua/ganymede/nn/patch_embedding.lua",
    find = [[{ b, c, n, p, -1 }), { 1, 3, 2, 4, 5 })]],
    replace = [[{ b, c, n, p, -1 }), { 1, 3, 4, 2, 5 })]],
    breaks = "the pixels of a volume's patch are not ordered as those of a kernel",
    test = "spec/golden/layers_spec.lua -f volumes",
  },
}
