--- A disk of 1 MB that is full for a while, or to the end: the checkpoint is refused with its file named, nothing of
-- older ones is touched, training goes on; only a run whose last state could not be saved ends with status 1.
local checkpoint = require "ganymede.checkpoint"
local shell = require "spec.support.shell"

-- 20,804 parameters and two moments each: a checkpoint of 250 KB. A hook fills the disk and makes room again.
local recipe = [[
local gm = require "ganymede"
local rank = require("ganymede.core").rank
local Disk = gm.hooks.class("DiskHook", { full = { type = "integer" }, free = { type = "integer" } },
  { priority = 1, needs_output = false })
function Disk:after_train_iter(trainer)
  if rank() ~= 0 or (trainer.step ~= self.opt.full and trainer.step ~= self.opt.free) then return end
  for _ = 1, 50 do -- what was begun is saved, or has failed for long enough
    if os.execute "ls disk/checkpoints | grep -q tmp" ~= 0 then break end
    os.execute "sleep 0.01"
  end
  if trainer.step == self.opt.full then os.execute "head -c 2000000 /dev/zero >disk/junk 2>/dev/null" end
  if trainer.step == self.opt.free then os.remove "disk/junk" end
end
return {
  name = "disk", seed = 3,
  model = { type = "MLP", inputs = 100, hidden = { 100, 100 }, classes = 4 },
  data = { train = { type = "Synthetic", length = 96, shape = { 100 }, classes = 4, split = "train" },
           batch_size = 16 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 }, steps = 12, epochs = 9,
  hooks = { { type = "DiskHook", full = 5, free = 8 },
            { type = "CheckpointHook", interval = 3, keep_last = 1, directory = "disk/checkpoints" } },
}
]]

describe("a full disk", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  -- How a tmpfs can be mounted here: as this user, or in a namespace of its own; nil: not at all.
  local around
  for _, words in ipairs { "unshare -m", "unshare -rm" } do
    local try = words .. " sh -c 'mount -t tmpfs -o size=1m none /tmp && true'"
    if not around and shell.run(try).code == 0 then around = words end
  end

  -- Runs the recipe with home/disk as that disk; what is left on it comes to home/left.
  local function train(ranks, set)
    shell.write(home .. "/recipe.lua", recipe)
    shell.write(home .. "/run.sh", ([[
      mkdir disk && mount -t tmpfs -o size=1m none disk
      %s recipe.lua --threads 1 --no-eval --out out --stats stats.json %s %s
      code=$?
      cp -r disk/checkpoints left && exit $code
    ]]):format(shell.program "run", ranks > 1 and "-n " .. ranks or "", set or ""))
    return shell.run(("cd %s && GANYMEDE_ROOT=%s %s sh run.sh"):format(home, shell.quote(GANYMEDE_ROOT), around))
  end

  -- The one checkpoint that is left is whole and of this step; no trace of others.
  local function examine(step)
    assert.same({ ("step-%08d"):format(step) }, shell.lines("ls -A " .. home .. "/left"))
    local ok, message = checkpoint.verify(checkpoint.list(home .. "/left")[1].path)
    assert.is_true(ok, message)
  end

  local refused = "step%%-0*%d%%.tmp/rank%%-0000%%d%%.%%a+: cannot be written: No space left on device"

  for _, ranks in ipairs { 1, 3 } do
    local tag = ranks > 1 and " #ranks" or ""

    it(("for a while costs %d rank(s) the checkpoints of that while%s"):format(ranks, tag), function()
      if not around then pending "no tmpfs can be mounted here" end
      local result = train(ranks)
      assert.equal(0, result.code, result.err)
      assert.matches("warning: the checkpoint of step 6 could not be saved, training goes on: .*" .. refused:format(6),
        result.err)
      assert.not_matches("checkpoint of step 9", result.err)
      assert.matches("warning: 1 checkpoint of this run could not be saved, the last of them that of step 6",
        result.err)
      local _, warnings = result.err:gsub("warning:", "")
      assert.equal(2, warnings, result.err) -- rank 0 speaks for all
      examine(12)
    end)

    it(("to the end costs %d rank(s) the exit status 1, and the older checkpoint is as it was%s"):format(ranks, tag),
      function()
        if not around then pending "no tmpfs can be mounted here" end
        local result = train(ranks, "--set hooks.1.free=99")
        assert.equal(1, result.code, result.err)
        assert.matches("the final checkpoint %(step 12%) could not be saved: .*" .. refused:format(12), result.err)
        local _, final = result.err:gsub("the final checkpoint", "")
        assert.equal(1, final, result.err)
        assert.matches('"steps":12', shell.read(home .. "/stats.json"):gsub("%s", ""))
        examine(3)
      end)
  end

  it("to the end trains once, also with --max-restarts", function()
    if not around then pending "no tmpfs can be mounted here" end
    local result = train(1, "--set hooks.1.free=99 --max-restarts 2")
    assert.equal(1, result.code, result.err)
    assert.matches("the final checkpoint %(step 12%) could not be saved: ", result.err)
    assert.not_matches("attempt 2", result.err)
    examine(3)
  end)

  -- A script in which GANYMEDE runs the recipe, whose hook makes the disk read-only in place of full.
  local function run_in_folder(script)
    shell.write(home .. "/recipe.lua", (recipe:gsub('os.execute "head %-c.-null"',
      'os.execute "mount -o remount,ro disk"')))
    shell.write(home .. "/run.sh", script:gsub("GANYMEDE", function() return shell.program "run" end))
    return shell.run(("cd %s && GANYMEDE_ROOT=%s %s sh run.sh"):format(home, shell.quote(GANYMEDE_ROOT), around))
  end

  it("that becomes read-only costs the checkpoints that follow and the exit status, not the training", function()
    if not around then pending "no tmpfs can be mounted here" end
    local result = run_in_folder [[
      mkdir disk && mount -t tmpfs -o size=4m none disk
      GANYMEDE recipe.lua --threads 1 --no-eval --out out --stats stats.json --set hooks.1.free=99
      code=$?; ls -A disk/checkpoints >left; exit $code]]
    assert.equal(1, result.code, result.err)
    local refused_here = "Read%-only file system %(write elsewhere%)"
    assert.matches("the checkpoint of step 6 could not be saved, training goes on: [^\n]*" .. refused_here, result.err)
    assert.matches("the final checkpoint %(step 12%) could not be saved: [^\n]*" .. refused_here, result.err)
    assert.matches('"steps":12', shell.read(home .. "/stats.json"):gsub("%s", ""))
    assert.equal("step-00000003\n", shell.read(home .. "/left"))
  end)

  it("that is full or read-only from the first is told before anything is trained", function()
    if not around then pending "no tmpfs can be mounted here" end
    local result = run_in_folder [[
      mkdir disk && mount -t tmpfs -o size=64k none disk && head -c 2000000 /dev/zero >disk/junk 2>/dev/null
      GANYMEDE recipe.lua --threads 1 --out disk/out; echo $?
      mount -o remount,ro disk
      GANYMEDE recipe.lua --threads 1 --out disk/new --set hooks.2.directory=here; echo $?
      GANYMEDE recipe.lua --threads 1 --stats disk/new.json; echo $?]]
    assert.equal("2\n2\n2\n", result.out, result.err)
    assert.matches("disk/out[^\n]*No space left on device %(make room there, or write elsewhere%)", result.err)
    assert.matches("cannot make the folder disk/new: Read%-only file system %(write elsewhere%)", result.err)
    assert.matches("%-%-stats: cannot write disk/new.json: Read%-only file system", result.err)
  end)
end)
