--- The REPL over standard input, as scripts and pipes see it: values on standard output, errors on standard error.
local shell = require "spec.support.shell"

local function quote(text) return shell.quote(text) end

-- Feeds lines to `ganymede repl` -> { code, out, err }
-- program: how it is started, by default on the device of the specs
local function repl(input, program)
  local folder = shell.temporary_folder()
  shell.write(folder .. "/input", input)
  local result = shell.run(("GANYMEDE_ROOT=%s GANYMEDE_HISTORY= timeout -k 5 60 %s --threads 1 < %s"):format(
    quote(GANYMEDE_ROOT), program or shell.program "repl", quote(folder .. "/input")))
  shell.remove(folder)
  return result
end

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

describe("ganymede repl without a terminal", function()
  local function prints(input, want)
    local result = repl(input)
    assert.equal("", result.err)
    assert.equal(want, result.out)
    assert.equal(0, result.code)
  end

  it("prints expressions, not statements, and no prompt", function() prints("1 + 1\nx = 3\nx * 2\n", "2\n6\n") end)
  it("prints every value, nil too", function() prints("1, nil, 'two'\nnil\n", "1\nnil\n\"two\"\nnil\n") end)
  it("remembers the last value as _", function() prints("6 * 7\n_ + 1\nx = 1\n_\n", "42\n43\n43\n") end)
  it("does without a last line end", function() prints("'end'", "\"end\"\n") end)
  it("goes on until the input is complete", function()
    prints("for i = 1, 2 do\n  print(i)\nend\nfunction f()\n  return 'f'\nend\nf()\nt = {\n1,\n2 }\n#t\n",
      "1\n2\n\"f\"\n2\n")
  end)
  it("has gm, nn and ops", function() prints("gm.ones({2}):sum():item(), nn.Linear(3, 4):count(), ops == gm.ops\n",
    "2\n16\ntrue\n") end)
  it("finds modules of the current folder, which is the top of the tree here", function()
    prints("require('spec.support.tree') ~= nil\n", "true\n")
  end)
  it("leaves the rest of standard input to a program that a line starts, from a file and from a pipe", function()
    local input = "os.execute 'read line; echo \"got $line\"'\nthe rest\n1 + 1\n"
    prints(input, "got the rest\n0\n2\n")
    local piped = shell.run(("(printf %%s %s | GANYMEDE_ROOT=%s GANYMEDE_HISTORY= timeout 60 %s --threads 1)"):format(
      quote(input), quote(GANYMEDE_ROOT), shell.program "repl"))
    assert.equal("got the rest\n0\n2\n", piped.out)
  end)
  it("reads a file in pieces, and lines that end where a piece does", function()
    local calls = "tonumber(io.open '/proc/self/io':read '*a':match 'syscr: (%d+)')\n"
    local counted = repl(calls .. "#'" .. ("x"):rep(100000) .. "'\n" .. calls).out
    local before, length, after = counted:match "^(%d+)\n(%d+)\n(%d+)\n$"
    assert.equal("100000", length)
    assert.is_true(after - before < 1000, counted) -- a read for each byte makes 100,000
    for _, bytes in ipairs { 4090, 4091, 4092, 4093, 4094, 8186, 8187, 8188 } do
      prints("#'" .. ("x"):rep(bytes) .. "'\n1 + 1\n", bytes .. "\n2\n")
    end
  end)
  it("ends with :quit, whatever follows", function() prints(":quit\nprint 'no'\n", "") end)

  it("reports errors and lives on, whatever they are", function()
    local result = repl("error 'one'\nerror { 'two' }\nerror()\nx = = 1\nnope.field\nerror(setmetatable({}, "
      .. "{ __tostring = function() error 'in tostring' end }))\n'alive'\n")
    assert.equal(0, result.code)
    assert.equal("\"alive\"\n", result.out)
    for _, part in ipairs { "one", "an error that is a table: { \"two\" }", "without a message",
      "unexpected symbol near '='", "'nope' (a nil value)", "__tostring fails" } do has(result.err, part) end
  end)

  it("lives on when a value cannot be printed", function()
    local result = repl "setmetatable({}, { __tostring = function() error 'sorry' end })\n'alive'\n"
    has(result.err, "sorry")
    assert.equal("\"alive\"\n", result.out)
  end)

  it("shows tensors by shape, dtype, statistics and values", function()
    local result = repl("gm.tensor { { 1, 2 }, { 3, 6 } }\ngm.full({ 100, 20 }, 0.5)\n"
      .. "gm.full({ 3 }, 0 / 0)\ngm.zeros { 0, 2 }\n")
    assert.equal("", result.err)
    has(result.out, "tensor f32 (2, 2)  min 1  max 6  mean 3\n")
    has(result.out, "[[1.0000, 2.0000],\n [3.0000, 6.0000]]")
    has(result.out, "tensor f32 (100, 20)  min 0.5  max 0.5  mean 0.5\n 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...")
    has(result.out, "3 of 3 values are NaN or infinite")
    has(result.out, "tensor f32 (0, 2)")
  end)

  it("keeps tensors while something names them, and frees them then", function()
    local result = repl(table.concat({
      "before = gm.memory().live", "x = gm.zeros { 1000 }", "gm.memory().live - before", "gm.ones { 1000 }; nil",
      "for i = 1, 10 do gm.ones { 1000 } end", "gm.memory().live - before", "x:sum():item()", "_ = nil", "x = nil",
      "gm.memory().live - before", "" }, "\n"))
    local numbers = {}
    for number in result.out:gmatch "%d+" do numbers[#numbers + 1] = tonumber(number) end
    assert.same({ 4000, 4000, 0, 0 }, numbers, result.out .. result.err)
  end)

  it("leaves nothing open after an error inside scopes and no_grad", function()
    local result = repl(table.concat({
      "core = require 'ganymede.core'",
      "co = coroutine.wrap(function() core.scope_open() core.no_grad(1) core.set_path 'a.b' error 'in it' end)",
      "co()", "core.scope_depth(), core.no_grad(0), core.set_path ''", "" }, "\n"))
    has(result.err, "in it")
    assert.equal("0\n0\n\"\"\n", result.out)
  end)

  it("explains names", function()
    local result = repl "?nn.Linear\n?gm.scope\n?nn.Linaer\n?x.y\n?\n?ops.linear\n?ops.attention\n?1+1\n"
    assert.equal(0, result.code)
    has(result.out, "width of y")
    has(result.out, "Runs fn(...) in a scope of its own")
    has(result.out, ":time CODE")
    has(result.out, "linear(x tensor, w tensor, b tensor|boolean?, activation string?)")
    has(result.out, "a query sees the keys up to its own place")
    has(result.err, "there is no 'nn.Linaer' (did you mean 'nn.Linear'?)")
    has(result.err, "there is no 'x.y'")
    has(result.err, "?name takes a name")
  end)

  it("explains what the session has itself", function()
    local result = repl "x = gm.ones { 2 }\n?x\nloss = 3\n?loss\n?x:sum\ny = x\n?y:mean\n?print\n"
    assert.equal("", result.err)
    has(result.out, "x: tensor f32 (2)")
    has(result.out, "loss: a number")
    has(result.out, "gm.ops.sum: an op")
    has(result.out, "gm.ops.mean: an op")
    has(result.out, "print: a function")
  end)

  it("has commands for memory and time", function()
    local result = repl "x = gm.zeros { 1024 }\n:mem\n:time 1 + 1\n:tmie 1\n:time x = = 1\n"
    has(result.out, "live 4.0 KiB")
    assert.is_truthy(result.out:match "%d%.%d%d%d%d%d%d s\n2\n", result.out)
    has(result.err, "there is no command ':tmie' (did you mean ':time'?)")
    has(result.err, "unexpected symbol")
  end)

  it("can forget what it recorded for backward passes", function()
    local result = repl(table.concat({ "core = require 'ganymede.core'", "x = gm.ones({ 8 }):requires_grad(true)",
      "y = x * 2; z = y * y", "core.tape_nodes()", ":mem", ":forget", "core.tape_nodes()", "z:detach():sum():item()",
      "" }, "\n"))
    assert.equal("", result.err)
    assert.is_truthy(result.out:match "^2\n.*2 operations are recorded.*\n0\n32\n$", result.out)
  end)

  it("computes shapes only on meta", function()
    local result = repl("x = gm.uniform { 3, 4 }\nx\n(x + 1):get(1, 1)\ngm.arange(3)\n'alive'\n",
      quote(shell.executable()) .. " repl --device meta")
    has(result.out, "tensor f32 (3, 4) on meta")
    has(result.out, "[0, 1, 2]")
    has(result.out, "\"alive\"")
    assert.is_true(#result.err > 0)
  end)
end)

describe("completion", function()
  local complete = require "ganymede.repl.complete"
  local globals

  before_each(function()
    local gm = require "ganymede"
    globals = { gm = gm, x = gm.zeros { 2 }, layer = gm.nn.Linear(2, 3), text = "abc", apple = 1, apply = print,
      nested = { inner = { value = 1 } }, bomb = setmetatable({}, { __index = function() error "boom" end }) }
  end)

  local function after(text) return complete.line(text, globals) end

  it("finds globals, and lists them when there are several", function()
    assert.equal("sted", (after "ne"))
    assert.equal("l", (after "app")) -- apple, apply
    local typed, listed = after "print(appl"
    assert.is_nil(typed)
    assert.equal("apple  apply", (listed:gsub("%s+$", "")))
    assert.equal("(", (after "apply")) -- a function, complete
    assert.is_nil(after "zzz")
    assert.is_nil(after "1 + ")
  end)

  it("follows fields, methods, parameters and modules that are not loaded yet", function()
    assert.equal("alue", (after "y = nested.inner.v"))
    assert.equal("max(", (after "gm.ops.log_soft"))
    assert.equal("hape(", (after "x:resh"):gsub("^ape", "hape"))
    assert.equal("ght", (after "layer.wei"))
    assert.equal("ameters(", (after "layer:named_par"))
    assert.equal("per(", (after "text:up"))
    assert.equal("cheduler", (after "gm.lr_s"))
  end)

  it("survives objects whose fields raise", function() assert.is_nil(after "bomb.a.b") end)
end)
