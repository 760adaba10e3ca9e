--- Mutants of attention in tiles of AMX (kernels/cpu/attention_amx.c, attention_amx_grad.c). What a row says:
-- spec/mutants/table.lua.
local tiles = "spec/kernels/amx_attention_spec.lua -f 'tiles end: 33'"
local blocks = "spec/kernels/amx_attention_spec.lua -f 'tiles end: 49'"
local long = "spec/kernels/amx_attention_spec.lua -f 'tiles end: 161'"
local rows = {
  {
    name = "2982-amx-attention-hidden", file = "kernels/cpu/attention_amx.h",
    find = [[x[i] = at >= count || (hide && hide[at])]],
    replace = [[x[i] = at >= count || (hide && hide[at] > 1)]],
    breaks = "values of hidden keys reach outputs, as 0 times NaN",
    test = "spec/kernels/attention_spec.lua -f 'hidden keys that are NaN'",
  },
  {
    name = "2983-amx-attention-rows", file = "kernels/cpu/attention_amx.h",
    find = [[const bool        none = j >= count || (hide && hide[j]);]],
    replace = [[const bool        none = j >= count || (hide && hide[j] > 1);]],
    breaks = "gradients take hidden values, as 0 times NaN",
    test = "spec/kernels/attention_spec.lua -f 'hidden keys that are NaN'",
  },
  {
    name = "2984-amx-attention-sight", file = "kernels/cpu/attention_amx.h",
    find = [[return (*(const any_i32 *)from <= key)]],
    replace = [[return (*(const any_i32 *)from < key)]],
    breaks = "a query does not see its first key where some key of the block is hidden from some query",
    test = tiles,
  },
  {
    name = "2985-amx-attention-cut", file = "kernels/cpu/attention_amx.c",
    find = [[|| j0 + keys > span->all_seen)]],
    replace = [[|| j0 + here > span->all_seen)]],
    breaks = "keys behind the last one, which are zeros, count with the weight of a score of 0",
    test = tiles,
  },
  {
    name = "2986-amx-attention-less", file = "kernels/cpu/attention_amx.c",
    find = [[if (first || !tiled_any(less != 1)) continue;]],
    replace = [[if (!first || !tiled_any(less != 1)) continue;]],
    breaks = "sums stay relative to the largest score of the blocks before",
    test = "spec/kernels/amx_attention_spec.lua -f 'largest score'",
  },
  {
    name = "2987-amx-attention-add", file = "kernels/cpu/attention_amx.c",
    find = [[p.add = !first;]],
    replace = [[p.add = false;]],
    breaks = "an output is that of its last block of keys",
    test = long,
  },
  {
    name = "2988-amx-attention-wide", file = "kernels/cpu/attention_amx.c",
    find = [[wide = queries > 16 ? 2 : 1, row]],
    replace = [[wide = queries > 17 ? 2 : 1, row]],
    breaks = "query 17 of the last panel has the scores of one before",
    test = "spec/kernels/amx_attention_spec.lua -f 'tiles end: 17'",
  },
  {
    name = "2989-amx-attention-odd", file = "kernels/cpu/attention_amx_t.h",
    find = [[else if (both) AMX(tiled_block)(p, i, j, 1, 2);]],
    replace = [[else if (both) AMX(tiled_block)(p, i, j, 1, 1);]],
    breaks = "the last 16 numbers of a head of 48 are missing from half of the queries",
    test = blocks,
  },
  {
    name = "2990-amx-attention-begin", file = "kernels/cpu/attention_amx_grad.c",
    find = [[w->tiles->begin();]],
    replace = [[]],
    breaks = "the gradient uses tiles that were not configured",
    test = tiles,
  },
  {
    name = "2992-amx-attention-clear", file = "kernels/cpu/attention_amx_grad.c",
    find = [[tiled_grad_clear(room, p, keys[p], most);]],
    replace = [[tiled_grad_clear(room, p, most, most);]],
    breaks = "weights of another block count for keys that a panel does not see",
    test = long,
  },
  {
    name = "2993-amx-attention-keep", file = "kernels/cpu/attention_amx_grad.c",
    find = [[p * (d * keep - delta) * slope]],
    replace = [[p * (d - delta) * slope]],
    breaks = "slopes of dropped weights reach queries and keys",
    test = blocks,
  },
  {
    name = "2994-amx-attention-cap", file = "kernels/cpu/attention_amx_grad.c",
    find = [[slope = 1 - t * t;]],
    replace = [[slope = slope;]],
    breaks = "the gradient of capped scores is that of free ones",
    test = blocks,
  },
  {
    name = "2995-amx-attention-owner", file = "kernels/cpu/attention_amx_grad.c",
    find = [[return w->by_key != by ||]],
    replace = [[return w->by_key == by ||]],
    breaks = "chunks of keys and of queries are mistaken for each other",
    test = "spec/kernels/amx_attention_spec.lua -f threads",
  },
  {
    name = "2996-amx-attention-pairs", file = "kernels/cpu/attention_amx_grad.c",
    find = [[i + 16 < queries ? x + 16 * step]],
    replace = [[i + 1 < queries ? x + step]],
    breaks = "pairs of queries are others than those of weights",
    test = tiles,
  },
  {
    name = "2997-amx-attention-many", file = "kernels/cpu/attention_amx_grad.c",
    find = [[p.add = m->any[panel];]],
    replace = [[p.add = false;]],
    breaks = "the gradient of a query is that of its last block of keys",
    test = long,
  },
  {
    name = "2998-amx-attention-round", file = "kernels/cpu/attention_amx.h",
    find = [[((unsigned_f32)y + 0x8000u) & 0xffff0000u;]],
    replace = [[(unsigned_f32)y & 0xffff0000u;]],
    breaks = "every second weight is rounded towards zero",
    test = "spec/kernels/amx_attention_spec.lua -f 'rounds weights'",
  },
  {
    name = "3100-amx-attention-small", file = "kernels/cpu/attention_amx.c",
    find = [[call->in[0]->shape[1] > 16 || call->in[1]->shape[1] > 16]],
    replace = [[call->in[0]->shape[1] > 16]],
    breaks = "few queries of many keys are computed in f32, at a third of the speed",
    test = "spec/kernels/amx_attention_spec.lua -f 'leaves small calls to f32: 16 queries, 17 keys'",
  },
  {
    name = "3101-amx-attention-small-head", file = "kernels/cpu/attention_amx.c",
    find = [[call->op == GM_OP_attention ? 16 : 32]],
    replace = [[call->op == GM_OP_attention ? 16 : 16]],
    breaks = "the gradient of heads of 17 to 32 numbers goes the slower way",
    test = "spec/kernels/amx_attention_spec.lua -f 'leaves small calls to f32: 16 queries, 16 keys, size 32'",
  },
}

for _, row in ipairs(rows) do row.isa, row.cpu = "avx512bf16", "avx512_bf16" end
return rows
