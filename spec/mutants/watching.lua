--- Mutants of sweeps, reports and what runs write for others to watch. See table.lua.
return {
  {
    name = "1220-sweep-commas", file = "lua/ganymede/cli/sweep/space.lua",
    find = [[c == "," and #open == 0]],
    replace = [[c == ","]],
    breaks = "a table of a value is cut at its commas",
    test = "spec/cli/sweep_space_spec.lua -f commas",
  },
  {
    name = "1221-sweep-again", file = "lua/ganymede/cli/sweep/search.lua",
    find = [[return row.status == 0 or hopeless[row.status] or false]],
    replace = [[return hopeless[row.status] or false]],
    breaks = "a sweep that continues runs again what has ended well",
    test = "spec/cli/sweep_spec.lua -f twice",
  },
  {
    name = "1222-sweep-checkpoint", file = "lua/ganymede/cli/sweep/search.lua",
    find = [[if self.folder:has_checkpoint(row.run) then add("--resume", "auto") end]],
    replace = "",
    breaks = "a run that was under way begins anew",
    test = "spec/cli/sweep_spec.lua -f Ctrl",
  },
  {
    name = "1223-sweep-orphans", file = "host/job/process.c",
    find = [[prctl(PR_SET_PDEATHSIG, SIGTERM);]],
    replace = "",
    breaks = "the runs of a sweep that was killed go on",
    test = "spec/cli/sweep_spec.lua -f killed",
  },
  {
    name = "1224-sweep-worst", file = "lua/ganymede/cli/sweep/search.lua",
    find = [[if metric.most then return x > y end]],
    replace = "",
    breaks = "the smallest accuracy is the best",
    test = "spec/cli/sweep_spec.lua -f failures",
  },
  {
    name = "1225-report-escape", file = "lua/ganymede/observe/report/chart.lua",
    find = [[["<"] = "&lt;", ]],
    replace = "",
    breaks = "names of runs are read as HTML",
    test = "spec/cli/report_spec.lua -f executes",
  },
  {
    name = "1226-report-peaks", file = "lua/ganymede/observe/report/chart.lua",
    find = [[if not high or y > points[high][2] then high = i end]],
    replace = [[if not high then high = i end]],
    breaks = "a long curve loses its peaks",
    test = "spec/cli/report_spec.lua -f peaks",
  },
  {
    name = "1227-report-ranks", file = "lua/ganymede/observe/report/parts.lua",
    find = [[sum[k + 2] = sum[k + 2] + (type]],
    replace = [[sum[k + 2] = (type]],
    breaks = "communication is that of the last rank, not the sum",
    test = "spec/cli/report_spec.lua -f statistics",
  },
}
