--- A run that saves after every step is killed a hundred times, at whatever it does just then, and goes on each time
-- from the newest complete checkpoint. In the end it is, byte for byte, the run that nobody disturbed, and its
-- metrics.jsonl has each step once. More kills: GANYMEDE_SPEC_KILLS=300 ./ganymede spec spec/resume/kill_spec.lua
-- sanitizers: no, a process that is killed tells them nothing; spec/checkpoint looks at the same code
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

local kills = tonumber(os.getenv "GANYMEDE_SPEC_KILLS") or 100

local recipe = [[
return {
  name = "killed", seed = 3, clip_grad_norm = 1,
  model = { type = "MLP", inputs = 6, hidden = { 16 }, classes = 4, dropout = 0.3 },
  data = { train = { type = "Synthetic", length = 40, shape = { 6 }, classes = 4, split = "train" }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.02 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 12 },
  steps = 1000000,
  hooks = { { type = "LossHook" }, { type = "CheckpointHook", interval = 1, keep_last = 2 } },
}
]]

describe("a run that is killed a hundred times", function()
  local home
  before_each(function()
    home = shell.temporary_folder()
    shell.write(home .. "/recipe.lua", recipe)
  end)
  after_each(function() shell.remove(home) end)

  -- A command line of `ganymede run` into home/<out>.
  local function command(out, rest)
    return ("%s %s --threads 1 --no-eval --resume auto --out %s %s"):format(shell.program "run",
      home .. "/recipe.lua", home .. "/" .. out, rest)
  end

  local function is_listed(folder, path)
    for _, entry in ipairs(checkpoint.list(folder)) do
      if entry.path == path then return true end
    end
    return false
  end

  -- Ranks whose supervisor is killed go on for a moment: what cannot be verified may just have made room for a newer
  -- one. It is renamed before anything of it is removed.
  local function newest(out)
    local folder = home .. "/" .. out .. "/checkpoints"
    local list = checkpoint.list(folder)
    for _, entry in ipairs(list) do
      local ok, message = checkpoint.verify(entry.path)
      assert.is_true(ok or not is_listed(folder, entry.path), message)
    end
    return list[#list] or { step = 0 }
  end

  -- Each step from 1 to the last, once, in order; samples are counted over all of them.
  local function check_metrics(out, last)
    local step = 0
    for line in io.lines(home .. "/" .. out .. "/metrics.jsonl") do
      local event = json.decode(line, out)
      step = step + 1
      assert.same({ step, 8 * step }, { event.step, event.samples })
    end
    assert.equal(last, step)
  end

  it("always finds a whole checkpoint, and loses nothing but steps", function()
    local reached, cut, moved = 0, 0, 0
    local started = core.now()
    assert.equal(0, shell.run(command("undisturbed", "--steps 1")).code)
    local start = core.now() - started -- of the program, with one step
    for round = 1, kills do
      -- from the first instructions of the program to some dozens of steps; evenly spread, in no order
      local delay = start * (0.3 + 1.7 * ((round * 0.61803398875) % 1))
      local result = shell.run(("%s >/dev/null 2>%s/err & child=$!; sleep %.4f; kill -9 $child; wait $child; echo $?")
        :format(command("out", ""), home, delay))
      assert.equal("137\n", result.out, shell.read(home .. "/err"))
      local now = newest("out").step
      assert.is_true(now >= reached, ("step %d was there, now the newest is %d"):format(reached, now))
      if now > reached then moved = moved + 1 end
      if #shell.lines("find " .. home .. " -name '*.tmp'") > 0 then cut = cut + 1 end
      reached = now
    end
    assert.is_true(moved >= kills / 10, ("%d of %d rounds got further"):format(moved, kills))
    assert.is_true(cut >= kills / 10, ("%d of %d rounds hit a save"):format(cut, kills))
    for _, out in ipairs { "out", "undisturbed" } do
      local result = shell.run(command(out, "--steps " .. reached + 2))
      assert.equal(0, result.code, result.err)
      assert.equal(reached + 2, newest(out).step)
      check_metrics(out, reached + 2)
    end
    local file = "/rank-00000.safetensors"
    assert.is_true(shell.read(newest("out").path .. file) == shell.read(newest("undisturbed").path .. file))
  end)

  -- Of a job the supervisor is killed; its ranks end by themselves, and the next job may come before they have.
  it("on ranks, whose supervisor is killed #ranks", function()
    local reached = 0
    for round = 1, math.ceil(kills / 20) do
      local delay = 0.4 + 1.2 * ((round * 0.61803398875) % 1)
      shell.run(("%s >/dev/null 2>%s/err & child=$!; sleep %.4f; kill -9 $child; wait $child")
        :format(command("ranks", "-n 2"), home, delay))
      local now = newest("ranks").step
      assert.is_true(now >= reached, ("step %d was there, now the newest is %d"):format(reached, now))
      reached = now
    end
    local result = shell.run(command("ranks", "-n 2 --steps " .. reached + 2))
    assert.equal(0, result.code, result.err)
    check_metrics("ranks", reached + 2)
  end)
end)
