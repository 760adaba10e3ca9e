-- Convolutions, transposed ones and the gradient of their weights on every table against the plain loops: random
-- settings of 1 to 3 dimensions, odd sizes, strides beyond kernels, padding of one side only, dilation, groups, no
-- samples.
local convolutions = require "spec.kernels.convolutions"
local core = require "ganymede.core"
local ffi = require "ffi"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local agree, input, with = support.agree, support.input, support.with

-- Whole numbers from low to high, the same in each run.
local state = 12345
local function draw(low, high)
  state = (state * 1103515245 + 12345) % 2 ^ 31
  return low + math.floor(state / 65536) % (high - low + 1)
end

local functions = { "none", "relu", "gelu", "silu", "tanh", "sigmoid", "gelu_tanh" }

local function product(list, from)
  local n = 1
  for i = from or 1, #list do n = n * list[i] end
  return n
end

-- A setting: attributes, and the shapes of both sides (x, y) and of w.
local function setting(i)
  local space, groups = i % 3 + 1, i % 4 == 0 and draw(2, 3) or 1
  local c, o, n = draw(1, 5), draw(1, 6), i % 17 == 0 and 0 or draw(1, 3)
  if i % 7 == 0 then groups, c, o = draw(2, 6), 1, draw(1, 2) end -- depthwise
  local s = { attrs = { stride = {}, dilation = {}, pad_low = {}, pad_high = {}, groups = groups }, kernel = {},
              x = { n, c * groups }, y = { n, o * groups }, w = { o * groups, c } }
  for d = 1, space do
    local kernel, stride, dilation = draw(1, 4), draw(1, space == 1 and 6 or 3), draw(1, 3)
    local low, high = i % 3 == 0 and 0 or draw(0, 3), i % 3 == 0 and 0 or draw(0, 3)
    convolutions.add(s, d, kernel, stride, dilation, low, high, draw(0, space == 3 and 4 or 9))
  end
  return s
end

