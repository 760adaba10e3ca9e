-- regret.lua - every legal setting of N ranks, as a plan predicts it and as it is: what the plan's choice costs against
-- the best.
--
--     ganymede run spec/bench/plan/regret.lua --set ranks=8 --set out=regret           GPT, ViT, BERT, MoE; hours
--     ganymede run spec/bench/plan/regret.lua --set ranks=2 --set of=gpt --set only=1/40    each 40th setting
--     ganymede run spec/bench/plan/regret.lua --set likely=12 --set only=1/400          and the plan's best 12 first
--
-- Settings: ranks (8), out (the folder of results), of (models: names with commas), only ("k/n": each n-th setting,
-- from the k-th), likely (how many of the best of `ganymede plan` come before them, 0), timed (steps, 8), keep (a list
-- of --keep of a plan), platform (a machine file; default: measured once into out). Every result is a line of
-- out/MODEL.jsonl as soon as it is there. A bench that was stopped goes on behind the last line, and another `only`
-- adds to it. steps.lua says how a step is measured. Regret is (measured time of the setting that is predicted as the
-- fastest) / (least measured time) - 1.
package.path = GANYMEDE_ROOT .. "/spec/bench/plan/?.lua;" .. package.path
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local keep = require "ganymede.plan.search.keep"
local machine = require "ganymede.base.machine"
local setting = require "ganymede.plan.search.setting"
local steps = require "steps"

local config = gm.launch { ranks = 8, out = "regret", of = "gpt,vit,bert,moe", only = "1/1", timed = 8, keep = {},
  likely = 0, platform = "" }

local bench = steps.new { out = config.out, timed = config.timed,
  platform = config.platform ~= "" and config.platform or nil }

-- What is measured already: words of a setting -> the line.
local function read_results(path)
  local found = {}
  for line in (machine.read(path) or ""):gmatch "[^\n]+" do
    local ok, row = pcall(json.decode, line, path)
    if ok then found[row.words] = row end -- a line that was cut when the bench was stopped is measured again
  end
  return found
end

local function add_result(path, row)
  core.write_whole(path, (machine.read(path) or "") .. json.encode(row) .. "\n")
end

local function summary(name, found)
  local rows, best, choice = {}, nil, nil
  for _, row in pairs(found) do
    if row.measured then rows[#rows + 1] = row end
  end
  table.sort(rows, function(a, b) return a.words < b.words end)
  for _, row in ipairs(rows) do
    if not best or row.measured < best.measured then best = row end
    if not choice or row.predicted < choice.predicted then choice = row end
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

-- Measures a setting, unless a line of the file has it.
local function look_at(name, path, found, words, sets, place)
  if found[words] then return end
  local row = bench:measure(name, config.ranks, sets)
  row.words, found[words] = words, row
  add_result(path, row)
  print(("%s %s %s: %s"):format(name, place, words, row.measured
    and ("%.2f ms, predicted %.2f"):format(1e3 * row.measured, 1e3 * row.predicted) or "refused"))
  io.stdout:flush()
end

for name in config.of:gmatch "[^,]+" do
  local path = ("%s/%s.jsonl"):format(config.out, name)
  local found = read_results(path)
  if config.likely > 0 then
    for i, row in ipairs(bench:plan(name, config.ranks, config.keep, config.likely)) do
      if i <= config.likely then look_at(name, path, found, row.words, row.sets, "plan's " .. i) end
    end
  end
  local list, facts = bench:settings(name, config.ranks, keep.parse(config.keep))
  for i = first, #list, each do
    look_at(name, path, found, setting.words(list[i], facts), setting.sets(list[i], facts), i .. "/" .. #list)
  end
  summary(name, found)
end
