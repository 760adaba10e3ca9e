--- Checkpoints outlive the number of ranks that wrote them: what 4 wrote, 1, 2, 3 and 8 continue as the run that was
-- never stopped; what is damaged is found whoever reads it; what dies while saving leaves what was whole.
--
-- In f64 the losses agree to 1e-9: only the order of sums differs, 1e-16 an addition, over 40 steps. Batches of 22 (and
-- one of 2 an epoch) divide by neither 3, 4 nor 8; step 14 lies inside an epoch.
-- sanitizers: no, numbers of several ranks are compared; spec/resume/in_process_spec.lua looks at that code
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

local recipe = [[
local gm = require "ganymede"
local ffi = require "ffi"
ffi.cdef "int kill(int pid, int signal); int getpid(void);"
local Signal = gm.hooks.class("SignalHook", { step = { type = "integer" }, number = { type = "integer", default = 9 },
  rank = { type = "integer", default = 0 } }, { priority = 90, needs_output = false })
function Signal:after_train_iter(trainer)
  local here = require("ganymede.core").rank() == self.opt.rank
  if here and trainer.step == self.opt.step then ffi.C.kill(ffi.C.getpid(), self.opt.number) end
end
return {
  name = "ranks", seed = 3, clip_grad_norm = 1, dtype = "f64",
  model = { type = "MLP", inputs = 6, hidden = { 16, 12 }, classes = 4, dropout = 0.3 },
  data = { train = { type = "Synthetic", length = 90, shape = { 6 }, classes = 4, split = "train" }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.02 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 12 },
  epochs = 8,
  hooks = { { type = "LossHook" }, { type = "AccuracyHook" }, { type = "SignalHook", step = 0 },
            { type = "CheckpointHook", interval = 7, keep_last = 9 } },
}
]]

describe("checkpoints of several ranks #ranks", function()
  local home, whole

  -- A run of the recipe -> its --stats (nil where there are none), exit status, standard error.
  local function run(ranks, rest)
    os.remove(home .. "/stats.json")
    local command = "cd %s && GANYMEDE_ROOT=%s %s recipe.lua --threads 1 --no-eval --stats stats.json %s %s"
    local result = shell.run(command:format(home, shell.quote(GANYMEDE_ROOT), shell.program "run",
      ranks > 1 and "-n " .. ranks or "", rest))
    local file = io.open(home .. "/stats.json")
    if not file then return nil, result.code, result.err end
    file:close()
    return json.decode(shell.read(home .. "/stats.json"), "stats.json"), result.code, result.err
  end

  local function done(ranks, rest)
    local stats, code, err = run(ranks, rest)
    assert.equal(0, code, err)
    return stats, err
  end

  setup(function()
    home = shell.temporary_folder()
    shell.write(home .. "/recipe.lua", recipe)
    whole = done(1, "")
    done(4, "--steps 14 --out four")
  end)
  teardown(function() shell.remove(home) end)

  -- A copy of the run of 4 ranks that ended at step 14 with checkpoints of steps 7 and 14.
  local copies = 0
  local function copy()
    copies = copies + 1
    local name = "copy" .. copies
    shell.lines(("cp -r %s/four %s/%s"):format(home, home, name))
    return name, home .. "/" .. name .. "/checkpoints/"
  end

  local function continues(stats, after)
    assert.equal(40, #whole.loss)
    assert.equal(40 - after, #stats.loss)
    for i = after + 1, 40 do
      assert.is_true(math.abs(stats.loss[i - after] - whole.loss[i]) <= 1e-9 * whole.loss[i], "step " .. i)
    end
    assert.equal(whole.metrics.train.accuracy, stats.metrics.train.accuracy) -- of an epoch that began before the save
  end

  it("are written by all of them, a file each, none with all of it", function()
    local index = json.decode(shell.read(home .. "/four/checkpoints/step-00000014/index.json"), "index.json")
    assert.equal(4, index.world)
    local bytes, most, all = {}, 0, 0
    for _, t in pairs(index.tensors) do
      for _, box in ipairs(t.boxes) do bytes[box.file] = (bytes[box.file] or 0) + box.bytes end
    end
    for rank = 0, 3 do
      local mine = bytes[("rank-%05d.safetensors"):format(rank)]
      most, all = math.max(most, mine), all + mine
    end
    -- 3 tensors (parameters and two moments) of 192 elements, three each of 96, 64, 32 and less
    assert.equal(3 * 8 * (6 * 16 + 16 + 16 * 12 + 12 + 12 * 4 + 4), all)
    assert.is_true(most <= 0.3 * all, most .. " of " .. all .. " bytes in one file")
  end)

  for _, ranks in ipairs { 1, 2, 3, 8 } do
    it(("continue on %d"):format(ranks), function()
      local stats = done(ranks, "--resume auto --out " .. copy())
      continues(stats, 14)
    end)
  end

  it("are verified by all readers together: a flipped byte in any file ends the run with status 5", function()
    for rank = 0, 3, 3 do
      local _, path = copy()
      local file = ("%sstep-00000014/rank-%05d.safetensors"):format(path, rank)
      local bytes = shell.read(file)
      shell.write(file, bytes:sub(1, -6) .. string.char((bytes:byte(-5) + 1) % 256) .. bytes:sub(-4))
      local _, code, err = run(3, "--resume " .. path .. "step-00000014")
      assert.equal(5, code, err)
      local _, times = err:gsub(("rank%%-%05d%%.safetensors: tensor '[%%w/._]+' is damaged"):format(rank), "")
      assert.equal(1, times, err)
    end
  end)

  it("that are damaged are passed over, which is said once", function()
    local name, path = copy()
    os.remove(path .. "step-00000014/rank-00002.safetensors")
    local stats, err = done(2, "--resume auto --out " .. name)
    local said = "step 14 is damaged, trying the one before: [^\n]*rank%-00002%.safetensors: is missing"
    local _, times = err:gsub(said, "")
    assert.equal(1, times, err)
    continues(stats, 7)
  end)

  it("are whole when a rank is killed, at whatever step and while saving too", function()
    for round = 1, 4 do
      local ranks, rank, step = 2 + round % 2, round % 2, 15 + round
      local name = copy()
      local _, code, err = run(ranks, ("--resume auto --out %s --set hooks.4.interval=1 --set hooks.3.step=%d "
        .. "--set hooks.3.rank=%d"):format(name, step, rank))
      assert.equal(6, code, err)
      local stats = done(3, "--resume auto --out " .. name)
      assert.is_true(#stats.loss >= 40 - step and #stats.loss <= 40 - 14, #stats.loss .. " steps after " .. step)
      continues(stats, 40 - #stats.loss)
    end
  end)

  it("are complete before a run that is asked to stop ends with status 75", function()
    local name = copy()
    local first, code, err = run(3, "--resume auto --out " .. name .. " --set hooks.3.step=18 --set hooks.3.number=15 "
      .. "--set hooks.3.rank=1")
    assert.equal(75, code, err)
    assert.matches("saved .*step%-000000%d%d", err)
    local stats = done(2, "--resume auto --out " .. name)
    assert.equal(40, 14 + #first.loss + #stats.loss)
    continues(stats, 14 + #first.loss)
  end)
end)
