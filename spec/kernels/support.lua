--- Runs one op on `ref` and on every CPU table of this machine, with the same inputs, and compares the outputs.
--
-- support.agree { op =, inputs =, outputs =, attrs =, within = } fails unless all tables agree with ref.
--   inputs   list of tensors, nil or false where an optional one is absent; n = count, if the last is absent
--   outputs  list: true, a new one; false, none; a function that makes the same in-out tensor at each call
--   attrs    as in kernels/attrs.def
--   within   for each output (or one for all) what support.exact, .relative, .terms or .absolute give; integers
--            are always compared exactly
--   on       by backend: what takes the place of `within` there
--   rounding by backend, for each output: an array of what else its elements may be off by; nil: nothing
-- New outputs are tried three times: contiguous, and as windows of larger tensors, whose other elements must stay, with
-- the order of dimensions kept and reversed (kept only, with dense_rows = true: ops that ask for a last stride of 1).
-- GPUs, which refuse accesses at addresses that are no multiples of their size, are given them a fourth time: there all
-- tensors without gaps, inputs too, begin one element behind a multiple of 16 bytes ("displaced"; not with
-- aligned = true: ops that ask for tensors that begin at a multiple of some bytes). on_cpu = true: not on a GPU.
-- The reference computes in double and rounds once, so that in f32 the whole error is the table's; in f64 the
-- reference rounds like the table, and twice the bound is allowed. In bf16 and f16 tables compute in f32, as the
-- bounds say, and round once: where the two lie on both sides of a tie, the results are neighbours, a unit apart.
local core = require "ganymede.core"
local full = require "spec.support.full"
local gm = require "ganymede"
local ffi = require "ffi"

local support = {}

--- Half a unit in the last place of 1: what rounding once costs.
support.epsilon = { f32 = 2 ^ -24, f64 = 2 ^ -53, bf16 = 2 ^ -8, f16 = 2 ^ -11 }
-- Below it numbers have fewer digits; in f16 they are then this far apart.
local smallest = { f32 = 2 ^ -126, f64 = 2 ^ -1022, bf16 = 2 ^ -126, f16 = 2 ^ -24 }

support.dtypes = { "f32", "f64", "bf16", "f16" }
local narrow = { bf16 = true, f16 = true }

--- The dtype of statistics, losses and moments of tensors of dtype.
function support.wide(dtype) return narrow[dtype] and "f32" or dtype end
support.backends = {}
for _, name in ipairs { "cpu-generic", "cpu-avx2", "cpu-avx512", "cpu-avx512bf16", "cpu-amx", "cpu-amx-emulated" } do
  if core.has_backend(name) then table.insert(support.backends, name) end
end
-- Tables of AMX are cpu-avx512bf16 but for these ops, of bf16 (kernels/cpu/cpu_t.h).
local by_amx = { matmul = true, linear = true, linear_weight_grad = true, linear_input_grad = true,
  grouped_matmul = true, grouped_weight_grad = true, convolution = true, transposed_convolution = true,
  convolution_weight_grad = true, attention = true, attention_grad = true }
-- On a GPU, or by its kernels' emulation, which is slow: there each call is tried with one kind of outputs, in turn.
-- GANYMEDE_CUDA_SUITE=all: with each; only, for who writes kernels: with each, and on nothing else; none, for
-- sanitizers, which the emulated kernels are compiled without: not on that.
local suite, on_gpu = os.getenv "GANYMEDE_CUDA_SUITE", false
if suite ~= "none" and require "spec.cuda.emulation".start() then
  if suite == "only" then support.backends = {} end
  table.insert(support.backends, "cuda")
  on_gpu = true
elseif suite == "only" then
  error "GANYMEDE_CUDA_SUITE=only, and cuda cannot be used here: build ganymede_cuda.so and the target gm_fake_cuda"
end

--- "(8, 1024)"
function support.show(shape) return "(" .. table.concat(shape, ", ") .. ")" end

-- ---------------------------------------------------------------- inputs

local function copied(list)
  local new = {}
  for i, v in ipairs(list) do new[i] = v end
  return new
