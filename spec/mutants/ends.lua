-- Mutants of what the others see of a rank that ends early. What a row says: spec/mutants/table.lua.
return {
  {
    name = "1962-blamed-at-once", file = "host/comm/round.c",
    find = [[if (ended == GM_LOST && p->status == GM_OK) p->cut]],
    replace = [[if (ended == GM_LOST && p->status != GM_OK) p->cut]],
    breaks = "a closed connection is the fault, although the rank has said why it ends",
    test = "unit comm_ends_in_one_look",
  },
  {
    name = "1963-word-too-late", file = "host/comm/operation.c",
    find = [[    if (p->cut) GM_TRY(gm_comm_check_failed(p->comm));]],
    replace = [[]],
    breaks = "a rank that got no core for a moment does not listen to why another one is gone",
    test = "unit comm_ends_without_a_word",
  },
  {
    name = "1964-ends-silently", file = "host/comm/notice.c",
    find = [[if (!c->failed || c->told || !c->transport->lost) return;]],
    replace = [[if (c->world) return;]],
    breaks = "a rank that ends because of another one does not say so",
    test = "unit comm_ends_because_of_another",
  },
  {
    name = "1965-written-before-read", file = "host/comm/frames.c",
    find = [[errno != EINTR) fall_deaf(f, p, errno);]],
    replace = [[errno != EINTR) gm_frames_lose(f, p, errno);]],
    breaks = "what a rank said before it closed is lost where a write to it fails",
    test = "unit comm_ends_after_a_write",
  },
  {
    name = "1966-window-unread", file = "host/comm/comm_windows.c",
    find = [[w->base->error);
        look_around(w);]],
    replace = [[w->base->error);]],
    breaks = "what lies in the window of a rank that is gone is not read",
    test = "unit comm_ends_through_a_window",
  },
  {
    name = "1967-end-without-one", file = "host/comm/section.c",
    find = [[return gone && gm_now() - *cut > GM_SAY_SECONDS ?]],
    replace = [[return gone && *cut < 0 ?]],
    breaks = "ends of sections and of the program wait for a rank that is gone",
    test = "unit comm_ends_without_a_word",
  },
  {
    name = "1968-compares-with-nobody", file = "host/comm/hang.c",
    find = [[for (int place = 0; p->comparing && t->lost &&]],
    replace = [[for (int place = 0; !p->comparing && t->lost &&]],
    breaks = "in checked mode a rank waits for the call of one that is gone",
    test = "unit comm_ends_without_a_word",
  },
  {
    name = "1911-stops-count-as-silence", file = "host/comm/comm.c",
    find = "if (now - looked > STOPPED) c->woke = now;",
    replace = "(void)looked;",
    breaks = "a job that was suspended for longer than its time limit fails when it goes on",
    test = "spec/comm/sections_spec.lua -f 'end their section'",
  },
  {
    name = "1912-asked-before-the-stop", file = "host/comm/operation.c",
    find = "quiet = gm_comm_quiet(c, since);",
    replace = "quiet = now - since;",
    breaks = "a rank that computes when a suspended job goes on is taken for one that hangs",
    test = "spec/comm/sections_spec.lua -f 'do their sums'",
  },
  {
    name = "1913-sections-end-twice", file = "host/comm/section.c",
    find = "if (c->end_status != GM_OK) return gm_fail_again(c->end_status, c->end_error);",
    replace = "",
    breaks = "ranks end a section twice after its end has failed, and wait in different ones",
    test = "unit comm_sections",
  },
}
