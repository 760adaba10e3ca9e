-- Every differentiable op against central differences in f64.
--
-- With step h = 1e-5 and values of order 1, truncation is h^2 = 1e-10 times a third derivative and
-- rounding eps / h = 2e-11, so 1e-8 leaves room for sums over a few dozen terms. Results are weighted
-- by fixed random numbers, so that no gradient is a plain sum, and the largest slope must exceed 1e-3.
local gm = require "ganymede"
local ops = gm.ops

local H, TOLERANCE = 1e-5, 1e-8

local function numeric_slope(input, i, weighted)
  local flat = input:detach():reshape(-1)
  local at = flat:get(i)
  flat:set(i, at + H)
  local up = gm.no_grad(weighted)
  flat:set(i, at - H)
  local down = gm.no_grad(weighted)
  flat:set(i, at)
  return (up - down) / (2 * H)
end

local function agrees(fn, ...)
  local inputs = { ... }
  for _, x in ipairs(inputs) do x:requires_grad(true) end
  local y = fn(unpack(inputs))
  local weights = gm.uniform(y:shape(), { low = -1, high = 1, seed = 5 })
  local function weighted() return (fn(unpack(inputs)) * weights):sum():item() end
  (y * weights):sum():backward()
  local largest = 0
  for k, x in ipairs(inputs) do
    local g = assert(x:grad(), "input " .. k .. " has no gradient"):contiguous():reshape(-1)
    for i = 1, math.min(g:numel(), 40) do
      local want = gm.scope(numeric_slope, x, i, weighted)
      largest = math.max(largest, math.abs(want))
      if not (math.abs(want - g:get(i)) <= TOLERANCE) then -- luacheck: ignore 581 (NaN is no agreement)
        error(("input %d, element %d: %.12g, central differences say %.12g"):format(k, i, g:get(i), want))
      end
    end
  end
  assert(largest >= 1e-3, "all slopes are tiny: this case tests nothing")
end

local seed = 0
local function any(...) -- in (-1, 1), a new draw each
  seed = seed + 1
  return gm.uniform({ ... }, { low = -1, high = 1, seed = seed })
end
local function positive(...)
  seed = seed + 1
  return gm.uniform({ ... }, { low = 0.5, high = 2, seed = seed })
end

