-- Attention of bf16 on CPUs that multiply it (kernels/cpu/attention_t.h, with pairs). spec/kernels/attention_spec.lua
-- compares it with the reference in every layout; here are the ends of pairs, and what the other tables do not promise.
-- sanitizers: only "%d queries, %d keys" "33 queries" "with a bias", the others run the same lines of C
--   (docs/testing.md)
local collected = require "spec.support.collected"
local core = require "ganymede.core"
local gm = require "ganymede"
local rounding = require "spec.kernels.attention_rounding"
local same_bits = require "spec.kernels.thread_bits"
local support = require "spec.kernels.support"

local table_name = "cpu-avx512bf16"
local input = support.input

-- Values are below 1: a score sums d products, an output t of them (spec/kernels/attention_spec.lua).
local function agree(op, inputs, outputs, attrs, terms, size, label)
  support.agree { op = op, inputs = inputs, outputs = outputs, attrs = attrs, label = label, dense_rows = true,
                  within = support.terms(terms, size), rounding = rounding(op, inputs, attrs) }
end

describe("attention of bf16", function()
  -- Odd sizes of heads, and odd numbers of queries and of keys, which end with half a pair; blocks of both.
  for _, p in ipairs { { 1, 1, 1 }, { 3, 5, 2 }, { 33, 113, 7 }, { 57, 129, 64 }, { 115, 225, 33 }, { 33, 112, 8 },
    { 16, 16, 16 } } do
    local s, t, d = unpack(p)
    it(("%d queries, %d keys, size %d"):format(s, t, d), function()
      for _, attrs in ipairs { {}, { causal = true, p = 0.2, stream = { key = 3, step = 1 } }, { softcap = 2 } } do
        gm.scope(function()
          local q, k, v = input({ 2, s, 4, d }, "bf16"), input({ 2, t, 2, d }, "bf16"), input({ 2, t, 2, d }, "bf16")
          local g, mask = input({ 2, s, 4, d }, "bf16"), support.integers({ 2, t }, "u8", 0, 1)
          local size = math.max(2, math.sqrt(d))
          for _, hidden in ipairs { false, mask } do
            local label = hidden and "some keys hidden" or "all keys"
            local inputs = { q, k, v, hidden or nil, n = 6 }
            agree("attention", inputs, { true, true }, attrs, t + d, size, label)
            local saved = core.run_op("ref", "attention", inputs, { true, true, n = 2 }, attrs)
            agree("attention_grad", { q, k, v, hidden or nil, saved[1], saved[2], g, n = 9 },
              { true, true, true, n = 4 }, attrs, 2 * s + t + d, 2 * size, label)
          end
        end)
      end
    end)
  end

  -- Copies in f32 would be tensors; what threads need for themselves is scratch.
  it("is computed without copies in f32", function()
    if not core.has_backend(table_name) then return pending("this machine or this build lacks " .. table_name) end
    gm.scope(function()
      local function make() return input({ 1, 128, 4, 32 }, "bf16") end
      local q, k, v, g, o, dq, dk, dv = make(), make(), make(), make(), make(), make(), make(), make()
      local lse = gm.zeros { 1, 4, 128 }
      local function more(backend) -- bytes of tensors made meanwhile
        collected()
        gm.memory_reset_peak()
        local before = gm.memory().live
        core.run_op(backend, "attention", { q, k, v, nil, n = 6 }, { o, lse, n = 2 }, {})
        core.run_op(backend, "attention_grad", { q, k, v, nil, o, lse, g, n = 9 }, { dq, dk, dv, n = 4 }, {})
        local after = gm.memory()
        return after.peak - after.scratch_peak - before
      end
      assert.equal(0, more(table_name))
      assert.is_true(more "cpu-generic" > 0)
    end)
  end)

  it("with a bias agrees with the reference", function()
    gm.scope(function()
      local q, k, v = input({ 2, 9, 2, 6 }, "bf16"), input({ 2, 11, 2, 6 }, "bf16"), input({ 2, 11, 2, 6 }, "bf16")
      local bias = input({ 2, 2, 9, 11 }, "bf16")
      agree("attention", { q, k, v, nil, nil, bias, n = 6 }, { true, true }, {}, 17, 4, "with a bias")
    end)
  end)

  it("has the same bits on 1, 2 and 3 threads", function()
    same_bits [[
local seed = 0
local function make(...)
  seed = seed + 1
  return gm.uniform({ ... }, { low = -1, high = 1, seed = seed, dtype = "bf16" })
end
for _, shape in ipairs { { 1, 300, 1, 40 }, { 5, 70, 3, 16 } } do
  local q, k, v, g = make(unpack(shape)), make(unpack(shape)), make(unpack(shape)), make(unpack(shape))
  local attrs = { causal = true, p = 0.1, stream = { key = 1, step = 2 } }
  local o = core.run_op("cpu", "attention", { q, k, v, nil, n = 6 }, { true, true, n = 2 }, attrs)
  local d = core.run_op("cpu", "attention_grad", { q, k, v, nil, o[1], o[2], g, n = 9 },
    { true, true, true, n = 4 }, attrs)
  for _, t in ipairs { o[1], o[2], d[1], d[2], d[3] } do add(t) end
end
]]
  end)
end)
