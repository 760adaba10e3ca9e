--- .ci/base: what .ci/run compares with, in repositories of a few empty commits.
-- sanitizers: no, it is about a script
local shell = require "spec.support.shell"

if shell.run("command -v git bash").code ~= 0 then return pending "there is no git or no bash here" end

describe(".ci/base", function()
  local home, script = nil, shell.quote(GANYMEDE_ROOT .. "/.ci/base")

  local function git(words)
    local result = shell.run(("cd %s && git -c user.name=spec -c user.email=spec -c commit.gpgsign=false %s"):format(
      home, words))
    assert.equal(0, result.code, result.out .. result.err)
    return (result.out:gsub("%s+$", ""))
  end

  -- A commit whose tree no other has.
  local function commit(name)
    shell.run(("cd %s && echo %s >%s"):format(home, name, name))
    git("add " .. name)
    git("commit -q -m " .. name)
    return git "rev-parse HEAD"
  end

  local function base(words, set)
    local result = shell.run(("cd %s && env -u GANYMEDE_CI_BASE GANYMEDE_CACHE=cache %s %s %s"):format(home, set or "",
      script, words or ""))
    return (result.out:gsub("%s+$", "")), result.code
  end

  before_each(function()
    home = shell.quote(shell.temporary_folder())
    git "init -q -b main"
    shell.run(("echo /cache >%s/.git/info/exclude"):format(home))
  end)
  after_each(function() shell.run("rm -rf " .. home) end)

  it("is nothing for a first commit, and a guess for another one of the main branch", function()
    assert.same({ "", 1 }, { base() })
    local first = commit "a"
    assert.same({ "", 1 }, { base() })
    local second = commit "b"
    assert.equal(first .. " guessed", (base()))
    assert.equal(first .. " guessed", (base("", "GANYMEDE_CI_BASE=HEAD")))
    assert.equal(first .. " passed", (base("", "GANYMEDE_CI_BASE=HEAD^")))
    assert.same({ "", 1 }, { base("", "GANYMEDE_CI_BASE=nothing") })
    commit "c"
    assert.equal(second .. " guessed", (base()))
  end)

  it("is where a branch was left, and the first parent of what was merged", function()
    local left = commit "a"
    git "checkout -q -b work"
    commit "b"
    assert.equal(left .. " passed", (base()))
    commit "c"
    assert.equal(left .. " passed", (base()))
    git "checkout -q main"
    local before = commit "d"
    git "merge -q --no-ff -m merged work"
    assert.equal(before .. " passed", (base()))
  end)

  it("is the nearest commit whose tree has passed with this cache, if what passed was committed", function()
    local list = {}
    for i, name in ipairs { "a", "b", "c", "d" } do
      list[i] = commit(name)
      if name == "a" or name == "b" then assert.same({ "", 0 }, { base "--passed" }) end
      if name == "c" then
        shell.run(("echo more >>%s/c"):format(home))
        assert.same({ "", 1 }, { base "--passed" })
        git "checkout -q c"
      end
    end
    assert.equal(list[2] .. " passed", (base()))
    assert.equal(list[1] .. " passed", (base("", "GANYMEDE_CI_BASE=" .. list[1])))
    base "--passed"
    assert.equal(list[4] .. " passed", (base()))
    assert.equal(list[3] .. " guessed", (base("", "GANYMEDE_CACHE=elsewhere")))
  end)

  it("is the commit that .ci/last names, if HEAD came from it", function()
    local list = {}
    for i, name in ipairs { "a", "b", "c" } do list[i] = commit(name) end
    local function names(what)
      shell.run(("mkdir -p %s/.ci && echo %s >%s/.ci/last"):format(home, what, home))
      return (base())
    end
    assert.equal(list[1] .. " passed", names(list[1]))
    assert.equal(list[2] .. " guessed", names(list[3])) -- HEAD itself: not known before it has run
    assert.equal(list[2] .. " guessed", names "nothing")
    git "checkout -q -b other HEAD^"
    local other = commit "d"
    git "checkout -q main"
    assert.equal(list[2] .. " guessed", names(other))
  end)
end)
