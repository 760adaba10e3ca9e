-- Padding of blocks is zero in values and gradients, and whatever users or ops leave there reaches no number.
-- ranks: 2 3 4
--
-- Every op of ops.def that runs on cut values: on whole copies; on uneven blocks; and on blocks with NaN in the padding
-- of all inputs, of all gradients on their way, and of all results before they are computed. The last two must agree to
-- the bit, with the first up to the order of sums, and all padding that can be seen must be zero.
-- sanitizers: at most 3 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local padding = require "spec.support.padding"

local ops = gm.ops
local size = { m = 7, n = 5, k = 11, b = 5, h = 7, s = 3, d = 2, v = 11, g = 12 }

-- ---------------------------------------------------------------- what is run

-- A letter is a dimension. inputs: letters of each, behind a colon what it holds (default: numbers in (0.2, 1)).
-- cut: the letters that may be cut. fn(inputs...) -> results.
local cases, named = {}, {}

local function case(op, inputs, cut, fn, note)
  named[op] = true
  cases[#cases + 1] = { name = op .. (note and " " .. note or "") .. " of " .. table.concat(inputs, " "),
                        inputs = inputs, cut = cut, fn = fn }
end

for _, f in ipairs(core.function_list()) do
  local fn = ops[f.name]
  if f.name == "power" then fn = function(x) return ops.power(x, -1.5) end end
  if f.name == "clamp" then fn = function(x) return ops.clamp(x, 0.25, 2) end end
  if f.op == "unary" then case("unary", { "mn" }, "mn", fn, f.name)
  else
    local operands = { { "mn", "mn" }, { "mn", "n" }, { "n", "mn" }, { "m1", "mn" }, { "", "mn" }, { "mn", "" } }
    for _, shapes in ipairs(operands) do
      case(f.op, shapes, "mn", function(a, b)
        local y = fn(a, b)
        return f.op == "compare" and ops.where(y, a * 2, b * 3) or y
      end, f.name)
    end
  end
end
case("affine", { "mn" }, "mn", function(x) return x * 3 + 1 end)
case("copy", { "mn" }, "mn", function(x) return ops.cast(ops.cast(x, "f32"), "f64") end)
case("where", { "mn:u8", "n", "" }, "mn", function(c, a, b) return ops.where(c, 1 / a, ops.log(b)) end)
case("where", { "n:u8", "m1", "mn" }, "mn", function(c, a, b) return ops.where(c, 1 / a, ops.log(b)) end)
case("dropout", { "mn" }, "mn", function(x) return ops.dropout(x + 1, 0.4) end)
case("matmul", { "mk", "kn" }, "mkn", function(a, b) return ops.matmul(1 / a, ops.log(b)) end)
case("matmul", { "bmk", "kn" }, "bm", function(a, b) return ops.matmul(1 / a, 1 / b) end)
for _, activation in ipairs { "none", "gelu" } do
  case("linear", { "bmk", "nk", "n" }, activation == "none" and "bmkn" or "bmn", function(x, w, b)
    return ops.linear(1 / x, ops.log(w), 1 / b, activation ~= "none" and activation or nil)
  end, activation)
end
case("linear", { "mk", "nk" }, "mkn", function(x, w) return ops.linear(1 / x, 1 / w) end)
-- Samples, channels out and in; with groups, whole groups: 12 divide by 2, 3 and 4 ranks.
for _, activation in ipairs { "none", "sigmoid" } do
  local options = { padding = 1, stride = 2, activation = activation ~= "none" and activation or nil }
  case("convolution", { "bmk", "nms", "n" }, activation == "none" and "bmn" or "bn", function(x, w, b)
    return ops.convolution(1 / x, ops.log(w), 1 / b, options)
  end, activation)
  case("transposed_convolution", { "bmk", "mns", "n" }, activation == "none" and "bmn" or "bn", function(x, w, b)
    return ops.transposed_convolution(1 / x, ops.log(w), 1 / b, options)
  end, activation)
