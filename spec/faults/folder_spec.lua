--- Folders that others use too: two runs with one --out, somebody who removes what a save is writing.
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local shell = require "spec.support.shell"

local recipe = [[
return { name = "shared", seed = 3, epochs = 4000,
  model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 10 },
  data = { train = { type = "Synthetic", length = 512, shape = { 16 } }, batch_size = 32 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { HOOK { type = "CheckpointHook", interval = 1, keep_last = 3 } } }
]]

describe("the folder of a run", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  local function write(hook, before)
    shell.write(home .. "/recipe.lua", (before or "") .. recipe:gsub("HOOK", hook or ""))
  end

  local function command(words)
    return ("cd %s && GANYMEDE_ROOT=%s timeout -k 5 60 %s recipe.lua --threads 1 --no-eval --out out %s"):format(home,
      shell.quote(GANYMEDE_ROOT), shell.program "run", words)
  end

  it("belongs to one run at a time: another is refused with status 2, and told who has it", function()
    write()
    local lock = home .. "/out"
    assert.equal(0, os.execute("mkdir " .. lock))
    local held = assert(core.lock_take(lock .. "/.lock", "process 123 on vega since noon", 0))
    for _, ranks in ipairs { "", "-n 2" } do
      local result = shell.run(command("--steps 3 " .. ranks))
      assert.equal(2, result.code, result.err)
      assert.matches("the run folder out is in use by process 123 on vega since noon", result.err)
      assert.same({}, shell.lines("ls " .. lock)) -- nothing was touched
    end
    held:close()
    local result = shell.run(command "--steps 3")
    assert.equal(0, result.code, result.err)
    assert.matches("^process %d+ on .* since %d+", shell.read(lock .. "/.lock"))
    assert.equal(3, #checkpoint.list(lock .. "/checkpoints"))
  end)

  it("is free at once when its run is killed", function()
    write()
    local a_step_is_there = ("ls %s/out/checkpoints 2>&1 | grep -q '^step-[0-9]*$'"):format(home)
    local its_number = ("$(sed 's/^process \\([0-9]*\\).*/\\1/' %s/out/.lock)"):format(home)
    local result = shell.run(("%s >/dev/null 2>&1 & %s; kill -9 %s; %s"):format(command "",
      shell.wait_until(a_step_is_there), its_number, command "--resume auto --steps 1"))
    assert.equal(0, result.code, result.err)
    assert.matches("resumed from", result.out)
  end)

  it("may hold a link in place of a leftover save: what it leads to is not emptied", function()
    local folder = home .. "/checkpoints"
    os.execute(("mkdir -p %s %s/victim && touch %s/victim/dear && ln -s ../victim %s/step-00000007.tmp"):format(folder,
      home, home, folder))
    pcall(checkpoint.save, folder, { tensors = {}, meta = { step = 1 } })
    assert.same({ "dear" }, shell.lines("ls " .. home .. "/victim"))
  end)

  it("is for one save at a time, whichever process makes it", function()
    local folder = home .. "/checkpoints"
    os.execute("mkdir " .. folder)
    local done = home .. "/done"
    os.execute(("flock %s sh -c '%s' &"):format(folder, shell.wait_until("test -e " .. done)))
    assert.equal(0, os.execute(shell.wait_until(("! flock -n %s true"):format(folder))))
    local ok, err = pcall(checkpoint.save, folder, { tensors = {}, meta = { step = 1 } })
    shell.write(done, "")
    assert.is_false(ok)
    assert.matches("another process is writing a checkpoint there", tostring(err))
    os.execute(("flock %s true"):format(folder))
    checkpoint.save(folder, { tensors = {}, meta = { step = 1 } })
    checkpoint.save(folder, { tensors = {}, meta = { step = 2 } }) -- the lock of the first is gone
    local save = core.checkpoint_new { folder = folder, step = 3, names = {}, tensors = {}, meta = "{}" }
    assert(core.checkpoint_prepare(save))
    assert.are_not.equal(0, os.execute(("flock -sn %s true"):format(folder))) -- not even together with others
    core.checkpoint_free(save)
  end)

  -- Rank 0's thread may look for the parts before they are gone, meanwhile, or afterwards: what it misses differs, and
  -- each time the save is lost, and nothing else.
  it("may lose what ranks have written: that save fails, the run goes on #ranks", function()
    write("{ type = 'Thief' },", [[
      local core = require "ganymede.core"
      local part, step = core.checkpoint_part, 0
      core.checkpoint_part = function(...) -- asked when this rank has written
        if core.rank() == 2 and step < 40 then os.execute "rm -rf out/checkpoints/*.tmp" end
        return part(...)
      end
      require("ganymede.hooks.base").class("Thief", {}, { after_train_iter = function(_, trainer)
        step = trainer.step
      end })
    ]])
    local result = shell.run(command "--steps 60 -n 3 --comm-timeout 20")
    assert.equal(0, result.code, result.err)
    assert.matches("could not be saved, training goes on: ", result.err)
    for _, entry in ipairs(checkpoint.list(home .. "/out/checkpoints")) do
      assert.is_true(checkpoint.verify(entry.path))
    end
    assert.equal(60, checkpoint.list(home .. "/out/checkpoints")[3].step)
  end)
end)
