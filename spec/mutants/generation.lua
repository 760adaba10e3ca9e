--- Mutants of generation: pages of keys and values, prompts that come and go, and what is told of a text.
return {
  {
    name = "890-pages-last-key", file = "kernels/cpu/pages_t.h",
    find = [[int64_t seen = count - w->queries + row % w->queries + 1 - first;]],
    replace = [[int64_t seen = count - w->queries + row % w->queries - first;]],
    breaks = "a query does not see its own key",
    test = "spec/kernels/pages_spec.lua -f 'attention to pages'",
  },
  {
    name = "891-pages-sum", file = "kernels/cpu/pages_t.h",
    find = [[*sum = *sum * left + F(sum_v)(total);]],
    replace = [[*sum = *sum + F(sum_v)(total);]],
    breaks = "the sum of earlier keys keeps their smaller maximum",
    test = "spec/kernels/pages_spec.lua -f 'attention to pages'",
  },
  {
    name = "892-pages-place", file = "kernels/cpu/pages.c",
    find = [[p % w->g.page * pool->stride[2];]],
    replace = [[i % w->g.page * pool->stride[2];]],
    breaks = "a position is written where it stands in the call, not in its page",
    test = "spec/kernels/pages_spec.lua -f 'writing to pages'",
  },
  {
    name = "893-pages-heads", file = "host/autograd/layout_rules/pages.c",
    find = [[if (k->n_cuts[1] != q->n_cuts[2] || gm_layout_dim_axes(k, 1) != gm_layout_dim_axes(q, 2))]],
    replace = [[if (k->n_cuts[1] && k->n_cuts[1] != q->n_cuts[2])]],
    breaks = "cut queries read the wrong heads of a pool that is whole",
    test = "spec/generation/batching_spec.lua -n 2 -f 'cut otherwise'",
  },
  {
    name = "894-batching-room", file = "lua/ganymede/generation/batching.lua",
    find = [[      run.pool:drop(youngest.kept)
]],
    replace = "",
    breaks = "a prompt that waits again keeps its pages",
    test = "spec/generation/batching_spec.lua -n 1 -f 'each of them alone'",
  },
  {
    name = "895-batching-again", file = "lua/ganymede/generation/batching.lua",
    find = [[for i, row in ipairs(rows) do taken[i] = #row.tokens end]],
    replace = [[for i, row in ipairs(rows) do taken[i] = #row.ids end]],
    breaks = "a prompt that waited again has lost what was added to it",
    test = "spec/generation/batching_spec.lua -n 1 -f 'each of them alone'",
  },
  {
    name = "896-texts-held", file = "lua/ganymede/generation/texts.lua",
    find = [[if not row.done then text = text:sub(1, #text - held(opt, text)) end]],
    replace = "",
    breaks = "the beginning of a stop text is told",
    test = "spec/generation/texts_spec.lua -f 'stop text'",
  },
  {
    name = "897-pages-positions", file = "lua/ganymede/nn/pages.lua",
    find = [[math.max(0, row.length + taken[r] - s + i - 1)]],
    replace = [[math.max(0, row.length + i - 1)]],
    breaks = "positions of a short prompt count from the beginning of the batch",
    test = "spec/nn/pages_spec.lua",
  },
  {
    name = "898-batching-leak", file = "lua/ganymede/generation/batching.lua",
    find = [[if row.done then run.pool:drop(row.kept) else open[#open + 1] = row end]],
    replace = [[if not row.done then open[#open + 1] = row end]],
    breaks = "a prompt that ends keeps its pages",
    test = "spec/generation/batching_spec.lua -n 1 -f 'each of them alone'",
  },
  {
    name = "899-generate-line", file = "lua/ganymede/cli/generate.lua",
    find = [[    at = at + 1
]],
    replace = [[    at = #list + 1
]],
    breaks = "lines of prompts are counted without empty ones",
    test = "spec/cli/generate_spec.lua -f 'line that is wrong'",
  },
  {
    name = "900-cuda-pages-sum", file = "kernels/cuda/ops/pages/pages.cu",
    find = [[sum = sum * left + p;]],
    replace = [[sum = sum + p;]],
    breaks = "on a GPU the sum of earlier keys keeps their smaller maximum",
    test = "spec/kernels/pages_spec.lua -f 'attention to pages'",
  },
  {
    name = "901-generate-history", file = "lua/ganymede/cli/generate.lua",
    find = [[messages[#messages + 1] = { role = "assistant", content = reply(args, model, tokenizer, messages) }]],
    replace = [[messages = { { role = "assistant", content = reply(args, model, tokenizer, messages) } }]],
    breaks = "what a user said before is forgotten",
    test = "spec/cli/generate_spec.lua -f talks",
  },
  {
    name = "902-texts-positions", file = "lua/ganymede/generation/texts.lua",
    find = [[elseif opt.positions and #row.tokens >= opt.positions then row.done = "positions" end]],
    replace = "end",
    breaks = "a text goes on where the model has no more positions",
    test = "spec/generation/batching_spec.lua -n 1 -f 'end of a text'",
  },
  {
    name = "990-graph-refusal-swallowed", file = "kernels/graph_host.c",
    find = [[g->refused = true;]],
    replace = [[(void)g;]],
    breaks = "a recording goes on after the host was asked for numbers in it",
    test = "spec/kernels/graph_spec.lua -f swallows",
  },
  {
    name = "991-graph-bytes-apart", file = "kernels/graph_host.c",
    find = [[c->part[i].view.storage = storage_of(c, call, i);]],
    replace = [[c->part[i].view.storage = storage_of(c, call, 0);]],
    breaks = "a recorded kernel finds all its tensors in the bytes of the first",
    test = "spec/kernels/graph_spec.lua -f replayed",
  },
  {
    name = "992-recorded-token", file = "lua/ganymede/generation/recorded.lua",
    find = [=[self.tokens[i - 1] = row.tokens[#row.tokens]]=],
    replace = [=[self.tokens[i - 1] = row.tokens[1]]=],
    breaks = "a replayed step is given the first token of a text",
    test = "spec/generation/recorded_spec.lua -f 'come and go'",
  },
  {
    name = "993-recorded-took", file = "lua/ganymede/generation/recorded.lua",
    find = [[
  pages.took(kept)
]],
    replace = "",
    breaks = "a replayed step is not counted among the positions that are kept",
    test = "spec/generation/recorded_spec.lua -f 'come and go'",
  },
  {
    name = "994-recorded-place", file = "lua/ganymede/nn/pages.lua",
    find = [[
count[r - 1], positions[r - 1] = row.length + 1, row.length
]],
    replace = [[
count[r - 1], positions[r - 1] = row.length + 1, 0
]],
    breaks = "positions of a replayed step stay at the beginning",
    test = "spec/generation/recorded_spec.lua -f 'come and go'",
  },
  {
    name = "995-recorded-foreign", file = "lua/ganymede/base/own.lua",
    find = [[if type(fn) == "function" and not own.has(fn) then]],
    replace = [[if type(fn) == "thread" then]],
    breaks = "steps of layers that are not ours are recorded",
    test = "spec/generation/recorded_spec.lua -f 'not ours'",
  },
  {
    name = "996-shared-turn", file = "lua/ganymede/nn/shared_cache.lua",
    find = [[if self.length % self.size == self.here then]],
    replace = [[if self.here == 0 then]],
    breaks = "one rank keeps all that is added to a text",
    test = "spec/generation/sequence_spec.lua -n 2 -f 'equal part'",
  },
  {
    name = "997-shared-starts", file = "lua/ganymede/nn/shared_cache.lua",
    find = [[math.max(self.starts and self.starts[r] or 0,]],
    replace = [[math.max(0,]],
    breaks = "a step sees what fills up short prompts",
    test = "spec/generation/sequence_spec.lua -n 2 -f 'ring writes'",
  },
  {
    name = "998-shared-window", file = "lua/ganymede/nn/shared_cache.lua",
    find = [[window and at - window + 1 or 0)]],
    replace = [[window and 0 or 0)]],
    breaks = "a step sees what lies before its window",
    test = "spec/generation/sequence_spec.lua -n 2 -f 'ring writes'",
  },
  {
    name = "999-shared-shares", file = "lua/ganymede/nn/shared_cache.lua",
    find = [[comm.all_gather(lse, "sequence", 3), 3)]],
    replace = [[comm.all_gather(lse, "sequence", 3):exp() * 0 + 1, 3)]],
    breaks = "parts of a softmax count alike, whatever their sums are",
    test = "spec/generation/sequence_spec.lua -n 2 -f 'ring writes'",
  },
  {
    name = "1000-cache-last-position", file = "lua/ganymede/nn/cache.lua",
    find = [[math.min(math.max(0, at - start), most)]],
    replace = [[math.max(0, at - start)]],
    breaks = "a text that is done goes on to positions that the model lacks",
    test = "spec/generation/stages_spec.lua -n 2 -f 'last position'",
  },
  {
    name = "1001-cache-filled-up", file = "lua/ganymede/nn/embedding.lua",
    find = [[if not place.positions and first + length]],
    replace = [[if first + length]],
    breaks = "what fills up short prompts counts among the positions of a model",
    test = "spec/generation/stages_spec.lua -n 2 -f 'last position'",
  },
  {
    name = "1002-stages-first", file = "lua/ganymede/generation/stages.lua",
    find = [[first and "prompts of " .. group.length or "tokens")]],
    replace = [[first and group.length or 1)]],
    breaks = "stages agree on the border of a token for that of a prompt whose sequence is shared",
    test = "spec/generation/sequence_spec.lua -n 4 -f 'in 2 stages'",
  },
}
