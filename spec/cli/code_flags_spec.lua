--- Flags of `ganymede run` and recipes that train in code: a trainer takes them up as a recipe's table does, a loop of
-- the program's own has keys of its own for them, and what nobody takes up is refused.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local settings = [[
local gm = require "ganymede"
local c = gm.launch { seed = 3, loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 10 }, steps = 12,
  data = { batch_size = 32, train = { type = "Synthetic", length = 256 },
    test = { type = "Synthetic", length = 64, split = "test" } }, %s }
local engine, train, test = gm.initialize {}
]]

local with_trainer = settings:format "checkpoint = { interval = 4 }" .. [[
local trainer = gm.trainer(engine)
trainer:fit { train_dataloader = train, test_dataloader = test, epochs = c.epochs,
  hooks = { { type = "CheckpointHook", interval = 4 }, { after_train_iter = function(_, t)
    if c.step_to_stop == t.step then
      local ffi = require "ffi"
      ffi.cdef "int kill(int pid, int signal); int getpid(void);"
      ffi.C.kill(ffi.C.getpid(), 15)
    end
  end } } }
print("weights", trainer.step, engine.parameters[1]:sum():item(), trainer.metrics.test.loss)
]]
with_trainer = with_trainer:gsub("checkpoint = { interval = 4 }", "step_to_stop = 0")

local own_loop = settings .. [[
train:set_epoch(0)
gm.scope(function()
  engine:zero_grad()
  local x, y = unpack(train:next_step()[1])
  engine:backward(engine:criterion(engine(x), y))
  print("backward")
  engine:step()
end)
print(c.out, c.resume, c.no_eval)
]]

local home
local function run(...) return support.run(home, { "run", "recipe.lua", "--threads", "1", ... }) end
local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

local function weights(...)
  local result = run(...)
  assert.equal(0, result.code, result.err)
  return result.out:match "weights.-\n", result
end

local without_checkpoints = with_trainer:gsub('{ type = "CheckpointHook", interval = 4 }, ', "", 1)

describe("a trainer in code", function()
  it("without flags writes nothing, and --steps is enough for itself", function()
    home = support.home(without_checkpoints)
    has(weights(), "weights\t12\t")
    has(weights("--steps", "3"), "weights\t3\t")
    assert.equal("recipe.lua", support.names(home))
    shell.remove(home)
  end)

  it("that says its own length is ended by --steps all the same", function()
    home = support.home((without_checkpoints:gsub("epochs = c.epochs", "epochs = 2", 1)))
    has(weights(), "weights\t16\t")
    has(weights("--steps", "3"), "weights\t3\t")
    shell.remove(home)
  end)
end)

describe("flags for a trainer in code", function()
  before_each(function() home = support.home(with_trainer) end)
  after_each(function() shell.remove(home) end)

  it("say that there is nothing to resume from: to `auto` that is a beginning, to a folder's name a mistake", function()
    local _, begun = weights("--out", "out", "--resume", "auto", "--steps", "1")
    has(begun.out, "there is no checkpoint to resume from: this run begins at step 1")
    local refused = run("--resume", "nowhere")
    assert.equal(2, refused.code)
    has(refused.err, "no checkpoint in nowhere to resume from; a run saves where checkpoint.interval is set")
  end)

  it("give it a folder, resume it to the same bits", function()
    local straight = weights("--out", "straight")
    weights("--out", "out", "--steps", "7")
    assert.equal("checkpoints config.lua env.json events.jsonl metrics.jsonl stats.json", support.names(home .. "/out"))
    local resumed, result = weights("--out", "out", "--resume", "auto")
    has(result.out, "resumed from out/checkpoints/step-00000007 at step 7")
    assert.equal(straight, resumed)
    local steps = 0
    for line in shell.read(home .. "/out/metrics.jsonl"):gmatch '[^\n]*"loss"[^\n]*' do
      if line:find('"step"', 1, true) and not line:find('"test"', 1, true) then steps = steps + 1 end
    end
    assert.equal(12, steps)
    has(select(2, weights("--out", "out", "--resume", "auto")).out, "no step is left: the run ends at step 12")
    has(weights("--resume", "out", "--out", "other", "--steps", "14"), "14")
  end)

  it("let it stop at a step on SIGTERM, save, and go on", function()
    local straight = weights("--out", "straight")
    local result = run("--out", "out", "--set", "step_to_stop=6")
    assert.equal(75, result.code, result.err)
    has(result.err, "saved out/checkpoints/step-00000006")
    assert.equal(straight, (weights("--out", "out", "--resume", "auto")))
  end)

  it("leave evaluation out, end it at a step, profile and trace it", function()
    has(weights("--out", "a", "--no-eval"), "nil")
    has(weights("--out", "b", "--steps", "3"), "weights\t3\t")
    weights("--out", "c", "--profile", "p.txt", "--trace", "t.json")
    assert.equal("a b c p.txt recipe.lua t.json", support.names(home))
  end)

  it("need a folder for auto, and a checkpoint that is there", function()
    local result = run("--resume", "auto")
    assert.equal(2, result.code)
    has(result.err, "--resume auto: a recipe in code has the folder that --out DIR names")
    result = run("--resume", "nowhere")
    assert.equal(2, result.code)
    has(result.err, "there is no checkpoint in nowhere")
  end)

  it("do the same on two ranks", function()
    local straight = weights("--out", "straight", "-n", "2")
    weights("--out", "out", "--steps", "7", "-n", "2")
    assert.equal(straight, (weights("--out", "out", "--resume", "auto", "-n", "2")))
  end)
end)

