-- regret.lua - every legal setting of N ranks, as a plan predicts it and as it is: what the plan's choice costs against
-- the best.
--
--     ganymede run spec/bench/plan/regret.lua --set ranks=8 --set out=regret           GPT, ViT, BERT, MoE; hours
--     ganymede run spec/bench/plan/regret.lua --set ranks=2 --set of=gpt --set only=1/40    each 40th setting
--     ganymede run spec/bench/plan/regret.lua --set likely=12 --set only=1/400          and the plan's best 12 first
--
-- Settings: ranks (8), out (the folder of results), of (models: names with commas), only ("k/n": each n-th setting,
-- from the k-th), likely (how many of the best of `ganymede plan` come before them, 0), rounds (how often these are
-- measured, in turns, 1: the median counts), timed (steps, 8), keep (a list of --keep of a plan), platform (a machine
-- file; default: measured once into out). Every result is a line of
-- out/MODEL.jsonl as soon as it is there. A bench that was stopped goes on behind the last line, and another `only`
-- adds to it. steps.lua says how a step is measured. Regret is (measured time of the plan's first choice; without
-- `likely`, of the setting that is predicted as the fastest) / (least measured time) - 1.
package.path = GANYMEDE_ROOT .. "/spec/bench/plan/?.lua;" .. package.path
local fits = require "ganymede.plan.fits"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local keep = require "ganymede.plan.search.keep"
local setting = require "ganymede.plan.search.setting"
local steps = require "steps"

local config = gm.launch { ranks = 8, out = "regret", of = "gpt,vit,bert,moe", only = "1/1", timed = 8, keep = {},
  likely = 0, rounds = 1, platform = "" }

local bench = steps.new { out = config.out, timed = config.timed,
  platform = config.platform ~= "" and config.platform or nil }

-- Adds a line to what is measured: words of a setting -> the line, with `times`, whose median is `measured`.
local function take(found, row)
  local known = found[row.words]
  row.times = known and known.times or {}
  table.insert(row.times, row.measured)
  row.measured = row.times[1] and fits.median(row.times)
  found[row.words] = row
end

-- first_choice: the words of the plan's, or nil: the one with the least prediction.
local function summary(name, found, first_choice)
  local rows, best, choice = {}, nil, found[first_choice or ""]
  for _, row in pairs(found) do
    if row.measured then rows[#rows + 1] = row end
  end
  table.sort(rows, function(a, b) return a.words < b.words end)
  for _, row in ipairs(rows) do
    if not best or row.measured < best.measured then best = row end
    if not choice or (not first_choice and row.predicted < choice.predicted) then choice = row end
  end
  steps.errors(("%s, %d ranks"):format(name, config.ranks), rows)
  if not best then return end
  print(("  best    %9.2f ms  %s"):format(1e3 * best.measured, best.words))
  print(("  choice  %9.2f ms  %s   (%.2f ms predicted)"):format(1e3 * choice.measured, choice.words,
    1e3 * choice.predicted))
  print(("  regret  %.1f %%"):format(100 * (choice.measured / best.measured - 1)))
end

local first, each = config.only:match "^(%d+)/(%d+)$"
first, each = tonumber(first), tonumber(each)
if not first then error("only: k/n was expected, such as 1/40", 0) end

-- Measures a setting, unless the lines of the file have it `round` times.
local function look_at(name, path, found, words, sets, place, round)
  local known = found[words]
  if known and (not known.measured or #known.times >= (round or 1)) then return end
  local row = bench:measure(name, config.ranks, sets)
  row.words = words
  steps.add_result(path, row)
  print(("%s %s %s: %s"):format(name, place, words, row.measured
    and ("%.2f ms, predicted %.2f"):format(1e3 * row.measured, 1e3 * row.predicted) or "refused"))
  take(found, row)
  io.stdout:flush()
end

for name in config.of:gmatch "[^,]+" do
  local path = ("%s/%s.jsonl"):format(config.out, name)
  local found, first_choice = {}, nil
  json.each_line(path, function(row) take(found, row) end)
  if config.likely > 0 then
    local rows = bench:plan(name, config.ranks, config.keep, config.likely)
    first_choice = rows[1] and rows[1].words
    for round = 1, config.rounds do
      for i = 1, math.min(config.likely, #rows) do
        look_at(name, path, found, rows[i].words, rows[i].sets, "plan's " .. i, round)
      end
    end
  end
  local list, facts = bench:settings(name, config.ranks, keep.parse(config.keep))
  for i = first, #list, each do
    look_at(name, path, found, setting.words(list[i], facts), setting.sets(list[i], facts), i .. "/" .. #list)
  end
  summary(name, found, first_choice)
end
