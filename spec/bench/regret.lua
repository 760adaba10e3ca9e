-- regret.lua - every legal setting of N ranks, as a plan predicts it and as it is: what the plan's choice costs against
-- the best.
--
--     ganymede run spec/bench/regret.lua --set ranks=8 --set out=regret              GPT, ViT, BERT, MoE; hours
--     ganymede run spec/bench/regret.lua --set ranks=2 --set of=gpt --set only=1/40       each 40th setting
--
-- Settings: ranks (8), out (the folder of results), of (models: names with commas), only ("k/n": each n-th setting,
-- from the k-th), timed (steps, 8), keep (a list of --keep of a plan), machine (a file; default: measured once into
-- out). Every result is a line of out/MODEL.jsonl as soon as it is there. A bench that was stopped goes on behind the
-- last line, and another `only` adds to it. A measured step is the median of those, behind 3, from the first hook
-- before it to the first behind it, on the clock on the wall: the machine must be idle. Regret is (measured time of the
-- setting that is predicted as the fastest) / (least measured time) - 1.
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local keep = require "ganymede.plan.search.keep"
local machine = require "ganymede.base.machine"
local search = require "ganymede.plan.search"
local setting = require "ganymede.plan.search.setting"

local config = gm.launch { ranks = 8, out = "regret", of = "gpt,vit,bert,moe", only = "1/1", timed = 8, keep = {},
  machine = false }

local TEXT = "/usr/share/common-licenses/GPL-3"
local times = [[
local core = require "ganymede.core"
local times, began = {}, 0
local hook = { name = "times", priority = -1e9, needs_output = false,
  before_train_iter = function() began = core.now() end,
  after_train_iter = function() times[#times + 1] = core.now() - began end,
  after_train = function()
    for _ = 1, 3 do table.remove(times, 1) end
    table.sort(times)
    if core.rank() == 0 then print(("measured %.9f"):format(times[math.ceil(#times / 2)])) end
  end }
]]

local models = {
  gpt = ([[model = { type = "GPT", vocabulary = 512, sequence_length = 64, width = 128, depth = 4, heads = 8 },
    data = { train = { type = "Text", path = %q, split = "train", sequence_length = 64, stride = 8 }, batch_size = 16 },
    loss = { type = "CrossEntropyLoss" },]]):format(TEXT),
  bert = ([[model = { type = "BERT", vocabulary = 261, sequence_length = 64, width = 128, depth = 4, heads = 8 },
    data = { train = { type = "TextPairs", path = %q, split = "train", sequence_length = 64, stride = 8 },
             batch_size = 16 },
    loss = { type = "BERTLoss" },]]):format(TEXT),
  vit = [[model = { type = "VisionTransformer", image_size = 32, patch_size = 4, channels = 3, classes = 10,
                    width = 128, depth = 4, heads = 8 },
    data = { train = { type = "Synthetic", length = 512, shape = { 3, 32, 32 } }, batch_size = 16 },
    loss = { type = "CrossEntropyLoss" },]],
  moe = ([[model = { type = "GPT", vocabulary = 512, sequence_length = 64, width = 128, depth = 4, heads = 8,
                     moe = { experts = 8, every = 2, k = 2 } },
    data = { train = { type = "Text", path = %q, split = "train", sequence_length = 64, stride = 8 }, batch_size = 16 },
    loss = { type = "CrossEntropyLoss" },]]):format(TEXT),
}

core.make_folders(config.out)
local program = ("GANYMEDE_ROOT=%s %s"):format(machine.quote(GANYMEDE_ROOT), machine.quote(core.executable()))

local function ask(words)
  local pipe = io.popen(("%s %s 2>&1"):format(program, words))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local function recipe_of(name)
  local path = ("%s/%s.lua"):format(config.out, name)
  core.write_whole(path, times .. ("return { name = %q, seed = 1, steps = %d, hooks = { hook }, %s\n"):format(name,
    3 + config.timed, models[name]) .. 'optimizer = { type = "AdamW", lr = 1e-4 } }\n')
  return path
end

local function machine_of()
  if config.machine then return config.machine end
  local path = ("%s/machine-%d.json"):format(config.out, config.ranks)
  if not core.is_file(path) then
    print(ask(("bench machine -n %d --threads 1 --out %s"):format(config.ranks, machine.quote(path))))
  end
  return path
end

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
  local text = machine.read(path) or ""
  core.write_whole(path, text .. json.encode(row) .. "\n")
end

local function words_of(sets)
  local out = {}
  for i, set in ipairs(sets) do out[i] = "--set " .. machine.quote(set) end
  return table.concat(out, " ")
end

-- Predicts and runs one setting -> a row; without `measured`, `why` says what refused it.
local function measure(recipe, on, s, facts)
  local sets = words_of(setting.sets(s, facts))
  local row = { words = setting.words(s, facts), sets = setting.sets(s, facts) }
  local said = ask(("simulate --json --machine %s %s -n %d %s"):format(machine.quote(on), recipe, config.ranks, sets))
  local document = said:match "{\n.*"
  if not document then
    row.why = said:sub(1, 300)
    return row
  end
  row.predicted = json.decode(document, "simulate").seconds
  local told = ask(("run --no-eval --threads 1 %s -n %d %s"):format(recipe, config.ranks, sets))
  row.measured = tonumber(told:match "measured (%S+)")
  row.why = not row.measured and told:sub(-300) or nil
  return row
end

local function summary(name, found)
  local rows, best, choice, errors = {}, nil, nil, {}
  for _, row in pairs(found) do
    if row.measured then rows[#rows + 1] = row end
  end
  table.sort(rows, function(a, b) return a.words < b.words end)
  for _, row in ipairs(rows) do
    if not best or row.measured < best.measured then best = row end
    if not choice or row.predicted < choice.predicted then choice = row end
    errors[#errors + 1] = math.abs(row.predicted / row.measured - 1)
  end
  if not best then return print(name .. ": nothing was measured") end
  table.sort(errors)
  print(("%s, %d ranks, %d settings measured; error of predictions: median %.0f %%, at most %.0f %%"):format(name,
    config.ranks, #rows, 100 * errors[math.ceil(#errors / 2)], 100 * errors[#errors]))
  print(("  best    %9.2f ms  %s"):format(1e3 * best.measured, best.words))
  print(("  choice  %9.2f ms  %s   (%.2f ms predicted)"):format(1e3 * choice.measured, choice.words,
    1e3 * choice.predicted))
  print(("  regret  %.1f %%"):format(100 * (choice.measured / best.measured - 1)))
end

local first, each = config.only:match "^(%d+)/(%d+)$"
first, each = tonumber(first), tonumber(each)
if not first then error("only: k/n was expected, such as 1/40", 0) end
local on = machine_of()

for name in config.of:gmatch "[^,]+" do
  if not models[name] then error("of: gpt, vit, bert, moe; got " .. name, 0) end
  local recipe, path = recipe_of(name), ("%s/%s.jsonl"):format(config.out, name)
  local found = read_results(path)
  local list, facts = search.settings { recipe = recipe, ranks = config.ranks, machine = on,
    keep = keep.parse(config.keep) }
  for i = first, #list, each do
    local words = setting.words(list[i], facts)
    if not found[words] then
      found[words] = measure(recipe, on, list[i], facts)
      add_result(path, found[words])
      print(("%s %d/%d %s: %s"):format(name, i, #list, words, found[words].measured
        and ("%.2f ms, predicted %.2f"):format(1e3 * found[words].measured, 1e3 * found[words].predicted) or "refused"))
      io.stdout:flush()
    end
  end
  summary(name, found)
end
