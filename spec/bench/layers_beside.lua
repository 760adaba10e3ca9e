-- layers_beside.lua - norms, losses, tables, order, shapes, comparisons and dtypes, timed on demand by
-- layers_beside.py, which says what they are. Cases that begin with "grad" run forward and backward.
local gm = require "ganymede"
local nn, ops = gm.nn, gm.ops

gm.launch {}

local function normal(...) return gm.normal({ ... }, { seed = 1 }):keep() end
local function leaf(...) return normal(...):requires_grad(true) end
local function below(n, count)
  return (gm.uniform({ count }, { high = n - 0.01, seed = 2, dtype = "f64" })):to("i64"):keep()
end

local cases = {}

-- A call that also runs backward, from the sum of its result.
local function grad(call)
  return function() call():sum():backward() end
end

local function rows_of(n)
  local rows = math.floor(300000 / n)
  local x, z, w, b = normal(rows, n), leaf(rows, n), leaf(n), leaf(n)
  cases["softmax " .. n] = function() return x:softmax(2) end
  cases["log softmax " .. n] = function() return x:log_softmax(2) end
  cases["layer norm " .. n] = function() return ops.layer_norm(x, w, b) end
  cases["rms norm " .. n] = function() return ops.rms_norm(x, w) end
  cases["grad softmax " .. n] = grad(function() return z:softmax(2) end)
  cases["grad layer norm " .. n] = grad(function() return ops.layer_norm(z, w, b) end)
  cases["grad rms norm " .. n] = grad(function() return ops.rms_norm(z, w) end)
end

local function norms()
  for _, n in ipairs { 7, 65, 96, 768, 1000 } do rows_of(n) end
  local x, z, between = normal(16, 64, 16, 16), leaf(16, 64, 16, 16), normal(32, 64, 150)
  local trained, used = nn.BatchNorm2d { channels = 64 }, nn.BatchNorm2d { channels = 64 }
  local rows, wide = normal(300, 64, 16), nn.BatchNorm1d { channels = 64 }
  local flat, dense = normal(4096, 64), nn.BatchNorm1d { channels = 64 }
  used:eval()
  cases["softmax columns"] = function() return between:softmax(2) end
  cases["batch norm"] = function() return trained(x) end
  cases["batch norm used"] = function() return used(x) end
  cases["batch norm 1d"] = function() return wide(rows) end
  cases["batch norm flat"] = function() return dense(flat) end
  cases["grad batch norm"] = grad(function() return trained(z) end)
end

local function losses()
  local criterion = nn.CrossEntropyLoss {}
  for _, n in ipairs { 10, 1000, 50257 } do
    local rows = math.max(math.floor(300000 / n), 16)
    local x, z, target = normal(rows, n), leaf(rows, n), below(n, rows)
    cases["cross entropy " .. n] = function() return criterion(x, target) end
    cases["grad cross entropy " .. n] = function() criterion(z, target):backward() end
  end
  local y, z, target = normal(300000), leaf(300000), gm.uniform({ 300000 }, { seed = 3 }):keep()
  local mse, l1, bce = nn.MSELoss {}, nn.L1Loss {}, nn.BCEWithLogitsLoss {}
  cases["grad mse"] = function() mse(z, y):backward() end
  cases["grad l1"] = function() l1(z, y):backward() end
  cases["grad bce"] = function() bce(z, target):backward() end
end

local function tables()
  local w, v, narrow = normal(50000, 64), leaf(5000, 64), normal(5000, 4)
  local index, few, places = below(50000, 4096), below(5000, 4096), below(5000, 65536)
  local classes = below(100, 1024)
  cases["embedding"] = function() return ops.embedding(w, index) end
  cases["embedding 4"] = function() return ops.embedding(narrow, places) end
  cases["grad embedding"] = grad(function() return ops.embedding(v, few) end)
  cases["one hot"] = function() return ops.one_hot(classes, 100) end
end

local function order()
  local x, columns, long = normal(512, 600), normal(600, 512), normal(300000)
  local z, few = leaf(512, 600), normal(30000, 10)
  cases["sort"] = function() return x:sort(2) end
  cases["sort one"] = function() return long:sort(1) end
  cases["sort 10"] = function() return few:sort(2) end
  cases["top 5"] = function() return ops.top_k(x, 5) end
  cases["top 50"] = function() return ops.top_k(x, 50) end
  cases["top 2 of 10"] = function() return ops.top_k(few, 2) end
  cases["argmax"] = function() return x:argmax(2) end
  cases["argmax 10"] = function() return few:argmax(2) end
  cases["max"] = function() return x:max(2) end
  cases["max columns"] = function() return columns:max(1) end
  cases["max 10"] = function() return few:max(2) end
  cases["grad max"] = grad(function() return (z:max(2)) end)
  cases["sum all"] = function() return long:sum() end
  cases["mean rows"] = function() return x:mean(2) end
  cases["var rows"] = function() return x:var(2) end
  cases["var columns"] = function() return columns:var(1) end
