-- elastic.lua - what training feels of a change of its ranks, and of the death of one.
--
--     ganymede run spec/bench/elastic.lua                     4 -> 8 -> 3 -> 6 ranks, then deaths; 3 minutes of 2 cores
--     ganymede run spec/bench/elastic.lua --set width=512     a larger model
--
-- A pause is the time from the end of the last step of the old ranks to the end of the first step of the new ones, less
-- a usual step of these. It is measured for `ganymede resize`, and for what one would do without it: SIGTERM, a
-- checkpoint, and `run --resume auto -n M` at once. A recovery is the time from SIGKILL of a rank to the end of the
-- next step that was not made before, with --memory-checkpoint 1 and no delay, without and with --standby; a step in
-- which a copy is made is compared with one in which none is. A GPT of 4 blocks in f32; a step has 24 sequences of 64
-- tokens.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local config = gm.launch { width = 128, changes = true, deaths = true }

local recipe = ([[
local times = rank == 0 and assert(io.open("times", "a"))
require("ganymede.hooks.base").class("Clock", {}, { priority = 99, needs_output = false,
  after_train_iter = function(_, trainer)
    if trainer.step == 20 and rank == 1 then
      local file = assert(io.open("victim", "w"))
      file:write(core.process().pid)
      file:close()
    end
    if rank > 0 then return end
    times:write(("%%.4f %%d %%d\n"):format(core.now(), trainer.step, core.world()))
    times:flush()
  end })
local tokens = { type = "Synthetic", kind = "tokens", length = 2400, sequence_length = 64, vocab_size = 256 }
return {
  name = "elastic", seed = 1, epochs = 1000,
  model = { type = "GPT", vocabulary = 256, sequence_length = 64, depth = 4, width = %d, heads = 4, dropout = 0.1 },
  data = { train = tokens, batch_size = 24 }, loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3 }, hooks = { { type = "Clock" } },
}
]]):format(config.width)

-- ---------------------------------------------------------------- jobs

local home

