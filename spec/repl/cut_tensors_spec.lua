--- The repl on 2 ranks prints tensors that they share as those of one rank: shape, least, largest, mean, first numbers.
local assert = require "luassert"
local shell = require "spec.support.shell"

-- 300 numbers from -7 to 292; on a mesh of one axis, data.
local lines = [[
x = (gm.arange(300):to("f32") - 7):reshape(100, 3)
x
x:redistribute { cuts = { "data" } }
x:redistribute { cuts = { false, "data" } }
gm.arange(8):to("f32"):reshape(4, 2):redistribute { cuts = { "data" } }
x:redistribute { cuts = { "data" } }:sum(1)
]]

describe("the repl on ranks prints #ranks", function()
  it("tensors that are cut or sums that nobody has made", function()
    local folder = shell.temporary_folder()
    shell.write(folder .. "/lines", lines)
    local text = shell.run(("cd %s && %s repl -n 2 <lines 2>&1"):format(shell.quote(folder),
      shell.quote(shell.executable()))).out
    shell.remove(folder)
    local first = "min %-7  max 292  mean 142%.5\n%s+%-7, %-6, %-5, %-4, %-3, %-2,"
    local _, whole = text:gsub("tensor f32 %(100, 3%)  " .. first, "")
    assert.equal(3, whole, text)
    assert.matches("(4, 2)  min 0  max 7  mean 3.5", text, 1, true)
    assert.matches("[6.0000, 7.0000]]", text, 1, true)
    assert.matches("(3)  min 14150  max 14350  mean 14250", text, 1, true)
  end)
end)
