--- A negative number behind an option: the option's own check judges it, in every verb, and the refusal names it. And
-- what a wrong use prints.
-- luacheck: globals finally
local cli = require "ganymede.cli"
local log = require "ganymede.base.log"
local typed = require "ganymede.cli.words"

local function said(parser, list)
  local ok, why = parser:pparse(typed.joined(parser, list))
  return not ok and why or nil
end

describe("a negative number behind an option", function()
  for _, name in ipairs(cli.verbs) do
    local verb = cli.verb(name)
    for _, option in ipairs(cli.parser(name, verb)._options) do
      if type(option._convert) == "function" then
        for _, alias in ipairs(option._aliases) do
          it("is judged by " .. name .. " " .. alias, function()
            for _, number in ipairs { "-3", "-.5", "-inf", "-nan", "-1e3" } do
              local why = said(cli.parser(name, verb), { alias, number })
              assert.is_truthy(why, "nothing was refused")
              assert.is_truthy(why:find("'" .. number .. "'", 1, true), why)
              assert.matches("^%-%-[%w-]+: ", why)
            end
          end)
        end
      end
    end
  end

  it("is one word with it only where the option takes one, and not behind --", function()
    local parser = cli.parser("run", cli.verb "run")
    assert.same({ "r", "--steps=-3", "-n-2" }, typed.joined(parser, { "r", "--steps", "-3", "-n", "-2" }))
    assert.same({ "-q", "-3" }, typed.joined(parser, { "-q", "-3" }))
    assert.same({ "--set", "-q" }, typed.joined(parser, { "--set", "-q" }))
    assert.same({ "--", "--steps", "-3" }, typed.joined(parser, { "--", "--steps", "-3" }))
    assert.same({ "--steps", "--", "-3" }, typed.joined(parser, { "--steps", "--", "-3" }))
  end)
end)

describe("a wrong use", function()
  local function errors_of(...)
    local list, error_before = {}, log.error
    finally(function() log.error = error_before end)
    log.error = function(fmt, ...) list[#list + 1] = fmt:format(...) end
    assert.equal(2, cli.main { ... })
    return (table.concat(list, "\n"):gsub("^[^\n:]+:%d+: ", "")) -- a spec is a user's file, and is named
  end

  it("is said in one line, and a second one says where the options are", function()
    assert.equal("unknown option '--stepps'; did you mean '--steps'?\n`ganymede run --help` lists what it takes",
      errors_of("run", "recipe.lua", "--stepps", "3"))
    assert.equal("missing argument 'recipe'\n`ganymede run --help` lists what it takes", errors_of "run")
  end)
end)