describe("gradients agree with central differences:", function()
  local before
  setup(function() before = gm.default_dtype() gm.set_default_dtype "f64" end)
  teardown(function() gm.set_default_dtype(before) end)

  local function case(name, fn, make)
    it(name, function() gm.scope(function() agrees(fn, make()) end) end)
  end

  case("add, broadcast over rows", function(a, b) return a + b end, function() return any(3, 4), any(4) end)
  case("sub, outer", function(a, b) return a - b end, function() return any(3, 1), any(1, 4) end)
  case("mul, broadcast over columns", function(a, b) return a * b end, function() return any(3, 4), any(3, 1) end)
  case("div", function(a, b) return a / b end, function() return any(3, 4), positive(3, 4) end)
  case("div by a row", function(a, b) return a / b end, function() return any(3, 4), positive(1, 4) end)
  case("pow of tensors", ops.pow, function() return positive(3, 4), any(3, 4) end)
  case("maximum", ops.maximum, function() return any(3, 4), any(3, 4) end)
  case("minimum", ops.minimum, function() return any(3, 4), any(4) end)
  case("numbers on both sides", function(a) return 3 - 2 * a / 5 + 1 / a end, function() return positive(3, 4) end)
  case("power", function(a) return a ^ 2.5 end, function() return positive(3, 4) end)
  case("where", function(a, b) return ops.where(a:gt(0), a, b * 2) end, function() return any(3, 5), any(3, 5) end)

  for _, f in ipairs { "reglu", "geglu", "geglu_tanh", "swiglu" } do
    case(f, ops[f], function() return any(3, 4), any(3, 4) end)
    case(f .. ", broadcast", ops[f], function() return any(4), any(3, 1) end)
  end
  case("cumsum", function(x) return ops.cumsum(x, 2) end, function() return any(2, 5, 3) end)
  case("cumsum from the end", function(x) return ops.cumsum(x, 1, true) end, function() return any(4, 3) end)
  case("einsum", function(a, b, c) return ops.einsum("...ij,jk,kk->...ik", a, b, c) end,
    function() return any(2, 3, 4), any(4, 5), any(5, 5) end)
  case("embedding_bag", function(w, weights)
    local index = gm.tensor({ { { 0, 2 }, { 1, -1 } }, { { 2, 2 }, { 0, 1 } } }, { dtype = "i64" })
    return ops.embedding_bag(w, index, gm.tensor({ 0, 3, 5 }, { dtype = "i64" }), weights)
  end, function() return any(5, 3), any(2, 2, 2) end)

  case("rotary", function(x)
    return ops.rotary(x, gm.tensor({ 1, 0.1 }, { dtype = x:dtype() }), { rotated = 2, offset = 3, scale = 1.5 })
  end, function() return any(2, 3, 2, 3, 5) end)
  case("rotary of given positions", function(x)
    return ops.rotary(x, gm.tensor({ 1, 0.1 }, { dtype = x:dtype() }), {
      positions = gm.tensor({ { 0, 1, 2 }, { 0, 0, 7 } }, { dtype = "i64" }), interleaved = true })
  end, function() return any(2, 3, 4) end)

  for _, f in ipairs { "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "exp", "softplus", "square", "sin",
                       "cos", "abs", "neg" } do
    case(f, ops[f], function() return any(5, 7) end)
  end
  for _, f in ipairs { "log", "sqrt", "rsqrt", "reciprocal" } do
    case(f, ops[f], function() return positive(5, 7) end)
  end

  for _, t in ipairs { { false, false }, { true, false }, { false, true }, { true, true } } do
    local opt = { transpose_a = t[1], transpose_b = t[2], alpha = 0.5 }
    case(("matmul, transposes %s %s"):format(tostring(t[1]), tostring(t[2])),
      function(a, b) return ops.matmul(a, b, opt) end,
      function() return t[1] and any(4, 3) or any(3, 4), t[2] and any(5, 4) or any(4, 5) end)
    case(("batched matmul that broadcasts, transposes %s %s"):format(tostring(t[1]), tostring(t[2])),
      function(a, b) return ops.matmul(a, b, opt) end,
      function() return t[1] and any(2, 1, 4, 3) or any(2, 1, 3, 4), t[2] and any(3, 5, 4) or any(3, 4, 5) end)
  end
  for _, f in ipairs { "none", "relu", "gelu", "gelu_tanh", "silu" } do
    case("linear with " .. f, function(x, w, b) return ops.linear(x, w, b, f) end,
      function() return any(2, 3, 4), any(5, 4), any(5) end)
  end
  case("linear without bias", function(x, w) return ops.linear(x, w) end, function() return any(2, 3, 4), any(5, 4) end)
  case("linear of a turned input", function(x, w) return ops.linear(x:transpose(1, 2), w) end,
    function() return any(4, 3), any(5, 4) end)

  case("layer_norm", function(x, w, b) return ops.layer_norm(x, w, b) end,
    function() return any(3, 8), any(8), any(8) end)
  case("batch_norm", function(x, w, b) return (ops.batch_norm(x, w, b)) end,
    function() return any(4, 3, 2), any(3), any(3) end)
  case("batch_norm of rows, without parameters", function(x) return (ops.batch_norm(x)) end,
    function() return any(5, 4) end)
  case("batch_norm with given statistics", function(x, w, b)
    return ops.batch_norm(x, w, b, { mean = gm.tensor { 0.5, -1 }, variance = gm.tensor { 2, 0.5 } })
  end, function() return any(4, 2, 3), any(2), any(2) end)
  case("max_pool", function(x) return (ops.max_pool(x, { 2, 3 }, 1, 1)) end, function() return any(2, 2, 3, 4) end)
  case("avg_pool", function(x) return ops.avg_pool(x, 3, 2, 1, { count_include_pad = false }) end,
    function() return any(2, 2, 7) end)
  case("adaptive_avg_pool", function(x) return ops.adaptive_avg_pool(x, { 1, 2, 2 }) end,
    function() return any(1, 2, 2, 3, 3) end)
  case("adaptive_max_pool", function(x) return (ops.adaptive_max_pool(x, 2)) end, function() return any(1, 2, 3) end)
  case("sort", function(x) return (ops.sort(x, 1)) end, function() return any(5, 3) end)
  case("layer_norm without parameters", function(x) return ops.layer_norm(x) end, function() return any(3, 8) end)
  case("add_layer_norm", function(x, r, w, b)
    local y, s = ops.add_layer_norm(x, r, w, b)
    return y + 2 * s
  end, function() return any(3, 8), any(3, 8), any(8), any(8) end)
  case("add_layer_norm when only the sum is used", function(x, r)
    local _, s = ops.add_layer_norm(x, r)
    return s * s
  end, function() return any(3, 8), any(3, 8) end)
  case("rms_norm", function(x, w) return ops.rms_norm(x, w) end, function() return any(3, 8), any(8) end)
  case("add_rms_norm", function(x, r, w)
    local y, s = ops.add_rms_norm(x, r, w)
    return y * s
  end, function() return any(3, 8), any(3, 8), any(8) end)

  case("softmax", ops.softmax, function() return any(3, 8) end)
  case("softmax along the first dimension", function(x) return ops.softmax(x, 1) end, function() return any(3, 8) end)
  case("log_softmax in the middle", function(x) return ops.log_softmax(x, 2) end, function() return any(3, 6, 2) end)

  case("attention, causal, grouped heads", function(q, k, v) return ops.attention(q, k, v, { causal = true }) end,
    function() return any(2, 5, 4, 3), any(2, 5, 2, 3), any(2, 5, 2, 3) end)
  case("attention, longer keys, scale", function(q, k, v) return ops.attention(q, k, v, { scale = 0.7 }) end,
    function() return any(1, 3, 2, 4), any(1, 6, 2, 4), any(1, 6, 2, 4) end)
  case("packed attention with a key mask", function(x)
    return ops.attention_packed(x, { key_mask = gm.tensor({ { 1, 1, 0, 1, 1 }, { 1, 0, 1, 1, 1 } }, { dtype = "u8" }) })
  end, function() return any(2, 5, 4, 3, 3) end)
  case("attention of documents in one row", function(q, k, v)
    local segments = gm.tensor({ { 0, 0, 1, 1, 1 }, { 0, 0, 0, 0, -1 } }, { dtype = "i64" })
    local limits = ops.narrow(ops.documents(segments), 3, 1, 2)
    return ops.attention(q, k, v, { causal = true, limits = limits, window = 2 })
  end, function() return any(2, 5, 4, 3), any(2, 5, 2, 3), any(2, 5, 2, 3) end)

  case("attention with a bias that the batch shares", function(q, k, v, bias)
    return ops.attention(q, k, v, { bias = bias, softcap = 1.5 })
  end, function() return any(2, 3, 4, 3), any(2, 5, 2, 3), any(2, 5, 2, 3), any(1, 4, 3, 5) end)
  case("packed attention with the biases of two windows", function(x, bias)
    return ops.attention_packed(x, { bias = bias })
  end, function() return any(4, 3, 2, 3, 3), any(2, 2, 3, 3) end)

  case("packed attention whose values are read elsewhere too", function(x)
    local q, k, v = ops.unbind(x, 4)
    return ops.attention(q, k, v) + v * v + q
  end, function() return any(2, 5, 4, 3, 3) end)
  case("packed attention of swapped parts", function(x)
    local k, q, v = ops.unbind(x, 4)
    return ops.attention(q, k, v, { causal = true })
  end, function() return any(2, 5, 2, 3, 4) end)
  case("attention of parts of two tensors", function(x, y)
    local q, k = ops.unbind(x, 4)
    return ops.attention(q, k, (ops.unbind(y, 4)))
  end, function() return any(2, 5, 2, 2, 4), any(2, 5, 2, 2, 4) end)

  case("embedding", function(w)
    return ops.embedding(w, gm.tensor({ { 0, 2, 2 }, { 3, 0, 1 } }, { dtype = "i64" }))
  end, function() return any(4, 3) end)
  case("cross_entropy", function(x)
    return ops.cross_entropy(x, gm.tensor({ 1, -100, 3 }, { dtype = "i64" }), { label_smoothing = 0.1 })
  end, function() return any(3, 5) end)

  case("sum and mean", function(x) return x:sum(2) + x:mean({ 2 }) end, function() return any(3, 5, 2) end)
  case("sum with keepdim", function(x) return x:sum({ 1, 3 }, true) end, function() return any(3, 5, 2) end)
  case("max", function(x) return (x:max(2)) end, function() return any(3, 5, 2) end)
  case("top_k", function(x) return (ops.top_k(x, 3)) end, function() return any(3, 2, 7) end)
  case("min with keepdim", function(x) return (x:min(1, true)) end, function() return any(3, 5) end)

  case("cat, one part twice", function(a, b) return ops.cat({ a, b, a }, 2) end,
    function() return any(3, 5), any(3, 2) end)
  case("views", function(a)
    return a:permute(2, 1, 3):narrow(1, 2, 2):reshape(2, -1) * a[1]:sum()
  end, function() return any(3, 5, 2) end)
  case("unbind", function(a)
    local first, second, third = a:unbind(2)
    return first * third + second
  end, function() return any(4, 3, 2) end)
  case("unbind when one slice is read", function(a) return (a:unbind(-1)):square() end, function() return any(4, 3) end)
  case("select and expand", function(a) return a:select(2, 2):expand(4, 3) end, function() return any(3, 5) end)
  case("patchify", function(a) return ops.patchify(a, 2) end, function() return any(2, 3, 4, 4) end)
  case("a value used three times", function(a)
    local b = a * 2
    return b * b + b
  end, function() return any(3, 5) end)
end)
