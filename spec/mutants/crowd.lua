-- Mutants of how ranks wait where they share cores. What a row says: spec/mutants/table.lua.
return {
  {
    name = "2060-others-never-noticed", file = "host/comm/crowd.c",
    find = [[c->ours = worked - c->worked > OURS * c->cores * (now - c->judged);]],
    replace = [[c->ours = worked > OURS * c->cores * (now - c->judged);]],
    breaks = "beside other programs each wait gives the core away for a slice",
    test = "unit comm_crowd_judges_by_the_share_of_the_ranks",
  },
  {
    name = "2061-judged-all-the-time", file = "host/comm/crowd.c",
    find = [[now - c->judged >= JUDGE_SECONDS;]],
    replace = [[now - c->judged > 0;]],
    breaks = "a moment in which one rank slept counts as other programs",
    test = "unit comm_crowd_judges_by_the_share_of_the_ranks",
  },
  {
    name = "2062-pauses-without-end", file = "host/comm/crowd.c",
    find = [[next < LONGEST_PAUSE ? next : LONGEST_PAUSE;]],
    replace = [[next;]],
    breaks = "ranks hardly ever yield again after other programs have ended",
    test = "unit comm_crowd_pauses_double",
  },
  {
    name = "2063-sleeps-at-once", file = "host/comm/crowd.c",
    find = [[rung = gm_window_rung(own) != seen;]],
    replace = [[rung = gm_window_rung(own) < seen;]],
    breaks = "a rank yields on after it has been rung for",
    test = "unit comm_crowd_yields_until_the_bell",
  },
  {
    name = "2064-yields-with-a-core-each", file = "host/comm/crowd.c",
    find = [[if (c->ranks <= c->cores) return false;]],
    replace = [[]],
    breaks = "ranks with a core each yield before they sleep",
    test = "unit comm_crowd_yields_until_the_bell",
  },
}
