-- ops_beside.lua - functions, sums, norms, pooling and recurrent layers, timed on demand by ops_beside.py, which says
-- what they are. Cases that begin with "grad" run forward and backward.
local gm = require "ganymede"
local nn, ops = gm.nn, gm.ops

gm.launch {}

local function normal(...) return gm.normal({ ... }, { seed = 1 }):keep() end
local function leaf(...) return normal(...):requires_grad(true) end

local cases = {}

-- A call that also runs backward, from the sum of its result.
local function grad(call)
  return function() call():sum():backward() end
end

local function functions()
  local x, y, z = normal(300000), normal(300000), leaf(300000)
  local p = (x:abs() + 0.1):keep()
  cases.copy = function() return x:clone() end
  cases.exp = function() return x:exp() end
  cases.log = function() return p:log() end
  cases.sin = function() return x:sin() end
  cases.cos = function() return x:cos() end
  cases["sin large"] = function() return (x * 1e5):sin() end
  cases.pow = function() return p:pow(y) end
  cases["power 1.7"] = function() return p:pow(1.7) end
  cases["power 3"] = function() return x:pow(3) end
  cases.clamp = function() return x:clamp(-1, 1) end
  cases["grad sin"] = grad(function() return z:sin() end)
  cases["grad power 1.7"] = grad(function() return (z * z + 0.1):pow(1.7) end)
  cases["grad clamp"] = grad(function() return z:clamp(-1, 1) end)
end

local function sums()
  local rows, columns, long = normal(1024, 300), normal(300, 1024), normal(300000)
  cases["cumsum rows"] = function() return rows:cumsum(2) end
  cases["cumsum columns"] = function() return columns:cumsum(1) end
  cases["cumsum one"] = function() return long:cumsum(1) end
end

local function images()
  local x, z = normal(8, 64, 32, 32), leaf(8, 64, 32, 32)
  local norm, instance = nn.GroupNorm { groups = 8, channels = 64 }, nn.InstanceNorm2d { channels = 64 }
  cases["group norm"] = function() return norm(x) end
  cases["instance norm"] = function() return instance(x) end
  cases["grad group norm"] = grad(function() return norm(z) end)
  cases["max pool 2"] = function() return ops.max_pool(x, 2) end
  cases["max pool 3"] = function() return ops.max_pool(x, 3, 2, 1) end
  cases["max pool global"] = function() return ops.adaptive_max_pool(x, 1) end
  cases["avg pool 2"] = function() return ops.avg_pool(x, 2) end
  cases["avg pool 3"] = function() return ops.avg_pool(x, 3, 2, 1) end
  cases["grad max pool 2"] = grad(function() return ops.max_pool(z, 2) end)
  cases["grad max pool 3"] = grad(function() return ops.max_pool(z, 3, 2, 1) end)
  cases["grad avg pool 2"] = grad(function() return ops.avg_pool(z, 2) end)
end

local function recurrent()
  local x, z = normal(32, 64, 64), leaf(32, 64, 64)
  for name, net in pairs { lstm = nn.LSTM { inputs = 64, hidden = 128, returns = "sequence" },
                           gru = nn.GRU { inputs = 64, hidden = 128, returns = "sequence" } } do
    cases[name] = function() return net(x) end
    cases["grad " .. name] = grad(function() return net(z) end)
  end
end

functions()
sums()
images()
recurrent()

dofile(GANYMEDE_ROOT .. "/spec/bench/timed_cases.lua")(cases)
