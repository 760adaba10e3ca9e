-- Attention with a bias: every CPU table and the GPU's plain kernels against the reference, and PyTorch's numbers.
--
-- Tolerances as in attention_spec.lua; scores have the size of the bias besides. Its gradient sums over the samples.
local gm = require "ganymede"
local core = require "ganymede.core"
local full = require "spec.support.full"
local numeric = require "spec.support.numeric"
local support = require "spec.kernels.support"

local input = support.input
local TOP = 3 -- of the bias

local function agree(case)
  case.dense_rows = true
  support.agree(case)
end

-- What it is; b, queries, keys, heads, key heads, size of a head, biases; attributes; the bias' layout. Blocks of keys
-- have 48 to 112 of them, blocks of queries 16 to 128, so that some of these end inside of one.
local cases = {
  { "shared by the batch", { 3, 5, 7, 4, 2, 3, 1 } },
  { "of each of two windows", { 6, 49, 49, 2, 2, 16, 2 }, { scale = 0.3 } },
  { "of windows, from the second on", { 4, 16, 16, 3, 3, 8, 3 }, { row = 1 } },
  { "of more windows than samples", { 2, 9, 9, 2, 1, 4, 5 }, { row = 4 } },
  { "with a cap and dropout", { 2, 33, 130, 2, 1, 8, 1 }, { softcap = 0.7, p = 0.3 } },
  { "of causal attention with a window", { 2, 70, 70, 2, 2, 32, 1 }, { causal = true, window = 9 } },
  { "with a mask", { 2, 20, 40, 2, 2, 65, 1 }, {}, true },
  { "of nothing", { 0, 3, 3, 2, 2, 4, 1 } },
}

describe("attention with a bias agrees with ref:", function()
  for i, case in ipairs(cases) do
    for _, dtype in ipairs(support.dtypes) do
      if full or dtype ~= "f16" then -- f16 differs from bf16 in its casts alone
        it(case[1] .. " in " .. dtype, function()
          gm.scope(function()
            local b, s, t, h, hk, d, n = unpack(case[2])
            local attrs = { stream = { key = 99, step = 5 } }
            for key, value in pairs(case[3] or {}) do attrs[key] = value end
            local mask = case[4] and support.integers({ b, t }, "u8", 0, 2) or nil
            local q, k, v = input({ b, s, h, d }, dtype), input({ b, t, hk, d }, dtype), input({ b, t, hk, d }, dtype)
            -- as rows of a table of (queries, keys) are looked up, heads last; and plain
            local bias = i % 2 == 1 and input({ n, s, t, h }, dtype, nil, -TOP, TOP):permute { 1, 4, 2, 3 }
              or input({ n, h, s, t }, dtype, nil, -TOP, TOP)
            local g, bound = input({ b, s, h, d }, dtype), math.max(2, math.sqrt(d)) + TOP
            local inputs = { q, k, v, mask, nil, bias, n = 6 }
            agree { op = "attention", inputs = inputs, outputs = { true, true }, attrs = attrs,
                    within = support.terms(t + d, bound) }
            local o, lse = support.references("attention", inputs, attrs, 2)
            o, lse = support.copy(o, dtype), support.copy(lse, support.wide(dtype))
            agree { op = "attention_grad", inputs = { q, k, v, mask, o, lse, g, nil, bias, n = 9 },
                    outputs = { true, true, true, true }, attrs = attrs,
                    within = support.terms(s * h / hk + t + d + b, 2 * bound) }
            attrs.accumulate = true
            agree { op = "attention_grad", inputs = { q, k, v, mask, o, lse, g, nil, bias, n = 9 }, attrs = attrs,
                    outputs = { support.given({ b, s, h, d }, dtype), support.given({ b, t, hk, d }, dtype),
                                support.given({ b, t, hk, d }, dtype), support.given({ n, h, s, t }, dtype, "turned") },
                    within = support.terms(s * h / hk + t + d + b, 2 * bound) }
          end)
        end)
      end
    end
  end

  it("-inf hides a key, and a row of them leaves zeros", function()
    local hidden = -1 / 0
    for _, backend in ipairs { "ref", unpack(support.backends) } do
      gm.scope(function()
        local q = gm.ones { 1, 2, 1, 1 }
        local v = gm.tensor({ 2, 5, 11 }, { shape = { 1, 3, 1, 1 } })
        local bias = gm.tensor({ 0, hidden, 0, hidden, hidden, hidden }, { shape = { 1, 1, 2, 3 } })
        local o = core.run_op(backend, "attention", { q, v * 0, v, nil, nil, bias, n = 6 }, { true, true, n = 2 }, {})
        assert.near(6.5, o[1]:get(1, 1, 1, 1), 1e-6, backend)
        assert.equal(0, o[1]:get(1, 2, 1, 1), backend)
        assert.equal(hidden, o[2]:get(1, 1, 2), backend)
        local slopes = core.run_op(backend, "attention_grad", { q, v * 0, v, nil, o[1], o[2], q, nil, bias, n = 9 },
          { true, true, true, true, n = 4 }, {})
        for j, want in ipairs { -2.25, 0, 2.25, 0, 0, 0 } do -- 1/2 (v - o)
          assert.near(want, slopes[4]:flatten():get(j), 1e-6, backend)
        end
      end)
    end
  end)

  it("what cannot be meant is refused", function()
    local q = gm.ones { 4, 2, 2, 3 }
    local function refused(bias, text)
      assert.error_matches(function() gm.ops.attention(q, q, q, { bias = bias }) end, text, 1, true)
    end
    refused(gm.ones { 2, 2, 2 }, "should be (1 or more, heads, queries, keys)")
    refused(gm.ones { 1, 2, 2, 3 }, "bias is (1, 2, 2, 3), should be (1, 2, 2, 2)")
    refused(gm.ones { 3, 2, 2, 2 }, "3 biases do not divide a batch of 4")
    refused(gm.ones({ 1, 2, 2, 2 }, { dtype = "f64" }), "bias is f64")
  end)

  -- spec/golden/vision.py, in f64 on both sides; sums of at most 30 products.
  it("is PyTorch's, gradients too", function()
    gm.scope(function()
      local file = gm.open_arrays "spec/golden/vision.safetensors"
      local x = {}
      for _, name in ipairs { "q", "k", "v", "bias" } do
        x[name] = file:read("attention_bias/" .. name):requires_grad(true)
      end
      local o = gm.ops.attention(x.q, x.k, x.v, { bias = x.bias })
      o:backward(file:read "attention_bias/g")
      local got = { o = o, dq = x.q:grad(), dk = x.k:grad(), dv = x.v:grad(), dbias = x.bias:grad() }
      for name, t in pairs(got) do
        local want = numeric.flat(file:read("attention_bias/" .. name):totable())
        assert.is_true(numeric.relative_error(numeric.flat(t:totable()), want) <= 1e-14, name)
      end
      file:close()
    end)
  end)
end)
