-- Attention of bf16 in tiles of AMX (kernels/cpu/attention_amx.c, attention_amx_grad.c): by the processor if it can,
-- and with plain C in place of the instructions. attention_spec.lua and bf16_attention_spec.lua compare these tables
-- with the reference, too; here are the edges of tiles, of panels of 32 queries, and of blocks.
-- sanitizers: only "tiles end" "zeros behind", the others run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local gm = require "ganymede"
local rounding = require "spec.kernels.attention_rounding"
local same_bits = require "spec.kernels.thread_bits"
local support = require "spec.kernels.support"

local tables = { "cpu-amx-emulated", core.has_backend "cpu-amx" and "cpu-amx" or nil }
local input = support.input

local function lacks()
  if core.has_backend "cpu-amx-emulated" then return false end
  pending "needs a processor with AVX512-BF16, and its table in this build"
  return true
end

-- Queries, keys and values of 4 heads over 2 heads of keys, a gradient, and a mask.
local function made(s, t, d)
  return input({ 2, s, 4, d }, "bf16"), input({ 2, t, 2, d }, "bf16"), input({ 2, t, 2, d }, "bf16"),
    input({ 2, s, 4, d }, "bf16"), support.integers({ 2, t }, "u8", 0, 2)
end

-- For query i the keys from a place that goes up and down.
local function limits_of(s, t)
  local list = {}
  for row = 0, 1 do
    for i = 0, s - 1 do
      local from = (7 * i * i + 3 * row) % (t + 4) - 2
      list[#list + 1], list[#list + 2] = from, from + (11 * i + row) % (t + 3)
    end
  end
  return gm.tensor(list, { dtype = "i64", shape = { 2, s, 2 } })
end

-- size: how large scores may be, or 2
local function agree(q, k, v, g, mask, limits, attrs, label, size)
  local d, t, s = q:size(4), k:size(2), q:size(2)
  size = size or math.max(2, math.sqrt(d))
  local inputs = { q, k, v, mask or nil, limits or nil, n = 6 }
  support.agree { op = "attention", inputs = inputs, outputs = { true, true }, attrs = attrs, label = label,
                  dense_rows = true, within = support.terms(t + d, size),
                  rounding = rounding("attention", inputs, attrs) }
  local saved = core.run_op("ref", "attention", inputs, { true, true, n = 2 }, attrs)
  inputs = { q, k, v, mask or nil, saved[1], saved[2], g, limits or nil, n = 9 }
  support.agree { op = "attention_grad", inputs = inputs, outputs = { true, true, true, n = 4 }, attrs = attrs,
                  label = label .. ", gradient", dense_rows = true, within = support.terms(2 * s + t + d, 2 * size),
                  rounding = rounding("attention_grad", inputs, attrs) }
end

describe("attention in tiles of AMX", function()
  -- A tile has 16 rows, 16 columns and 32 numbers; a panel 32 queries; blocks have 128 queries, and 128 and 256 keys.
  for _, p in ipairs { { 1, 33, 17 }, { 16, 32, 32 }, { 17, 31, 33 }, { 33, 65, 15 }, { 49, 129, 48 }, { 129, 96, 16 },
    { 130, 257, 80 }, { 161, 300, 7 } } do
    local s, t, d = unpack(p)
    it(("ends where tiles end: %d queries, %d keys, size %d"):format(s, t, d), function()
      if lacks() then return end
      local views = {
        { "all keys", {} }, { "causal", { causal = true } },
        { "a window", { causal = true, window = 40, softcap = 1.5 } },
        { "hidden keys", { causal = true, p = 0.2, stream = { key = 3, step = 1 } }, true },
        { "limits", { scale = 0.3 }, true, true },
      }
      for _, view in ipairs(views) do
        gm.scope(function()
          local q, k, v, g, mask = made(s, t, d)
          agree(q, k, v, g, view[3] and mask, view[4] and limits_of(s, t), view[2], view[1])
        end)
      end
    end)
  end

  -- Scores of 100 and more, with ever larger ones: sums must follow the largest.
  it("brings sums to the largest score of all blocks", function()
    if lacks() then return end
    gm.scope(function()
      local q, k, v, g = made(33, 600, 16)
      local rising = gm.arange(600, { dtype = "f32" }):reshape { 1, 600, 1, 1 } * 0.02
      agree(q, (k:to "f32" * rising):to "bf16", v, g, nil, nil, { scale = 1 }, "rising scores", 16 * 12)
    end)
  end)

  -- One key has the weight 1 and the value 0, the other one the value 1 and the weight 0.49997: of this, 0.5 is the
  -- nearest number of bf16, and 0.498 the next one below.
  it("rounds weights to the nearest", function()
    if lacks() then return end
    for _, backend in ipairs(tables) do
      for key = 1, 2 do
        gm.scope(function()
          local rows, values = { { 0, 0 }, { 0, 0 } }, { { 0, 0 }, { 0, 0 } }
          rows[key], values[key] = { -0.69140625, -0.0018 }, { 1, 1 }
          local function made_of(list) return gm.tensor(list):reshape { 1, #list, 1, 2 }:to "bf16" end
          local queries = {}
          for i = 1, 17 do queries[i] = { 1, 1 } end -- fewer are computed in f32
          local inputs = { made_of(queries), made_of(rows), made_of(values), nil, n = 6 }
          local o = core.run_op(backend, "attention", inputs, { true, true, n = 2 }, { scale = 1 })[1]
          assert.near(0.5 / 1.5, o:to "f32":totable()[1][1][1][1], 0.001)
        end)
      end
    end
  end)

  it("has the bits of plain C", function()
    if not core.has_backend "cpu-amx" then return pending "this machine has no AMX, or no permission to use it" end
    for _, p in ipairs { { 17, 1, 1 }, { 70, 300, 40 }, { 200, 129, 64 } } do
      gm.scope(function()
        local q, k, v, g, mask = made(unpack(p))
        local attrs, outputs = { causal = true, p = 0.1, stream = { key = 1, step = 2 } }, {}
        for i, backend in ipairs(tables) do
          local o = core.run_op(backend, "attention", { q, k, v, mask, n = 6 }, { true, true, n = 2 }, attrs)
          local d = core.run_op(backend, "attention_grad", { q, k, v, mask, o[1], o[2], g, n = 9 },
            { true, true, true, n = 4 }, attrs)
          outputs[i] = { o[1], o[2], d[1], d[2], d[3] }
        end
        for i = 1, 5 do support.compare(outputs[2][i], outputs[1][i], support.exact, "output " .. i) end
      end)
    end
  end)

  -- 16 queries and 16 keys of small heads go the way of f32, where nothing but the results is rounded: forward heads of
  -- up to 16 numbers, the gradient up to 32.
  for _, p in ipairs { { 16, 16, 16, true, true }, { 16, 16, 17, false, true }, { 16, 16, 32, false, true },
    { 16, 16, 33, false, false }, { 17, 16, 16, false, false }, { 16, 17, 16, false, false } } do
    local s, t, d, forward, gradient = unpack(p)
    it(("leaves small calls to f32: %d queries, %d keys, size %d"):format(s, t, d), function()
      if lacks() then return end
      gm.scope(function()
        local q, k, v, g, mask = made(s, t, d)
        local function has_bits_of_f32(op, inputs, outputs)
          local wide = { n = inputs.n }
          for i = 1, inputs.n do wide[i] = inputs[i] and (inputs[i] == mask and mask or inputs[i]:to "f32") end
          local got = core.run_op("cpu-amx-emulated", op, inputs, outputs, {})[1]:to "f32"
          local want = core.run_op("cpu-amx-emulated", op, wide, outputs, {})[1]:to "bf16":to "f32"
          return pcall(assert.same, want:totable(), got:totable())
        end
        local forth = { q, k, v, mask, n = 6 }
        local saved = core.run_op("ref", "attention", forth, { true, true, n = 2 }, {})
        local back = { q, k, v, mask, saved[1], saved[2], g, n = 9 }
        assert.equal(forward, has_bits_of_f32("attention", forth, { true, true, n = 2 }))
        assert.equal(gradient, has_bits_of_f32("attention_grad", back, { true, true, true, n = 4 }))
      end)
    end)
  end

  -- What was in the memory of a call before must not reach this one: not even as 0 times infinity.
  it("meets only zeros behind the ends", function()
    if lacks() then return end
    gm.scope(function()
      local wild = gm.full({ 2, 256, 4, 96 }, 0 / 0, { dtype = "bf16" })
      local q, k, v, g = made(35, 37, 35)
      local inputs = { q, k, v, nil, n = 6 }
      local o = core.run_op("ref", "attention", inputs, { true, true, n = 2 }, {})
      local more = { q, k, v, nil, o[1], o[2], g, n = 9 }
      for _, backend in ipairs(tables) do
        local function dirty()
          local w = core.run_op(backend, "attention", { wild, wild, wild, nil, n = 6 }, { true, true, n = 2 }, {})
          core.run_op(backend, "attention_grad", { wild, wild, wild, nil, w[1], w[2], wild, n = 9 },
            { true, true, true, n = 4 }, {})
        end
        local function finite(outputs)
          for i = 1, 3 do
            for _, x in ipairs(outputs[i] and outputs[i]:reshape { -1 }:totable() or {}) do assert.is_true(x == x) end
          end
        end
        dirty()
        finite(core.run_op(backend, "attention", inputs, { true, true, n = 2 }, {}))
        dirty()
        finite(core.run_op(backend, "attention_grad", more, { true, true, true, n = 4 }, {}))
      end
    end)
  end)

  it("has the same bits on 1, 2 and 3 threads", function()
    if lacks() then return end
    same_bits [[
local function make(seed, ...) return gm.uniform({ ... }, { low = -1, high = 1, seed = seed, dtype = "bf16" }) end
for _, shape in ipairs { { 1, 300, 1, 40 }, { 5, 70, 3, 16 } } do
  local q, k, v, g = make(1, unpack(shape)), make(2, unpack(shape)), make(3, unpack(shape)), make(4, unpack(shape))
  local attrs = { causal = true, p = 0.1, stream = { key = 1, step = 2 } }
  local backend = "cpu-amx-emulated"
  local o = core.run_op(backend, "attention", { q, k, v, nil, n = 6 }, { true, true, n = 2 }, attrs)
  local d = core.run_op(backend, "attention_grad", { q, k, v, nil, o[1], o[2], g, n = 9 },
    { true, true, true, n = 4 }, attrs)
  for _, t in ipairs { o[1], o[2], d[1], d[2], d[3] } do add(t) end
end
]]
  end)
end)
