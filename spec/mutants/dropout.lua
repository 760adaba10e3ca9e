--- Mutants of attention's dropout: kernels/weight_drop.h, the CPU's kernels, and the tensor-core kernels (table.lua).
return {
  {
    name = "2310-drop-row", file = "kernels/weight_drop.h",
    find = [[uint64_t all = (uint64_t)(box->ndim ? box->shape[3] : keys);]],
    replace = [[uint64_t all = (uint64_t)(box->ndim > 4 ? box->shape[3] : keys);]],
    breaks = "the rows of a part of the keys are as long as the part",
    test = "unit weight_index",
  },
  {
    name = "2311-drop-half", file = "kernels/weight_drop.h",
    find = [[>> (i % 2 * 16) & 0xffffu;]],
    replace = [[>> 16 & 0xffffu;]],
    breaks = "two neighbouring weights are dropped by the same half of a word",
    test = "unit weight_block",
  },
  {
    name = "2312-drop-rounds", file = "kernels/weight_drop.h",
    find = [[for (int round = 0; round < GM_DROP_ROUNDS; round++)
        gm_philox_round]],
    replace = [[for (int round = 0; round < GM_DROP_ROUNDS - 1; round++)
        gm_philox_round]],
    breaks = "attention's dropout makes 6 rounds of Philox",
    test = "unit weight_block",
  },
  {
    name = "2313-drop-factor", file = "kernels/cpu/attention.c",
    find = [[.keep = gm_weight_drop_keep(drop.threshold),]],
    replace = [[.keep = 1 / (1 - at->p),]],
    breaks = "weights are multiplied with what would make up for another share than that which is dropped",
    test = "spec/kernels/attention_drop_spec.lua -f 'keeps the mean'",
  },
  {
    name = "2314-drop-odd-queries", file = "kernels/cpu/attention_t.h",
    find = [[(T_BITS == 32 ? row : 1);]],
    replace = [[(T_BITS == 32 ? 0 : 1);]],
    breaks = "every second query of f32 drops what the one before it drops",
    test = "spec/kernels/attention_drop_spec.lua -f 'the whole'",
  },
  {
    name = "2315-drop-inside-block", file = "kernels/cpu/attention.c",
    find = [[    return out + skip;]],
    replace = [[    return out;]],
    breaks = "the gradient takes the numbers of a block from its begin, where a rank's keys begin inside it",
    test = "spec/kernels/attention_drop_spec.lua -f 'inside a block'",
  },
  {
    name = "2316-drop-heads", file = "kernels/cuda/ops/attention/attention.c",
    find = [[(uint64_t)(box->ndim ? box->shape[1] : a->heads);]],
    replace = [[(uint64_t)a->heads;]],
    breaks = "on a GPU samples are as many blocks apart as if there were the rank's heads alone",
    test = "spec/kernels/attention_drop_spec.lua -f 'a part drops'",
  },
  {
    name = "2317-drop-compare", file = "kernels/cuda/ops/attention/attention_drop.cuh",
    find = [[(halves | high) - (than & ~high);]],
    replace = [[halves - (than & ~high);]],
    breaks = "comparing the low half of a word borrows from its high half",
    test = "spec/kernels/attention_drop_spec.lua -f 'from a block on'",
  },
  {
    name = "2318-drop-exchange", file = "kernels/cuda/ops/attention/attention_drop.cuh",
    find = [[(gm_shuffle_xor(send, 16) & ~mask);]],
    replace = [[(gm_shuffle_xor(send, 16) & mask);]],
    breaks = "in the gradient of keys a lane forgets what it gets of the other block",
    test = "spec/kernels/attention_drop_spec.lua -f 'the whole'",
  },
}
