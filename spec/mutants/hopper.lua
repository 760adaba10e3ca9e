--- Mutants of products on Hopper, of cross entropy with its gradient in one pass, and of kernels that memory limits.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "1891-sums-not-added", file = "kernels/cuda/ops/gemm/wgmma.cu",
    find = [[*sum = gm_put<T>(a.accumulate ? gm_get(*sum) + low : low);]],
    replace = [[*sum = gm_put<T>(low);]],
    breaks = "a second batch of a step replaces the bias gradient of the first",
    test = "spec/cuda/wgmma_spec.lua -f 'weights along 72, bf16'",
  },
  {
    name = "2228-half-of-a-pair-not-added", file = "kernels/cuda/ops/gemm/wgmma.cu",
    find = [[y[1] = gm_put<T>(a.accumulate ? gm_get(y[1]) + high : high);]],
    replace = [[y[1] = gm_put<T>(high);]],
    breaks = "each second column of a weight's gradient is that of the last batch of a step alone",
    test = "spec/cuda/wgmma_spec.lua -f 'weights along 72, bf16'",
  },
  {
    name = "2229-parts-of-others", file = "kernels/cuda/ops/gemm/wgmma.cu",
    find = [[const int64_t step = is_sum ? a.m : a.m * a.n;]],
    replace = [[const int64_t step = a.m * a.n;]],
    breaks = "sums for the bias are joined from parts that are not theirs",
    test = "spec/cuda/wgmma_spec.lua -f 'weights along 272, bf16'",
  },
  {
    name = "1892-bias-of-the-neighbour", file = "kernels/cuda/ops/gemm/wgmma.cu",
    find = [[x[2 * i] = c[0] + gm_low_of<T>(bias[j]);]],
    replace = [[x[2 * i] = c[0] + gm_high_of<T>(bias[j]);]],
    breaks = "each second column has the bias of the next",
    test = "spec/cuda/wgmma_spec.lua -f 'layers of 72 inputs, bf16'",
  },
  {
    name = "1893-swizzle-of-panels", file = "kernels/cuda/common/hopper.cuh",
    find = [[((row >> 1 & 3) << 4)]],
    replace = [[((row & 3) << 4)]],
    breaks = "pieces of a row leave in another order",
    test = "spec/cuda/wgmma_spec.lua -f 'layers of 72 inputs, bf16'",
  },
  {
    name = "1894-pieces-of-one-length", file = "kernels/cuda/ops/gemm/wgmma.cu",
    find = [[at.first = (int)((int64_t)at.piece * a.depths / a.pieces);]],
    replace = [[at.first = at.piece * (a.depths / a.pieces);]],
    breaks = "pieces of a sum whose stages cannot be shared evenly overlap",
    test = "spec/cuda/wgmma_spec.lua -f 'weights along 272, bf16'",
  },
  {
    name = "1895-rows-behind-the-last", file = "kernels/cuda/ops/gemm/wgmma.cu",
    find = [[if (row >= a.m) continue;]],
    replace = [[if (row > a.m) continue;]],
    breaks = "a tile at the edge writes a row that is another's",
    test = "spec/cuda/wgmma_spec.lua -f 'weights along'",
  },
  {
    name = "1896-slope-of-the-gate-alone", file = "kernels/cuda/ops/gemm/wgmma.cu",
    find = [[return s + x * s * (1 - s) *]],
    replace = [[return s + 0 * x * s * (1 - s) *]],
    breaks = "the slope of GELU is that of x times a constant gate",
    test = "spec/cuda/wgmma_spec.lua -f 'inputs along 72, bf16'",
  },
  {
    name = "1897-stages-without-turned-step", file = "kernels/cuda/ops/gemm/wgmma.cu",
    find = [[(turned ? k * 16 * GM_TILE_ROW : k * 32) / 16]],
    replace = [[(turned ? k * 8 * GM_TILE_ROW : k * 32) / 16]],
    breaks = "products of turned factors take half of the depth twice",
    test = "spec/cuda/wgmma_spec.lua -f 'inputs along 72, bf16'",
  },
  {
    name = "1904-gradient-not-rescaled", file = "host/autograd/gradients.c",
    find = [[gm_work_into(gm_backward_work(b), GM_OP_rescale_rows, 2, in, NULL, 1, &dx);]],
    replace = [[(void)in;]],
    breaks = "a loss that is multiplied once more has the gradient of the loss alone",
    test = "spec/nn/cross_entropy_scale_spec.lua",
  },
  {
    name = "1905-gradient-without-its-factor", file = "kernels/cuda/ops/loss/loss.cu",
    find = [[t.wrong ? (R)NAN : by * g, part]],
    replace = [[t.wrong ? (R)NAN : by, part]],
    breaks = "on a GPU the gradient of the classes that are not the target lacks the factor of the mean",
    test = "spec/kernels/loss_spec.lua -f both",
  },
  {
    name = "1906-gradient-of-factor-one", file = "kernels/cpu/loss_t.h",
    find = [[
        *loss = (T)M(entropy_of_row)(j, x, target, row);
        M(entropy_grad_row)(j, x, target, (T)row.largest, (T)row.sum, g, dx);]],
    replace = [[
        *loss = (T)M(entropy_of_row)(j, x, target, row);
        M(entropy_grad_row)(j, x, target, (T)row.largest, (T)row.sum, (T)1, dx);]],
    breaks = "on a CPU the gradient made with the loss lacks the factor of the mean",
    test = "spec/kernels/loss_spec.lua -f both",
  },
  {
    name = "1907-largest-of-the-first-packs", file = "kernels/cuda/ops/float8/float8.cu",
    find = [[GM_UNROLL for (int j = 0; j < HELD; j++) most = gm_float8_larger<T>(most, held[j]);]],
    replace = [[GM_UNROLL for (int j = 0; j < HELD - 1; j++) most = gm_float8_larger<T>(most, held[j]);]],
    breaks = "a scale is found without a part of the tensor",
    test = "spec/kernels/float8_spec.lua -f 'find the largest'",
  },
  {
    name = "1908-plate-not-turned", file = "kernels/cuda/ops/copy/copy.cu",
    find = [[u.x[j] = plate[(place + j) * PITCH + line];]],
    replace = [[u.x[j] = plate[line * PITCH + place + j];]],
    breaks = "a turned copy moves a plate as it is",
    test = "spec/kernels/elementwise_spec.lua -f copy",
  },
  {
    name = "2295-odd-columns-in-pairs", file = "kernels/cuda/ops/gemm/wgmma.c",
    find = [[if ((k == WEIGHT || g->bias) && g->n % 2) return NOT_OURS;]],
    replace = "",
    breaks = "weight gradients of odd columns are stored in pairs that are not aligned, over the row below",
    test = "spec/cuda/wgmma_spec.lua -f 'odd numbers'",
  },
}
