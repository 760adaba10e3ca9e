--- Mutants of rows that travel as one operation: all_to_all_rows and what makes, records and simulates it.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "1947-runs-apart", file = "host/comm/rows.c",
    find = [[m.apart |= end >= 0 && r->first != end;]],
    replace = [[m.apart |= end >= 0 && r->first < end;]],
    breaks = "runs with other rows between them are sent as if they lay one after the other",
    test = "unit comm_runs",
  },
  {
    name = "1948-runs-own", file = "host/comm/rows.c",
    find = [[memcpy(p->to + (size_t)out.run[i].first * row,]],
    replace = [[memcpy(p->to + (size_t)out.run[0].first * row,]],
    breaks = "all runs that stay on a rank lie where the first one should",
    test = "unit comm_runs",
  },
  {
    name = "1949-runs-cover", file = "host/comm/rows.c",
    find = [[if (run[i].first != end || run[i].n > rows - end) return false;]],
    replace = [[if (run[i].first < end || run[i].n > rows - end) return false;]],
    breaks = "runs behind the last row of their tensor are taken",
    test = "unit comm_runs_refused",
  },
  {
    name = "1950-rows-recorded", file = "host/comm/rows.c",
    find = [[if (p->sends.run[i].place != p->group->rank) rows +=]],
    replace = [[if (p->sends.run[i].place >= 0) rows +=]],
    breaks = "the record of a step counts rows that stay on their rank",
    test = "spec/plan/step_file_spec.lua -f 'uneven rows'",
  },
  {
    name = "1951-rows-simulated", file = "host/plan/network.c",
    find = [[return every_pair(q, p, members, 1.0 / (p - 1)), 1;]],
    replace = [[return every_pair(q, p, members, part), 1;]],
    breaks = "a simulation moves a part of the rows that go to others",
    test = "spec/plan/simulate_spec.lua -f 'latencies and bytes'",
  },
  {
    name = "1952-rows-bound", file = "lua/ganymede/plan/search/rates.lua",
    find = [[all_to_all_rows = function(p, k) return 1, (p - k) / (p - 1), p - 1 end, -- of]],
    replace = [[all_to_all_rows = function() return 1, 0, 0 end, -- of]],
    breaks = "the bound of a search takes rows for nothing",
    test = "spec/plan/search_bounds_spec.lua -f 'on one switch'",
  },
  {
    name = "1953-alike-live", file = "host/plan/alike.c",
    find = [[return fabs(a - b) <= GM_ALIKE_LIVE * (a > b ? a : b);]],
    replace = [[return fabs(a - b) <= (a > b ? a : b);]],
    breaks = "a rank stands for one that holds more",
    test = "spec/plan/stand_ins_spec.lua -f 'hold much more'",
  },
  {
    name = "1954-rows-linked", file = "host/comm/lane_moves.c",
    find = [[receive_block(l, p, r[i].place, (size_t)r[i].first * row, (size_t)r[i].n * row);]],
    replace = [[receive_block(l, p, r[i].place, (size_t)r[0].first * row, (size_t)r[i].n * row);]],
    breaks = "between devices all rows that come overwrite those of the first run",
    test = "spec/cuda/nccl_spec.lua -f 'rows of experts'",
  },
  {
    name = "1955-rows-unpacked", file = "host/comm/rows.c",
    find = [[else if (m.apart) move(p, &m, row, p->to, at, false);]],
    replace = [[else if (m.apart && k > 1) move(p, &m, row, p->to, at, false);]],
    breaks = "what the first member has sent stays in scratch memory",
    test = "-n 4 spec/experts/experts_spec.lua",
  },
  {
    name = "1956-cells-of-experts", file = "lua/ganymede/plan/search/cells.lua",
    find = [[if last and last.seconds and last.part == part and]],
    replace = [[if last and last.seconds and last.part ~= part and]],
    breaks = "a cell keeps each product of each expert: a search for a model of many takes gigabytes",
    test = "spec/plan/search_cells_spec.lua -f 'more experts'",
  },
}
