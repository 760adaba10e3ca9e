-- Attention: every CPU table against the reference.
--
-- Values are below 1, so outputs are means of numbers below 1. A score sums d products and is rounded at its own
-- size, at most sqrt(d) with the usual scale; exp turns that into roundings of the probability; the output sums t
-- of them: support.terms(t + d) of 2, or of the size of the scores where that is more. On tensor cores, and on CPUs
-- that multiply bf16, weights are rounded to 16 bits besides: spec/kernels/attention_rounding.lua.
-- sanitizers: only "f32" "dropout of a block" "grad f64 b 1, 1 q" "attention f64 b 1, 1 q" "cannot be" "f64 b 1, 40 q"
--   "accumulating f64 b 2, 5" "queries than keys, f64" "1 key, f16" "that see no", the others run the same lines of C
--   (docs/testing.md)
local gm = require "ganymede"
local core = require "ganymede.core"
local full = require "spec.support.full"
local rounding = require "spec.kernels.attention_rounding"
local support = require "spec.kernels.support"

local input = support.input

local function agree(case)
  case.dense_rows = true
  case.rounding = rounding(case.op, case.inputs, case.attrs or {})
  support.agree(case)
end

-- b, queries, keys, heads, key heads, size of a head
local problems = {
  { 1, 1, 1, 1, 1, 1 }, { 2, 5, 7, 4, 2, 3 }, { 1, 64, 64, 2, 2, 16 }, { full and 2 or 1, 65, 129, 2, 1, 64 },
  { 1, 130, 33, 3, 3, 65 }, { 1, 7, 300, 6, 2, 8 }, { 1, 1, 257, 4, 4, 32 },
  { 0, 3, 3, 2, 2, 4 }, { 2, 0, 3, 2, 2, 4 }, { 2, 3, 0, 2, 2, 4 },
}

-- Memory as (b, heads, s, d), as (b, s, heads, d), part of a packed q k v, and one sequence shown b times.
local layouts = { "heads first", "contiguous", "packed", "expanded" }

local function operand(b, s, h, d, dtype, layout)
  if layout == "heads first" then return input({ b, h, s, d }, dtype):permute { 1, 3, 2, 4 } end
  if layout == "packed" then return input({ b, s, h, 3 * d }, dtype):narrow(4, d + 1, d) end
  return input({ b, s, h, d }, dtype, layout)
end

-- Small problems: every layout with and without mask, causality and dropout. Large ones, and f16, which differs from
-- bf16 in its casts alone: one of these a layout.
local function each_case(p, dtype, body)
  local b, s, t, h, _, d = unpack(p)
  local large = b * s * t * h * d > 20000 or dtype == "f16" and not full
  local function try(i, bits)
    local masked, causal, dropout = bits % 2 == 1, math.floor(bits / 2) % 2 == 1, bits >= 4
    local mask = masked and support.integers({ b, t }, "u8", 0, 2, i == 1 and "turned" or nil) or nil
    gm.scope(body, layouts[i], mask, { causal = causal, scale = i == 2 and 0.3 or 0, p = dropout and 0.3 or 0,
                                       stream = { key = 99, step = 5 } })
  end
  for i = 1, #layouts do
    for bits = 0, 7 do
      if not large or bits == (i * 3) % 8 then try(i, bits) end -- 3, 6, 1, 4
    end
  end
end

local function name_of(dtype, p)
  return ("%s b %d, %d queries, %d keys, %d heads, %d key heads, size %d"):format(dtype, unpack(p))
end

-- o and lse, as the gradient takes them.
local function saved_of(inputs, attrs, dtype)
  local o, lse = support.references("attention", inputs, attrs, 2)
  return support.copy(o, dtype), support.copy(lse, support.wide(dtype))
end

