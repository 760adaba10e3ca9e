-- What one spec file leaves behind does not reach the next one: registered classes, the default dtype, settings of
-- gm.launch, a loss scale, memory.
local support = require "spec.cli.support"
local shell = support.shell

local leaves = [[
local gm = require "ganymede"
it("leaves all kinds of things behind", function()
  gm.nn.class "LeftBehind"
  gm.launch { clip_grad_norm = 0.5, dtype = "f64", seed = 5 }
  local layer = gm.nn.Linear(3, 2)
  layer:materialize { dtype = "f16" }
  local engine = gm.initialize { model = layer, fp16 = { initial_scale = 1024 } }
  assert(engine.loss_scaling)
  gm.memory_limit(2 ^ 30)
  require("ganymede.core").no_grad(1)
end)
]]

local finds = [[
local gm = require "ganymede"
it("finds none of it", function()
  gm.nn.class "LeftBehind"
  assert.equal("f32", gm.default_dtype())
  assert.equal(0, gm.initialize({ model = gm.nn.Linear(3, 2) }).clip_grad_norm)
  local x = gm.tensor({ 2 }):requires_grad(true)
  gm.ops.sum(x * 3):backward()
  assert.equal(3, x:grad():item())
end)
]]

describe("ganymede spec of several files", function()
  local folder
  after_each(function() shell.remove(folder) end)

  it("gives each what it has alone", function()
    folder = shell.temporary_folder()
    for name, text in pairs { a = leaves, b = finds, c = finds } do
      shell.write(folder .. "/" .. name .. "_spec.lua", text)
    end
    local result = support.run(GANYMEDE_ROOT, { "spec", folder })
    assert.equal(0, result.code, result.out)
    assert.is_truthy(result.out:find "3 passed, 0 failed")
  end)
end)
