--- Jobs in four modes whose ranks, keepers, supervisor or mpirun are killed at random moments, and which go on each
-- time from the newest checkpoint. Nothing is lost but steps, nothing is left behind, and the losses are those of a job
-- that nobody disturbed, to the bit, and those of one rank. More kills:
-- GANYMEDE_SPEC_KILLS=1000 ./ganymede spec spec/faults/random_kills_spec.lua
--
-- f64 losses of one rank and of several agree to 1e-9 over the first 500 steps: sums of another order, 1e-16 an
-- addition, which each step makes larger. After thousands of steps they are 1e-9 and more.
-- sanitizers: no, numbers of training on several ranks are compared, and a process that is killed tells them nothing
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local kills = tonumber(os.getenv "GANYMEDE_SPEC_KILLS") or 4

local modes = {
  { "zero3", 2, "parallel={data=2}", "zero={stage=3}" },
  { "1d-data", 4, 'parallel={data=2,tensor={size=2,mode="1d"}}' },
  { "pipeline-data", 4, "parallel={data=2,pipeline=2}", "num_microbatches=2" },
  { "2d", 4, 'parallel={tensor={size=4,mode="2d"}}' },
}
local victims = { "rank", "keeper", "supervisor", "mpirun" }

local recipe = [[
return {
  name = "killed", seed = 3, dtype = "f64", clip_grad_norm = 1, steps = 1000000,
  model = { type = "MLP", inputs = 8, hidden = { 16, 12 }, classes = 4, dropout = 0.3 },
  data = { train = { type = "Synthetic", length = 40, shape = { 8 }, classes = 4, split = "train" }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.02 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 12 },
  hooks = { { type = "LossHook" }, { type = "CheckpointHook", interval = 1, keep_last = 2 } },
}
]]

-- Numbers in (0, 1), evenly spread and in no order (multiples of the golden ratio).
local function spread(i) return (i * 0.61803398875) % 1 end

describe("a job that is killed again and again", function()
  local home
  before_each(function() home = support.home(recipe) end)
  after_each(function() shell.remove(home) end)

  local function words(mode, ...)
    local list = { "--no-eval", "--resume", "auto", "--out", mode[1], ... }
    for i = 3, #mode do
      list[#list + 1] = "--set"
      list[#list + 1] = mode[i]
    end
    return list
  end

  -- Processes of the job -> { kind = list of pids }: its supervisor, whose child is mpirun, whose children are the
  -- keepers, whose children are the ranks. Those that are not there yet are missing.
  local function processes(supervisor)
    local function children(pids)
      local list = {}
      for _, pid in ipairs(pids) do
        for child in shell.run(("cat /proc/%s/task/*/children 2>/dev/null"):format(pid)).out:gmatch "%d+" do
          list[#list + 1] = child
        end
      end
      return list
    end
    local found = { supervisor = { supervisor } }
    found.mpirun = {} -- the supervisor's other child is a guard, without which the job goes on
    for _, pid in ipairs(children(found.supervisor)) do
      if shell.run(("cat /proc/%s/comm 2>/dev/null"):format(pid)).out == "mpirun\n" then found.mpirun = { pid } end
    end
    found.keeper = children(found.mpirun)
    found.rank = children(found.keeper)
    return found
  end

  -- Starts the job, waits, kills one process of a kind (the supervisor, if there is none yet), waits until the job has
  -- ended, and returns the kind that was killed.
  local function strike(mode, kind, delay, round)
    local quoted = {}
    for i, word in ipairs(words(mode)) do quoted[i] = shell.quote(word) end
    local line = ("cd %s && { env %s setsid %s recipe.lua -n %d --threads 1 %s >out 2>err & echo $!; }"):format(
      shell.quote(home), support.environment_words(home), shell.program "run", mode[2], table.concat(quoted, " "))
    local supervisor = shell.run(line).out:match "%d+"
    core.sleep(delay)
    local found = processes(supervisor)
    if #found[kind] == 0 then kind = "supervisor" end
    local victim = found[kind][round % #found[kind] + 1]
    os.execute(("kill -9 %s 2>/dev/null"):format(victim))
    local left = support.left(home)
    if #left > 0 then
      for _, process in ipairs(left) do os.execute("kill -9 " .. process:match "%d+" .. " 2>/dev/null") end
      error(("20 s after a %s was killed these are left:\n%s\nit wrote:\n%s"):format(kind, table.concat(left, "\n"),
        shell.read(home .. "/err")), 0)
    end
    return kind
  end

  local function newest(out)
    local list = checkpoint.list(home .. "/" .. out .. "/checkpoints")
    for _, entry in ipairs(list) do
      local ok, message = checkpoint.verify(entry.path)
      assert.is_true(ok, message)
    end
    return (list[#list] or { step = 0 }).step
  end

  -- Runs to the end of so many steps, of which there may be thousands after many kills -> the losses by step.
  local function finish(mode, steps)
    local result = support.run_in(home, words(mode, "--steps", tostring(steps)), mode[2], 600)
    assert.equal(0, result.code, result.err)
    return support.losses(home, mode[1])
  end

  it("loses nothing, leaves nothing, and gives the losses of one rank #ranks", function()
    local reached, struck, last = {}, {}, 0
    local began = core.now()
    finish({ "first", 4, unpack(modes[2], 3) }, 1)
    local start = core.now() - began -- of a job, with one step
    for round = 1, kills do
      local mode = modes[(round - 1) % #modes + 1]
      local kind = victims[(round + math.floor((round - 1) / #modes)) % #victims + 1]
      kind = strike(mode, kind, start * (0.05 + 2 * spread(round)), round)
      struck[kind] = (struck[kind] or 0) + 1
      local now, before = newest(mode[1]), reached[mode] or 0
      assert.is_true(now >= before, ("%s: step %d was there, now the newest is %d"):format(mode[1], before, now))
      reached[mode] = now
      support.check_folder(home)
    end
    for _, mode in ipairs(modes) do last = math.max(last, (reached[mode] or 0) + 2) end
    local expected = finish({ "one", 1 }, math.min(last, 500))
    for _, mode in ipairs(modes) do
      local steps = (reached[mode] or 0) + 2
      local got, same = finish(mode, steps), finish({ mode[1] .. "-alone", unpack(mode, 2) }, steps)
      assert.equal(steps, #got)
      for i = 1, steps do assert.equal(same[i], got[i]) end
      for i = 1, math.min(steps, 500) do assert.near(expected[i], got[i], 1e-9) end
    end
    if kills >= 16 then
      for _, kind in ipairs(victims) do assert.is_true((struck[kind] or 0) > 0, "no " .. kind .. " was killed") end
    end
  end)
end)
