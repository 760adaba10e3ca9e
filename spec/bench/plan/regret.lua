-- regret.lua - every legal setting of N ranks, as a plan predicts it and as it is: what the plan's choice costs against
-- the best.
--
--     ganymede run spec/bench/plan/regret.lua --set ranks=8 --set out=regret           GPT, ViT, BERT, MoE; hours
--     ganymede run spec/bench/plan/regret.lua --set ranks=2 --set of=gpt --set only=1/40    each 40th setting
--     ganymede run spec/bench/plan/regret.lua --set likely=12 --set only=1/400          and the plan's best 12 first
--
-- Its own settings: only ("k/n": each n-th setting, from the k-th), likely (how many of the best of `ganymede plan`
-- come before them, 0), rounds (how often these are measured, in turns, 1: the median counts), timed (steps, 8).
-- steps.lua has the others, and says how a step is measured. Results are lines of out/MODEL.jsonl; another `only` adds
-- to them. Without `likely` the plan's first choice is the setting that is predicted as the fastest.
package.path = GANYMEDE_ROOT .. "/spec/bench/plan/?.lua;" .. package.path
local fits = require "ganymede.plan.fits"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local keep = require "ganymede.plan.search.keep"
local steps = require "steps"

local config = gm.launch { ranks = 8, out = "regret", of = "gpt,vit,bert,moe", only = "1/1", timed = 8, keep = {},
  likely = 0, rounds = 1, platform = "" }

local bench = steps.new { out = config.out, timed = config.timed, platform = config.platform }

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
  local best, rows = steps.best_of(found)
  local choice = found[first_choice or ""]
  for _, row in ipairs(rows) do
    if not choice or (not first_choice and row.predicted < choice.predicted) then choice = row end
  end
  steps.errors(("%s, %d ranks"):format(name, config.ranks), rows)
  if best then steps.print_regret(best, choice) end
end

local first, each = config.only:match "^(%d+)/(%d+)$"
first, each = tonumber(first), tonumber(each)
if not first then error("only: k/n was expected, such as 1/40", 0) end

-- Measures a setting, unless the lines of the file have it `round` times.
local function look_at(name, path, found, one, place, round)
  local known = found[one.words]
  if known and (not known.measured or #known.times >= (round or 1)) then return end
  local row = bench:measure(name, config.ranks, one.sets)
  row.words = one.words
  steps.add_result(path, row)
  print(("%s %s %s: %s"):format(name, place, one.words, row.measured
    and ("%.2f ms, predicted %.2f"):format(1e3 * row.measured, 1e3 * row.predicted) or "refused"))
  take(found, row)
  io.stdout:flush()
end

for name in steps.each(config.of) do
  local path = ("%s/%s.jsonl"):format(config.out, name)
  local found, first_choice = {}, nil
  json.each_line(path, function(row) take(found, row) end)
  if config.likely > 0 then
    local rows = bench:plan(name, config.ranks, config.keep, config.likely)
    first_choice = rows[1] and rows[1].words
    for round = 1, config.rounds do
      for i = 1, math.min(config.likely, #rows) do
        look_at(name, path, found, rows[i], "plan's " .. i, round)
      end
    end
  end
  local list = bench:settings(name, config.ranks, keep.parse(config.keep))
  for i = first, #list, each do look_at(name, path, found, list[i], i .. "/" .. #list) end
  summary(name, found, first_choice)
end
