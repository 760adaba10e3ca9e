--- Mutants of predictions: operations of a group in order (host/plan), rates of products, and the bench of published
-- steps (spec/bench/published).
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "2120-order-none", file = "host/plan/transfers.c",
    find = [[in_order && !x->plan->below && before && before->stage != OVER;]],
    replace = [[in_order && !x->plan->below && !before;]],
    breaks = "operations of a group on GPUs move at the same time",
    test = "spec/plan/simulate_spec.lua -f 'one group'",
  },
  {
    name = "2121-order-below", file = "host/plan/transfers.c",
    find = [[in_order && !x->plan->below && before]],
    replace = [[in_order && before]],
    breaks = "reads of a disk wait for its writes on GPUs",
    test = "spec/plan/simulate_spec.lua -f 'at the rate of writes'",
  },
  {
    name = "2122-order-next", file = "host/plan/transfers.c",
    find = [[if (next && next->stage == QUEUES) start]],
    replace = [[if (next && next->stage == OVER) start]],
    breaks = "an operation that queued never starts",
    test = "spec/plan/simulate_spec.lua -f 'one group'",
  },
  {
    name = "2123-order-cpu", file = "lua/ganymede/plan/machine.lua",
    find = [[out.in_order = out.device == "gpu"]],
    replace = [[out.in_order = true]],
    breaks = "operations of a group go one after the other on a CPU, too",
    test = "spec/plan/simulate_spec.lua -f 'one group'",
  },
  {
    name = "2124-published-late-send", file = "spec/bench/published/overlap.lua",
    find = [[if not is_activation then send_gradient() end]],
    replace = [[send_gradient()]],
    breaks = "two stages whose launches block wait for each other for ever",
    test = "spec/plan/published_spec.lua -f 'waits for ever'",
  },
  {
    name = "2125-published-waits", file = "spec/bench/published/overlap.lua",
    find = [[if words[1] == "b" and texts[tonumber(words[8])] == "tensor" then]],
    replace = [[if words[1] == "b" then]],
    breaks = "operations of all groups are waited for at once",
    test = "spec/plan/published_spec.lua -f 'wait at once'",
  },
  {
    name = "2126-published-sums", file = "spec/bench/published/software.lua",
    find = [[how.sums * rows * columns)]],
    replace = [[how.sums * rows)]],
    breaks = "kernels that add gradients move the bytes of one column",
    test = "spec/plan/published_spec.lua -f 'kernel of its own, and sum'",
  },
  {
    name = "2127-published-whole-sums", file = "spec/bench/published/software.lua",
    find = [[and texts[tonumber(words[7])] == "backward"
end]],
    replace = [[
end]],
    breaks = "what the update scatters is summed whole, too",
    test = "spec/plan/published_spec.lua -f 'kernel of its own, and sum'",
  },
  {
    name = "2128-waves-whole", file = "spec/bench/published/waves.lua",
    find = [[return math.ceil(tiles / processors) * processors]],
    replace = [[return tiles]],
    breaks = "the last wave of tiles counts as full",
    test = "spec/plan/published_spec.lua -f waves",
  },
  {
    name = "2129-waves-way", file = "spec/bench/published/waves.lua",
    find = [[longer(rows, columns, SHORT, LONG, processors)]],
    replace = [[longer(rows, columns, LONG, SHORT, processors)]],
    breaks = "tiles lie one way only",
    test = "spec/plan/published_spec.lua -f waves",
  },
  {
    name = "2130-ring-pieces-recorded", file = "host/parallel/sharded/ring_meet.c",
    find = [[    r->inside++;
]],
    replace = "",
    breaks = "a record has the pieces of a ring's work beside the whole",
    test = "spec/plan/step_file_spec.lua -f 'all pieces'",
  },
  {
    name = "2131-yields-not-counted", file = "host/comm/crowd.c",
    find = [[        c->yielded += *now - before;
]],
    replace = "",
    breaks = "what a rank yields before it sleeps counts as the work of waking it",
    test = "unit comm_crowd_yields_until_the_bell",
  },
  {
    name = "2132-fits-rows", file = "lua/ganymede/plan/fits.lua",
    find = [[return at > 4 and at or 2 * bucket(v)]],
    replace = [[return 2 * bucket(v)]],
    breaks = "products of 32 rows have the rate of 64",
    test = "spec/plan/machine_spec.lua -f 'few rows'",
  },
}
