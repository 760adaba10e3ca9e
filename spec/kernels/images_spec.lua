-- Batch norm in steps and pooling: every CPU table, and the kernels of GPUs, against the reference.
--
-- Inputs are uniform in [-1, 1). Sums are made in double on a CPU and in f32 on a GPU, where a thread adds few of them.
local gm = require "ganymede"
local core = require "ganymede.core"
local same_bits = require "spec.kernels.thread_bits"
local support = require "spec.kernels.support"

local input, agree, with = support.input, support.agree, support.with
local terms, absolute = support.terms, support.absolute

local function refused(op, inputs, outputs, attrs, message)
  local ok, why = pcall(core.run_op, "ref", op, inputs, outputs, attrs)
  assert.is_false(ok)
  assert.matches(message, why)
end

-- ---------------------------------------------------------------- batch norm

local shapes = { { 4, 3 }, { 1, 1 }, { 2, 3, 5 }, { 3, 2, 4, 7 }, { 2, 3, 2, 3, 3 }, { 0, 3, 2 }, { 5, 2, 64, 65 },
                 { 300, 40 }, { 2, 5, 8 }, { 9, 150 }, { 6, 70, 3 }, { 5, 7, 31 }, { 4, 3, 32 },
                 { 3, 2, 6, 6 }, { 40, 2, 14, 14 }, { 8, 3, 7, 7 }, { 90, 1, 7, 7 }, { 9, 3, 32, 32 } }

-- Elements of a channel, and those of all images.
local function count(shape)
  local n = shape[1]
  for d = 3, #shape do n = n * shape[d] end
  return n
end

local function channels(shape, dtype, low, high) return input({ shape[2] }, support.wide(dtype), nil, low, high) end

describe("steps of batch norm agree with ref:", function()
  for _, more in ipairs { false, true } do
    local name = more and "batch norm with all operands" or "batch norm"
    support.each(it, name, shapes, support.layouts, function(dtype, shape, layout)
      local n, x, g = count(shape), input(shape, dtype, layout), input(shape, dtype, layout)
      local w, b = more and input({ shape[2] }, dtype, layout), more and input({ shape[2] }, dtype, layout)
      local mean, rstd = channels(shape, dtype), channels(shape, dtype, 0.5, 2)
      if n > 0 then
        agree { op = "batch_norm_sums", inputs = { x }, outputs = { true, true },
                within = { terms(n, 2), absolute(12, 4 * n) } }
      end
      agree { op = "batch_norm_apply", inputs = { x, w, b, mean, rstd, n = 5 }, outputs = { true },
              within = absolute(8, 5) } -- |x - mean| rstd w + b < 5
      agree { op = "batch_norm_grad_sums", inputs = { g, x, mean, rstd }, outputs = { true, true },
              within = { absolute(8, n + 1), absolute(8, 4 * n + 1) } }
      local h, hh = more and channels(shape, dtype), more and channels(shape, dtype)
      agree { op = "batch_norm_grad_apply", inputs = { g, x, w, mean, rstd, h, hh, n = 7 }, outputs = { true },
              within = absolute(8, 13) } -- (1 + 1 + 4) 2 + 1
    end)
  end

  support.each(it, "sums far from zero", { { 4, 3 }, { 2, 3, 400 }, { 5, 2, 64, 65 } }, { "contiguous", "turned" },
    function(dtype, shape, layout)
      local n = count(shape)
      agree { op = "batch_norm_sums", inputs = { input(shape, dtype, layout, 999, 1001) }, outputs = { true, true },
              within = { terms(n), support.wide(dtype) == dtype and support.relative(4 * n) or absolute(4 * n, 1) } }
    end)

  -- Threads share the columns of sums, and their blocks begin elsewhere then.
  it("sums of samples that are rows have the same bits on any number of threads", function()
    same_bits [[
      for _, shape in ipairs { { 3000, 190 }, { 700, 61, 9 } } do
        for _, dtype in ipairs { "f32", "f64", "bf16" } do
          local x = gm.normal(shape, { seed = 1 }):to(dtype)
          local g = gm.normal(shape, { seed = 2 }):to(dtype)
          local sums = core.run_op("cpu", "batch_norm_sums", { x }, { true, true })
          add(sums[1])
          add(sums[2])
          local wide = dtype == "f64" and "f64" or "f32"
          local rstd = gm.uniform({ shape[2] }, { low = 0.5, seed = 3 }):to(wide)
          sums = core.run_op("cpu", "batch_norm_grad_sums", { g, x, sums[1], rstd }, { true, true })
          add(sums[1])
          add(sums[2])
        end
      end
    ]]
  end)

  it("one mean of gradients without the other is refused", function()
    local x, c = gm.ones { 2, 3 }, gm.ones { 3 }
    refused("batch_norm_grad_apply", { x, x, false, c, c, c, false, n = 7 }, { true }, {}, "are given together")
  end)
end)

