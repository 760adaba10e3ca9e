-- `ganymede help NAME` and `?name` in the repl print the same text, for any public name; they suggest near names, and
-- list those of one short name.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local reference = require "ganymede.reference"
local shell = require "spec.support.shell"

-- All names in one process each: help by calling the verb, ? by a repl without a terminal.
local function help(name)
  local said = {}
  local print_before = print
  _G.print = function(text) said[#said + 1] = text end
  local ok, why = pcall(require("ganymede.cli.help").run, { name = name })
  _G.print = print_before
  if not ok then error(why, 0) end
  return table.concat(said, "\n")
end

local command = require "ganymede.repl.commands"

local function question(name)
  local said = {}
  local gm = require "ganymede"
  local repl = { globals = setmetatable({ gm = gm, nn = gm.nn, ops = gm.ops }, { __index = _G }),
    say = function(_, format, text) said[#said + 1] = text or format end }
  local done, why = command(repl, "?" .. name)
  assert.is_true(done, why)
  return table.concat(said, "\n")
end

describe("help and ?", function()
  it("print the same text of every entry, by each of its names", function()
    local count = 0
    for _, entry in ipairs(reference.all()) do
      for _, name in ipairs(entry.names) do
        local text = reference.explain(name)
        assert.equal(text, help(name))
        assert.equal(text, question(name))
        count = count + 1
      end
    end
    assert.is_true(count > 1000, tostring(count))
  end)

  it("explain a name as users write it", function()
    for name, head in pairs { linear = "gm.ops.linear: an op", Linear = "gm.nn.Linear: a layer",
      ["gm.ops.linear"] = "gm.ops.linear: an op", ["ops.linear"] = "gm.ops.linear: an op",
      ["x:sum"] = "gm.ops.sum: an op", AdamW = "gm.optim.AdamW: an optimizer", run = "ganymede run: a verb",
      ["parallel.tensor.mode"] = "parallel.tensor.mode: a setting", ["nn.Linear"] = "gm.nn.Linear: a layer",
      adamw = "gm.optim.AdamW: an optimizer", ["gm.zeros()"] = "gm.zeros: a function", GM_LOG = "GM_LOG: a variable",
    } do
      assert.equal(head, (reference.explain(name) or ""):sub(1, #head))
    end
  end)

  it("list the entries of one short name, and say how to choose", function()
    local text = reference.explain "mode"
    assert.matches("^there are 3 entries for 'mode'; ask for one of them by its whole name", text)
    for _, name in ipairs { "parallel.tensor.mode", "parallel.sequence.mode", "fp16.mode" } do
      assert.is_truthy(text:find("\n  " .. name, 1, true), text)
    end
  end)

  it("say a default once", function()
    for _, entry in ipairs(reference.all()) do
      local text = reference.explain(entry.names[1]):gsub("%s+", " ")
      local twice = text:match "[^%]]*%(default[^()]*%) %(default[^()]*%)"
      assert.is_nil(twice, entry.names[1])
    end
  end)

  it("say which order a pipeline has where none is chosen", function()
    assert.matches("1f1b, or interleaved where parallel.pipeline.chunks is above 1",
      (reference.explain("schedule"):gsub("%s+", " ")))
  end)

  it("explain an option by the path that recipes and --set write", function()
    local text = reference.explain "optimizer.lr"
    assert.equal("optimizer.lr: an option of optimizers", text:match "^[^\n]+")
    assert.matches("\nAdam, AdamW,[^\n]*SGD,?[^%(]*\n  a number, at least 0 %(default 0.001%)\n  the learning rate",
      text)
    assert.matches("\nLARS\n  a number, at least 0 %(default 0.1%)\n", text)
    assert.equal(1, select(2, text:gsub("AdamW", ""))) -- a class stands once
    assert.matches("^AdamW.betas: an option of AdamW\n\n  a list %(default { 0.9, 0.999 }%)\n", reference.explain
      "AdamW.betas")
    assert.matches("\nCSVHook\n  an integer, at least 1 %(default 1%)\n  the number of steps between two rows",
      reference.explain "hooks.2.interval")
    assert.matches("\nImageFolder\n  a string %(required%)", reference.explain "data.train.root")
    assert.matches("^optimizer: a setting of recipes\n.*\ntypes +Adafactor", reference.explain "optimizer.type")
  end)

  it("say which option may have been meant", function()
    assert.equal("no type of `optimizer` has an option 'lrr' (did you mean 'lr'?)",
      select(2, reference.explain "optimizer.lrr"))
    assert.equal("gm.optim.AdamW has no option 'beats' (did you mean 'betas'?)",
      select(2, reference.explain "AdamW.beats"))
  end)

  it("suggest near names", function()
    for wrong, right in pairs { lineer = "linear", AdmW = "AdamW", ["gm.zeroes"] = "gm.zeros",
      ["parallel.tensr.mode"] = "parallel.tensor.mode" } do
      local text, why = reference.explain(wrong)
      assert.is_nil(text)
      assert.is_truthy(why:find("'" .. right .. "'", 1, true), why)
    end
    assert.equal("there is no 'qqqq'", select(2, reference.explain "qqqq"))
  end)

  it("are what the program prints", function()
    local result = shell.run(shell.quote(shell.executable()) .. " help ops.linear")
    assert.equal(reference.explain "ops.linear" .. "\n", result.out)
    result = shell.run("echo '?ops.linear' | GANYMEDE_HISTORY= " .. shell.quote(shell.executable()) .. " repl")
    assert.equal(reference.explain "ops.linear" .. "\n", result.out)
  end)
end)
