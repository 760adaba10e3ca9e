--- Tensors: making them, their methods, how they print, and the scopes that own them.
--
-- A tensor made inside a scope (gm.scope, a module call, a training step) is released when the scope
-- ends, unless the scope returns it or it is :keep()'ed. Element indices and dimensions count from 1.
--
-- Shapes and indices are those of the whole tensor, also where ranks hold a block each (:local_tensor()). Reading
-- elements of a tensor that is cut or still a sum over ranks (item, get, totable, printing, indexing, a gradient not
-- yet reduced) is collective: the trap is to do it on one rank only.
-- @module ganymede.tensor
local core = require "ganymede.core"
local missing = require "ganymede.base.missing"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"

local M = {}
local methods = {}

-- ---------------------------------------------------------------- making

local dtype = { type = "string", optional = true, one_of = require("ganymede.base.dtypes").all,
                doc = "the type of the elements" }
local seed = { type = "integer", optional = true, doc = "the seed, on which alone the numbers depend" }
local typed = { dtype = dtype, shared = { type = "boolean", default = false,
  doc = "whether it lies in memory that the ranks of this machine share, where they do (docs/ranks.md): collectives of "
    .. "16 KiB and more are faster there, products slower" } }

local function as_list(name)
  return ("a shape is a list: %s({ 2, 3 }%s)"):format(name, name == "gm.full" and ", value" or "")
end

local MOST_DIMENSIONS = 8 -- GM_MAX_DIMS of kernels/tensor.h

local is_list = { type = "list" }

