-- Mutants of waking on shared cores in replays of steps, and of what settings of a search share. What a row says:
-- spec/mutants/table.lua.
local spec = "spec/plan/wake_spec.lua"

return {
  {
    name = "1691-wake-level", file = "host/plan/cores.c",
    find = [[int             others = x->n + x->woken;]],
    replace = [[int             others = x->n;]],
    breaks = "a rank that is woken does not count others that are about to run",
    test = spec .. " -f 'counts those'",
  },
  {
    name = "1692-wake-free", file = "host/plan/simulate.c",
    find = [[return ended || s->waits >= 0 ? run_woken(x, class, s->clock) : GM_OK;]],
    replace = [[return ended && s->waits >= 0 ? run_woken(x, class, s->clock) : GM_OK;]],
    breaks = "a core that becomes free stays idle until the scheduler's slice is over",
    test = spec .. " -f 'runs sooner'",
  },
  {
    name = "1693-wake-promised", file = "host/plan/cores.c",
    find = [[        going += w->stamp && !w->queued; /* they were promised a core */]],
    replace = [[]],
    breaks = "an idle core is given to two ranks that were woken at once",
    test = spec .. " -f 'promised'",
  },
  {
    name = "1694-wake-idle", file = "host/plan/cores.c",
    find = [[c->waking[rank] = (waking){++c->stamps, is_busy(c, others)};]],
    replace = [[c->waking[rank] = (waking){++c->stamps, true};]],
    breaks = "a rank that is woken on an idle core runs as soon as another one stops",
    test = spec .. " -f 'idle core'",
  },
  {
    name = "1695-wake-work", file = "host/plan/simulate.c",
    find = [[if (s->slept) cost += x->given]],
    replace = [[if (!s->slept) cost += x->given]],
    breaks = "those who did not sleep spend what waking costs",
    test = spec .. " -f 'spends what'",
  },
  {
    name = "1696-wake-node", file = "host/plan/cores.c",
    find = [[static node *node_of(gm_cores *c, int rank) { return &c->nodes[rank / c->machine->ranks_per_node]; }]],
    replace = [[static node *node_of(gm_cores *c, int rank) { return &c->nodes[0 * rank]; }]],
    breaks = "ranks of other nodes make a rank late",
    test = spec .. " -f 'other nodes'",
  },
  {
    name = "1697-wake-fit", file = "lua/ganymede/plan/wakes.lua",
    find = [[- (about.ranks - 1) * about.wake.work - (about.cores - 1) * idle]],
    replace = [[- (about.cores - 1) * idle]],
    breaks = "the latency of a message has what waking costs in it, which then counts twice",
    test = spec .. " -f 'taken off'",
  },
  {
    name = "1698-wake-cores", file = "lua/ganymede/plan/machine.lua",
    find = [[  if not out.cores then
    failure(2, "%s: wake is of]],
    replace = [[  if false then
    failure(2, "%s: wake is of]],
    breaks = "a wake is taken and ignored where ranks have cores of their own",
    test = spec .. " -f 'is refused'",
  },
  {
    name = "1699-kinds-uneven", file = "lua/ganymede/plan/search/relatives.lua",
    find = [[% setting.batch_ways(s) ~= 0 then return nil end]],
    replace = [[% 1 ~= 0 then return nil end]],
    breaks = "settings whose ranks have unequal samples take the answer of others which ranks are alike",
    test = "spec/plan/records_spec.lua -f 'asked once'",
  },
  {
    name = "1700-kinds-zero", file = "lua/ganymede/plan/search/relatives.lua",
    find = [[p.size, p.schedule, p.chunks, s.zero, s.acc]],
    replace = [[p.size, p.schedule, p.chunks, s.acc]],
    breaks = "settings of other stages of ZeRO take the answer of others which ranks are alike",
    test = "spec/plan/records_spec.lua -f 'asked once'",
  },
  {
    name = "1701-unet-hole", file = "lua/ganymede/models/unet.lua",
    find = [[modules = { self.time, self.enter, self.classes }]],
    replace = [[modules = { self.time, self.classes, self.enter }]],
    breaks = "a U-Net without classes has a parameter in no section, and no pipeline can cut it",
    test = "spec/nn/diffusion_spec.lua -f 'can be cut'",
  },
  {
    name = "2065-wake-always", file = "host/plan/simulate.c",
    find = [[now - s->asked >= wake->after;]],
    replace = [[now - s->asked >= 0;]],
    breaks = "a rank that waits for a moment is charged for sleep",
    test = spec,
  },
  {
    name = "2066-wake-taken-off", file = "lua/ganymede/plan/wakes.lua",
    find = [[if seconds >= (about.wake.after or 0) then]],
    replace = [[if seconds >= 0 then]],
    breaks = "small collectives come out as free, because wake-ups that nobody had are taken off",
    test = spec,
  },
}
