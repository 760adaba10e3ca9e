--- Mutants of kernels/cuda/: kernels for GPUs, and what records steps as graphs; the emulation runs them.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "329-graph-step-block-old", file = "kernels/cuda/runtime/graph.c",
    find = [[if (g->reads_step) GM_TRY(gm_cuda_step(dev, &step));]],
    replace = [[(void)step;]],
    breaks = "replays go on with the step block of the recording",
    test = 'spec/cuda/graph_spec.lua -f "of a GPU"',
  },
  {
    name = "331-graph-read-swallowed", file = "kernels/cuda/runtime/graph.c",
    find = [[
gm_status      st = g->refused[0]       ? GM_FAIL(GM_EINVAL, "%s", g->refused)
                        : r != CUDA_SUCCESS ? gm_cuda_failed(r, __FILE__, __LINE__, "cuStreamEndCapture")]],
    replace = [[gm_status      st = r != CUDA_SUCCESS ? gm_cuda_failed(r, __FILE__, __LINE__, "cuStreamEndCapture")]],
    breaks = "a recording that read a number ends as if nothing had been",
    test = 'spec/cuda/graph_spec.lua -f "of a GPU"',
  },
  {
    name = "332-graph-constants-shared", file = "kernels/cuda/runtime/graph.c",
    find = [[gm_status st = gm_cuda_take(dev, bytes, &c->to);]],
    replace = [[gm_status st = gm_pool_alloc(dev->pool, bytes, &c->to, (gm_block **)&(void *){NULL});]],
    breaks = "a list of tensors lies where kernels of the same graph have written before",
    test = 'spec/cuda/graph_spec.lua -f "of a GPU"',
  },
  {
    name = "338-link-failure-unheard", file = "kernels/cuda/runtime/wait.c",
    find = [[if (st != GM_OK) return drain(cu, st);]],
    replace = [[(void)st, (void)drain;]],
    breaks = "a wait for the device does not hear what became of the other ranks",
    test = "spec/cuda/nccl_spec.lua",
  },
  {
    name = "351-wide-product-replaces", file = "kernels/cuda/ops/gemm/gemm.cu",
    find = [[*sums = a->accumulate ? *sums + v : v;]],
    replace = [[*sums = v;]],
    breaks = "a product that is added to a sum of f32 replaces it, where cuBLASLt does not make it",
    test = 'spec/cuda/products_spec.lua -f "sums of f32"',
  },
  {
    name = "352-sums-replace", file = "kernels/cuda/blas/blas.c",
    find = [[if (st == GM_OK && *served && !straight) st = args.accumulate ? cuda_axpy(dev, &c) : cuda_copy(dev, &c);]],
    replace = [[if (st == GM_OK && *served && !straight) st = cuda_copy(dev, &c);]],
    breaks = "the bias gradient that a product brings replaces what was there",
    test = "spec/cuda/products_spec.lua",
  },
  {
    name = "355-slope-of-another", file = "kernels/cuda/blas/key.c",
    find = [[return p->function == GM_FN_gelu_tanh &&]],
    replace = [[return (p->function == GM_FN_gelu_tanh || p->function == GM_FN_gelu) &&]],
    breaks = "cuBLASLt goes back through the tanh form of gelu where the other was meant",
    test = "spec/cuda/products_spec.lua",
  },
  {
    name = "358-experts-empty-rows", file = "kernels/cuda/ops/experts/experts.cu",
    find = [[end = a.start[key + 1];]],
    replace = [[end = a.start[a.keys];]],
    breaks = "rows that no choice fills are filled with the choices of the next expert",
    test = "spec/kernels/experts_spec.lua",
  },
  {
    name = "359-experts-lower-kinds", file = "kernels/cuda/ops/experts/experts.cu",
    find = [[for (int t = 0; t < GM_EXPERTS_THREADS; t++) before += lower[t] + (t < gm_thread ? sums[t] : 0);]],
    replace = [[for (int t = 0; t < GM_EXPERTS_THREADS; t++) before += t < gm_thread ? sums[t] + lower[t] : 0;]],
    breaks = "on a GPU choices of a later kind do not queue behind those of the kinds before",
    test = "spec/kernels/experts_spec.lua",
  },
  {
    name = "366-tf32-for-all", file = "kernels/cuda/blas/blas.c",
    find = [[key.tf32 = p->dtype == GM_F32 && dev->tf32;]],
    replace = [[key.tf32 = p->dtype == GM_F32;]],
    breaks = "the plan of a product in TF32 is taken for one in f32",
    test = 'spec/cuda/profile_spec.lua -f "TF32"',
  },
  {
    name = "367-named-library-passed-over", file = "kernels/cuda/start.c",
    find = [[return gm_dnn_open(cu);]],
    replace = [[return GM_OK;]],
    breaks = "a cuDNN that was named and cannot be loaded is passed over",
    test = 'spec/cuda/device_spec.lua -f "which was named"',
  },
  {
    name = "368-refusal-stays", file = "kernels/cuda/runtime/refusal.c",
    find = [[GM_CU(cu->driver, cuMemsetD8Async(cu->refusal, 0, sizeof(gm_refusal), cu->stream));]],
    replace = "",
    breaks = "what a kernel refused once fails every wait that follows",
    test = "spec/cuda/limits_spec.lua",
  },
  {
    name = "370-row-outside-is-zero", file = "kernels/cuda/ops/table/table.cu",
    find = [[if (!inside && !a.part && lane == 0) gm_refuse(a.refusal, a.op, from, row, a.rows);]],
    replace = "",
    breaks = "a GPU looks up a row outside of the table as zeros and says nothing",
    test = "spec/cuda/limits_spec.lua",
  },
  {
    name = "377-tensor-rescale", file = "kernels/cuda/ops/attention/attention_mma.cu",
    find = [[before = gm_exp2_near(*largest - offset);]],
    replace = [[before = 1;]],
    breaks = "on tensor cores what was summed up is not scaled to a new largest score",
    test = "spec/kernels/attention_spec.lua -f 'attention f16 b 1, 7 queries'",
  },
  {
    name = "378-tensor-dropout-neighbour", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[bits |= (uint32_t)gm_attention_dropped(d, i, key + k / 2 * 8 + GM_LANE_COLUMN + k % 2) << k;]],
    replace = [[bits |= (uint32_t)gm_attention_dropped(d, i, key + k / 2 * 8 + GM_LANE_COLUMN) << k;]],
    breaks = "the second of two neighbouring weights is dropped by the word of the first, where rows do not begin "
      .. "a block of words",
    test = "spec/kernels/attention_spec.lua -f 'dropout of a block'",
  },
  {
    name = "379-tensor-kept-factor", file = "kernels/cuda/ops/attention/attention_mma_grad.cu",
    find = [[gm_mma_store<T, HEAD>(&a, &a.dv, p.batch, p.head, at, dv, half, old, (float)a.keep);]],
    replace = [[gm_mma_store<T, HEAD>(&a, &a.dv, p.batch, p.head, at, dv, half, old, 1);]],
    breaks = "the gradient of v lacks the factor of what dropout keeps",
    test = "spec/kernels/attention_spec.lua -f 'attention_grad bf16 b 2, 5 queries'",
  },
  {
    name = "380-tensor-last-rows", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[(GM_WARP_FIRST + GM_LANE % 16) * PITCH<HEAD>]],
    replace = [[(GM_WARP_FIRST + GM_LANE % 8) * PITCH<HEAD>]],
    breaks = "rows 8 to 15 of a left factor are rows 0 to 7",
    test = "spec/kernels/attention_spec.lua -f 'attention f16 b 1, 64 queries'",
  },
  {
    name = "388-tensor-dropout-queries", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[bits |= (other >> me & 1) << (k + (me ^ x));]],
    replace = [[bits |= (other >> me & 1) << (k + x);]],
    breaks = "in the gradient of keys a lane takes what another one drops for its own query",
    test = "spec/kernels/attention_spec.lua -f 'dropout of a block of whole'",
  },
  {
    name = "389-tensor-dropout-keys", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[uint32_t here = odd ? other >> 2 : mine, next = odd ? mine >> 2 : other;]],
    replace = [[uint32_t here = odd ? other >> 2 : mine, next = odd ? other >> 2 : mine;]],
    breaks = "every second group of weights is dropped by the words of the one before",
    test = "spec/kernels/attention_spec.lua -f 'dropout of a block of whole'",
  },
  {
    name = "390-turned-pack", file = "kernels/cuda/common/kernel.cuh",
    find = [[const E last = (E)next;]],
    replace = [[const E last = x[0];]],
    breaks = "what is gathered into a pack at the edge of a row is the pack's first element again and again",
    test = "spec/kernels/norm_spec.lua -f 'softmax agrees'",
  },
  {
    name = "391-table-one-position", file = "kernels/cuda/ops/table/table.cu",
    find = [[, a->position[k + j < end ? k + j : k]);]],
    replace = [[, a->position[k]);]],
    breaks = "the gradient of a row of a table adds its first position eight times",
    test = "spec/kernels/loss_spec.lua -f embedding",
  },
  {
    name = "392-table-one-too-many", file = "kernels/cuda/ops/table/table.cu",
    find = [[if (k + j >= end) break;
        gm_unpack<T>(held[j], v);]],
    replace = [[if (k + j > end) break;
        gm_unpack<T>(held[j], v);]],
    breaks = "the gradient of a row of a table adds one position too many",
    test = "spec/kernels/loss_spec.lua -f embedding",
  },
  {
    name = "393-update-with-gaps", file = "kernels/cuda/ops/optimizer/optimizer.cu",
    find = [[
GM_UNROLL for (int k = 0; k < WIDE<T>; k++) u.v[k] = x->wide[role][k];
    GM_ROLLED for (int j = 0; j < V; j++)
    {
        if (i + j < t->n) p[gm_entry_place(t->entry, role, i + j)] = u.x[0];
        gm_push<V>(u.x, u.x[0]);
    }]],
    replace = [[
GM_UNROLL for (int k = 0; k < WIDE<T>; k++) u.v[k] = x->wide[role][k];
    GM_ROLLED for (int j = 0; j < V; j++)
    {
        if (i + j < t->n) p[gm_entry_place(t->entry, role, i + j)] = u.x[V - 1];
        gm_push<V>(u.x, u.x[0]);
    }]],
    breaks = "moments and masters with gaps get the last number of a pack first",
    test = "spec/kernels/optimizer_spec.lua",
  },
  {
    name = "394-half-of-the-squares", file = "kernels/cuda/ops/optimizer/optimizer.cu",
    find = [[for (; i < end; i += HELD * step) {]],
    replace = [[for (; i < end; i += 2 * HELD * step) {]],
    breaks = "the norm leaves out every second part of a large gradient",
    test = "spec/kernels/reduce_spec.lua -f sum_squares",
  },
  {
    name = "599-deterministic-ignored", file = "kernels/cuda/dnn/dnn.c",
    find = [[if (gradient && dev->deterministic) return GM_OK;]],
    replace = "",
    breaks = "deterministic = true leaves cuDNN's gradients",
    test = "spec/cuda/device_spec.lua -f vary",
  },
  {
    name = "844-mma-window", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[i + (int)a->shift - (int)a->window + 1 - key : 0;]],
    replace = [[i + (int)a->shift - (int)a->window - key : 0;]],
    breaks = "queries see one key more than their window on tensor cores",
    test = "spec/kernels/attention_spec.lua -f 'a window'",
  },
  {
    name = "845-window-queries", file = "kernels/cuda/ops/attention/attention.cuh",
    find = [[last - a->shift + a->window;]],
    replace = [[last - a->shift + a->window - 1;]],
    breaks = "the last query that sees a key adds nothing to its gradient",
    test = "spec/kernels/attention_spec.lua -f 'a window'",
  },
  {
    name = "846-mma-cap-slope", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[return 1 - t * t;]],
    replace = [[return 1 - 0 * t;]],
    breaks = "the gradient of capped scores on tensor cores lacks the slope",
    test = "spec/kernels/attention_spec.lua -f 'a cap'",
  },
  {
    name = "1742-dnn-any-version", file = "kernels/cuda/runtime/driver.c",
    find = [[f->found = v >= GM_DNN_OLDEST;]],
    replace = [[f->found = v >= 1;]],
    breaks = "doctor calls a cuDNN well that is too old",
    test = "spec/cuda/device_spec.lua -f 'too old'",
  },
  {
    name = "1736-mma-whole-window", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[a->window ? i + 15 + shift - (int)a->window + 1 : 0]],
    replace = [[a->window ? i + shift - (int)a->window + 1 : 0]],
    breaks = "the last queries of a warp see keys before their window in tiles that count as whole",
    test = "spec/kernels/attention_spec.lua -f 'a window of whole tiles'",
  },
  {
    name = "1737-mma-whole-mask", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[all &= v.word[0] & v.word[1] & v.word[2] & v.word[3];]],
    replace = [[all &= v.word[0] | v.word[1] | v.word[2] | v.word[3];]],
    breaks = "a tile counts as whole where a mask leaves some of its keys",
    test = "spec/kernels/attention_spec.lua -f 'rows that end early'",
  },
  {
    name = "1738-mma-whole-causal", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[a->causal ? i + shift + 1 : keys}]],
    replace = [[a->causal ? i + 15 + shift + 1 : keys}]],
    breaks = "the first queries of a warp see keys behind them in tiles that count as whole",
    test = "spec/kernels/attention_spec.lua -f 'a window of whole tiles'",
  },
  {
    name = "1739-mma-whole-limits", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[s.hi = end < s.hi ? end : s.hi;]],
    replace = [[s.hi = end < 0 ? end : s.hi;]],
    breaks = "queries see keys behind the end of their document in tiles that count as whole",
    test = "spec/kernels/documents_spec.lua -f 'long documents'",
  },
  {
    name = "1740-mma-whole-queries", file = "kernels/cuda/ops/attention/attention_mma.cuh",
    find = [[a->causal ? j + 15 - shift : 0]],
    replace = [[a->causal ? j - shift : 0]],
    breaks = "the gradient of a key counts queries before it in tiles that count as whole",
    test = "spec/kernels/attention_spec.lua -f 'a window of whole tiles'",
  },
  {
    name = "1741-mma-told-turn", file = "kernels/cuda/ops/attention/attention_mma_grad.cu",
    find = [[told + n % 2 * QUERIES + k]],
    replace = [[told + k]],
    breaks = "every second tile of queries takes the sums of the one before",
    test = "spec/kernels/attention_spec.lua -f 'a window of whole tiles'",
  },
  {
    name = "847-dnn-window", file = "kernels/cuda/dnn/dnn.c",
    find = [[attrs->window || attrs->behind || attrs->softcap > 0]],
    replace = [[attrs->behind || attrs->softcap > 0]],
    breaks = "cuDNN is asked for a window, which its graph lacks",
    test = "spec/cuda/dnn_spec.lua -f lacks",
  },
  {
    name = "1370-guards-of-memory", file = "spec/cuda/fake_memory.c",
    find = [[wrong |= word ^]],
    replace = [[wrong = word ^]],
    breaks = "the emulated GPU notices damage at the end of a guard zone only",
    test = "spec/cuda/emulation_spec.lua -f beside",
  },
  {
    name = "1743-norm-held-squares", file = "kernels/cuda/ops/norm/norm_held.cu",
    find = [[part += (x[j] - mean[0]) * (x[j] - mean[0]);]],
    replace = [[part += x[j] * (x[j] - mean[0]) + 0 * mean[0] + x[0] * 0 + mean[0];]],
    breaks = "the variance of a row that a warp holds is not around its mean",
    test = "spec/kernels/norm_spec.lua",
  },
  {
    name = "1744-norm-held-join", file = "kernels/cuda/ops/norm/norm_held.cu",
    find = [[for (int at = lane; at < gm_block_size; at += team) all]],
    replace = [[for (int at = lane; at < gm_block_size - team; at += team) all]],
    breaks = "the gradient of a norm's weight lacks the rows of the last team of a block",
    test = "spec/kernels/norm_spec.lua",
  },
  {
    name = "1745-pick-tail", file = "kernels/cuda/ops/reduce/reduce_pick_even.cu",
    find = [[if (tail < n) gm_meet<sign>]],
    replace = [[if (tail < n - 1) gm_meet<sign>]],
    breaks = "the last element of a line does not count in its maximum",
    test = "spec/kernels/reduce_spec.lua",
  },
  {
    name = "1746-plane-left", file = "kernels/cuda/ops/pooling/pooling_plane.cu",
    find = [[at = (h + u) * width + left + k;]],
    replace = [[at = (h + u) * width + w + k + 0 * left;]],
    breaks = "every second window tells the place of the one before",
    test = "spec/kernels/images_spec.lua -f pool",
  },
  {
    name = "1747-columns-last-rows", file = "kernels/cuda/ops/columns/columns.cu",
    find = [[GM_ROLLED for (; r < end; r += by) gm_columns_turn<T, function, 1>]],
    replace = [[GM_ROLLED for (; r < end - by; r += by) gm_columns_turn<T, function, 1>]],
    breaks = "the gradient of a bias lacks the last rows",
    test = "spec/kernels/contraction_spec.lua -f bias_activation_grad",
  },
}
