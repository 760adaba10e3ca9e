-- Mutants of what a search knows of hosts that launch, of what ranks do before their passes and behind them, and of
-- gradients that are whole until data ranks sum them.
-- What a row says: spec/mutants/table.lua.
local bounds, passes = "spec/plan/search_bounds_spec.lua", "spec/plan/search_passes_spec.lua"
local cells, plans = "spec/plan/search_cells_spec.lua", "spec/plan/search_spec.lua"

return {
  {
    name = "2140-record-launch", file = "lua/ganymede/plan/search/record.lua",
    find = [[  clock.host = clock.host + (e.n or 1) * launch]],
    replace = [[  clock.host = clock.host + launch]],
    breaks = "a run of ops is launched as one",
    test = bounds .. " -f 'ops and operations a host launches'",
  },
  {
    name = "2141-record-queued", file = "bindings/lua_simulate.c",
    find = [[(before > launched ? before : launched) + seconds)]],
    replace = [[(before > launched ? before : before) + seconds)]],
    breaks = "of a run of ops only the first waits for its launch",
    test = bounds .. " -f 'ops and operations a host launches'",
  },
  {
    name = "2142-record-between", file = "lua/ganymede/plan/search/record.lua",
    find = [[  clock.host = clock.host + seconds
  clock.at]],
    replace = [[  clock.host = clock.host + 0 * seconds
  clock.at]],
    breaks = "an operation between ranks is launched in no time",
    test = bounds .. " -f 'ops and operations a host launches'",
  },
  {
    name = "2143-record-device", file = "lua/ganymede/plan/search/record.lua",
    find = [[(launch > 0 and e.queued or launch + seconds)]],
    replace = [[(e.queued or launch + seconds)]],
    breaks = "a host that does not bind is waited for in a run of ops",
    test = bounds .. " -f 'ops and operations a host launches'",
  },
  {
    name = "2144-record-first", file = "lua/ganymede/plan/search/record.lua",
    find = [[math.max(self.total.at, self.first)]],
    replace = [[math.max(self.total.at, 0 * self.first)]],
    breaks = "a stage begins before its first message is there",
    test = bounds .. " -f 'first message'",
  },
  {
    name = "2145-played-launch", file = "lua/ganymede/schedules/run.lua",
    find = [[  return math.max(finish, self.host[rank])]],
    replace = [[  return finish]],
    breaks = "an order of passes is played as if nothing had to be launched",
    test = passes .. " -f 'have been launched'",
  },
  {
    name = "2146-played-from", file = "lua/ganymede/plan/search/passes.lua",
    find = [[    from = with_before(s, host, 0) - with_before(s, costs, 0) }]],
    replace = [[    from = with_before(s, host, 0) }]],
    breaks = "a host launches the first pass only when its rank can begin it",
    test = passes .. " -f 'hosts launch'",
  },
  {
    name = "2147-messages-launched", file = "lua/ganymede/plan/search/passes.lua",
    find = [[local cost = rank_of[part] ~= rank_of[part + 1] and between or 0]],
    replace = [[local cost = between]],
    breaks = "a rank launches messages to itself",
    test = passes .. " -f 'hosts launch'",
  },
  {
    name = "2148-launches-of-batches", file = "lua/ganymede/plan/search/passes.lua",
    find = [[if not host or s.accumulation > 1 then return nil end]],
    replace = [[if not host then return nil end]],
    breaks = "a host begins anew with each batch",
    test = passes .. " -f 'several batches'",
  },
  {
    name = "2149-cells-before", file = "lua/ganymede/plan/search/cells.lua",
    find = [[(here == 0 or here == n_sections)]],
    replace = [[here == n_sections]],
    breaks = "a cell leaves out what a rank does before its first pass",
    test = cells .. " -f 'two of its blocks'",
  },
  {
    name = "2150-cells-rest", file = "lua/ganymede/plan/search/cells.lua",
    find = [[  if part < 1 then lists.weight]],
    replace = [[  if part < 0 then lists.weight]],
    breaks = "two thirds of the last section's work before its first gradient are lost",
    test = cells .. " -f 'take what their ops take'",
  },
  {
    name = "2151-cells-launches", file = "lua/ganymede/plan/search/cells.lua",
    find = [[      add(e, e.seconds, (e.n or 1) * op, true)]],
    replace = [[      add(e, e.seconds, 2 * (e.n or 1) * op, true)]],
    breaks = "a cell has each op launched twice",
    test = cells .. " -f 'have what a host takes'",
  },
  {
    name = "2152-formula-launches", file = "lua/ganymede/plan/search/bounds.lua",
    find = [[rates.launches(m) * ops / s.pipeline.size,]],
    replace = [[0 * ops,]],
    breaks = "a bound by formula leaves launches out",
    test = plans .. " -f 'of 2 ranks that hosts launch'",
  },
  {
    name = "2153-behind-passes", file = "lua/ganymede/plan/search/record.lua",
    find = [[if ended and (settled or]],
    replace = [[if ended and (true or]],
    breaks = "the end of the last pass counts as behind it, too",
    test = bounds .. " -f 'behind its passes'",
  },
  {
    name = "2154-behind-host", file = "lua/ganymede/plan/search/record.lua",
    find = [[total = { at = at, host = host } }).total.at]],
    replace = [[total = { at = at, host = at } }).total.at]],
    breaks = "a host begins to launch what is behind the passes when they have ended",
    test = bounds .. " -f 'behind its passes'",
  },
  {
    name = "2155-open-gradients", file = "lua/ganymede/plan/search/passes.lua",
    find = [=[open[chunk] = done[chunk] < left[chunk]]=],
    replace = [=[open[chunk] = true]=],
    breaks = "gradients count as whole after they have been summed",
    test = passes .. " -f 'most of all moments'",
  },
  {
    name = "2156-open-first", file = "lua/ganymede/plan/search/passes.lua",
    find = [=[done[chunk] < left[chunk]]=],
    replace = [=[done[chunk] > 1 and done[chunk] < left[chunk]]=],
    breaks = "gradients count as whole only from the second pass on",
    test = passes .. " -f 'most of all moments'",
  },
}