end
local depthwise = { groups = size.g, padding = { { 1, 0 } } }
case("convolution", { "bgk", "g1s", "g" }, "bg", function(x, w, b)
  return ops.convolution(1 / x, ops.log(w), 1 / b, depthwise)
end, "of groups")
case("transposed_convolution", { "bgk", "g1s", "g" }, "bg", function(x, w, b)
  return ops.transposed_convolution(1 / x, ops.log(w), 1 / b, depthwise)
end, "of groups")
for _, eps in ipairs { 1e-5, 0 } do
  case("layer_norm", { "bmn", "n", "n" }, "bmn",
    function(x, w, b) return ops.layer_norm(1 / x, w, b, eps) end, "eps " .. eps)
  case("layer_norm", { "bmn", "bmn", "n", "n" }, "bmn",
    function(x, y, w, b) return ops.add_layer_norm(1 / x, y, w, b, eps) end, "with a residual, eps " .. eps)
  case("rms_norm", { "bmn", "n" }, "bmn", function(x, w) return ops.rms_norm(1 / x, w, eps) end, "eps " .. eps)
end
case("batch_norm", { "bmn", "m", "m" }, "bmn", function(x, w, b) return ops.batch_norm(1 / x, w, b) end)
case("batch_norm", { "bm", "m", "m", "m" }, "bm", function(x, w, b, v)
  return ops.batch_norm(1 / x, w, b, { mean = v, variance = v })
end, "with given statistics")
case("max_pool", { "bmhs" }, "bm", function(x) return ops.max_pool(1 / x, 2, 1, 1) end)
case("avg_pool", { "bmhs" }, "bm", function(x) return ops.avg_pool(1 / x, 2, 1, 1) end)
for _, name in ipairs { "softmax", "log_softmax" } do
  case(name, { "mn" }, "m", function(x) return ops[name](1 / x, 2) end)
  case(name, { "mn" }, "n", function(x) return ops[name](1 / x, 1) end, "along the first")
end
case("attention", { "bshd", "bshd", "bshd" }, "bh", function(q, k, v) return ops.attention(1 / q, k, ops.log(v)) end)
case("attention", { "bshd", "bshd", "bshd", "bs:u8" }, "bh", function(q, k, v, mask)
  return ops.attention(1 / q, k, ops.log(v), { key_mask = mask })
end)
case("attention", { "bshd", "bshd", "bshd", "1hss" }, "bh", function(q, k, v, bias)
  return ops.attention(1 / q, k, ops.log(v), { bias = bias })
end, "with a bias")
case("documents", { "bm:s" }, "b", function(x) return ops.documents(x) end)
case("attention", { "bshd", "bshd", "bshd", "bs:s" }, "bh", function(q, k, v, x)
  return ops.attention(1 / q, k, ops.log(v), { limits = ops.narrow(ops.documents(x), 3, 1, 2) })
end, "within limits")
local three_documents = gm.tensor({ { 0, 0, 0, 1, 1, 2, 2 } }, { dtype = "i64" })
case("attention", { "bmhd", "bmhd", "bmhd" }, "m", function(q, k, v)
  local limits = ops.narrow(ops.documents(three_documents:expand { size.b, size.m }), 3, 1, 2)
  return ops.attention(1 / q, k, ops.log(v), { causal = true, limits = limits })
end, "within limits, in a ring")
case("attention", { "bmhd", "bmhd", "bmhd" }, "m", function(q, k, v)
  return ops.attention(1 / q, k, ops.log(v), { causal = true })
end, "in a ring")
case("attention", { "bsh3d" }, "bh", function(qkv) return ops.attention_packed(1 / qkv) end, "packed")
local two_turns = gm.tensor({ 1, 0.1 }, { dtype = "f64" })
case("rotary", { "bmhk" }, "bmh", function(x) return ops.rotary(1 / x, two_turns, { offset = 2 }) end)
case("rotary", { "bmh3k" }, "bmh", function(x) return ops.rotary(1 / x, two_turns, { rotated = 2 }) end, "in part")
case("rotary", { "bmhk", "bm:n" }, "bmh", function(x, positions)
  return ops.rotary(1 / x, two_turns, { positions = positions })
end, "of positions")
case("embedding", { "vn", "mb:v" }, "vnmb", function(w, index) return ops.embedding(1 / w, index):settle() end)
for _, smoothing in ipairs { 0, 0.1 } do
  case("cross_entropy", { "bmn", "bm:n" }, "bmn", function(x, target)
    return ops.cross_entropy(1 / x, target, { label_smoothing = smoothing, ignore_index = 1 })
  end, "smoothed by " .. smoothing)
