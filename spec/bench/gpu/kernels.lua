-- kernels.lua - what each memory-bound op reaches of the copy bandwidth of this call, the worst first.
--
-- An op of kernels/ops.def is timed in the shapes of a GPT's step on 131,072 tokens of width 768 (200 MB in bf16,
-- several times a GPU's L2), in bf16 and f32; its bytes are the least that it must move (kernels/cost.c). Times are
-- those of events around the op (kernels/profile.h). What has no case here is named at the end. GM_BENCH_OPS, names of
-- ops with a space between them, times these alone (and the copy).
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local common = require "spec.bench.gpu.common"
local core = require "ganymede.core"
local json = require "ganymede.base.json"

local rows, width, classes = common.size(131072, 32), common.size(768, 64), common.size(50304, 128)
local class_rows, rounds = common.size(4096, 16), common.size(10, 1)

-- Bound by arithmetic, or of next to no bytes.
local elsewhere = { matmul = true, linear = true, attention = true, attention_grad = true, experts_count = true,
                    experts_before = true, experts_limit = true, experts_order = true, linear_weight_grad = true,
                    linear_input_grad = true, step_control = true, convolution = true,
                    transposed_convolution = true, convolution_weight_grad = true, rescale_rows = true,
                    grouped_matmul = true, grouped_weight_grad = true }

local chosen = {}
for name in (os.getenv "GM_BENCH_OPS" or ""):gmatch "%S+" do chosen[name] = true end
local function is_timed(op) return op ~= "copy" and not elsewhere[op] and (next(chosen) == nil or chosen[op]) end

local seed = 0
local function random(shape, dtype)
  seed = seed + 1
  return gm.normal(shape, { dtype = dtype, seed = seed })
end

local function whole(shape, below, dtype)
  seed = seed + 1
  return gm.uniform(shape, { low = 0, high = below, seed = seed }):to(dtype or "i64")
end