describe("attention agrees with ref:", function()
  for _, p in ipairs(problems) do
    for _, dtype in ipairs(support.dtypes) do
      local b, s, t, h, hk, d = unpack(p)
      local bound = math.max(2, math.sqrt(d))

      it("attention " .. name_of(dtype, p), function()
        each_case(p, dtype, function(layout, mask, attrs)
          local q, k = operand(b, s, h, d, dtype, layout), operand(b, t, hk, d, dtype, layout)
          local v = operand(b, t, hk, d, dtype, layout)
          agree { op = "attention", inputs = { q, k, v, mask, n = 6 }, outputs = { true, true }, attrs = attrs,
                  label = "attention, " .. layout, within = support.terms(t + d, bound) }
        end)
      end)

      -- A key's gradient sums over the queries of all heads of its group, a query's over keys.
      it("attention_grad " .. name_of(dtype, p), function()
        each_case(p, dtype, function(layout, mask, attrs)
          local q, k = operand(b, s, h, d, dtype, layout), operand(b, t, hk, d, dtype, layout)
          local v, g = operand(b, t, hk, d, dtype, layout), operand(b, s, h, d, dtype, layout)
          local inputs = { q, k, v, mask, n = 6 }
          local o, lse = saved_of(inputs, attrs, dtype)
          local width = s * h / hk + t + d
          agree { op = "attention_grad", inputs = { q, k, v, mask, o, lse, g, n = 9 },
                  outputs = { true, true, true, n = 4 }, attrs = attrs, label = "attention_grad, " .. layout,
                  within = support.terms(width, 2 * bound) }
        end)
      end)
    end
  end

  -- Scores of 100 and more: without the largest taken out exp overflows.
  it("large scores", function()
    for _, dtype in ipairs(support.dtypes) do
      gm.scope(function()
        local q, k = input({ 1, 9, 2, 16 }, dtype, nil, 5, 15), input({ 1, 70, 2, 16 }, dtype, nil, -15, 15)
        local v = input({ 1, 70, 2, 16 }, dtype)
        agree { op = "attention", inputs = { q, k, v, nil, n = 6 }, outputs = { true, true },
                within = support.terms(86, 600) } -- |score| <= 4 * 225 * a share
      end)
    end
  end)

  it("queries that see no key, and hidden keys that are NaN", function()
    local nan = 0 / 0
    for _, dtype in ipairs(support.dtypes) do
      gm.scope(function()
        local rows = {}
        for j = 1, 40 do rows[j] = (j == 3 or j == 37) and nan or j / 40 end
        local k = gm.tensor(rows, { dtype = dtype, shape = { 1, 40, 1, 1 } })
        local visible = {}
        for j = 1, 40 do visible[j] = (j == 1 or j == 3 or j == 37) and 0 or 1 end
        local mask = gm.tensor(visible, { dtype = "u8", shape = { 1, 40 } })
        local q = input({ 1, 44, 1, 1 }, dtype)
        local inputs = { q, k, k, mask, n = 6 }
        local attrs = { causal = true } -- the first five of 44 queries see nothing
        agree { op = "attention", inputs = inputs, outputs = { true, true }, attrs = attrs,
                  within = support.terms(41, 2) }
        local o, lse = saved_of(inputs, attrs, dtype)
        assert.equal(0, o:get(1, 5, 1, 1))
        assert.equal(-1 / 0, lse:get(1, 1, 5))
        local g = input({ 1, 44, 1, 1 }, dtype)
        agree { op = "attention_grad", inputs = { q, k, k, mask, o, lse, g, n = 9 },
                outputs = { true, true, true, n = 4 }, attrs = attrs, within = support.terms(88, 4) }
      end)
    end
  end)

  -- The mask of samples with so many keys each.
  local function ends(lengths, keys)
    local mask = gm.zeros({ #lengths, keys }, { dtype = "u8" })
    for i, n in ipairs(lengths) do mask:select(1, i):narrow(1, 1, n):fill_(1) end
    return mask
  end

  -- Windows that end within blocks of keys and of queries, that hide whole blocks, and that hide all keys from a query;
  -- keys that end before the last query. A slope of tanh is at most 1: capped scores have no larger errors.
  -- "prefix": a mask of ones and then zeros that is said to be one; one sample has no key at all.
  local views = {
    { "a window of 1 key", { 2, 40, 40, 4, 2, 3 }, { window = 1 } },
    { "a window and a cap", { 1, 150, 150, 2, 1, 8 }, { window = 40, softcap = 0.7 }, true },
    { "a window wider than the keys", { 1, 9, 30, 2, 2, 8 }, { window = 1000 } },
    { "a window with more keys than queries", { 2, 65, 300, 2, 1, 16 }, { window = 70 } },
    { "a window with more queries than keys", { 1, 90, 33, 3, 3, 5 }, { window = 7, p = 0.3 } },
    { "a window whose keys end early", { 1, 140, 129, 2, 2, 65 }, { window = 60, behind = 50, p = 0.3 }, true },
    { "a window behind all keys", { 1, 5, 9, 2, 2, 4 }, { window = 3, behind = 4 } },
    { "a cap", { 2, 33, 47, 4, 2, 16 }, { softcap = 0.5, p = 0.2 }, true },
    { "a cap of causal attention", { 1, 70, 70, 2, 2, 16 }, { softcap = 1.5, causal = true } },
    { "a window of whole tiles", { 1, 200, 200, 2, 1, 16 }, { window = 130 } },
    { "rows that end early", { 2, 150, 200, 2, 1, 16 }, {}, "ends" },
    { "padded rows", { 5, 150, 200, 2, 1, 16 }, {}, "prefix" },
    { "padded rows of causal attention", { 5, 150, 150, 4, 2, 64 }, { causal = true }, "prefix" },
    { "one query of a long cache", { 2, 1, 257, 4, 2, 16 }, { window = 100, softcap = 2 } },
  }
  for _, view in ipairs(views) do
    for _, dtype in ipairs(support.dtypes) do
      it(view[1] .. ", " .. name_of(dtype, view[2]), function()
        gm.scope(function()
          local b, s, t, h, hk, d = unpack(view[2])
          local attrs = { scale = 1, stream = { key = 99, step = 5 }, causal = view[3].window and true or nil }
          for key, value in pairs(view[3]) do attrs[key] = value end
          attrs.prefix_mask = view[4] == "prefix"
          local mask = view[4] == "ends" and ends({ 150, 70 }, t)
            or view[4] == "prefix" and ends({ 70, t, 1, 0, 129 }, t)
            or view[4] and support.integers({ b, t }, "u8", 0, 2) or nil
          local q, k = operand(b, s, h, d, dtype, "packed"), operand(b, t, hk, d, dtype, "heads first")
          local v, g = operand(b, t, hk, d, dtype, "contiguous"), operand(b, s, h, d, dtype, "contiguous")
          local inputs = { q, k, v, mask, n = 6 }
          agree { op = "attention", inputs = inputs, outputs = { true, true }, attrs = attrs,
                  within = support.terms(t + d, d) }
          local o, lse = saved_of(inputs, attrs, dtype)
          agree { op = "attention_grad", inputs = { q, k, v, mask, o, lse, g, n = 9 },
                  outputs = { true, true, true, n = 4 }, attrs = attrs,
                  within = support.terms(s * h / hk + t + d, 2 * d) }
        end)
      end)
    end
  end

  it("a window of i keys shows the last i keys, as if there were no others", function()
    gm.scope(function()
      local q, k, v = input({ 1, 1, 2, 4 }, "f64"), input({ 1, 20, 2, 4 }, "f64"), input({ 1, 20, 2, 4 }, "f64")
      for _, n in ipairs { 1, 6, 20 } do
        local some = core.run_op("ref", "attention", { q, k:narrow(2, 21 - n, n), v:narrow(2, 21 - n, n), nil, n = 6 },
          { true, true, n = 2 }, {})
        local seen = core.run_op("ref", "attention", { q, k, v, nil, n = 6 }, { true, true, n = 2 },
          { causal = true, window = n })
        for i = 1, 2 do support.compare(seen[i], some[i], support.exact) end
      end
    end)
  end)

  it("a mask that is no prefix is refused where it is said to be one", function()
    local q = input({ 3, 3, 1, 2 }, "f32")
    local mask = gm.tensor({ { 1, 1, 0 }, { 0, 0, 0 }, { 0, 1, 0 } }, { dtype = "u8" })
    for _, backend in ipairs { "ref", unpack(support.backends) } do
      assert.error_matches(function() -- a GPU finds it, and says so when it is waited for
        local o = core.run_op(backend, "attention", { q, q, q, mask, n = 6 }, { true, true, n = 2 },
          { prefix_mask = true })[1]
        return support.copy(o, "f64"):totable()
      end, "attention: key_mask has a zero before a one in row 2 %(from 0%): 1 of its first 2 keys are hidden")
    end
  end)

  it("what cannot be meant is refused", function()
    local q = input({ 1, 4, 1, 2 }, "f32")
    local function refused(attrs, text)
      local ok, err = pcall(core.run_op, "ref", "attention", { q, q, q, nil, n = 6 }, { true, true, n = 2 }, attrs)
      assert.is_false(ok)
      assert.matches(text, tostring(err), 1, true)
    end
    refused({ window = 2 }, "a window needs causal attention")
    refused({ window = -2, causal = true }, "window is -2")
    refused({ behind = -1, causal = true }, "behind is -1")
    refused({ softcap = -1 }, "softcap is -1")
    refused({ prefix_mask = true }, "prefix_mask says what key_mask is like, and no key_mask is given")
  end)

  -- accumulate: what the outputs hold counts as the attention to other keys; a query of it has seen none.
  for _, p in ipairs { problems[2], { 1, 65, 129, 2, 1, 64 }, { 2, 3, 0, 2, 2, 4 }, { 1, 40, 33, 3, 3, 65 } } do
    for _, dtype in ipairs(support.dtypes) do
      it("accumulating " .. name_of(dtype, p), function()
        local b, s, t, h, hk, d = unpack(p)
        gm.scope(function()
          local q, k, v = input({ b, s, h, d }, dtype), input({ b, t, hk, d }, dtype), input({ b, t, hk, d }, dtype)
          local g, lse = input({ b, s, h, d }, dtype), support.given({ b, h, s }, support.wide(dtype), "turned")
          local attrs = { causal = true, accumulate = true } -- where there are more queries some see nothing here
          local function blind()
            local before, base = lse()
            before:select(3, s):fill_(-1 / 0)
            return before, base
          end
          agree { op = "attention", inputs = { q, k, v, nil, n = 6 }, attrs = attrs,
                  outputs = { support.given({ b, s, h, d }, dtype, "window"), blind },
                  within = support.terms(t + d, 2) }
          local saved = { input({ b, s, h, d }, dtype), input({ b, h, s }, support.wide(dtype), nil, 1, 2) }
          agree { op = "attention_grad", inputs = { q, k, v, nil, saved[1], saved[2], g, n = 9 }, attrs = attrs,
                  outputs = { support.given({ b, s, h, d }, dtype, "window"), support.given({ b, t, hk, d }, dtype),
                              support.given({ b, t, hk, d }, dtype, "turned"), n = 4 },
                  within = support.terms(s * h / hk + t + d, 8 * math.sqrt(d)) }
        end)
      end)
    end
  end

  -- Scores are all equal, so that an output is the mean of the values that its query sees: of powers of two, whose sum
  -- says which.
  it("causal attention of unequal lengths lets the last query see all keys", function()
    local function sums(s, t)
      return gm.scope(function()
        local values = {}
        for j = 1, t do values[j] = 2 ^ (j - 1) end
        local q, k = gm.zeros { 1, s, 1, 1 }, gm.zeros { 1, t, 1, 1 }
        local v, seen = gm.tensor(values):reshape { 1, t, 1, 1 }, {}
        for _, backend in ipairs { "ref", unpack(support.backends) } do
          local o = core.run_op(backend, "attention", { q, k, v, nil, n = 6 }, { true, true, n = 2 }, { causal = true })
          for i = 1, s do
            local n = math.max(0, math.min(t, i + t - s))
            seen[i] = 2 ^ n - 1
            assert.near(n == 0 and 0 or seen[i] / n, o[1][1][i]:item(), 1e-6 * 2 ^ t, backend)
          end
        end
        return seen
      end)
    end
    assert.same({ 7, 15 }, sums(2, 4))
    assert.same({ 0, 0, 1, 3 }, sums(4, 2))
    assert.same({ 1, 3, 7 }, sums(3, 3))
  end)

  it("keys in two parts, one after the other, are all keys", function()
    gm.scope(function()
      local q, k = input({ 2, 9, 2, 8 }, "f64"), input({ 2, 13, 2, 8 }, "f64")
      local whole = core.run_op("ref", "attention", { q, k, k, nil, n = 6 }, { true, true, n = 2 }, {})
      local o, lse = input({ 2, 9, 2, 8 }, "f64"), input({ 2, 2, 9 }, "f64")
      for i, part in ipairs { k:narrow(2, 1, 6), k:narrow(2, 7, 7) } do
        core.run_op("ref", "attention", { q, part, part, nil, n = 6 }, { o, lse }, { accumulate = i == 2 })
      end
      support.compare(o, whole[1], support.terms(20), "o")
      support.compare(lse, whole[2], support.terms(20), "lse")
    end)
  end)

  -- Heads 3 and 4 of 6, rows 2.. of the batch: the mask is that part of the whole one. Eight keys share the words of a
  -- block of Philox.
  for first, what in pairs { [11] = "a block", [8] = "a block of whole words" } do
    it("dropout of " .. what, function()
      for _, dtype in ipairs(support.dtypes) do
        gm.scope(function()
          local q, g = input({ 2, 33, 2, 8 }, dtype), input({ 2, 33, 2, 8 }, dtype)
          local k, v = input({ 2, 47, 2, 8 }, dtype), input({ 2, 47, 2, 8 }, dtype)
          local attrs = { p = 0.5, stream = { key = 7, step = 1 },
                          box = { shape = { 5, 6, 40, 60 }, offset = { 2, 3, 5, first } } }
          local inputs = { q, k, v, nil, n = 6 }
          agree { op = "attention", inputs = inputs, outputs = { true, true }, attrs = attrs,
                  within = support.terms(55, 4) }
          local o, lse = saved_of(inputs, attrs, dtype)
          agree { op = "attention_grad", inputs = { q, k, v, nil, o, lse, g, n = 9 },
                  outputs = { true, true, true, n = 4 }, attrs = attrs,
                  within = support.terms(33 + 47 + 8, 8 * math.sqrt(8)) }
        end)
      end
    end)
  end
end)