end

-- layout -> make(shape, maker): a tensor of this shape whose memory comes from maker(other shape)
local layouts = {}
support.layouts = { "contiguous", "turned", "window", "expanded" }

function layouts.contiguous(shape, maker) return maker(shape) end

--- The order of dimensions reversed in memory; one dimension: every third element.
function layouts.turned(shape, maker)
  local turned, order, n = {}, {}, #shape
  if n == 0 then return maker(shape) end
  if n == 1 then return maker({ shape[1], 3 }):select(2, 2) end
  for d = 1, n do turned[d], order[d] = shape[n + 1 - d], n + 1 - d end
  return maker(turned):permute(order)
end

--- A part of a larger tensor: gaps in every dimension, and a first element that is not aligned.
function layouts.window(shape, maker)
  local larger = copied(shape)
  for d = 1, #shape do larger[d] = shape[d] + 2 end
  local t = maker(larger)
  for d = 1, #shape do t = t:narrow(d, 2, shape[d]) end
  return t
end

--- The first dimension is one row shown again and again.
function layouts.expanded(shape, maker)
  if #shape == 0 then return maker(shape) end
  local row = copied(shape)
  row[1] = 1
  return maker(row):expand(shape)
end

local seed = 0
--- Uniform in [low, high) (default [-1, 1)), a new draw each time, in one of support.layouts.
function support.input(shape, dtype, layout, low, high)
  seed = seed + 1
  return layouts[layout or "contiguous"](shape, function(memory)
    return gm.uniform(memory, { low = low or -1, high = high or 1, dtype = dtype, seed = seed })
  end)
end

--- Integers from low to high, both included; dtype i64, i32 or u8.
function support.integers(shape, dtype, low, high, layout)
  seed = seed + 1
  return layouts[layout or "contiguous"](shape, function(memory)
    return gm.uniform(memory, { low = low, high = high + 1, dtype = "f64", seed = seed }):to(dtype)
  end)
end

