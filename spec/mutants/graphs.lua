--- Mutants of graphs with operations between ranks: host/comm/recorded.c, lua/ganymede/train/graph.lua and what they
-- use. What a row says: spec/mutants/table.lua.
return {
  {
    name = "2020-graph-collectives-unordered", file = "host/comm/recorded.c",
    find = [[if (!r->any || gm_lane_is_message(p)) return GM_OK;]],
    replace = [[if (r) return GM_OK;]],
    breaks = "collectives of two communicators are in no order in a graph",
    test = "spec/cuda/graph_links_spec.lua",
  },
  {
    name = "2021-graph-history-counts", file = "host/comm/recorded.c",
    find = [[
        g->number = b->number;
        g->history = b->history;]],
    replace = "",
    breaks = "what was recorded counts as called, on the ranks that have recorded it",
    test = 'spec/cuda/graph_ranks_spec.lua -f "where that of one cannot be recorded"',
  },
  {
    name = "2022-graph-recording-in-accounts", file = "host/comm/recorded.c",
    find = [[memcpy(g->account, b->account, sizeof b->account);]],
    replace = "",
    breaks = "a recording is in the accounts, as if it had run",
    test = "spec/cuda/graph_links_spec.lua",
  },
  {
    name = "2023-graph-tensors-not-kept", file = "host/comm/recorded.c",
    find = [[return gm_graph_keep(graph, &(gm_call){.n_in = 1, .n_out = 1, .in = &p->in, .out = &p->out});]],
    replace = [[return GM_OK;]],
    breaks = "a graph writes into memory that others have got",
    test = "spec/cuda/graph_links_spec.lua",
  },
  {
    name = "2024-graph-outlives-links", file = "host/comm/recorded.c",
    find = [[for (gm_recorded *r = c->recorded; r; r = r->next) gm_graph_end(r->graph);]],
    replace = [[(void)c;]],
    breaks = "communicators are freed while a graph holds operations of them",
    test = "spec/cuda/graph_links_spec.lua",
  },
  {
    name = "2025-graph-links-revoked", file = "host/comm/comm_nccl.c",
    find = [[if (link->recorded || !link->lib->ncclCommRevoke) return false;]],
    replace = [[if (!link->lib->ncclCommRevoke) return false;]],
    breaks = "a communicator is revoked while a replay uses it, whose kernels may miss that",
    test = "spec/cuda/graph_links_spec.lua",
  },
  {
    name = "2026-graph-replays-uncounted", file = "host/comm/recorded.c",
    find = [[r->accounts[i].to->bytes += r->accounts[i].bytes;]],
    replace = "",
    breaks = "bytes of replays are in no account",
    test = 'spec/cuda/graph_ranks_spec.lua -f "a dozen buckets"',
  },
  {
    name = "2027-graph-pending-allowed", file = "host/comm/recorded.c",
    find = [[gm_status st = check_waited(c);]],
    replace = [[gm_status st = GM_OK;
    (void)check_waited;]],
    breaks = "a recording ends with operations that nobody waits for",
    test = "spec/cuda/graph_links_spec.lua",
  },
  {
    name = "2028-graph-one-rank-alone", file = "lua/ganymede/train/graph.lua",
    find = [[possible = not all:find("-", 1, true)]],
    replace = [[possible = possible or false]],
    breaks = "a rank replays while another runs the step one by one",
    test = 'spec/cuda/graph_ranks_spec.lua -f "while one cannot record"',
  },
  {
    name = "2029-graph-own-kind", file = "lua/ganymede/train/graph.lua",
    find = [[if possible then return true, all end]],
    replace = [[if possible then return true, kind end]],
    breaks = "a rank judges a step by itself, and replays where another does not",
    test = 'spec/cuda/graph_ranks_spec.lua -f "of another kind"',
  },
  {
    name = "2030-graph-asks-nobody", file = "lua/ganymede/train/graph.lua",
    find = [[engine:ask()]],
    replace = "",
    breaks = "replayed steps do not hear that the run is to stop",
    test = 'spec/cuda/graph_ranks_spec.lua -f "hear on all ranks"',
  },
  {
    name = "2031-graph-differences-unseen", file = "lua/ganymede/train/graph.lua",
    find = [[return none or difference(said)]],
    replace = [[return none or difference {}]],
    breaks = "ranks replay graphs with different operations",
    test = 'spec/cuda/graph_ranks_spec.lua -f "different operations"',
  },
  {
    name = "2032-graph-link-unordered", file = "kernels/cuda/runtime/queues.c",
    find = [[GM_CU(cu->driver, cuStreamWaitEvent(queue->stream, t->entered, CU_EVENT_WAIT_DEFAULT));]],
    replace = [[if (!cu->graph) cu->driver->cuStreamWaitEvent(queue->stream, t->entered, CU_EVENT_WAIT_DEFAULT);]],
    breaks = "an operation of a graph does not come behind the work before it",
    test = "spec/cuda/graph_links_spec.lua",
  },
  {
    name = "2033-tell-in-other-order", file = "host/comm/message.c",
    find = [[memcpy(p->to + (size_t)((g->rank + i) % size) * n, p->text + (size_t)i * n, n);]],
    replace = [[memcpy(p->to + (size_t)i * n, p->text + (size_t)i * n, n);]],
    breaks = "what everybody tells comes in the order of the rank that hears it",
    test = "spec/comm/tell_spec.lua",
  },
}