-- op -> list of { label, inputs, outputs, attrs }; statistics, losses and moments are f32 (ops.def).
local function cases_of(t)
  local function x() return random({ rows, width }, t) end
  local function row(dtype) return random({ width }, dtype or t) end
  local function per_row() return random({ rows }, "f32") end
  local function mask() return whole({ rows, width }, 2, "u8") end
  local function logits() return random({ class_rows, classes }, t) end
  local function target() return whole({ class_rows }, classes) end
  local function per_class_row() return random({ class_rows }, "f32") end
  local function scalar(number) return gm.tensor(number, { dtype = "f32" }) end
  local function tokens() return whole({ rows }, classes) end
  local function f(name) return { ["function"] = name } end
  local planes, side = common.size(64, 4), 56 -- of a ResNet's first block
  local half, pictures = side / 2, math.max(1, math.floor(rows * width / (planes * side * side)))
  local halved = { pictures, planes, half, half }
  local three = { kernel = { 3, 3 }, stride = { 2, 2 }, pad_low = { 1, 1 }, pad_high = { 1, 1 } }
  local function images() return random({ pictures, planes, side, side }, t) end
  local function plane() return random({ planes }, t) end
  local function per_plane() return random({ planes }, "f32") end
  local function two(list)
    list.n = 2
    return list
  end
  local list = {
    fill = { { "", {}, { x() }, { value = 0.5 } } },
    copy = { { "", { x() }, { x() } },
             { "to another dtype", { x() }, { true }, { dtype = t == "f32" and "bf16" or "f32" } },
             { "turned", { random({ width, rows }, t):permute { 2, 1 } }, { x() } } },
    axpy = { { "", { x() }, { x() }, { alpha = 0.5 } } },
    affine = { { "", { x() }, { true }, { alpha = 2, beta = 1 } } },
    unary = { { "relu", { x() }, { true }, f "relu" }, { "gelu_tanh", { x() }, { true }, f "gelu_tanh" },
              { "gelu", { x() }, { true }, f "gelu" }, { "exp", { x() }, { true }, f "exp" } },
    unary_grad = { { "gelu_tanh", { x(), x() }, { true }, f "gelu_tanh" },
                   { "gelu", { x(), x() }, { true }, f "gelu" } },
    binary = { { "add", { x(), x() }, { true }, f "add" }, { "add a row", { x(), row() }, { true }, f "add" } },
    compare = { { "gt", { x(), x() }, { true }, f "gt" } },
    where = { { "", { mask(), x(), x() }, { true } } },
    uniform = { { "", {}, { x() } } },
    normal = { { "", {}, { x() } } },
    dropout = { { "", { x() }, { true }, { p = 0.1 } } },
    bias_activation_grad = { { "gelu_tanh with bias", { x(), x() }, { true, row() }, f "gelu_tanh" },
                             { "the bias alone", { x() }, { false, row() } } },
    layer_norm = { { "with residual", { x(), x(), row(), row() }, { n = 4, true, true, true, true } } },
    layer_norm_grad = { { "with residual", { x(), x(), x(), row(), per_row(), per_row() },
                          { true, row(), row() } } },
    rms_norm = { { "with residual", { x(), x(), row() }, { true, true, true } } },
    rms_norm_grad = { { "with residual", { x(), x(), x(), row(), per_row() }, { true, row() } } },
    norm_sums = { { "", { x(), n = 2 }, { n = 3, false, true, true } } },
    norm_apply = { { "", { x(), row(), row(), per_row(), per_row() }, { true } } },
    norm_grad_sums = { { "", { x(), x(), row(), per_row(), per_row() }, { true, true, true, true } } },
    norm_grad_apply = { { "", { x(), x(), x(), row(), per_row(), per_row(), per_row(), per_row() }, { true } } },
    batch_norm_sums = { { "", { images() }, { true, true } } },
    batch_norm_apply = { { "", { images(), plane(), plane(), per_plane(), per_plane() }, { true } } },
    batch_norm_grad_sums = { { "", { images(), images(), per_plane(), per_plane() }, { true, true } } },
    batch_norm_grad_apply = { { "", { images(), images(), plane(), per_plane(), per_plane(), per_plane(), per_plane() },
      { true } } },
    max_pool = { { "3 x 3 in twos", { images() }, { true, true }, three } },
    max_pool_grad = { { "3 x 3 in twos", { whole(halved, side * side), random(halved, t) }, { images() }, three } },
    avg_pool = { { "3 x 3 in twos", { images() }, { true }, three } },
    avg_pool_grad = { { "3 x 3 in twos", { random(halved, t) }, { images() }, three } },
    softmax = { { "", { x() }, { true }, { dim = 1 } } },
    softmax_grad = { { "", { x(), x() }, { true }, { dim = 1 } } },
    log_softmax = { { "", { x() }, { true }, { dim = 1 } } },
    log_softmax_grad = { { "", { x(), x() }, { true }, { dim = 1 } } },
    embedding = { { "", { random({ classes, width }, t), tokens() }, { true } } },
    embedding_grad = { { "", { tokens(), x() }, { random({ classes, width }, t) } } },
    cross_entropy = { { "", { logits(), target() }, { true, true, true } } },
    cross_entropy_grad = { { "", { logits(), target(), per_class_row(), per_class_row(), per_class_row() },
      { true } } },
    cross_entropy_both = { { "", { logits(), target(), scalar(1) }, { true, true } } },
    sum = { { "all", { x() }, { true } }, { "of rows", { x() }, { true }, { dims = 2 } },
            { "of columns", { x() }, { true }, { dims = 1 } } },
    max = { { "of rows", { x() }, { true, true }, { dim = 1 } } },
    min = { { "of columns", { x() }, { true, true }, { dim = 0 } } },
    argmax = { { "of rows", { x() }, { true }, { dim = 1 } } },
    sort = { { "rows of 1,024", { random({ class_rows, 1024 }, t) }, { true, true } } },
    unsort = { { "rows of 1,024", { (select(2, core.sort_rows(random({ class_rows, 1024 }, "f32"), false))),
      random({ class_rows, 1024 }, t) }, { true } } },
    top_k = { { "2 of 64", { random({ rows, 64 }, t) }, { true, true }, { k = 2 } } },
    scatter = { { "along rows", { whole({ rows, 1 }, 64), random({ rows, 1 }, t) }, { random({ rows, 64 }, t) },
                  { dim = 1 } } },
    experts_gather = { { "2 a token", { x(), whole({ 2 * rows }, 2 * rows), random({ rows, 2 }, "f32") }, { true },
                         { k = 2 } } },
    experts_combine = { { "2 a token", { random({ 2 * rows, width }, t), whole({ rows, 2 }, 2 * rows),
                          random({ rows, 2 }, "f32") }, { x() } } },
    experts_combine_grad = { { "2 a token", { random({ 2 * rows, width }, t), whole({ rows, 2 }, 2 * rows), x() },
                               { true } } },
    sum_squares = { { "", { x() }, { true } } },
    sgd = { { "momentum", { false, false, x() }, { x(), random({ rows, width }, "f32"),
      t ~= "f32" and random({ rows, width }, "f32") or false, false, n = 4 }, { momentum = 0.9 } } },
    adam = { { "", { false, false, x() }, { x(), random({ rows, width }, "f32"),
      gm.ones({ rows, width }, { dtype = "f32" }), false, t ~= "f32" and random({ rows, width }, "f32") or false, false,
      n = 6 },
      { decoupled = true, weight_decay = 0.1 } } },
  }
  two(list.bias_activation_grad[2][2])
  return list
