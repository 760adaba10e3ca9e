--- Mutants of shared memory between ranks: windows, folds, who shares with whom.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "1611-ring-wraps", file = "host/comm/window.c",
    find = [[if (n > first) memcpy(ring, from + first, n - first);]],
    replace = [[if (n > first) memcpy(ring, from, n - first);]],
    breaks = "what goes over the end of a ring is not what was put in",
    test = "unit windows_rings",
  },
  {
    name = "1612-room-of-half", file = "host/comm/window.c",
    find = [[got > ring_size(w, ring) / 2) return false;]],
    replace = [[got > ring_size(w, ring)) return false;]],
    breaks = "a rank that waits for room is woken for each piece",
    test = "unit windows_room",
  },
  {
    name = "1613-nobody-is-woken", file = "host/comm/window.c",
    find = [[if (atomic_load(&w->s->asleep)) futex(&w->s->bell, FUTEX_WAKE, 1, NULL);]],
    replace = [[]],
    breaks = "a rank that sleeps is not woken by the bell",
    test = "unit windows_bell",
  },
  {
    name = "1614-any-file", file = "host/comm/window.c",
    find = [[if (strncmp(target, wanted, sizeof wanted - 1))]],
    replace = [[if (strncmp(target, wanted, 1))]],
    breaks = "any file of another process is taken for a window",
    test = "unit windows_strangers",
  },
  {
    name = "1615-any-job", file = "host/comm/window.c",
    find = [[s->magic == MAGIC && s->key == key &&]],
    replace = [[s->magic == MAGIC &&]],
    breaks = "the window of another job is taken for one of this job",
    test = "unit windows_strangers",
  },
  {
    name = "1616-order-of-terms", file = "host/comm/terms.c",
    find = [[p->terms.part[i] = i == g->rank ? p->terms.own + at : parts[other++];]],
    replace = [[p->terms.part[i] = i == 0 ? p->terms.own + at : parts[other++];]],
    breaks = "a rank adds its own term first, whatever its place: members get other bits",
    test = "unit windows_same_bits",
  },
  {
    name = "1618-offers-are-lost", file = "host/comm/fold.c",
    find = [[if (!gm_frames_keep(p, &(gm_frame_head){FRAME_OFFER, q->tag, q->n, q->id}, 0))]],
    replace = [[if (!p)]],
    breaks = "what was offered to a fold that is taken back is never drained",
    test = "unit windows_given_up",
  },
  {
    name = "1620-named-beside", file = "host/comm/hang.c",
    find = [[if (m->done || (m->send && p->terms.folded)) return false;]],
    replace = [[if (m->done) return false;]],
    breaks = "members that have come are named beside the one that has not",
    test = "unit windows_absent",
  },
  {
    name = "1621-refused-in-silence", file = "host/comm/share.c",
    find = [[!= GM_OK) take_why(s->mine.why);]],
    replace = [[!= GM_OK) s->mine.why[0] = 0;]],
    breaks = "nobody is told that memory cannot be shared",
    test = "unit windows_refused",
  },
  {
    name = "1622-none", file = "host/comm/share.c",
    find = [[if (is_refused() || s->here.shape.n < 2) return;]],
    replace = [[if (s->here.shape.n < 2) return;]],
    breaks = "GANYMEDE_SHARED_MEMORY=none is not heeded",
    test = "spec/comm/shared_memory_spec.lua",
  },
  {
    name = "1623-network", file = "lua/ganymede/job/session.lua",
    find = [[launcher.share_memory(wish ~= "network")]],
    replace = [[launcher.share_memory(true)]],
    breaks = 'parallel.transport = "network" shares memory',
    test = "spec/comm/shared_memory_spec.lua",
  },
  {
    name = "1624-lost-rank", file = "host/comm/comm_windows.c",
    find = [[    look_for_lost(w);
    w->turns]],
    replace = [[    w->turns]],
    breaks = "ranks that share memory wait for one whose connection is closed",
    test = "spec/comm/tcp_spec.lua -f 'is killed'",
  },
}
