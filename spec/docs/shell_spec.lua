-- What `ganymede docs` writes for the shell: a man page that renders without warnings, completion that bash gives and
-- that zsh reads.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local cli = require "ganymede.cli"
local completion = require "ganymede.cli.completion"
local man = require "ganymede.cli.man"
local shell = require "spec.support.shell"

local function has_program(name) return shell.run("command -v " .. name).code == 0 end

local folder
setup(function() folder = shell.temporary_folder() end)
teardown(function() shell.remove(folder) end)

describe("the man page", function()
  it("has every verb, its options, the exit statuses, the environment", function()
    local text = man()
    for _, name in ipairs(cli.verbs) do
      assert.is_truthy(text:find("\n.SS " .. name .. "\n", 1, true), name)
      for _, option in ipairs(cli.parser(name, cli.verb(name))._options) do
        assert.is_truthy(text:find(option._name:gsub("%-", "\\-"), 1, true), option._name)
      end
    end
    for _, part in ipairs { "\n\\fB75\\fR\n", "\n\\fB6\\fR\na rank was killed by a signal", "\\fBGM_LOG\\fR",
      "ganymede run first.lua" } do
      assert.is_truthy(text:find(part, 1, true), part)
    end
  end)

  it("renders without warnings", function()
    if not has_program "man" then return pending "there is no man; install man-db" end
    local path = shell.write(folder .. "/ganymede.1", man())
    local result = shell.run("MANWIDTH=80 man --warnings -E UTF-8 -l " .. shell.quote(path))
    assert.equal("", result.err)
    assert.matches("ganymede run %[options%] recipe", result.out)
    assert.matches("%-%-limit%-memory BYTES", result.out)
  end)

  it("has nothing that mandoc complains of", function()
    if not has_program "mandoc" then return pending "there is no mandoc" end
    local path = shell.write(folder .. "/ganymede.1", man())
    local said = shell.run("mandoc -Tlint -Wwarning " .. shell.quote(path)).out
    assert.equal("", (said:gsub("[^\n]*missing date[^\n]*\n", ""))) -- the version stands in its place
  end)

  it("is written by the verb", function()
    local path = folder .. "/written.1"
    local result = shell.run(("%s docs --man %s"):format(shell.quote(shell.executable()), shell.quote(path)))
    assert.equal(0, result.code)
    assert.equal(man(), shell.read(path))
  end)
end)

describe("the completion of bash", function()
  -- What bash offers for a command line whose last word is being written -> sorted list
  local function complete(line)
    local words = {}
    for word in (line .. " "):gmatch "(%S*) " do words[#words + 1] = word end
    local list = {}
    for i, word in ipairs(words) do list[i] = shell.quote(word) end
    local script = ("source %s; COMP_WORDS=(%s); COMP_CWORD=%d; _ganymede; printf '%%s\\n' \"${COMPREPLY[@]}\""):format(
      shell.quote(folder .. "/ganymede.bash"), table.concat(list, " "), #words - 1)
    local result = shell.run("bash -c " .. shell.quote(script))
    assert.equal("", result.err)
    local out = {}
    for word in result.out:gmatch "%S+" do out[#out + 1] = word end
    table.sort(out)
    return out
  end

  setup(function() shell.write(folder .. "/ganymede.bash", completion.bash()) end)

  it("offers verbs", function()
    assert.same({ "check" }, complete "ganymede ch")
    assert.equal(#cli.verbs, #complete "ganymede ")
  end)

  it("offers the options of a verb", function()
    assert.same({ "--seed", "--set", "--standby", "--stats", "--step-file", "--steps" }, complete "ganymede run --s")
    assert.same({ "--roles" }, complete "ganymede check --ro")
    assert.same({}, complete "ganymede version --s")
  end)

  it("offers choices, settings and names", function()
    assert.same({ "cpu", "cuda" }, complete "ganymede run --device c")
    assert.same({ "bash" }, complete "ganymede docs --completion b")
    assert.same({ "parallel.tensor.mode=" }, complete "ganymede run first.lua --set parallel.tensor.m")
    assert.same({ "gm.optim.Adam", "gm.optim.AdamW" }, complete "ganymede help gm.optim.Adam")
    assert.same({}, complete "ganymede run --steps 1")
  end)

  it("offers files and folders", function()
    shell.write(folder .. "/only.lua", "")
    assert.same({ folder .. "/only.lua" }, complete("ganymede run " .. folder .. "/onl"))
    assert.same({}, complete("ganymede run --out " .. folder .. "/onl"))
  end)

  it("is printed by the verb, alone", function()
    local exe = shell.quote(shell.executable())
    assert.equal(completion.bash(), shell.run(exe .. " docs --completion bash").out)
    assert.equal(completion.zsh(), shell.run(exe .. " docs --completion zsh").out)
    assert.equal(2, shell.run(exe .. " docs --completion bash --man x").code)
  end)
end)

describe("the completion of zsh", function()
  it("has every verb and every option", function()
    local text = completion.zsh()
    for _, name in ipairs(cli.verbs) do
      assert.is_truthy(text:find("\n        " .. name .. ") _arguments", 1, true), name)
      for _, option in ipairs(cli.parser(name, cli.verb(name))._options) do
        assert.is_truthy(text:find(option._name, 1, true), option._name)
      end
    end
  end)

  it("is read by zsh", function()
    if not has_program "zsh" then return pending "there is no zsh; install zsh" end
    local path = shell.write(folder .. "/_ganymede", completion.zsh())
    local result = shell.run("zsh -n " .. shell.quote(path))
    assert.equal("", result.err)
    assert.equal(0, result.code)
  end)
end)
