-- steps.lua - small models whose steps are predicted and measured; all benches of plans beside it share it.
--
--     local bench = require "steps".new { out = FOLDER, timed = 8, platform = FILE or "" }
--     local list = bench:settings(model, ranks, keep)          -- all that are legal, as a search of a plan makes them
--     local rows = bench:plan(model, ranks, keep, top)         -- what `ganymede plan` finds, the best first
--     local row = bench:measure(model, ranks, sets)   -- { predicted, measured, pace } or { why }
--     local seconds, why = bench:run_next(model, ranks, sets, count, most)    -- few steps, in ranks that stay
--     steps.add_result(path, row)                -- a result, a line of JSON, which json.each_line reads
--     steps.print_regret(best, choice)           -- rows with words, measured and predicted
--
-- What a bench is set by `--set`: ranks, out (the folder of results), of (models: names with commas), keep (a list of
-- --keep of a plan), platform (the file of the machine for the plan; default: measured once into out). A result is
-- written as soon as it is there, and a bench that was stopped goes on behind the last one.
--
-- Regret is (time of the plan's first choice) / (least time of all) - 1.
--
-- A measured step is the lower quartile of `timed` steps behind 3, from the first hook before a step to the first
-- behind it, on the clock on the wall. One thread a rank. The machine must be idle.
--
-- Virtual machines change their speed by a quarter from one minute to the next. So a reference (the GPT on data ranks,
-- as many as the setting has, and no more than there are cores) runs before and after each measured run. Its time
-- divided by its median time around the measurement of the machine is the pace of the machine at that moment, and
-- `measured` is what the clock said, divided by the pace. The pace comes from measured times alone: no prediction takes
-- part in it. Where the reference changed by more than a tenth meanwhile, something else was busy, and the setting is
-- measured again, three times at most.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local core = require "ganymede.core"
local facts_module = require "ganymede.plan.search.facts"
local fits = require "ganymede.plan.fits"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local machines = require "ganymede.plan.machine"
local rehearsal = require "ganymede.job.rehearsal"
local setting = require "ganymede.plan.search.setting"
local shell = require "spec.support.shell"
local space = require "ganymede.plan.search.space"
local standing = require "spec.parallel.standing"

local KEPT = 100 -- runs of the same ranks
local TEXT = "/usr/share/common-licenses/GPL-3"

local head = [[
local core = require "ganymede.core"
local ranks = require "ganymede.job.ranks"
local times, began = {}, 0
local hook = { name = "times", priority = -1e9, needs_output = false,
  before_train_iter = function() began = core.now() end,
  after_train_iter = function(_, trainer)
    times[#times + 1] = core.now() - began
    if #times > 1 or most == 0 then return end
    if ranks.from_first(function() return times[1] > most and "slow" or "" end) == "slow" then trainer:stop() end
  end,
  after_train = function()
    for _ = 1, #times > 3 and 3 or math.min(1, #times - 1) do table.remove(times, 1) end
    table.sort(times)
    if core.rank() == 0 then core.write_whole(measured, ("%.9f\n"):format(times[math.ceil(#times / 4)])) end
  end }
]]

local models = {
  gpt = ([[model = { type = "GPT", vocabulary = 512, sequence_length = 64, width = 128, depth = 4, heads = 8 },
    data = { train = { type = "Text", path = %q, split = "train", sequence_length = 64, stride = 8 }, batch_size = 16 },
    loss = { type = "CrossEntropyLoss" },]]):format(TEXT),
  wide = ([[model = { type = "GPT", vocabulary = 1024, sequence_length = 128, width = 256, depth = 4, heads = 8 },
    data = { train = { type = "Text", path = %q, split = "train", sequence_length = 128, stride = 16 },
             batch_size = 8 },
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

local Steps = {}
Steps.__index = Steps

local function new(given)
  core.make_folders(given.out)
  local platform = given.platform ~= "" and given.platform or nil
  return setmetatable({ out = given.out, timed = given.timed, platform = platform, last = {}, kept = 0 }, Steps)
end

function Steps:ask(words)
  local pipe = io.popen(("GANYMEDE_ROOT=%s %s %s 2>&1"):format(machine.quote(GANYMEDE_ROOT),
    machine.quote(core.executable()), words))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

--- The file in which a run leaves its seconds.
function Steps:measured() return self.out .. "/measured" end

--- Writes the recipe of a model and returns its path. most: a first step that takes more seconds is the last.
function Steps:recipe(name, most)
  if not models[name] then error("models: gpt, wide, vit, bert, moe; got " .. name, 0) end
  local path = ("%s/%s.lua"):format(self.out, name)
  core.write_whole(path, ("local measured, most = %q, %.9f\n"):format(self:measured(), most or 0) .. head
    .. ("return { name = %q, seed = 1, steps = %d, hooks = { hook }, %s\n"):format(name, 3 + self.timed, models[name])
    .. 'optimizer = { type = "AdamW", lr = 1e-4 } }\n')
  return path
end

local function set_words(sets)
  local out = {}
  for i, set in ipairs(sets) do out[i] = "--set " .. machine.quote(set) end
  return table.concat(out, " ")
end

-- What a run has left that was begun without it.
function Steps:taken()
  local seconds = tonumber(machine.read(self:measured()) or "")
  os.remove(self:measured())
  return seconds
end

--- Returns the seconds of a step; nil and what the run said. `count`: how many steps to run (3 + timed); of 3 or fewer
--- the first is not counted, of more the first 3.
function Steps:run(name, ranks, sets, count)
  self:taken()
  local told = self:ask(("run --no-eval --threads 1 %s -n %d %s %s"):format(machine.quote(self:recipe(name)), ranks,
    set_words(sets), count and "--set steps=" .. count or ""))
  local seconds = self:taken()
  return seconds, seconds and "" or told:sub(-300)
end

local SERVE = [[
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local ffi, session = require "ffi", require "ganymede.job.session"
ffi.cdef "int chdir(const char *path);"
require("spec.run").file_system = function() return { chdir = function(path) return ffi.C.chdir(path) == 0 end } end
function session.with_signals(_, fn, ...) return fn(...) end -- the program around all runs hears them
require("spec.support.fresh").keep()
require("spec.parallel.standing").serve(%q, %d)
]]

function standing.command(ranks, folder, client)
  core.write_whole(folder .. "/serve.lua", SERVE:format(folder, client))
  return ("%s run -n %d --threads 1 serve.lua"):format(shell.program(), ranks)
end

--- As run, in ranks that stay for the next call, KEPT times: to start them takes longer than a few steps. Their code is
--- compiled and their memory is there, so that the first step is as fast as later ones. most: see recipe.
function Steps:run_next(name, ranks, sets, count, most)
  self:taken()
  local words = { "run", "--no-eval", "--quiet", self:recipe(name, most), "--set", "steps=" .. count }
  for _, set in ipairs(sets) do
    words[#words + 1] = "--set"
    words[#words + 1] = set
  end
  if self.kept >= KEPT then standing.stop() end
  self.kept = self.kept % KEPT + 1
  local ok, why = pcall(standing.run, ranks, core.process().folder, words, 120)
  local seconds = self:taken()
  return seconds, ok and seconds and "" or tostring(why):sub(-300)
end

--- Ends the ranks of run_next.
function Steps:close() standing.stop() end

--- Returns the seconds of the reference of settings on so many ranks. One rank has a core that may be as fast as ever
--- while two cores together are slower.
function Steps:reference(ranks)
  ranks = math.min(ranks, machine.cores() or 1)
  local seconds, why = self:run("gpt", ranks, { "data.batch_size=4" })
  return seconds or error("the reference did not run: " .. why, 0)
end

--- The file of the machine for so many ranks, which is measured once into the folder.
function Steps:machine(ranks)
  if self.platform then return self.platform end
  local path = ("%s/machine-%d.json"):format(self.out, ranks)
  if not core.is_file(path) then
    local list = self:references(ranks, 2)
    print((self:ask(("bench machine -n %d --threads 1 --out %s"):format(ranks, machine.quote(path))):gsub("\n$", "")))
    core.write_whole(path .. ".reference", ("%.9f"):format(fits.median(self:references(ranks, 3, list))))
  end
  return path
end

--- Runs the reference so many times -> the list with their seconds.
function Steps:references(ranks, times, list)
  list = list or {}
  for _ = 1, times do list[#list + 1] = self:reference(ranks) end
  return list
end

-- The reference's median time around the measurement of the machine, whose rates are means, too; of a machine that was
-- not measured here, at the beginning of the bench.
function Steps:usual(path, ranks)
  if self.platform then
    path = ("%s/platform-%d"):format(self.out, ranks)
    if not core.is_file(path .. ".reference") then
      core.write_whole(path .. ".reference", ("%.9f"):format(fits.median(self:references(ranks, 5))))
    end
  end
  local seconds = tonumber(machine.read(path .. ".reference") or "")
  if not seconds then error(path .. ".reference is missing: remove " .. path .. ", so that both are measured", 0) end
  return seconds
end

--- Returns the legal settings of a model, the simpler ones first: a list of { words, sets, setting (of
--- ganymede.plan.search.space) }.
function Steps:settings(name, ranks, keep)
  local path, kept = self:machine(ranks), keep or {}
  local about = machines.read(path)
  local facts = rehearsal.with_workers(function()
    return facts_module.of({ recipe = self:recipe(name), ranks = ranks, machine = path }, about, kept)
  end)
  local list = space.list(facts, { ranks = ranks, machine = about, keep = kept })
  for i, one in ipairs(list) do
    list[i] = { words = setting.words(one, facts), sets = setting.sets(one, facts), setting = one }
  end
  return list
end

--- Returns the rows of `ganymede plan`, the best first, at least `top`: each has words and sets (ganymede.plan.search).
--- The plan is made once into the folder, also beside other work: it measures nothing.
function Steps:plan(name, ranks, keep, top)
  local words, path = {}, ("%s/%s-plan-%d-%d.json"):format(self.out, name, ranks, top)
  if core.is_file(path) then return json.decode(machine.read(path), path).rows end
  for i, one in ipairs(keep or {}) do words[i] = "--keep " .. machine.quote(one) end
  local said = self:ask(("plan %s -n %d --machine %s --top %d --json %s %s"):format(machine.quote(self:recipe(name)),
    ranks, machine.quote(self:machine(ranks)), top, machine.quote(path), table.concat(words, " ")))
  local text = machine.read(path) or error("the plan failed: " .. said:sub(-300), 0)
  return json.decode(text, path).rows
end

--- Predicts and runs a model with settings. COLLECTIVE over nothing: it starts programs.
function Steps:measure(name, ranks, sets)
  local row, path = { sets = sets, ranks = ranks }, self:machine(ranks)
  local said = self:ask(("simulate --json --machine %s %s -n %d %s"):format(machine.quote(path),
    machine.quote(self:recipe(name)), ranks, set_words(sets)))
  local document = said:match "{\n.*"
  if not document then
    row.why = said:sub(1, 300)
    return row
  end
  row.predicted = json.decode(document, "simulate").seconds
  for _ = 1, 3 do
    local before = self.last[ranks] or self:reference(ranks)
    row.clock, row.why = self:run(name, ranks, sets)
    local after = self:reference(ranks)
    self.last[ranks] = after
    if not row.clock then return row end
    row.why, row.pace = nil, (before + after) / 2 / self:usual(path, ranks)
    row.measured = row.clock / row.pace
    if math.abs(after / before - 1) < 0.1 then break end
  end
  return row
end

--- Prints how far predictions are from what was measured, of rows.
local function errors(title, rows)
  local list = {}
  for _, row in ipairs(rows) do list[#list + 1] = math.abs(row.predicted / row.measured - 1) end
  if #list == 0 then return print(title .. ": nothing was measured") end
  table.sort(list)
  print(("%s, %d settings: error of predictions: median %.0f %%, 90th percentile %.0f %%, at most %.0f %%"):format(
    title, #list, 100 * list[math.ceil(#list / 2)], 100 * list[math.ceil(0.9 * #list)], 100 * list[#list]))
end

--- Adds a result to a file.
local function add_result(path, row)
  core.write_whole(path, (machine.read(path) or "") .. json.encode(row) .. "\n")
end

--- The regret of a choice, both in seconds, in words.
local function regret(best, choice) return ("regret %.1f %%"):format(100 * (choice / best - 1)) end

--- Prints the fastest row, the plan's, and the regret.
local function print_regret(best, choice)
  print(("  best    %9.2f ms  %s"):format(1e3 * best.measured, best.words))
  print(("  choice  %9.2f ms  %s   (%.2f ms predicted)"):format(1e3 * choice.measured, choice.words,
    1e3 * choice.predicted))
  print("  " .. regret(best.measured, choice.measured))
end

--- Returns the row with the least time that was measured, and all that were measured, by their words.
local function best_of(rows)
  local list, best = {}, nil
  for _, row in pairs(rows) do
    if row.measured then list[#list + 1] = row end
  end
  table.sort(list, function(a, b) return a.words < b.words end)
  for _, row in ipairs(list) do
    if not best or row.measured < best.measured then best = row end
  end
  return best, list
end

--- For the names in a text with commas.
local function each(text) return text:gmatch "[^,]+" end

return { new = new, errors = errors, add_result = add_result, regret = regret, print_regret = print_regret,
  best_of = best_of, each = each }
