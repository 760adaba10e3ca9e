-- Every op and view on blocks against the same on whole tensors: values, gradients, and what is refused.
-- ranks: 2 3 4
--
-- Rows are cut evenly (12 on 2, 3 and 4), unevenly (10, 7) and so that some ranks have none (2 on 3 and 4).
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops

local world, rows = core.world(), both.rows

local any, positive = both.source(0), both.source(1000, 0.5, 2)
local function whole(limit, ...)
  local list, n = {}, 1
  for _, size in ipairs { ... } do n = n * size end
  for i = 1, n do list[i] = (i * 7 + math.floor(i / 3)) % limit end
  return gm.tensor(list, { dtype = "i64", shape = { ... } })
end

describe("rules of layouts", function()
  both.in_f64(setup, teardown, function() both.mesh { "data", world } end)

  -- inputs of n rows; cut[i]: input i is cut along its rows
  local function case(name, expect, make, cut, fn, more)
    for _, n in ipairs { 12, 10, 7, 2 } do
      it(("%s on %d rows"):format(name, n), function()
        local inputs, cuts = make(n), {}
        for i = 1, #inputs do cuts[i] = cut[i] and rows or false end
        local options = { inputs = inputs, cuts = cuts, fn = fn, expect = expect }
        for k, v in pairs(more or {}) do options[k] = v end
        both.agree(options)
      end)
    end
  end

  describe("element by element:", function()
    local function one(n) return { any(n, 3) } end
    local first, both_cut = { true }, { true, true }
    case("functions", "data,-", one, first, function(x) return ops.gelu(x), -x, x * 2 + 1, 3 - x, x:exp() end)
    case("powers", "data,-", function(n) return { positive(n, 2) } end, first,
      function(x) return x ^ 2, x:sqrt(), 1 / x, x ^ 1.5, 2 ^ x end)
    case("two cut operands", "data,-", function(n) return { positive(n, 3), positive(n, 3) } end, both_cut,
      function(a, b) return a + b, a - b, a * b, a / b, ops.maximum(a, b), ops.minimum(a, b), a ^ b end)
    case("a row for all", "data,-", function(n) return { positive(n, 3), positive(3), positive(1, 3) } end, first,
      function(a, b, c) return a + b, b - a, a * c, c / a, ops.maximum(a, b) end)
    case("a column and a number", "data,-", function(n) return { positive(n, 3), positive(n, 1), positive() } end,
      both_cut, function(a, b, c) return a * b, a / c, c - b end)
    case("a whole operand is sliced", "data,-", function(n) return { positive(n, 3), positive(n, 3) } end, first,
      function(a, b) return a / b, b / a, a * b end)
    case("more dimensions on the left", "data,-,-", function(n) return { any(n, 2, 3), any(2, 3), any(1, 1, 3) } end,
      first, function(a, b, c) return a * b * c end)
    case("where", "data,-", function(n) return { any(n, 3), any(n, 3) } end, both_cut,
      function(a, b) return ops.where(ops.gt(a, b), a, 0), ops.where(ops.gt(a, 0), a, b) end)
    case("comparisons and casts", "data,-", function(n) return { any(n, 3), any(3) } end, first,
      function(a, b) return ops.cast(ops.gt(a, b), "f64"), ops.cast(ops.le(a, 0), "i64") end, { gradients = false })
    case("clones", "data,-", one, first, function(x) return x:clone(), x:contiguous() end)
  end)

  describe("random:", function()
    case("dropout", "data,-", function(n) return { any(n, 5) } end, { true },
      function(x) return ops.dropout(x, 0.4), ops.dropout(x, 0.2) end, { exact = true })
    case("dropout of a later micro-batch", "data,-", function(n) return { any(n, 5) } end, { true }, function(x)
      core.set_batch(17, x:size(1))
      local y = ops.dropout(x, 0.5)
      core.set_batch(0, 0)
      return y
    end, { exact = true })
    case("dropped branches", "data,-,-", function(n) return { any(n, 2, 3) } end, { true },
      function(x) return x * ops.dropout(gm.ones { x:size(1), 1, 1 }, 0.5) end, { exact = true })
  end)

  describe("products:", function()
    case("linear", "data,-", function(n) return { any(n, 4), any(5, 4), any(5) } end, { true },
      function(x, w, b) return ops.linear(x, w, b, "gelu"), ops.linear(x, w), ops.linear(x, w, b) end)
    case("linear on sequences", "data,-,-", function(n) return { any(n, 3, 4), any(2, 4), any(2) } end, { true },
      function(x, w, b) return ops.linear(x, w, b, "relu") end)
    case("matmul", "data,-", function(n) return { any(n, 4), any(4, 3), any(3, 4) } end, { true },
      function(a, b, c) return ops.matmul(a, b), ops.matmul(a, c, { transpose_b = true, alpha = 0.5 }) end)
    case("matmul of batches", "data,-,-", function(n) return { any(n, 2, 4), any(n, 4, 3), any(4, 3) } end,
      { true, true }, function(a, b, c) return ops.matmul(a, b), ops.matmul(a, c) end)
    case("matmul over the rows", "-,- partial data", function(n) return { any(n, 4), any(n, 3) } end, { true, true },
      function(a, b) return ops.matmul(a, b, { transpose_a = true }) end)
    case("matmul over the rows of one", "-,- partial data", function(n) return { any(n, 4), any(3, n) } end, { true },
      function(a, b) return ops.matmul(a, b, { transpose_a = true, transpose_b = true }) end)
  end)

  describe("along rows:", function()
    case("norms", "data,-", function(n) return { any(n, 6), positive(6), any(6), any(n, 6) } end,
      { true, false, false, true }, function(x, w, b, r)
        local y, sum = ops.add_layer_norm(x, r, w, b)
        return ops.layer_norm(x, w, b), ops.rms_norm(x, w), y, sum, (ops.add_rms_norm(x, r, w))
      end)
    case("norms without parameters", "data,-", function(n) return { any(n, 6) } end, { true },
      function(x) return ops.layer_norm(x), ops.rms_norm(x) end)
    case("softmax", "data,-,-", function(n) return { any(n, 3, 4) } end, { true },
      function(x) return ops.softmax(x, -1), ops.softmax(x, 2), ops.log_softmax(x) end)
    case("embedding", "data,-,-", function(n) return { any(9, 4), whole(9, n, 3) } end, { false, true },
      function(w, i) return ops.embedding(w, i), ops.embedding(w, i, 2) end)
    case("cross entropy", "data", function(n) return { any(n, 5), whole(5, n) } end, { true, true },
      function(x, y) return ops.cross_entropy(x, y, { label_smoothing = 0.1, ignore_index = 3 }) end)
    case("cross entropy of sequences", "data,-", function(n) return { any(n, 3, 5), whole(5, n, 3) } end,
      { true, true }, function(x, y) return ops.cross_entropy(x, y) end)
    case("cross entropy with whole targets", "data", function(n) return { any(n, 5), whole(5, n) } end, { true },
      function(x, y) return ops.cross_entropy(x, y) end)

    local function heads(n) return { any(n, 4, 4, 3), any(n, 5, 2, 3), any(n, 5, 2, 3), whole(2, n, 5) } end
    local function mask(m) return gm.no_grad(function() return ops.gt(ops.cast(m, "f64") + 0.25, 0.5) end) end
    case("attention", "data,-,-,-", heads, { true, true, true, true }, function(q, k, v, m)
      return ops.attention(q, k, v, { key_mask = mask(m) }), ops.attention(q, k, v, { dropout = 0.3 })
    end)
    case("attention with a bias", "data,-,-,-",
      function(n) return { any(n, 4, 4, 3), any(n, 5, 4, 3), any(1, 4, 4, 5) } end, { true, true },
      function(q, k, bias) return ops.attention(q, k, k, { bias = bias }) end)
    case("attention with the biases of n windows", "data,-,-,-",
      function(n) return { any(n, 4, 4, 3), any(n, 4, 4, 4) } end, { true },
      function(q, bias) return ops.attention(q, q, q, { bias = bias }) end)
    case("attention with whole keys", "data,-,-,-", heads, { true }, function(q, k, v, m)
      return ops.attention(q, k, v, { key_mask = mask(m), causal = true })
    end)
    case("documents", "data,-,-", function(n) return { whole(4, n, 6), any(n, 6, 3) } end, { true, true },
      function(x, w) return ops.cast(ops.documents(x), "f64") * w end)
    local function segments(n) return { any(n, 5, 4, 3), any(n, 5, 2, 3), any(n, 5, 2, 3), whole(3, n, 5) } end
    for _, cut in ipairs { true, false } do
      case("attention with limits, which are " .. (cut and "cut" or "whole"), "data,-,-,-", segments,
        { true, true, true, cut }, function(q, k, v, x)
          return ops.attention(q, k, v, { limits = ops.narrow(ops.documents(x), 3, 1, 2), causal = true })
        end)
    end
    case("packed attention", "data,-,-,-", function(n) return { any(n, 4, 2, 3, 3), whole(2, n, 4) } end,
      { true, true }, function(qkv, m)
        return ops.attention_packed(qkv, { causal = true, key_mask = mask(m) }),
          ops.attention_packed(qkv, { dropout = 0.3 })
      end)
  end)

  describe("reductions:", function()
    local function two(n) return { any(n, 3), any(n, 1) } end
    case("sums over rows", " partial data", two, { true, true }, function(x, y)
      return x:sum(), x:sum(1), x:mean(1, true), x:sum { 1, 2 }, y:mean()
    end)
    case("sums along rows", "data", two, { true }, function(x) return x:sum(2), x:mean(2), x:sum(2, true) end)
    case("extremes", "data", two, { true }, function(x) return (x:max(2)), (x:min(-1)), (x:max(2, true)) end)
    case("argmax", "data", two, { true }, function(x) return x:argmax(2) end, { gradients = false })
    case("sums of sums", " partial data", two, { true, true }, function(x, y)
      return x:sum() * 2 - y:sum() / 3 + 1.5, -x:sum(), ops.linear(x:sum(1):reshape(1, 3), gm.ones { 2, 3 })
    end)
    case("parameters times sums", "- partial data", function(n) return { any(n, 3), any(3), any(2, 3) } end, { true },
      function(x, w, m)
        local s = x:sum(1)
        return s * w, ops.linear(s:reshape(1, 3), m), ops.matmul(m, s:reshape(3, 1)), s / (w * w + 1)
      end)
    case("terms of different state", "data,-", function(n) return { any(n, 3), any(3) } end, { true },
      function(x, w) return x * w, w * w, (x * w):sum() + (w * w):sum() end)
    case("the norm's weight used again", "data,-", function(n) return { any(n, 3), positive(3), any(3) } end, { true },
      function(x, w, b) return ops.layer_norm(x, w, b), (w * w):sum(), x * b, ops.layer_norm(x, w, b) end)
  end)

  describe("views:", function()
    local function images(n) return { any(n, 2, 4, 6) } end
    local first = { true }
    case("splitting and merging what is whole", "data,-,-", images, first, function(x)
      local n = x:size(1)
      return x:reshape(n, 8, 6), x:reshape(n, -1), x:reshape(-1, 2, 2, 2, 6), x:reshape(n, 48, 1), x:reshape(n, 1, 48)
    end)
    case("a dimension of one in front", "-,data,-", function(n) return { any(n, 6) } end, first,
      function(x) return x:reshape(1, x:size(1), 6), x:reshape(1, -1, 6):reshape(-1, 6) end)
    case("permutations", "-,data,-,-", images, first, function(x)
      return x:permute(2, 1, 4, 3), x:transpose(1, -1), x:permute(4, 3, 2, 1):contiguous()
    end)
    case("parts", "data,-,-,-", images, first, function(x)
      return x:narrow(3, 2, 2), x:select(2, 1), x:narrow(1, 1, x:size(1)), x:narrow(4, 1, 1), x:unbind(2)
    end)
    case("repeats", "data,-,-", function(n) return { any(n, 1, 3), any(1, 1, 3) } end, first,
      function(x, c) return x:expand(x:size(1), 4, 3), c:expand(x:size(1), 2, 3) * x end)
    case("a token in front", "data,-,-", function(n) return { any(n, 2, 3), any(1, 1, 3) } end, first,
      function(x, c) return ops.cat({ c:expand(x:size(1), 1, 3), x, x:narrow(2, 1, 1) }, 2) end)
    case("joining whole and cut", "data,-", function(n) return { any(n, 2), any(n, 3) } end, first,
      function(x, y) return ops.cat({ y, x }, -1) end)
    it("stacks of one sample", function()
      both.agree { inputs = { any(1, 3), any(1, 3) }, cuts = { rows, rows }, expect = "-,data,-", fn = function(x, y)
        return ops.stack { x, y }, ops.stack({ x, y }, 2), ops.stack({ y, x }, 3)
      end }
    end)
    case("patches", "data,-,-", images, first, function(x) return ops.patchify(x, 2) end)
    case("custom functions", "data,-", function(n) return { any(n, 3), any(3) } end, first, function(x, w)
      local scale = gm.custom {
        forward = function(a, b)
          return a * b
        end,
        backward = function(g) return g * w:detach(), (g * x:detach()):sum(1) end,
      }
      return scale(x, w)
    end)
    case("what was gathered used again", "data,-", function(n) return { any(n, 3) } end, first, function(x)
      local y = core.gather(x)
      return (y + core.gather(y:mean())) * x
    end)
  end)

  describe("merged rows:", function()
    local function sequences(n) return { any(n, 3, 4), any(4), any(n, 3), whole(4, n, 3) } end
    local cut = { true, false, false, true }
    case("there and back", "data,-", sequences, { true }, function(x)
      local flat = x:reshape(-1, 4)
      return flat, flat:reshape(-1, 3, 4), flat:reshape(x:size(1), 12), x:reshape(-1), x:reshape(-1):reshape(-1, 2, 6)
    end)
    case("worked on", "data", sequences, cut, function(x, w, c, y)
      local flat = x:reshape(-1, 4)
      local z = ops.layer_norm(flat, w) * ops.dropout(flat, 0.3) + c:reshape(-1, 1) * w
      return ops.cross_entropy(z, y:reshape(-1)), z:sum(1), z:reshape(-1, 3, 4):sum(2), ops.matmul(flat, z,
        { transpose_a = true }), ops.cat({ flat, z }, 2)
    end)
    it("of one sample, split again, lie as the sample did, whatever its other dimensions are", function()
      both.agree { inputs = { any(1, 4, 6) }, cuts = { rows }, expect = "data,-,-", fn = function(x)
        return x:reshape(-1, 6):reshape(1, 4, 6) + x, x:reshape(-1, 3):reshape(1, 2, 2, 6) * 2
      end }
    end)
    it("are refused where a block holds no whole row of the new shape", function()
      local x = both.place(any(world * 2 - 1, 6), rows)
      assert.error_matches(function() x:reshape(2, -1) end, "reshape: the blocks of the cut dimension are no blocks")
    end)
  end)

  describe("what is refused, with layouts:", function()
    local function refuses(name, pattern, fn)
      it(name, function()
        gm.scope(function() assert.error_matches(function() fn(both.place(any(6, 4), rows)) end, pattern) end)
      end)
    end
    refuses("a softmax over rows", "softmax: the dimension of the softmax is cut: f64 %(6, 4%) cut %(data, %-%)",
      function(x) ops.softmax(x, 1) end)
    refuses("a minimum over rows", "min: the dimension that is reduced is cut", function(x) x:min(1) end)
    refuses("functions of sums not made", "square: .*still a sum over ranks.*partial data",
      function(x) ops.square(x:sum()) end)
    refuses("products of sums not made", "mul", function(x) return x:sum() * x:sum() end)
    refuses("slices of a cut dimension", "unbind: dimension 1 of .*; it should be whole on every rank",
      function(x) x:unbind(1) end)
    refuses("rows of a cut dimension", "narrow: dimension 1 is cut", function(x) x:narrow(1, 1, 2) end)
    refuses("joining rows", "cat: the dimension that they are joined along is cut",
      function(x) ops.cat({ x, x }, 1) end)
    refuses("operands cut along different dimensions", "add: an axis would cut two",
      function(x) return x:narrow(2, 1, 1) + core.redistribute(any(6, 4), { cuts = { {}, { "data" } } }) end)
    refuses("merging the inner of two", "reshape: a cut dimension is not the outermost",
      function(x) return x:transpose(1, 2):reshape(-1) end)
    refuses("norms of sums not made", "layer_norm: .*still a sum over ranks.*partial data",
      function(x) return ops.layer_norm(x:sum(1)) end)
    refuses("shapes that do not fit", "%(6, 4%) and %(5, 4%).* f64 %(6, 4%) cut %(data, %-%)",
      function(x) return x + gm.ones { 5, 4 } end)
  end)
end)
