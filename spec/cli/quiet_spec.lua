-- run --quiet: results and warnings alone, on any number of ranks; without it, the talk is on standard error.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local support = require "spec.cli.support"
local shell = support.shell

describe("ganymede run", function()
  local home
  before_each(function() home = support.home() end)
  after_each(function() shell.remove(home) end)

  local function run(...)
    local result = support.run(home, { "run", "recipe.lua", ... })
    assert.equal(0, result.code, result.err)
    return result
  end

  for _, ranks in ipairs { 1, 2 } do
    it(("--quiet prints lines of hooks and evaluations alone, on %d rank(s)"):format(ranks), function()
      local result = run("--quiet", "-n", ranks, "--set", "epochs=2")
      assert.matches("^test  accuracy %S+\ntest  accuracy %S+\n$", result.out)
      assert.equal("", result.err)
    end)
  end

  it("--quiet lets warnings and errors through", function()
    assert.matches("warning: this recipe saves no checkpoints", run("--quiet", "--max-restarts", "1").err)
    local wrong = support.run(home, { "run", "recipe.lua", "-q", "--set", "optimizer.lrr=1" })
    assert.equal(2, wrong.code)
    assert.matches("did you mean 'lr'", wrong.err)
  end)

  it("without it shows the position among all steps, also if the recipe says epochs alone", function()
    local result = run("--set", "epochs=2")
    assert.matches("step 32/32  epoch 2  loss", result.out)
    assert.matches("run folder", result.err)
    assert.is_nil(result.out:find "run folder")
    assert.is_nil(result.out:find("[#", 1, true)) -- no bar: this is no terminal
  end)

  it("shows a bar on a terminal, in lines that fit", function()
    if shell.run("command -v script").code ~= 0 then return pending "there is no script; install bsdutils" end
    local typed = ("stty cols 80; GANYMEDE_ROOT=%s %s recipe.lua --threads 1"):format(shell.quote(GANYMEDE_ROOT),
      shell.program "run")
    local result = shell.run(("cd %s && script -qec %s /dev/null"):format(home, shell.quote(typed)))
    local last
    for line in result.out:gmatch "[^\r\n]+" do
      if line:find("step 16/16", 1, true) then last = line end
      if line:find "^%[" then assert(#line <= 79) end
    end
    assert.matches("^%[#+%] 100 %%  step 16/16  ", last)
  end)
end)
