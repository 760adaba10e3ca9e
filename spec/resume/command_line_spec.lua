--- `ganymede run`, killed between steps and resumed, gives the numbers of a run that was never stopped.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local support = require "spec.resume.support"

-- A recipe that sends itself a signal once, after some step: the config of support.lua, and a hook.
local recipe_text = [[
local gm = require "ganymede"
local ffi = require "ffi"
ffi.cdef "int kill(int pid, int signal); int getpid(void);"
local Signal = gm.hooks.class("SignalHook", { step = { type = "integer" }, number = { type = "integer" } },
  { priority = 90, needs_output = false })
function Signal:after_train_iter(trainer)
  if trainer.step == self.opt.step then ffi.C.kill(ffi.C.getpid(), self.opt.number) end
end
local config = require("spec.resume.support").config()
config.hooks[#config.hooks + 1] = { type = "SignalHook", step = 0, number = 9 }
return config
]]

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function file_exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

-- runs the recipe in `home` -> exit status as a shell sees it, document of --stats or nil, output
local function ganymede(home, arguments)
  local stats, log = home .. "/stats.json", home .. "/log"
  os.remove(stats)
  local words = { "cd", quote(GANYMEDE_ROOT), "&&", "GANYMEDE_ROOT=" .. quote(GANYMEDE_ROOT), "LUA_INIT=",
    shell.program "run", quote(home .. "/recipe.lua"),
    "--threads 1 --stats", quote(stats), arguments, ">", quote(log), "2>&1; echo $? >", quote(home .. "/status") }
  os.execute(table.concat(words, " "))
  local document = file_exists(stats) and json.decode(support.read(stats), "stats") or nil
  return tonumber(support.read(home .. "/status")), document, support.read(log)
end

local function new_home()
  local home = support.folder()
  support.write(home .. "/recipe.lua", ("package.path = package.path .. %q\n"):format(";" .. GANYMEDE_ROOT .. "/?.lua")
    .. recipe_text)
  return home
end

describe("ganymede run --resume", function()
  after_each(support.clean)

  it("after SIGKILL between steps continues with the same bits", function()
    local whole = new_home()
    local status, expected, log = ganymede(whole, "--steps 20 --out " .. quote(whole .. "/out"))
    assert.equal(0, status, log)
    local home = new_home()
    local out = "--out " .. quote(home .. "/out")
    -- in the foreground: in the background, the checkpoint of step 10 may be unfinished at step 13 (crash_spec)
    status = ganymede(home, "--steps 20 --set hooks.5.step=13 --set hooks.4.background=false " .. out)
    assert.equal(128 + 9, status)
    local document
    status, document, log = ganymede(home, "--steps 20 --resume auto " .. out)
    assert.equal(0, status, log)
    assert.matches("resumed from .*step 10", log)
    assert.equal(10, #document.loss)
    for i = 1, 10 do assert.equal(expected.loss[10 + i], document.loss[i]) end
    assert.same(expected.metrics, document.metrics)
    assert.equal(20, document.steps)
  end)

  it("after SIGTERM, which saves and ends with 75, continues with the same bits", function()
    local whole, home = new_home(), new_home()
    local _, expected = ganymede(whole, "--steps 16 --out " .. quote(whole .. "/out"))
    local out = "--out " .. quote(home .. "/out")
    local status, first, log = ganymede(home, "--steps 16 --set hooks.5.step=7 --set hooks.5.number=15 " .. out)
    assert.equal(75, status, log)
    assert.equal("preempted", first.status)
    assert.equal(7, #first.loss)
    local again, document, second_log = ganymede(home, "--steps 16 --resume " .. quote(home .. "/out"))
    assert.equal(0, again, second_log)
    assert.same(expected.loss, support.joined(first.loss, document.loss))
    assert.same(expected.metrics, document.metrics)
  end)
end)
