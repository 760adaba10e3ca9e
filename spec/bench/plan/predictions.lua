-- predictions.lua - steps as `ganymede simulate` predicts them on this machine, against steps as they are.
--
--     ganymede run spec/bench/plan/predictions.lua                               78 settings, half an hour
--     ganymede run spec/bench/plan/predictions.lua --set each=2 --set ranks={1,2}
--
-- Some settings are written here: sizes and modes of a GPT of width 256. The others are drawn from the legal
-- settings of GPT, ViT, BERT and a mixture of experts on 1, 2, 4 and 8 ranks: `each` (4) of a model and a number of
-- ranks, evenly spaced in the list in which a search makes them. steps.lua says how a step is measured. With more
-- ranks than cores, they share the cores, as the machine's file says.
package.path = GANYMEDE_ROOT .. "/spec/bench/plan/?.lua;" .. package.path
local gm = require "ganymede"
local machine = require "ganymede.base.machine"
local steps = require "steps"

local config = gm.launch { ranks = { 1, 2, 4, 8 }, each = 4, of = "gpt,vit,bert,moe", out = "", timed = 20 }

local written = {
  { 1 }, { 1, "model.width=128" }, { 1, "model.width=512" }, { 1, "data.batch_size=2" }, { 1, "model.depth=8" },
  { 2 }, { 2, "zero={stage=2}" }, { 2, 'parallel.tensor={size=2,mode="1d"}' },
  { 2, 'parallel.tensor={size=2,mode="1d"}', "data.batch_size=2" },
  { 2, "parallel.pipeline=2", "num_microbatches=4" }, { 2, "parallel.sequence=2" },
  { 2, "model.width=128", "data.batch_size=16" },
}

local folder = config.out ~= "" and config.out or os.tmpname()
if config.out == "" then os.remove(folder) end
local bench = steps.new { out = folder, timed = config.timed }
local all, by_ranks = {}, {}

local function show(name, ranks, words, sets)
  local row = bench:measure(name, ranks, sets)
  if not row.measured then return print(("%d %-5s %s: %s"):format(ranks, name, words, row.why)) end
  print(("%d %-5s %8.2f ms %8.2f ms %5.2f  (pace %.2f)  %s"):format(ranks, name, 1e3 * row.predicted,
    1e3 * row.measured, row.predicted / row.measured, row.pace, words))
  io.stdout:flush()
  all[#all + 1] = row
  by_ranks[ranks] = by_ranks[ranks] or {}
  table.insert(by_ranks[ranks], row)
end

-- Settings of a model, evenly spaced among the legal ones.
local function drawn(name, ranks)
  local list = bench:settings(name, ranks)
  local n = math.min(config.each, #list)
  for i = 1, n do
    local one = list[math.floor((i - 0.5) * #list / n) + 1]
    show(name, ranks, one.words, one.sets)
  end
end

print "ranks, model, predicted, measured, ratio, settings"
for _, ranks in ipairs(config.ranks) do
  for _, given in ipairs(written) do
    if given[1] == ranks then
      local sets = { unpack(given, 2) }
      show("wide", ranks, table.concat(sets, " "), sets)
    end
  end
  for name in steps.each(config.of) do drawn(name, ranks) end
end
for _, ranks in ipairs(config.ranks) do steps.errors(("%d rank%s"):format(ranks, ranks == 1 and "" or "s"),
  by_ranks[ranks] or {}) end
steps.errors("all", all)
if config.out == "" then os.execute("rm -r " .. machine.quote(folder)) end