-- Starts a job in the folder of this measurement.
local function start(ranks, words)
  os.remove(home .. "/status")
  local line = { "--out", "run", "--no-eval", "-q", unpack(words or {}) }
  for i, word in ipairs(line) do line[i] = shell.quote(word) end
  local script = ("echo $$ >pid; %s recipe.lua -n %d %s >>out 2>>err & wait $!; echo $? >status"):format(
    shell.program "run", ranks, table.concat(line, " "))
  local env = {}
  for name, value in pairs(support.environment(home)) do env[#env + 1] = shell.quote(name .. "=" .. value) end
  assert(os.execute(("cd %s && env %s setsid sh -c %s </dev/null >/dev/null 2>&1 &"):format(shell.quote(home),
    table.concat(env, " "), shell.quote(script))) == 0)
end

local function read(name)
  local file = io.open(home .. "/" .. name)
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text
end

local function wait_until(fn)
  local deadline = core.now() + 180
  while not fn() do
    assert(core.now() < deadline, read "err")
    core.sleep(0.05)
  end
end

-- Ends the job with SIGTERM, in good order.
local function stop()
  local children = shell.lines("cat /proc/" .. read "pid":match "%d+" .. "/task/*/children")[1]
  os.execute("kill -TERM " .. children)
  wait_until(function() return read "status" ~= "" end)
end

-- The steps that were made: list of { at, step, world }.
local function times()
  local list = {}
  for at, step, world in read "times":gmatch "(%S+) (%d+) (%d+)\n" do
    list[#list + 1] = { at = tonumber(at), step = tonumber(step), world = tonumber(world) }
  end
  return list
end

-- Waits until the last `count` steps were made by so many ranks.
local function train(world, count)
  wait_until(function()
    local list = times()
    for i = #list, #list - count + 1, -1 do
      if not list[i] or list[i].world ~= world then return false end
    end
    return true
  end)
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- The pause before the first step behind entry `last`, and a usual step after it.
local function pause(last)
  local list, steps = times(), {}
  for i = last + 2, #list do steps[#steps + 1] = list[i].at - list[i - 1].at end
  local step = median(steps)
  return list[last + 1].at - list[last].at - step, step
end

-- The last entry of the steps by so many ranks.
local function last_of(world)
  local list = times()
  for i = #list, 1, -1 do
    if list[i].world == world then return i end
  end
end

local function with_home(fn, ...)
  home = support.home(recipe)
  fn(...)
  shell.remove(home)
end

-- ---------------------------------------------------------------- measurements

local STEPS = 15

local function changes()
  print "  ranks    resize: new ranks built, state saved, read; pause   stop, checkpoint, start: pause   ratio   a step"
  start(4)
  train(4, STEPS)
  local felt, before = {}, 4
  for _, ranks in ipairs { 8, 3, 6 } do
    local result = run_host({ "resize", "--json", "-n", tostring(ranks) }, { cwd = home,
      env = support.environment(home) })
    assert(result.code == 0, result.err)
    train(ranks, STEPS)
    local answer = json.decode(result.out, "the answer")
    answer.felt = pause(last_of(before))
    felt[#felt + 1] = answer
    before = ranks
  end
  for _, answer in ipairs(felt) do
    stop()
    os.execute("rm -rf " .. home .. "/run " .. home .. "/times")
    start(answer.before)
    train(answer.before, STEPS)
    stop()
    start(answer.ranks, { "--resume", "auto" })
    train(answer.ranks, STEPS)
    local other, step = pause(last_of(answer.before))
    local row = "  %d -> %d          %5.2f s  %7.3f s  %7.3f s   %6.3f s   %20.2f s   %17.1f   %.3f s"
    print(row:format(answer.before, answer.ranks, answer.built, answer.saved, answer.read, answer.felt, other,
      other / answer.felt, step))
  end
  stop()
end

local function death(name, ranks, words, standby)
  local flags = { "--max-restarts", "1", "--restart-delay", "0.001", "--memory-checkpoint", "1", standby }
  for _, text in ipairs(words) do
    flags[#flags + 1] = "--set"
    flags[#flags + 1] = text
  end
  start(ranks, flags)
  wait_until(function() return read "victim" ~= "" end)
  train(ranks, 30)
  if standby then core.sleep(15) end
  local killed, last = core.now(), 0
  os.execute("kill -9 " .. read "victim")
  for _, entry in ipairs(times()) do last = math.max(last, entry.step) end
  local list
  wait_until(function()
    list = times()
    return list[#list].step > last + STEPS and list[#list].at > killed
  end)
  local first, steps = nil, {}
  for i, entry in ipairs(list) do
    if not first and entry.at > killed and entry.step > last then first = entry end
    if i > 5 and entry.at < killed then steps[#steps + 1] = entry.at - list[i - 1].at end
  end
  stop()
  print(("  %-22s %-10s %6.2f s until step %d, which was not made before; a step with a copy %.4f s"):format(name,
    standby or "", first.at - killed, first.step, median(steps)))
end

local function without_copies(name, ranks, words)
  local flags = {}
  for _, text in ipairs(words) do
    flags[#flags + 1] = "--set"
    flags[#flags + 1] = text
  end
  start(ranks, flags)
  train(ranks, 35)
  local list, steps = times(), {}
  for i = 6, #list do steps[#steps + 1] = list[i].at - list[i - 1].at end
  stop()
  print(("  %-22s a step without copies %.4f s"):format(name, median(steps)))
end

if config.changes then with_home(changes) end
for _, mode in ipairs(config.deaths and {
  { "ZeRO 3, 4 ranks", 4, { "zero.level=3" } },
  { "1D 2 x data 2", 4, { "parallel.tensor.size=2", "parallel.tensor.mode=1d" } },
  { "pipeline 2 x data 2", 4, { "parallel.pipeline.size=2", "num_microbatches=2" } },
} or {}) do
  with_home(death, unpack(mode))
  with_home(death, mode[1], mode[2], mode[3], "--standby")
  with_home(without_copies, unpack(mode))
end