-- ---------------------------------------------------------------- pooling

local state = 7
local function integer(low, high)
  state = (state * 1103515245 + 12345) % 2 ^ 31
  return low + math.floor(state / 65536) % (high - low + 1)
end

local function each(dims, fn)
  local list = {}
  for d = 1, dims do list[d] = fn(d) end
  return list
end

-- Random settings that fit: the sizes of the images, and attributes.
local function windows(dims, dilated)
  while true do
    local size = each(dims, function() return integer(1, 9) end)
    local kernel = each(dims, function() return integer(1, 4) end)
    local a = { kernel = kernel, stride = each(dims, function() return integer(1, 6) end),
                pad_low = each(dims, function(d) return integer(0, math.floor(kernel[d] / 2)) end),
                pad_high = each(dims, function(d) return integer(0, math.floor(kernel[d] / 2)) end),
                ceil_mode = integer(0, 1) == 1 }
    if dilated then a.dilation = each(dims, function() return integer(1, 3) end) end
    local fits = true
    for d = 1, dims do
      local reach = (kernel[d] - 1) * (dilated and a.dilation[d] or 1) + 1
      fits = fits and size[d] + a.pad_low[d] + a.pad_high[d] >= reach
    end
    if fits then return size, a end
  end
end

local function shape_of(size) return { 2, 3, unpack(size) } end

-- Forward and backward of one call; most: how many windows a place may be in.
local function compare(kind, shape, dtype, layout, attrs, most)
  local x = input(shape, dtype, layout)
  local max = kind == "max_pool"
  agree { op = kind, inputs = { x }, outputs = max and { true, true } or { true }, attrs = attrs,
          within = max and { support.exact, support.exact } or terms(most, 1) }
  local y = core.run_op("ref", kind, { x }, max and { true, true } or { true }, attrs)
  local g = input(y[1]:shape(), dtype, layout)
  for _, accumulate in ipairs { false, true } do
    agree { op = kind .. "_grad", inputs = max and { y[2], g } or { g },
            outputs = { support.given(shape, dtype, layout ~= "expanded" and layout or nil) },
            attrs = with(attrs, { accumulate = accumulate }),
            within = terms(most, most + 1) }
  end
end

