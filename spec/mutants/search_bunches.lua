-- Mutants of the bunches of a search: bounds that families have in common, and what ranks hold at once.
-- What a row says: spec/mutants/table.lua.
local passes, cells = "spec/plan/search_passes_spec.lua", "spec/plan/search_cells_spec.lua"

return {
  {
    name = "2991-bunch-mean", file = "lua/ganymede/plan/search/passes.lua",
    find = [[math.max(sums.before + sums.passes / p, sums]],
    replace = [[math.max(sums.before + sums.passes, sums]],
    breaks = "a bunch takes as long as one rank that does the work of all stages",
    test = cells .. " -f 'sums of all of them'",
  },
  {
    name = "3016-bunch-host", file = "lua/ganymede/plan/search/cells.lua",
    find = [[host = host and total_of(cell, host) or 0 }]],
    replace = [[host = host and total_of(cell, own) or 0 }]],
    breaks = "a host launches as long as its device works",
    test = cells .. " -f 'sums of all of them'",
  },
  {
    name = "3017-holdings-dropped", file = "lua/ganymede/plan/search/passes.lua",
    find = [[(a.open[chunk] and not b.open[chunk])]],
    replace = [[(false and not b.open[chunk])]],
    breaks = "a moment with gradients goes because one without them has more micro-batches",
    test = passes .. " -f 'under way, and gradients'",
  },
  {
    name = "3018-holdings-kept", file = "lua/ganymede/plan/search/passes.lua",
    find = [[if is_within(list[i], own) then table.remove(list, i) end]],
    replace = [[if is_within(own, list[i]) then table.remove(list, i) end]],
    breaks = "moments that say nothing stay in the list",
    test = passes .. " -f 'under way, and gradients'",
  },
  {
    name = "3019-holdings-chunk", file = "lua/ganymede/plan/search/passes.lua",
    find = [[key = key * 8192 + 2 * held[c] +]],
    replace = [[key = 2 * held[c] +]],
    breaks = "moments that differ in one chunk are taken for one",
    test = passes .. " -f 'most of all moments'",
  },
  {
    name = "3020-holdings-gradients", file = "lua/ganymede/plan/search/refine.lua",
    find = [[(one.open[chunk] and weights[part] * whole or 0)]],
    replace = [[(one.open[chunk] and 4 * weights[part] * whole or 0)]],
    breaks = "a bound of memory has gradients four times",
    test = "spec/plan/search_spec.lua --slow -f 'pipelines in every order'",
  },
  {
    name = "3022-rates-place", file = "lua/ganymede/plan/search/rates.lua",
    find = [[("%d %d"):format(group.number, group.k) or "-"]],
    replace = [[("%d"):format(group.number) or "-"]],
    breaks = "groups of one level count as alike however many members are in a unit inside of it",
    test = "spec/plan/search_bounds_spec.lua -f 'lie alike'",
  },
  {
    name = "3023-record-place", file = "lua/ganymede/plan/search/record.lua",
    find = [[seen[name], list[#list + 1] = true, name end]],
    replace = [[seen[name], list[1] = true, name end]],
    breaks = "only one of the groups of a record says where its mesh is like another",
    test = "spec/plan/search_bounds_spec.lua -f 'lie alike'",
  },
}