end
for _, scale in ipairs { 1, 0.5 } do -- what backward brings, and not
  case("cross_entropy_both", { "bmn", "bm:n" }, "bmn", function(x, target)
    return ops.cross_entropy(1 / x, target, { scale = gm.tensor(scale), ignore_index = 1 }):sum()
  end, "with a scale of " .. scale)
end
case("cross_entropy", { "bmk", "nk", "n", "bm:n" }, "bmn", function(x, w, b, target)
  return (ops.linear_cross_entropy(1 / x, 1 / w, b, target, { rows = 3 }))
end, "with its product, in pieces")
for _, name in ipairs { "sum", "mean" } do
  case("sum", { "bmn" }, "bmn", function(x) return ops[name](ops.log(x)) end, name)
  case("sum", { "bmn" }, "bmn", function(x) return ops[name](1 / x, 2, true) * 2 end, name .. " of one dimension")
end
for _, name in ipairs { "max", "min", "argmax" } do
  case(name, { "mn" }, "m", function(x) return ops[name](1 / x, 2) end)
end
case("argmax", { "mn" }, "mn", function(x) return ops.argmax(1 / x, 2) end)
case("sort", { "mn" }, "m", function(x) return ops.sort(1 / x, 2) end)
case("cumsum", { "mn" }, "m", function(x) return ops.cumsum(1 / x, 2) end)
case("cumsum", { "mn" }, "n", function(x) return ops.cumsum(1 / x, 1, true) end, "from the end")
local one_table = gm.tensor({ 0, size.v }, { dtype = "i64" })
case("embedding_bag", { "vn", "m1k:v", "m1k" }, "vnm", function(w, index, weight)
  return ops.embedding_bag(1 / w, index, one_table, 1 / weight):settle()
end)
case("top_k", { "mn" }, "m", function(x) return ops.top_k(1 / x, 2) end)
case("reshape", { "bmn" }, "b", function(x) return ops.reshape(1 / x, { size.b, size.m * size.n }) end)
case("reshape", { "bmn" }, "b", function(x) return 1 / ops.reshape(1 / x, { size.b * size.m, size.n }) end, "of rows")
case("permute", { "bmn" }, "bmn", function(x) return 1 / ops.permute(1 / x, { 3, 1, 2 }) end)
case("narrow", { "mn" }, "m", function(x) return 1 / ops.narrow(1 / x, 2, 2, 3) end)
case("select", { "mn" }, "mn", function(x) return ops.select(1 / x, 1, 7):settle() * 2 end)
case("expand", { "m1" }, "m", function(x) return 1 / ops.expand(1 / x, { size.m, size.n }) end)
case("cat", { "mn", "mk" }, "m", function(x, y) return 1 / ops.cat({ 1 / x, ops.log(y) }, 2) end)
case("pad", { "mn" }, "m", function(x)
  local y = ops.pad(1 / x, { 1, 2 }, { value = 3 })
  return 1 / y, y
end)
case("pad", { "mns" }, "m", function(x) return 1 / ops.pad(1 / x, { 1, 2, 0, 3 }, { mode = "reflect" }) end, "mirrored")
local inverse = gm.custom { forward = function(x) return 1 / x end, backward = function(g) return 1 / (g + 2) end }
case("custom", { "mn", "n" }, "mn", function(x, w) return inverse(x) * w end)