end

local function shapes()
  local x, y, image, z = normal(512, 600), normal(512, 600), normal(8, 32, 32, 32), leaf(8, 32, 32, 32)
  local tokens, w3, w7, small = normal(16, 16, 16, 64), normal(32, 1, 3, 3), normal(64, 1, 7, 7), normal(8, 64, 14, 14)
  cases["cat rows"] = function() return ops.cat({ x, y }, 1) end
  cases["cat columns"] = function() return ops.cat({ x, y }, 2) end
  cases["stack"] = function() return ops.stack({ x, y }, 3) end
  cases["transpose"] = function() return x:permute({ 2, 1 }):contiguous() end
  cases["heads"] = function() return tokens:permute({ 1, 3, 2, 4 }):contiguous() end
  cases["channels last"] = function() return image:permute({ 1, 3, 4, 2 }):contiguous() end
  cases["channels first"] = function() return tokens:permute({ 1, 4, 2, 3 }):contiguous() end
  cases["roll"] = function() return ops.roll(x, 3, 2) end
  cases["roll two"] = function() return ops.roll(tokens, { 3, 3 }, { 2, 3 }) end
  cases["pad"] = function() return ops.pad(image, { 1, 1, 1, 1 }) end
  cases["pad reflect"] = function() return ops.pad(image, { 1, 1, 1, 1 }, { mode = "reflect" }) end
  cases["nearest"] = function() return ops.interpolate(image, { scale = 2 }) end
  cases["bilinear"] = function() return ops.interpolate(image, { scale = 2, mode = "linear" }) end
  cases["grad nearest"] = grad(function() return ops.interpolate(z, { scale = 2 }) end)
  cases["grad bilinear"] = grad(function() return ops.interpolate(z, { scale = 2, mode = "linear" }) end)
  cases["adaptive avg"] = function() return ops.adaptive_avg_pool(image, 7) end
  cases["mean of image"] = function() return image:mean({ 3, 4 }) end
  cases["grad mean of image"] = grad(function() return z:mean({ 3, 4 }) end)
  cases["depthwise 3"] = function() return ops.convolution(image, w3, false, { padding = 1, groups = 32 }) end
  cases["depthwise 7"] = function() return ops.convolution(small, w7, false, { padding = 3, groups = 64 }) end
end

-- Functions of one tensor, by the names of ops.
local function functions(x)
  for _, name in ipairs { "sqrt", "sigmoid", "tanh", "gelu", "silu", "relu", "abs" } do
    cases[name] = function() return ops[name](x) end
  end
end

local function elements()
  local x, y, z, rows = normal(300000), normal(300000), leaf(300000), normal(512, 600)
  local mask = ops.gt(rows, 0):keep()
  functions(x)
  cases["add"] = function() return x + y end
  cases["add 1"] = function() return x + 1 end
  cases["div"] = function() return x / y end
  cases["less"] = function() return ops.lt(x, y) end
  cases["where"] = function() return ops.where(mask, rows, 0) end
  cases["maximum"] = function() return ops.maximum(x, y) end
  cases["grad gelu"] = grad(function() return ops.gelu(z) end)
  cases["grad mul"] = grad(function() return z * y end)
  local dropout = nn.Dropout(0.1)
  cases["dropout"] = function() return dropout(x) end
  cases["normal"] = function() return gm.normal({ 300000 }) end
  cases["uniform"] = function() return gm.uniform({ 300000 }) end
  cases["arange"] = function() return gm.arange(300000) end
  cases["zeros"] = function() return gm.zeros({ 300000 }) end
end

local function dtypes()
  local x, rows = normal(300000), normal(512, 600)
  local positive, whole = x:abs():keep(), (x * 3):to("i64"):keep()
  local bytes = (positive * 3):to("u8"):keep()
  for _, dtype in ipairs { "bf16", "f16", "f64", "i64", "i32" } do
    cases["to " .. dtype] = function() return x:to(dtype) end
  end
  cases["to u8"] = function() return positive:abs():to("u8") end
  cases["from i64"] = function() return whole:to("f32") end
  cases["from u8"] = function() return bytes:to("f32") end
  for _, dtype in ipairs { "f16", "bf16" } do
    local narrow, lines = x:to(dtype):keep(), rows:to(dtype):keep()
    cases["from " .. dtype] = function() return narrow:to("f32") end
    cases["add " .. dtype] = function() return narrow + narrow end
    cases["gelu " .. dtype] = function() return ops.gelu(narrow) end
    cases["sum " .. dtype] = function() return narrow:sum() end
    cases["softmax " .. dtype] = function() return lines:softmax(2) end
    cases["layer norm " .. dtype] = function() return ops.layer_norm(lines) end
  end
end

norms()
losses()
tables()
order()
shapes()
elements()
dtypes()

dofile(GANYMEDE_ROOT .. "/spec/bench/timed_cases.lua")(cases)
