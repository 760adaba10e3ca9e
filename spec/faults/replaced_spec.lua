--- The program of a job that runs is replaced by a new build, or removed: what an attempt of --max-restarts then
-- starts.
-- sanitizers: no, a program that is copied tells them nothing
local core = require "ganymede.core"
local device = require "spec.support.device"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- 10 steps of 2 ranks; in the first attempt a command is run before step 6, and rank 1 dies.
local function recipe(command)
  return ([[
require("ganymede.hooks.base").class("Fault", {}, { before_train_iter = function(_, trainer)
  if rank == 0 or trainer.step < 6 or io.open "before" then return end
  assert(io.open("before", "w")):close()
  assert(os.execute(%q) == 0)
  kill(9)
end })
return {
  name = "points", seed = 3, steps = 10, dtype = "f64",
  model = { type = "MLP", inputs = 6, hidden = { 8 }, classes = 4 },
  data = { train = { type = "Synthetic", length = 40, shape = { 6 }, classes = 4 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "Fault" } }, checkpoint = { interval = 3 },
}]]):format(command)
end

describe("a program that changes while its job runs", function()
  local home
  after_each(function() shell.remove(home) end)

  -- Runs a copy of this program with that command -> { code, out, err }, and the seconds that it took.
  local function run(command)
    home = support.home(recipe(command))
    shell.lines(("mkdir %s/bin && cp %s* %s/bin"):format(home, shell.executable(), home)) -- with its modules
    local line = ("cd %s && env %s timeout -k 5 %d bin/ganymede run recipe.lua -n 2 --threads 1 --device %s --out run "
      .. "--max-restarts 2 --restart-delay 0.05"):format(shell.quote(home), support.environment_words(home),
      shell.PATIENCE, device.name())
    local begun = core.now()
    local result = shell.run(line)
    assert.same({}, support.left(home))
    support.check_folder(home)
    return result, core.now() - begun
  end

  it("starts ranks again by the one that lies there now", function()
    local result = run "cp bin/ganymede bin/new && mv bin/new bin/ganymede"
    assert.equal(0, result.code, result.err)
    assert.matches("attempt 2 begins", result.err)
    assert.is_nil(result.err:find("attempt 3", 1, true), result.err)
    assert.equal(10, #support.losses(home))
  end)

  it("ends with what is missing where it was removed", function()
    local result, seconds = run "mv bin/ganymede bin/elsewhere; cp bin/elsewhere 'bin/x'; rm bin/elsewhere"
    assert.equal(1, result.code, result.err)
    assert.matches("ganymede: /.*/bin/[^\n]* is gone: it was moved or removed while it ran; put it back", result.err)
    assert.is_true(seconds < shell.PATIENCE)
  end)
end)