end

-- Seconds and bytes of one call. Each op's own line: what it calls by itself is its time.
local function measure(op, case)
  local inputs, outputs = case[2], case[3]
  inputs.n, outputs.n = inputs.n or #inputs, outputs.n or #outputs
  local function run() core.run_op(common.backend(), op, inputs, outputs, case[4] or {}) end
  for _ = 1, 2 do gm.scope(run) end
  core.profile_start()
  for _ = 1, rounds do gm.scope(run) end
  local line = core.profile_stop()[1]
  return line.seconds / line.calls, line.bytes / line.calls
end

local function ops()
  local names = {}
  for line in io.lines(GANYMEDE_ROOT .. "/kernels/ops.def") do names[#names + 1] = line:match "^GM_OP%(([%w_]+)," end
  for line in io.lines(GANYMEDE_ROOT .. "/kernels/optimizers.def") do
    names[#names + 1] = line:match "^GM_OPTIMIZER%(([%w_]+),"
  end
  return names
end

local result = { rows = json.array {}, refused = json.array {}, without_case = json.array {} }
local copy = {} -- GB/s by dtype
for _, t in ipairs { "bf16", "f32" } do
  local names = { "copy" }
  for _, op in ipairs(ops()) do names[#names + 1] = is_timed(op) and op or nil end
  gm.scope(function()
    local all = cases_of(t)
    for _, op in ipairs(names) do
      local cases = all[op]
      if not cases and t == "bf16" then table.insert(result.without_case, op) end
      for _, case in ipairs(cases or {}) do
        local ok, seconds, bytes = pcall(measure, op, case)
        local name = (op .. " " .. case[1]):gsub("%s+$", "")
        if ok then
          local rate = bytes / seconds / 1e9
          copy[t] = copy[t] or rate
          table.insert(result.rows, { op = name, dtype = t, seconds = seconds, bytes = bytes, gbs = rate,
            of_copy = rate / copy[t] })
        else
          table.insert(result.refused, { op = name, dtype = t, reason = tostring(seconds) })
        end
      end
    end
  end)
end
table.sort(result.rows, function(a, b) return a.of_copy < b.of_copy end)
result.copy_gbs = copy
common.write("kernels", result)
for i = 1, math.min(12, #result.rows) do
  local r = result.rows[i]
  common.say("%5.1f %% of copy, %8.1f GB/s  %s %s", 100 * r.of_copy, r.gbs, r.op, r.dtype)
end
for _, r in ipairs(result.refused) do common.say("not timed: %s %s: %s", r.op, r.dtype, r.reason) end
if #result.without_case > 0 then common.say("no case here: %s", table.concat(result.without_case, ", ")) end
