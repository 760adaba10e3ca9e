--- Lua files that were compiled with the program (bindings/modules.c): used while they are what the files hold, and
-- never else.
local core = require "ganymede.core"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local COUNT = [[
local core = require "ganymede.core"
local gm = require "ganymede"
print(gm.nn and core.modules_compiled())
]]

describe("compiled modules", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local function write(path, text) shell.write(folder .. "/" .. path, text) end

  -- A tree of its own, whose Lua files are copies.
  local function copy_tree()
    shell.run(("mkdir %s/tree && cp -R %s/lua %s/tree/"):format(folder, shell.quote(GANYMEDE_ROOT), folder))
    return folder .. "/tree"
  end

  local function counted(env)
    write("count.lua", COUNT)
    local result = run_host({ "run", "count.lua" }, { cwd = folder, env = env })
    assert.equal(0, result.code, result.err)
    return tonumber(result.out), result
  end

  it("are all that a process loads of an unchanged tree", function()
    local some = counted {}
    assert.is_true(some > 40, tostring(some))
    assert.equal(some, counted { GANYMEDE_ROOT = copy_tree() })
  end)

  it("give way to a file that has changed, by as little as one byte of the same length", function()
    local root, all = copy_tree(), counted {}
    local path = root .. "/lua/ganymede/base/version.lua"
    local text = shell.read(path)
    local changed, times = text:gsub("%d+%.%d+%.%d+", "9.8.7", 1)
    assert.equal(1, times)
    shell.write(path, changed)
    write("count.lua", COUNT .. 'print(require "ganymede.version")')
    local result = run_host({ "run", "count.lua" }, { cwd = folder, env = { GANYMEDE_ROOT = root } })
    assert.matches("9%.8%.7", result.out)
    shell.write(root .. "/lua/ganymede/nn/linear.lua", shell.read(root .. "/lua/ganymede/nn/linear.lua") .. "\n")
    assert.equal(all - 1, counted { GANYMEDE_ROOT = root })
  end)

  it("name the file of their own tree, and the line, in errors", function()
    local root = copy_tree()
    write("wrong.lua", 'local gm = require "ganymede"\nprint(debug.getinfo(gm.nn.Linear.forward, "S").source)')
    local result = run_host({ "run", "wrong.lua" }, { cwd = folder, env = { GANYMEDE_ROOT = root } })
    assert.equal(("@%s/lua/ganymede/nn/linear.lua\n"):format(root), result.out)
    write("wrong.lua", 'require("ganymede").launch { sead = 1 }')
    local plain = run_host({ "run", "wrong.lua" }, { cwd = folder }).err
    assert.equal(plain, run_host({ "run", "wrong.lua" }, { cwd = folder, env = { GANYMEDE_ROOT = root } }).err)
  end)

  it("are not needed, and an archive that is broken or of another LuaJIT is not used", function()
    local own = core.executable()
    local archive = shell.read(own:match "^(.*)/" .. "/ganymede.modules")
    shell.run(("cp %s %s/ganymede"):format(shell.quote(own), folder))
    write("count.lua", COUNT)
    local function count()
      local result = shell.run(("cd %s && GANYMEDE_ROOT=%s ./ganymede run count.lua"):format(folder,
        shell.quote(GANYMEDE_ROOT)))
      assert.equal(0, result.code, result.err)
      return tonumber(result.out)
    end
    assert.equal(0, count())
    write("ganymede.modules", archive)
    assert.is_true(count() > 40)
    write("ganymede.modules", archive:sub(1, #archive / 2))
    assert.equal(0, count())
    write("ganymede.modules", (archive:gsub("^ganymede modules 1 LuaJIT", "ganymede modules 1 LuaJIM", 1)))
    assert.equal(0, count())
    for _, text in ipairs { "", "ganymede", "\n\n", archive:match "^[^\n]*\n", ("\n"):rep(100),
      archive:match "^[^\n]*\n" .. "ganymede/cli/init.lua 5 99999999999999999999\n\nx" } do
      write("ganymede.modules", text)
      assert.equal(0, count(), text)
    end
  end)
end)
