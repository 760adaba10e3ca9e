--- gradient_dtype = "f32": gradients of 16-bit parameters that are held, added up and summed in f32.
--
-- A bf16 number has 8 bits: of 1 + 2^-9 + 2^-9 + ... nothing arrives but the 1. Terms here are powers of two, so that
-- their sum is known without rounding, and f32 holds it exactly.
local gm = require "ganymede"
local core = require "ganymede.core"
local run_host = require "spec.support.run_host"
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"

-- Adds to the gradient of w once 1 and n times `small`, through a product -> the gradient.
local function summed(wide, n, small)
  local w = gm.zeros({ 1, 1 }, { dtype = "bf16" }):requires_grad(true)
  core.wide_gradients({ w }, wide)
  for i = 0, n do
    gm.scope(function()
      local x = gm.full({ 1, 1 }, i == 0 and 1 or small, { dtype = "bf16" })
      gm.ops.linear(x, w):sum():backward()
    end)
  end
  return w:grad()
end

describe("gradient_dtype", function()
  it("f32 keeps what bf16 loses of many small gradients", function()
    local truth = 1 + 64 * 2 ^ -9
    local wide, narrow = summed(true, 64, 2 ^ -9), summed(false, 64, 2 ^ -9)
    assert.same({ "f32", "bf16" }, { wide:dtype(), narrow:dtype() })
    assert.equal(truth, wide:item())
    assert.equal(1, narrow:item())
  end)

  it("f32 adds up what rules give in 16 bits: tables, biases, norms, experts", function()
    local layers = {
      gm.nn.LayerNorm { width = 4 }, gm.nn.RMSNorm { width = 4 }, gm.nn.Linear(4, 4),
      gm.nn.MoE { width = 4, experts = 2, k = 1 },
    }
    for _, layer in ipairs(layers) do
      layer:materialize { dtype = "bf16" }
      core.wide_gradients(layer:parameters(), true)
      local x, once = gm.uniform({ 2, 3, 4 }, { seed = 3, dtype = "bf16" }), {}
      for pass = 1, 2 do -- of equal terms: the sum is twice the first, without rounding
        gm.scope(function() gm.ops.sum(layer(x) * x):backward() end)
        for _, p in ipairs(layer:named_parameters()) do
          local g = p.tensor:grad()
          assert.equal("f32", g:dtype(), p.name)
          once[p.name] = once[p.name] or g * 2
          if pass == 2 then assert.same(once[p.name]:totable(), g:totable(), p.name) end
        end
      end
    end
  end)

  it("converts what a gradient holds, back and forth", function()
    local w = gm.zeros({ 3 }, { dtype = "bf16" }):requires_grad(true)
    gm.ops.sum(w * 3):backward()
    core.wide_gradients({ w }, true)
    assert.same({ "f32", { 3, 3, 3 } }, { w:grad():dtype(), w:grad():totable() })
    core.wide_gradients({ w }, false)
    assert.same({ "bf16", { 3, 3, 3 } }, { w:grad():dtype(), w:grad():totable() })
  end)

  it("is refused where parameters are f64", function()
    local folder = shell.temporary_folder()
    job.write(folder, job.changed(job.gpt, { 'name = "gpt"', 'name = "gpt", dtype = "f64", gradient_dtype = "f32"' }))
    local result = run_host({ "check", "recipe.lua" }, { cwd = folder })
    shell.remove(folder)
    assert.equal(2, result.code)
    assert.truthy(result.err:find("gradient_dtype asks for less than the f64 of dtype", 1, true), result.err)
  end)
end)

-- A parameter of bf16 whose gradient is 1 in one batch of a step and 2^-9 in the others, by SGD with the rate 1: the
-- master shows the sum. On two ranks each has half of the samples.
local in_code = [[
local gm = require "ganymede"
gm.launch { steps = 1, seed = 4, dtype = "bf16", parallel = { data = "auto" }, zero = %s, gradient_dtype = "%s" }
local Model = gm.nn.class("Model", nil)
Model.options = {}
function Model:build() self:param("w", { 4, 4 }, gm.nn.init.zeros {}) end
function Model:forward(x) return gm.ops.linear(x, self.w) end
local engine = gm.initialize { model = Model {}, optimizer = { type = "SGD", lr = 1 }, gradient_accumulation = 33,
  criterion = function(y) return y:sum() * (1 / y:size(1)) end }
engine:announce({ 2 }, 33)
engine:zero_grad()
for i = 0, 32 do
  gm.scope(function()
    local x = gm.full({ 2, 4 }, i == 0 and 0.5 or 2 ^ -10, { dtype = "bf16" })
    if gm.context.get_world_size "DATA" > 1 then x = x:redistribute { cuts = { { "data" }, {} } } end
    engine:backward(engine(x):sum())
  end)
end
engine:step()
for _, entry in ipairs(engine.optimizer:state()) do
  local whole = entry.tensor:gather()
  if gm.context.get_local_rank "GLOBAL" == 0 then print(entry.name, ("%%.10f"):format(whole:sum():item() / 16)) end
end
]]

describe("gradient_dtype on ranks #ranks", function()
  local function run(ranks, zero, dtype)
    local folder = shell.temporary_folder()
    shell.write(folder .. "/recipe.lua", in_code:format(zero, dtype))
    local result = run_host({ "run", "recipe.lua", "-n", tostring(ranks), "--threads", "1" },
      { cwd = folder })
    shell.remove(folder)
    assert.equal(0, result.code, result.err)
    return tonumber(result.out:match "master/w%s+(%S+)")
  end

  it("sums in f32 in every stage, so that nothing is lost", function()
    local truth = -(1 + 32 * 2 ^ -9)
    for _, mesh in ipairs { { 1, "0" }, { 2, "0" }, { 2, "1" }, { 2, "2" }, { 2, "{ stage = 3, whole_below = 0 }" } } do
      assert.equal(truth, run(mesh[1], mesh[2], "f32"), mesh[1] .. " ranks, zero = " .. mesh[2])
    end
    assert.is_true(math.abs(truth - run(2, "2", "auto")) > 0.05)
  end)
end)