--- f64 of one dimension with these values, in one of support.layouts.
function support.numbers(list, layout)
  local t = layouts[layout or "contiguous"]({ #list }, function(memory) return gm.zeros(memory, { dtype = "f64" }) end)
  return core.run_op("ref", "copy", { gm.tensor(list, { dtype = "f64" }) }, { t })[1]
end

--- A function that makes a tensor with these contents anew, for in-out outputs; `layout` and `low` as for inputs.
function support.given(shape, dtype, layout, low)
  seed = seed + 1
  local mine = seed
  return function()
    local base
    local t = layouts[layout or "contiguous"](shape, function(memory)
      base = gm.uniform(memory, { low = low or -1, high = 1, dtype = dtype, seed = mine })
      return base
    end)
    return t, base
  end
end

--- A new table with the attributes of both; those of `more` count.
function support.with(attrs, more)
  local all = {}
  for key, value in pairs(attrs) do all[key] = value end
  for key, value in pairs(more) do all[key] = value end
  return all
end

--- A contiguous copy, in another dtype if given.
function support.copy(t, dtype)
  return core.run_op("ref", "copy", { n = 1, t }, { n = 1, true }, { dtype = dtype or t:dtype() })[1]
end

--- A contiguous f64 tensor of t's absolute values: magnitudes for support.terms and the like.
function support.magnitude(t)
  return core.run_op("ref", "unary", { n = 1, support.copy(t, "f64") }, { n = 1, true }, { ["function"] = "abs" })[1]
end

--- The `count` outputs of an op on the reference, in f64 whatever the inputs are (integers stay).
function support.references(op, inputs, attrs, count)
  local wide, outputs = { n = inputs.n or #inputs }, { n = count }
  for i = 1, wide.n do
    local t = inputs[i]
    wide[i] = t and (support.wide(t:dtype()) == "f32" and support.copy(t, "f64") or t)
  end
  for i = 1, outputs.n do outputs[i] = true end
  return unpack(core.run_op("ref", op, wide, outputs, attrs), 1, count)
end

--- One of them.
function support.reference(op, inputs, attrs, which, count)
  return (select(which or 1, support.references(op, inputs, attrs, count or 1)))
end

-- ---------------------------------------------------------------- tolerances

-- A tolerance allows k epsilon times `of`: "value", "largest" (of all wanted values), a number, or a tensor of
-- magnitudes with one element for each of the output.

--- Bit for bit.
support.exact = { k = 0, of = 0 }

--- k roundings of the value itself.
function support.relative(k) return { k = k, of = "value" } end

--- k roundings of numbers of this magnitude.
function support.absolute(k, of) return { k = k, of = of or "largest" } end

--- A sum of n terms: roundings are as good as random and add up like sqrt(n); 4 standard deviations, and some for
-- what is done to each term. of: the magnitude that the sum has without cancellation.
function support.terms(n, of) return { k = 8 + 4 * math.sqrt(n), of = of or "largest" } end

-- ---------------------------------------------------------------- comparison

local function contiguous(t) return t:is_contiguous() and t or support.copy(t) end

local function largest_of(data, n)
  local most = 0
  for i = 0, n - 1 do
    local v = math.abs(tonumber(data[i]))
    if v > most and v < math.huge then most = v end
  end
  return most
end

-- allowed(i) for element i, from 0. Contents of magnitude tensors are kept alive by the tolerance.
local function allowance(within, dtype, want, n)
  if narrow[dtype] then
    local inner, round = allowance(within, "f32", want, n), 2 * support.epsilon[dtype]
    return function(i) return inner(i) + round * (math.abs(want[i]) + inner(i)) + smallest[dtype] end
  end
  local unit = (support.epsilon[dtype] or 0) * (dtype == "f64" and 2 or 1) * within.k
  local floor = within.k > 0 and smallest[dtype] or 0
  if within.of == "value" then return function(i) return unit * math.abs(want[i]) + floor end end
  if within.of == "largest" then
    local same = unit * largest_of(want, n) + floor
    return function() return same end
  end
  if type(within.of) == "number" then
    return function() return unit * within.of + floor end
  end
  assert(within.of:numel() == n, "a magnitude for each element is wanted")
  local magnitudes = within.of:data()
  return function(i) return unit * magnitudes[i] + floor end
end

ffi.cdef "int memcmp(const void *a, const void *b, size_t n);"
local function same_bits(a, b, bytes) return bytes == 0 or ffi.C.memcmp(a, b, bytes) == 0 end

local bytes_of = { f32 = 4, f64 = 8, bf16 = 2, f16 = 2, i32 = 4, i64 = 8, u8 = 1 }

--- Fails with `label` unless got is within what is allowed of want: same dtype, shape, NaN and infinities.
function support.compare(got, want, within, label, more)
  local dtype, n = want:dtype(), want:numel()
  local have, wanted = got:dtype() .. support.show(got:shape()), dtype .. support.show(want:shape())
  if have ~= wanted then error(("%s: it is %s, should be %s"):format(label, have, wanted), 0) end
  got, want = contiguous(got), contiguous(want)
  local a, b = got:data(), want:data()
  if same_bits(a, b, n * bytes_of[dtype]) then return end
  if within == support.exact or not support.epsilon[dtype] then
    for i = 0, n - 1 do
      if not same_bits(a + i, b + i, bytes_of[dtype]) then
        error(("%s: element %d is %.17g, ref says %.17g; they should be equal"):format(label, i + 1, tonumber(a[i]),
          tonumber(b[i])), 0)
      end
    end
  end
  if narrow[dtype] then
    got, want = support.copy(got, "f32"), support.copy(want, "f32")
    a, b = got:data(), want:data()
  end
  local allowed = allowance(within, dtype, b, n)
  for i = 0, n - 1 do
    local x, y = a[i], b[i]
    local both_nan = x ~= x and y ~= y
    if not (both_nan or x == y or math.abs(x - y) <= allowed(i) + (more and more[i] or 0)) then
      error(("%s: element %d is %.17g, ref says %.17g: off by %.3g, allowed %.3g"):format(label, i + 1, x, y,
        math.abs(x - y), allowed(i) + (more and more[i] or 0)), 0)
    end
  end
end

-- A part of a larger tensor of sevens, and the larger tensor; turned: with the order of dimensions reversed in memory.
local function window_of(shape, dtype, turned)
  local base
  local function maker(memory)
    base = gm.full(memory, 7, { dtype = dtype })
    return base
  end
  local t = layouts.window(shape, function(larger) return turned and layouts.turned(larger, maker) or maker(larger) end)
  return t, base
end

-- A tensor like t, without gaps, behind the first element of a larger one of sevens, and the larger one.
local function displaced_like(t)
  local base = gm.full({ t:numel() + 2 }, 7, { dtype = t:dtype() })
  return base:narrow(1, 2, t:numel()):reshape(t:shape()), base
end

-- The same numbers, displaced, and the larger tensor; t itself, where it has gaps or no elements.
local function displaced(t, base)
  if not t or not t:is_contiguous() or t:numel() == 0 then return t, base end
  local new, larger = displaced_like(t)
  core.run_op("ref", "copy", { n = 1, t }, { n = 1, new })
  return new, larger
end

local function displaced_inputs(inputs)
  local list = { n = inputs.n }
  for i = 1, list.n do list[i] = displaced(inputs[i]) end
  return list
end

-- Outputs for one run, as run_op takes them, and the tensors that they are parts of, where they are.
local function prepare(outputs, windows, kind)
  local list, bases = { n = outputs.n }, {}
  for i = 1, list.n do
    local out = outputs[i]
    if type(out) == "function" then
      list[i], bases[i] = out()
      if kind == "displaced" then list[i], bases[i] = displaced(list[i], bases[i]) end
    elseif out and windows and kind == "displaced" then
      list[i], bases[i] = displaced_like(windows[i])
    elseif out and windows then
      list[i], bases[i] = window_of(windows[i]:shape(), windows[i]:dtype(), kind == "turned window")
    else
      list[i] = out
    end
  end
  return list, bases
end

-- Zeros, written by the reference: a table that writes past an end would hide its own trace.
local function erase(t) core.run_op("ref", "fill", {}, { t }, { value = 0 }) end

-- Copies of the outputs; the outputs themselves are then zeros, so that of `bases` only what is outside is left.
local function blot(outputs, bases, n)
  local copies = {}
  for i = 1, n do
    if outputs[i] then copies[i] = support.copy(outputs[i]) end
    if bases[i] then erase(outputs[i]) end
  end
  return copies
end

-- One run on the reference -> copies of the outputs, and what is left of the tensors that they are parts of.
local function run_reference(case)
  local outputs, bases = prepare(case.outputs)
  return blot(core.run_op("ref", case.op, case.inputs, outputs, case.attrs), bases, case.outputs.n), bases
end

-- Kinds of outputs that the emulation has been given so far.
local turns, takes_turns = 0, suite ~= "only" and suite ~= "all"

-- One run on each of `backends` against what the reference gave. windows: make new outputs as parts of larger tensors,
-- like these, as `pass` says.
local function run_tables(case, backends, pass, want, bases, windows)
  for _, backend in ipairs(backends) do
    local n, mine, mine_bases = case.outputs.n, prepare(case.outputs, windows, pass)
    local inputs = pass == "displaced" and displaced_inputs(case.inputs) or case.inputs
    local got = blot(core.run_op(backend, case.op, inputs, mine, case.attrs), mine_bases, n)
    for i = 1, n do
      local label = ("%s on %s, output %d (%s)"):format(case.label or case.op, backend, i, pass)
      local within = case.on and case.on[backend] or case.within
      within = within.k and within or within[i]
      local more = case.rounding and case.rounding[backend] and case.rounding[backend][i]
      if want[i] then support.compare(got[i], want[i], within, label, more) end
      if mine_bases[i] then support.compare(mine_bases[i], bases[i], support.exact, label .. ", outside of it") end
    end
  end
end

-- What must be left of the larger tensors: sevens around zeros. Those of in-out outputs stay as they are, if these
-- were not displaced.
local function untouched_windows(case, want, bases, kind)
  local outputs, left = prepare(case.outputs, want, kind)
  for i = 1, case.outputs.n do
    if type(case.outputs[i]) == "function" and kind ~= "displaced" then
      left[i] = bases[i]
    elseif left[i] then
      erase(outputs[i])
    end
  end
  return left
end

local function makes_outputs(outputs)
  for i = 1, outputs.n do
    if outputs[i] == true then return true end
  end
  return false
end

function support.agree(case)
  assert(#support.backends > 0, "no CPU table on this machine")
  case.inputs.n = case.inputs.n or #case.inputs
  case.outputs.n = case.outputs.n or #case.outputs
  case.attrs = case.attrs or {}
  local kinds = { "contiguous" }
  if makes_outputs(case.outputs) then kinds[2], kinds[3] = "window", not case.dense_rows and "turned window" or nil end
  if on_gpu and not case.aligned then kinds[#kinds + 1] = "displaced" end
  turns = turns + 1
  gm.scope(function()
    local want, bases = run_reference(case)
    for i, kind in ipairs(kinds) do
      local backends = {}
      for _, backend in ipairs(support.backends) do
        local takes = kind ~= "displaced"
        if backend == "cuda" then takes = not case.on_cpu and (not takes_turns or turns % #kinds + 1 == i) end
        if backend:find "^cpu%-amx" then takes = takes and by_amx[case.op] and case.inputs[1]:dtype() == "bf16" end
        if takes then backends[#backends + 1] = backend end
      end
      local windows = i > 1 and want or nil
      local left = windows and #backends > 0 and untouched_windows(case, want, bases, kind) or bases
      run_tables(case, backends, kind, want, left, windows)
    end
  end)
end

--- Fails unless every table and ref refuse the call with a message that matches, and leave the given outputs alone.
function support.refuses(op, inputs, outputs, attrs, message)
  for _, backend in ipairs { "ref", unpack(support.backends) } do
    local list, before = { n = #outputs }, {}
    for i, make in ipairs(outputs) do
      list[i] = make()
      before[i] = make()
    end
    local ok, err = pcall(core.run_op, backend, op, inputs, list, attrs)
    if ok then error(("%s accepts what it should refuse: %s"):format(backend, message), 2) end
    if not tostring(err):find(message) then error(("%s: '%s' does not match '%s'"):format(backend, err, message), 2) end
    for i = 1, list.n do support.compare(list[i], before[i], support.exact, backend .. " refused, output " .. i) end
  end
end

-- The layouts of one example of support.each. f16 differs from bf16 in its casts alone, which the op `copy` tries in
-- every layout: elsewhere the first does for it. Code for layouts does not depend on sizes: small shapes meet all of
-- them in every dtype, and large ones the first and, over dtypes and shapes, each of the others in turn.
local function layouts_of(name, shape, layout_names, d, s)
  local elements = 1
  for _, n in ipairs(shape) do elements = elements * n end
  if support.dtypes[d] == "f16" and not name:find "^copy" then return { layout_names[1] } end
  if full or elements < 4096 or #layout_names < 3 then return layout_names end
  return { layout_names[1], layout_names[(d + s) % (#layout_names - 1) + 2] }
end

--- An example for each dtype and shape, with busted's `it`; body(dtype, shape, layout) runs in a scope.
function support.each(it, name, shapes, layout_names, body)
  for d, dtype in ipairs(support.dtypes) do
    for s, shape in ipairs(shapes) do
      it(("%s %s %s"):format(name, dtype, support.show(shape)), function()
        for _, layout in ipairs(layouts_of(name, shape, layout_names, d, s)) do
          gm.scope(function() body(dtype, shape, layout) end)
        end
      end)
    end
  end
end

--- Shapes that find the ends of vector loops, thread parts and odd sizes.
support.shapes = { {}, { 1 }, { 7 }, { 3, 5 }, { 8, 1024 }, { 7, 1025 }, { 0 }, { 3, 0 }, { 2, 3, 4, 5 } }

return support