-- What a result would be without cancellation, for support.terms; an activation adds its own roundings.
local function magnitude(op, inputs, attrs, count)
  local all = { n = inputs.n or #inputs }
  for i = 1, all.n do all[i] = inputs[i] and support.magnitude(inputs[i]) end
  return support.reference(op, all, attrs, 1, count)
end

-- On a GPU, cuDNN rounds the product to 16 bits; a kernel of ours adds the bias, or what was there, afterwards. So
-- results near zero may carry half a unit in the last place of a product that is much larger. slopes: of what follows.
local function rounding(op, inputs, attrs, dtype, slopes)
  if support.wide(dtype) == dtype then return nil end
  local made = support.reference(op, inputs, attrs, 1, 2)
  local data, lists = made:data(), {}
  for k, slope in ipairs(slopes) do
    lists[k] = ffi.new("double[?]", made:numel() + 1)
    for i = 0, made:numel() - 1 do lists[k][i] = support.epsilon[dtype] * slope * math.abs(data[i]) end
  end
  return { cuda = lists }
end

local function plus(t, k, by)
  return core.run_op("ref", "affine", { t }, { true }, { alpha = k, beta = by })[1]
end

local function forward(op, x, w, b, attrs, terms, label)
  local none = with(attrs, { ["function"] = "none" })
  local of = magnitude(op, { x, w, b, n = 3 }, none, 2)
  local more = b and rounding(op, { x, w, nil, n = 3 }, none, x:dtype(), { 1.2, 1 })
  for _, f in ipairs { "none", functions[draw(2, #functions)] } do
    -- an activation's slope is below 1.13; its own error is a few roundings of numbers below 1 (vector.c)
    local within = support.terms(terms + 1, plus(of, 1.2, f == "none" and 0 or 2))
    agree { op = op, inputs = { x, w, b, n = 3 }, outputs = { true, f ~= "none" }, label = label .. " " .. f,
            attrs = with(attrs, { ["function"] = f }), within = { within, support.terms(terms + 1, of) },
            rounding = more or nil }
  end
end

local function weights(s, g, x, dtype, accumulate, label)
  local attrs = with(s.attrs, { kernel = s.kernel, accumulate = accumulate })
  local terms = g:size(1) * product(s.y, 3)
  local of = plus(magnitude("convolution_weight_grad", { g, x }, with(s.attrs, { kernel = s.kernel }), 2), 1, 1)
  local dw, db = true, true
  if accumulate then dw, db = support.given(s.w, dtype), support.given({ s.w[1] }, dtype, "turned") end
  local within = { support.terms(terms, of), support.terms(terms, terms + 1) }
  local more = accumulate and rounding("convolution_weight_grad", { g, x }, with(attrs, { accumulate = false }), dtype,
    { 1 })
  agree { op = "convolution_weight_grad", inputs = { g, x }, outputs = { dw, db }, attrs = attrs, within = within,
          label = label, rounding = more or nil }
end

local function try(s, dtype, layout, accumulate)
  local x, y = input(s.x, dtype, layout), input(s.y, dtype, layout)
  local w, b = input(s.w, dtype, layout), input({ s.w[1] }, dtype, layout == "turned" and "turned" or "contiguous")
  local shape = ("x %s w %s"):format(support.show(s.x), support.show(s.w))
  forward("convolution", x, w, draw(0, 1) == 1 and b or nil, s.attrs, product(s.w, 2), "convolution " .. shape)
  local back, made = with(s.attrs, { output_padding = convolutions.left_over(s) }), { s.x[2] }
  forward("transposed_convolution", y, w, draw(0, 1) == 1 and input(made, dtype) or nil, back,
    s.w[1] / s.attrs.groups * product(s.w, 3), "transposed " .. shape)
  weights(s, y, x, dtype, accumulate, "gradient of weights " .. shape)
end

describe("kernels", function()
  for i = 1, 100 do
    local dtype = i % 5 == 4 and support.dtypes[3 + i % 2] or support.dtypes[1 + i % 2]
    it(("convolution %d %s"):format(i, dtype), function()
      gm.scope(function() try(setting(i), dtype, support.layouts[(i % 4 == 3 and i % 3 or 0) + 1], i % 2 == 0) end)
    end)
  end

  -- Blocks of the product: more than GEMM_DEPTH terms, more than one sliver and panel, panels across images; few
  -- results beside many outputs, where b is what stays packed; images that are taken together, and more than one time.
  for _, s in ipairs {
    { x = { 3, 33, 7, 9 }, w = { 35, 33, 3, 3 }, y = { 3, 35, 7, 9 }, kernel = { 3, 3 },
      attrs = { stride = { 1, 1 }, dilation = { 1, 1 }, pad_low = { 1, 1 }, pad_high = { 1, 1 } } },
    { x = { 1, 70, 3, 3 }, w = { 67, 70, 2, 2 }, y = { 1, 67, 1, 1 }, kernel = { 2, 2 },
      attrs = { stride = { 2, 2 }, dilation = { 1, 1 }, pad_low = { 0, 0 }, pad_high = { 0, 0 } } },
    { x = { 2, 40, 5, 5 }, w = { 36, 20, 1, 1 }, y = { 2, 36, 5, 5 }, kernel = { 1, 1 },
      attrs = { stride = { 1, 1 }, dilation = { 1, 1 }, pad_low = { 0, 0 }, pad_high = { 0, 0 }, groups = 2 } },
    { x = { 3, 2, 400000 }, w = { 5, 2, 3 }, y = { 3, 5, 2000 }, kernel = { 3 },
      attrs = { stride = { 200 }, dilation = { 70 }, pad_low = { 1 }, pad_high = { 0 } } },
  } do
    s.attrs.groups = s.attrs.groups or 1
    it("large convolution of " .. support.show(s.x) .. " by " .. support.show(s.w), function()
      gm.scope(function() try(s, "f32", "contiguous", false) end)
    end)
  end

  -- 3 x 3 with stride 1 and many channels (kernels/cpu/winograd.c): tiles that reach over edges, padding of one side
  -- and of more than the kernel reaches, rows of more tiles than are transformed together, images in several turns.
  -- A result reads sums of its whole tile here, so the bound of its own products alone is not one; the elements of a
  -- test are of one size, and the count of terms leaves room for that.
  for _, s in ipairs {
    { x = { 5, 33, 7, 9 }, w = { 35, 33, 3, 3 }, y = { 5, 35, 8, 8 }, low = { 0, 1 }, high = { 3, 0 } },
    { x = { 7, 24, 1, 260 }, w = { 26, 24, 3, 3 }, y = { 7, 26, 2, 258 }, low = { 3, 0 }, high = { 0, 0 } },
  } do
    s.kernel, s.attrs = { 3, 3 }, { stride = { 1, 1 }, dilation = { 1, 1 }, pad_low = s.low, pad_high = s.high,
      groups = 1 }
    for _, accumulate in ipairs(s.x[1] == 5 and { false, true } or { false }) do
      local name = ("tiles of %s by %s%s"):format(support.show(s.x), support.show(s.w), accumulate and ", added" or "")
      it(name, function()
        gm.scope(function() try(s, "f32", accumulate and "turned" or "contiguous", accumulate) end)
      end)
    end
  end

  -- Depthwise ones: eight rows, or eight places of the kernel, are summed at a time; rows that are shorter than a
  -- vector, end within one, or are longer than those whose planes are filled without calls; one row alone.
  for _, s in ipairs { { 7, 7, 7 }, { 9, 3, 5 }, { 3, 20, 3 }, { 19, 17, 7 }, { 11, 70, 5 },
    { 1, 75, 9 }, { 4, 33, 1 } } do
    local h, w, k = unpack(s)
    local kernel, pad = { math.min(h, k), k }, { math.floor((math.min(h, k) - 1) / 2), math.floor((k - 1) / 2) }
    it(("depthwise, %d x %d by %d x %d"):format(h, w, kernel[1], k), function()
      for _, dtype in ipairs { "f32", "f64" } do
        gm.scope(function()
          try({ x = { 2, 3, h, w }, w = { 3, 1, kernel[1], k }, kernel = kernel,
                y = { 2, 3, h + 2 * pad[1] - kernel[1] + 1, w + 2 * pad[2] - k + 1 },
                attrs = { stride = { 1, 1 }, dilation = { 1, 1 }, pad_low = pad, pad_high = pad, groups = 3 } },
            dtype, "contiguous", dtype == "f64")
        end)
      end
    end)
  end

  -- The same with rows of the kernel that lie two rows of results apart, or results that lie two rows apart; several
  -- channels of a group.
  for _, s in ipairs { { 13, 9, 4, 2, 1 }, { 19, 21, 3, 1, 2 }, { 17, 18, 5, 2, 2 }, { 14, 14, 3, 1, 1, 2 } } do
    local h, w, k, stride, dilation, channels = unpack(s)
    channels = channels or 1
    local function size(n) return math.floor((n + 2 - dilation * (k - 1) - 1) / stride) + 1 end
    it(("few channels, %d x %d by %d, stride %d, dilation %d"):format(h, w, k, stride, dilation), function()
      for _, dtype in ipairs { "f32", "f64" } do
        gm.scope(function()
          try({ x = { 2, 3 * channels, h, w }, w = { 3, channels, k, k }, kernel = { k, k },
                y = { 2, 3, size(h), size(w) },
                attrs = { stride = { stride, stride }, dilation = { dilation, dilation }, pad_low = { 1, 1 },
                          pad_high = { 1, 1 }, groups = 3 } }, dtype, "contiguous", false)
        end)
      end
    end)
  end

  it("convolutions refuse what does not fit", function()
    local function refuses(op, shapes, attrs, message)
      local inputs = { n = op == "convolution_weight_grad" and 2 or 3 }
      for i, shape in ipairs(shapes) do inputs[i] = input(shape, "f32") end
      local given = support.given({ 1 }, "f32")
      support.refuses(op, inputs, { given, given }, attrs, message)
    end
    refuses("convolution", { { 2, 3 }, { 4, 3 } }, {},
      "x is %(2, 3%), should be %(batch, channels, ...%) with 1, 2 or 3")
    refuses("convolution", { { 2, 3, 5 }, { 4, 2, 3 } }, {},
      "w is %(4, 2, 3%) beside x %(2, 3, 5%) and groups = 1; should be %(outputs, channels / groups, ...%)")
    refuses("convolution", { { 2, 3, 5 }, { 4, 3, 6 } }, {},
      "reaches over 6 elements of dimension 3, which has 5 with its padding")
    refuses("convolution", { { 2, 3, 5 }, { 4, 3, 3 } }, { groups = 2 }, "3 channels cannot be divided into 2 groups")
    refuses("convolution", { { 2, 4, 5 }, { 3, 2, 3 } }, { groups = 2 }, "3 outputs cannot be divided into 2 groups")
    refuses("convolution", { { 2, 3, 5 }, { 4, 3, 3 }, { 3 } }, {}, "b is %(3%), should be %(4%)")
    refuses("convolution", { { 2, 3, 5 }, { 4, 3, 3 } }, { stride = { 0 } }, "stride is 0, should be at least 1")
    refuses("convolution", { { 2, 3, 5 }, { 4, 3, 3 } }, { stride = { 1, 2 } },
      "stride has a number for dimension 2, and there are 1")
    refuses("convolution", { { 2, 3, 5 }, { 4, 3, 3 } }, { pad_low = { -1 } }, "padding in front is %-1")
    refuses("convolution", { { 2, 3, 5 }, { 4, 3, 3 } }, { ["function"] = "exp" }, "'exp' is no activation")
    refuses("transposed_convolution", { { 2, 3, 5 }, { 4, 3, 3 } }, {}, "should be %(channels, outputs / groups, ...%)")
    refuses("transposed_convolution", { { 2, 3, 5 }, { 3, 4, 3 } }, { stride = { 2 }, output_padding = { 2 } },
      "output_padding is 2, should be less than the stride, 2")
    refuses("transposed_convolution", { { 2, 3, 1 }, { 3, 4, 1 } }, { pad_low = { 2 } },
      "dimension 3 of the result would have %-1 elements")
    refuses("convolution_weight_grad", { { 2, 4, 3 }, { 2, 3, 5 } }, { kernel = { 2 } },
      "g is %(2, 4, 3%), should be %(2, 4, 4%)")
    refuses("convolution_weight_grad", { { 2, 4, 3 }, { 2, 3, 5 } }, {}, "kernel is 0, should be at least 1")
  end)
end)
