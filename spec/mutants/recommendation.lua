--- Mutants of metrics, soft targets and recommendation.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "1591-metrics-copies", file = "lua/ganymede/job/ranks.lua",
    find = [[for i = 1, t:numel() do none[i] = 0 end]],
    replace = [[none = numbers_of(t:local_tensor())]],
    breaks = "terms that several ranks have copies of are counted once for each copy",
    test = "spec/metrics/classes_spec.lua -f formulas",
  },
  {
    name = "1592-metrics-uncut", file = "lua/ganymede/job/ranks.lua",
    find = [[t = uncut(t:detach())]],
    replace = [[t = t:detach()]],
    breaks = "a term that is cut over ranks is counted in part",
    test = "spec/metrics/classes_spec.lua -f own",
  },
  {
    name = "1593-metrics-ignored", file = "lua/ganymede/metrics/answers.lua",
    find = [[return ops.mul(spread(said), counted), spread(right), classes]],
    replace = [[return spread(said), spread(right), classes]],
    breaks = "answers to labels that are not counted are counted as answers",
    test = "spec/metrics/classes_spec.lua -f formulas",
  },
  {
    name = "1594-auc-ties", file = "lua/ganymede/metrics/ranking.lua",
    find = [[right, tied = right + one * (below + zero / 2), tied + zero * one]],
    replace = [[right, tied = right + one * below, tied + zero * one]],
    breaks = "equal scores count as wrong in the area under the curve",
    test = "spec/metrics/classes_spec.lua -f curve",
  },
  {
    name = "1595-metrics-stages", file = "lua/ganymede/metrics/base.lua",
    find = [[return stages > 1 and #lengths > 0 and ranks.max(lengths) or lengths]],
    replace = [[return stages > 1 and #lengths > 0 and ranks.max(lengths) and lengths or lengths]],
    breaks = "stages without the output send fewer numbers than the stage that has it",
    test = "spec/metrics/recipe_spec.lua -f stages",
  },
  {
    name = "1596-metrics-absent-class", file = "lua/ganymede/metrics/classes.lua",
    find = [[if t.said[k] + t.right[k] > 0 then s, n]],
    replace = [[if t.said[k] + t.right[k] >= 0 then s, n]],
    breaks = "classes that nobody has count in means over classes",
    test = "spec/metrics/classes_spec.lua -f formulas",
  },
}
