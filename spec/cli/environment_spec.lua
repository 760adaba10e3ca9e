-- Variables of the environment: one table of those that the program reads, in the documents too; unknown ones of ours
-- are refused. LUA_PATH and LUA_CPATH add modules and shadow none of ours.
local environment = require "ganymede.base.environment"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local tree = require "spec.support.tree"

local function run(words, env)
  env.GANYMEDE_ROOT = GANYMEDE_ROOT
  return run_host(words, { env = env })
end

-- every GANYMEDE_... in quotation marks, and whatever getenv is given, of a file
local function names_in(text, found)
  for name in text:gmatch "[\"']?(GANYMEDE_[A-Z_]*[A-Z])[\"'$]" do found[name] = true end
  for name in text:gmatch 'getenv ?%(?"([A-Z_]+)"' do found[name] = true end
end

local function ours_asked_for_in(text, found)
  for name in text:gmatch 'getenv ?%(?"(GANYMEDE_[A-Z_]+)"' do found[name] = true end
end

describe("the environment", function()
  it("refuses a variable of ours that nothing reads, with the name that was meant", function()
    local result = run({ "version" }, { GANYMEDE_HISTROY = "x" })
    assert.equal(2, result.code)
    assert.matches("has GANYMEDE_HISTROY, which nothing reads %(did you mean 'GANYMEDE_HISTORY'%?%)", result.err)
    assert.equal("", result.out)
  end)

  it("refuses a value that means nothing", function()
    local result = run({ "version" }, { GM_LOG = "debug" })
    assert.equal(2, result.code)
    assert.matches("says GM_LOG=debug; it must be 0, 1, 2 or 3", result.err)
    assert.equal(0, run({ "version" }, { GM_LOG = "3", GANYMEDE_HISTORY = "" }).code)
  end)

  it("has a table of all that the program reads, and the launchers' are not ours", function()
    local found = {}
    for _, path in ipairs(tree.files("^kernels/.*%.[ch]$", "^host/.*%.[ch]$", "^bindings/", "^lua/")) do
      names_in(shell.read(path), found)
    end
    for _, path in ipairs(tree.files("^spec/.*%.lua$", "^spec/.*%.c$")) do
      ours_asked_for_in(shell.read(path), found)
    end
    local theirs = { HOME = true, XDG_CACHE_HOME = true, TMPDIR = true, LUA_PATH = true, LUA_CPATH = true,
      RANK = true, WORLD_SIZE = true, LOCAL_RANK = true, LOCAL_WORLD_SIZE = true, MASTER_ADDR = true,
      MASTER_PORT = true, LD_PRELOAD = true, NCCL_SOCKET_IFNAME = true, HWLOC_COMPONENTS = true }
    for name in pairs(found) do
      local launcher = name:match "^OMPI_" or name:match "^PMIX?_" or name:match "^SLURMD?_" or name:match "^MPI_"
        or name:match "^TORCHELASTIC_"
      assert.is_truthy(environment.variables[name] or theirs[name] or launcher,
        name .. ": a line in lua/ganymede/base/environment.lua")
    end
    assert.is_true(found.GANYMEDE_ROOT and found.GANYMEDE_CUDA_NCCL and found.GM_LOG)
  end)

  it("is told by `ganymede help environment` and in docs/command_line.md", function()
    local help, text = run({ "help", "environment" }, {}).out, shell.read "docs/command_line.md"
    for name, entry in pairs(environment.variables) do
      assert.is_truthy(help:find(name, 1, true), name)
      assert.is_truthy(entry.whose ~= "user" or text:find("`" .. name .. "`", 1, true), name)
    end
  end)

  it("adds modules by LUA_PATH and LUA_CPATH, behind ours, and none of the current folder otherwise", function()
    local folder = shell.temporary_folder()
    local function write(name, text) shell.write(folder .. "/" .. name, text) end
    write("mine.lua", "return 'mine'")
    assert(os.execute(("mkdir %s/ganymede"):format(folder)))
    write("ganymede/version.lua", "return 'shadowed'")
    write("recipe.lua", "print(pcall(require, 'mine')) print(require 'ganymede.base.version') print(package.cpath)")
    local function out(env)
      env.GANYMEDE_ROOT = GANYMEDE_ROOT
      return run_host({ "run", "recipe.lua" }, { cwd = folder, env = env }).out
    end
    local with = out { LUA_PATH = folder .. "/?.lua;;", LUA_CPATH = "/nowhere/?.so;;" }
    assert.matches("^true\tmine\n", with)
    assert.is_falsy(with:find("shadowed", 1, true))
    assert.is_truthy(with:find(";/nowhere/?.so", 1, true))
    assert.is_falsy(out {}:find("./?.so", 1, true))
    shell.remove(folder)
  end)
end)