describe("a loop in code", function()
  after_each(function() shell.remove(home) end)

  it("refuses flags that it has no key for, at its first step", function()
    home = support.home(own_loop:format "")
    for _, flag in ipairs { "resume", "out", "step-file" } do
      local result = run("--" .. flag, "x")
      assert.equal(2, result.code, flag)
      has(result.err, "--" .. flag .. " works with recipes that return a table and with trainers")
      assert.is_nil(result.out:find("nil", 1, true)) -- it did not go on
    end
    assert.equal("recipe.lua", support.names(home))
  end)

  it("is traced and profiled as a trainer is", function()
    home = support.home((own_loop:format "":gsub("gm%.scope%(function%(%)", "for _ = 1, 5 do gm.scope(function()", 1)
      :gsub("end%)\nprint%(c[^\n]*", "end) end", 1)))
    local result = run("--trace", "t.json", "--profile", "p.txt")
    assert.equal(0, result.code, result.err)
    has(shell.read(home .. "/t.json"), '"cat":"op"')
    has(shell.read(home .. "/p.txt"), ", 2 steps of ")
    has(shell.read(home .. "/p.txt"), "module, with its parts")
  end)

  it("gets them in keys of its own", function()
    home = support.home(own_loop:format "out = 'mine', resume = false, no_eval = false")
    has(run().out, "mine\tfalse\tfalse")
    has(run("--out", "x", "--no-eval").out, "x\tfalse\ttrue")
    has(run("--out", "x", "--resume", "auto").out, "x\tfalse\tfalse") -- there is none yet
  end)

  it("that takes no step refuses them at its end", function()
    home = support.home "require('ganymede').launch {}"
    local result = run("--out", "x")
    assert.equal(2, result.code)
    has(result.err, "--out works with recipes that return a table and with trainers")
    assert.equal("recipe.lua", support.names(home))
  end)
end)

-- gm.fit trains a table of settings, so it takes the flags as `ganymede run` does for a recipe that returns this table.
describe("gm.fit in code", function()
  local program = [[
local gm = require "ganymede"
%s
local trainer = gm.fit { seed = 3, loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 10 }, steps = 12,
  data = { batch_size = 32, train = { type = "Synthetic", length = 256 },
    test = { type = "Synthetic", length = 64, split = "test" } }, checkpoint = %s }
print("weights", trainer.step, trainer.engine.parameters[1]:sum():item(), trainer.metrics.test.loss)
]]
  after_each(function() shell.remove(home) end)

  for what, before in pairs { ["alone"] = "", ["after gm.launch"] = "gm.launch {}" } do
    it("takes up the flags: " .. what, function()
      home = support.home(program:format(before, "nil"))
      local whole = weights()
      has(whole, "weights\t12\t")
      has(weights "--no-eval", "nil")
      assert.is_nil(whole:find("nil", 1, true))
      shell.write(home .. "/recipe.lua", program:format(before, "{ interval = 4 }"))
      has(weights("--steps", "4", "--out", "one"), "weights\t4\t")
      assert.equal(whole, (weights("--out", "one", "--resume", "auto")))
      assert.equal(0, run("--steps", "4", "--out", "two", "--trace", "trace.json", "--profile", "profile.json").code)
      for _, file in ipairs { "trace.json", "profile.json", "one/metrics.jsonl" } do
        assert.is_true(#shell.read(home .. "/" .. file) > 100, file)
      end
    end)
  end

  it("refuses what would change its settings, before it trains", function()
    home = support.home(program:format("", "nil"))
    for _, flag in ipairs { "set", "seed" } do
      local result = run("--" .. flag, flag == "set" and "epochs=3" or "7")
      assert.equal(2, result.code)
      has(result.err, "--" .. flag .. " changes what a recipe returns, or what it gives gm.launch")
      assert.equal("", result.out)
    end
  end)

  it("says so where a file returns what is neither settings nor an object", function()
    for value, kind in pairs { ["5"] = "number", ["'x'"] = "string", ["function() end"] = "function" } do
      home = support.home("return " .. value)
      local result = run()
      assert.equal(0, result.code, result.err)
      has(result.err, "warning: recipe.lua returns a " .. kind .. ", which has no effect; to train, a recipe returns a "
        .. "table of settings")
      shell.remove(home)
    end
    home = support.home "local gm = require 'ganymede' return gm.nn.Linear(1, 1)"
    assert.is_nil(run().err:find("warning", 1, true))
  end)
end)