case("group_norm", { "bgs", "g", "g" }, "bg", function(x, w, b)
  return core.group_norm(1 / x, size.g, ops.log(w), 1 / b, 1e-5)
end)
case("group_norm", { "bgsd", "g", "g" }, "b", function(x, w, b)
  return core.group_norm(1 / x, 4, ops.log(w), 1 / b, 1e-5)
end, "in four groups")
case("group_norm", { "bns", "n", "n" }, "bn", function(x, w, b)
  return core.group_norm(1 / x, size.n, ops.log(w), 1 / b, 1e-5)
end, "of each channel")
case("recurrent", { "smg", "gs", "g", "ms", "ms" }, "m", function(x, w, b, h, c)
  return core.recurrent("LSTM", 1 / x, ops.log(w), 1 / b, ops.log(h), 1 / c)
end, "LSTM")
case("recurrent", { "smg", "gs", "g" }, "m", function(x, w, b)
  local function gates(t, dim) return t:narrow(dim, 1, 9) end
  return core.recurrent("GRU", gates(1 / x, 3), gates(ops.log(w), 1), 1 / gates(b, 1), nil, nil, true)
end, "GRU")

local few = { bits = 8, group = 32 }
case("quantize", { "nk" }, "n", function(w) return gm.no_grad(ops.quantize, w, few) end)
case("dequantize", { "nk" }, "n", function(w)
  return gm.no_grad(function()
    return ops.dequantize(ops.quantize(w, few), size.k, { bits = 8, group = 32, dtype = "f64" })
  end)
end)
case("linear_quantized", { "mk", "nk", "n" }, "mn", function(x, w, b)
  return ops.linear_quantized(1 / x, gm.no_grad(ops.quantize, w:detach(), few), 1 / b, nil, few)
end)

local function eight(x)
  x = x:detach()
  local s = ops.float8_scale(x)
  return s, ops.float8_encode(x, s)
end
case("float8_scale", { "bmn" }, "bmn", function(x) return (eight(1 / x)) end)
case("float8_encode", { "bmn" }, "bmn", function(x)
  local _, codes, turned = eight(1 / x)
  return codes, turned
end)
case("float8_product", { "mk", "nk" }, "mkn", function(x, w)
  local a_scale, a = eight(1 / x)
  local b_scale, codes = eight(1 / w)
  return ops.float8_product(a, codes, a_scale, b_scale, { dtype = "f64" })
end)
case("float8_product", { "bmk", "nk", "n" }, "bmn", function(x, w, b)
  return ops.linear_float8(1 / x, 1 / w, 1 / b)
end, "linear_float8")

-- Two pages for each of the 5 rows, out of order, of a pool (v, h, s, d); s positions at the end of each row.
local rows_of_pages = { { 3, 8 }, { 0, 10 }, { 6, 1 }, { 2, 9 }, { 7, 4 } }
local function places()
  return gm.tensor(rows_of_pages, { dtype = "i64" }), gm.tensor({ 6, 5, 4, 3, 6 }, { dtype = "i64" })
end
case("pages_write", { "vhsd", "bshd" }, "h", function(pool, x)
  return gm.no_grad(function() return core.pages_write(pool:detach():clone(), 1 / x, places()) end)
end)
case("attention_paged", { "bshd", "vhsd", "vhsd" }, "h", function(q, k, v)
  return gm.no_grad(function() return core.attention_paged(1 / q, 1 / k, ops.log(v), places()) end)
end)

-- Ops that never see a cut value: they run on what a rule, the optimizer or an op made of several hands them.
local on_blocks = {}
for name in ([[fill axpy scale unary_grad gate_grad lstm_cell lstm_cell_grad gru_cell gru_cell_grad
  uniform normal bias_activation_grad linear_weight_grad convolution_weight_grad
  float8_block_encode float8_block_product
  linear_input_grad layer_norm_grad rms_norm_grad norm_sums norm_apply norm_grad_sums norm_grad_apply
  batch_norm_sums batch_norm_apply batch_norm_grad_sums batch_norm_grad_apply max_pool_grad avg_pool_grad unsort
  embedding_bag_weight_grad embedding_rows rows_take rows_put
  softmax_grad log_softmax_grad attention_grad embedding_grad cross_entropy_grad rescale_rows experts_count
  experts_before experts_limit experts_order experts_gather experts_combine experts_combine_grad grouped_matmul
  grouped_weight_grad scatter
  sum_squares sgd adam rmsprop adagrad lion step_control]]):gmatch "%S+" do
  on_blocks[name] = true
