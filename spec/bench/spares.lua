-- spares.lua - how long a job over several machines rests after the death of a rank.
--
--     ganymede run spec/bench/spares.lua                     deaths in three modes, without and with --standby
--     ganymede run spec/bench/spares.lua --set width=256     a larger model
--
-- 4 ranks over TCP on this machine, two of which say that they are on another one (SLURMD_NODENAME), so that copies of
-- the state lie at neighbours. The time is from SIGKILL of a rank to the end of the next step that was not made before,
-- with --memory-checkpoint 1. Without --standby all ranks are started again at once when they have ended, as a launcher
-- without any delay would. A GPT of 4 blocks in f32; a step has 24 sequences of 64 tokens.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local core = require "ganymede.core"
local plain_ranks = require "spec.support.plain_ranks"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local config = gm.launch { width = 64 }

local recipe = ([[
local times = rank == 0 and assert(io.open("times", "a"))
local function exists(name)
  local file = io.open(name)
  if file then file:close() end
  return file ~= nil
end
require("ganymede.hooks.base").class("Clock", {}, { priority = 99, needs_output = false,
  after_train_iter = function(_, trainer)
    if rank == 1 and exists "die" then
      os.remove "die"
      local file = assert(io.open("died", "w"))
      file:write(("%%.4f"):format(core.now()))
      file:close()
      kill(9)
    end
    if rank > 0 then return end
    times:write(("%%.4f %%d %%d\n"):format(core.now(), trainer.step, core.process().pid))
    times:flush()
    if os.remove "over" then kill "TERM" end -- once: a second one would end it without removing what is in memory
  end })
local tokens = { type = "Synthetic", kind = "tokens", length = 2400, sequence_length = 64, vocab_size = 256 }
return {
  name = "spares", seed = 1, epochs = 1000,
  model = { type = "GPT", vocabulary = 256, sequence_length = 64, depth = 4, width = %d, heads = 4, dropout = 0.1 },
  data = { train = tokens, batch_size = 24 }, loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3 }, hooks = { { type = "Clock" } },
}
]]):format(config.width)

local home

local function start(sets, ...)
  os.execute("rm -f " .. home .. "/status*")
  local words = { "run", "recipe.lua", "--threads", "1", "--out", "run", "--no-eval", "-q", "--memory-checkpoint", "1",
    ... }
  for _, text in ipairs(sets) do
    words[#words + 1] = "--set"
    words[#words + 1] = text
  end
  return plain_ranks.start(home, words, { ranks = 4, timeout = 300, env = function(rank)
    return { SLURMD_NODENAME = "bench" .. math.floor(rank / 2), LOCAL_RANK = rank % 2, LOCAL_WORLD_SIZE = 2 }
  end })
end

-- Steps that have ended: list of { at, step, process (of rank 0) }.
local function times()
  local list, file = {}, io.open(home .. "/times")
  for line in file and file:lines() or function() end do
    local at, step, process = line:match "^(%S+) (%d+) (%d+)$"
    if step then list[#list + 1] = { at = tonumber(at), step = tonumber(step), process = process } end
  end
  if file then file:close() end
  return list
end

local function wait_until(fn)
  local ends = core.now() + 200
  while not fn() do
    if core.now() > ends then error("it did not come: " .. shell.run("cat " .. home .. "/err*").out) end
    core.sleep(0.02)
  end
end

local function has_steps(count) return function() return #times() >= count end end

-- The first step that was not made before, after the death; and the median of the steps before it, in seconds.
local function felt()
  local died, last, first, steps, list = tonumber(shell.read(home .. "/died")), 0, nil, {}, times()
  for i, entry in ipairs(list) do
    if entry.process == list[1].process then
      last = math.max(last, entry.step)
      if i > 5 then steps[#steps + 1] = entry.at - list[i - 1].at end
    elseif not first and entry.step > last then
      first = entry
    end
  end
  table.sort(steps)
  return first.at - died, steps[math.ceil(#steps / 2)]
end

local function death(name, sets, standby)
  home = support.home(recipe)
  local job = start(sets, standby)
  wait_until(has_steps(15))
  if standby then core.sleep(20) end -- those that stand by are being built
  shell.write(home .. "/die", "")
  if not standby then
    job:finish()
    job = start(sets, "--resume", "auto")
  end
  wait_until(function() return io.open(home .. "/died") ~= nil end)
  wait_until(has_steps(#times() + 10))
  shell.write(home .. "/over", "")
  job:finish()
  print(("  %-22s %-10s %6.2f s; a step %.3f s"):format(name, standby or "", felt()))
  shell.remove(home)
end

for _, mode in ipairs {
  { "ZeRO 3", { "zero.level=3" } },
  { "1D 2 x data 2", { "parallel.tensor.size=2", "parallel.tensor.mode=1d" } },
  { "pipeline 2 x data 2", { "parallel.pipeline.size=2", "num_microbatches=2" } },
} do
  death(mode[1], mode[2])
  death(mode[1], mode[2], "--standby")
end