local function check_shape(name, shape)
  local why = options.problem(is_list, shape)
  if why then error(("%s: the shape %s"):format(name, why), 3) end
  if #shape > MOST_DIMENSIONS then
    error(("%s: a tensor has at most %d dimensions; the shape has %d"):format(name, MOST_DIMENSIONS, #shape), 3)
  end
  for i = 1, #shape do
    local n = shape[i]
    if type(n) ~= "number" or n < 0 or n ~= math.floor(n) then
      error(("%s: size %d of the shape is %s; sizes are whole numbers, and none is negative"):format(name, i,
        options.brief(n)), 3)
    end
  end
end

local function define(name, text, spec, fn, instead)
  local full_name, made = "gm." .. name, fn
  if text:find "^shape" then
    instead = as_list(full_name)
    function made(shape, a, b)
      check_shape(full_name, shape)
      return fn(shape, a, b)
    end
  end
  M[name] = signature.declare(full_name, text, spec, made, instead)
  signature.of(M[name]).source = debug.getinfo(fn, "S") -- whose comment tells more
end

--- Makes a tensor of numbers that stand in a list of lists.
-- @param values a number, or lists nested as deep as there are dimensions; with `shape` one flat list, row by row
-- @param options dtype and shape
-- @return a new tensor; its dtype is gm.default_dtype() unless it is given
-- @error lists of one depth differ in length, or an element is no number
-- @see tensor:totable, gm.full
-- @example
--   gm.tensor({ { 1, 2 }, { 3, 4 } }):shape() --> { 2, 2 }
--   gm.tensor({ 1, 2, 3, 4 }, { shape = { 2, 2 }, dtype = "i64" }) --> { { 1, 2 }, { 3, 4 } }
define("tensor", "values number|table, options options?", {
  dtype = dtype, shape = { type = "list", optional = true,
    doc = "the shape of the tensor, whose elements are a flat list, row by row" },
}, function(values, opt)
  if opt.shape then check_shape("gm.tensor", opt.shape) end
  return core.tensor(values, opt.dtype, opt.shape)
end)

--- Makes a tensor whose elements are whatever the memory holds: something else must write them.
-- @param shape a list of sizes
-- @param options dtype
-- @return a new tensor
-- @error a size is negative or no whole number
-- @see gm.zeros
-- @example
--   gm.empty({ 2, 3 }):shape() --> { 2, 3 }
define("empty", "shape table, options options?", typed, function(shape, opt)
  return core.empty(shape, opt.dtype, opt.shared)
end)

local function full(shape, value, opt) return core.fill_(core.empty(shape, opt.dtype, opt.shared), value) end

--- Makes a tensor of one number everywhere.
-- @param shape a list of sizes
-- @param value every element
-- @param options dtype
-- @return a new tensor
-- @error a size is negative or no whole number
-- @see tensor:fill_
-- @example
--   gm.full({ 2 }, 7) --> { 7, 7 }
define("full", "shape table, value number, options options?", typed, full)

--- Makes a tensor of zeros.
-- @param shape a list of sizes
-- @param options dtype
-- @return a new tensor
-- @error a size is negative or no whole number
-- @see gm.ones, gm.full
-- @example
--   gm.zeros { 2 } --> { 0, 0 }
define("zeros", "shape table, options options?", typed, function(shape, opt) return full(shape, 0, opt) end)

--- Makes a tensor of ones.
-- @param shape a list of sizes
-- @param options dtype
-- @return a new tensor
-- @error a size is negative or no whole number
-- @see gm.zeros, gm.full
-- @example
--   gm.ones({ 2 }, { dtype = "f64" }) --> { 1, 1 }
define("ones", "shape table, options options?", typed, function(shape, opt) return full(shape, 1, opt) end)

--- Makes a tensor that counts: 0, 1, 2, up to n - 1.
-- @param n how many numbers
-- @param options dtype; left out: i64
-- @return a new tensor
-- @shape (n)
-- @see gm.tensor
-- @example
--   gm.arange(4) --> { 0, 1, 2, 3 }
define("arange", "n integer, options options?", { dtype = dtype }, function(n, opt)
  return core.arange(n, opt.dtype)
end, "it counts from 0 to n - 1; gm.arange(n) * step + first is another range")

--- Makes a tensor of random numbers, all equally likely between two bounds.
-- @param shape a list of sizes
-- @param options the bounds and the dtype; with a seed the numbers depend on it alone
-- @return a new tensor
-- @formula low <= x < high
-- @see gm.normal
-- @example
--   gm.uniform({ 100 }, { low = 2, high = 3, seed = 1 }):lt(3):to("f32"):sum():item() --> 100
define("uniform", "shape table, options options?", {
  dtype = dtype, seed = seed, low = { type = "number", optional = true, initial = "0",
    doc = "the lower bound, which may be drawn" },
  high = { type = "number", optional = true, initial = "1", doc = "the upper bound, which no number reaches" },
}, function(shape, opt) return core.random("uniform", shape, opt.dtype, opt, opt.seed) end)

--- Makes a tensor of random numbers of a normal distribution.
-- @param shape a list of sizes
-- @param options mean and deviation; with truncated = true also the bounds
-- @return a new tensor
-- @error low or high is given without truncated = true
-- @see gm.uniform
-- @example
--   gm.normal({ 2, 3 }, { std = 0.02, seed = 1 }):shape() --> { 2, 3 }
define("normal", "shape table, options options?", {
  dtype = dtype, seed = seed, mean = { type = "number", optional = true, initial = "0",
    doc = "the mean of the distribution" },
  std = { type = "number", optional = true, initial = "1", min = 0,
    doc = "the standard deviation of the distribution" },
  truncated = { type = "boolean", optional = true, initial = "false",
    doc = "whether numbers outside [low, high] are drawn again" },
  low = { type = "number", optional = true, initial = "0", doc = "with truncated: the smallest number" },
  high = { type = "number", optional = true, initial = "1", doc = "with truncated: the largest number" },
}, function(shape, opt)
  if (opt.low or opt.high) and not opt.truncated then
    error("gm.normal: low and high need truncated = true", 2)
  end
  return core.random("normal", shape, opt.dtype, opt, opt.seed)
end)

M.is_tensor, M.default_dtype, M.set_default_dtype = core.is_tensor, core.default_dtype, core.set_default_dtype
M.memory, M.memory_holders = core.memory, core.memory_holders
M.memory_limit, M.memory_reset_peak = core.memory_limit, core.memory_reset_peak

-- ---------------------------------------------------------------- scopes

local function with_traceback(err)
  if type(err) == "string" and (tonumber(os.getenv "GM_LOG") or 0) >= 3 then return debug.traceback(err, 2) end
  return err
end

-- Scopes left open inside (a loop over a loader, ended by break) are closed too.
local function close_scope(depth, ok, ...)
  if not ok then
    core.scope_unwind(depth)
    error((...), 0)
  end
  while core.scope_depth() > depth do core.scope_close(...) end
  return ...
end

--- Runs fn(...) in a scope of its own: when it ends, by return or by error, every tensor made inside is released.
-- What fn returns stays, also inside tables. What was recorded lives as long as a tensor leads to it.
-- @param fn the function
-- @param arguments what it is called with
-- @return what fn returns
-- @error what fn raises
-- @see tensor:keep, gm.memory
-- @example
--   gm.scope(function() return gm.ones({ 2 }) * 3 end) --> { 3, 3 }
define("scope", "fn function, arguments any?, ...", nil, function(fn, ...)
  local depth = core.scope_depth()
  core.scope_open()
  return close_scope(depth, xpcall(fn, with_traceback, ...))
end)

local function leave_no_grad(ok, ...)
  core.no_grad(-1)
  if not ok then error((...), 0) end
  return ...
end

--- Runs fn(...) without recording it for gradients.
-- @param fn the function
-- @param arguments what it is called with
-- @return what fn returns
-- @error what fn raises
-- @see tensor:detach, tensor:backward
-- @example
--   x = gm.ones({ 2 }):requires_grad(true)
--   gm.no_grad(function() return x * 2 end):requires_grad() --> false
define("no_grad", "fn function, arguments any?, ...", nil, function(fn, ...)
  core.no_grad(1)
  return leave_no_grad(pcall(fn, ...))
end)

local function leave_enabled(depth, ok, ...)
  core.no_grad(depth)
  if not ok then error((...), 0) end
  return ...
end

--- Runs fn(...) and records it for gradients, also inside of gm.no_grad. Hooks run there, and may train something.
-- @param fn the function
-- @param arguments what it is called with
-- @return what fn returns
-- @error what fn raises
-- @see gm.no_grad
-- @example
--   x = gm.ones({ 2 }):requires_grad(true)
--   gm.no_grad(gm.enable_grad, function() return x * 2 end):requires_grad() --> true
define("enable_grad", "fn function, arguments any?, ...", nil, function(fn, ...)
  local depth = core.no_grad(0)
  core.no_grad(-depth)
  return leave_enabled(depth, pcall(fn, ...))
end)

--- Looks for the first number that is not finite: from now on an op, or the backward pass of one, fails if it makes
-- NaN, or an infinity from finite numbers. The message names the op and its module. Steps take several times as long. A
-- recipe says detect_anomaly = true.
-- @param on whether to look
-- @return whether it was on before
-- @see gm.no_grad
-- @example
--   gm.detect_anomaly(true)
--   (pcall(function() return gm.zeros({ 1 }):log() end)) --> false
--   gm.detect_anomaly(false)
define("detect_anomaly", "on boolean", nil, function(on) return core.detect_anomaly(on) end)

-- What forward returned, as a list of tensors.
local function outputs_of(...)
  if select("#", ...) == 0 then error("gm.custom: forward must return a tensor or several; it returned nothing", 0) end
  for i = 1, select("#", ...) do
    local y = select(i, ...)
    if not core.is_tensor(y) then
      error(("gm.custom: forward must return tensors; output %d is %s"):format(i, options.brief(y)), 0)
    end
  end
  return { ... }
end

-- What backward returned, for n inputs.
local function gradients_of(n, ...)
  local given = select("#", ...)
  local function wrong_number(rest)
    error(("gm.custom: backward returned %s for %d input%s%s"):format(given == 0 and "nothing"
      or ("%d gradient%s"):format(given, given == 1 and "" or "s"), n, n == 1 and "" or "s", rest), 0)
  end
  if given < n then wrong_number "; it returns one for each, and nil for an input that needs none" end
  for i = 1, given do
    local g = select(i, ...)
    if g ~= nil and i > n then
      wrong_number ""
    elseif g ~= nil and not core.is_tensor(g) then
      error(("gm.custom: backward must return a tensor or nil for each input; gradient %d is %s"):format(i,
        options.brief(g)), 0)
    end
  end
  return ...
end

--- Makes a differentiable function of a forward and a backward function of yours.
-- forward(tensors) gives the outputs, and is not recorded. backward(gradients of the outputs) gives a gradient for each
-- input, nil for none.
--
-- What backward needs of forward must outlive the scope in which forward ran: keep it (x:keep()), inputs too. Make the
-- function anew for each call, as in the second example. Otherwise a second call, such as that of the next micro-batch,
-- replaces what the first one has kept.
--
-- With splits = true, backward receives one more argument, a list with true or false for each input: it computes only
-- the gradients asked for. Zero-bubble schedules then call it twice, first for the gradients for which the stage before
-- waits, later for parameters; without it they call it once, for all inputs.
-- @param definition the two functions
-- @return a function of tensors
-- @see tensor:backward
-- @example
--   double = gm.custom { forward = function(x) return x * 2 end, backward = function(g) return g * 2 end }
--   x = gm.ones({ 2 }):requires_grad(true)
--   double(x):sum():backward()
--   x:grad() --> { 2, 2 }
--   cube = function(x)
--     x:keep()
--     return gm.custom { forward = function() return x ^ 3 end, backward = function(g) return 3 * g * x ^ 2 end }(x)
--   end
--   y = gm.tensor({ 2 }):requires_grad(true)
--   cube(y):sum():backward()
--   y:grad() --> { 12 }
define("custom", "definition options", {
  forward = { type = "function", doc = "a function of the inputs that returns the outputs; it runs without recording" },
  backward = { type = "function", doc = "a function of the gradients of the outputs that returns those of the inputs" },
  splits = { type = "boolean", default = false, doc = "whether backward receives a list of the gradients asked for" },
}, function(definition)
  return function(...)
    local inputs, outputs = { ... }, outputs_of(M.no_grad(definition.forward, ...))
    for i, y in ipairs(outputs) do -- an input that forward returns stays what it was
      if core.requires_grad(y) then outputs[i] = core.detach(y) end
    end
    local function backward(...) return gradients_of(#inputs, definition.backward(...)) end
    core.record_custom(inputs, outputs, backward, definition.splits)
    return unpack(outputs)
  end
end)

-- ---------------------------------------------------------------- methods

for _, name in ipairs { "shape", "size", "dim", "numel", "dtype", "get", "set", "item", "totable", "keep", "release",
                        "requires_grad", "grad", "retain_grad", "detach", "backward", "is_contiguous", "local_tensor",
                        "layout", "redistribute", "settle", "gather" } do
  methods[name] = core[name]
end
for _, name in ipairs { "reshape", "permute", "narrow", "select", "unbind", "expand", "contiguous", "clone", "sum",
                        "mean", "max", "min", "argmax", "softmax", "log_softmax", "exp", "log", "sqrt", "rsqrt", "abs",
                        "square", "sin", "cos", "tanh", "sigmoid", "relu", "gelu", "silu", "neg", "reciprocal",
                        "flatten", "chunk", "roll", "clamp", "cumsum", "var", "std", "sort", "matmul", "eq", "ne", "lt",
                        "le", "gt", "ge", "maximum", "minimum", "pow", "add", "sub", "mul", "div" } do
  methods[name] = ops[name]
end
methods.to, methods.fill_, methods.copy_ = core.to, core.fill_, core.copy_

local function dimension(t, d)
  local n = t:dim()
  local at = d < 0 and d + n + 1 or d
  if at >= 1 and at <= n then return at end
  error(("transpose: there is no dimension %d in a tensor of %d"):format(d, n), 3)
end

--- Exchanges two dimensions, without a copy.
-- @param t any tensor
-- @param a a dimension, from 1, or from -1 at the end
-- @param b another one
-- @return a view of the memory of t
-- @gradient t
-- @error there is no such dimension
-- @see ops.permute
-- @example
--   gm.tensor({ { 1, 2 }, { 3, 4 } }):transpose(1, 2) --> { { 1, 3 }, { 2, 4 } }
methods.transpose = signature.declare("transpose", "t tensor, a integer, b integer", nil, function(t, a, b)
  local order = {}
  a, b = dimension(t, a), dimension(t, b)
  for d = 1, t:dim() do order[d] = d end
  order[a], order[b] = order[b], order[a]
  return ops.permute(t, order)
end)

local ctype = { f32 = "float *", f64 = "double *", i32 = "int32_t *", i64 = "int64_t *", u8 = "uint8_t *",
                bf16 = "uint16_t *", f16 = "uint16_t *" }

--- Gives a pointer to the elements for LuaJIT's FFI, without a copy; it is good as long as the tensor lives.
-- What is written through it is not seen by the tape.
-- @param t a contiguous tensor on the CPU; bf16 and f16 are seen as uint16_t
-- @return a pointer, such as float *, which counts from 0
-- @error t is not contiguous, is cut over ranks, or is on a GPU
-- @see tensor:totable
-- @example
--   gm.tensor({ 5, 6 }):data()[1] --> 6
methods.data = signature.declare("data", "t tensor", nil, function(t)
  local address, name = core.data(t)
  return require("ffi").cast(ctype[name], address)
end)

-- ---------------------------------------------------------------- printing

local function format_number(v, integers)
  if v ~= v then return "nan" end
  if v == math.huge then return "inf" elseif v == -math.huge then return "-inf" end
  return integers and ("%d"):format(v) or ("%.4f"):format(v)
end

-- Long dimensions show their first and last three entries.
local function rows(list, depth, integers, out, indent)
  local parts, n = {}, #list
  for i = 1, n do
    if n > 12 and i > 3 and i < n - 2 then
      if i == 4 then parts[#parts + 1] = "..." end
    elseif depth == 1 then
      parts[#parts + 1] = format_number(list[i], integers)
    else
      parts[#parts + 1] = rows(list[i], depth - 1, integers, out, indent .. " ")
    end
  end
  if depth == 1 then return "[" .. table.concat(parts, ", ") .. "]" end
  return "[" .. table.concat(parts, ",\n" .. indent) .. "]"
end

local function show(t)
  local shape, kind = t:shape(), t:dtype()
  local head = ("tensor %s (%s)"):format(kind, table.concat(shape, ", "))
  if not core.is_known(t) then return head .. " on meta" end
  local integers = kind:sub(1, 1) == "i" or kind == "u8"
  if #shape == 0 then return head .. " " .. format_number(t:item(), integers) end
  if t:numel() > 100000 then return head end
  return head .. "\n" .. rows(t:totable(), #shape, integers, {}, " ")
end

local mt = core.tensor_metatable
mt.__index = function(t, key)
  if type(key) == "number" then return ops.select(core.is_cut(t, 1) and core.gather(t) or t, 1, key) end
  local method = methods[key]
  if method == nil then missing.refuse("tensor", key, 2) end
  return method
end
missing.provide("tensor", methods)
mt.__newindex = function() error("tensor elements are set with t:set(i, ..., value) or t:copy_(other)", 2) end
mt.__tostring = show
mt.__add, mt.__sub, mt.__mul, mt.__div, mt.__pow = ops.add, ops.sub, ops.mul, ops.div, ops.pow
mt.__unm = function(t) return ops.neg(t) end
mt.__len = function() error("a tensor has no length: t:size(1) is its first size, t:numel() counts all elements", 2) end
mt.__lt = function() error("tensors are not compared with < and the like: write a:lt(b), le, gt, ge, a:item()", 2) end
mt.__le = mt.__lt
mt.__metatable = "gm.tensor"

--- Method names, for completion and docs.
M.methods = methods

return M