end

-- ---------------------------------------------------------------- layouts

-- What cuts each letter: every letter that may be by all axes, and on two axes pairs of letters.
local function cuts_of(letters, axes)
  local list, all = {}, table.concat(axes, ".")
  for a in letters:gmatch "." do
    list[#list + 1] = { [a] = all }
    for b in letters:gmatch "." do
      if axes[2] and a ~= b then list[#list + 1] = { [a] = axes[1], [b] = axes[2] } end
    end
  end
  return list
end

local function letters_of(input) return (input:match "^[^:]*") end

local function layout_of(input, cut)
  local cuts, any = {}, false
  for letter in letters_of(input):gmatch "." do
    cuts[#cuts + 1] = cut[letter] or {}
    if type(cuts[#cuts]) == "string" then
      any = true
      cuts[#cuts] = { cuts[#cuts] }
    end
  end
  return any and { cuts = cuts } or nil
end

local function describe_cut(cut)
  local words = {}
  for letter, axes in pairs(cut) do words[#words + 1] = letter .. " by " .. axes end
  table.sort(words)
  return table.concat(words, ", ")
end

-- ---------------------------------------------------------------- runs

local function make(input, i)
  local shape, holds, n = {}, input:match ":(.*)", 1
  for letter in letters_of(input):gmatch "." do
    shape[#shape + 1] = size[letter] or tonumber(letter)
    n = n * shape[#shape]
  end
  if not holds then return gm.uniform(shape, { low = 0.2, high = 1, dtype = "f64", seed = 300 + i }) end
  local list, below = {}, size[holds] or 2
  for k = 1, n do list[k] = (5 * k + math.floor(k / 3)) % below end
  return gm.tensor(list, { dtype = holds == "u8" and "u8" or "i64", shape = shape })
end

local function is_float(t) return t:dtype():sub(1, 1) == "f" end

-- Numbers of results and gradients; cut nil: on whole copies. NaN everywhere that is not promised to be zero: poison.
local function run(c, cut, poison)
  local out, inputs, total = {}, {}, nil
  core.set_seed(3)
  core.begin_step()
  for i, input in ipairs(c.inputs) do
    local layout = cut and layout_of(input, cut)
    inputs[i] = make(input, i)
    if layout then inputs[i] = inputs[i]:redistribute(layout):detach() end
    if is_float(inputs[i]) then inputs[i]:requires_grad(true) end
    if poison then padding.poison(inputs[i]) end
  end
  for i, y in ipairs { c.fn(unpack(inputs)) } do
    assert.is_true(padding.is_zero(y), "the padding of result " .. i .. " is not zero")
    out[#out + 1] = numeric.flat(core.gather(y:detach()):totable())
    if is_float(y) and y:requires_grad() then
      local weights = gm.uniform(y:shape(), { low = 0.5, high = 1.5, dtype = "f64", seed = 900 + i })
      local term = (ops.cast(y, "f64") * weights):sum()
      total = total and total + term or term
    end
  end
  if total then total:backward() end
  for i, x in ipairs(inputs) do
    local g = is_float(x) and x:grad()
    if g then assert.is_true(padding.is_zero(g), "the padding of gradient " .. i .. " is not zero") end
    out[#out + 1] = g and numeric.flat(core.gather(g):totable()) or {}
  end
  return out
end

local function all_zero(list)
  for _, v in ipairs(list) do if v ~= 0 then return false end end
  return true
end

local function check(c, cut)
  local whole, blocks = run(c), run(c, cut, false)
  local poisoned = padding.poisoned(function() return run(c, cut, true) end)
  for i, want in ipairs(whole) do
    if all_zero(want) then assert.same(want, blocks[i]) else numeric.agree(blocks[i], want, 1e-12) end
    assert.same(blocks[i], poisoned[i])
  end
end

local meshes = {
  [2] = { { { "data", 2 } } },
  [3] = { { { "col", 3 } } },
  [4] = { { { "data", 2 }, { "col", 2 } } },
}

for _, mesh in ipairs(meshes[core.world()]) do
  local axes = {}
  for i, axis in ipairs(mesh) do axes[i] = axis[1] end
  describe("padding on " .. table.concat(axes, " x "), function()
    both.in_f64(setup, teardown, function() both.mesh(unpack(mesh)) end)

    for _, c in ipairs(cases) do
      it(c.name, function()
        local refused
        for _, cut in ipairs(cuts_of(c.cut, axes)) do
          local ok, message = pcall(gm.scope, function() check(c, cut) end)
          if not ok and #axes > 1 and tostring(message):find "redistribute" then
            refused = true -- some pairs of cuts have no meaning
          elseif not ok then
            error(("cut %s: %s"):format(describe_cut(cut), tostring(message)), 0)
          end
        end
        assert(not refused or #c.cut > 1)
      end)
    end

    it("is tried for every op", function()
      for _, op in ipairs(core.op_list()) do
        assert(named[op.name] or on_blocks[op.name], op.name .. " has no case here")
        assert(not (named[op.name] and on_blocks[op.name]), op.name)
      end
    end)

    it("that a user writes over is cleared before anything reads it", function()
      gm.scope(function()
        local x = make("mn", 1):redistribute { cuts = { { axes[1] }, {} } }:detach()
        local before = numeric.flat(core.gather(x):totable())
        padding.poison(x)
        assert.is_true(padding.is_zero(x))
        padding.poison(x)
        x:fill_(2)
        assert.is_true(padding.is_zero(x * 1))
        x:copy_(make("mn", 1))
        assert.is_true(padding.is_zero(x * 1))
        assert.same(before, numeric.flat(core.gather(x):totable()))
      end)
    end)

    it("of a gradient is cleared likewise, before another pass adds to it and before an update", function()
      gm.scope(function()
        local x = make("mn", 1):redistribute { cuts = { { axes[1] }, {} } }:detach():requires_grad(true)
        x:sum():backward()
        padding.poison(x:grad())
        assert.is_true(padding.is_zero(x:grad()))
        padding.poison(x:grad())
        x:sum():backward()
        assert.is_true(padding.is_zero(x:grad()))
        local sgd = core.optimizer("sgd", { x }, {})
        padding.poison(x:grad())
        sgd:step { lr = 0.5 }
        assert.is_true(padding.is_zero(x))
      end)
    end)

    it("of a retained gradient is zero", function()
      gm.scope(function()
        local x = make("mn", 1):redistribute { cuts = { { axes[1] }, {} } }:detach():requires_grad(true)
        padding.poisoned(function()
          local h = (1 / x):retain_grad()
          ops.log(h):sum():backward()
          assert.is_true(padding.is_zero(h:grad()))
        end)
      end)
    end)

    for _, dtype in ipairs { "f64", "bf16" } do
      it("of an ignored row of NaN has no gradient, as serially, in " .. dtype, function()
        gm.scope(function()
          local list = numeric.flat(make("mn", 1):totable())
          for j = 1, size.n do list[2 * size.n + j] = 0 / 0 end
          local targets = { 0, 1, -100, 3, 4, 0, 1 }
          for _, cut in ipairs(cuts_of("mn", axes)) do
            local x = gm.tensor(list, { dtype = dtype, shape = { size.m, size.n } })
            x = x:redistribute(layout_of("mn", cut)):detach():requires_grad(true)
            ops.cross_entropy(x, gm.tensor(targets, { dtype = "i64" })):sum():backward()
            local g = numeric.flat(core.gather(x:grad()):totable())
            for k, v in ipairs(g) do
              assert(v == v)
              if k > 2 * size.n and k <= 3 * size.n then assert.equal(0, v) end
            end
          end
        end)
      end)
    end
  end)
end
