-- predictions.lua - steps as `ganymede simulate` predicts them on this machine, against steps as they are.
--
--     ganymede run spec/bench/predictions.lua
--
-- It measures the machine for 1 rank and for 2 (`ganymede bench machine`, one thread a rank), then predicts and runs
-- some settings. A measured step is the time that a quarter of the steps stays below, from the first hook before it to
-- the first behind it, as in a record of the step. Of one rank it is time of the CPU, which other programs hardly
-- change; of two it is that of a clock on the wall, which they do.
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"

gm.launch {}

local recipe = [[
local core = require "ganymede.core"
local times, began = {}, 0
local function now() return core.world() == 1 and os.clock() or core.now() end
return {
  name = "predicted", seed = 1, steps = 23,
  model = { type = "GPT", vocabulary = 1024, sequence_length = 128, width = 256, depth = 4, heads = 8 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train", sequence_length = 128,
                     stride = 16 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 1e-4 },
  hooks = { { name = "times", priority = -1e9, needs_output = false,
    before_train_iter = function() began = now() end,
    after_train_iter = function() times[#times + 1] = now() - began end,
    after_train = function()
      for _ = 1, 3 do table.remove(times, 1) end
      table.sort(times)
      if core.rank() == 0 then print(("measured %.9f"):format(times[math.ceil(0.25 * #times)])) end
    end } },
}
]]

local settings = {
  { 1, "" }, { 1, "model.width=128" }, { 1, "model.width=512" }, { 1, "data.batch_size=2" }, { 1, "model.depth=8" },
  { 2, "" }, { 2, "zero={stage=2}" }, { 2, "parallel.tensor={size=2,mode=\"1d\"}" },
  { 2, "parallel.tensor={size=2,mode=\"1d\"} data.batch_size=2" }, { 2, "parallel.pipeline=2 num_microbatches=4" },
  { 2, "parallel.sequence=2" }, { 2, "model.width=128 data.batch_size=16" },
}

local folder = os.tmpname()
os.remove(folder)
core.make_folders(folder)
local program = ("GANYMEDE_ROOT=%s %s"):format(machine.quote(GANYMEDE_ROOT), machine.quote(core.executable()))

local function ask(words)
  local pipe = io.popen(("cd %s && %s %s 2>&1"):format(machine.quote(folder), program, words))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

core.write_whole(folder .. "/r.lua", recipe)
for n = 1, 2 do ask(("bench machine -n %d --threads 1 --out m%d.json"):format(n, n)) end

local errors = {}
print(("%-60s %10s %10s %7s"):format("ranks, settings", "predicted", "measured", "ratio"))
for _, setting in ipairs(settings) do
  local n, set = unpack(setting)
  local words = ("r.lua -n %d %s"):format(n, (set:gsub("%S+", function(w) return "--set " .. machine.quote(w) end)))
  local said = ask(("simulate --json --machine m%d.json %s"):format(n, words))
  local predicted = json.decode(said:match "{\n.*" or said, "simulate").seconds
  local told = ask("run --no-eval --threads 1 " .. words)
  local measured = tonumber(told:match "measured (%S+)") or error(told, 0)
  errors[#errors + 1] = math.abs(predicted / measured - 1)
  print(("%-60s %7.2f ms %7.2f ms %7.2f"):format(n .. "  " .. set, 1e3 * predicted, 1e3 * measured,
    predicted / measured))
end
table.sort(errors)
print(("error: median %.0f %%, at most %.0f %%"):format(100 * errors[math.ceil(#errors / 2)], 100 * errors[#errors]))
os.execute("rm -r " .. machine.quote(folder))
