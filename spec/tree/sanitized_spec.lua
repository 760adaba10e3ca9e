--- .ci/sanitized: what the sanitizers look at, in a repository of a few small files.
-- sanitizers: no, it is about a script
local shell = require "spec.support.shell"

if shell.run("command -v git bash").code ~= 0 then return pending "there is no git or no bash here" end

describe(".ci/sanitized", function()
  local home
  local script = shell.quote(GANYMEDE_ROOT .. "/.ci/sanitized")

  local function run(words)
    local result = shell.run(("cd %s && %s"):format(home, words))
    assert.equal(0, result.code, result.out .. result.err)
    return result.out
  end

  setup(function()
    home = shell.quote(shell.temporary_folder())
    run("git init -q && mkdir -p host spec/nn lua && echo a | tee host/a.c host/a.h host/a.def CMakeLists.txt " ..
      "lua/a.lua spec/nn/a_spec.lua spec/nn/b_spec.lua && git add . && " ..
      "git -c user.name=spec -c user.email=spec -c commit.gpgsign=false commit -q -m all")
  end)
  before_each(function() run "git reset -q --hard && git clean -q -fd" end)
  teardown(function() shell.run("rm -rf " .. home) end)

  it("is nothing where only Lua differs that is no spec", function()
    assert.equal("", run(script .. " HEAD"))
    run "echo b >>lua/a.lua && echo b >lua/b.lua"
    assert.equal("", run(script .. " HEAD"))
  end)

  it("is the specs that have changed or are new, but not those that are gone", function()
    run "echo b >>spec/nn/a_spec.lua && rm spec/nn/b_spec.lua && echo c >spec/nn/c_spec.lua"
    assert.equal("spec/nn/a_spec.lua\nspec/nn/c_spec.lua\n", run(script .. " HEAD"))
  end)

  it("is all where something that is compiled has changed, is new or is gone", function()
    for _, change in ipairs { "echo b >>host/a.c", "echo b >>host/a.def", "echo b >>CMakeLists.txt", "rm host/a.h",
      "echo b >host/b.cuh", "git mv host/a.c host/c.c" } do
      run "git reset -q --hard && git clean -q -fd && echo b >>spec/nn/a_spec.lua"
      run(change)
      assert.equal("all\n", run(script .. " HEAD"), change)
    end
  end)

  it("fails for a commit that is not there", function()
    assert.equal(1, shell.run(("cd %s && %s nothing"):format(home, script)).code)
  end)
end)
