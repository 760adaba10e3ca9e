-- Mutants of the tree of settings, of cells and played orders of a search, and of launches by a host in a replay.
-- What a row says: spec/mutants/table.lua.
local passes, cells = "spec/plan/search_passes_spec.lua", "spec/plan/search_cells_spec.lua"
local launch = "spec/plan/launch_spec.lua"

return {
  {
    name = "1480-passes-after", file = "lua/ganymede/plan/search/passes.lua",
    find = [[most = math.max(most, before + work + after)]],
    replace = [[most = math.max(most, before + work)]],
    breaks = "a bound forgets that the last backward pass goes back through all stages",
    test = passes .. " -f 'by formula and played'",
  },
  {
    name = "1481-passes-split", file = "lua/ganymede/plan/search/passes.lua",
    find = [[s.pipeline.chunks == 1 and before + inputs + after or 0]],
    replace = [[s.pipeline.chunks == 1 and before + work + after or 0]],
    breaks = "a bound has gradients of weights run before what goes back, which they need not",
    test = passes .. " -f 'never take less'",
  },
  {
    name = "1482-passes-halves", file = "lua/ganymede/plan/search/passes.lua",
    find = [[elseif s.recompute ~= "none" then out.either[part], w = w, 1e-12 end]],
    replace = [[end]],
    breaks = "a bound says in which half of a backward pass recomputation leaves a gradient of weights",
    test = passes .. " -f 'in either half'",
  },
  {
    name = "1483-passes-sums", file = "lua/ganymede/plan/search/passes.lua",
    find = [[most = math.max(most, at + sums(part))]],
    replace = [[most = math.max(most, played.time + sums(part))]],
    breaks = "a bound begins to sum gradients after the last pass, which hides a part",
    test = passes .. " -f 'end with the sums'",
  },
  {
    name = "1484-passes-held", file = "lua/ganymede/plan/search/passes.lua",
    find = [[      if action[1] ~= "forward" then break end]],
    replace = [[      if action[1] == "backward_weight" then break end]],
    breaks = "forward passes after the first backward pass count as held at once",
    test = passes .. " -f 'under way'",
  },
  {
    name = "1485-cells-hidden", file = "lua/ganymede/plan/search/cells.lua",
    find = [[m.host_moves and seconds or math.max(0, b.clock + seconds - clock)]],
    replace = [[seconds]],
    breaks = "what hides under ops adds to a bound",
    test = cells .. " -f 'does not hide'",
  },
  {
    name = "1486-cells-mesh", file = "lua/ganymede/plan/search/cells.lua",
    find = [[format(axis.name, axis.size, stride)]],
    replace = [[format(axis.name, axis.size, 1)]],
    breaks = "a cell takes as long wherever its axes lie",
    test = cells .. " -f 'does not hide'",
  },
  {
    name = "1487-facts-short", file = "lua/ganymede/plan/search/facts.lua",
    find = [[i <= before + depth - 2 and before or i - (depth - 2)]],
    replace = [[i <= before + depth - 2 and before - 1 or i - (depth - 2)]],
    breaks = "blocks of a model count as the first one",
    test = cells .. " -f 'two of its blocks'",
  },
  {
    name = "1488-cells-samples", file = "lua/ganymede/plan/search/cells.lua",
    find = [[facts.samples / s.accumulation / s.micro / setting.batch_ways(s)]],
    replace = [[facts.samples / s.micro / setting.batch_ways(s)]],
    breaks = "a cell has the samples of all batches of a step",
    test = cells .. " -f 'two of its blocks'",
  },
  {
    name = "1489-space-count", file = "lua/ganymede/plan/search/space.lua",
    find = [[    share.count = #of * #share.pieces * #zeros * share.each]],
    replace = [[    share.count = #of * #share.pieces * share.each]],
    breaks = "settings of shares that are not opened are not all counted",
    test = passes .. " -f 'has all settings'",
  },
  {
    name = "1490-space-number", file = "lua/ganymede/plan/search/space.lua",
    find = [[      s.number = family.number + (zero[2] - 1) * MOST.recomputes * MOST.orders + i - 1]],
    replace = [[      s.number = family.number + i - 1]],
    breaks = "two settings have one number, so which of them wins is not decided",
    test = passes .. " -f 'has all settings'",
  },
  {
    name = "1491-launch-queue", file = "host/plan/program.c",
    find = [[(last->queued > launched ? last->queued : launched) + *seconds]],
    replace = [[launched + *seconds]],
    breaks = "a long op does not delay what was launched behind it",
    test = launch .. " -f 'are a queue'",
  },
  {
    name = "1492-launch-ahead", file = "host/plan/simulate.c",
    find = [[    s->host += line->n * launch;]],
    replace = [[    s->host = s->clock + line->n * launch;]],
    breaks = "a host waits for its device",
    test = launch .. " -f 'when it has been launched'",
  },
  {
    name = "1493-launch-between", file = "host/plan/simulate.c",
    find = [[        wait_for_host(x, class, s->host);
    }
    return]],
    replace = [[    }
    return]],
    breaks = "an operation between ranks begins before it is launched",
    test = launch .. " -f 'when it has been launched'",
  },
  {
    name = "1494-launch-slower", file = "host/plan/simulate.c",
    find = [[    if (g->jitter > 0 || (launch > 0 && slower != 1)) {]],
    replace = [[    if (g->jitter > 0) {]],
    breaks = "the host of a slow rank is as slow",
    test = launch .. " -f 'are a queue'",
  },
  {
    name = "1495-launch-recorded", file = "host/plan/simulate.c",
    find = [[return x->given->recorded ? 0 : seconds; }]],
    replace = [[return seconds + 0 * x->given->recorded; }]],
    breaks = "each op of a recorded step is launched by itself",
    test = launch .. " -f 'at once'",
  },
  {
    name = "1496-software-again", file = "spec/bench/published/software.lua",
    find = [[local is_event = { o = true, r = true,]],
    replace = [[local is_event = { o = true,]],
    breaks = "records lose what runs again when they are rewritten",
    test = "spec/plan/published_spec.lua -f 'runs again apart'",
  },
  {
    name = "1497-records-rank", file = "lua/ganymede/plan/records.lua",
    find = [[local lines = { (head:match "^[^\n]*"), "rank " .. rank }]],
    replace = [[local lines = { (head:match "^[^\n]*"), head:match "rank %d+" }]],
    breaks = "a record of another order of the axes is that of another rank",
    test = "spec/plan/records_spec.lua",
  },
  {
    name = "1498-bounds-pieces", file = "lua/ganymede/plan/search/bounds.lua",
    find = [[  return seconds + s.micro * s.accumulation * once]],
    replace = [[  return seconds + s.accumulation * s.accumulation * once]],
    breaks = "a bound has stage 3 of ZeRO gather more often than there are pieces",
    test = "spec/plan/search_bounds_spec.lua -f 'for each piece'",
  },
  {
    name = "1499-look-missing", file = "lua/ganymede/plan/search/refine.lua",
    find = [[  return out, pieces - own]],
    replace = [[  return out, pieces]],
    breaks = "a look at few pieces of a step adds those that its record has",
    test = "spec/plan/search_looks_spec.lua",
  },
}
