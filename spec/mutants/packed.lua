--- Mutants of rows that hold several documents: limits of attention, where documents begin and end, packed datasets.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "970-limits-one-more", file = "kernels/cpu/attention.c",
    find = [[    int64_t limit = w->limits ? attention_limit(w, b, i, 1) : seen;]],
    replace = [[    int64_t limit = w->limits ? attention_limit(w, b, i, 1) + 1 : seen;]],
    breaks = "a query sees the first key of the next document",
    test = "spec/kernels/documents_spec.lua -f limits",
  },
  {
    name = "971-limits-not-hidden", file = "kernels/cpu/attention_t.h",
    find = [[    if (w->limits) F(attention_limit_hide)(w, s, b, j0, keys, i0, queries);]],
    replace = [[    if (w->limits && w->window) F(attention_limit_hide)(w, s, b, j0, keys, i0, queries);]],
    breaks = "queries beside a border see what others of their block see",
    test = "spec/kernels/documents_spec.lua -f PyTorch",
  },
  {
    name = "972-limits-of-block", file = "kernels/cpu/attention.c",
    find = [[        a.all_seen = seen < a.all_seen ? seen : a.all_seen;]],
    replace = [[        a.all_seen = seen > a.all_seen ? seen : a.all_seen;]],
    breaks = "a block of keys that only some queries see is not looked at key by key",
    test = "spec/kernels/documents_spec.lua -f limits",
  },
  {
    name = "973-limits-of-ring", file = "host/parallel/sharded/ring.c",
    find = [[    c->attrs.first = m->keys.first;]],
    replace = [[    c->attrs.first = 0;]],
    breaks = "a ring takes limits for numbers of keys of a block",
    test = "-n 3 spec/sequence/attention_spec.lua -f limits",
  },
  {
    name = "974-limits-rows-of-ring", file = "host/parallel/sharded/ring.c",
    find = [[    GM_TRY(limits_part(x->limits, &rows, m->run.first, &c->limits));]],
    replace = [[    GM_TRY(limits_part(x->limits, &rows, m->at, &c->limits));]],
    breaks = "a rank of a ring takes the limits of the first queries",
    test = "-n 3 spec/sequence/attention_spec.lua -f limits",
  },
  {
    name = "975-limits-gradient", file = "host/autograd/gradients.c",
    find = [[    in[7] = gm_backward_saved(b, 4);]],
    replace = [[    in[7] = NULL;]],
    breaks = "the gradient knows no documents",
    test = "spec/autograd/gradients_spec.lua -f documents",
  },
  {
    name = "976-documents-end", file = "kernels/cpu/documents.c",
    find = [[            documents_put(j->spans, b, first, i, number < 0);]],
    replace = [[            documents_put(j->spans, b, first, i, number < -1);]],
    breaks = "padding is a document",
    test = "spec/kernels/documents_spec.lua -f 'documents agree'",
  },
  {
    name = "977-positions-go-on", file = "lua/ganymede/nn/attention.lua",
    find = [[  if self.rotary then qkv = self.rotary:turn(qkv, self.group + 1, place) end]],
    replace = [[  if self.rotary then qkv = self.rotary:turn(qkv, self.group + 1, self.opt.window and place) end]],
    breaks = "rotary positions count through all documents of a row",
    test = "spec/models/packed_spec.lua",
  },
  {
    name = "978-positions-of-gpt", file = "lua/ganymede/models/gpt.lua",
    find = [[  local x = self.positions(self.tokens(tokens), positions)]],
    replace = [[  local x = self.positions(self.tokens(tokens), seen and seen:dim() == 2 and positions or nil)]],
    breaks = "learned positions count through all documents of a row",
    test = "spec/models/packed_spec.lua",
  },
  {
    name = "979-target-over-border", file = "host/data/token_dataset.c",
    find = [[        y[k] = GM_TARGET_IGNORED;]],
    replace = [[        y[k] = y[k] ? y[k] : GM_TARGET_IGNORED;]],
    breaks = "the end of a document must foretell the next one",
    test = "spec/data/packed_spec.lua",
  },
  {
    name = "980-rows-overflow", file = "lua/ganymede/data/chat.lua",
    find = [[    left = left - lengths[i]
]],
    replace = [[    left = left - lengths[row[1]]
]],
    breaks = "rows are longer or emptier than they could be",
    test = "spec/data/packed_spec.lua",
  },
  {
    name = "981-padding-is-seen", file = "lua/ganymede/data/chat.lua",
    find = [[conversations[k], y[k] = 0, -1, IGNORED]],
    replace = [[conversations[k], y[k] = 0, 0, IGNORED]],
    breaks = "padding is a part of the first conversation",
    test = "spec/data/packed_spec.lua",
  },
  {
    name = "982-cuda-limits-start", file = "kernels/cuda/ops/attention/attention.cuh",
    find = [[        r.start = l.start > r.start ? l.start : r.start;]],
    replace = [[        r.start = l.start > r.start ? l.start + side : r.start;]],
    breaks = "kernels of GPUs leave out the first tile of keys",
    test = "spec/kernels/documents_spec.lua -f 'documents in f32'",
  },
  {
    name = "983-cuda-limits-queries", file = "kernels/cuda/ops/attention/attention_mma.cu",
    find = [[        bool out = key < gm_attention_limit(a, batch, i, 0) || key >= gm_attention_limit(a, batch, i, 1);]],
    replace = [[        bool out = key < gm_attention_limit(a, batch, i, 0) || key > gm_attention_limit(a, batch, i, 1);]],
    breaks = "on tensor cores the gradient of a key has a part of a query of the document before",
    test = "spec/kernels/documents_spec.lua -f 'documents in bf16'",
  },
}
