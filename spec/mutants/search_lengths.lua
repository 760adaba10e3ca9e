-- Mutants of steps of many pieces that are reckoned from steps of few, and of rehearsals whose first step is short.
-- What a row says: spec/mutants/table.lua.
local lengths = "spec/plan/search_lengths_spec.lua"

return {
  {
    name = "1870-lengths-line", file = "lua/ganymede/plan/search/lengths.lua",
    find = [[local line, bend = seconds[3] + steps * last,]],
    replace = [[local line, bend = seconds[3] + steps * before,]],
    breaks = "the line goes on as the first two steps did, in which a pipeline is not full yet",
    test = lengths .. " -f 'straight line'",
  },
  {
    name = "1871-lengths-bend", file = "lua/ganymede/plan/search/lengths.lua",
    find = [[return line, line - steps * bend - UNKNOWN * line]],
    replace = [[return line, line - UNKNOWN * line]],
    breaks = "a bent line counts as sure as a straight one",
    test = lengths .. " -f 'straight line'",
  },
  {
    name = "1872-lengths-steps", file = "lua/ganymede/plan/search/refine.lua",
    find = [[local steps = whole / unit - (first + 2)]],
    replace = [[local steps = whole / unit - (first + 1)]],
    breaks = "a step is reckoned with one piece too many, and a faster setting may be left out",
    test = lengths .. " -f 'no faster'",
  },
  {
    name = "1873-lengths-samples", file = "lua/ganymede/plan/search/refine.lua",
    find = [[out.facts = setmetatable({ samples = facts.samples * part }, { __index = facts })]],
    replace = [[out.facts = facts]],
    breaks = "the pieces of a short step are larger than those of the whole one",
    test = lengths .. " -f 'same samples'",
  },
  {
    name = "1874-search-likely", file = "lua/ganymede/plan/search/init.lua",
    find = [[if not search.best and likely then]],
    replace = [[if search.best and likely then]],
    breaks = "a search whose looks are over goes on for what was reckoned",
    test = lengths .. " -f 'what wins'",
  },
  {
    name = "1875-rehearse-gathers", file = "lua/ganymede/plan/rehearse.lua",
    find = [[if whole <= few or notes.remembers or]],
    replace = [[if whole <= few or]],
    breaks = "a rehearsal keeps other gathered parts than a run, whose first step had more batches",
    test = "spec/plan/step_file_spec.lua -f 'parts that are gathered'",
  },
  {
    name = "1876-rehearse-batches", file = "lua/ganymede/plan/rehearse.lua",
    find = [[loader.accumulation, trainer.steps_per_epoch = whole, per_epoch]],
    replace = [[trainer.steps_per_epoch = per_epoch]],
    breaks = "the step that is recorded has as few batches as the first one",
    test = "spec/plan/step_file_spec.lua -f 'batches that add up'",
  },
  {
    name = "1877-passes-either", file = "lua/ganymede/plan/search/passes.lua",
    find = [[local kinds = { "forward", "backward_input", "backward_weight", "either" }]],
    replace = [[local kinds = { "forward", "backward_input", "backward_weight" }]],
    breaks = "a bound forgets what a rank works in either half of its backward passes",
    test = "spec/plan/search_passes_spec.lua -f 'in either half'",
  },
  {
    name = "1878-facts-pieces", file = "lua/ganymede/plan/search/facts.lua",
    find = [[pieces = accumulation * (values.num_microbatches or 1)]],
    replace = [[pieces = accumulation]],
    breaks = "a plan with experts knows the batches of a recipe and not its micro-batches",
    test = "spec/plan/search_cells_spec.lua -f 'pieces of the recipe'",
  },
  {
    name = "1879-cells-padding", file = "lua/ganymede/plan/search/cells.lua",
    find = [[or math.ceil(facts.samples]],
    replace = [[or math.floor(facts.samples]],
    breaks = "a cell knows nothing of the padding of uneven samples, with which ranks compute",
    test = "spec/plan/search_cells_spec.lua -f 'two of its blocks'",
  },
}
