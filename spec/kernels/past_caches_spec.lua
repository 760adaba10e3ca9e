-- Outputs from 8 MiB on, which CPU tables write past the caches: they have the bits that the same table gives for their
-- parts, which are smaller and go through the caches. Other specs compare such parts with the reference. Copies and
-- fills are compared with the reference itself.
--
-- Rows of 769 begin anywhere in a cache line; rows of 1024 begin at one, and 2048 of them are 8 MiB of f32 to the byte.
-- Tensors that begin beside a line, and outputs that are windows, whose surroundings must stay, are tried too.
-- sanitizers: only "2731, 769" "f32 %(2059, 1041" "behind each" "f64", the others run the same lines of C
--   (docs/testing.md)
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local input = support.input
local shapes = { { 2731, 769 }, { 2048, 1024 }, { 2047, 1024 } } -- the last is just below
local part = 512

local backends = {}
for _, name in ipairs(support.backends) do
  if name ~= "cuda" then backends[#backends + 1] = name end
end

-- A tensor of this shape whose first element is not the first of its memory.
local function beside(shape, maker)
  local first = shape[1]
  return maker({ first + 1, shape[2] + 1 }):narrow(1, 2, first):narrow(2, 2, shape[2])
end

local function rows_of(list, count, from, n)
  local some = { n = list.n }
  for i = 1, list.n do
    local t = list[i]
    some[i] = t and t:dim() > 0 and t:size(1) == count and t:narrow(1, from, n) or t
  end
  return some
end

-- The first output of the whole against that of parts of `part` rows; attrs(from): the attributes of a part.
local function has_bits_of_parts(op, inputs, outputs, attrs, shape)
  for _, backend in ipairs(backends) do
    local whole = core.run_op(backend, op, inputs, outputs(shape), attrs(1))
    for from = 1, shape[1], part do
      local n = math.min(part, shape[1] - from + 1)
      local got = core.run_op(backend, op, rows_of(inputs, shape[1], from, n), outputs({ n, shape[2] }), attrs(from))
      support.compare(whole[1]:narrow(1, from, n), got[1], support.exact, ("%s of %s on %s, rows from %d"):format(op,
        support.show(shape), backend, from))
    end
  end
end

-- One example for each shape: body(shape, make), where make(seed) gives an input that may begin beside a line.
local function each_shape(name, body)
  for i, shape in ipairs(shapes) do
    it(("%s %s"):format(name, support.show(shape)), function()
      gm.scope(function()
        body(shape, function(low)
          local function maker(memory) return input(memory, "f32", nil, low or -3, 3) end
          return i == 2 and beside(shape, maker) or maker(shape)
        end)
      end)
    end)
  end
end

local function new() return { n = 1, true } end
local function same(attrs) return function() return attrs end end

describe("outputs that go past the caches have the bits of their parts:", function()
  each_shape("functions of one and two tensors", function(shape, make)
    local x, y = make(), make()
    local row = input({ shape[2] }, "f32")
    for _, f in ipairs { "relu", "gelu", "exp", "sin" } do
      has_bits_of_parts("unary", { n = 1, x }, new, same { ["function"] = f }, shape)
    end
    has_bits_of_parts("unary_grad", { n = 2, x, y }, new, same { ["function"] = "gelu" }, shape)
    has_bits_of_parts("unary_grad", { n = 2, x:to "f64", y:to "f64" }, new, same { ["function"] = "silu" }, shape)
    has_bits_of_parts("binary", { n = 2, x, y }, new, same { ["function"] = "add" }, shape)
    has_bits_of_parts("binary", { n = 2, x, row }, new, same { ["function"] = "mul" }, shape)
    local strided = support.copy(y:transpose(1, 2)):transpose(1, 2)
    has_bits_of_parts("affine", { n = 1, strided }, new, same { alpha = 2 }, shape)
  end)

  each_shape("axpy", function(shape, make)
    local function given(part_shape) return { n = 1, gm.full(part_shape, 0.75) } end
    has_bits_of_parts("axpy", { n = 1, make() }, given, same { alpha = 0.5 }, shape)
  end)

  -- A part is a block of the whole: its elements draw by their index there.
  each_shape("dropout", function(shape, make)
    local function block(from)
      return { p = 0.3, stream = { key = 99, step = 5 }, box = { shape = shape, offset = { from - 1, 0 } } }
    end
    has_bits_of_parts("dropout", { n = 1, make(0.5) }, new, block, shape)
  end)

  each_shape("layer_norm, rms_norm and their gradients", function(shape, make)
    local x, g, n = make(), make(), shape[2]
    local w, b = input({ n }, "f32"), input({ n }, "f32")
    local mean, rstd = input({ shape[1] }, "f32"), input({ shape[1] }, "f32", nil, 0.5, 2)
    local function norm() return { n = 4, true, false, true, true } end
    has_bits_of_parts("layer_norm", { n = 4, x, nil, w, b }, norm, same { eps = 1e-5 }, shape)
    has_bits_of_parts("layer_norm_grad", { n = 6, g, nil, x, w, mean, rstd },
      function() return { n = 3, true, true, true } end, same {}, shape)
    has_bits_of_parts("rms_norm", { n = 3, x, nil, w }, function() return { n = 3, true, false, true } end,
      same { eps = 1e-5 }, shape)
    has_bits_of_parts("rms_norm_grad", { n = 5, g, x, x, nil, rstd }, function() return { n = 2, true, false } end,
      same {}, shape)
  end)

  each_shape("softmax, log_softmax and their gradients", function(shape, make)
    local x, g = make(), make()
    for _, op in ipairs { "softmax", "log_softmax" } do
      has_bits_of_parts(op, { n = 1, x }, new, same {}, shape)
      has_bits_of_parts(op .. "_grad", { n = 2, x, g }, new, same {}, shape)
    end
  end)

  -- Rows of whole vectors, some of them behind the last four; with what softmax must not mix up among its rows.
  for dtype, shape in pairs { f32 = { 2731, 776 }, f64 = { 2051, 780 } } do
    it(("softmax %s %s with infinities and NaN"):format(dtype, support.show(shape)), function()
      gm.scope(function()
        local x = input(shape, dtype, nil, -3, 3)
        for row, value in pairs { [1] = 1 / 0, [3] = 0 / 0, [700] = 90, [1024] = -1 / 0, [shape[1]] = 50 } do
          core.fill_(x:narrow(1, row, 1):narrow(2, 5 + row % 7, 1), value)
        end
        core.fill_(x:narrow(1, 9, 1), -1 / 0)
        has_bits_of_parts("softmax", { n = 1, x }, new, same {}, shape)
      end)
    end)
  end

  each_shape("cross_entropy_grad", function(shape, make)
    local x, classes = make(), {}
    for r = 1, shape[1] do classes[r] = (r * 197) % shape[2] end
    local target, g = gm.tensor(classes, { dtype = "i64" }), input({ shape[1] }, "f32")
    local known = core.run_op("ref", "cross_entropy", { x, target }, { n = 3, true, true, true }, {})
    has_bits_of_parts("cross_entropy_grad", { n = 5, x, target, known[2], known[3], g }, new,
      same { label_smoothing = 0.1 }, shape)
  end)
end)

-- copy of x into y, which is a window of `base`, against the reference; what is around y stays 7.
local function copies(x, y, base, label)
  for _, backend in ipairs(backends) do
    core.run_op("ref", "fill", {}, { base }, { value = 7 })
    core.run_op(backend, "copy", { n = 1, x }, { n = 1, y }, {})
    local got = support.copy(base)
    core.run_op("ref", "fill", {}, { base }, { value = 7 })
    core.run_op("ref", "copy", { n = 1, x }, { n = 1, y }, {})
    support.compare(got, base, support.exact, label .. " on " .. backend)
  end
end

describe("large copies and fills agree with ref:", function()
  -- The shape of base, and that of y, which is a corner of it: rows at lines or not, the last ones not a whole block,
  -- the last columns not a whole line; below and above 8 MiB.
  local transposed = {
    { "f32", { 2059, 1040 }, { 2059, 1040 } }, { "f32", { 2059, 1040 }, { 2055, 1030 } },
    { "f32", { 2059, 1056 }, { 2055, 1046 } }, { "f64", { 1039, 1032 }, { 1033, 1023 } },
    { "f32", { 2059, 1041 }, { 2059, 1041 } }, { "f32", { 1000, 1040 }, { 1000, 1040 } },
    { "f64", { 1039, 1032 }, { 1039, 1032 } }, { "f64", { 1039, 1032 }, { 1033, 1027 } },
  }
  for _, case in ipairs(transposed) do
    local dtype, memory, shape = case[1], case[2], case[3]
    it(("transposed %s %s of %s"):format(dtype, support.show(shape), support.show(memory)), function()
      gm.scope(function()
        local base = gm.zeros(memory, { dtype = dtype })
        local y = base:narrow(1, 1, shape[1]):narrow(2, 1, shape[2])
        copies(input({ shape[2], shape[1] }, dtype):transpose(1, 2), y, base, "transposed copy")
      end)
    end)
  end

  it("transposed matrices behind each other", function()
    gm.scope(function()
      local base = gm.zeros { 3, 700, 1040 }
      copies(input({ 3, 1040, 700 }, "f32"):transpose(2, 3), base, base, "transposed copies")
    end)
  end)

  -- 0 and -0, whose bytes are or are not all equal; 2, of which only the last byte differs; 0.1
  local large = { f32 = { 2100, 1025 }, f64 = { 1050, 1025 }, bf16 = { 4200, 1025 } }
  for _, dtype in ipairs { "f32", "f64", "bf16", "u8" } do
    it("fill with numbers of " .. dtype, function()
      for _, shape in ipairs { { 3, 5 }, large[dtype] } do
        gm.scope(function()
          local values = dtype == "u8" and { 0, 200 } or shape[1] == 3 and { 0, -0.0, 2, 0.1 } or { 0, 0.1 }
          for _, value in ipairs(values) do
            local base = gm.full({ shape[1], shape[2] + 1 }, 7, { dtype = dtype })
            local outputs = { base, base:narrow(2, 2, shape[2]), base:transpose(1, 2):narrow(1, 1, shape[2]) }
            for _, y in ipairs(outputs) do
              for _, backend in ipairs(backends) do
                core.run_op("ref", "fill", {}, { base }, { value = 7 })
                core.run_op(backend, "fill", {}, { y }, { value = value })
                local got = support.copy(base)
                core.run_op("ref", "fill", {}, { base }, { value = 7 })
                core.run_op("ref", "fill", {}, { y }, { value = value })
                support.compare(got, base, support.exact, ("fill with %g on %s"):format(value, backend))
              end
            end
          end
        end)
      end
    end)
  end
end)