describe("pooling agrees with ref:", function()
  for dims = 1, 3 do
    for i = 1, 8 do
      local layout, dtype = support.layouts[i % #support.layouts + 1], support.dtypes[i % 4 + 1]
      it(("random windows of %d dimensions, %d"):format(dims, i), function()
        gm.scope(function()
          local size, attrs = windows(dims, true)
          compare("max_pool", shape_of(size), dtype, layout, attrs, 4 ^ dims)
          size, attrs = windows(dims, false)
          attrs.count_include_pad, attrs.divisor = i % 2 == 0, i % 4 == 3 and 5 or nil
          compare("avg_pool", shape_of(size), dtype, layout, attrs, 4 ^ dims)
        end)
      end)
      it(("adaptive windows of %d dimensions, %d"):format(dims, i), function()
        gm.scope(function()
          local size = each(dims, function() return integer(1, 9) end)
          local attrs = { output = each(dims, function() return integer(1, 6) end) }
          compare("max_pool", shape_of(size), dtype, layout, attrs, 6 ^ dims)
          compare("avg_pool", shape_of(size), dtype, layout, attrs, 9 ^ dims)
        end)
      end)
    end
  end

  -- Planes without gaps and windows of 2 or 3 places, two apart, go through kernels of their own on GPUs: rows of whole
  -- and of odd numbers of packs, windows that reach past each edge, a place before them or none.
  for i, case in ipairs { { 3, 1, 1, 16, 16 }, { 3, 0, 0, 9, 24 }, { 3, 0, 1, 8, 8 }, { 2, 0, 0, 6, 16 },
                          { 2, 1, 1, 7, 8 }, { 3, 1, 0, 10, 40 }, { 3, 1, 1, 5, 7 } } do
    support.each(it, ("windows of %d, %d before, %d behind,"):format(case[1], case[2], case[3]),
      { { 2, 3, case[4], case[5] } }, support.layouts, function(dtype, shape, layout)
        local k, low, high = case[1], case[2], case[3]
        local attrs = { kernel = { k, k }, stride = { 2, 2 }, pad_low = { low, low }, pad_high = { high, high } }
        compare("max_pool", shape, dtype, layout, attrs, 4)
        attrs.count_include_pad, attrs.divisor = i % 2 == 0, i % 3 == 0 and 5 or nil
        compare("avg_pool", shape, dtype, layout, attrs, 9)
      end)
  end

  -- Lines of a window of 16 places and more are summed up in vectors.
  it("long windows", function()
    for _, dtype in ipairs { "f32", "f64" } do
      gm.scope(function()
        compare("avg_pool", { 2, 3, 5, 37 }, dtype, "contiguous", { output = { 1, 1 } }, 185)
        compare("avg_pool", { 2, 3, 5, 60 }, dtype, "window", { kernel = { 2, 17 }, stride = { 1, 9 } }, 34)
      end)
    end
  end)

  it("NaN wins, and the first of equals; a window of padding alone has no place", function()
    gm.scope(function()
      local x = gm.tensor { { { 1, 0 / 0, 3, 2, 2, 0 / 0 } } }
      for _, backend in ipairs { "ref", unpack(support.backends) } do
        local out = core.run_op(backend, "max_pool", { x }, { true, true }, { kernel = { 3 }, stride = { 3 } })
        assert.same({ 1, 5 }, { out[2]:get(1, 1, 1), out[2]:get(1, 1, 2) })
        out = core.run_op(backend, "max_pool", { gm.tensor { { { 2, 2, -1 } } } }, { true, true }, { kernel = { 3 } })
        assert.equal(0, out[2]:item())
        local attrs = { kernel = { 2 }, dilation = { 3 }, pad_low = { 1 }, pad_high = { 1 }, stride = { 1 } }
        out = core.run_op(backend, "max_pool", { gm.tensor { { { 5, 6 } } } }, { true, true }, attrs)
        assert.same({ { { -math.huge } } }, out[1]:totable())
        assert.equal(-1, out[2]:item())
        local back = core.run_op(backend, "max_pool_grad", { out[2], gm.ones { 1, 1, 1 } }, { gm.ones { 1, 1, 2 } },
          attrs)
        assert.same({ { { 0, 0 } } }, back[1]:totable())
      end
    end)
  end)

  -- CPUs find the largest elements of up to 512 windows of a line in vectors.
  for _, dtype in ipairs { "f32", "f64", "bf16" } do
    it("lines of many windows, with equals, NaN and -inf, " .. dtype, function()
      local odd, list = { [0] = 0 / 0, -1 / 0, -1 / 0 }, {}
      for i = 1, 2 * 3 * 1703 do
        local drawn = integer(0, 40)
        list[i] = odd[drawn] or drawn % 4 - 2
        if i % 170 < 9 then list[i] = -1 / 0 end
      end
      gm.scope(function()
        local x = gm.tensor(list, { dtype = dtype }):reshape { 2, 1, 3, 1703 }
        for _, case in ipairs { { 2, 2, 1, 0 }, { 3, 2, 1, 1 }, { 3, 1, 1, 1 }, { 3, 3, 1, 0 }, { 2, 3, 7, 1 },
                                { 5, 4, 2, 2 }, { 1, 3, 1, 0 }, { 64, 1, 1, 30 }, { 65, 2, 1, 30 }, { 9, 300, 3, 0 },
                                { 3, 400, 200, 1 } } do
          local k, stride, dilation, pad = unpack(case)
          local attrs = { kernel = { 2, k }, stride = { 1, stride }, dilation = { 1, dilation }, pad_low = { 1, pad },
                          pad_high = { 0, pad } }
          agree { op = "max_pool", inputs = { x }, outputs = { true, true }, attrs = attrs,
                  within = { support.exact, support.exact }, label = table.concat(case, " ") }
        end
      end)
    end)
  end

  it("windows that do not fit are refused", function()
    local x = gm.ones { 1, 1, 3, 3 }
    local one = { 1, 1 }
    local function no(attrs, message) refused("max_pool", { x }, { true, true }, attrs, message) end
    no({ kernel = { 2, 4 }, stride = one }, "a window of 4 places does not fit into dimension 4, which has 3")
    no({ kernel = { 2, 2 }, stride = one, dilation = { 3, 1 } }, "a window of 4 places does not fit")
    no({ kernel = { 2, 2 }, stride = one, pad_low = { 2, 0 } }, "should be at most half of the window, 2")
    no({ kernel = { 0, 2 }, stride = one }, "the window is 0, should be 1 or more")
    no({ kernel = { 2, 2 }, stride = { 0, 1 } }, "the stride is 0")
    refused("avg_pool", { gm.ones { 2, 3 } }, { true }, {}, "one to three dimensions behind")
    refused("avg_pool", { gm.ones { 1, 1, 0 } }, { true }, {}, "has no place for a window")
  end)
end)
