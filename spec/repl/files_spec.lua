-- :load and :run of the REPL, on one rank and on two, over standard input as scripts use it: what they leave in the
-- session, mistakes that end a line alone, and ?name of every function there is.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local home
before_each(function() home = shell.temporary_folder() end)
after_each(function() shell.remove(home) end)

local function repl(lines, ranks, files)
  for name, text in pairs(files or {}) do shell.write(home .. "/" .. name, text) end
  shell.write(home .. "/input", table.concat(lines, "\n") .. "\n")
  local result = shell.run(("cd %s && GANYMEDE_ROOT=%s GANYMEDE_HISTORY= TMPDIR=%s timeout -k 5 60 %s --threads 1%s "
    .. "<input"):format(shell.quote(home), shell.quote(GANYMEDE_ROOT), shell.quote(home), shell.program "repl",
    ranks and " -n " .. ranks or ""))
  assert.equal(0, result.code, result.err)
  return result
end

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

local recipe = [[
return { name = "points", seed = 3, steps = 4,
  model = { type = "MLP", inputs = 6, hidden = { 8 }, classes = 4 },
  data = { train = { type = "Synthetic", length = 90, shape = { 6 }, classes = 4 }, batch_size = 18 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 } }
]]

describe("= x", function()
  for _, ranks in ipairs { 1, 2 } do
    it(("prints the value, as at the prompt of Lua 5.1, on %d rank(s)"):format(ranks), function()
      local result = repl({ "x = 3", "= x", "=x + 1, 'a'", "  = x * (", "2)", "x == 3" }, ranks > 1 and ranks or nil)
      assert.equal('3\n4\n"a"\n6\ntrue\n', (result.out:gsub("%[0%-1%] ", ""):gsub("\n +", "\n")))
      assert.equal("", result.err)
      result = repl({ "== 3" }, ranks > 1 and ranks or nil)
      has(result.out .. result.err, "unexpected symbol near '='")
    end)
  end
end)

describe(":load", function()
  it("runs a file in the session", function()
    local result = repl({ ":load tools.lua", "twice(4)", ":load", ":load none.lua", ":load wrong.lua",
      ":load fails.lua", "twice(5)" }, nil, { ["tools.lua"] = "function twice(x) return 2 * x end\nreturn 'there'",
      ["wrong.lua"] = "x = = 1", ["fails.lua"] = "local x\nerror 'sorry'" })
    assert.equal('"there"\n8\n10\n', result.out)
    for _, part in ipairs { ":load takes a file", "cannot read none.lua", "wrong.lua:1: unexpected symbol",
      "fails.lua:2: sorry" } do has(result.err, part) end
  end)

  it("runs it on every rank, or on those that are named", function()
    local result = repl({ ":load tools.lua", "plus(1)", "@1 :load one.lua", "only", ":load none.lua", "plus(2)" }, 2,
      { ["tools.lua"] = "function plus(x) return rank + x end", ["one.lua"] = "only = 'here'" })
    assert.equal('[0] 1\n[1] 2\n[0] nil\n[1] "here"\n[0-1] cannot read none.lua\n[0] 2\n[1] 3\n', result.out)
  end)
end)

describe(":run", function()
  it("trains a recipe, with settings, as `ganymede run` does, and leaves the trainer", function()
    local function losses(ranks)
      local result = repl({ ":run recipe.lua steps=3 'optimizer.lr=0.05' data.batch_size=9", "trainer.step",
        "print(table.concat(trainer.losses, ' '))", "engine == trainer.engine, model == engine.model, optimizer.lr" },
        ranks, { ["recipe.lua"] = recipe })
      has(result.out, "3 steps, last loss ")
      has(result.out, "0.05")
      local text = result.out:match "(%d%S+ %d%S+ %d%S+)\n"
      local list = {}
      for number in text:gmatch "%S+" do list[#list + 1] = tonumber(number) end
      return list
    end
    local one, two = losses(), losses(2)
    local run = run_host({ "run", "recipe.lua", "--stats", "stats.json", "--set", "steps=3", "--set",
      "optimizer.lr=0.05", "--set", "data.batch_size=9", "--threads", "1", "--quiet" }, { cwd = home })
    assert.equal(0, run.code, run.err)
    local want = json.decode(shell.read(home .. "/stats.json"), "stats").loss
    assert.equal(3, #one)
    for i = 1, 3 do
      assert.near(want[i], one[i], 1e-6)
      assert.near(want[i], two[i], 1e-5) -- f32, summed in another order
    end
  end)

  it("ends a line alone where the recipe is wrong", function()
    local result = repl({ ":run", ":run none.lua", ":run wrong.lua", ":run recipe.lua optimiser.lr=1",
      ":run recipe.lua 20", "'alive'", ":run recipe.lua", "gm.comm.all_reduce(gm.ones { 1 }):item()" }, 2,
      { ["recipe.lua"] = recipe, ["wrong.lua"] = "return { model = 3 }" })
    for _, part in ipairs { ":run takes a recipe", "cannot read the recipe: none.lua", "wrong.lua", "optimiser",
      "takes settings such as", '[0-1] "alive"', "[0-1] 4 steps, last loss ", "[0-1] 2" } do has(result.out, part) end
  end)
end)

describe("?name", function()
  -- Functions of C have declared arguments; what has no entry of the reference shows these.
  it("tells the arguments of every function of C and of gm", function()
    local command = require "ganymede.repl.commands"
    local signature = require "ganymede.base.signature"
    local said
    local asked = { globals = { core = core, gm = require "ganymede" }, say = function(_, _, text) said = text end }
    local count, wrong = 0, {}
    for _, where in ipairs { "core", "gm" } do
      for name, fn in pairs(asked.globals[where]) do
        local sig = type(fn) == "function" and signature.of(fn)
        if sig then
          count, said = count + 1, nil
          local ok, why = command(asked, ("?%s.%s"):format(where, name))
          local least = sig.arguments[1] and sig.arguments[1].name or "("
          if not ok or not said or not said:find(least, 1, true) then
            wrong[#wrong + 1] = ("%s.%s: %s"):format(where, name, tostring(said or why))
          end
        end
      end
    end
    assert.is_true(count > 300, count)
    assert.equal("", table.concat(wrong, "\n"))
  end)
end)
