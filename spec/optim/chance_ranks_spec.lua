--- What is rounded by chance has the same bits on two ranks as on one, in every ZeRO stage and in tensor parallelism:
-- parameters of bf16 without masters, and moments in bf16. Gradients are sums of small whole numbers, which bf16 holds
-- exactly, so that nothing else can differ. The truth is the run on one rank.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

-- 2 ranks cut 70 outputs evenly and 97 rows of the table not. Biases have fewer elements than moments in bf16 need.
local recipe = [[
local gm = require "ganymede"
local core = require "ganymede.core"
local sha256 = require "ganymede.base.sha256"
gm.launch { steps = 4, seed = 4, dtype = "bf16", parallel = %s, zero = %s }
local Model = gm.nn.class("Model", nil)
Model.options = {}
function Model:build()
  self.up, self.down = gm.nn.Linear(96, 70), gm.nn.Linear(96, 70)
  self:param("table", { 97, 51 }, gm.nn.init.normal {})
end
function Model:forward(x)
  return gm.ops.add(self.up(x):sum(), self.down(x):sum()) + gm.ops.linear(x:narrow(2, 1, 51), self.table):sum()
end
local engine = gm.initialize { model = Model {}, optimizer = %s, criterion = function(y) return y end }
for step = 1, 4 do
  engine:announce({ 4 }, 1)
  engine:zero_grad()
  gm.scope(function()
    local x = gm.normal({ 4, 96 }, { seed = step, dtype = "f32" })
    x = gm.ops.where(x:gt(0), gm.ones({ 4, 96 }), -2):to "bf16"
    if gm.context.get_world_size "DATA" > 1 then x = x:redistribute { cuts = { { "data" }, {} } } end
    engine:backward(engine(x))
  end)
  engine:step()
end
local function say(name, t)
  local whole = core.gather(t):to("f32"):reshape(-1):totable()
  for i, v in ipairs(whole) do whole[i] = ("%%.9g"):format(v) end
  if core.rank() == 0 then print(name, sha256(table.concat(whole, " "))) end
end
for _, p in ipairs(engine.model:named_parameters()) do say(p.name, p.tensor) end
for _, entry in ipairs(engine.optimizer:state()) do say(entry.name, entry.tensor) end
]]

local optimizers = {
  weights = [[{ type = "AdamW", lr = 3e-3, master_weights = false }]],
  moments = [[{ type = "AdamW", lr = 3e-3, state_dtype = "bf16" }]],
  both = [[{ type = "SGD", lr = 3e-3, momentum = 0.9, state_dtype = "bf16", master_weights = false }]],
}

describe("what is rounded by chance #ranks", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local function run(n, parallel, zero, optimizer)
    shell.write(folder .. "/recipe.lua", recipe:format(parallel, zero, optimizer))
    local result = run_host({ "run", "recipe.lua", "-n", tostring(n), "--threads", "1" },
      { cwd = folder })
    assert.equal(0, result.code, result.err)
    return result.out
  end

  for _, what in ipairs { "weights", "moments", "both" } do
    it("has the bits of one rank: " .. what, function()
      local one = run(1, "{}", "0", optimizers[what])
      assert.truthy(one:find("table", 1, true), one)
      for _, zero in ipairs { "0", "1", "2", "{ stage = 3, whole_below = 0 }" } do
        assert.equal(one, run(2, "{ data = 2 }", zero, optimizers[what]), "zero = " .. zero)
      end
      assert.equal(one, run(2, "{ tensor = { size = 2, mode = '1d' } }", "0", optimizers[what]))
    end)
  end
end)
